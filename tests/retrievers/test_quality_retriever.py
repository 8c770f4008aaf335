"""A config of ``karat ab`` as a system: the same lists, told like those of any other kind."""

from __future__ import annotations

import json

import pytest
import small_corpus
from small_corpus import ask, ids, system_config

from karat.cli.main import main
from karat.data.tables import Corpus, Queries
from karat.errors import InputError
from karat.retrieve.build_context import BuildContext
from karat.retrieve.quality import QualityEngine, read_config
from karat.retrieve.system_config import run_digest

ITEMS = {
    "m1": "Basalt cools fast and has small grains",
    "m2": "Granite cools slowly and has large grains",
    "m3": "Granite cools slowly, and has large grains of quartz",
    "m4": "Marble was limestone before heat and pressure",
    "m5": "Slate was mud once, then shale",
    "m6": "Pumice floats: it is mostly holes",
}
FUSED = "t2: {quality: {enabled: true, fusion: {alpha_semantic: 0.4}}}\n"
DIVERSE = FUSED.replace("0.4}", "0.4}, mmr: {enabled: true, lambda: 0.01}")
ASKED = "granite, large grains"


@pytest.fixture
def here(tmp_path):
    """A context over the stones, in a folder of its own."""
    return BuildContext(corpus=lambda: Corpus.from_dict(ITEMS), folder=tmp_path)


def engine(shop: BuildContext, text: str, more: str = ""):
    """The system of a config that is written down first."""
    (shop.folder / "some.yaml").write_text(text, encoding="utf-8")
    return small_corpus.system(shop, f"{{retriever: quality, config: some.yaml{more}}}")


def alone(shop: BuildContext, text: str, k: int = 6) -> list[str]:
    """What ``karat ab`` makes of the same config."""
    file = shop.folder / "other.yaml"
    file.write_text(text, encoding="utf-8")
    return (
        QualityEngine(Corpus.from_dict(ITEMS), read_config(str(file)).settings)
        .rank(ASKED, k)
        .item_ids
    )


@pytest.mark.parametrize("text", ["{}\n", FUSED, DIVERSE], ids=["base", "fused", "diverse"])
@pytest.mark.parametrize("k", [1, 3, 50])
def test_lists_are_those_of_the_harness(here, text, k):
    assert ids(ask(engine(here, text), ASKED, k)) == alone(here, text, k)


@pytest.mark.parametrize("text", ["{}\n", FUSED, DIVERSE], ids=["base", "fused", "diverse"])
def test_ranked_by_score_a_list_stays_as_it_is(here, text):
    hits = ask(engine(here, text), ASKED)
    again = sorted(hits, key=lambda hit: (-hit.score, hit.item_id))
    assert ids(again) == ids(hits)


def test_a_list_that_was_made_diverse_counts_one_by_rank(here):
    scores = [hit.score for hit in ask(engine(here, DIVERSE), ASKED)]
    assert scores == [1 / rank for rank in range(1, 7)]


def test_the_rankings_behind_a_list_are_logged(here):
    (answer,) = engine(here, DIVERSE).find([small_corpus.Query("q", ASKED)], 3)
    assert list(answer.lists) == ["base", "lexical"]
    assert ids(answer.lists["base"]) == alone(here, "{}\n", 3)
    assert ids(answer.lists["lexical"]) == alone(here, FUSED.replace("0.4", "0"), 3)
    (answer,) = engine(here, FUSED).find([small_corpus.Query("q", ASKED)], 3)
    assert list(answer.lists) == ["base", "lexical"]
    (answer,) = engine(here, "{}\n").find([small_corpus.Query("q", ASKED)], 3)
    assert answer.lists == {}


def test_without_a_fusion_diversity_has_the_base_ranking_behind_it(here):
    text = "t2: {quality: {enabled: true, fusion: {mode: rank}, mmr: {enabled: true}}}\n"
    (answer,) = engine(here, text).find([small_corpus.Query("q", ASKED)], 3)
    assert list(answer.lists) == ["base"]


def test_aliases_are_seen_from_the_folder_of_the_karat_yaml(here, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "words.yaml").write_text("bubbly: pumice\n", encoding="utf-8")
    text = FUSED.replace("0.4}", "0}, aliasing: {map_path: names/words.yaml}")
    assert ids(ask(engine(here, text), "bubbly", 1)) == ["m6"]


def test_rules_for_texts_around_it_hold_for_items_too(here):
    words = FUSED.replace("0.4", "0")
    plain = engine(here, words, ", aliases: {rock: slate}")
    assert ids(ask(plain, "rock", 1)) == ["m5"]
    # What the items say becomes what the query says, which it could not by the query alone.
    both = engine(here, words, ", aliases: {mud: clay, shale: clay}")
    assert ids(ask(both, "clay", 1)) == ["m5"]


def test_a_chunker_cuts_what_is_searched(here):
    cut = engine(here, FUSED, ", chunker: {algo: fixed, size: 20, overlap: 0}")
    found = ask(cut, ASKED, 3)
    assert all(hit.item_id != hit.doc_id for hit in found)
    assert {hit.doc_id for hit in ask(cut, ASKED, 99)} == set(ITEMS)


def test_the_log_says_which_config_and_what_of_it_changes_nothing(here):
    meta = engine(here, "t2: {hybrid: {enabled: true}, quality: {enabled: false}}\n").meta
    assert meta["retriever"] == "quality"
    assert meta["config_path"] == "some.yaml"
    assert meta["settings_digest"] == read_config(str(here.folder / "some.yaml")).document.digest
    assert meta["notes"] == ["some.yaml:1: t2.hybrid changes nothing here"]
    assert meta["index_bytes"] > 0
    assert "notes" not in engine(here, FUSED).meta


