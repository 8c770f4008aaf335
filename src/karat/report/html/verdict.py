"""The first section of a page: the verdict, why, what to fix next, and every gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from karat.evaluation.sentences import blocking_lines, headlines, left_out_lines, unreachable
from karat.pages.formatting import PART, figure, gate_mean, gate_name, plural
from karat.pages.page import VERDICT_TONES
from karat.report.html.bars import Bar, scale_of
from karat.report.html.names import (
    LONGEST,
    LONGEST_SENTENCE,
    Document,
    LinkedText,
    baseline_name,
    link_names,
    query_links,
    short,
    shown_names,
    signed_change,
    with_minus,
)

# More reasons than these are folded.
MOST_REASONS = 6
# More verdicts than these go into a table, below a count.
MOST_BANNERS = 3
# More rows than these scroll in a frame.
TALL = 30
_WIDTH = 170.0

_ENDS = {"ci_low": "lower bound", "ci_high": "upper bound", "mean": "value"}
_WORDS = ("better", "worse", "same", "unclear")
_ORDER = ("fail", "unmeasurable", "skipped", "pass")


@dataclass(frozen=True, slots=True)
class Banner:
    """A verdict in one word, what it is about, and its reasons."""

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
    findings: tuple[tuple[LinkedText, ...], ...]
    findings_of: str
    gates: tuple[tuple[str, tuple[GateRow, ...]], ...]
    notes: tuple[str, ...]
    tall: bool


def verdict_of(document: Document, head: Document | None = None) -> Verdict:
    """Return the verdict on gates and comparisons; a report without either has none."""
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
        findings=tuple(link_names(sentence, links) for sentence in document.get("findings") or ()),
        findings_of=_findings_of(document),
        gates=_grouped(document, gates),
        notes=tuple(short(line, LONGEST_SENTENCE) for line in lines),
        tall=len(gates) > TALL,
    )


def _title(document: Document) -> str:
    """Return the systems that the page is about."""
    shown = shown_names(document)
    baseline = baseline_name(document)
    rows = [row for row in document.get("comparisons", ()) if row["baseline"] == baseline]
    full = dict.fromkeys(row["system"] for row in rows) if rows else shown
    names = [shown.get(name, short(name)) for name in full]
    title = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return title if baseline is None else f"{title} against {shown.get(baseline, short(baseline))}"


def _about(document: Document) -> str:
    """Return how many queries were measured, and with which inputs."""
    inputs = document.get("inputs", {})
    parts = [plural(document["counts"]["queries"], "query", "queries")]
    if inputs.get("gold"):
        parts.append(f"gold {short(inputs['gold']['name'])}")
    if inputs.get("dataset_version") is not None:
        parts.append(f"dataset {short(str(inputs['dataset_version']))}")
    parts.append(f"profile {document['conventions']['profile']}")
    return " · ".join(parts)


def _findings_of(document: Document) -> str:
    """Return the system that the findings are about, if there are several."""
    name = document.get("findings_of")
    if name is None or len(document["systems"]) < 2:
        return ""
    return shown_names(document).get(name, short(name))


def _banners(document: Document) -> tuple[list[Banner], list[Banner]]:
    """Return the verdicts, and separately the comparisons if there are too many of them."""
    banners = [
        (
            _banner(
                headline.word,
                headline.about,
                headline.tone,
                _reasons(document, headline.because, pair=headline.pair),
            ),
            headline.pair,
        )
        for headline in headlines(document)
    ]
    many = len(banners) > MOST_BANNERS
    pairs = [headline for headline, pair in banners if pair and many]
    return _first(
        document, [headline for headline, pair in banners if not (pair and many)], pairs
    ), pairs


def _tally(pairs: Sequence[Banner]) -> str:
    """Return how many comparisons have which verdict.

    >>> _tally([Banner(word, "", "", ()) for word in ("WORSE", "UNCLEAR", "UNCLEAR")])
    '1 worse, 2 unclear'
    """
    words = [pair.word.lower() for pair in pairs]
    order = [word for word in dict.fromkeys([*_WORDS, *words]) if word in words]
    return ", ".join(f"{words.count(word):,} {word}" for word in order)


def _first(document: Document, banners: list[Banner], pairs: Sequence[Banner]) -> list[Banner]:
    """Return the banners, with warnings before them or a note instead of them."""
    partial = [short(system["name"]) for system in document["systems"] if system.get("partial")]
    if partial:
        sentence = "Too many calls failed to judge these systems."
        banners.insert(
            0, _banner("CANNOT TELL", f"partial: {', '.join(partial)}", "unsure", (sentence,))
        )
    if dead := [short(system["name"]) for system in document["systems"] if _unanswered(system)]:
        sentence = "Not one of their queries could be scored, so their figures mean nothing."
        banners.insert(
            0, _banner("CANNOT TELL", f"nothing scored: {', '.join(dead)}", "bad", (sentence,))
        )
    if not banners and not pairs:
        sentence = "There are no gates and no comparison, so there is no verdict."
        banners = [_banner("MEASURED", "no verdict", "plain", (sentence,))]
    return banners


def _unanswered(system: Document) -> bool:
    """Return whether a system answered no query, or none that could be scored."""
    counts = system.get("counts") or {}
    if not counts.get("queries"):
        return False
    failed = counts["missing"] + counts["failed_calls"] >= counts["queries"]
    return failed or not any(measure["n"] for measure in system["measures"].values())


def _reasons(document: Document, because: tuple[str, ...], *, pair: bool) -> tuple[str, ...]:
    """Return the reasons of a verdict; unreachable gates come first."""
    never = () if pair else tuple(f"out of reach: {sentence}" for sentence in unreachable(document))
    return (*never, *because)


def _banner(word: str, about: str, tone: str, because: tuple[str, ...]) -> Banner:
    reasons = tuple(with_minus(short(sentence, LONGEST_SENTENCE)) for sentence in because)
    about = short(about, 2 * LONGEST)
    return Banner(word, about, tone, reasons[:MOST_REASONS], reasons[MOST_REASONS:])


def _grouped(
    document: Document, gates: Sequence[Mapping[str, Any]]
) -> tuple[tuple[str, tuple[GateRow, ...]], ...]:
    """Return the gates by system, failed ones first; a single system is not named."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for gate in sorted(gates, key=lambda one: _ORDER.index(one["verdict"])):
        groups.setdefault(gate["system"], []).append(gate)
    order = [system["name"] for system in document["systems"] if system["name"] in groups]
    order += [name for name in groups if name not in order]
    return tuple(
        (short(name) if len(groups) > 1 else "", tuple(map(_gate_row, groups[name])))
        for name in order
    )


