"""Inputs that do not fit each other are refused; a real zero is not."""

from __future__ import annotations

import pickle
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import karat
from karat.errors import MisfitError
from karat.evaluation.stages import score_stages
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare
from karat.measure.spelling import spelling_difference

Gold, Run, Corpus = karat.Gold.from_dict, karat.Run.from_dict, karat.Corpus.from_dict

STEMS = ["tax-02", "tax-07", "law-11"]


def lists(ids: list[str]) -> dict[str, list[str]]:
    return {f"q{at}": [name] for at, name in enumerate(ids)}


def refused(run, gold, **options) -> MisfitError:
    with pytest.raises(MisfitError) as caught:
        karat.evaluate(Run(run), Gold(gold), "R@5", **options)
    return caught.value


def accepted(run, gold, **options) -> karat.Scores:
    return karat.evaluate(Run(run), Gold(gold), "R@5", **options)


# Spelling differences: the gold's ids, the run's, and what is named


SPELLINGS = {
    "prefix of the gold": ([f"doc_{s}" for s in STEMS], STEMS, 'the prefix "doc_"'),
    "prefix of the run": (STEMS, [f"doc_{s}" for s in STEMS], 'the prefix "doc_"'),
    "prefix before numbers": (["12", "7", "40"], ["doc12", "doc9", "doc7"], 'the prefix "doc"'),
    "suffix of the run": (STEMS, [f"{s}_v1" for s in STEMS], 'the suffix "_v1"'),
    "suffix of the gold": ([f"{s}-chunk" for s in STEMS], STEMS, 'the suffix "-chunk"'),
    "case": ([s.upper() for s in STEMS], STEMS, "upper and lower case"),
    "white space": ([f" {s}" for s in STEMS], STEMS, "white space around them"),
    "zero padding": (["doc-2", "doc-7"], ["doc-002", "doc-011"], "zero padding"),
    "bare zero padding": (["2", "7"], ["00002", "00011"], "zero padding"),
    "floats": (["2", "7"], ["2.0", "11.0"], "a trailing .0"),
    "extension": (STEMS, [f"{s}.md" for s in STEMS], 'the suffix ".md"'),
    "extensions": (STEMS, [f"{STEMS[0]}.md", f"{STEMS[1]}.pdf"], "a file extension"),
    "path": (STEMS, [f"docs/{s[:3]}/{s}" for s in STEMS], "a path"),
    "path and extension": (
        STEMS,
        [f"C:\\{s[:3]}\\{s}.md" for s in STEMS],
        "a path and a file extension",
    ),
    "quotation marks": (STEMS, [f'"{s}"' for s in STEMS], "quotation marks around them"),
    "Unicode": (["caf\u00e9"], ["cafe\u0301"], "their Unicode form"),
    "separators": (
        [s.replace("-", "_") for s in STEMS],
        STEMS,
        "hyphens, underscores and spaces",
    ),
    "case and prefix": (
        [f"DOC_{s.upper()}" for s in STEMS],
        STEMS,
        'the prefix "doc_" and upper and lower case',
    ),
    "case and padding": (
        ["DOC-2", "DOC-7"],
        ["doc-02", "doc-11"],
        "upper and lower case and zero padding",
    ),
}


@pytest.mark.parametrize(("ours", "theirs", "named"), SPELLINGS.values(), ids=SPELLINGS)
def test_a_spelling_difference_is_named(ours, theirs, named):
    found = spelling_difference(pl.Series(ours), pl.Series(theirs))
    assert found is not None
    assert found.difference == named
    assert all(one in ours and other in theirs for one, other in found.pairs)


@pytest.mark.parametrize(("ours", "theirs", "named"), SPELLINGS.values(), ids=SPELLINGS)
def test_ids_in_another_spelling_are_refused_with_examples_and_the_remedy(ours, theirs, named):
    error = refused(lists(theirs), lists(ours))
    assert error.summary == "no relevant item occurs in run 'run', so every score would be 0"
    gold, run, advice = error.details
    assert gold.startswith("the gold has")
    assert run.startswith("run 'run' has")
    assert advice.startswith(f"The ids differ by {named}.")
    assert "--set missing_ids=allow" in advice
    assert accepted(lists(theirs), lists(ours), settings={"missing_ids": "allow"}).nothing_found


