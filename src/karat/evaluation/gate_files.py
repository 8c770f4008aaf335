"""Gates read from files: a list, a karat.yaml, a course's ``ci_gates.yaml``, or plain sentences."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from karat.data.columns import Source
from karat.errors import InputError, KaratError, UsageError, unknown
from karat.evaluation.gates import Gate
from karat.evaluation.segments import By
from karat.formats.files import open_input
from karat.formats.settings import Place, explain_error, preview, read_yaml
from karat.measures.conventions import Conventions
from karat.measures.names import Measure, parse_measure

Finite = Annotated[float, Field(allow_inf_nan=False)]


# A line, a mapping, several of them, or the name of a gate file.
Gates = str | os.PathLike[str] | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
_YAML = (".yaml", ".yml", ".json")
_FILES = (*_YAML, ".txt", ".md")
_NO_GATE = "holds no gate on retrieval; write one such as '- R@5 >= 0.90'"


@dataclass(frozen=True, eq=False)
class GateSet:
    """Gates, the names of those not about retrieval, and the file that they were read from."""

    gates: list[Gate]
    left_out: tuple[str, ...]
    source: Source | None


def gates_of(gates: Gates, conventions: Conventions | None) -> GateSet:
    """Read gates in any of the forms that a caller may give them."""
    if isinstance(gates, os.PathLike) or (isinstance(gates, str) and gates.endswith(_FILES)):
        return read_gate_file(os.fspath(gates), conventions=conventions)
    single = isinstance(gates, str) or (isinstance(gates, Mapping) and "measure" in gates)
    several = list(gates) if isinstance(gates, tuple) else gates
    data = [gates] if single else several
    found, left_out = parse_gates(data, "gates", conventions=conventions)
    if not found:
        raise UsageError(f"gates: {_NO_GATE}")
    return GateSet(found, left_out, None)


def read_gates(
    path: str | Path, *, conventions: Conventions | None = None
) -> tuple[list[Gate], tuple[str, ...]]:
    """Return the gates of a file, and the names of those in it that are not about retrieval.

    ``conventions`` are those of the measures, as in ``parse_measure``.
    """
    file = read_gate_file(path, conventions=conventions)
    return file.gates, file.left_out


def read_gate_file(path: str | Path, *, conventions: Conventions | None = None) -> GateSet:
    """Return a file of gates, or standard input for ``-``, with where it came from.

    YAML, or a text file with a sentence in each line.
    """
    named_yaml = str(path).casefold().endswith(_YAML)
    try:
        file = read_yaml(path)
    except InputError:
        if named_yaml or not _is_text(path):
            raise
        return _read_sentences(path, conventions)
    if not named_yaml and _is_text(path) and not isinstance(file.data, list | dict):
        return _read_sentences(path, conventions)
    gates, left_out = parse_gates(file.data, file.place, conventions=conventions)
    if not gates:
        raise file.place.error(_NO_GATE)
    return GateSet(gates, left_out, file.source)


def _is_text(path: str | Path) -> bool:
    """Return whether a file can be read again, as lines."""
    return str(path) != "-" and Path(path).is_file()


def _read_sentences(path: str | Path, conventions: Conventions | None) -> GateSet:
    """The gates of a text file: one sentence a line; headings, comments and fences are passed."""
    file = open_input(path)
    lines = [re.sub(r"^[-*]\s+", "", line.strip()) for line in file.text().splitlines()]
    sentences = {
        number: text
        for number, text in enumerate(lines, 1)
        if text and not text.startswith(("#", "```")) and _HEADING.fullmatch(text) is None
    }
    gates = [
        gate
        for at, (number, text) in enumerate(sentences.items(), 1)
        for gate in _gates(text, Place(file.name, (0,), {(0,): number}), at, conventions)
    ]
    if not gates:
        raise InputError(_NO_GATE, where=file.name)
    return GateSet(gates, (), file.source)


def parse_gates(
    data: Any, where: str | Place, *, conventions: Conventions | None = None
) -> tuple[list[Gate], tuple[str, ...]]:
    """Gates from what a file says: a list, a mapping with ``gates``, or ci_gates.yaml's layout.

    Each gate is a mapping with the names of ``Gate``, or a line such as ``R@5 >= 0.90``,
    ``mean RR > 0.6``, ``R@5 [language=pt-BR] >= 0.85`` or a sentence such as ``Recall@5 ≥ 0.90
    overall and ≥ 0.85 in pt-BR and es-AR segments``.

    >>> gates, _ = parse_gates(["mean RR > 0.6"], "gates.yaml")
    >>> gates[0].min, gates[0].strict, gates[0].on
    (0.6, True, 'mean')
    """
    place = where if isinstance(where, Place) else Place(where)
    if isinstance(data, dict) and "gates" in data:
        _check_beside(data, place)
        place = place.at("gates")
        data = [] if data["gates"] is None else data["gates"]
    if isinstance(data, dict) and len(data) == 1 and _HEADING.fullmatch(str(*data)):
        [(heading, data)] = data.items()
        place = place.at(heading)
    if isinstance(data, list):
        found = [_gates(one, place.at(at), at + 1, conventions) for at, one in enumerate(data)]
        return [gate for some in found for gate in some], ()
    if not isinstance(data, dict):
        raise place.error(
            f"a list of gates is expected, not {preview(data)}; write '- R@5 >= 0.90'"
        )
    return _of_sections(data, place, conventions)


# What a karat.yaml may hold, in the words of messages.
CONFIG_KEYS = {
    "queries": "a file name",
    "gold": "a file name",
    "corpus": "a file name",
    "fields": "a mapping of fields to columns of yours, such as {gold: gold_ids}",
    "judged": "a file name",
    "human": "a file name, or a list of file names",
    "systems": "a mapping of names to systems, such as bm25: {retriever: bm25}",
    "measures": "a measure or a list of measures, such as [R@5, nDCG@10]",
    "profile": "the name of a profile",
    "settings": "a mapping of conventions, such as {ties: given}",
    "by": "a column of the queries, or a list of columns",
    "gates": "a list of gates",
    "outputs": "a file name, or a list of file names",
    "primary": "a measure",
    "margin": "a share from 0 to 1, such as 0.02",
    "bounds": "true or false: whether to tell what unjudged items could change",
    "strict_bounds": "true or false: whether to decide only what unjudged items cannot change",
    "margin_on": "interval or mean: what must lie beyond the margin",
    "no_regression": "primary or all: the measures that may not get worse",
    "compare": "false to hold the systems against the gates one by one, without a baseline",
    "seed": "a whole number, 0 or more",
    "runs": "the folder for the run logs, such as runs",
    "dataset_version": "the version of the eval set, as text",
    "code_version": "the version of the code that is evaluated, as text",
}

Text = Annotated[str, Field(pattern=r"\S")]
OneOrMany = Annotated[
    list[Text], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)
]


class ConfigForm(BaseModel):
    """What a karat.yaml may hold beside its gates, by type; ``karat.project`` reads it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    queries: Text | None = None
    gold: Text | None = None
    corpus: Text | None = None
    fields: dict[str, Text] = Field(default_factory=dict)
    judged: Text | None = None
    human: OneOrMany = Field(default_factory=list)
    systems: dict[str, Any] = Field(default_factory=dict)
    measures: OneOrMany | None = None
    profile: str = "karat"
    settings: dict[str, Any] = Field(default_factory=dict)
    by: OneOrMany = Field(default_factory=list)
    outputs: OneOrMany = Field(default_factory=list)
    primary: str | None = None
    margin: Annotated[float, Field(ge=0, le=1)] | None = None
    margin_on: Literal["interval", "mean"] = "interval"
    no_regression: Literal["primary", "all"] | None = None
    compare: bool = True
    bounds: bool | None = None
    strict_bounds: bool = False
    seed: Annotated[int, Field(ge=0)] | None = None
    runs: Text = "runs"
    dataset_version: Text | None = None
    code_version: Text | None = None


