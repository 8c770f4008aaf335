"""Systems composed in a karat.yaml, asked by ``karat search``, with every stage in their logs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

import karat
from karat.cli.main import main
from karat.data.tables import Corpus
from karat.formats.settings import Place as YamlPlace
from karat.formats.settings import expectations
from karat.project.config import read_config
from karat.retrieve import fuse, route
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Query
from karat.retrieve.system import build_system
from karat.retrieve.system_config import MmrOptions, StagesOptions, parse_systems

ITEMS = [
    ("tarts#1", "apple tart with cinnamon and butter", "en", "2024-05-01"),
    ("tarts#2", "apple tart without butter", "en", "2025-05-01"),
    ("tarts#3", "tarte aux pommes, apple", "fr", "2026-05-01"),
    ("bread#1", "banana bread with walnuts", "en", "2024-01-01"),
    ("bread#2", "rye bread and butter", "en", "2025-01-01"),
    ("pies#1", "apple pie with butter", "en", "2026-01-01"),
    ("pies#2", "cherry pie", "en", "2024-02-01"),
    ("pies#3", "gâteau: apple apple apple", "fr", "2024-03-01"),
]
QUERIES = [
    {"query_id": "q1", "text": "apple tart", "language": "en", "area": "tarts"},
    {"query_id": "q2", "text": "bread with butter", "language": "en", "area": "bread"},
    {"query_id": "q3", "text": "Apple  PIE", "language": "fr", "area": "tarts"},
]
QUERIES[0]["as_of"] = "2025-12-31"


@dataclass(frozen=True)
class Place:
    """A folder with a corpus and queries, where karat is called."""

    folder: object
    capfd: object

    def write(self, systems):
        """A karat.yaml: two lines of files, ``systems:``, then these lines from line 4 on."""
        lines = ["queries: eval.jsonl", "corpus: corpus.jsonl", "systems:"]
        lines += [f"  {line}" for line in systems.strip("\n").splitlines()]
        (self.folder / "karat.yaml").write_text("\n".join(lines) + "\n")

    def search(self, system):
        """A system's log as lines and as a run."""
        code, _, err = self.karat("search", "--system", system, "--restart")
        assert (code, err) == (0, "")
        path = self.folder / "runs" / f"{system}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()], karat.read_run(path)

    def refusal(self, *arguments):
        """The one line that karat says to a file that it refuses."""
        code, out, err = self.karat("search", *arguments)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        return err.strip()

    def karat(self, *arguments):
        self.capfd.readouterr()
        code = main(arguments)
        return code, *self.capfd.readouterr()