DIFFERENT = {
    "letters": (["a", "b"], ["x", "y"]),
    "numbers that end alike": (["12"], ["2", "3"]),
    "numbers that begin alike": (["1"], ["12", "13"]),
    "words that end alike": (["heart"], ["art", "part"]),
    "other numbers": (["tax-02"], ["tax-03", "tax-11"]),
    "numbered alike": (["d1", "d2", "d3"], ["x1", "x2", "x3"]),
    "chunks of one document": (["tax#2"], ["tax#1", "tax#3"]),
    "the same name in other folders": (["a/readme.md"], ["b/readme.md"]),
    "other extensions": (["a.md"], ["a.txt"]),
    "one prefix among many": (["sec-1", "tax-2", "law-3", "tea-9"], ["1", "x"]),
}


@pytest.mark.parametrize(("ours", "theirs"), DIFFERENT.values(), ids=DIFFERENT)
def test_few_queries_that_find_nothing_are_a_real_zero(ours, theirs):
    gold = lists(ours)
    scores = accepted(dict.fromkeys(gold, theirs), gold)
    assert scores.means() == {"R@5": 0.0}
    assert scores.nothing_found == len(ours)


def test_a_single_pair_believes_an_affix_only_between_words_or_numbers():
    assert spelling_difference(pl.Series(["xab"]), pl.Series(["ab"])) is None
    many = [f"x{stem}" for stem in ("ab", "cd", "ef")]
    found = spelling_difference(pl.Series(many), pl.Series(["ab", "cd", "ef"]))
    assert found is not None
    assert found.difference == 'the prefix "x"'


# Many queries that find nothing


def test_digits_that_continue_a_number_are_no_suffix():
    tens, ones = pl.Series(["d10", "d20", "d30"]), pl.Series(["d1", "d2", "d3"])
    assert spelling_difference(tens, ones) is None
    assert spelling_difference(tens + ".md", tens) is not None


def numbered(word: str, n: int = 10) -> dict[str, list[str]]:
    """One item for each query, called so that no other word explains it."""
    return {f"q{at}": [f"{chr(97 + at)}{word}"] for at in range(n)}


def test_ten_queries_that_find_nothing_are_refused():
    error = refused(numbered("one-"), numbered("zwei"))
    assert "Check that both belong together" in error.details[-1]
    assert accepted(numbered("one-", 9), numbered("zwei", 9)).nothing_found == 9


def test_a_corpus_that_has_both_shows_that_the_zero_is_real():
    run, gold = numbered("run-"), numbered("gold-")
    both = {name: "" for side in (run, gold) for (name,) in side.values()}
    assert accepted(run, gold, corpus=Corpus(both)).nothing_found == 10
    assert refused(run, gold, corpus=Corpus({name: "" for (name,) in gold.values()}))


def test_a_corpus_that_has_both_spellings_shows_that_they_are_two_items():
    corpus = Corpus({"A": "", "a": ""})
    assert accepted({"q": ["a"]}, {"q": ["A"]}, corpus=corpus).nothing_found == 1
    assert refused({"q": ["a"]}, {"q": ["A"]})


def test_a_relevant_item_of_another_query_shows_that_the_ids_are_real():
    gold = numbered("d")
    turned = dict(zip(gold, [*list(gold.values())[1:], gold["q0"]], strict=True))
    assert accepted(turned, gold).nothing_found == 10


def test_a_relevant_item_below_the_depth_counts():
    gold = numbered("d", 12)
    run = {query: ["x", *items] for query, items in gold.items()}
    scores = accepted(run, gold, settings={"depth": 1})
    assert scores.means() == {"R@5": 0.0}
    assert scores.nothing_found == 0


def staged(**stages: str) -> karat.Run:
    """Twelve queries; each stage returns two items, spelled with the number of the query."""
    rows = [
        {"query_id": f"q{n}", "item_id": item.format(n), "rank": rank, "stage": stage}
        for n in range(12)
        for stage, items in stages.items()
        for rank, item in enumerate(items.split(), start=1)
    ]
    return karat.Run.from_frame(
        pl.DataFrame(rows), calls=pl.DataFrame({"query_id": [f"q{n}" for n in range(12)]})
    )


OF_TWELVE = {f"q{n}": [f"g{n}"] for n in range(12)}


def test_what_an_earlier_stage_found_shows_that_ids_that_it_shares_are_real():
    run = staged(raw="g{} other{}", final="other{} late{}")
    assert karat.evaluate(run, Gold(OF_TWELVE), "R@2").nothing_found == 12


