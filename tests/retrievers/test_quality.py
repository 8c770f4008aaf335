from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from karat.compat.ab import (
    append_traces,
    gate_digest,
    query_digest,
    trace_folder,
    trace_of,
)
from karat.data.tables import Corpus
from karat.errors import InputError
from karat.retrieve.fuse import by_interpolation
from karat.retrieve.protocol import Hit
from karat.retrieve.quality import (
    STOP_WORDS,
    Lexicon,
    QualityEngine,
    WordRules,
    interpolated,
    read_config,
    read_document,
    vectors_of,
)
from karat.retrieve.stages import Jaccard, ab_order

ITEMS = {
    "d1": "apple tart recipe with cinnamon and butter",
    "d2": "banana bread with walnuts and chocolate chips",
    "d3": "introduction to large language models (LLM) and transformers",
    "d4": "CUDA / NVIDIA CUDA driver installation walkthrough for GPUs",
    "d5": "zebra facts: habitat, diet, and behavior in the wild",
}
ALIASES = {
    "cuda": ("nvidia_cuda",),
    "pytorch": ("torch",),
    "llm": ("large", "language", "model"),
    "gpu": ("graphics_processing_unit",),
    "rag": ("retrieval_augmented_generation",),
}
LEXICAL_FUSION = """
t2:
  quality:
    redact: true
    trace_dir: logs/quality
    fusion: {alpha_semantic: 0.6, mode: score_interp}
    lexical: {bm25_k1: 1.2, bm25_b: 0.75, stopwords: en-basic}
    shadow: false
    enabled: true   # comments and order make no difference
perf: {enabled: true, metrics: {report_memory: true}}
"""
NORMALIZER_ALIASES = """
perf: {enabled: true, metrics: {report_memory: true}}
t2:
  quality:
    enabled: true
    shadow: false
    trace_dir: logs/quality
    redact: true
    lexical: {stopwords: en-basic}
    fusion: {mode: rank, alpha_semantic: 0.6}
    normalizer: {enabled: true, case: lower, unicode: NFKC}
    aliasing: {map_path: examples/quality/aliases.yaml}
    mmr: {enabled: true, lambda: 0.5, k: 20}
"""


@pytest.fixture
def config(tmp_path):
    """QualitySettings read from a config that is written down first."""

    def read(settings: Mapping | str):
        text = settings if isinstance(settings, str) else yaml.safe_dump(settings)
        file = tmp_path / "some.yaml"
        file.write_text(text, encoding="utf-8")
        return read_config(str(file))

    return read


def quality(**settings: object) -> dict:
    return {"t2": {"quality": {"enabled": True, **settings}}}


# Words


def test_texts_are_cut_at_everything_but_letters_and_digits():
    words = WordRules(stop=STOP_WORDS["none"]).words
    assert words("In_the  CUDA-12.4 Wild!") == ["in", "the", "cuda", "12", "4", "wild"]
    assert words("ﬁne Ⅻ") == ["fine", "xii"]
    assert words("") == words(" ÄÖ ") == []


def test_stop_words_are_eight_and_leave_first():
    assert WordRules().words("the art of a or an and to in it") == ["art", "it"]


def test_an_alias_is_followed_once_and_may_stand_for_several_words():
    rules = WordRules(aliases={"llm": ("large", "llm"), "and": ("und",), "gpu": ("graphics_unit",)})
    assert rules.words("LLM and GPU") == ["large", "llm", "graphics_unit"]
    assert rules.notes() == ["alias 'and' matches nothing: no text has such a word"]


def test_an_alias_in_capitals_matches_nothing_and_is_told():
    notes = WordRules(aliases={"LLM": ("x",), "rag": ("y",), "c++": ("z",)}).notes()
    assert [note.partition(" matches")[0] for note in notes] == ["alias 'LLM'", "alias 'c++'"]


def test_without_the_normaliser_texts_are_cut_at_spaces():
    rules = WordRules(letters=False, aliases={"c++": ("cpp",)})
    assert rules.words("The  C++, in C++ (fast)") == ["c++,", "cpp", "(fast)"]
    assert rules.notes() == []


# BM25


