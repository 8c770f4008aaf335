"""What every retriever promises, whatever it retrieves with; see conformance.py for the cases."""

from __future__ import annotations

import json
import math
import sys

import pytest
import small_corpus
from conformance import CASES, SECRET, TWICE
from small_corpus import BEST, NOTHING, TEXTS, ask, ids

from karat.data.tables import Queries
from karat.errors import CallError, MissingExtraError
from karat.retrieve.protocol import Query
from karat.retrieve.search import CallRunner, FailedCall
from karat.retrieve.system_config import KINDS, maker, run_digest

LIVE = [name for name, kind in KINDS.items() if kind.live]


@pytest.fixture(scope="module", params=[name for name in KINDS if name in CASES])
def case(request, tmp_path_factory):
    """The case of a kind with the context that builds it."""
    folder = tmp_path_factory.mktemp(request.param)
    small_corpus.write_embed(folder)
    with CASES[request.param](folder, request.getfixturevalue) as made:
        shop = small_corpus.context(folder, made.environment)
        yield made, shop, small_corpus.system(shop, made.spec)


@pytest.fixture
def system(case):
    return case[2]


def asked(texts) -> list[Query]:
    return [Query(f"q{at}", text) for at, text in enumerate(texts)]


def close(hits, others) -> bool:
    same = ids(hits) == ids(others)
    pairs = zip(hits, others, strict=True) if same else ()
    return same and all(
        one.score == other.score or math.isclose(one.score, other.score, rel_tol=1e-5, abs_tol=1e-6)
        for one, other in pairs
    )


def test_every_kind_has_a_case_and_every_case_a_kind():
    missing, left_over = sorted({*KINDS} - {*CASES}), sorted({*CASES} - {*KINDS})
    assert not missing, "add a case for each to tests/retrievers/conformance.py"
    assert not left_over, "karat has no such kinds; take their cases out of conformance.py"


@pytest.mark.parametrize("name", KINDS)
def test_every_option_says_what_it_must_be(name):
    # Messages and the reference show these words.
    fields = maker(name).Options.model_fields
    lacking = [key for key, field in fields.items() if not field.description]
    assert not lacking, "give each Field(description=...)"


@pytest.mark.parametrize("text", BEST)
def test_the_best_match_comes_first(case, system, text):
    if not case[0].searches:
        pytest.skip("its lists may begin with any item")
    if case[0].reads(text):
        assert ask(system, text)[0].item_id == BEST[text]


INDEXES = [name for name, kind in KINDS.items() if name in CASES and not kind.live]


@pytest.mark.parametrize("case", INDEXES, indirect=True)
def test_the_rules_for_texts_change_what_is_indexed_too(case):
    made, shop, _ = case
    if made.embeds or not made.searches:
        pytest.skip("it reads items as they are, or ranks by something else")
    rules = small_corpus.system(shop, f"{made.spec[:-1]}, aliases: {{gravel: zzyzx}}}}")
    why = "the corpus has gravel: index context.rules.apply_all(texts), or say embeds in the case"
    assert ask(rules, "zzyzx")[0].item_id == "plain-4", why


@pytest.mark.parametrize("text", BEST)
def test_scores_never_rise(system, text):
    scores = [hit.score for hit in ask(system, text) if hit.score is not None]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("text", BEST)
def test_the_same_call_gives_the_same_list(system, text):
    assert close(ask(system, text), ask(system, text))


def test_ids_are_those_of_the_corpus_and_plain_strings(system):
    for text in BEST:
        for hit in ask(system, text):
            assert type(hit.item_id) is str
            assert hit.item_id in TEXTS


def test_scores_are_plain_finite_numbers_or_none(system):
    for text in [*BEST, NOTHING, ""]:
        for hit in ask(system, text):
            for number in (hit.score, hit.similarity):
                assert number is None or (type(number) is float and math.isfinite(number))


@pytest.mark.parametrize("k", [1, 3, 1000])
def test_k_is_respected(system, k):
    for text in BEST:
        found = ids(ask(system, text, k))
        assert 1 <= len(found) <= min(k, len(TEXTS))
        assert len(set(found)) == len(found)


def test_a_longer_list_begins_with_the_best_of_a_shorter_one(system):
    for text in BEST:
        assert ids(ask(system, text, 1)) == ids(ask(system, text, 3))[:1]


