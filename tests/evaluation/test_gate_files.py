from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karat.data.tables import Gold, Run
from karat.errors import InputError, KaratError, UsageError
from karat.evaluation.api import evaluate, gate
from karat.evaluation.gate_files import parse_gates, read_gate_file
from karat.evaluation.gates import Gate
from karat.evaluation.segments import By
from karat.formats.settings import parse_yaml
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measure

EXAMPLES = Path(__file__).parents[2] / "examples" / "gates"


def gate_of(data: object) -> Gate:
    (gate,), _ = parse_gates([data], "gates.yaml")
    return gate


def written(tmp_path: Path, text: str | bytes, name: str = "gates.yaml") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(InputError) as error:
        read_gate_file(written(tmp_path, text))
    told = str(error.value)
    assert "\n" not in told
    assert told.startswith("gates.yaml")
    return told


R5, RR = parse_measure("R@5"), parse_measure("RR")


@pytest.mark.parametrize("name", ["rag", "ci_gates", "memory", "story"])
def test_every_example_can_be_read(name):
    gates = read_gate_file(EXAMPLES / f"{name}.yaml").gates
    assert gates


def test_documents_differ_in_what_their_thresholds_are_held_against():
    story, rag, memory = (
        read_gate_file(EXAMPLES / f"{n}.yaml").gates for n in ("story", "rag", "memory")
    )
    assert story == [Gate(RR, min=0.6, strict=True, on="mean")]
    assert {
        Gate(R5, min=0.9),
        Gate(parse_measure("nDCG(gain='exp')@5"), min=0.8),
        Gate(parse_measure("P@5"), min=0.6),
        Gate(parse_measure("latency.retrieve.p50"), max=60.0),
    } <= set(rag)
    # Only what the lesson calls an average is held against the mean.
    assert [str(one.measure) for one in rag if one.on == "mean"] == ["DistinctDocs@5"]
    assert not any(one.strict for one in rag)
    assert {
        Gate(parse_measure("Hit@1"), min=0.8, strict=True, on="mean"),
        Gate(RR, min=0.85, strict=True, on="mean"),
        Gate(parse_measure("FPR@1"), max=0.05, strict=True, on="mean"),
    } <= set(memory)
    assert {one.on for one in memory} == {"mean"}
    # "100 % coverage" cannot be exceeded.
    assert [str(one.measure) for one in memory if not one.strict] == ["Coverage(of='items')@10"]


@pytest.mark.parametrize(
    ("line", "gate"),
    [
        ("R@5 >= 0.90", Gate(R5, min=0.9)),
        ("R@5>=.9", Gate(R5, min=0.9)),
        ("recall@5 ≥ 0.90", Gate(R5, min=0.9)),
        ("RR > 0.6", Gate(RR, min=0.6, strict=True)),
        ("mean RR > 0.6", Gate(RR, min=0.6, strict=True, on="mean")),
        ("  mean   mrr  >  6e-1 ", Gate(RR, min=0.6, strict=True, on="mean")),
        ("latency.retrieve.p50 <= 60", Gate(parse_measure("latency.retrieve.p50"), max=60.0)),
        ("FPR@1 < 0.05", Gate(parse_measure("FPR@1"), max=0.05, strict=True)),
        ("nDCG(gain='exp')@5 >= 0.8", Gate(parse_measure("nDCG(gain='exp')@5"), min=0.8)),
        (
            "R@5 [language=pt-BR] >= 0.85",
            Gate(R5, min=0.85, by=By(("language",)), values=("pt-BR",)),
        ),
        ("R@5 [language] >= 0.85", Gate(R5, min=0.85, by=By(("language",)))),
        ("R@5[words = <3 words] ≤ 1", Gate(R5, max=1.0, by=By(("words",)), values=("<3 words",))),
        (
            "RR [language*level=pt-BR × hard] >= 0.5",
            Gate(RR, min=0.5, by=By(("language", "level")), values=("pt-BR × hard",)),
        ),
    ],
)
def test_a_gate_can_be_a_line(line, gate):
    assert gate_of(line) == gate


