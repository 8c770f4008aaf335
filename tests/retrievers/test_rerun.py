"""Later stages run again on lists that were changed, by themselves and under ``karat stress``."""

from __future__ import annotations

import json
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path

import model_folders
import numpy as np
import pytest
import pytrec_eval
from given_lists import Failing, Given, hits, ids

import karat
from karat.cli.main import main
from karat.data.tables import Corpus
from karat.errors import CallError, UsageError
from karat.formats.settings import Place
from karat.retrieve.build_context import BuildContext, Items
from karat.retrieve.protocol import Hit, Query
from karat.retrieve.rerun import RerunStart, StageRerun, mine_negatives
from karat.retrieve.search import FailedCall, search_system
from karat.retrieve.stages import DistinctDocs, Filter, Threshold, reranker
from karat.retrieve.system import SearchSystem, build_system
from karat.retrieve.system_config import RerankOptions, parse_systems

# Words that the models' tokenizer does not cut.
WORDS = (
    *("sea", "storm", "calm", "ship", "wind", "rain", "tax", "money"),
    *("bank", "city", "road", "tree", "river", "stone", "fire", "snow"),
)
MEASURES = {"nDCG@5": "ndcg_cut_5", "R@5": "recall_5", "RR@10": "recip_rank"}


def world(seed=1, items=40, queries=25):
    """Texts of random words, and queries with gold and three negatives each."""
    rng = random.Random(seed)
    corpus = {f"d{at:02}": " ".join(rng.choices(WORDS, k=rng.randint(3, 9))) for at in range(items)}
    cases = []
    for at in range(queries):
        judged = rng.sample(sorted(corpus), 6)
        cases.append(
            {
                "query_id": f"q{at:02}",
                "question": " ".join(rng.sample(WORDS, 3)),
                "gold_evidence": judged[:3],
                "negatives": judged[3:],
                "language": rng.choice(["pt", "es"]),
            }
        )
    return corpus, cases


def context(folder, corpus):
    made = Corpus.from_dict(corpus)
    return BuildContext(corpus=lambda: made, folder=folder, cache=folder / ".karat")


def rerunner(shop, spec, k=10):
    system_config = parse_systems({"one": spec}, Place("karat.yaml"))["one"]
    return StageRerun(
        system_config, build_system(system_config, shop), system_config.stages.k or k, shop
    )


def asked(cases):
    return [Query(case["query_id"], case["question"], {"language": "pt"}) for case in cases]


def starts(made, queries):
    return {query.query_id: outcome for query, outcome in made.ask(queries)}


def cross(folder, **more):
    return {"model": model_folders.CROSS, "path": str(folder), **more}


SPECS = [
    {"retriever": "bm25"},
    {"retriever": "bm25", "k": 5, "k_raw": 12},
    {"retriever": "bm25", "k": 5, "k_raw": 6, "filter": {"language": "{language}"}},
    {"retriever": "bm25", "k": 4, "as_of": True, "threshold": 0.3},
    {"retriever": "bm25", "k": 5, "k_raw": 20, "distinct_docs": 0.5, "mmr": {"lambda": 0.3}},
    {"retriever": "fuse", "of": ["bm25", "bow"], "k": 7},
    {"retriever": "bm25", "k": 5, "normalise": True, "aliases": {"gale": "storm"}},
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: "-".join(spec))
def test_an_unchanged_list_becomes_what_the_system_returns(tmp_path, spec):
    corpus, cases = world()
    told = {
        item: {
            "text": text,
            "language": "pt" if at % 4 == 0 else "en",
            "version": f"2024-01-{at:02}",
        }
        for at, (item, text) in enumerate(corpus.items(), 1)
        if at < 29
    }
    made = rerunner(context(tmp_path, told), spec)
    queries = [
        replace(
            query, text=f"{query.text} Gale", attributes={"language": "pt", "as_of": "2024-01-15"}
        )
        for query in asked(cases)
    ]
    expected = made.system.find(queries, 10)
    for query, answer in zip(queries, expected, strict=True):
        start = starts(made, [query])[query.query_id]
        again = made.again(start, start.raw)
        assert again.hits == answer.hits
        assert list(again.lists) == [name for name in answer.lists if name not in ("bm25", "bow")]


