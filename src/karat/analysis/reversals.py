"""Reversals: a system that goes up overall and down in a segment, said in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from karat.analysis.comparison import Comparison
from karat.analysis.segments import CROSS
from karat.analysis.verdicts import is_corrected_away

_SURE, _CHANCE = "beyond chance", "though that may be chance"
# How every sentence ends, whatever the names in it are.
_END = re.compile(rf"\(n = (\d+)\), ({_SURE}|{_CHANCE}(?: after correction for [\d,]+ tests)?)$")


def reversals_in(rows: Sequence[Comparison], alpha: float) -> Iterator[str]:
    """A sentence for each segment that goes down while all queries together go up.

    A segment counts when it is worse beyond chance, corrected for the segments of its column,
    or when it lost more than the margin; which of the two it is, is part of the sentence.
    So is that a correction decided, where the interval, which has none, excludes 0.
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
            yield _sentence(row, whole, alpha, certain=certain)


def told_of(sentence: str) -> tuple[int | None, bool]:
    """Over how many queries a reversal is, and whether it is beyond chance.

    A sentence that does not say is taken to be.

    >>> told_of("b changes R@5 by +0.1 overall but by -0.2 where a b (n = 3), beyond chance")
    (3, True)
    >>> told_of("in the words of a later version")
    (None, True)
    """
    found = _END.search(sentence)
    return (None, True) if found is None else (int(found[1]), found[2] == _SURE)


def _sentence(row: Comparison, whole: Comparison, alpha: float, *, certain: bool) -> str:
    where = CROSS.join(f"{column} {value}" for column, value in (row.segment or {}).items())
    sure = _SURE if certain else _CHANCE
    if not certain and is_corrected_away(row.p, row.p_adjusted, alpha):
        sure += f" after correction for {row.tests:,} tests"
    interval = "" if row.ci is None else f" [{row.ci[0]:.3f}, {row.ci[1]:.3f}]"
    return (
        f"{row.system} changes {row.measure} by {whole.delta:+.3f} overall but by {row.delta:+.3f}"
        f"{interval} where {where} (n = {row.n}), {sure}"
    )
