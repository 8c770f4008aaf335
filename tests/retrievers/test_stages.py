"""Sieves and the bonus for documents, alone and where they starve a list."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from given_lists import Given, hits, ids

from karat.data.tables import Corpus
from karat.errors import CallError, UsageError
from karat.retrieve import bm25 as words
from karat.retrieve.build_context import BuildContext, Items
from karat.retrieve.fuse import Fuse
from karat.retrieve.fuse import Options as FuseOptions
from karat.retrieve.protocol import Hit, Query
from karat.retrieve.stages import AsOf, DistinctDocs, Filter, Threshold
from karat.retrieve.system import SearchSystem

ITEMS = Items(
    Corpus.from_dict(
        {
            "a": {"text": "x", "language": "pt", "year": 2024, "tags": ["hr", "pay"]},
            "b": {"text": "x", "language": "en", "year": 2025, "tags": ["pay"]},
            "c": {"text": "x", "language": None, "year": 2026, "tags": []},
        }
    )
)


def query(**attributes):
    return Query("q1", "where is it", attributes)


def kept(hit_filter, asked=None, among=("a", "b", "c")):
    asked = query() if asked is None else asked
    return [hit.item_id for hit in hit_filter.apply(asked, [Hit(item, 1.0) for item in among])]


@pytest.mark.parametrize(
    ("wanted", "passing"),
    [
        ({"language": "pt"}, ["a"]),
        ({"language": ["pt", "en"]}, ["a", "b"]),
        ({"language": "PT"}, []),
        ({"tags": "pay"}, ["a", "b"]),
        ({"tags": ["hr", "law"]}, ["a"]),
        ({"tags": "pay", "language": "en"}, ["b"]),
        ({"year": 2025}, ["b"]),
        ({"year": "2025"}, ["b"]),
        ({"year": 2025.0}, ["b"]),
        ({"item_id": ["a", "c"]}, ["a", "c"]),
        ({"doc_id": "c"}, ["c"]),
    ],
)
def test_a_filter_keeps_items_with_one_of_the_values(wanted, passing):
    assert kept(Filter(wanted, ITEMS)) == passing


def test_a_placeholder_is_the_querys_own_value():
    hit_filter = Filter({"language": "{lang}"}, ITEMS)
    assert kept(hit_filter, query(lang="en")) == ["b"]
    assert kept(hit_filter, query(lang="pt")) == ["a"]
    assert kept(Filter({"year": "{from}"}, ITEMS), query(**{"from": 2026})) == ["c"]


def test_a_placeholder_of_several_values_keeps_items_with_any_of_them():
    assert kept(Filter({"language": "{langs}"}, ITEMS), query(langs=["en", "pt"])) == ["a", "b"]
    assert kept(Filter({"tags": "{tags}"}, ITEMS), query(tags=["hr", "tax"])) == ["a"]
    both = Filter({"language": ["{lang}", "en"]}, ITEMS)
    assert kept(both, query(lang="pt")) == ["a", "b"]


def test_a_query_without_the_placeholders_column_fails_its_call():
    with pytest.raises(CallError, match=r"\{lang\} is neither .* the query; it has"):
        kept(Filter({"language": "{lang}"}, ITEMS))


def test_booleans_are_compared_as_yaml_spells_them():
    items = Items(Corpus.from_dict({"a": {"text": "x", "live": True}, "b": {"text": "x"}}))
    assert kept(Filter({"live": True}, items), among="ab") == ["a"]
    assert kept(Filter({"live": "true"}, items), among="ab") == ["a"]


def test_a_hits_own_facts_come_before_the_corpus():
    items = Items(Corpus.from_dict({"a": {"text": "x", "source": "old"}}))
    hit_filter = Filter({"source": "new"}, items)
    assert not hit_filter.apply(query(), [Hit("a")])
    assert hit_filter.apply(query(), [Hit("a", source="new")])
    assert hit_filter.apply(query(), [Hit("unknown item", source="new")])


def test_without_a_corpus_hits_tell_their_document_version_and_source():
    hit_filter = Filter({"doc_id": "faq", "version": "2"}, None)
    assert hit_filter.apply(query(), [Hit("faq#3", version="2")])
    assert hit_filter.apply(query(), [Hit("x#1", doc_id="faq", version="2")])
    assert not hit_filter.apply(query(), [Hit("faq#3")])


def test_an_attribute_that_no_item_can_have_is_refused():
    with pytest.raises(UsageError, match="'langage' in 'filter'; did you mean language"):
        Filter({"langage": "pt"}, ITEMS)
    with pytest.raises(UsageError, match="unknown attribute of the items 'language' in 'filter'"):
        Filter({"language": "pt"}, None)
    with pytest.raises(UsageError, match="no value for language, so nothing would pass"):
        Filter({"language": []}, ITEMS)


def versions(**given):
    return Items(Corpus.from_dict({item: {"text": "x", "version": v} for item, v in given.items()}))


def test_as_of_keeps_what_was_there_at_the_querys_time():
    items = versions(a="2025-12-31", b="2026-01-01", c="2026-01-02", d="draft", e=None)
    asked = query(as_of="2026-01-01")
    assert kept(AsOf(False, items), asked, "abcde") == ["a", "b", "d", "e"]
    assert kept(AsOf(True, items), asked, "abcde") == ["a", "b"]


def test_as_of_compares_times_within_a_day():
    items = versions(a="2026-01-01T08:00:00", b="2026-01-01T10:00:00")
    assert kept(AsOf(True, items), query(as_of="2026-01-01T09:00:00"), "ab") == ["a"]
    assert kept(AsOf(True, items), query(as_of="2026-01-01"), "ab") == ["a", "b"]


def test_queries_without_a_time_keep_everything():
    items = versions(a="2025-12-31", b=None)
    assert kept(AsOf(True, items), query(), "ab") == ["a", "b"]


def test_a_hits_own_version_comes_before_the_corpus():
    items = versions(a="2025-01-01")
    newer = Hit("a", version="2027-01-01")
    assert not AsOf(False, items).apply(query(as_of="2026-01-01"), [newer])
    assert not AsOf(False, None).apply(query(as_of="2026-01-01"), [newer])
    assert AsOf(False, None).apply(query(as_of="2026-01-01"), [Hit("a")])


def test_an_as_of_that_is_no_time_fails_the_call():
    with pytest.raises(CallError, match="as_of is 'lately'; a date such as"):
        AsOf(False, ITEMS).apply(query(as_of="lately"), [Hit("a")])


def test_the_threshold_itself_is_kept():
    hit_filter = Threshold(0.5)
    hits = [Hit("a", score) for score in (0.51, 0.5, 0.49, -1.0)]
    assert hit_filter.apply(query(), hits) == hits[:2]
    with pytest.raises(CallError, match="item 'a' has no score, and threshold needs one"):
        hit_filter.apply(query(), [Hit("a")])


def test_the_first_item_of_each_document_gains_the_bonus():
    found = hits("x#1", 0.9, "x#2", 0.85, "y#1", 0.8, "x#3", 0.7, "z#1", 0.5)
    again = DistinctDocs(0.2, None).apply(query(), found)
    assert [(hit.item_id, round(hit.score, 9)) for hit in again] == [
        ("x#1", 1.1), ("y#1", 1.0), ("x#2", 0.85), ("x#3", 0.7), ("z#1", 0.7),
    ]  # fmt: skip


def test_documents_are_those_of_the_hit_then_of_the_corpus():
    items = Items(
        Corpus.from_dict({"p": {"text": "x", "doc_id": "one"}, "q": {"text": "x", "doc_id": "one"}})
    )
    found = [Hit("p", 1.0), Hit("q", 0.9), Hit("r", 0.8)]
    assert ids(DistinctDocs(0.5, items).apply(query(), found)) == ["p", "r", "q"]
    own = [Hit("p", 1.0, doc_id="one"), Hit("q", 0.9, doc_id="two"), Hit("r", 0.8, doc_id="two")]
    assert [hit.score for hit in DistinctDocs(0.5, items).apply(query(), own)] == [1.5, 1.4, 0.8]


def test_the_bonus_needs_scores():
    with pytest.raises(CallError, match="item 'a' has no score, and distinct_docs needs one"):
        DistinctDocs(0.2, None).apply(query(), [Hit("a")])


N = 3000


@pytest.fixture(scope="module")
def rare():
    """Items that all match; one in a hundred is Portuguese, and they match the least."""
    rows = {}
    for at in range(N):
        rows[f"d{at:04}"] = {
            "text": "apple " + "tart " * (at % 97),
            "language": "pt" if at % 100 == 99 else "en",
            "version": str(date(2020, 1, 1) + timedelta(days=at)),
        }
    corpus = Corpus.from_dict(rows)
    context = BuildContext(corpus=lambda: corpus)
    return context.items, words.make(words.Options(), context, {})


def test_a_filter_that_keeps_one_in_a_hundred_still_fills_the_list(rare):
    items, bm25 = rare
    system = SearchSystem("s", bm25, k=10, filters=[Filter({"language": "pt"}, items)])
    answer = system.find([Query("q1", "apple")], 10)[0]
    every = bm25.find([Query("q1", "apple")], N)[0].hits
    wanted = [hit for hit in every if hit.item_id.endswith("99")]
    assert len(wanted) == N // 100
    assert answer.hits == wanted[:10]
    assert answer.lists["raw"] == every[:50]
    assert answer.lists["filter"] == wanted
    assert "filter" in answer.latency


def test_a_fusion_goes_deeper_too_unless_a_part_has_a_length_of_its_own(rare):
    items, bm25 = rare
    how = FuseOptions.model_validate({"of": ["one", "other"]})
    filters = [Filter({"language": "pt"}, items)]
    parts = {"one": SearchSystem("one", bm25), "other": SearchSystem("other", bm25)}
    fused = SearchSystem("s", Fuse(how, parts), k=10, filters=filters)
    answer = fused.find([Query("q1", "apple")], 10)[0]
    assert len(answer.hits) == 10
    assert all(hit.item_id.endswith("99") for hit in answer.hits)
    assert [len(answer.lists[name]) for name in ("raw", *parts)] == [50, 50, 50]
    parts["other"] = SearchSystem("other", bm25, k=50)
    short = SearchSystem("s", Fuse(how, parts), k=10, filters=filters)
    assert len(short.find([Query("q1", "apple")], 10)[0].hits) < 10


def test_raw_is_as_long_as_k_raw_says(rare):
    items, bm25 = rare
    system = SearchSystem("s", bm25, k=3, k_raw=20, filters=[Filter({"language": "pt"}, items)])
    answer = system.find([Query("q1", "apple")], 3)[0]
    assert (len(answer.hits), len(answer.lists["raw"]), len(answer.lists["filter"])) == (3, 20, 20)


def test_each_filter_has_its_own_list_after_those_before_it(rare):
    items, bm25 = rare
    filters = [Filter({"language": "pt"}, items), AsOf(False, items), Threshold(0.0)]
    system = SearchSystem("s", bm25, k=10, filters=filters)
    asked = Query("q1", "apple", {"as_of": "2021-12-31"})
    answer = system.find([asked], 10)[0]
    early = [hit for hit in answer.lists["filter"] if hit.version <= "2021-12-31"]
    assert len(answer.lists["filter"]) == 30
    assert answer.lists["as_of"] == answer.lists["threshold"] == early
    assert answer.hits == early
    assert len(early) == 7


def test_what_cannot_go_deeper_is_asked_once():
    shallow = Given(hits(*(x for at in range(200) for x in (f"d{at}", 200.0 - at))), deep=False)
    system = SearchSystem("s", shallow, k=5, filters=[Threshold(198.0)])
    assert ids(system.find([Query("q1", "x")], 5)[0].hits) == ["d0", "d1", "d2"]
    assert len(shallow.asked) == 1


def test_scores_below_the_threshold_are_not_looked_for_any_deeper():
    deep = Given(hits(*(x for at in range(9000) for x in (f"d{at}", 9000.0 - at))))
    system = SearchSystem("s", deep, k=5, filters=[Threshold(8998.0)])
    assert ids(system.find([Query("q1", "x")], 5)[0].hits) == ["d0", "d1", "d2"]
    assert [k for _, k in deep.asked] == [50]


def test_a_list_that_ends_is_not_asked_for_again():
    deep = Given(hits("a", 2.0, "b", 1.0))
    system = SearchSystem("s", deep, k=5, filters=[Filter({"item_id": "b"}, None)])
    assert ids(system.find([Query("q1", "x")], 5)[0].hits) == ["b"]
    assert len(deep.asked) == 1