def _gate_row(gate: Mapping[str, Any]) -> GateRow:
    limit = limit_of(gate)
    value = gate["value"]
    mean, _, ends = gate_mean(gate).partition(PART)
    word = {"unmeasurable": "cannot tell"}.get(gate["verdict"], gate["verdict"])
    return GateRow(
        name=short(gate_name(gate), 2 * LONGEST),
        verdict=word,
        tone=VERDICT_TONES.get(gate["verdict"], "unsure"),
        mean=mean,
        ends=ends,
        bar=None if gate["mean"] is None else _gate_bar(gate, limit),
        margin=signed_change(None if value is None else value - limit),
        against=_ENDS[gate["on"]] if value is not None else "",
        n=f"{gate['n']:,}",
        needed=figure(gate["needed"]),
    )


def limit_of(gate: Mapping[str, Any]) -> float:
    """Return the limit of a gate."""
    return float(gate["max"] if gate.get("min") is None else gate["min"])


def _gate_bar(gate: Mapping[str, Any], limit: float) -> Bar:
    """Return what was measured, on a scale with the limit."""
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
    text = f"{gate['measure']} {figure(gate['mean'])}{bound}; the limit is {side} {figure(limit)}"
    return Bar(text, _WIDTH, tuple(marks), VERDICT_TONES.get(gate["verdict"], "unsure"))