@pytest.mark.parametrize(
    ("aliases", "query", "item", "score"),
    [
        ({}, "apple tart", "d1", 2.254878),
        ({}, "zebra", "d5", 1.127439),
        ({}, "cuda install", "d4", 1.411356),
        (ALIASES, "llm tutorial", "d3", 3.902967),
        (ALIASES, "cuda install", "d4", 1.439163),
    ],
)
def test_bm25_gives_the_published_scores(aliases, query, item, score):
    rules = WordRules(aliases=aliases)
    lexicon = Lexicon([rules.words(text) for text in ITEMS.values()])
    scores, _ = lexicon.bm25(rules.words(query), np.ones(5, dtype=bool), k1=1.2, b=0.75)
    at = list(ITEMS).index(item)
    assert round(scores[at], 6) == score
    assert np.flatnonzero(scores).tolist() == [at]


def plain_bm25(asked: Sequence[str], texts: Sequence[Sequence[str]], k1: float, b: float):
    n = len(texts)
    mean = sum(map(len, texts)) / n or 1.0
    scores = []
    for text in texts:
        total = 0.0
        for word in asked:
            f = list(text).count(word)
            df = sum(word in other for other in texts)
            idf = math.log((n - df + 0.5) / (df + 0.5) + 1e-9)
            if f:
                total += idf * f * (k1 + 1) / (f + k1 * (1 - b + b * len(text) / mean))
        scores.append(total)
    return scores


words = st.lists(st.sampled_from("abcdef"), max_size=8)
texts = st.lists(words, min_size=1, max_size=8)


@given(words, texts, st.floats(0, 5), st.floats(0, 1))
def test_bm25_is_the_formula(asked, items, k1, b):
    scores, hits = Lexicon(items).bm25(asked, np.ones(len(items), dtype=bool), k1=k1, b=b)
    assert scores == pytest.approx(plain_bm25(asked, items, k1, b), rel=1e-12, abs=1e-12)
    assert hits.tolist() == [len({*asked} & {*item}) for item in items]


@given(words, texts, st.data())
def test_bm25_over_some_items_knows_nothing_of_the_others(asked, items, data):
    among = np.array(data.draw(st.lists(st.booleans(), min_size=len(items), max_size=len(items))))
    scores, _ = Lexicon(items).bm25(asked, among, k1=1.2, b=0.75)
    assert not scores[~among].any()
    kept = [item for item, is_in in zip(items, among, strict=True) if is_in]
    if kept:
        alone, _ = Lexicon(kept).bm25(asked, np.ones(len(kept), dtype=bool), k1=1.2, b=0.75)
        assert scores[among].tolist() == alone.tolist()


def test_a_word_that_most_items_have_counts_against_them():
    scores, _ = Lexicon([["x"], ["x"], ["y"]]).bm25(["x"], np.ones(3, dtype=bool), k1=1.2, b=0.75)
    assert scores[0] < 0 == scores[2]


# Fusion and diversity


def test_fusion_is_worked_out_by_hand():
    fused = interpolated(np.array([1, 2, 3]), np.array([3, 1, 2]), 0.6)
    by_hand = [
        Fraction(6, 10) / 61 + Fraction(4, 10) / 63,
        Fraction(6, 10) / 62 + Fraction(4, 10) / 61,
        Fraction(6, 10) / 63 + Fraction(4, 10) / 62,
    ]
    assert fused == pytest.approx([float(one) for one in by_hand], rel=1e-15)
    assert np.argsort(-fused).tolist() == [1, 0, 2]


@given(st.permutations(range(6)), st.permutations(range(6)), st.floats(0, 1))
def test_fusion_agrees_with_that_of_fuse(first, second, alpha):
    lists = [
        [Hit(f"d{item}", float(-at)) for at, item in enumerate(order)] for order in (first, second)
    ]
    expected = {hit.item_id: hit.score for hit in by_interpolation(*lists, alpha)}
    fused = interpolated(np.argsort(first) + 1, np.argsort(second) + 1, alpha)
    assert fused.tolist() == [expected[f"d{item}"] for item in range(6)]


def test_difference_is_the_largest_distance_to_anything_chosen():
    # a and b share nothing; c repeats a, d is half of both. To the nearest choice c has no
    # distance and d a half; to the farthest c has 1 and d a half.
    similarity = Jaccard([{"x"}, {"y"}, {"x"}, {"x", "y"}]).to
    assert ab_order("abcd", [4.0, 3.0, 1.0, 1.1], similarity, 0.5, 3) == [0, 1, 2, 3]


def test_equal_worth_goes_by_id_and_the_tail_by_relevance():
    similarity = Jaccard([{"x"}, {"y"}, {"z"}, {"x"}]).to
    assert ab_order("adbc", [2.0, 1.0, 1.0, 1.5], similarity, 1.0, 2) == [0, 2, 3, 1]