def test_a_reranked_list_is_reranked_again(tmp_path, cross_encoder):
    corpus, cases = world()
    spec = {"retriever": "bm25", "k": 5, "k_raw": 12, "rerank": cross(cross_encoder, top=8)}
    made = rerunner(context(tmp_path, corpus), spec)
    for query in asked(cases):
        start = starts(made, [query])[query.query_id]
        assert made.again(start, start.raw).hits == made.system.find([query], 5)[0].hits
    assert made.stages == ["rerank"]
    assert made.reranker["name"] == model_folders.CROSS


def test_nothing_more_is_retrieved_for_a_list_that_is_given():
    finder = Given(hits(*[part for at in range(40) for part in (f"i{at}", 40.0 - at)]))
    items = Items(Corpus.from_dict({f"i{at}": {"text": "", "even": at % 2} for at in range(40)}))
    system = SearchSystem("one", finder, k=5, k_raw=5, filters=[Filter({"even": 1}, items)])
    query = Query("1", "x")
    assert ids(system.find([query], 5)[0].hits) == ["i1", "i3", "i5", "i7", "i9"]
    finder.asked.clear()
    given = system.finish(query, hits("i2", 3.0, "i4", 2.0, "i5", 1.0), 5)
    assert ids(given.hits) == ["i5"]
    assert finder.asked == []


def test_retrieving_goes_as_deep_as_the_filter_needs():
    finder = Given(hits(*[part for at in range(40) for part in (f"i{at}", 40.0 - at)]))
    system = SearchSystem(
        "one", finder, k=5, k_raw=5, filters=[Filter({"item_id": ["i1", "i30"]}, None)]
    )
    (answer,) = system.retrieve([Query("1", "x")], 5)
    assert [k for _, k in finder.asked] == [5, 20, 80]
    assert len(answer.hits) == 40


def test_the_later_stages_see_the_query_after_rules_and_rewriting(tmp_path):
    (tmp_path / "calls.py").write_text("def swap(text):\n    return text + ' storm'\n")
    shop = context(tmp_path, {"a": "storm", "b": "sea"})
    plain = rerunner(shop, {"retriever": "bm25", "normalise": True})
    (start,) = starts(plain, [Query("1", "SEA  Calm")]).values()
    assert start.query.text == "sea calm"
    both = {"retriever": "bm25", "normalise": True, "rewrite": "calls.py:swap"}
    (start,) = starts(rerunner(shop, both), [Query("1", "SEA", {"x": 1})]).values()
    assert start.query == Query("1", "sea storm", {"x": 1})
    assert {hit.item_id for hit in start.raw} == {"a", "b"}


def test_a_retriever_that_fails_is_a_failed_call(tmp_path):
    made = rerunner(context(tmp_path, {"a": "sea"}), {"retriever": "bm25"})
    made = replace(made, system=SearchSystem("one", Failing(CallError("no  route\nto host"))))
    assert starts(made, [Query("1", "sea")]) == {"1": FailedCall("no route to host")}


def test_an_item_that_a_retriever_gives_twice_is_taken_once(tmp_path):
    made = rerunner(context(tmp_path, {"a": "sea"}), {"retriever": "bm25"})
    made = replace(made, system=SearchSystem("one", Given(hits("a", 3.0, "b", 2.0, "a", 1.0))))
    assert starts(made, [Query("1", "sea")])["1"].raw == hits("a", 3.0, "b", 2.0)


