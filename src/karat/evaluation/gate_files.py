"""Gates read from files: a list, a karat.yaml, a course's ``ci_gates.yaml``, or plain sentences."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from karat.data.columns import Source
from karat.errors import InputError, KaratError, UsageError, unknown
from karat.evaluation.gates import Gate
from karat.evaluation.segments import By, segment_name
from karat.formats.files import open_input
from karat.formats.settings import (
    ConfigModel,
    Place,
    expectations,
    explain_error,
    preview,
    read_yaml,
)
from karat.measure.conventions import Conventions
from karat.measure.names import Measure, parse_measure

# A line, a mapping, several of them, or the name of a gate file.
Gates = str | os.PathLike[str] | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
_SENTENCES = (".txt", ".md")
_FILES = (".yaml", ".yml", ".json", *_SENTENCES)
_NO_GATE = "holds no gate on retrieval; write one such as '- R@5 >= 0.90'"

# The keys of a karat.yaml, which may be beside its gates; karat.project defines them.
CONFIG_KEYS = (
    *("queries", "gold", "corpus", "fields", "judged", "human", "systems", "measures", "profile"),
    *("settings", "by", "gates", "outputs", "primary", "margin", "bounds", "strict_bounds"),
    *("margin_on", "no_regression", "compare", "seed", "runs", "dataset_version", "code_version"),
)


@dataclass(frozen=True, eq=False)
class GateSet:
    """Gates, the names of those not about retrieval, and the file that they were read from."""

    gates: list[Gate]
    left_out: tuple[str, ...]
    source: Source | None = None


def gates_of(gates: Gates, conventions: Conventions | None) -> GateSet:
    """Read gates in any accepted form.

    ``conventions`` are those of the measures, as in ``parse_measure``.
    """
    if isinstance(gates, os.PathLike) or (isinstance(gates, str) and gates.endswith(_FILES)):
        return read_gate_file(os.fspath(gates), conventions=conventions)
    single = isinstance(gates, str) or (isinstance(gates, Mapping) and "measure" in gates)
    several = list(gates) if isinstance(gates, tuple) else gates
    gate_set = GateSet(*parse_gates([gates] if single else several, "gates", conventions))
    if not gate_set.gates:
        raise UsageError(f"gates: {_NO_GATE}")
    return gate_set


def read_gate_file(path: str | Path, *, conventions: Conventions | None = None) -> GateSet:
    """Return the gates of a file, or of standard input for ``-``.

    A .txt or .md file has a sentence in each line; any other file is YAML.
    """
    if str(path).casefold().endswith(_SENTENCES):
        return _read_sentences(path, conventions)
    file = read_yaml(path)
    gates, left_out = parse_gates(file.data, file.place, conventions)
    if not gates:
        raise file.place.error(_NO_GATE)
    return GateSet(gates, left_out, file.source)


def _read_sentences(path: str | Path, conventions: Conventions | None) -> GateSet:
    """Read a text file: one sentence per line; headings, comments and fences are skipped."""
    file = open_input(path)
    gates: list[Gate] = []
    count = 0
    for number, line in enumerate(file.text().splitlines(), 1):
        text = re.sub(r"^[-*]\s+", "", line.strip())
        if text and not text.startswith(("#", "```")) and _HEADING.fullmatch(text) is None:
            count += 1
            gates += _gates(text, Place(file.name, (0,), {(0,): number}), count, conventions)
    if not gates:
        raise InputError(_NO_GATE, where=file.name)
    return GateSet(gates, (), file.source)


def parse_gates(
    data: Any, where: str | Place, conventions: Conventions | None = None
) -> tuple[list[Gate], tuple[str, ...]]:
    """Return the gates in a file's data, and the names of those not about retrieval.

    A file holds a list, a mapping with ``gates``, or ci_gates.yaml's layout. Each gate is a
    mapping with the names of ``Gate``, or a line such as ``R@5 >= 0.90``, ``mean RR > 0.6``,
    ``R@5 [language=pt-BR] >= 0.85`` or a sentence such as ``Recall@5 ≥ 0.90 overall and ≥ 0.85 in
    pt-BR and es-AR segments``.

    >>> gates, _ = parse_gates(["mean RR > 0.6"], "gates.yaml")
    >>> gates[0].min, gates[0].strict, gates[0].on
    (0.6, True, 'mean')
    """
    place = where if isinstance(where, Place) else Place(where)
    if isinstance(data, dict) and "gates" in data:
        for key in data:
            if key in _SECTIONS:
                raise place.at(key).error(
                    f"{key} and gates are two layouts, which cannot be mixed; keep one of them"
                )
            if key not in CONFIG_KEYS:
                raise place.at(key).error(str(unknown("key", str(key), CONFIG_KEYS)))
        place = place.at("gates")
        data = [] if data["gates"] is None else data["gates"]
    if isinstance(data, dict) and len(data) == 1 and _HEADING.fullmatch(str(*data)):
        [(heading, data)] = data.items()
        place = place.at(heading)
    if isinstance(data, dict):
        return _of_sections(data, place, conventions)
    if not isinstance(data, list):
        raise place.error(
            f"a list of gates is expected, not {preview(data)}; write '- R@5 >= 0.90'"
        )
    gates = [_gates(entry, place.at(at), at + 1, conventions) for at, entry in enumerate(data)]
    return [gate for some in gates for gate in some], ()


def _gates(data: Any, place: Place, number: int, conventions: Conventions | None) -> list[Gate]:
    """Return a gate as a mapping or a line, or several as one sentence."""
    where = f"{place}: gate {number}"
    try:
        if isinstance(data, dict):
            forms = [_of_mapping(data, place, number)]
        elif not isinstance(data, str):
            raise UsageError(f"a gate is a mapping or a line of text, not {preview(data)}")
        elif line := _LINE.fullmatch(data.strip()):
            forms = [_of_line(line)]
        else:
            forms = limits_in(data)
        return [
            Gate(parse_measure(form.pop("measure"), conventions=conventions), **form, where=where)
            for form in forms
        ]
    except InputError:
        raise
    except KaratError as error:
        raise place.error(f"gate {number}: {error}") from None


def _limit(sign: str, number: float) -> dict[str, Any]:
    """Return the limit of a sign and a number, by the names of ``Gate``."""
    return {"min" if sign in {">", ">=", "≥"} else "max": number, "strict": sign in {"<", ">"}}


# Gates as mappings.

_Scalar = str | int | float | bool
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Values = _Scalar | Annotated[list[_Scalar], Field(min_length=1)]


class _GateForm(ConfigModel):
    """A gate as a mapping."""

    measure: str = Field(description="a measure such as R@5")
    min: _Finite | None = Field(default=None, description="a number")
    max: _Finite | None = Field(default=None, description="a number")
    strict: bool = Field(default=False, description="true or false")
    on: Literal["interval", "ci_low", "ci_high", "mean"] = Field(
        default="interval", description="interval, ci_low, ci_high or mean"
    )
    by: str | None = Field(
        default=None, description="a column of the queries, or two with a * between them"
    )
    values: _Values | None = Field(
        default=None, description="a value of the column, or a list of them"
    )


_EXPECTED = expectations(_GateForm)


def _of_mapping(data: dict[Any, Any], place: Place, number: int) -> dict[str, Any]:
    """Return a mapping by the names of ``Gate``."""
    if empty := next((key for key, value in data.items() if value is None), None):
        expected = _EXPECTED.get(empty, "a value")
        raise place.at(empty).error(f"gate {number}: {empty} is empty; it must be {expected}")
    try:
        form = _GateForm.model_validate(data).model_dump()
    except ValidationError as error:
        key, problem = explain_error(error, data, _EXPECTED)
        raise place.at(key).error(f"gate {number}: {problem}") from None
    on, by, values = (form[name] for name in ("on", "by", "values"))
    if on == ("ci_high" if form["max"] is None else "ci_low"):
        raise UsageError(
            f"on: {on} does not fit; a min is compared with ci_low, a max with ci_high"
        )
    if values is not None:
        values = tuple(map(segment_name, values if isinstance(values, list) else [values]))
    by = None if by is None else By.parse(by)
    return form | {"on": "mean" if on == "mean" else "interval", "by": by, "values": values}


# Gates as lines: [mean] MEASURE [[COLUMN] or [COLUMN=VALUE]] SIGN NUMBER.

_DECIMAL = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_LINE = re.compile(
    r"(?P<mean>mean\s+)?(?P<measure>[^<>≤≥\[\]]+?)\s*(?:\[(?P<segment>[^\]]*)\])?"
    r"\s*(?P<sign>>=|<=|[<>≤≥])\s*(?P<number>\S+)"
)


def _of_line(line: re.Match[str]) -> dict[str, Any]:
    """Return a line by the names of ``Gate``."""
    # float reads more than people write: 0_5 is 5 to it, and digits of any script are digits.
    if re.fullmatch(rf"{_DECIMAL}(?:[eE][-+]?[0-9]+)?", line["number"]) is None:
        raise UsageError(
            f"{line['number']!r} in {preview(line[0])} is not a number; write it as 0.90"
        )
    form = {"measure": line["measure"], **_limit(line["sign"], float(line["number"]))}
    form["on"] = "mean" if line["mean"] else "interval"
    if line["segment"] is not None:
        column, equals, value = (part.strip() for part in line["segment"].partition("="))
        if not column or (equals and not value):
            raise UsageError(
                f"cannot read the segment in {preview(line[0])}; write [language=pt-BR]"
            )
        form |= {"by": By.parse(column), "values": (value,) if equals else None}
    return form


# ci_gates.yaml: by section and metric, a number or numbers for overall and languages.

# The course's names; its nDCG has exponential gains.
_COURSE_NAMES = {"ndcg": "nDCG(gain='exp')", "distinct_docs": "DistinctDocs", "hit": "Hit"}
_SECTIONS = ("retrieval", "latency", "generation")
_METRIC = re.compile(r"(?P<name>\w+?)(?:_at_(?P<k>\w+?))?(?P<side>_max|_min)?")
_LATENCY = re.compile(r"(?P<stage>\w+)_(?P<part>p50|p90|p95|p99|mean)_ms(?:_max)?")


def _of_sections(
    data: dict[Any, Any], place: Place, conventions: Conventions | None
) -> tuple[list[Gate], tuple[str, ...]]:
    """Return the gates of ``ci_gates.yaml``, all on the interval.

    A key beside ``overall`` is a language, spelled with or without its hyphen. Gates on
    generation are listed and not judged, since they are not about retrieval.
    """
    gates: list[Gate] = []
    left_out: list[str] = []
    for section, metrics in data.items():
        section_place = place.at(section)
        if section in CONFIG_KEYS:
            raise section_place.error(f"{section} needs gates beside it, and there are none")
        if section not in _SECTIONS:
            raise section_place.error(str(unknown("key", str(section), [*CONFIG_KEYS, *_SECTIONS])))
        if not isinstance(metrics, dict):
            raise section_place.error(f"{section} is {preview(metrics)}; it must be a mapping")
        for metric, limits in metrics.items():
            if section == "generation":
                left_out.append(f"{section}.{metric}")
            else:
                gates += _of_metric(
                    section, str(metric), limits, section_place.at(metric), conventions
                )
    return gates, tuple(left_out)


def _of_metric(
    section: str, metric: str, limits: Any, place: Place, conventions: Conventions | None
) -> Iterator[Gate]:
    by_language = limits if isinstance(limits, dict) else {"overall": limits}
    for key, limit in by_language.items():
        overall, key_place = key == "overall", place.at(key)
        name = f"{section}.{metric}" if overall else f"{section}.{metric}.{key}"
        if isinstance(limit, bool) or not isinstance(limit, int | float):
            raise key_place.error(f"{name} is {preview(limit)}; it must be a number")
        try:
            measure, sign = _course_measure(section, metric, conventions)
            yield Gate(
                measure,
                **_limit(sign, float(limit)),
                **_languages(None if overall else (str(key),)),
                where=f"{key_place}: {name}",
            )
        except (KaratError, OverflowError) as error:
            raise key_place.error(f"{name}: {error}") from None


def _course_measure(
    section: str, metric: str, conventions: Conventions | None
) -> tuple[Measure, str]:
    """Return a metric such as ``recall_at_5`` or ``retrieve_p50_ms``, and its limit's sign."""
    match = (_LATENCY if section == "latency" else _METRIC).fullmatch(metric)
    if match is None:
        raise UsageError(
            f"cannot read {metric!r}; write a metric such as recall_at_5, or retrieve_p50_ms for"
            " the latency of a stage"
        )
    if section == "latency":
        return parse_measure(f"latency.{match['stage']}.{match['part']}"), "<="
    cut = "" if match["k"] is None else f"@{match['k']}"
    name = _COURSE_NAMES.get(match["name"].casefold(), match["name"])
    measure = parse_measure(f"{name}{cut}", conventions=conventions)
    side = match["side"] or ("_max" if measure.definition.better == "lower" else "_min")
    return measure, "<=" if side == "_max" else ">="