@pytest.mark.parametrize(
    ("form", "gate"),
    [
        ({"measure": "R@5", "min": 0.9}, Gate(R5, min=0.9)),
        ({"measure": "R@5", "min": 1}, Gate(R5, min=1.0)),
        ({"measure": "R@5", "min": 0.9, "on": "ci_low"}, Gate(R5, min=0.9)),
        ({"measure": "R@5", "max": 0.9, "on": "ci_high"}, Gate(R5, max=0.9)),
        ({"measure": "R@5", "max": 0.9, "on": "interval"}, Gate(R5, max=0.9)),
        (
            {"measure": "RR", "min": 0.6, "strict": True, "on": "mean"},
            Gate(RR, 0.6, strict=True, on="mean"),
        ),
        (
            {"measure": "R@5", "by": "language", "values": ["pt-BR", "es-AR"], "min": 0.85},
            Gate(R5, min=0.85, by=By(("language",)), values=("pt-BR", "es-AR")),
        ),
        (
            {"measure": "RR", "by": "hops", "values": [1, 2.5, True], "max": 0.5},
            Gate(RR, max=0.5, by=By(("hops",)), values=("1", "2.5", "true")),
        ),
        (
            {"measure": "RR", "by": "language", "values": "en", "min": 0},
            Gate(RR, 0.0, by=By(("language",)), values=("en",)),
        ),
    ],
)
def test_a_gate_can_be_a_mapping(form, gate):
    assert gate_of(form) == gate


def test_yaml_words_are_read_as_people_mean_them(tmp_path):
    text = "- {measure: RR, on: mean, min: 1e-3, by: language, values: [no, on, 2024-05-01, 007]}"
    (gate,) = read_gate_file(written(tmp_path, text)).gates
    assert (gate.on, gate.min) == ("mean", 0.001)
    assert gate.values == ("no", "on", "2024-05-01", "007")


def test_gates_can_stand_in_a_karat_yaml(tmp_path):
    text = "gold: qrels.txt\nmeasures: [R@5]\ngates:\n  - R@5 >= 0.9\n"
    found = read_gate_file(written(tmp_path, text))
    (gate,), left_out = found.gates, found.left_out
    assert gate == Gate(R5, min=0.9)
    assert left_out == ()
    assert gate.where == "gates.yaml:4: gate 1"


def test_what_a_measure_takes_for_relevant_is_kept():
    text = ["P(rel=1)@5 >= 0.1"]
    assert str(parse_gates(text, "g")[0][0].measure) == "P@5"
    assert (
        str(parse_gates(text, "g", conventions_of("karat", {"rel": 2}))[0][0].measure)
        == "P(rel=1)@5"
    )


def test_the_courses_layout_is_read_as_it_is():
    found = read_gate_file(EXAMPLES / "ci_gates.yaml")
    gates, left_out = found.gates, found.left_out
    found = [(str(gate.measure), gate.min, gate.max, gate.values) for gate in gates]
    assert found == [
        ("R@5", 0.9, None, None),
        ("R@5", 0.85, None, ("ptBR",)),
        ("R@5", 0.85, None, ("esAR",)),
        ("nDCG(gain='exp')@5", 0.8, None, None),
        ("P@5", 0.6, None, None),
        ("latency.retrieve.p50", None, 60.0, None),
        ("latency.rerank.p50", None, 50.0, None),
    ]
    assert {gate.on for gate in gates} == {"interval"}
    assert not any(gate.strict for gate in gates)
    assert left_out[0] == "generation.true_success"
    assert gates[1].by == By(("language",))
    assert gates[1].any_spelling