# The base ranking


def test_a_vector_is_the_hash_of_its_text():
    raw = struct.unpack("<32I", hashlib.shake_256(b"apple tart").digest(128))
    spread = [value / 0xFFFFFFFF * 2 - 1 for value in raw]
    length = math.sqrt(sum(value * value for value in spread))
    found = vectors_of(["apple tart", "banana"], 32)
    assert found.shape == (2, 32)
    assert found[0] == pytest.approx([value / length for value in spread], abs=1e-6)
    assert np.linalg.norm(found, axis=1) == pytest.approx([1, 1], abs=1e-6)


def test_the_base_ranking_is_by_likeness_then_id(config):
    corpus = Corpus.from_dict({"z": "same", "b": "same", "a": "same", "c": "other"})
    ranked = QualityEngine(corpus, config("{}").settings).rank(" same ", 10)
    assert ranked.item_ids == ["a", "b", "z", "c"]
    assert ranked.base_ranks == [1, 2, 3, 4]
    assert ranked.base_scores[0] == pytest.approx(0.75 * 1 + 0.05 * 0.5, abs=1e-6)
    assert ranked.fused is None


def test_recency_and_importance_count(config):
    corpus = Corpus.from_dict(
        {
            "new": {"text": "same", "ts": "2025-06-01T00:00:00Z", "aux": '{"importance": 1}'},
            "half": {"text": "same", "ts": "2024-11-30T12:00:00", "aux": None},
            "old": {"text": "same", "ts": "2020-01-01", "aux": "{}"},
            "ageless": {"text": "same", "ts": None, "aux": '{"importance": 7}'},
        }
    )
    ranking = {"alpha_sim": 0, "beta_recency": 1, "gamma_importance": 2}
    ranked = QualityEngine(corpus, config({"t2": {"ranking": ranking}}).settings).rank("same", 4)
    assert ranked.item_ids == ["new", "ageless", "half", "old"]
    assert ranked.base_scores == pytest.approx([3.0, 2.0, 1.5, 1.0])


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"ts": "yesterday"}, "ts is 'yesterday'"),
        ({"aux": "[1]"}, "aux is '\\[1\\]'"),
        ({"aux": '{"importance": "high"}'}, "importance"),
    ],
)
def test_what_cannot_be_weighed_is_refused_by_item(config, item, words):
    corpus = Corpus.from_dict({"d1": {"text": "x", **item}})
    with pytest.raises(InputError, match=f"item 'd1': .*{words}"):
        QualityEngine(corpus, config("{}").settings)


def test_every_item_is_a_candidate_unless_a_limit_is_set(config):
    corpus = Corpus.from_dict({f"d{at}": f"text {at}" for at in range(200)})

    def ranked(**limits: float):
        return QualityEngine(corpus, config({"t2": limits} if limits else "{}").settings).rank(
            "q", 999
        )

    everything = ranked()
    assert everything.candidates == len(everything.item_ids) == 200
    assert ranked(k_retrieval=64).item_ids == everything.item_ids[:64]
    likely = ranked(sim_threshold=0.3)
    assert 0 < likely.candidates < 30
    assert likely.item_ids == everything.item_ids[: likely.candidates]
    assert ranked(sim_threshold=1.0).item_ids == []


# The whole path


def test_without_the_quality_path_the_base_ranking_stands(config):
    corpus = Corpus.from_dict(ITEMS)
    base = QualityEngine(corpus, config("{}").settings)
    off = quality(mmr={"enabled": True}, aliasing={"map_path": "nowhere.yaml"})
    off["t2"]["quality"]["enabled"] = False
    other = QualityEngine(corpus, config(off).settings)
    assert base.rank("zebra", 5) == other.rank("zebra", 5)


