"""The first section of a page: the verdict, why, what to fix next, and every gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from karat.reports.figures import PART, figure, gate_name, held, several
from karat.reports.headlines import Tone, headlines, unreachable
from karat.reports.html.bars import Bar, scale_of
from karat.reports.html.links import Piece, pieces_of, query_links
from karat.reports.html.names import (
    LONGEST,
    LONGEST_SENTENCE,
    Document,
    baseline_name,
    short,
    shown_names,
)
from karat.reports.html.signs import changed, signed
from karat.reports.notes import blocking_lines, left_out_lines

# What a reader takes in at a glance; the other reasons open at a click.
MOST_REASONS = 6
# More verdicts than these are told in a table, and first of all counted.
MOST_BANNERS = 3
# More rows than these scroll in a frame of their own.
TALL = 30
_WIDTH = 170.0

_TONES: Mapping[str, Tone] = {"pass": "good", "fail": "bad"}
_ENDS = {"ci_low": "lower bound", "ci_high": "upper bound", "mean": "value"}
_WORDS = ("better", "worse", "same", "unclear")
_ORDER = ("fail", "unmeasurable", "skipped", "pass")


@dataclass(frozen=True, slots=True)
class Banner:
    """A verdict in one word, what it is about, and the sentences behind it."""

    word: str
    about: str
    tone: str
    because: tuple[str, ...]
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GateRow:
    """A gate as figures: what was measured, and how far it is from the limit."""

    name: str
    verdict: str
    tone: str
    mean: str
    ends: str
    bar: Bar | None
    margin: str
    against: str
    n: str
    needed: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the section shows; ``gates`` are grouped by the system that they judge.

    Many comparisons are ``pairs`` of a table below their ``tally``; few are banners.
    """

    title: str
    about: str
    banners: tuple[Banner, ...]
    tally: str
    pairs: tuple[Banner, ...]
    findings: tuple[tuple[Piece, ...], ...]
    findings_of: str
    gates: tuple[tuple[str, tuple[GateRow, ...]], ...]
    notes: tuple[str, ...]
    tall: bool


def verdict_of(document: Document, head: Document | None = None) -> Verdict:
    """The verdict on gates and comparisons; a report without either says that it has none."""
    gates = document.get("gates", [])
    lines = [*blocking_lines(document), *left_out_lines(document)]
    links = query_links(document, head)
    banners, pairs = _banners(document)
    return Verdict(
        title=_title(document),
        about=_about(document),
        banners=tuple(banners),
        tally=_tally(pairs),
        pairs=tuple(pairs),
        findings=tuple(pieces_of(told, links) for told in document.get("findings") or ()),
        findings_of=_findings_of(document),
        gates=_grouped(document, gates),
        notes=tuple(short(line, LONGEST_SENTENCE) for line in lines),
        tall=len(gates) > TALL,
    )


def _title(document: Document) -> str:
    """Which systems the page is about."""
    shown = shown_names(document)
    baseline = baseline_name(document)
    rows = [row for row in document.get("comparisons", ()) if row["baseline"] == baseline]
    full = dict.fromkeys(row["system"] for row in rows) if rows else shown
    names = [shown.get(name, short(name)) for name in full]
    told = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return told if baseline is None else f"{told} against {shown.get(baseline, short(baseline))}"


def _about(document: Document) -> str:
    """How much was measured, on what."""
    inputs = document.get("inputs", {})
    parts = [several(document["counts"]["queries"], "query", "queries")]
    if inputs.get("gold"):
        parts.append(f"gold {short(inputs['gold']['name'])}")
    if inputs.get("dataset_version") is not None:
        parts.append(f"dataset {short(str(inputs['dataset_version']))}")
    parts.append(f"profile {document['conventions']['profile']}")
    return " · ".join(parts)


def _findings_of(document: Document) -> str:
    """The system that the findings are of, where there is more than one."""
    name = document.get("findings_of")
    if name is None or len(document["systems"]) < 2:
        return ""
    return shown_names(document).get(name, short(name))


def _banners(document: Document) -> tuple[list[Banner], list[Banner]]:
    """The verdicts one by one, and the comparisons apart where they would be too many."""
    told = [
        (
            _banner(one.word, one.about, one.tone, _reasons(document, one.because, pair=one.pair)),
            one.pair,
        )
        for one in headlines(document)
    ]
    many = len(told) > MOST_BANNERS
    pairs = [one for one, pair in told if pair and many]
    return _first(document, [one for one, pair in told if not (pair and many)], pairs), pairs