@pytest.mark.parametrize("kind", ["cross", "bi"])
def test_the_reranker_gives_negatives_scores_of_its_own(tmp_path, cross_encoder, minilm, kind):
    """As the same model by itself gives them, whatever they were put in with."""
    corpus, cases = world()
    model = cross(cross_encoder)
    if kind == "bi":
        model = {"model": model_folders.MINILM, "path": str(minilm), "kind": "bi"}
    made = rerunner(
        context(tmp_path, corpus), {"retriever": "bm25", "k": 10, "k_raw": 10, "rerank": model}
    )
    alone = reranker(RerankOptions(**model), Items(Corpus.from_dict(corpus)), BuildContext())
    for case in cases[: 3 if kind == "bi" else None]:
        query = Query(case["query_id"], case["question"])
        start = starts(made, [query])[query.query_id]
        entries = [(item, 99.0) for item in case["negatives"]]
        edited = made.hits(start, entries)
        assert [(hit.item_id, hit.score) for hit in edited] == entries
        own = {hit.item_id: hit.score for hit in alone.apply(query, edited)}
        again = made.again(start, [*edited, *start.raw[:5]])
        found = {hit.item_id: hit.score for hit in again.hits}
        assert {item: found[item] for item in own} == pytest.approx(own, abs=1e-6)
        assert max(own.values()) < 99
    if kind == "cross":
        # Shared words, less 0.01 a word.
        item, text = entries[0][0], corpus[entries[0][0]].split()
        shared = sum(word in query.text.split() for word in text)
        assert own[item] == pytest.approx(shared - 0.01 * len(text), abs=1e-6)


def test_an_edited_list_is_no_longer_than_the_retrievers_can_be(tmp_path):
    corpus = {f"d{at}": "sea" for at in range(20)}
    made = rerunner(context(tmp_path, corpus), {"retriever": "bm25", "k": 6, "k_raw": 6})
    start = starts(made, [Query("1", "sea")])["1"]
    entries = [("d19", 9.0), *((hit.item_id, hit.score) for hit in start.raw)]
    again = made.again(start, made.hits(start, entries))
    assert ids(again.hits) == ["d19", *ids(start.raw)[:5]]


def test_of_a_new_item_the_corpus_tells(tmp_path):
    corpus = {
        "a#1": {"text": "sea", "doc_id": "A", "version": "1"},
        "b#1": {"text": "tax", "doc_id": "B", "version": "2", "source": "web"},
    }
    made = rerunner(context(tmp_path, corpus), {"retriever": "bm25"})
    start = RerunStart(Query("1", "sea"), [Hit("a#1", 1.0, text="its own")])
    assert made.hits(start, [("b#1", 3.0), ("a#1", 2.0), ("new", None)]) == [
        Hit("b#1", 3.0, "B", "2", "web"),
        Hit("a#1", 2.0, text="its own"),
        Hit("new"),
    ]
    assert [made.knows(start, item) for item in ("a#1", "b#1", "new")] == [True, True, False]
    assert made.knows(RerunStart(start.query, [Hit("new")]), "new")


def test_an_item_without_a_text_is_a_failed_call(tmp_path, cross_encoder):
    spec = {"retriever": "bm25", "rerank": cross(cross_encoder)}
    made = rerunner(context(tmp_path, {"a": "sea"}), spec)
    start = starts(made, [Query("1", "sea")])["1"]
    failed = made.again(start, [Hit("elsewhere", 2.0), *start.raw])
    assert isinstance(failed, FailedCall)
    assert "item 'elsewhere' has no text, and rerank needs one" in failed.reason


@pytest.mark.parametrize(
    "spec", [one for one in SPECS if "filter" not in one and "as_of" not in one]
)
def test_a_log_says_what_asking_again_would(tmp_path, spec):
    corpus, cases = world()
    made = rerunner(context(tmp_path, corpus), spec, k=50)
    queries = [*asked(cases), Query("none", "zzz")]
    path = tmp_path / "one.jsonl"
    search_system(made.system_config, made.context, queries, path)
    assert made.takes_logs
    log = karat.read_run(path)
    logged = {query.query_id: start for query, start in made.read(log, queries)}
    assert logged == starts(made, queries)
    # BM25 finds nothing for a word that no text has.
    assert bool(logged["none"].raw) == (spec["retriever"] != "bm25")


