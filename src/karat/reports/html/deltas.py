"""What lies between two systems, as a page shows it: the figures, the word, two small drawings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from karat.reports.figures import figure, p_value, verdict_words
from karat.reports.html.bars import Bar, around_zero, split_bar
from karat.reports.html.names import Document
from karat.reports.html.signs import changed, spread

Row = Mapping[str, Any]

_DELTA, _SPLIT = 105.0, 90.0
_TONES = {"better": "good", "worse": "bad", "unclear": "unsure"}


@dataclass(frozen=True, slots=True)
class Delta:
    """A comparison of one measure: its difference, how sure it is, and how single queries fare."""

    change: str
    ends: str
    p: str
    wins: int
    equal: int
    losses: int
    word: str
    tone: str
    n: str
    detects: str
    bar: Bar
    split: Bar


def overall_rows(document: Document) -> dict[tuple[str, str, str], Row]:
    """The comparisons over all queries, by baseline, system and measure."""
    return {
        (row["baseline"], row["system"], row["measure"]): row
        for row in document.get("comparisons", ())
        if not row["segment"]
    }


def reaches(document: Document) -> dict[str, float]:
    """How far the scale of each measure's differences goes: one for the shares of most queries.

    A measure of few queries has so wide an interval that beside it nothing else would be seen.
    """
    rows = [row for row in overall_rows(document).values() if row["delta"] is not None]
    most = max((row["n"] for row in rows), default=0)
    own: dict[str, float] = {}
    apart = set()
    for row in rows:
        name = row["measure"]
        ends = [row["delta"], row["margin"] or 0.0, *(row["ci"] or ())]
        own[name] = max([own.get(name, 0.0), *map(abs, ends)])
        if 2 * row["n"] < most or not _is_share(row["baseline_mean"], row["system_mean"]):
            apart.add(name)
    together = [name for name in own if name not in apart]
    return own | dict.fromkeys(together, max((own[name] for name in together), default=0.0))


def _is_share(*means: float | None) -> bool:
    return all(mean is not None and 0 <= mean <= 1 for mean in means)


def delta_of(row: Row | None, reach: Mapping[str, float]) -> Delta | None:
    """A comparison as it is shown; None where nothing was compared."""
    if row is None or not row["n"]:
        return None
    word, tone = word_of(row), tone_of(row)
    wins, equal, losses = row["wins"], row["ties"], row["losses"]
    parts = [("wins", wins), ("equal", equal), ("losses", losses)]
    told = f"{wins:,} queries better, {equal:,} equal, {losses:,} worse"
    return Delta(
        change=changed(row["delta"]),
        ends=spread(row["ci"]),
        p=p_value(row["p_adjusted"]),
        wins=wins,
        equal=equal,
        losses=losses,
        word=word,
        tone=tone,
        n=f"{row['n']:,}",
        detects=figure(row["detectable"]),
        bar=_bar(row, reach, tone),
        split=split_bar(parts, told, _SPLIT),
    )


def word_of(row: Row) -> str:
    """The verdict on one comparison, as every table has it."""
    return verdict_words(row) if row["verdict"] else "not judged"


def tone_of(row: Row) -> str:
    """Whether a verdict is good or bad news; being the same is neither."""
    return "bad" if row.get("caution") else _TONES.get(row["verdict"] or "", "")


def _bar(row: Row, reach: Mapping[str, float], tone: str) -> Bar:
    """A difference and its interval around 0, with the margin within which both count as same."""
    scale = around_zero(reach.get(row["measure"], 0.0), _DELTA)
    margin = row["margin"] or 0.0
    marks = [
        *(scale.stretch("margin", (-margin, margin)) if margin else ()),
        *scale.track(),
        *scale.point("zero", 0.0),
        *scale.stretch("interval", row["ci"]),
        *scale.point("value", row["delta"]),
    ]
    says = f"{row['measure']} changes by {changed(row['delta'])} {spread(row['ci'])}".strip()
    return Bar(says, _DELTA, tuple(marks), tone)
