"""Where the numbers of a page come from: inputs, conventions, what each system is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from karat.evaluation.sentences import conventions_lines
from karat.evaluation.tables import artifact_table, input_table
from karat.measures.conventions import ANY_GRADE, PROFILES
from karat.pages.page import Grid
from karat.report.html.names import (
    LONGEST,
    LONGEST_SENTENCE,
    Document,
    cut_names,
    short,
    system_names,
)

# What each convention decides, and what its values mean.
_DECIDES = {
    "profile": "which tool's definitions the measures follow",
    "order": "what ranks the hits",
    "ties": "the order of hits with equal scores",
    "repeats": "how a repeated item counts",
    "missing": "how a query without results counts",
    "empty_gold": "how a query without relevant gold counts",
    "level": "what the gold judges",
    "rel": "the lowest grade that is relevant",
    "gain": "what a grade is worth to DCG, nDCG and CG",
    "depth": "how many hits per query count",
    "cover": "how much of a span must be covered for it to be found",
    "k": "the k of measures such as R@k, for queries without their own",
    "interval": "how intervals are made",
    "unit": "what is resampled",
    "ci": "the confidence level of intervals",
    "boot": "resamples per interval",
    "permutations": "permutations per test",
    "seed": "the seed of resampling",
    "versions": "the order of versions that are not dates",
}
_MEANS = {
    ("order", "score"): "by score",
    ("order", "rank"): "by the logged rank",
    ("ties", "id-asc"): "by item id, ascending",
    ("ties", "id-desc"): "by item id, descending",
    ("ties", "given"): "as they stand in the file",
    ("repeats", "keep"): "it keeps its place and earns nothing",
    ("repeats", "drop"): "it is left out, and the ranks below close up",
    ("missing", "zero"): "as the worst value",
    ("missing", "skip"): "not at all, it is left out",
    ("empty_gold", "apart"): "not at all, it is counted separately",
    ("empty_gold", "zero"): "as 0",
    ("level", "item"): "items",
    ("level", "doc"): "documents",
    ("level", "span"): "spans of characters",
    ("gain", "linear"): "the grade",
    ("gain", "exp"): "2^grade - 1",
    ("interval", "gaffke"): "Gaffke's; of differences the inverted randomisation test",
    ("interval", "percentile"): "bootstrap, percentiles",
    ("interval", "none"): "none are made",
    ("unit", "query"): "queries",
    ("unit", "group"): "groups of queries, such as conversations",
}


@dataclass(frozen=True, slots=True)
class Convention:
    """One convention: its name, its value, and what it decides."""

    name: str
    value: str
    about: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """What the section shows; ``cut`` are names too long for a table."""

    tool: str
    inputs: Grid
    conventions: tuple[Convention, ...]
    summary: tuple[str, ...]
    artifacts: Grid
    digests: Grid
    cut: tuple[tuple[str, str], ...]


def provenance_of(document: Document) -> Provenance:
    """Return inputs with their digests, conventions in words, and artifacts of the systems."""
    tool = document["tool"]
    return Provenance(
        tool=f"{tool['name']} {tool['version']}, document version {document['schema_version']}",
        inputs=_inputs(document.get("inputs")),
        conventions=tuple(_conventions(document)),
        summary=tuple(short(line, LONGEST_SENTENCE) for line in conventions_lines(document)),
        artifacts=[[short(cell, 2 * LONGEST) for cell in row] for row in artifact_table(document)],
        digests=_digests(document),
        cut=tuple(cut_names(document)),
    )


def _inputs(inputs: Document | None) -> Grid:
    if inputs is None:
        return []
    grid = [[name, short(file), digest] for name, file, digest in input_table(inputs)]
    for kind in ("gates", "judged"):
        if inputs.get(kind):
            grid.append([kind, short(inputs[kind]["name"]), inputs[kind]["sha256"] or ""])
    if inputs.get("config_digest"):
        grid.append(["configuration", "", inputs["config_digest"]])
    return grid


def _conventions(document: Document) -> list[Convention]:
    """Return the conventions in reading order; a stored document has them sorted."""
    conventions = document["conventions"]
    names = [name for name in dict.fromkeys([*_DECIDES, *conventions]) if name in conventions]
    return [
        Convention(name, _value(document, name, conventions[name]), _about(name, conventions[name]))
        for name in names
    ]


def _value(document: Document, name: str, value: Any) -> str:
    if value is None:
        systems = zip(system_names(document), document["systems"], strict=True)
        values = [
            f"{system}: {system_document['conventions'][name]}"
            for system, system_document in systems
            if name in system_document.get("conventions", {})
        ]
        return ", ".join(values) or "not set"
    if name == "rel" and value == ANY_GRADE:
        return "above 0"
    if isinstance(value, list):
        return short(" < ".join(map(str, value)), LONGEST_SENTENCE)
    return (
        f"{value:g}"
        if isinstance(value, float)
        else short(f"{value:,}" if isinstance(value, int) else str(value))
    )


def _about(name: str, value: Any) -> str:
    decides = _DECIDES.get(name, "")
    if name == "profile" and value in PROFILES:
        return f"{decides}: {PROFILES[value].about}"
    means = _MEANS.get((name, value)) if isinstance(value, str) else None
    return decides if means is None else f"{decides}: {means}"


def _digests(document: Document) -> Grid:
    grid = [["system", "of", "sha256"]]
    for name, system in zip(system_names(document), document["systems"], strict=True):
        for key, what in (("run_digest", "run"), ("config_digest", "settings")):
            if digest := system.get("meta", {}).get(key):
                grid.append([name, what, short(str(digest))])
    return grid if len(grid) > 1 else []