def test_a_log_tells_how_a_query_was_rewritten(tmp_path):
    (tmp_path / "calls.py").write_text("def swap(text):\n    return text + ' storm'\n")
    spec = {"retriever": "bm25", "rewrite": "calls.py:swap"}
    made = rerunner(context(tmp_path, {"a": "storm", "b": "sea"}), spec)
    queries = [Query("1", "sea")]
    search_system(made.system_config, made.context, queries, tmp_path / "one.jsonl")
    ((_, start),) = made.read(karat.read_run(tmp_path / "one.jsonl"), queries)
    assert start.query.text == "sea storm"


def test_logs_that_do_not_tell_all_are_not_taken(tmp_path, cross_encoder):
    (tmp_path / "own.py").write_text("def find(text, k):\n    return [('a', 1.0)]\n")
    shop = context(tmp_path, {"a": "sea"})
    live = {"retriever": "python", "call": "own.py:find"}
    known = {**live, "index_version": "7"}
    for spec, taken in (
        ({"retriever": "bm25", "threshold": 0.1}, False),  # how deep it had to look
        ({"retriever": "bm25", "rerank": cross(cross_encoder)}, True),
        (live, False),
        (known, True),
        ({**known, "rerank": cross(cross_encoder)}, False),  # what texts it returned
    ):
        assert rerunner(shop, spec).takes_logs is taken


def test_negatives_are_mined_by_bm25(tmp_path):
    corpus, cases = world()
    shop = context(tmp_path, corpus)
    queries = asked(cases)
    mined = mine_negatives(shop, queries, 3)
    system = rerunner(shop, {"retriever": "bm25"}).system
    for query in queries:
        expected = ids(system.find([query], 50)[0].hits)
        assert mined[query.query_id][:50] == expected
    with pytest.raises(UsageError, match="name one: --corpus"):
        mine_negatives(BuildContext(), queries, 3)


def test_negatives_of_a_chunked_corpus_are_chunks(tmp_path):
    shop = context(tmp_path, {"doc": "storm at sea. calm river. tax money. road tree."})
    chunker = {"algo": "fixed", "size": 2, "overlap": 0, "unit": "words"}
    assert mine_negatives(shop, [Query("1", "calm river")], 1, chunker=chunker)["1"][0].startswith(
        "doc#"
    )


def test_a_threshold_and_a_bonus_see_the_scores_that_a_list_was_given(tmp_path):
    made = rerunner(context(tmp_path, {"a": "sea"}), {"retriever": "bm25"})
    stages = {"filters": [Threshold(0.5)], "stages": [DistinctDocs(1.0, None)]}
    made = replace(made, system=SearchSystem("one", Given([]), k=5, **stages))
    start = RerunStart(Query("1", "x"), hits("a#1", 0.9, "a#2", 0.8, "b#1", 0.4))
    again = made.again(start, made.hits(start, [("b#1", 0.95), ("a#1", 0.9), ("a#2", 0.8)]))
    assert [(hit.item_id, hit.score) for hit in again.hits] == [
        ("b#1", 1.95),
        ("a#1", 1.9),
        ("a#2", 0.8),
    ]


@pytest.fixture
def karat_in(tmp_path, monkeypatch, capfd):
    """A folder with a corpus, an eval set and a karat.yaml of some systems, and karat in it."""
    monkeypatch.chdir(tmp_path)
    corpus, cases = world()

    def write(systems, corpus=corpus, cases=cases, **more):
        rows = [{"item_id": item, "text": text} for item, text in corpus.items()]
        for name, lines in (("corpus.jsonl", rows), ("eval.jsonl", cases)):
            (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in lines))
        config = {"queries": "eval.jsonl", "corpus": "corpus.jsonl", "systems": systems, **more}
        (tmp_path / "karat.yaml").write_text(json.dumps(config))

        def call(*arguments, code=0):
            capfd.readouterr()
            assert main(arguments) == code
            return capfd.readouterr()

        return call

    write.corpus, write.cases = corpus, cases
    return write