@pytest.fixture
def place(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    items = [
        {"item_id": item, "text": text, "language": language, "version": version}
        for item, text, language, version in ITEMS
    ]
    for name, rows in (("corpus.jsonl", items), ("eval.jsonl", QUERIES)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Place(tmp_path, capfd)


def listed(run, query_id, stage):
    """The ids of one list of a run, by rank."""
    here = (pl.col("query_id") == query_id) & (pl.col("stage") == stage)
    return run.hits.filter(here).sort("rank")["item_id"].to_list()


def stages(run, query_id="q1"):
    return set(run.hits.filter(pl.col("query_id") == query_id)["stage"])


def test_a_fusion_is_composed_of_a_system_by_name_and_a_retriever_in_full(place):
    place.write("""
bm25: {retriever: bm25, k: 5}
hybrid: {retriever: fuse, of: [bm25, {retriever: bow}], method: rrf, k: 4, k_raw: 6}
""")
    log, run = place.search("hybrid")
    assert stages(run) == {"final", "raw", "bm25", "bow"}
    _, alone = place.search("bm25")
    words = alone.hits.filter(pl.col("query_id") == "q1")["item_id"].to_list()
    assert listed(run, "q1", "bm25") == words
    ranks = {stage: listed(run, "q1", stage) for stage in ("bm25", "bow")}
    fused = {
        item: sum(1 / (61 + some.index(item)) for some in ranks.values() if item in some)
        for item in {*ranks["bm25"], *ranks["bow"]}
    }
    order = sorted(fused, key=lambda item: (-fused[item], *(
        some.index(item) if item in some else 99 for some in ranks.values())))  # fmt: skip
    assert listed(run, "q1", "final") == order[:4]
    assert listed(run, "q1", "raw") == order[:6]
    scores = run.hits.filter(pl.col("query_id") == "q1", pl.col("stage") == "final")["score"]
    assert scores.to_list() == pytest.approx([fused[item] for item in order[:4]])
    assert {"retrieve", "bm25", "bow", "total"} <= set(log[0]["latency_ms"])
    parts = run.meta["parts"]
    assert run.meta["index_bytes"] == sum(part["index_bytes"] for part in parts.values())
    assert run.meta["retriever"] == "fuse"
    assert (run.meta["k"], run.meta["k_raw"]) == (4, 6)


def test_tokens_are_those_of_the_list_returned_not_of_the_parts(place):
    place.write("hybrid: {retriever: fuse, of: [bm25, bow], k: 2}")
    log, _ = place.search("hybrid")
    words = {item: len(text.split()) for item, text, *_ in ITEMS}
    for line in log:
        assert line["cost"]["tokens"] == sum(words[hit["chunk_id"]] for hit in line["topk"])


def test_a_system_is_wrapped_around_another_by_its_name(place):
    place.write("""
bm25: {retriever: bm25}
hybrid: {retriever: fuse, of: [bm25, bow]}
varied: {retriever: hybrid, mmr: {lambda: 0.3}, k: 3}
""")
    _, run = place.search("varied")
    assert stages(run) == {"final", "raw", "mmr", "hybrid", "hybrid.bm25", "hybrid.bow"}
    _, inner = place.search("hybrid")
    assert listed(run, "q1", "hybrid") == listed(inner, "q1", "final")
    assert listed(run, "q1", "raw") == listed(run, "q1", "hybrid")
    assert listed(run, "q1", "final") == listed(run, "q1", "mmr")[:3]
    scores = run.hits.filter(pl.col("query_id") == "q1").group_by("item_id").agg(
        pl.col("score").filter(pl.col("stage").is_in(["final", "mmr", "raw", "hybrid"])).n_unique()
    )  # fmt: skip
    assert set(scores["score"]) == {1}


def test_a_fusion_of_one_and_a_system_in_the_same_words_give_the_same_list(place):
    place.write("""
bm25: {retriever: bm25, k: 5}
alone: {retriever: fuse, of: [bm25], k: 5}
""")
    assert [line["topk"] for line in place.search("alone")[0]] == [
        line["topk"] for line in place.search("bm25")[0]
    ]


def test_a_system_may_be_called_like_the_retriever_that_it_uses(place):
    place.write("bm25: {retriever: fuse, of: [bm25, bow], k: 3}")
    assert stages(place.search("bm25")[1]) == {"final", "raw", "bm25", "bow"}


def test_parts_can_be_given_names_of_their_own(place):
    place.write("both: {retriever: fuse, of: {long: {retriever: bm25, b: 0.0}, short: bm25}, k: 3}")
    assert stages(place.search("both")[1]) == {"final", "raw", "long", "short"}


def test_a_route_asks_the_retriever_that_a_query_is_meant_for(place):
    place.write(r"""
tarts: {retriever: bm25, filter: {doc_id: tarts}}
bread: {retriever: bm25, filter: {doc_id: bread}}
routed: {retriever: route, of: {tarts: tarts, bread: bread}, column: area, k: 2}
ruled:
  retriever: route
  of: {tarts: tarts, all: bm25}
  rules: [{match: '\btart', to: tarts}]
  default: all
""")
    log, run = place.search("routed")
    assert [line["source"] for line in log] == ["tarts", "bread", "tarts"]
    assert run.calls["source"].to_list() == ["tarts", "bread", "tarts"]
    assert sorted(listed(run, "q2", "final")) == ["bread#1", "bread#2"]
    assert {"bread", "bread.raw", "bread.filter"} <= stages(run, "q2")
    assert {hit["source"] for hit in log[1]["topk"]} == {"bread"}
    assert {"route", "bread"} <= set(log[1]["latency_ms"])
    log, _ = place.search("ruled")
    assert [line["source"] for line in log] == ["tarts", "all", "all"]


def test_every_stage_has_its_list_in_the_order_in_which_it_ran(place):
    place.write("""
all:
  retriever: bm25
  normalise: true
  aliases: {pie: tart}
  filter: {language: "{language}"}
  as_of: true
  threshold: 0.01
  distinct_docs: 0.2
  mmr: {lambda: 0.6}
  k: 2
  k_raw: 7
""")
    log, run = place.search("all")
    assert list(log[0]["stages"]) == ["filter", "as_of", "threshold", "distinct_docs", "mmr"]
    assert stages(run) == {"raw", "final", *log[0]["stages"]}
    # Aliases hold for queries and items: pies are tarts here, "Apple  PIE" is "apple tart".
    assert listed(run, "q3", "raw") == listed(run, "q1", "raw")
    assert set(listed(run, "q3", "filter")) == {"tarts#3", "pies#3"}
    english = {"tarts#1", "tarts#2", "pies#1", "pies#2"}
    assert set(listed(run, "q1", "filter")) == english
    # One of the pies was written after q1 was asked.
    assert set(listed(run, "q1", "as_of")) == english - {"pies#1"}


def test_a_rewrite_logs_both_texts_and_both_lists(place):
    (place.folder / "rules.py").write_text(
        "def better(text):\n    return text.replace('tart', 'pie')\n"
    )
    place.write("rewritten: {retriever: bm25, rewrite: {call: rules.py:better, both: true}, k: 3}")
    log, run = place.search("rewritten")
    assert (log[0]["query"], log[0]["rewritten"]) == ("apple tart", "apple pie")
    assert run.calls["rewritten"][0] == "apple pie"
    assert stages(run) == {"final", "original"}
    assert listed(run, "q1", "final")[0] == "pies#1"
    assert set(listed(run, "q1", "original")[:2]) == {"tarts#1", "tarts#2"}
    assert listed(run, "q2", "final") == listed(run, "q2", "original")


def test_a_call_fails_by_itself_and_says_which_part_failed(place):
    (place.folder / "rules.py").write_text(
        "def pick(text):\n    return 'all' if 'tart' in text else 'none'\n"
    )
    place.write("""
routed: {retriever: route, of: {all: bm25}, by: "rules.py:pick"}
outer: {retriever: fuse, of: [routed, bm25], max_failures: 1}
""")
    log, run = place.search("outer")
    reason = "part 'routed': route chose 'none'; one or more of all are expected"
    assert [line.get("error") for line in log] == [None, reason, reason]
    assert run.calls["error"].to_list() == [None, reason, reason]


def test_the_same_composition_gives_the_same_bytes_and_another_one_another_digest(place):
    place.write("""
one: {retriever: fuse, of: [bm25, bow], k: 3}
two: {retriever: fuse, of: [bm25, bow], k: 3, weights: [2, 1]}
""")
    assert place.karat("search", "--no-latency")[0] == 0
    first = (place.folder / "runs" / "one.jsonl").read_bytes()
    assert place.karat("search", "--no-latency")[0] == 0
    assert (place.folder / "runs" / "one.jsonl").read_bytes() == first
    digests = {
        json.loads((place.folder / "runs" / f"{name}.jsonl").read_text().splitlines()[0])[
            "config_digest"
        ]
        for name in ("one", "two")
    }
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("systems", "line", "message"),
    [
        (
            "a: {retriever: fuse, of: [b]}\nb: {retriever: fuse, of: [bm25, a]}",
            4,
            "system 'a' contains itself: a → b → a",
        ),
        ("bm25: {retriever: bm25}\na: {retriever: a, k: 5}", 5, "system 'a' contains itself"),
        ("a: {retriever: fuse, of: [a, bm25]}", 4, "system 'a' contains itself: a → a"),
        (
            "a: {retriever: route, of: {x: {retriever: fuse, of: [a]}}, column: area}",
            4,
            "system 'a' contains itself: a → a",
        ),
        (
            "a:\n  retriever: fuse\n  of:\n    - bm25\n    - retriever: bm25\n      kk1: 2",
            9,
            "unknown key 'kk1' in 'retriever: bm25'; did you mean k1?",
        ),
        (
            "a:\n  retriever: fuse\n  of: [bm25, bow]\n  metod: rrf",
            7,
            "unknown key 'metod' in 'retriever: fuse'; did you mean method?",
        ),
        (
            "a: {retriever: bm25}\nb:\n  retriever: a\n  rernk: {model: x}",
            7,
            "unknown key 'rernk' in 'retriever: a'; did you mean rerank?",
        ),
        ("a: {retriever: bm25}\nb: {retriever: a, of: [bow]}", 5, "unknown key 'of' in 'retriever"),
        (
            "a:\n  retriever: bm25\n  mmr:\n    lamda: 0.5",
            7,
            "unknown key 'lamda'; did you mean lambda?",
        ),
        ("a:\n  retriever: bm25\n  mmr:\n    lambda: 2", 7, "lambda is 2; it must be a share"),
        ("a: {retriever: fuse, of: [bm25, bmm25]}", 4, "unknown retriever 'bmm25'; did you mean"),
        (
            "a:\n  retriever: fuse\n  of:\n    - retriever: bm25\n      concurrency: 4",
            8,
            "concurrency names a system; give it to the system, not to a part",
        ),
        (
            "a:\n  retriever: route\n  column: area\n  of: {x: {retriever: bm25, rate: 4}}",
            7,
            "rate names a system",
        ),
        (
            "a:\n  retriever: fuse\n  of: [bm25, bow]\n  weights: [1]",
            4,
            "weights has 1 numbers for 2 retrievers; give each one",
        ),
        ("a: {retriever: fuse, of: [bm25, bow], alpha: 0.4}", 4, "alpha goes with method interp"),
        ("a: {retriever: route, of: {x: bm25}}", 4, "a route needs one of by, column and rules"),
        ("a: {retriever: fuse, of: [bm25, 5]}", 4, "of is ['bm25', 5]; it must be a list of"),
        ("a: {retriever: fuse, of: [bm25, {k: 5}]}", 4, "has no retriever; name one of bm25"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_its_line(place, systems, line, message):
    place.write(systems)
    told = place.refusal()
    assert told.startswith(f"karat: karat.yaml:{line}: ")
    assert message in told
    assert not (place.folder / "runs").exists()


@pytest.mark.parametrize(
    ("system", "message"),
    [
        ("{retriever: bm25, filter: {langage: pt}}", "'langage' in 'filter'; did you mean lang"),
        ("{retriever: bm25, aliases: words.yaml}", "words.yaml: no such file"),
        ("{retriever: bm25, aliases: {a: b, A: c}, normalise: true}", "'a' stands for 'b' and for"),
        ("{retriever: bm25, rewrite: 'rules.py:better'}", "rules.py: no such file"),
        ("{retriever: route, of: {x: bm25}, by: 'rules.py:pick'}", "rules.py: no such file"),
    ],
)  # fmt: skip
def test_what_is_missing_or_misspelled_in_files_is_refused_before_asking(place, system, message):
    place.write(f"a: {system}")
    assert message in place.refusal()
    assert not list(place.folder.glob("runs/*"))


PAGE = Path(__file__).parents[2] / "docs" / "compose-a-system.md"
EXAMPLES = re.findall(r"```yaml\nsystems:\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", range(len(EXAMPLES)))
def test_the_examples_of_the_page_run_as_they_stand(place, example):
    (place.folder / "karat.yaml").write_text(
        f"queries: eval.jsonl\ncorpus: corpus.jsonl\nsystems:\n{EXAMPLES[example]}"
    )
    code = re.search(r"```python\n# rules.py\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (place.folder / "rules.py").write_text(code[1])
    config = read_config("karat.yaml")
    for name, system_config in parse_systems(config.systems, config.place.at("systems")).items():
        # A model is not here to be asked, but what is said of it can be read.
        if system_config.stages.rerank is None:
            log, _ = place.search(name)
            assert [line.get("error") for line in log] == [None] * len(QUERIES)
            assert any(line["topk"] for line in log)


def test_the_page_names_every_stage_and_every_option_of_fuse_and_route():
    page = PAGE.read_text("utf-8")
    for form in (StagesOptions, MmrOptions, fuse.Options, route.Options):
        for key in expectations(form):
            assert f"`{key}`" in page or f"{key}:" in page, key


def test_rules_of_a_system_and_of_its_part_reach_the_index_in_the_order_of_the_query(tmp_path):
    corpus = Corpus.from_dict({"d1": "large language model", "d2": "a small dog"})
    system_configs = parse_systems(
        {
            "outer": {
                "retriever": "fuse",
                "of": [{"retriever": "bm25", "aliases": {"neural": "dog"}}],
                "aliases": {"model": "neural"},
            }
        },
        YamlPlace("karat.yaml"),
    )
    system = build_system(
        system_configs["outer"], BuildContext(corpus=lambda: corpus, folder=tmp_path)
    )
    # "model" becomes "neural" and then "dog", in the query and in d1 alike.
    [answer] = system.find([Query("q", "model")], 5)
    assert sorted(hit.item_id for hit in answer.hits) == ["d1", "d2"]


def test_a_system_around_another_keeps_its_limits():
    systems = {
        "live": {"retriever": "http", "url": "http://[::1]:9/", "rate": 5, "index_version": "7"},
        "around": {"retriever": "live", "k": 3, "retries": 1},
    }
    calls = parse_systems(systems, YamlPlace("karat.yaml"))["around"].calls
    assert (calls.rate, calls.index_version, calls.retries) == (5, "7", 1)


def test_a_fusion_asks_its_parts_for_more_than_it_shows(tmp_path):
    corpus = Corpus.from_dict({f"d{n:02}": f"word w{n}" for n in range(80)})
    spec = {"both": {"retriever": "fuse", "of": ["bm25", "bow"], "k": 3}}
    system_config = parse_systems(spec, YamlPlace("karat.yaml"))["both"]
    system = build_system(system_config, BuildContext(corpus=lambda: corpus, folder=tmp_path))
    [answer] = system.find([Query("q", "word")], 3)
    assert len(answer.hits) == 3
    assert len(answer.lists["bm25"]) == len(answer.lists["raw"]) == 50
