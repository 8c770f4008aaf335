from __future__ import annotations

from math import isfinite

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from karat.errors import CallError
from karat.retrieve.protocol import Hit
from karat.retrieve.user_code import hits_from

ids = st.text(st.characters(exclude_characters="\0"), min_size=1)
scores = st.floats(allow_nan=False, allow_infinity=False)
keys = st.sampled_from(["id", "item_id", "chunk_id", "doc_id", "score", "version", "start"])
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
anything = st.recursive(
    leaves | st.builds(Hit, leaves, leaves),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(keys | st.text(), inner)
        | st.frozensets(st.text())
    ),
    max_leaves=8,
)


@given(st.lists(st.tuples(ids, scores)), st.integers(1, 10))
def test_pairs_come_out_as_they_went_in_up_to_k(pairs, k):
    assert [(hit.item_id, hit.score) for hit in hits_from(pairs, k, "find")] == pairs[:k]
    assert [hit.item_id for hit in hits_from([one for one, _ in pairs], k, "find")] == [
        one for one, _ in pairs[:k]
    ]


@given(st.dictionaries(ids, scores), st.integers(1, 10))
def test_a_mapping_of_scores_is_ranked_as_a_stable_sort_ranks_it(given_scores, k):
    ranked = sorted(given_scores, key=given_scores.get, reverse=True)
    assert [hit.item_id for hit in hits_from(given_scores, k, "find")] == ranked[:k]


@example(({"\x85": None}, None))
@given(anything)
def test_whatever_comes_is_sound_hits_or_one_line_that_refuses_it(returned):
    for hit in taken(returned):
        assert type(hit.item_id) is str
        assert hit.item_id
        assert hit.score is None or (type(hit.score) is float and isfinite(hit.score))
        assert hit.version is None or type(hit.version) is str


def taken(returned):
    try:
        return hits_from(returned, 5, "find")
    except CallError as error:
        told = str(error)
    assert told.startswith("find ")
    assert len(told.splitlines()) == 1
    return []


@pytest.mark.parametrize(
    "returned", [["a\0b"], {"a\0b": 1.0}, [("a\0b", 1.0)], [{"id": "a\0b"}], [Hit("a\0b")]]
)
def test_an_id_with_a_nul_is_refused(returned):
    with pytest.raises(CallError, match="find returned an id that holds a NUL character"):
        hits_from(returned, 5, "find")


@pytest.mark.parametrize("returned", [object(), 7, True, iter([object()]), [b"a"], [[]], [{}]])
def test_objects_of_no_known_form_are_refused(returned):
    with pytest.raises(CallError):
        hits_from(returned, 5, "find")