def test_an_alias_that_matches_nothing_is_noted(here):
    (here.folder / "words.yaml").write_text("MUD: clay\n", encoding="utf-8")
    meta = engine(here, FUSED.replace("0.4}", "0.4}, aliasing: {map_path: words.yaml}")).meta
    assert meta["notes"] == ["alias 'MUD' matches nothing: no text has such a word"]


def test_a_digest_covers_the_config_and_its_aliases(here):
    made = system_config("systems:\n  one: {retriever: quality, config: some.yaml}\n")
    config, words = here.folder / "some.yaml", here.folder / "words.yaml"
    text = FUSED.replace("0.4}", "0.4}, aliasing: {map_path: words.yaml}")
    config.write_text(text, encoding="utf-8")
    words.write_text("mud: clay\n", encoding="utf-8")
    first = run_digest(made, here, [], k=5)
    assert run_digest(made, here, [], k=5) == first
    words.write_text("mud: loam\n", encoding="utf-8")
    second = run_digest(made, here, [], k=5)
    config.write_text(text.replace("0.4}", "0.3}"), encoding="utf-8")
    assert len({first, second, run_digest(made, here, [], k=5)}) == 3


def test_a_digest_of_a_fusion_covers_the_aliases_of_its_parts(here):
    made = system_config(
        "systems:\n  one: {retriever: fuse, of: [bow, {retriever: quality, config: some.yaml}]}\n"
    )
    text = FUSED.replace("0.4}", "0.4}, aliasing: {map_path: words.yaml}")
    (here.folder / "some.yaml").write_text(text, encoding="utf-8")
    (here.folder / "words.yaml").write_text("mud: clay\n", encoding="utf-8")
    first = run_digest(made, here, [], k=5)
    (here.folder / "words.yaml").write_text("mud: loam\n", encoding="utf-8")
    assert run_digest(made, here, [], k=5) != first


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("{retriever: quality}", ("config", "YAML file")),
        ("{retriever: quality, config: ' '}", ("config",)),
        ("{retriever: quality, config: some.yaml, alpha: 1}", ("unknown key 'alpha'",)),
        ("{retriever: quality, config: none.yaml}", ("none.yaml: no such file",)),
        ("{retriever: quality, config: list.yaml}", ("list.yaml", "mapping of settings")),
        ("{retriever: quality, config: lost.yaml}", ("words.yaml: no such file",)),
    ],
)
def test_what_cannot_be_meant_is_refused(here, spec, words):
    (here.folder / "list.yaml").write_text("[1]\n", encoding="utf-8")
    lost = FUSED.replace("0.4}", "0.4}, aliasing: {map_path: words.yaml}")
    (here.folder / "lost.yaml").write_text(lost, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        small_corpus.system(here, spec)
    for word in words:
        assert word in str(refused.value)


def test_an_empty_list_is_an_answer(here):
    run = engine(here, "t2: {sim_threshold: 1.0}\n").search(Queries.from_dict({"q1": "x"}), 3)
    assert run.hits.height == 0
    assert run.calls["query_id"].to_list() == ["q1"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A karat.yaml with one system whose config has a setting that does nothing."""
    monkeypatch.chdir(tmp_path)
    lines = (json.dumps({"id": name, "text": text}) for name, text in ITEMS.items())
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "queries.tsv").write_text(f"q1\t{ASKED}\nq2\tbubbly\n", encoding="utf-8")
    (tmp_path / "qrels.tsv").write_text("q1\tm2\t1\nq2\tm6\t1\n", encoding="utf-8")
    (tmp_path / "some.yaml").write_text(FUSED.replace("alpha", "alfa"), encoding="utf-8")
    (tmp_path / "karat.yaml").write_text(
        "queries: queries.tsv\ngold: qrels.tsv\ncorpus: corpus.jsonl\nsystems:\n"
        "  one: {retriever: quality, config: some.yaml, k: 3}\n"
        "  both: {retriever: fuse, of: [bow, one], k: 3}\n",
        encoding="utf-8",
    )
    return tmp_path


NOTE = (
    "  some.yaml:1: t2.quality.fusion.alfa_semantic changes nothing here; "
    "did you mean t2.quality.fusion.alpha_semantic?"
)


def test_notes_are_told_when_a_system_is_asked_and_when_its_log_is_used_again(place, capsys):
    assert main(["search", "--system", "one"]) == 0
    assert NOTE in capsys.readouterr().out.splitlines()
    assert main(["run", "--system", "one"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert "log reused" in lines[0]
    assert lines[1] == NOTE


def test_notes_of_a_part_are_told_with_the_whole(place, capsys):
    assert main(["run", "--system", "both"]) == 0
    assert NOTE in capsys.readouterr().err.splitlines()


def test_notes_stand_in_what_search_prints_as_json(place, capsys):
    assert main(["search", "--system", "one", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["notes"] == [NOTE.strip()]


def test_changed_aliases_are_noticed_by_the_next_run(place):
    text = FUSED.replace("0.4}", "0}, aliasing: {map_path: words.yaml}")
    (place / "some.yaml").write_text(text, encoding="utf-8")
    firsts = []
    for meaning in ("pumice", "marble"):
        (place / "words.yaml").write_text(f"bubbly: {meaning}\n", encoding="utf-8")
        assert main(["run", "--system", "one", "--quiet"]) == 0
        last = (place / "runs" / "one.jsonl").read_text(encoding="utf-8").splitlines()[-1]
        firsts.append(json.loads(last)["topk"][0]["chunk_id"])
    assert firsts == ["m6", "m4"]