def _check_beside(data: dict[Any, Any], place: Place) -> None:
    """What stands beside ``gates`` must be what a karat.yaml holds."""
    for key in data:
        if key in _SECTIONS:
            raise place.at(key).error(
                f"{key} and gates are two layouts, which cannot be mixed; keep one of them"
            )
    beside = {key: data[key] for key in data if key != "gates" and data[key] is not None}
    try:
        ConfigForm.model_validate(beside)
    except ValidationError as error:
        key, what = explain_error(error, beside, CONFIG_KEYS)
        raise place.at(key).error(what) from None


Scalar = str | int | float | bool


class _Form(BaseModel):
    """A gate as a mapping."""

    model_config = ConfigDict(extra="forbid", strict=True)

    measure: str
    min: Finite | None = None
    max: Finite | None = None
    strict: bool = False
    on: Literal["interval", "ci_low", "ci_high", "mean"] = "interval"
    by: str | None = None
    values: Scalar | Annotated[list[Scalar], Field(min_length=1)] | None = None


_EXPECTED = {
    "measure": "a measure such as R@5",
    "min": "a number",
    "max": "a number",
    "strict": "true or false",
    "on": "interval, ci_low, ci_high or mean",
    "by": "a column of the queries, or two with a * between them",
    "values": "a value of the column, or a list of them",
}