def by_cross_encoder(corpus, question, items, k):
    """What the tests' cross-encoder makes of a list: shared words, less 0.01 a word, stable."""
    wanted = question.split()

    def worth(item):
        words = corpus[item].split()
        return sum(word in wanted for word in words) - 0.01 * len(words)

    return sorted(items, key=lambda item: -worth(item))[:k]


def values(lists, cases):
    gold = {case["query_id"]: dict.fromkeys(case["gold_evidence"], 1) for case in cases}
    run = {name: {item: -float(at) for at, item in enumerate(own)} for name, own in lists.items()}
    evaluator = pytrec_eval.RelevanceEvaluator(gold, {"ndcg_cut.5", "recall.5", "recip_rank"})
    found = evaluator.evaluate(run)
    return {name: np.array([found[q][theirs] for q in gold]) for name, theirs in MEASURES.items()}


def test_the_drop_is_that_of_lists_reranked_after_the_edit(karat_in, cross_encoder, tmp_path):
    corpus, cases = karat_in.corpus, karat_in.cases
    spec = {"retriever": "bm25", "k": 10, "k_raw": 12, "rerank": cross(cross_encoder, top=8)}
    call = karat_in({"one": spec, "bare": {"retriever": "bm25", "k": 12}})
    told = json.loads(
        call("stress", "--system", "one", "--json", "--truncate", "4", "--insert", "3").out
    )
    (system,) = told["systems"]
    assert (system["how"], system["lists_from"]) == ("reranked", "retriever")
    assert system["reranker"]["name"] == model_folders.CROSS
    raw = rerunner(context(tmp_path, corpus), {"retriever": "bm25", "k": 12}).system
    before, inserted, cut, gone = {}, {}, {}, []
    for case in cases:
        name, question = case["query_id"], case["question"]
        found = ids(raw.find([Query(name, question)], 12)[0].hits)
        before[name] = by_cross_encoder(corpus, question, found[:8], 10)
        damaged = [*case["negatives"], *(one for one in found if one not in case["negatives"])][:12]
        inserted[name] = by_cross_encoder(corpus, question, damaged[:8], 10)
        cut[name] = by_cross_encoder(corpus, question, found[:4], 10)
        gone.append([item in inserted[name][:5] for item in case["negatives"]])
    old = values(before, cases)
    for scenario, lists in zip(system["scenarios"], (inserted, cut), strict=True):
        new = values(lists, cases)
        for name, fall in scenario["measures"].items():
            assert fall["before"] == pytest.approx(old[name].mean(), abs=1e-9)
            assert fall["after"] == pytest.approx(new[name].mean(), abs=1e-9)
            assert fall["drop"] == pytest.approx((old[name] - new[name]).mean(), abs=1e-9)
            assert fall["n"] == 25
    fate = system["scenarios"][0]["negatives"]
    assert fate["in_top"] == pytest.approx(np.mean(gone))
    assert 0 < fate["in_top"] < 1


def test_a_reranker_that_sees_all_the_same_items_cannot_be_shaken_by_their_order(
    karat_in, cross_encoder
):
    """Every text has its own score here, so that no order given can show through."""
    rng = random.Random(4)
    corpus = {
        f"d{at}": " ".join(["sea"] * (at + 1) + rng.choices(WORDS[5:], k=3)) for at in range(20)
    }
    cases = [
        {"query_id": f"q{at}", "question": "sea calm", "gold_evidence": [f"d{at}"]}
        for at in range(10)
    ]
    call = karat_in(
        {
            "one": {"retriever": "bm25", "k": 10, "k_raw": 20, "rerank": cross(cross_encoder)},
            "bare": {"retriever": "bm25", "k": 10, "k_raw": 20},
        },
        corpus=corpus,
        cases=cases,
    )
    told = json.loads(call("stress", "--shuffle", "--json").out)
    one, bare = told["systems"]
    (fall,) = [scenario["measures"]["RR@10"] for scenario in one["scenarios"]]
    assert (fall["drop"], fall["same"]) == (0.0, 10)
    assert bare["how"] == "list edited"
    assert bare["scenarios"][0]["measures"]["RR@10"]["same"] < 10