def test_a_mode_that_is_not_known_fuses_nothing(config):
    corpus = Corpus.from_dict(ITEMS)
    base = QualityEngine(corpus, config("{}").settings).rank("zebra", 5)
    assert (
        QualityEngine(corpus, config(quality(fusion={"mode": "rank"})).settings).rank("zebra", 5)
        == base
    )


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_fused_lists_are_those_of_their_two_rankings(config, alpha):
    corpus = Corpus.from_dict(ITEMS)
    base = QualityEngine(corpus, config("{}").settings).rank("cuda install", 5).item_ids
    found = QualityEngine(corpus, config(quality(fusion={"alpha_semantic": alpha})).settings)
    ranked = found.rank("cuda install", 5)
    lexical = ["d4", "d1", "d2", "d3", "d5"]
    fused = {
        item: alpha / (61 + base.index(item)) + (1 - alpha) / (61 + lexical.index(item))
        for item in ITEMS
    }
    assert ranked.item_ids == sorted(ITEMS, key=lambda item: (-fused[item], item))
    assert ranked.fused == pytest.approx([fused[item] for item in ranked.item_ids])
    assert [base[rank - 1] for rank in ranked.base_ranks] == ranked.item_ids
    assert ranked.lexical_hits == 1
    if alpha in (0, 1):
        assert ranked.item_ids == (base if alpha else lexical)


def test_diversity_after_no_fusion_counts_ranks_down(config):
    corpus = Corpus.from_dict(ITEMS)
    base = QualityEngine(corpus, config("{}").settings).rank("zebra", 5).item_ids
    settings = quality(fusion={"mode": "rank"}, mmr={"enabled": True, "lambda": 0.5})
    sets = [set(WordRules().words(ITEMS[item])) for item in base]
    expected = [base[at] for at in ab_order(base, [5, 4, 3, 2, 1], Jaccard(sets).to, 0.5, 5)]
    assert QualityEngine(corpus, config(settings).settings).rank("zebra", 5).item_ids == expected


@pytest.mark.parametrize("head", [None, 0, 3, 50])
@pytest.mark.parametrize("fusion", ["score_interp", "rank"])
def test_a_shorter_list_is_the_top_of_a_longer_one(config, head, fusion):
    corpus = Corpus.from_dict({f"d{at}": f"w{at % 7} w{at % 5} w{at % 3}" for at in range(40)})
    settings = quality(fusion={"mode": fusion}, mmr={"enabled": True, "lambda": 0.3, "k": head})
    found = QualityEngine(corpus, config(settings).settings)
    whole = found.rank("w1 w2", 1000).item_ids
    assert sorted(whole) == sorted(found.ids)
    for k in (1, 2, 5, 17):
        assert found.rank("w1 w2", k).item_ids == whole[:k]


def test_items_and_queries_without_a_word_are_ranked_all_the_same(config):
    corpus = Corpus.from_dict({"b": "", "a": "…", "c": "日本語"})
    found = QualityEngine(corpus, config(quality(mmr={"enabled": True})).settings)
    assert sorted(found.rank("", 3).item_ids) == ["a", "b", "c"]


# QualitySettings


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        (LEXICAL_FUSION, "9e4135d980ea92593a7592ab3d7ccaeb3daeed0958fb00227d115d8c3f3f1df8"),
        (NORMALIZER_ALIASES, "14fb2b90bb811d1e1d2048116402b660dd826e4ad49692e7aa584bca01d2d3bc"),
    ],
    ids=["lexical_fusion", "normalizer_aliases"],
)
def test_digests_are_those_published(config, text, digest):
    assert config(text).document.digest == digest


def test_a_digest_is_of_what_is_said(tmp_path):
    def digest(text: str) -> str:
        file = tmp_path / "x.yaml"
        file.write_text(text, encoding="utf-8")
        return read_document(str(file)).digest

    assert digest("{a: 1, b: [é]}") == digest("# so\nb:\n- é\na: 1\n") != digest("{a: 1.0, b: [é]}")
    assert digest("a: 2025-01-01") == "unknown"
    spelled = json.dumps({"a": "é", "on": True}, sort_keys=True, separators=(",", ":"))
    assert digest('a: é\n"on": yes') == hashlib.sha256(spelled.encode()).hexdigest()


