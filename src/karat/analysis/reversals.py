"""Reversals: a system that is better overall and worse in a segment, said in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from karat.analysis.comparison import Comparison
from karat.analysis.segments import CROSS


def reversals_in(rows: Sequence[Comparison]) -> Iterator[str]:
    """A sentence for each segment that goes down while all queries together go up.

    A segment counts when it is worse beyond chance, corrected for the segments of its column,
    or when it lost more than the margin; which of the two it is, is part of the sentence.
    """
    overall = {(row.baseline, row.system, row.measure): row for row in rows if row.segment is None}
    for row in rows:
        whole = overall[row.baseline, row.system, row.measure]
        if row.segment is None or row.better == "none" or whole.delta is None or row.delta is None:
            continue
        up = -1.0 if row.better == "lower" else 1.0
        if up * whole.delta <= 0 or up * row.delta >= 0:
            continue
        certain = row.verdict == "worse"
        if certain or up * row.delta < -row.margin:
            yield _sentence(row, whole, certain=certain)


def _sentence(row: Comparison, whole: Comparison, *, certain: bool) -> str:
    where = CROSS.join(f"{column} {value}" for column, value in (row.segment or {}).items())
    sure = "beyond chance" if certain else "though that may be chance"
    interval = "" if row.ci is None else f" [{row.ci[0]:.3f}, {row.ci[1]:.3f}]"
    return (
        f"{row.system} changes {row.measure} by {whole.delta:+.3f} overall but by {row.delta:+.3f}"
        f"{interval} where {where} (n = {row.n}), {sure}"
    )