@pytest.mark.parametrize(
    ("stages", "told"),
    [
        ({"raw": "g{} x{}", "final": "doc_g{} doc_x{}"}, "no relevant item occurs in stage final"),
        ({"raw": "g{} x{}", "final": "y{} z{}"}, "no relevant item occurs in stage final"),
        (
            {"raw": "g{} x{}", "final": ""},
            "12 of 12 answers of stage final of run 'run' were empty",
        ),
        ({"raw": "doc_g{} doc_x{}", "final": "g{} x{}"}, "no relevant item occurs in stage raw"),
        (
            {"raw": "doc_g{} doc_x{}", "rerank": "doc_g{}", "final": "g{} x{}"},
            "no relevant item occurs in stage raw",
        ),
        (
            {"raw": "g{} x{}", "rerank": "doc_g{} doc_x{}", "final": "g{}"},
            "no relevant item occurs in stage rerank",
        ),
        ({"dense": "doc_g{}", "final": "g{} x{}"}, "no relevant item occurs in stage dense"),
    ],
)
def test_each_stage_is_checked_by_itself(stages, told):
    gold = prepare(Gold(OF_TWELVE), conventions_of("karat"))
    with pytest.raises(MisfitError, match=told):
        score_stages(staged(**stages), gold, parse_measures("R@2"))
    allowed = prepare(Gold(OF_TWELVE), conventions_of("karat", {"missing_ids": "allow"}))
    assert score_stages(staged(**stages), allowed, parse_measures("R@2")).final.counts.scored == 12


def test_ids_of_a_stage_that_some_queries_skip_are_checked_too():
    run = staged(raw="doc_g{} doc_x{}", final="g{} x{}")
    skipped = (pl.col("stage") == "raw") & (pl.col("query_id") == "q3")
    run = replace(run, hits=run.hits.filter(~skipped))
    with pytest.raises(MisfitError, match="stage raw"):
        score_stages(run, prepare(Gold(OF_TWELVE), conventions_of("karat")), parse_measures("R@2"))


def test_a_stage_of_few_queries_may_find_nothing():
    run = staged(original="elsewhere{}", final="g{} x{}")
    kept = (pl.col("stage") == "final") | pl.col("query_id").is_in(["q1", "q2"])
    gold = prepare(Gold(OF_TWELVE), conventions_of("karat"))
    staged_ = score_stages(replace(run, hits=run.hits.filter(kept)), gold, parse_measures("R@2"))
    assert staged_.final.means() == {"R@2": 1.0}


def test_queries_marked_no_answer_do_not_count():
    gold = Gold({**numbered("zwei", 9), "n": ["y"]})
    queries = karat.Queries.from_dict(
        {query: {"text": query, "no_answer": query == "n"} for query in gold.query_ids}
    )
    run = Run({**numbered("one-", 9), "n": ["z"]})
    assert karat.evaluate(run, gold, "R@5", queries=queries).nothing_found == 9
    with pytest.raises(MisfitError):
        karat.evaluate(run, gold, "R@5")


@pytest.mark.parametrize("profile", ["ab", "story", "minimal"])
def test_some_profiles_allow_it(profile):
    run = {query: dict.fromkeys(items, 1.0) for query, items in lists(STEMS).items()}
    options = {"profile": profile, "settings": {"order": "score"}}
    assert accepted(run, lists([f"doc_{s}" for s in STEMS]), **options).nothing_found == 3


def test_each_run_is_checked_by_itself():
    gold = lists(STEMS)
    good, bad = Run(gold, name="good"), Run(lists([f"x-{s}" for s in STEMS]), name="bad")
    with pytest.raises(MisfitError, match="run 'bad'"):
        karat.compare([good, bad], Gold(gold), "R@5")


def test_blocks_are_judged_together(monkeypatch):
    monkeypatch.setattr("karat.data.tables.BLOCK_ROWS", 1)
    gold = {f"q{n:02}": [f"g{n}"] for n in range(30)}
    run = {query: ["x", "y"] for query in gold} | {"q29": ["g29"]}
    assert accepted({q: dict.fromkeys(items, 1.0) for q, items in run.items()}, gold)
    run["q29"] = ["z"]
    assert refused({q: dict.fromkeys(items, 1.0) for q, items in run.items()}, gold)


