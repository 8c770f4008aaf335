from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from karat.errors import InputError
from karat.evaluation.gate_files import CONFIG_KEYS
from karat.evaluation.gates import Gate
from karat.evaluation.segments import By
from karat.measure.names import parse_measure
from karat.project.config import Config, ConfigEntries, read_config

# The sample of the design.
SAMPLE = """
queries: eval.jsonl            # with gold inside, or gold: separately
corpus: corpus.jsonl
systems:
  bm25:   {retriever: bm25, k: 50}
  hybrid: {retriever: fuse, of: [bm25, {retriever: dense, model: BAAI/bge-small-en-v1.5}]}
  live:   {retriever: http, url: "http://127.0.0.1:8000/search", body: {query: "{query}"}}
measures: [R@5, nDCG@5, RR]
by: [language, difficulty]
gates:
  - {measure: R@5, min: 0.90}                     # on the interval's lower bound unless on: mean
  - {measure: R@5, by: language, values: [pt-BR, es-AR], min: 0.85}
  - {measure: latency.retrieve.p50, max: 60}
outputs: [out/report.json, out/report.html, "junit:out/junit.xml"]
"""


def config_of(tmp_path: Path, text: str | bytes) -> Config:
    path = tmp_path / "karat.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_config(path)


def refused(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(InputError) as error:
        config_of(tmp_path, text)
    told = str(error.value)
    assert "\n" not in told
    assert told.startswith("karat.yaml")
    return told


def test_the_sample_is_read(tmp_path):
    config = config_of(tmp_path, SAMPLE)
    assert (config.queries, config.gold, config.corpus) == ("eval.jsonl", None, "corpus.jsonl")
    assert list(config.systems) == ["bm25", "hybrid", "live"]
    assert config.systems["bm25"] == {"retriever": "bm25", "k": 50}
    assert config.measures == ["R@5", "nDCG@5", "RR"]
    assert config.by == ["language", "difficulty"]
    recall = parse_measure("R@5")
    assert config.gates == (
        Gate(recall, min=0.9),
        Gate(recall, min=0.85, by=By(("language",)), values=("pt-BR", "es-AR")),
        Gate(parse_measure("latency.retrieve.p50"), max=60.0),
    )
    assert config.gates[1].where == "karat.yaml:12: gate 2"
    assert config.outputs == ["out/report.json", "out/report.html", "junit:out/junit.xml"]


def test_what_is_not_said_has_its_default(tmp_path):
    config = config_of(tmp_path, "gold: qrels.txt\nby:\ngates:\nmeasures:\n")
    assert config.model_dump(include=CONFIG_KEYS) == ConfigEntries(gold="qrels.txt").model_dump()
    assert (config.profile, config.measures, config.by, config.gates) == ("karat", None, [], ())


def test_one_of_many_needs_no_list(tmp_path):
    config = config_of(tmp_path, "measures: 'R@5, RR'\nby: language*topic\noutputs: out.json")
    assert (config.measures, config.by, config.outputs) == (
        ["R@5, RR"],
        ["language*topic"],
        ["out.json"],
    )


def test_settings_and_seed_are_conventions(tmp_path):
    text = "profile: trec\nsettings: {missing: zero, interval: none}\nseed: 7\nprimary: map"
    conventions = config_of(tmp_path, text).conventions
    assert (conventions.profile, conventions.missing) == ("trec", "zero")
    assert (conventions.interval, conventions.seed) == ("none", 7)


def test_measures_of_gates_follow_what_the_profile_takes_for_relevant(tmp_path):
    config = config_of(tmp_path, "settings: {rel: 2}\ngates: ['P(rel=1)@5 >= 0.1']")
    assert str(config.gates[0].measure) == "P(rel=1)@5"


def test_the_courses_gates_can_stand_under_gates(tmp_path):
    text = "gates: {retrieval: {mrr: 0.6}, generation: {true_success: 0.8}}"
    config = config_of(tmp_path, text)
    assert config.gates == (Gate(parse_measure("RR"), min=0.6, any_spelling=True),)
    assert config.left_out == ("generation.true_success",)


def test_paths_are_relative_to_the_file(tmp_path):
    config = config_of(tmp_path, "gold: data/qrels.txt")
    assert config.path("data/qrels.txt") == str(tmp_path / "data" / "qrels.txt")
    assert config.path("/data/qrels.txt") == "/data/qrels.txt"
    assert config.path("-") == "-"
    assert config.output("out/report.json") == str(tmp_path / "out" / "report.json")
    assert config.output("junit:out/junit.xml") == f"junit:{tmp_path / 'out' / 'junit.xml'}"
    assert config.output("json:-") == "json:-"
    assert config.output("json:") == "json:"


def test_the_digest_is_of_the_meaning_not_of_the_bytes(tmp_path):
    one = config_of(tmp_path, "gold: a.txt\nmeasures: [R@5]\n").digest
    same = config_of(tmp_path, "# a comment\nmeasures:\n- 'R@5'\ngold:   \"a.txt\"").digest
    other = config_of(tmp_path, "gold: b.txt\nmeasures: [R@5]\n").digest
    assert one == same != other
    assert one == hashlib.sha256(b'{"gold":"a.txt","measures":["R@5"]}').hexdigest()


def test_the_keys_are_those_that_a_file_of_gates_may_have_beside_them():
    assert set(CONFIG_KEYS) == set(ConfigEntries.model_fields)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "gold: a.txt\nmesures: [R@5]",
            "karat.yaml:2: unknown key 'mesures'; did you mean measures?",
        ),
        ("gold: 5", "karat.yaml:1: gold is 5; it must be a file name"),
        ("systems: [bm25]", "systems is ['bm25']; it must be a mapping of names"),
        ("systems: {bm25: 5}", "bm25 is 5; a mapping is expected, such as {retriever: bm25}"),
        ("measures: 5", "measures is 5; it must be a measure or a list"),
        ("measures: [5]", "measures is [5]; it must be"),
        ("measures: []", "karat.yaml:1: measures: no measure named"),
        ("measures: [ndgc@5]", "measures: unknown measure 'ndgc' in 'ndgc@5'; did you mean nDCG?"),
        ("profile: tre", "profile: unknown profile 'tre'; did you mean trec?"),
        ("settings: {tie: given}", "settings: unknown setting 'tie'; did you mean ties?"),
        ("settings: {boot: 5}", "settings: boot is 5"),
        ("settings: ties=given", "settings is 'ties=given'; it must be a mapping of conventions"),
        ("by: [a*b*c]", "by: by 'a*b*c': name one column"),
        ("primary: mpr", "primary: unknown measure 'mpr'"),
        ("margin: -1", "margin is -1; it must be a share from 0 to 1, such as 0.02"),
        ("margin: 2", "margin is 2; it must be a share from 0 to 1"),
        ("margin: .nan", "margin is nan; it must be a share from 0 to 1"),
        ("outputs: ''", "karat.yaml:1: outputs is ''; it must be a file name, or a list"),
        ("outputs: [a.json, '']", "outputs is ['a.json', '']; it must be a file name"),
        ("gold: ' '", "gold is ' '; it must be a file name"),
        ("seed: 1.5", "seed is 1.5; it must be a whole number, 0 or more"),
        ("seed: true", "seed is True; it must be a whole number"),
        ("seed: 1\nsettings: {seed: 2}", "karat.yaml:1: seed is given twice"),
        (
            "gates:\n- R@5 >= 0.9\n- {measure: R@5, mim: 1}",
            "karat.yaml:3: gate 2: unknown key 'mim'",
        ),
        ("gates: [R@5 high]", "karat.yaml:1: gate 1: cannot read 'R@5 high'"),
        ("gates: yes", "karat.yaml:1: a list of gates is expected, not 'yes'"),
        ("outputs: {a: b}", "outputs is {'a': 'b'}; it must be a file name, or a list"),
        ("- a", "a mapping with keys such as gold and measures is expected, not ['a']"),
        ("just text", "a mapping with keys"),
        ("~", "a mapping with keys such as gold and measures is expected, not nothing"),
        ("gold: a\ngold: b", "karat.yaml:2: the key 'gold' occurs twice; keep one"),
        ("gold: [", "is not valid YAML"),
        ("", "is empty"),
        ("# only this", "is empty"),
        (b"\x89PNG\x00\x00", "karat.yaml:1: holds a NUL byte, so it is binary"),
        (
            'gold: a\nqueries: "q\\0.jsonl"',
            "karat.yaml:2: a text holds the character NUL; remove it",
        ),
        ('systems:\n  "a\\0b": {retriever: bm25}', "karat.yaml:2: a text holds the character NUL"),
        ('systems:\n  "": {retriever: bm25}', "karat.yaml:2: a key is ''; give it a name"),
        (
            'systems:\n  "\\ud83d": {retriever: bm25}',
            "karat.yaml:2: '\\ud83d' holds half a surrogate",
        ),
        (
            'systems:\n  "\\ude00\\ud83d": {k: 1}',
            "karat.yaml:2: '\\ude00\\ud83d' holds half a surrogate",
        ),
        ('gold: a\nby: ["x", "\\udc00"]', "karat.yaml:2: '\\udc00' holds half a surrogate pair"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(tmp_path, text, told):
    assert told in refused(tmp_path, text)


@pytest.mark.parametrize("kind", ["bm25", "python, call: 'mine.py:search'"])
@pytest.mark.parametrize("key", ["chunked", "chunker"])
@pytest.mark.parametrize(
    "said", ["{algo: x, words: .nan}", "{algo: x, words: 1e400}", "{}", "{algo: x, ' a': [1]}"]
)
def test_how_a_corpus_was_cut_is_said_in_what_a_log_can_hold(tmp_path, kind, key, said):
    told = refused(tmp_path, f"systems:\n  x: {{retriever: {kind}, {key}: {said}}}")
    assert f"karat.yaml:2: {key} is {{" in told
    assert "; it must be a mapping" in told


@pytest.mark.parametrize("text", ["\U0001f600", "a\U0001f600\U00010000b", "é"])
def test_names_can_be_written_as_json_writes_them(tmp_path, text):
    """JSON has characters beyond the first 65,536 in two halves, each an escape of its own."""
    written = json.dumps({"systems": {text: {"retriever": "bm25", "chunked": {"algo": text}}}})
    assert text not in written
    (system,) = config_of(tmp_path, written).system_configs.values()
    assert (system.name, system.calls.chunked) == (text, {"algo": text})


def test_a_bomb_of_aliases_does_not_go_off(tmp_path):
    text = "gold: a\nsystems:\n  a0: &a0 {k: 1}\n" + "".join(
        f"  a{i}: &a{i} {{{', '.join(f'k{j}: *a{i - 1}' for j in range(10))}}}\n"
        for i in range(1, 20)
    )
    assert "more than 100,000 entries" in refused(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"karat\.yaml: no such file; check the path"):
        read_config(tmp_path / "karat.yaml")
