"""Hypervectors, bit by bit: golden values, a plain port of the rule, and the retriever."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karat.data.tables import Corpus
from karat.errors import InputError
from karat.formats.settings import Place
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Query
from karat.retrieve.system import SearchSystem, build_system
from karat.retrieve.system_config import parse_systems
from karat.retrieve.vsa import HypervectorEncoder, fnv1a

WORDS = [f"word{number}" for number in range(3000)]


def vector(text: str, dim: int, seed: int = 42) -> str:
    encoder = HypervectorEncoder(dim, seed)
    bits = np.unpackbits(encoder.encode([text])[0])
    assert not bits[dim:].any()
    return "".join("+" if bit else "-" for bit in bits[:dim])


def cosine(one: str, other: str, dim: int) -> float:
    encoder = HypervectorEncoder(dim)
    rows = encoder.encode([one, other])
    return float(encoder.cosines(rows[0], rows[1:])[0])


def plain_vector(text: str, dim: int, seed: int, *, signed: bool = True) -> list[int]:
    """The rule as it is written down, one component at a time."""
    sums = [0] * dim
    for token in filter(None, re.split(r"\W+", text.lower(), flags=re.ASCII)):
        state = fnv1a(f"{seed}:{token}") or 1
        for at in range(dim):
            state ^= state << 13 & 0xFFFFFFFF
            carried = state - (1 << 32) if signed and state >> 31 else state
            state = (state ^ carried >> 17) & 0xFFFFFFFF
            state ^= state << 5 & 0xFFFFFFFF
            sums[at] += 1 if state & 1 else -1
    return [1 if total >= 0 else -1 for total in sums]


def signs(components: list[int]) -> str:
    return "".join("+" if one > 0 else "-" for one in components)


def system(texts: dict[str, str], **spec: object) -> SearchSystem:
    system_configs = parse_systems({"s": {"retriever": "vsa", **spec}}, Place("karat.yaml"))
    return build_system(system_configs["s"], BuildContext(corpus=lambda: Corpus.from_dict(texts)))


def found(system: SearchSystem, text: str, k: int = 100) -> list[tuple[str, float]]:
    (answer,) = system.find([Query("q", text)], k)
    return [(hit.item_id, hit.score) for hit in answer.hits]


@pytest.mark.parametrize(
    ("text", "components"),
    [
        ("storm", "---++---+++-+--+++-+-+--+++-+-+-"),
        ("sea", "+---+++--+++--++++---+---+--+-++"),
        ("storm at sea", "+---+----++-+--+++---+--++--+-+-"),
        ("storm sea", "+--++++-+++++-++++-+-+--+++-+-++"),
    ],
)
def test_golden_vectors_of_32_components(text, components):
    assert vector(text, 32) == components


def test_golden_hash():
    assert fnv1a("42:storm") == 0x2647D7FC


def test_the_published_test_vectors_of_fnv1a():
    # of the hash's own authors: the empty string, "a" and "foobar"
    assert [fnv1a(""), fnv1a("a"), fnv1a("foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]


def test_letters_beyond_ascii_part_words():
    assert vector("été Straße", 16) == "+-+---++-++---+-"
    assert vector("été Straße", 500) == vector("T! stra-E", 500)


def test_the_kelvin_sign_is_a_k_in_lower_case():
    assert vector("\u212a2", 64) == vector("k2", 64)


@pytest.mark.parametrize(
    ("other", "dim", "value"),
    [
        ("a storm gathers at sea", 1000, 0.6),
        ("a storm gathers at sea", 10000, 0.6188),
        ("calm harbor", 1000, -0.044),
        ("calm harbor", 10000, 0.0026),
    ],
)
def test_golden_cosines(other, dim, value):
    assert cosine("storm at sea", other, dim) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(("dim", "value"), [(1000, 0.482), (10000, 0.509)])
def test_an_empty_text_is_like_any_text_of_two_words(dim, value):
    assert cosine("", "calm harbor", dim) == pytest.approx(value, abs=5e-4)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6])
def test_the_lean_towards_plus_one_is_the_chance_of_a_tie(count):
    # ties only happen for an even number of words, half of them up and half of them down
    ties = math.comb(count, count // 2) / 2**count if count % 2 == 0 else 0.0
    dim = 20_000
    assert cosine("", " ".join(WORDS[:count]), dim) == pytest.approx(ties, abs=5 / math.sqrt(dim))


def test_two_unrelated_texts_of_two_words_are_alike_by_a_quarter():
    # each leans by 1/2, so together by 1/4
    assert cosine("calm harbor", "storm sea", 20_000) == pytest.approx(0.25, abs=0.04)


def test_a_logical_shift_would_give_another_vector():
    golden = "---++---+++-+--+++-+-+--+++-+-+-"
    assert signs(plain_vector("storm", 32, 42)) == golden
    assert signs(plain_vector("storm", 32, 42, signed=False)) != golden


def test_a_hash_of_zero_starts_from_one():
    # found by searching: FNV-1a of "42:ldsicoe" is 0, where the generator would stand still
    assert fnv1a("42:ldsicoe") == 0
    assert vector("ldsicoe", 200) == signs(plain_vector("ldsicoe", 200, 42))
    assert set(vector("ldsicoe", 200)) == {"+", "-"}


@settings(max_examples=60)
@given(
    st.lists(st.text(alphabet="ab_Z9 .éİß嵐\n", max_size=40), min_size=1, max_size=4),
    st.integers(1, 70),
    st.integers(-(2**53) + 1, 2**53 - 1),
)
def test_every_bit_is_that_of_the_plain_rule(texts, dim, seed):
    encoder = HypervectorEncoder(dim, seed)
    rows = encoder.encode(texts)
    plain = [plain_vector(text, dim, seed) for text in texts]
    bits = np.unpackbits(rows, axis=1)
    assert (bits[:, :dim] * 2.0 - 1).tolist() == plain
    assert not bits[:, dim:].any()
    norm = math.sqrt(dim) * math.sqrt(dim)
    assert encoder.cosines(rows[0], rows).tolist() == [
        sum(a * b for a, b in zip(plain[0], other, strict=True)) / norm for other in plain
    ]


def test_many_texts_at_once_are_as_each_alone():
    # enough words for the components to be made in several parts, and one text without any
    texts = [" ".join(WORDS[start : start + 40]) for start in range(0, 3000, 20)]
    texts[7] = "..."
    encoder = HypervectorEncoder(999)
    assert (encoder.encode(texts) == np.concatenate([encoder.encode([t]) for t in texts])).all()


def test_words_count_as_often_as_they_occur():
    # three to one: the sign is always that of the word that occurs three times
    assert vector("storm storm sea storm", 300) == vector("storm", 300)


def test_a_long_text_is_summed_without_overflow():
    # 70,000 and 70,001 occurrences: the one word more decides every component
    text = "storm " * 70_000 + "sea " * 70_001
    assert vector(text, 100) == vector("sea", 100)


def test_every_item_is_ranked_and_ties_are_in_corpus_order():
    ranked = found(system({"z": "storm at sea", "b": "harbor", "a": "harbor"}), "storm at sea")
    assert [item for item, _ in ranked][:1] == ["z"]
    assert ranked[0][1] == pytest.approx(1.0)
    scores = dict(ranked)
    assert scores["a"] == scores["b"]
    places = [item for item, _ in ranked]
    assert places.index("b") < places.index("a")


def test_no_more_than_k_items_come_back():
    texts = {str(number): f"storm {number}" for number in range(20)}
    assert len(found(system(texts), "storm 3", 4)) == 4
    assert found(system(texts), "storm 3", 4) == found(system(texts), "storm 3")[:4]


def test_dim_and_seed_change_the_scores():
    texts = {"a": "storm at sea", "b": "a storm gathers at sea"}
    scores = {
        (dim, seed): dict(found(system(texts, dim=dim, seed=seed), "storm at sea"))["b"]
        for dim, seed in [(1000, 42), (10000, 42), (1000, 7)]
    }
    assert scores[1000, 42] == pytest.approx(0.6)
    assert scores[10000, 42] == pytest.approx(0.6188)
    assert scores[1000, 7] not in (scores[1000, 42], scores[10000, 42])


def test_an_empty_item_outranks_a_related_one_for_a_short_query():
    # as the rule has it, and only under vsa: both the query and the empty item lean to +1
    texts = {"related": "the calm before a storm came over them", "empty": ""}
    assert found(system(texts), "calm harbor")[0][0] == "empty"


def test_rules_apply_to_items_and_queries():
    rules = {"normalise": True, "aliases": {"tempest": "storm"}}
    ranked = found(system({"a": "A TEMPEST", "b": "a gale"}, **rules), "a storm")
    assert ranked[0] == ("a", pytest.approx(1.0))
    assert found(system({"a": "A TEMPEST", "b": "a gale"}), "a storm")[0][1] < 0.99


def test_titles_stand_before_texts_unless_left_out():
    corpus = {"a": {"title": "Storm", "text": "at sea"}, "b": {"title": None, "text": "sea"}}
    asked = "a storm at sea"
    assert found(system(corpus), asked) == found(system({"a": "Storm at sea", "b": "sea"}), asked)
    bare = found(system({"a": "at sea", "b": "sea"}), asked)
    assert found(system(corpus, title=False), asked) == bare
    assert found(system(corpus), asked) != bare


def test_the_log_knows_the_size_and_the_vectors():
    meta = system({"a": "x", "b": "y"}, dim=1000, seed=7).meta
    # 1000 bits take 125 bytes, and are kept in whole numbers of 16 bits
    assert meta["index_bytes"] == 2 * 126
    assert meta["embedding_model"] == {"name": "vsa", "dim": 1000, "seed": 7}


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"dim": 0}, "dim is 0; it must be a whole number from 1 to 100,000"),
        ({"dim": "1000"}, "dim is '1000'; it must be a whole number from 1 to 100,000"),
        ({"seed": 1.5}, "seed is 1.5; it must be a whole number from"),
        ({"dims": 10}, "did you mean dim?"),
    ],
)
def test_wrong_options_are_refused(spec, told):
    with pytest.raises(InputError, match=re.escape(told)):
        system({"a": "x"}, **spec)