def test_a_real_model_pushes_negatives_down(karat_in, minilm):
    corpus = {
        "boat": "how to sail a small boat across the bay",
        "ship": "the ship left the harbour for the open sea",
        "tax": "how to file the yearly tax return",
        "fee": "which fees a bank may charge for a transfer",
        "cake": "a recipe for a chocolate cake",
        "bread": "baking bread with rye flour",
    }
    cases = [
        {"query_id": "1", "question": "sailing on the ocean", "gold_evidence": ["ship", "boat"]},
        {"query_id": "2", "question": "paying money to the state", "gold_evidence": ["tax"]},
        {"query_id": "3", "question": "what to do with flour", "gold_evidence": ["bread"]},
    ]
    for case, wrong in zip(cases, ("cake", "boat", "fee"), strict=True):
        case["negatives"] = [wrong]
    model = {"model": model_folders.MINILM, "path": str(minilm), "kind": "bi"}
    call = karat_in(
        {"one": {"retriever": "bow", "k": 3, "k_raw": 6, "rerank": model}},
        corpus=corpus,
        cases=cases,
    )
    told = json.loads(call("stress", "--at", "1", "-m", "nDCG@1", "--json").out)
    (scenario,) = told["systems"][0]["scenarios"]
    assert scenario["inserted"] == 3
    assert told["systems"][0]["reranker"]["kind"] == "bi"
    # On top of what the reranker was given, none of them is on top after it.
    assert (scenario["edited"], scenario["negatives"]["in_top"]) == (3, 0.0)


def test_a_log_that_is_there_is_used_until_something_changes(karat_in, cross_encoder, tmp_path):
    spec = {"retriever": "bm25", "k": 10, "k_raw": 12, "rerank": cross(cross_encoder)}
    call = karat_in({"one": spec})
    fresh = json.loads(call("stress", "--json").out)
    call("search", "--quiet")
    used = json.loads(call("stress", "--json").out)
    assert fresh["systems"][0].pop("lists_from") == "retriever"
    assert used["systems"][0].pop("lists_from") == "log"
    assert used == fresh
    karat_in({"one": {**spec, "k_raw": 13}})
    assert json.loads(call("stress", "--json").out)["systems"][0]["lists_from"] == "retriever"


def test_calls_that_fail_are_counted_and_left_out(karat_in, cross_encoder, tmp_path):
    (tmp_path / "own.py").write_text(
        "from karat.errors import CallError\n\n\n"
        "def find(text, k):\n"
        "    if 'storm' in text:\n"
        "        raise CallError('the index is away')\n"
        "    if 'calm' in text:\n"
        "        return [('unknown', 1.0)]\n"
        "    return [('d00', 2.0), ('d01', 1.0)]\n"
    )
    spec = {"retriever": "python", "call": "own.py:find", "rerank": cross(cross_encoder)}
    call = karat_in({"one": spec})
    (system,) = json.loads(call("stress", "--json", "--drop", "1").out)["systems"]
    questions = [case["question"] for case in karat_in.cases]
    away = sum("storm" in text for text in questions)
    blind = sum("calm" in text and "storm" not in text for text in questions)
    assert min(away, blind) > 0
    assert system["queries"]["failed"] == away + blind
    assert sum(system["failures"].values()) == away + blind
    reasons = " ".join(system["failures"])
    assert "the index is away" in reasons
    assert "item 'unknown' has no text, and rerank needs one" in reasons
    fall = system["scenarios"][0]["measures"]["nDCG@5"]
    assert fall["n"] == len(questions) - away - blind


def test_where_every_call_fails_nothing_can_be_told(karat_in, tmp_path):
    (tmp_path / "own.py").write_text("def find(text, k):\n    raise ValueError('no')\n")
    call = karat_in({"one": {"retriever": "python", "call": "own.py:find", "retries": 0}})
    said = call("stress", "--shuffle", code=3)
    assert "cannot tell" in said.err
    assert "25 queries left out: the call failed before any edit" in said.out