def _tally(pairs: Sequence[Banner]) -> str:
    """How many comparisons went how.

    >>> _tally([Banner(word, "", "", ()) for word in ("WORSE", "UNCLEAR", "UNCLEAR")])
    '1 worse, 2 unclear'
    """
    words = [one.word.lower() for one in pairs]
    order = [word for word in dict.fromkeys([*_WORDS, *words]) if word in words]
    return ", ".join(f"{words.count(word):,} {word}" for word in order)


def _first(document: Document, found: list[Banner], pairs: Sequence[Banner]) -> list[Banner]:
    """The banners, and what must be said before them or instead of them."""
    partial = [short(one["name"]) for one in document["systems"] if one.get("partial")]
    if partial:
        told = "Too many calls failed for any figure of theirs to be judged by."
        found.insert(0, _banner("CANNOT TELL", f"partial: {', '.join(partial)}", "unsure", (told,)))
    if dead := [short(one["name"]) for one in document["systems"] if _unanswered(one)]:
        told = "Not one of their queries could be scored: every figure of theirs is a stand-in."
        found.insert(
            0, _banner("CANNOT TELL", f"nothing scored: {', '.join(dead)}", "bad", (told,))
        )
    if not found and not pairs:
        told = "There are neither gates nor a comparison, so the figures below are not judged."
        found = [_banner("MEASURED", "no verdict", "plain", (told,))]
    return found


def _unanswered(system: Document) -> bool:
    """Whether a system answered no query that was asked, or none that could be scored."""
    counts = system.get("counts") or {}
    if not counts.get("queries"):
        return False
    failed = counts["missing"] + counts["failed_calls"] >= counts["queries"]
    return failed or not any(one["n"] for one in system["measures"].values())


def _reasons(document: Document, because: tuple[str, ...], *, pair: bool) -> tuple[str, ...]:
    """The sentences behind a verdict; gates that nobody can pass come first."""
    never = () if pair else tuple(f"out of reach: {told}" for told in unreachable(document))
    return (*never, *because)


def _banner(word: str, about: str, tone: str, because: tuple[str, ...]) -> Banner:
    told = tuple(signed(short(sentence, LONGEST_SENTENCE)) for sentence in because)
    about = short(about, 2 * LONGEST)
    return Banner(word, about, tone, told[:MOST_REASONS], told[MOST_REASONS:])


def _grouped(
    document: Document, gates: Sequence[Mapping[str, Any]]
) -> tuple[tuple[str, tuple[GateRow, ...]], ...]:
    """The gates by system, those that stop a change first; one system alone is not named."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for gate in sorted(gates, key=lambda one: _ORDER.index(one["verdict"])):
        groups.setdefault(gate["system"], []).append(gate)
    order = [one["name"] for one in document["systems"] if one["name"] in groups]
    order += [name for name in groups if name not in order]
    return tuple(
        (short(name) if len(groups) > 1 else "", tuple(map(_gate_row, groups[name])))
        for name in order
    )


def _gate_row(gate: Mapping[str, Any]) -> GateRow:
    limit = limit_of(gate)
    value = gate["value"]
    mean, _, ends = held(gate).partition(PART)
    word = {"unmeasurable": "cannot tell"}.get(gate["verdict"], gate["verdict"])
    return GateRow(
        name=short(gate_name(gate), 2 * LONGEST),
        verdict=word,
        tone=_TONES.get(gate["verdict"], "unsure"),
        mean=mean,
        ends=ends,
        bar=None if gate["mean"] is None else _gate_bar(gate, limit),
        margin=changed(None if value is None else value - limit),
        against=_ENDS[gate["on"]] if value is not None else "",
        n=f"{gate['n']:,}",
        needed=figure(gate["needed"]),
    )


def limit_of(gate: Mapping[str, Any]) -> float:
    """The number that a gate is about."""
    return float(gate["max"] if gate.get("min") is None else gate["min"])


def _gate_bar(gate: Mapping[str, Any], limit: float) -> Bar:
    """What was measured, on the scale that its limit divides."""
    upper = gate.get("min") is None
    scale = scale_of([gate["mean"], limit, gate["ceiling"], *(gate["ci"] or ())], _WIDTH)
    passing = (scale.low, limit) if upper else (limit, scale.high)
    marks = [
        *scale.stretch("passing", passing),
        *scale.track(),
        *scale.point("limit", limit),
        *scale.stretch("interval", gate["ci"]),
        *scale.point("value", gate["mean"]),
    ]
    bound = f", {_ENDS[gate['on']]} {figure(gate['value'])}" if gate["on"] != "mean" else ""
    side = "at most" if upper else "at least"
    says = f"{gate['measure']} {figure(gate['mean'])}{bound}; the limit is {side} {figure(limit)}"
    return Bar(says, _WIDTH, tuple(marks), _TONES.get(gate["verdict"], "unsure"))
