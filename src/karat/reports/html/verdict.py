"""The first section of a page: the verdict, why, what to fix next, and every gate."""

from __future__ import annotations

from collections.abc import Sequence

from karat.evaluation.report_text import gate_lines, headlines, unreachable
from karat.pages.formatting import PART, figure, gate_mean, gate_name, plural
from karat.pages.page import VERDICT_TONES
from karat.reports.html.elements import (
    Context,
    Document,
    Drawing,
    baseline_name,
    limit_of,
    link_names,
    query_links,
    scale_of,
    signed_change,
    system_names,
    with_minus,
)

# More reasons than these are folded.
MOST_REASONS = 6
# Of more verdicts, those on pairs go into a table.
MOST_BANNERS = 3
# More rows than these scroll in a frame.
TALL = 30
_WIDTH = 170.0

_ENDS = {"ci_low": "lower bound", "ci_high": "upper bound", "mean": "value"}
_ORDER = ("fail", "unmeasurable", "skipped", "pass")


def verdict_of(document: Document, head: Document | None = None) -> Context:
    """Return the verdict on gates and comparisons; a report without either has none.

    ``gates`` are grouped by the system that they judge. ``many`` banners are too many to read:
    those about pairs are a table.
    """
    names = system_names(document)
    gates = document.get("gates", [])
    links = query_links(document, head)
    banners = _banners(document)
    return {
        "title": _title(document),
        "about": _about(document),
        "banners": banners,
        "many": len(banners) > MOST_BANNERS,
        "findings": [link_names(sentence, links) for sentence in document.get("findings") or ()],
        "findings_of": document.get("findings_of") if len(names) > 1 else None,
        "gates": _grouped(names, gates),
        "notes": gate_lines(document),
        "tall": len(gates) > TALL,
    }


def _title(document: Document) -> str:
    """Return the systems that the page is about."""
    baseline = baseline_name(document)
    rows = [row for row in document.get("comparisons", ()) if row["baseline"] == baseline]
    names = list(dict.fromkeys(row["system"] for row in rows)) or system_names(document)
    title = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return title if baseline is None else f"{title} against {baseline}"


def _about(document: Document) -> str:
    """Return how many queries were measured, and with which inputs."""
    inputs = document.get("inputs", {})
    parts = [plural(document["counts"]["queries"], "query", "queries")]
    if inputs.get("gold"):
        parts.append(f"gold {inputs['gold']['name']}")
    if inputs.get("dataset_version") is not None:
        parts.append(f"dataset {inputs['dataset_version']}")
    parts.append(f"profile {document['conventions']['profile']}")
    return " · ".join(parts)


def _banners(document: Document) -> list[Context]:
    """Return warnings and verdicts, each with its reasons."""
    banners = _warnings(document)
    never = [f"out of reach: {sentence}" for sentence in unreachable(document)]
    for verdict in headlines(document):
        reasons = verdict.because if verdict.pair else (*never, *verdict.because)
        banner = _banner(verdict.word, verdict.about, verdict.tone, reasons)
        banners.append(banner | {"pair": verdict.pair})
    if not banners:
        sentence = "There are no gates and no comparison, so there is no verdict."
        banners = [_banner("MEASURED", "no verdict", "plain", [sentence])]
    return banners


def _warnings(document: Document) -> list[Context]:
    warnings = []
    if dead := [system["name"] for system in document["systems"] if _unanswered(system)]:
        sentence = "Not one of their queries could be scored, so their figures mean nothing."
        about = f"nothing scored: {', '.join(dead)}"
        warnings.append(_banner("CANNOT TELL", about, "bad", [sentence]))
    if partial := [system["name"] for system in document["systems"] if system.get("partial")]:
        sentence = "Too many calls failed to judge these systems."
        about = f"partial: {', '.join(partial)}"
        warnings.append(_banner("CANNOT TELL", about, "unsure", [sentence]))
    return warnings


def _unanswered(system: Document) -> bool:
    """Return whether a system answered no query, or none that could be scored."""
    counts = system.get("counts") or {}
    if not counts.get("queries"):
        return False
    failed = counts["missing"] + counts["failed_calls"] >= counts["queries"]
    return failed or not any(measure["n"] for measure in system["measures"].values())


def _banner(word: str, about: str, tone: str, because: Sequence[str]) -> Context:
    reasons = list(map(with_minus, because))
    first, more = reasons[:MOST_REASONS], reasons[MOST_REASONS:]
    banner = {"word": word, "about": about, "tone": tone, "because": first, "more": more}
    return banner | {"pair": False}


def _grouped(
    systems: Sequence[str], gates: Sequence[Document]
) -> list[tuple[str, Sequence[Context]]]:
    """Return the gates by system, failed ones first; a single system is not named."""
    groups: dict[str, list[Context]] = {name: [] for name in systems}
    for gate in sorted(gates, key=lambda gate: _ORDER.index(gate["verdict"])):
        groups.setdefault(gate["system"], []).append(_gate_row(gate))
    groups = {name: rows for name, rows in groups.items() if rows}
    return [(name if len(groups) > 1 else "", rows) for name, rows in groups.items()]


def _gate_row(gate: Document) -> Context:
    """Return a gate as figures: what was measured, and how far it is from the limit."""
    limit, value = limit_of(gate), gate["value"]
    mean, _, ends = gate_mean(gate).partition(PART)
    return {
        "name": gate_name(gate),
        "verdict": {"unmeasurable": "cannot tell"}.get(gate["verdict"], gate["verdict"]),
        "tone": VERDICT_TONES.get(gate["verdict"], "unsure"),
        "mean": mean,
        "ends": ends,
        "bar": None if gate["mean"] is None else _gate_bar(gate, limit),
        "margin": signed_change(None if value is None else value - limit),
        "against": _ENDS[gate["on"]] if value is not None else "",
        "n": f"{gate['n']:,}",
        "needed": figure(gate["needed"]),
    }


def _gate_bar(gate: Document, limit: float) -> Drawing:
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
    return Drawing(text, _WIDTH, marks, VERDICT_TONES.get(gate["verdict"], "unsure"))