def test_the_courses_layout_knows_the_other_retrieval_metrics():
    data = {
        "retrieval": {
            "mrr": 0.6,
            "hit_at_k": {"overall": 0.9},
            "distinct_docs_at_5": 3,
            "redundancy_at_5": 0.4,
            "wrecall_at_5": 0.8,
            "recall_at_10_min": 0.9,
            "precision_at_5_max": 0.99,
        }
    }
    gates, _ = parse_gates(data, "ci_gates.yaml")
    assert [(str(gate.measure), gate.min, gate.max) for gate in gates] == [
        ("RR", 0.6, None),
        ("Hit@k", 0.9, None),
        ("DistinctDocs@5", 3.0, None),
        ("Redundancy@5", None, 0.4),
        ("WR@5", 0.8, None),
        ("R@10", 0.9, None),
        ("P@5", None, 0.99),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "- R@5 >= 0.9\n- ndgc@5 >= 0.8",
            "gates.yaml:2: gate 2: unknown measure 'ndgc' in 'ndgc@5'; did you mean nDCG?",
        ),
        (
            "- {mesure: R@5, min: 0.9}",
            "gates.yaml:1: gate 1: unknown key 'mesure'; did you mean measure?",
        ),
        (
            "- measure: R@5\n  min: 0.9\n  stric: true",
            "gates.yaml:3: gate 1: unknown key 'stric'; did you mean strict?",
        ),
        ("- {measure: R@5, min: high}", "gate 1: min is 'high'; it must be a number"),
        ("- {measure: R@5, min: true}", "gate 1: min is True; it must be a number"),
        ("- {measure: R@5, min: .inf}", "gate 1: min is inf; it must be a number"),
        ("- {measure: R@5, min: 0.9, strict: 1}", "gate 1: strict is 1; it must be true or false"),
        (
            "- {measure: R@5, min: 0.9, on: median}",
            "on is 'median'; it must be interval, ci_low, ci_high or mean",
        ),
        ("- {measure: R@5, min: 0.9, on: ci_high}", "on: ci_high does not fit"),
        ("- {measure: R@5, max: 0.9, on: ci_low}", "on: ci_low does not fit"),
        ("- {measure: R@5}", "gate 1: the gate on R@5 has neither min nor max"),
        ("- {measure: R@5, min: 0.1, max: 0.2}", "has both min and max"),
        ("- {min: 0.1}", "gate 1: measure is missing; give a measure such as R@5"),
        ("- {measure: 5, min: 0.1}", "measure is 5; it must be a measure such as R@5"),
        ("- {measure: R@5, min: 0.1, values: [en]}", "values of the gate on R@5 need by"),
        ("- {measure: R@5, min: 0.1, by: language, values: []}", "values is []; it must be"),
        (
            "- {measure: R@5, min: 0.1, by: language, values: [[en]]}",
            "values is [['en']]; it must be",
        ),
        ("- {measure: R@5, min: 0.1, by: 'a*b*c'}", "by 'a*b*c': name one column"),
        ("- R@5 is good", "gate 1: cannot read 'R@5 is good'; write a gate such as 'R@5 >= 0.90'"),
        ("- R@5 >= 90%", "'90%' in 'R@5 >= 90%' is not a number"),
        ("- R@5 >= nan", "'nan' in 'R@5 >= nan' is not a number"),
        ("- R@5 >= 0_5", "'0_5' in 'R@5 >= 0_5' is not a number; write it as 0.90"),
        ("- R@5 >= ٠.٥", "'٠.٥' in 'R@5 >= ٠.٥' is not a number"),
        ("- R@5 >= 1e999", "gate 1: the gate on R@5 has the limit inf; give a number"),
        ("- {measure: R@5, min: 0.5, by: null}", "gates.yaml:1: gate 1: by is empty; it must be"),
        ("- measure: R@5\n  min: 0.5\n  values:", "gates.yaml:3: gate 1: values is empty"),
        ("- {measure: R@5, min: 0.5, strict: null}", "strict is empty; it must be true or false"),
        ("- R@5 [=pt] >= 0.9", "cannot read the segment"),
        ("- R@5 [language=] >= 0.9", "cannot read the segment"),
        ("- 5", "gate 1: a gate is a mapping or a line of text, not 5"),
        ("-", "gate 1: a gate is a mapping or a line of text, not nothing"),
        ("R@5 >= 0.9", "a list of gates is expected, not 'R@5 >= 0.9'; write '- R@5 >= 0.90'"),
        ("gats:\n- R@5 >= 0.9", "gates.yaml:1: unknown key 'gats'; did you mean gates?"),
        (
            "gates: [R@5 >= 0.9]\nretrieval: {mrr: 0.6}",
            "gates.yaml:2: retrieval and gates are two layouts, which cannot be mixed",
        ),
        ("retrieval: {mrr: 0.6}\ngold: a.txt", "gates.yaml:2: gold needs gates beside it"),
        ("gates: [R@5 >= 0.9]\nquery: a", "unknown key 'query'; did you mean queries?"),
        ("gates: 5", "gates.yaml:1: a list of gates is expected, not 5"),
        ("[]", "holds no gate on retrieval"),
        ("gates:", "holds no gate on retrieval"),
        ("generation: {true_success: 0.8}", "holds no gate on retrieval"),
        (
            "retrieval: {recal_at_5: 0.9}",
            "gates.yaml:1: retrieval.recal_at_5: unknown measure 'recal'",
        ),
        (
            "retrieval:\n  mrr:\n    overall: good",
            "gates.yaml:3: retrieval.mrr is 'good'; it must be a number",
        ),
        ("retrieval: 0.9", "retrieval is 0.9; it must be a mapping"),
        ("retrieval: {'@': 0.9}", "cannot read '@'"),
        ("latency: {retrieve: 60}", "retrieve_p50_ms"),
        ("latency: {retrieve_p50_ms: .nan}", "latency.retrieve_p50_ms: the gate on"),
    ],
)
def test_a_gate_that_cannot_be_meant_is_refused_in_one_line(tmp_path, text, told):
    assert told in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- {measure: R@5, min: 0.9, min: 0.8}", "gates.yaml:1: the key 'min' occurs twice"),
        ("- a: 1\n  a: 2", "gates.yaml:2: the key 'a' occurs twice"),
        ("- {measure: R@5", "gates.yaml:1: is not valid YAML"),
        ("- a\n\t- b", "gates.yaml:2: is not valid YAML"),
        ("- a\n---\n- b", "is not valid YAML: but found another document"),
        ("- !!python/object/apply:os.system ['true']", "gates.yaml:1: "),
        ("- !!set {a, b}", "set is not plain data"),
        ("- {1: 2}", "gates.yaml:1: a key must be text"),
        ("- {? [a] : 2}", "a key must be text"),
        ("&a [*a]", "an alias is inside the value that it refers to"),
        ("- *nowhere", "is not valid YAML: found undefined alias"),
        ("[" * 2000, "nested too deeply"),
        ("- {measure: R@5, min: " + "9" * 5000 + "}", "gates.yaml"),
        ("# nothing but a comment", "is empty"),
        ("", "is empty"),
        (b"\x00\x01\x02", "binary"),
        (b"- \xff\xfe", "is not UTF-8"),
        ("- a\n- \x07", "gates.yaml:2: holds the character 0x07"),
        ("- " + "x" * 1_000_001, "a file of settings has at most 1,000,000"),
    ],
)
def test_a_file_that_is_no_plain_yaml_is_refused_with_its_line(tmp_path, text, told):
    assert told in refused(tmp_path, text)