def test_what_the_published_configs_say_is_honoured_but_for_one_mode(config):
    assert config(LEXICAL_FUSION).notes == ()
    (note,) = config(NORMALIZER_ALIASES).notes
    assert note == (
        "some.yaml:10: t2.quality.fusion.mode 'rank' does nothing; score_interp is what fuses"
    )


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("t2:\n  hybrid: {enabled: true}", "some.yaml:2: t2.hybrid changes nothing here"),
        ("t3: {llm: {model: x}}", "some.yaml:1: t3 changes nothing here"),
        ("t2: {backend: lancedb}", "t2.backend changes nothing here"),
        ("t2: {quality: {lexical: {bm25: {k1: 2}}}}", "lexical.bm25 changes nothing here"),
        ("t2: {quality: {fusion: {enabled: false}}}", "t2.quality.fusion.enabled changes nothing"),
        ("t2: {quality: {normalizer: {stemmer: porter-lite}}}", "normalizer.stemmer changes"),
        ("t2: {quality: {mmr: {lambda_relevance: 0.7}}}", "mmr.lambda_relevance changes nothing"),
        (
            "t2: {quality: {fusoin: {mode: rank}}}",
            "t2.quality.fusoin changes nothing here; did you mean t2.quality.fusion?",
        ),
        ("quality: {enabled: true}", "quality changes nothing here"),
        ("t2: {quality: {enabled: true, normalizer: {case: upper}}}", "normalizer.case changes"),
        ("t2: {quality: {enabled: true, normalizer: {unicode: NFC}}}", "normalizer.unicode chan"),
    ],
)
def test_a_setting_that_changes_nothing_is_told_with_its_path(config, text, note):
    assert any(note in one for one in config(text).notes)


def test_each_setting_is_told_by_itself(config):
    notes = config("t1: {}\nt2:\n  tiers: [archive]\n  cache: {enabled: true}\nflags: {}\n").notes
    assert [note.partition(" changes")[0] for note in notes] == [
        "some.yaml:1: t1",
        "some.yaml:3: t2.tiers",
        "some.yaml:4: t2.cache",
        "some.yaml:5: flags",
    ]


def test_settings_that_ask_for_what_is_done_anyway_are_not_told(config):
    text = """
t2:
  backend: inmemory
  owner_scope: any
  hybrid: {enabled: false}
  quality: {enabled: yes, lexical: {enabled: true}, fusion: {enabled: true}, mmr: , redact: }
"""
    found = config(text)
    assert found.notes == ()
    assert found.settings.quality_enabled
    assert found.settings.redact


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("t2:\n  quality:\n    enabled: 1", ("some.yaml:3:", "enabled is 1", "true or false")),
        ("t2: {quality: {fusion: {alpha_semantic: 1.5}}}", ("alpha_semantic is 1.5", "0 to 1")),
        ("t2: {quality: {mmr: {lambda: -1}}}", ("lambda is -1", "0 to 1")),
        ("t2: {quality: {mmr: {k: ten}}}", ("k is 'ten'", "whole number")),
        ("t2: {quality: {lexical: {bm25_k1: .nan}}}", ("bm25_k1 is nan",)),
        ("t2: {quality: {lexical: {stopwords: en-full}}}", ("stopwords is 'en-full'", "en-basic")),
        ("t2: {quality: {fusion: rank}}", ("t2.quality.fusion is 'rank'", "mapping")),
        ("t2: {k_retrieval: 0}", ("k_retrieval is 0", "from 1")),
        ("[1, 2]", ("mapping of settings",)),
        ("t2: {a: 1, a: 2}", ("'a' occurs twice",)),
        ("t2: [", ("not valid YAML",)),
        ("", ("empty",)),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(config, text, words):
    with pytest.raises(InputError) as refused:
        config(text)
    for word in words:
        assert word in str(refused.value)