def _languages(names: tuple[str, ...] | None) -> dict[str, Any]:
    """Return the segments of a gate: languages in any spelling, or values of another column."""
    by = None if names is None else By(("language",))
    return {"by": by, "values": names, "any_spelling": True}


# Gates as sentences.

_SENTENCE_LIMIT = re.compile(
    rf"(?P<subject>[^<>≤≥;]*?)\s*(?P<sign>>=|<=|[<>≤≥])\s*(?P<number>{_DECIMAL})"
    r"\s*(?P<unit>ms\b|%)?\s*\.?"
    r"(?P<where>\s*(?:overall|\((?:avg|average|mean)\)|(?:in|for)\s+(?P<names>.+?)\s+segments?))?"
    r"\s*(?:;|,\s*(?:and\b)?|\band\b|\.?\s*$)\s*",
    re.IGNORECASE,
)
_BETWEEN_NAMES = re.compile(r"\s*,\s*(?:and\s+)?|\s+and\s+", re.IGNORECASE)
_SPOKEN_LATENCY = re.compile(
    r"(?P<part>median|p50|p90|p95|p99|mean|average)?\s*(?P<stage>\w+)?\s*latency\s*"
    r"(?:\(?(?P<after>median|p50|p90|p95|p99|mean|average)\)?)?",
    re.IGNORECASE,
)
_PARTS = {"median": "p50", "average": "mean"}
# Names of stages in sentences, with their names in logs.
_STAGES = {"retrieval": "retrieve", "retriever": "retrieve", "reranker": "rerank"}
_STAGES |= {"reranking": "rerank", "search": "retrieve"}
# A heading such as "Ship if (CI lower bounds):".
_HEADING = re.compile(r"\s*(?:[-*]\s*)?ship\s+if\b[^<>≤≥]*:?\s*", re.IGNORECASE)