_LINE = re.compile(
    r"(?P<mean>mean\s+)?(?P<measure>[^<>≤≥\[\]]+?)\s*(?:\[(?P<segment>[^\]]*)\])?"
    r"\s*(?P<sign>>=|<=|[<>≤≥])\s*(?P<number>\S+)"
)
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def _gates(data: Any, place: Place, number: int, conventions: Conventions | None) -> list[Gate]:
    """Return a gate as a mapping or a line, or several as one sentence."""
    if not isinstance(data, str) or _LINE.fullmatch(data.strip()):
        return [_gate(data, place, number, conventions)]
    where = f"{place}: gate {number}"
    try:
        return [_from_limit(limit, conventions, where) for limit in limits_in(data)]
    except KaratError as error:
        raise place.error(f"gate {number}: {error}") from None


def _from_limit(limit: SentenceLimit, conventions: Conventions | None, where: str) -> Gate:
    """A limit of a sentence; its segments are those of a language, or of any other column."""
    return Gate(
        parse_measure(limit.measure, conventions=conventions),
        min=None if limit.upper else limit.number,
        max=limit.number if limit.upper else None,
        strict=limit.strict,
        by=None if limit.segments is None else By(("language",)),
        values=limit.segments,
        any_spelling=True,
        any_column=limit.segments is not None,
        where=where,
    )


def _gate(data: Any, place: Place, number: int, conventions: Conventions | None) -> Gate:
    try:
        form = _from_line(data) if isinstance(data, str) else data
        if not isinstance(form, dict):
            raise UsageError(f"a gate is a mapping or a line of text, not {preview(data)}")
        for key in _EXPECTED:
            if key in form and form[key] is None:
                what = f"gate {number}: {key} is nothing; it must be {_EXPECTED[key]}"
                raise place.at(key).error(what)
        return _from_form(form, conventions, f"{place}: gate {number}")
    except ValidationError as error:
        key, what = explain_error(error, form, _EXPECTED)
        raise place.at(key).error(f"gate {number}: {what}") from None
    except InputError:
        raise
    except KaratError as error:
        raise place.error(f"gate {number}: {error}") from None


def _from_form(data: dict[Any, Any], conventions: Conventions | None, where: str) -> Gate:
    form = _Form.model_validate(data)
    other = "ci_low" if form.max is not None else "ci_high"
    if form.on == other:
        raise UsageError(f"on: {other} does not fit; a min is held against ci_low, a max ci_high")
    values = form.values if isinstance(form.values, list) else [form.values]
    return Gate(
        parse_measure(form.measure, conventions=conventions),
        min=form.min,
        max=form.max,
        strict=form.strict,
        on="mean" if form.on == "mean" else "interval",
        by=None if form.by is None else By.parse(form.by),
        values=None if form.values is None else tuple(_as_segment(one) for one in values),
        where=where,
    )