def test_aliases_are_fine_until_they_stand_for_too_much(tmp_path):
    text = "- &first {measure: R@5, min: 0.9}\n- *first\n- {<<: *first, on: mean}"
    gates = read_gate_file(written(tmp_path, text)).gates
    assert gates == [Gate(R5, min=0.9), Gate(R5, min=0.9), Gate(R5, min=0.9, on="mean")]
    laughs = "a0: &a0 [lol]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
    )
    assert "more than 100,000 entries" in refused(tmp_path, laughs)
    merges = "- &a0 {k0: 1}\n" + "".join(
        f"- &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 12)
    )
    assert "more than 100,000 entries" in refused(tmp_path, merges)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_gate_file(tmp_path / "gates.yaml")
    with pytest.raises(InputError, match="is a folder"):
        read_gate_file(tmp_path)


def test_scores_are_held_against_at_least_one_gate():
    gold = Gold.from_dict({f"q{n}": ["a"] for n in range(40)})
    scores = evaluate(Run.from_dict({f"q{n}": ["a"] for n in range(40)}), gold, ["Hit@1"])
    assert gate(scores, ("Hit@1 >= 0.9",)).verdict == "pass"
    for nothing in ([], (), {"gates": []}, {"generation": {"true_success": 0.8}}):
        with pytest.raises(UsageError, match="gates: holds no gate on retrieval"):
            gate(scores, nothing)
    with pytest.raises(UsageError, match="needs gold"):
        gate(None, "Hit@1 >= 0.9")


KEYS = (
    *("gates", "measure", "min", "max", "on", "by", "values", "strict"),
    *("retrieval", "generation", "latency", "overall", "mrr", "retrieve_p50_ms"),
)
GARBAGE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["R@5 >= 0.9", "RR [a=b] > x", "nDCG(", "R@5", "mean RR > 1e999", 10**400]),
    lambda inside: (
        st.lists(inside, max_size=4)
        | st.dictionaries(
            st.text(max_size=4) | st.sampled_from(KEYS),
            inside,
            max_size=5,
        )
    ),
    max_leaves=12,
)


def refusal(read: Callable[[], object]) -> str | None:
    try:
        read()
    except KaratError as error:
        return str(error)
    return None


@settings(max_examples=400, deadline=None)
@given(GARBAGE)
def test_whatever_a_file_says_is_read_or_refused_in_one_line(data):
    told = refusal(lambda: parse_gates(data, "gates.yaml"))
    assert told is None or (told.startswith("gates.yaml") and "\n" not in told)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab:-[]{}&*!|>'\"#,?%@`\n \t<0.=", max_size=40))
def test_whatever_text_is_given_is_yaml_or_refused_in_one_line(text):
    told = refusal(lambda: parse_yaml(text, "gates.yaml"))
    assert told is None or (told.startswith("gates.yaml") and "\n" not in told)