def limits_in(sentence: str) -> list[dict[str, Any]]:
    """Return the limits of a sentence, each by the names of ``Gate``.

    A limit without a measure is of the measure before it.

    >>> [(limit["measure"], limit["min"]) for limit in limits_in("P@5 ≥ 0.60 and Hit@5 ≥ 0.9")]
    [('P@5', 0.6), ('Hit@5', 0.9)]
    >>> limits_in("R@5 ≥ 0.85 in pt-BR and es-AR segments")[0]["values"]
    ('pt-BR', 'es-AR')
    """
    text = re.sub("[\u2010-\u2015\u2212]", "-", sentence.replace("\u00a0", " ")).strip()
    limits: list[dict[str, Any]] = []
    at, measure = 0, ""
    while at < len(text) or not limits:
        match = _SENTENCE_LIMIT.match(text, at)
        if match is None or match.end() == at:
            raise _unreadable(sentence)
        at = match.end()
        measure = _measure(match["subject"], measure, in_ms=match["unit"] == "ms")
        if not measure:
            raise _unreadable(sentence)
        names, percent = match["names"], match["unit"] == "%"
        segments = None if names is None else tuple(_BETWEEN_NAMES.split(_without_the(names)))
        number = float(match["number"]) / (100 if percent else 1)
        limit = {"measure": measure, **_limit(match["sign"], number)}
        limits.append(limit | _languages(segments))
    return limits


def _measure(subject: str, before: str, *, in_ms: bool) -> str:
    """Return the measure for its name in a sentence."""
    subject = _without_the(subject)
    if not subject:
        return before
    latency = _SPOKEN_LATENCY.fullmatch(subject)
    if latency is not None:
        part = (latency["part"] or latency["after"] or "median").casefold()
        stage, part = latency["stage"] or "total", _PARTS.get(part, part)
    elif in_ms and before.startswith("latency.") and re.fullmatch(r"\w+", subject):
        stage, part = subject, before.rpartition(".")[2]
    else:
        # Names of measures have no hyphen.
        head, at, cut = subject.partition("@")
        return subject if "(" in head else head.replace("-", "") + at + cut
    return f"latency.{_STAGES.get(stage.casefold(), stage.casefold())}.{part}"


def _without_the(text: str) -> str:
    return re.sub(r"^the\s+", "", text.strip(), flags=re.IGNORECASE)


def _unreadable(sentence: str) -> UsageError:
    return UsageError(
        f"cannot read {sentence.strip()!r}; write a gate such as 'R@5 >= 0.90', 'Recall@5 ≥ 0.90"
        " overall and ≥ 0.85 in pt-BR segments' or 'p95 latency ≤ 800 ms'"
    )