def test_what_someone_elses_code_prints_is_no_part_of_the_document(karat_in, tmp_path):
    (tmp_path / "own.py").write_text(
        "import os\n\n\ndef find(text, k):\n"
        "    print('hello')\n    os.chdir('/')\n    return ['d00']\n"
    )
    call = karat_in({"one": {"retriever": "python", "call": "own.py:find"}})
    said = call("stress", "--shuffle", "--json", "-o", "out.md")
    json.loads(said.out)
    assert "hello" in said.err
    assert (tmp_path / "out.md").is_file()


def test_negatives_that_the_corpus_does_not_have_are_left_out(karat_in, cross_encoder):
    cases = [
        {"query_id": "1", "question": "sea", "gold_evidence": ["a"], "negatives": ["gone", "b"]},
        {"query_id": "2", "question": "sea", "gold_evidence": ["a"], "negatives": ["gone"]},
    ]
    call = karat_in(
        {"one": {"retriever": "bm25", "rerank": cross(cross_encoder)}},
        corpus={"a": "sea", "b": "storm", "c": "sea calm"},
        cases=cases,
    )
    said = call("stress", "--json")
    (system,) = json.loads(said.out)["systems"]
    assert system["negatives"] == {"source": "own", "not_in_corpus": 2}
    (scenario,) = system["scenarios"]
    assert (scenario["inserted"], scenario["without_negatives"], scenario["short"]) == (1, 1, 1)
    assert system["failures"] == {}


def test_a_reranker_inside_a_part_is_named(karat_in, cross_encoder):
    inner = {"retriever": "bm25", "k": 10, "rerank": cross(cross_encoder)}
    call = karat_in({"inner": inner, "both": {"retriever": "fuse", "of": ["inner", "bow"]}})
    said = call("stress", "--system", "both", "--json")
    (system,) = json.loads(said.out)["systems"]
    assert system["how"] == "list edited"
    assert "name a part with --system" in system["because"]


def test_stages_that_are_no_reranker_run_again_too(karat_in):
    call = karat_in({"one": {"retriever": "bm25", "k": 5, "k_raw": 20, "mmr": {"lambda": 0.5}}})
    (system,) = json.loads(call("stress", "--json", "--truncate", "5").out)["systems"]
    assert (system["how"], system["stages"], system["reranker"]) == ("reordered", ["mmr"], None)
    assert "reordered by mmr" in call("stress", "--truncate", "5").out


def test_texts_of_negatives_need_a_corpus(karat_in, cross_encoder, tmp_path):
    (tmp_path / "own.py").write_text("def find(text, k):\n    return [('a', 1.0)]\n")
    spec = {"retriever": "python", "call": "own.py:find", "rerank": cross(cross_encoder)}
    call = karat_in({"one": spec}, corpus={"a": "x"})
    config = json.loads((tmp_path / "karat.yaml").read_text())
    del config["corpus"]
    (tmp_path / "karat.yaml").write_text(json.dumps(config))
    said = call("stress", code=2)
    assert "system 'one' reads texts, and those of negatives come from a corpus" in said.err


def test_the_page_shows_what_the_command_prints(karat_in, minilm, tmp_path):
    """But for the figures: weights in eight bits differ in last digits from machine to machine."""
    page = (Path(__file__).parents[2] / "docs" / "stress-a-reranker.md").read_text()
    (config,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    ((command, shown),) = re.findall(r"```\n\$ karat (.*?)\n(.*?)```", page, re.DOTALL)
    call = karat_in({})
    shutil.copytree(Path(karat.__file__).parent / "recipes" / "first", tmp_path, dirs_exist_ok=True)
    (tmp_path / "models").mkdir()
    shutil.copytree(minilm, tmp_path / "models" / "minilm")
    (tmp_path / "karat.yaml").write_text(config)
    assert words(call(*command.split()).out) == words(shown)


def words(text):
    """Numbers and what stands around them taken out."""
    return re.sub(r"[-+\[\]\s─]|<?\d+(?:\.\d+)?", "", text)