def test_a_missing_file_of_aliases_is_an_error(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = config(quality(aliasing={"map_path": "names/aliases.yaml"})).settings
    with pytest.raises(InputError, match=r"aliases\.yaml: no such file"):
        QualityEngine(Corpus.from_dict(ITEMS), settings)
    Path("names").mkdir()
    Path("names/aliases.yaml").write_text("llm: Large Language-Model\n", encoding="utf-8")
    found = QualityEngine(Corpus.from_dict(ITEMS), settings)
    assert found.rules.words("LLM") == ["large", "language", "model"]


# Traces


def gate(perf: bool, memory: bool, shadow: bool, enabled: bool, **more: object) -> dict:
    return {
        "perf": {"enabled": perf, "metrics": {"report_memory": memory}},
        "t2": {"quality": {"shadow": shadow, "enabled": enabled, **more}},
    }


def traced(config, settings: Mapping, query: str = "zebra", k: int = 2, **environment: str):
    found = config(settings).settings
    ranked = QualityEngine(Corpus.from_dict(ITEMS), found).rank(query, k)
    return trace_of(found, query, ranked, environment)


@pytest.mark.parametrize("gates", range(16))
def test_the_gate_has_three_parts(config, gates):
    perf, memory, shadow, enabled = (bool(gates & bit) for bit in (1, 2, 4, 8))
    trace = traced(config, gate(perf, memory, shadow, enabled))
    assert (trace is not None) == (perf and memory and (shadow or enabled))
    if trace is not None:
        assert trace["meta"]["reason"] == ("enabled" if enabled else "shadow")


def test_an_enabled_trace_tells_both_ranks_and_the_fused_score(config):
    trace = traced(
        config, gate(True, True, True, True), " Zebra\u3000FACTS ", 5, CLEMATIS_GIT_SHA="a1"
    )
    base = QualityEngine(Corpus.from_dict(ITEMS), config("{}").settings).rank("Zebra\u3000FACTS", 5)
    assert trace.keys() == {
        *("trace_schema_version", "git_sha", "config_digest", "clock", "seed", "query"),
        *("query_id", "meta", "items"),
    }
    assert (trace["trace_schema_version"], trace["clock"], trace["seed"]) == (1, 0, 0)
    assert trace["git_sha"] == "a1"
    assert trace["query"] == "[REDACTED]"
    assert trace["query_id"] == hashlib.sha1(b"zebra facts").hexdigest()
    assert trace["meta"] == {
        "k": 5,
        "reason": "enabled",
        "note": "enabled trace; fused ordering active",
        "alpha": 0.6,
        "lex_hits": 2,
    }
    assert [item["rank_fused"] for item in trace["items"]] == [1, 2, 3, 4, 5]
    lexical = ["d5", "d1", "d2", "d3", "d4"]
    for item in trace["items"]:
        assert base.item_ids[item["rank_sem"] - 1] == item["id"]
        by_hand = 0.6 / (60 + item["rank_sem"]) + 0.4 / (61 + lexical.index(item["id"]))
        assert item["score_fused"] == pytest.approx(by_hand)


def test_a_shadow_trace_tells_the_base_ranking(config):
    settings = gate(True, True, True, False, redact=False)
    trace = traced(config, settings, "Zebra")
    base = QualityEngine(Corpus.from_dict(ITEMS), config("{}").settings).rank("Zebra", 2)
    assert trace["query"] == "Zebra"
    assert trace["git_sha"] == "unknown"
    assert trace["meta"] == {"k": 2, "reason": "shadow", "note": "shadow trace; rankings unchanged"}
    told = [(item["id"], item["score"]) for item in trace["items"]]
    assert told == list(zip(base.item_ids, base.base_scores, strict=True))
    settings["perf"]["metrics"]["trace_reason"] = "nightly"
    assert traced(config, settings)["meta"]["reason"] == "nightly"


def test_nothing_is_traced_where_nothing_was_fused(config):
    assert traced(config, gate(True, True, True, True, fusion={"mode": "rank"})) is None
    nobody = gate(True, True, False, True)
    nobody["t2"]["sim_threshold"] = 1.0
    assert traced(config, nobody) is None


def test_a_trace_s_digest_is_of_five_settings(config):
    spelled = (
        '{"perf":{"enabled":true,"metrics":{"report_memory":true}},'
        '"t2":{"quality":{"enabled":true,"redact":true,"shadow":false}}}'
    )
    expected = hashlib.sha256(spelled.encode()).hexdigest()
    assert gate_digest(config(LEXICAL_FUSION).settings) == expected
    assert gate_digest(config(NORMALIZER_ALIASES).settings) == expected


def test_queries_that_differ_in_case_and_spaces_have_one_id():
    assert query_digest("ＺEBRA\n facts") == hashlib.sha1(b"zebra facts").hexdigest()


def test_traces_go_where_the_config_says(config):
    assert trace_folder(config("{}").settings) == Path("logs/quality")
    assert trace_folder(config(quality(trace_dir="q")).settings) == Path("q")
    both = {**quality(trace_dir="q"), "perf": {"metrics": {"trace_dir": "m"}}}
    assert trace_folder(config(both).settings) == Path("m")


def test_traces_are_appended_as_compact_lines(tmp_path):
    folder = tmp_path / "new" / "er"
    assert append_traces(folder, [{"b": "é", "a": [1, 2]}]) is None
    assert append_traces(folder, [{"c": None}]) is None
    assert (folder / "rq_traces.jsonl").read_bytes() == '{"a":[1,2],"b":"é"}\n{"c":null}\n'.encode()


def test_traces_that_cannot_be_written_are_told_not_raised(tmp_path):
    (tmp_path / "file").write_text("")
    told = append_traces(tmp_path / "file", [{}])
    assert "rq_traces.jsonl: traces cannot be written" in told