# Documents and chunks


def test_gold_of_documents_beside_a_run_of_chunks_is_refused():
    error = refused({"q": ["tax#1", "law#2"]}, {"q": ["tax"]})
    assert error.summary.startswith("the gold names documents, and run 'run' returned chunks")
    assert "--set level=doc" in error.details[-1]
    scores = accepted({"q": ["tax#1"]}, {"q": ["tax"]}, settings={"level": "doc"})
    assert scores.means() == {"R@5": 1.0}


def test_gold_of_chunks_beside_a_run_of_documents_is_refused():
    error = refused({"q": ["tax", "law"]}, {"q": ["tax#2"]})
    assert error.summary.startswith("the gold names chunks, and run 'run' returned whole documents")
    assert "--set level=doc" in error.details[-1]


@pytest.mark.parametrize(("ours", "theirs"), [("tax", "c7"), ("c7", "tax")])
def test_the_corpus_may_know_the_documents(ours, theirs):
    corpus = Corpus({"c7": {"text": "", "doc_id": "tax"}, "c8": {"text": "", "doc_id": "law"}})
    error = refused({"q": [theirs]}, {"q": [ours]}, corpus=corpus)
    assert "--set level=doc" in error.details[-1]


def test_the_run_may_know_the_documents():
    run = karat.Run.from_frame(
        pl.DataFrame({"query_id": ["q"], "item_id": ["c7"], "doc_id": ["tax"], "rank": [1]})
    )
    with pytest.raises(MisfitError, match="level=doc"):
        karat.evaluate(run, Gold({"q": ["tax"]}), "R@5")


def test_a_document_that_is_an_item_of_the_corpus_was_simply_not_found():
    corpus = Corpus({"tax": "", "tax#1": ""})
    assert accepted({"q": ["tax#1"]}, {"q": ["tax"]}, corpus=corpus).nothing_found == 1


def test_documents_without_any_document_are_refused():
    error = refused({"q": ["c7", "c8"]}, {"q": ["tax"]}, settings={"level": "doc"})
    assert error.summary.startswith("level=doc, but no item of run 'run' has a document")
    assert "doc_id" in error.details[-1]
    met = accepted({"q": ["tax"]}, {"q": ["tax"]}, settings={"level": "doc"})
    assert met.means() == {"R@5": 1.0}


def test_a_document_that_was_not_found_is_a_real_zero():
    scores = accepted({"q": ["law#1"]}, {"q": ["tax"]}, settings={"level": "doc"})
    assert scores.nothing_found == 1


# The corpus


@pytest.mark.parametrize(("known", "fits"), [(0, False), (1, False), (2, True), (40, True)])
def test_a_corpus_must_have_one_gold_item_in_twenty(known, fits):
    gold = {f"q{n}": [f"g{n}"] for n in range(40)}
    corpus = Corpus({f"g{n}": "" for n in range(known)} | {"other": ""})
    if fits:
        complete = {"short_lists": "complete"}
        scores = accepted(gold, gold, corpus=corpus, settings=complete)
        assert scores.means() == {"R@5": 1.0}
        return
    error = refused(gold, gold, corpus=corpus)
    assert error.summary == f"{known} of 40 relevant items of the gold occur in the corpus"
    assert "or allow it with --set missing_ids=allow" in error.details[-1]
    assert "settings={'missing_ids': 'allow'} in Python" in error.details[-1]
    assert accepted(gold, gold, corpus=corpus, settings={"missing_ids": "allow"})


def test_the_items_of_a_foreign_corpus_are_shown_and_not_its_documents():
    gold = {f"q{n}": [f"zz-{n}-kk"] for n in range(12)}
    corpus = Corpus({f"c{n}": {"text": "", "doc_id": f"D{n}"} for n in range(12)})
    assert refused(gold, gold, corpus=corpus).details[1].split(maxsplit=3)[-1] == "c0, c1, …"


def test_gold_that_names_documents_of_the_corpus_is_known():
    corpus = Corpus({"tax#1": "", "law#1": ""})
    assert accepted({"q": ["tax"]}, {"q": ["tax"]}, corpus=corpus).means() == {"R@5": 1.0}


# Calls


