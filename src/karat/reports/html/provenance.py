"""Where the numbers of a page come from: inputs, conventions, what each system is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from karat.measures.conventions import ANY_GRADE, PROFILES
from karat.reports.grids import Grid, artifact_grid, input_grid
from karat.reports.html.names import (
    LONGEST,
    LONGEST_SENTENCE,
    Document,
    cut_names,
    short,
    system_names,
)
from karat.reports.notes import conventions_lines

# What each convention decides; what a value of it means, where it is a word.
_DECIDES = {
    "profile": "whose reading of the measures it is",
    "order": "what ranks the hits",
    "ties": "the order of hits with equal scores",
    "repeats": "what becomes of an item that a list returns again",
    "missing": "what a query without a result counts",
    "empty_gold": "what a query without relevant gold counts",
    "level": "what the gold judges",
    "rel": "from which grade on an item is relevant",
    "gain": "what a grade is worth to DCG, nDCG and CG",
    "depth": "how many hits of each query are looked at",
    "cover": "how much of a span must be covered for it to be found",
    "k": "what the letter k in a measure means for a query without its own",
    "interval": "how intervals are made",
    "unit": "what is resampled",
    "ci": "how sure an interval is to be",
    "boot": "how many resamples an interval takes",
    "permutations": "how many permutations a test takes",
    "seed": "what resampling starts from",
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
    ("missing", "zero"): "the worst value",
    ("missing", "skip"): "nothing, it is left out",
    ("empty_gold", "apart"): "nothing, it is counted apart",
    ("empty_gold", "zero"): "0",
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
    """One decision: its name, its value, and what that decides."""

    name: str
    value: str
    about: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """What the section shows; ``cut`` are the names that are too long for any table."""

    tool: str
    inputs: Grid
    conventions: tuple[Convention, ...]
    told: tuple[str, ...]
    artifacts: Grid
    digests: Grid
    cut: tuple[tuple[str, str], ...]


def provenance_of(document: Document) -> Provenance:
    """Inputs with the digest of their bytes, the conventions in words, the systems' artifacts."""
    tool = document["tool"]
    return Provenance(
        tool=f"{tool['name']} {tool['version']}, document version {document['schema_version']}",
        inputs=_inputs(document.get("inputs")),
        conventions=tuple(_conventions(document)),
        told=tuple(short(line, LONGEST_SENTENCE) for line in conventions_lines(document)),
        artifacts=[[short(cell, 2 * LONGEST) for cell in row] for row in artifact_grid(document)],
        digests=_digests(document),
        cut=tuple(cut_names(document)),
    )


def _inputs(inputs: Document | None) -> Grid:
    if inputs is None:
        return []
    grid = [[name, short(file), digest] for name, file, digest in input_grid(inputs)]
    for kind in ("gates", "judged"):
        if inputs.get(kind):
            grid.append([kind, short(inputs[kind]["name"]), inputs[kind]["sha256"] or ""])
    if inputs.get("config_digest"):
        grid.append(["configuration", "", inputs["config_digest"]])
    return grid


def _conventions(document: Document) -> list[Convention]:
    """In the order in which one reads them; a stored document has them by the alphabet."""
    own = document["conventions"]
    names = [name for name in dict.fromkeys([*_DECIDES, *own]) if name in own]
    return [
        Convention(name, _value(document, name, own[name]), _about(name, own[name]))
        for name in names
    ]


def _value(document: Document, name: str, value: Any) -> str:
    if value is None:
        own = zip(system_names(document), document["systems"], strict=True)
        each = [
            f"{system}: {one['conventions'][name]}"
            for system, one in own
            if name in one.get("conventions", {})
        ]
        return ", ".join(each) or "not set"
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
    """What is decided, and how."""
    decides = _DECIDES.get(name, "")
    if name == "profile" and value in PROFILES:
        return f"{decides}: {PROFILES[value].about}"
    means = _MEANS.get((name, value)) if isinstance(value, str) else None
    return decides if means is None else f"{decides}: {means}"


def _digests(document: Document) -> Grid:
    """By what each log and the settings behind it can be told."""
    grid = [["system", "of", "sha256"]]
    for name, system in zip(system_names(document), document["systems"], strict=True):
        for key, of in (("run_digest", "run"), ("config_digest", "settings")):
            if digest := system.get("meta", {}).get(key):
                grid.append([name, of, short(str(digest))])
    return grid if len(grid) > 1 else []