def _as_segment(value: Scalar | None) -> str:
    """Return a value as the segments of a report are called."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _from_line(text: str) -> dict[str, Any]:
    """Return a gate as a line: ``[mean] MEASURE [[COLUMN] or [COLUMN=VALUE]] SIGN NUMBER``."""
    match = _LINE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"cannot read {preview(text)}; write a gate such as 'R@5 >= 0.90'")
    # float reads more than people write: 0_5 is 5 to it, and digits of any script are digits.
    if _NUMBER.fullmatch(match["number"]) is None:
        raise UsageError(
            f"{match['number']!r} in {preview(text)} is not a number; write it as 0.90"
        )
    column, equals, value = (match["segment"] or "").partition("=")
    if match["segment"] is not None and (not column.strip() or (equals and not value.strip())):
        raise UsageError(f"cannot read the segment in {preview(text)}; write [language=pt-BR]")
    segment = {"by": column.strip(), "values": value.strip()}
    return {
        "measure": match["measure"],
        "min" if match["sign"] in {">", ">=", "≥"} else "max": float(match["number"]),
        "strict": match["sign"] in {"<", ">"},
        "on": "mean" if match["mean"] else "interval",
        **{key: text for key, text in segment.items() if text},
    }


# The course's names; its nDCG has exponential gains.
_COURSE_NAMES = {
    "ndcg": "nDCG(gain='exp')",
    "distinct_docs": "DistinctDocs",
    "hit": "Hit",
}
_SECTIONS = ("retrieval", "latency", "generation")
_METRIC = re.compile(r"(?P<name>\w+?)(?:_at_(?P<k>\w+?))?(?P<side>_max|_min)?")
_LATENCY = re.compile(r"(?P<stage>\w+)_(?P<part>p50|p90|p95|p99|mean)_ms(?:_max)?")


def _of_sections(
    data: dict[Any, Any], place: Place, conventions: Conventions | None
) -> tuple[list[Gate], tuple[str, ...]]:
    """``ci_gates.yaml``: by section and metric, a number or numbers for overall and languages.

    All on the interval. A key beside ``overall`` is a language, spelled with or without its
    hyphen. Generation is not retrieval, so what it asks for is listed and not judged.
    """
    gates: list[Gate] = []
    left_out: list[str] = []
    for section, metrics in data.items():
        if section in CONFIG_KEYS:
            raise place.at(section).error(f"{section} needs gates beside it, and there are none")
        if section not in _SECTIONS:
            raise place.at(section).error(
                str(unknown("key", str(section), [*CONFIG_KEYS, *_SECTIONS]))
            )
        if not isinstance(metrics, dict):
            raise place.at(section).error(f"{section} is {preview(metrics)}; it must be a mapping")
        for metric, limits in metrics.items():
            if section == "generation":
                left_out.append(f"{section}.{metric}")
            else:
                gates += _of_metric(
                    section, str(metric), limits, place.at(section, metric), conventions
                )
    return gates, tuple(left_out)


def _of_metric(
    section: str, metric: str, limits: Any, place: Place, conventions: Conventions | None
) -> Iterator[Gate]:
    path = f"{section}.{metric}"
    try:
        measure, upper = (_latency if section == "latency" else _metric)(metric, conventions)
    except KaratError as error:
        raise place.error(f"{path}: {error}") from None
    for key, limit in (limits if isinstance(limits, dict) else {"overall": limits}).items():
        here = place.at(key)
        name = path if key == "overall" else f"{path}.{key}"
        if isinstance(limit, bool) or not isinstance(limit, int | float):
            raise here.error(f"{name} is {preview(limit)}; it must be a number")
        try:
            yield Gate(
                measure,
                min=None if upper else float(limit),
                max=float(limit) if upper else None,
                by=None if key == "overall" else By(("language",)),
                values=None if key == "overall" else (str(key),),
                any_spelling=True,
                where=f"{here}: {name}",
            )
        except (KaratError, OverflowError) as error:
            raise here.error(f"{name}: {error}") from None


def _metric(text: str, conventions: Conventions | None) -> tuple[Measure, bool]:
    """Return a metric such as ``recall_at_5``, and whether its limit is one from above."""
    match = _METRIC.fullmatch(text)
    if match is None:
        raise UsageError(f"cannot read {text!r}; write a metric such as recall_at_5")
    cut = "" if match["k"] is None else f"@{match['k']}"
    name = _COURSE_NAMES.get(match["name"].casefold(), match["name"])
    measure = parse_measure(f"{name}{cut}", conventions=conventions)
    upper = {"_max": True, "_min": False, None: measure.definition.better == "lower"}
    return measure, upper[match["side"]]


def _latency(text: str, conventions: Conventions | None) -> tuple[Measure, bool]:
    match = _LATENCY.fullmatch(text)
    if match is None:
        raise UsageError(
            "a latency is named by stage and percentile and is in milliseconds, such as"
            " retrieve_p50_ms"
        )
    return parse_measure(f"latency.{match['stage']}.{match['part']}"), True


# Gates as sentences.

_DECIMAL = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_LIMIT = re.compile(
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
_SECONDS = re.compile(rf"(?P<number>{_DECIMAL})\s*(?:s|sec|secs|seconds?)\b", re.IGNORECASE)
_PARTS = {"median": "p50", "average": "mean"}
# What people call the stages that a log calls otherwise.
_STAGES = {"retrieval": "retrieve", "retriever": "retrieve", "reranker": "rerank"}
_STAGES |= {"reranking": "rerank", "search": "retrieve"}
# A heading such as "Ship if (CI lower bounds):".
_HEADING = re.compile(r"\s*(?:[-*]\s*)?ship\s+if\b[^<>≤≥]*:?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SentenceLimit:
    """One limit of a sentence: a measure's name, its sign and number, and where it holds.

    ``segments`` is None for all queries.
    """

    measure: str
    sign: str
    number: float
    segments: tuple[str, ...] | None = None

    @property
    def upper(self) -> bool:
        """Return whether it is a limit from above."""
        return self.sign in {"<", "<=", "≤"}

    @property
    def strict(self) -> bool:
        """Return whether the number itself does not pass."""
        return self.sign in {"<", ">"}


def limits_in(sentence: str) -> list[SentenceLimit]:
    """Return the limits of a sentence; one without a measure is of the measure before it.

    >>> [(one.measure, one.number) for one in limits_in("P@5 ≥ 0.60 and Hit@5 ≥ 0.9")]
    [('P@5', 0.6), ('Hit@5', 0.9)]
    >>> limits_in("R@5 ≥ 0.85 in pt-BR and es-AR segments")[0].segments
    ('pt-BR', 'es-AR')
    """
    text = re.sub("[\u2010-\u2015\u2212]", "-", sentence.replace("\u00a0", " ")).strip()
    found = list(_limits(text, sentence))
    if not found:
        raise _unreadable(sentence)
    return found


def _limits(text: str, sentence: str) -> Iterator[SentenceLimit]:
    at, measure = 0, ""
    while at < len(text):
        match = _LIMIT.match(text, at)
        if match is None or match.end() == at:
            raise _unreadable(sentence)
        at = match.end()
        measure = _measure(match["subject"].strip(), measure, in_ms=match["unit"] == "ms")
        if not measure:
            raise _unreadable(sentence)
        names = match["names"]
        segments = None if names is None else tuple(_BETWEEN_NAMES.split(_without_the(names)))
        share = 100 if match["unit"] == "%" else 1
        yield SentenceLimit(measure, match["sign"], float(match["number"]) / share, segments)


def _measure(subject: str, before: str, *, in_ms: bool) -> str:
    """Return the name of a measure from what a sentence calls it."""
    subject = _without_the(subject)
    if not subject:
        return before
    latency = _SPOKEN_LATENCY.fullmatch(subject)
    if latency is not None:
        part = (latency["part"] or latency["after"] or "median").casefold()
        return _path(latency["stage"] or "total", _PARTS.get(part, part))
    if in_ms and before.startswith("latency.") and re.fullmatch(r"\w+", subject):
        return _path(subject, before.rpartition(".")[2])
    # Names of measures have no hyphen.
    head, at, cut = subject.partition("@")
    return head.replace("-", "") + at + cut if "(" not in head else subject


def _path(stage: str, part: str) -> str:
    name = stage.casefold()
    return f"latency.{_STAGES.get(name, name)}.{part}"


def _without_the(text: str) -> str:
    return re.sub(r"^the\s+", "", text.strip(), flags=re.IGNORECASE)


def _unreadable(sentence: str) -> UsageError:
    seconds = _SECONDS.search(sentence)
    if seconds is not None and "latency" in sentence.casefold():
        return UsageError(
            f"cannot read {sentence.strip()!r}; latencies are in milliseconds: write"
            f" {float(seconds['number']) * 1000:g} ms"
        )
    return UsageError(
        f"cannot read {sentence.strip()!r}; write a gate such as 'R@5 >= 0.90', or 'Recall@5 ≥"
        " 0.90 overall and ≥ 0.85 in pt-BR segments'"
    )