def log(*answers: str | list[str], marked: int = 0):
    """A run of calls, each failed or answered, the last ``marked`` ones of no-answer queries."""
    names = [f"q{at}" for at in range(len(answers))]
    errors = [own if isinstance(own, str) else None for own in answers]
    rows = [
        {"query_id": name, "item_id": item, "rank": at + 1}
        for name, own in zip(names, answers, strict=True)
        for at, item in enumerate([] if isinstance(own, str) else own)
    ]
    schema = {"query_id": pl.String, "item_id": pl.String, "rank": pl.Int64}
    calls = pl.DataFrame({"query_id": names, "error": pl.Series(errors, dtype=pl.String)})
    run = karat.Run.from_frame(pl.DataFrame(rows, schema=schema), calls=calls)
    asked = len(names) - marked
    gold = Gold({name: ["a"] if at < asked else [] for at, name in enumerate(names)})
    queries = {name: {"text": name, "no_answer": at >= asked} for at, name in enumerate(names)}
    return run, gold, karat.Queries.from_dict(queries)


def test_calls_that_all_failed_are_refused_with_the_reason_most_of_them_give():
    run, gold, queries = log("timeout", "HTTP 500", "HTTP 500")
    with pytest.raises(MisfitError, match="3 of 3 calls of run 'run' failed: HTTP 500"):
        karat.evaluate(run, gold, "R@5", queries=queries)
    scores = karat.evaluate(run, gold, "R@5", settings={"missing_ids": "allow"})
    assert scores.means() == {"R@5": 0.0}


def test_a_run_without_any_query_is_refused():
    assert "run 'run' is empty: it has no query" in str(refused({}, {"q1": ["a"]}))
    scores = accepted({}, {"q1": ["a"]}, settings={"missing_ids": "allow"})
    assert (scores.means(), scores.counts.missing) == ({"R@5": 0.0}, 1)


def test_answers_that_are_all_empty_are_refused():
    run, gold, queries = log(*([[]] * 30))
    with pytest.raises(MisfitError, match="30 of 30 answers of run 'run' were empty"):
        karat.evaluate(run, gold, "R@5", queries=queries)
    assert karat.evaluate(run, gold, "R@5", settings={"missing_ids": "allow"}).nothing_found == 30


@pytest.mark.parametrize("other", [["a"], ["x"]])
@pytest.mark.parametrize("bad", [[], "timeout"])
def test_one_answer_is_enough(other, bad):
    run, gold, queries = log(bad, bad, other)
    assert karat.evaluate(run, gold, "R@5", queries=queries).counts.queries == 3


def test_an_empty_answer_to_a_query_without_an_answer_is_right():
    run, gold, queries = log([], [], marked=2)
    assert karat.evaluate(run, gold, "R@5", queries=queries).counts.no_answer == 2
    run, gold, queries = log([], ["x"], marked=1)
    with pytest.raises(MisfitError, match="1 of 1 answers"):
        karat.evaluate(run, gold, "R@5", queries=queries)
    run, gold, queries = log("timeout", [], marked=1)
    with pytest.raises(MisfitError, match="1 of 1 calls"):
        karat.evaluate(run, gold, "R@5", queries=queries)


# Properties


NAMES = st.text("abAB01#./_- ", min_size=1, max_size=4).filter(lambda name: name.strip())
SIDES = st.dictionaries(st.sampled_from([f"q{n}" for n in range(14)]), st.lists(NAMES, unique=True))


@given(run=SIDES, gold=SIDES, place=st.integers(0, 3), item=NAMES)
def test_a_run_that_holds_a_relevant_item_is_never_refused_for_its_ids(run, gold, place, item):
    gold = gold | {"q": [item]}
    own = [name for name in run.get("q0", []) if name != item]
    run = run | {"q": [*own[:place], item, *own[place:]]}
    assert accepted(run, gold).nothing_found == 0


@given(ours=st.lists(NAMES, min_size=1, unique=True), theirs=st.lists(NAMES, min_size=1))
def test_a_difference_pairs_ids_of_both_sides_and_is_the_same_in_any_order(ours, theirs):
    found = spelling_difference(pl.Series(ours), pl.Series(theirs))
    again = spelling_difference(pl.Series(ours[::-1]), pl.Series(theirs[::-1]))
    assert found == again
    for one, other in () if found is None else found.pairs:
        assert one in ours
        assert other in theirs


def test_the_error_crosses_process_borders():
    error = refused(lists(STEMS), lists([f"doc_{s}" for s in STEMS]))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.details, again.where) == (str(error), error.details, error.where)