@pytest.mark.parametrize("text", [NOTHING, "", " ", "?", "\n\t", "🦄", "​"])
def test_a_query_that_matches_nothing_is_no_error(system, text):
    assert len(ask(system, text)) <= len(TEXTS)


@pytest.mark.parametrize(
    "text",
    [
        "'; DROP TABLE items; --",
        'quo"tes and back\\slashes',
        "{query} {k} {nothing} ${SECRET} %(vector)s %s",
        "<b>&amp;</b> ../../etc/passwd",
        "gravel " * 2000,
    ],
)
def test_a_query_s_text_is_only_ever_text(case, system, text):
    ask(system, text)
    hits = ask(system, "plain gravel roads")
    assert hits
    if case[0].searches:
        assert hits[0].item_id == "plain-4"


def test_a_batch_gives_what_single_calls_give(system):
    queries = asked([*BEST, NOTHING, ""])
    together = system.find(queries, 4)
    assert len(together) == len(queries)
    for query, answer in zip(queries, together, strict=True):
        assert close(answer.hits, system.find([query], 4)[0].hits)


@pytest.mark.parametrize("times", [1, 4])
def test_calls_side_by_side_give_what_one_by_one_gives(system, times):
    queries = asked([*BEST] * 6)
    alone = {text: ask(system, text, 4) for text in BEST}
    limits = {"concurrency": system.concurrency * times, "batch": system.batch, "retries": 0}
    outcomes = list(CallRunner(system.find, 4, **limits).outcomes(queries))
    assert [query for query, _ in outcomes] == queries
    for query, outcome in outcomes:
        assert not isinstance(outcome, FailedCall)
        assert close(outcome.hits, alone[query.text])


def test_times_are_told(system):
    latency = system.find(asked(["plain gravel roads"]), 3)[0].latency
    assert latency["retrieve"] > 0
    assert all(math.isfinite(value) and value >= 0 for value in latency.values())


def test_a_run_holds_the_ids_in_their_order(system):
    run = system.search(Queries.from_dict({str(at): text for at, text in enumerate(BEST)}), 4)
    for at, text in enumerate(BEST):
        rows = run.at("final").hits.filter(run.at("final").hits["query_id"] == str(at)).sort("rank")
        assert rows["item_id"].to_list() == ids(ask(system, text, 4))


def test_what_the_log_says_of_it_is_json_and_holds_no_secret(case, system):
    told = json.dumps(dict(system.meta), allow_nan=False)
    assert json.loads(told)["retriever"] in KINDS
    for value in case[0].environment.values():
        assert value not in told


def test_asking_changes_no_digest(case, system):
    # Else a log that was interrupted could not be gone on with.
    made, shop, _ = case
    asked_for = small_corpus.system_config(f"systems:\n  one: {made.spec}\n")
    before = run_digest(asked_for, shop, [], k=5)
    ask(system, "plain gravel roads")
    assert run_digest(asked_for, shop, [], k=5) == before


LIBRARIES = {
    "bm25": ("bm25s", "bm25"),
    "sparse": ("fastembed", "dense"),
    "http": ("httpcore", "http"),
    "langchain": ("langchain_core.vectorstores", "langchain"),
    "qdrant": ("qdrant_client", "qdrant"),
    "pgvector": ("psycopg", "pgvector"),
    "chroma": ("chromadb", "chroma"),
}


@pytest.mark.parametrize("case", list(LIBRARIES), indirect=True)
def test_a_missing_library_is_answered_with_the_command_that_installs_it(case, monkeypatch):
    made, shop, system = case
    library, extra = LIBRARIES[system.meta["retriever"]]
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'karat\[{extra}\]'"):
        small_corpus.system(shop, made.spec)


def test_numbers_of_calls_are_whole(system):
    assert system.batch >= 1
    assert system.concurrency >= 1
    assert isinstance(system.deep, bool)


@pytest.mark.parametrize("case", LIVE, indirect=True)
def test_a_broken_back_end_is_a_failed_call_in_one_line(case):
    made, shop, _ = case
    broken = small_corpus.system(shop, made.broken)
    with pytest.raises(CallError) as caught:
        ask(broken, "plain gravel roads")
    assert caught.value.may_pass
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("case", LIVE, indirect=True)
def test_an_item_that_is_returned_twice_stays_twice(case):
    made, shop, _ = case
    found = ids(ask(small_corpus.system(shop, made.twice), "plain gravel roads"))
    assert sum(one.endswith(TWICE) for one in found) == 2
