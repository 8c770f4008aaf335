"""Numbers and names as text: decimals, intervals, p-values, verdicts, safe labels, sparklines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

NOTHING = "-"
# Separates the parts of a cell that line up in a column, such as a mean and its interval.
PART = "\t"


def figure(value: float | None) -> str:
    """Return a number with four decimals, or one if it is large, such as milliseconds.

    >>> figure(0.41237), figure(1500.0), figure(None)
    ('0.4124', '1500.0', '-')
    """
    if value is None:
        return NOTHING
    return f"{value:.4f}" if abs(value) < 100 else f"{value:.1f}"


def change(value: float | None) -> str:
    """Return a difference with its sign.

    >>> change(0.03), change(-12345.67), change(0.0), change(None)
    ('+0.0300', '-12345.7', '0.0000', '-')
    """
    return f"+{figure(value)}" if value is not None and value > 0 else figure(value)


def interval(ends: Sequence[float] | None) -> str:
    """Return an interval with as many decimals as its ends need to differ.

    >>> interval([0.381, 0.442]), interval([0.4121, 0.4188]), interval([140.2, 171.9])
    ('[0.38, 0.44]', '[0.412, 0.419]', '[140.2, 171.9]')
    >>> interval([-0.002, 0.31]), interval([-1e-9, 0.31]), interval(None)
    ('[-0.002, 0.310]', '[0.0000, 0.3100]', '')
    """
    if ends is None:
        return ""
    low, high = ends
    if max(abs(low), abs(high)) >= 100:
        return f"[{low:.1f}, {high:.1f}]"
    decimals = 2 if high - low >= 0.02 else 3
    # An end on one side of zero must not read as if it were on it.
    while decimals < 4 and (
        high - low < 0.002 or any(end and not round(end, decimals) for end in ends)
    ):
        decimals += 1
    texts = (f"{round(end, decimals) + 0.0:.{decimals}f}" for end in ends)
    return f"[{', '.join(texts)}]"


def measured(cell: Mapping[str, Any]) -> str:
    """Return a mean and its interval, as two parts of one cell."""
    return f"{figure(cell['mean'])}{PART}{interval(cell['ci'])}"


def gate_mean(gate: Mapping[str, Any]) -> str:
    """Return the mean and interval of a gate, with four decimals to compare with its limit.

    >>> gate_mean({"mean": 0.93, "ci": [0.89961, 0.96]}).replace(PART, " ")
    '0.9300 [0.8996, 0.9600]'
    """
    ends = "" if gate["ci"] is None else f"[{', '.join(map(figure, gate['ci']))}]"
    return f"{figure(gate['mean'])}{PART}{ends}"


def p_value(value: float | None) -> str:
    """Return a p-value with three decimals.

    >>> p_value(0.0123), p_value(0.00001), p_value(None)
    ('0.012', '<0.001', '-')
    """
    if value is None:
        return NOTHING
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def p_in_words(value: float) -> str:
    """Return a p-value as part of a sentence.

    >>> p_in_words(0.0049), p_in_words(0.00001)
    ('p = 0.0049', 'p < 0.001')
    """
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"


def percent(share: float) -> str:
    """Return a share in percent; only 0 and 1 read as 0 % and 100 %.

    >>> percent(0.973), percent(0.0001), percent(0.9999), percent(0.0)
    ('97 %', 'below 1 %', 'above 99 %', '0 %')
    """
    if 0 < share < 0.01:
        return "below 1 %"
    return "above 99 %" if 0.99 < share < 1 else f"{100 * share:.0f} %"


def number_range(low: str, high: str) -> str:
    """Return a range, or one value where both ends read the same."""
    return low if low == high else f"{low}..{high}"


def plural(count: int, singular: str, plural_form: str | None = None) -> str:
    """Return a count with its noun.

    >>> plural(1, "gate"), plural(2, "query", "queries")
    ('1 gate', '2 queries')
    """
    return f"{count:,} {singular if count == 1 else plural_form or singular + 's'}"


def label(text: str) -> str:
    """Return a name from a file with control characters replaced, safe to show anywhere."""
    return "".join(character if character.isprintable() else "�" for character in text)


def utf8(name: str) -> str:
    """Return a file name as text; bytes that are not UTF-8 become question marks."""
    return name.encode("utf-8", "replace").decode()


def where(segment: Mapping[str, str] | None) -> str:
    """Return the segment of a gate or comparison in words; empty for all queries.

    >>> where({"language": "pt-BR", "hard": "true"}), where(None)
    ('language = pt-BR and hard = true', '')
    """
    return label(" and ".join(f"{key} = {value}" for key, value in (segment or {}).items()))


def gate_name(gate: Mapping[str, Any]) -> str:
    """Return a gate as a user would write it.

    >>> gate_name({"measure": "R@5", "min": 0.9, "strict": False, "on": "ci_low",
    ...            "segment": {"language": "pt-BR"}})
    'R@5 >= 0.9 where language = pt-BR'
    """
    lower = gate.get("min") is not None
    sign = (">" if lower else "<") + ("" if gate["strict"] else "=")
    on = "mean " if gate["on"] == "mean" else ""
    name = f"{on}{gate['measure']} {sign} {gate['min' if lower else 'max']:.10g}"
    return f"{name} where {where(gate['segment'])}" if gate["segment"] else name


def verdict_words(row: Mapping[str, Any], *, p: bool = False) -> str:
    """Return the verdict on one comparison, the same in every table.

    Says so where the interval excludes 0 but the corrected p-value decides otherwise; ``p``
    adds that p-value, for tables without a column for it.

    >>> row = {"verdict": "unclear", "ci": [0.04, 0.25], "p_adjusted": 0.08, "tests": 7}
    >>> verdict_words(row), verdict_words(row, p=True)
    ('unclear after correction for 7 tests', 'unclear after correction for 7 tests, p = 0.080')
    >>> verdict_words({"verdict": "worse", "ci": [-0.3, -0.1], "caution": True})
    'worse (caution)'
    """
    words = row["verdict"] or NOTHING
    ends, tests = row["ci"], row.get("tests", 1)
    excludes = ends is not None and (ends[0] > 0 or ends[1] < 0)
    if excludes and tests > 1 and words in ("same", "unclear"):
        words += f" after correction for {tests:,} tests"
        words += f", p = {p_value(row['p_adjusted'])}" if p else ""
    return f"{words} (caution)" if row.get("caution") else words


def pair_name(compared: Mapping[str, Any]) -> str:
    """Return the two systems of a comparison."""
    return f"{label(compared['system'])} against {label(compared['baseline'])}"


# From low to high; the terminal replaces one by the other where it must.
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
BINS = 10
_ROUNDED = 1e-9


def sparkline(values: Sequence[float | None]) -> str:
    """Return values as blocks of different heights; a blank where there is none.

    >>> sparkline([0.1, 0.2, None, 0.4])
    '▁▃ █'
    """
    finite_values = [value for value in values if value is not None and math.isfinite(value)]
    if not finite_values:
        return ""
    low, high = min(finite_values), max(finite_values)
    return "".join(
        BLOCKS[position(value, low, high, len(BLOCKS))]
        if value is not None and math.isfinite(value)
        else " "
        for value in values
    )


def position(value: float, low: float, high: float, places: int) -> int:
    """Return which of ``places`` steps from low to high a value takes."""
    if high <= low:
        return (places - 1) // 2
    return round((value - low) / (high - low) * (places - 1))


def histogram(values: Iterable[float], top: float | None) -> str:
    """Return how many values lie in each tenth from 0 to the top; blank where none does.

    Without a top, the highest value is the end. The fullest tenth has the highest block.

    >>> histogram([0, 0, 0, 0, 0.5, 1, 1], 1.0)
    '█    ▂   ▄'
    """
    known = np.fromiter(values, np.float64)
    known = known[np.isfinite(known)]
    if not len(known):
        return ""
    low, high = min(0.0, float(known.min())), max(top or 0.0, float(known.max()))
    # Rounding may put a value that lies on an edge, such as 0.3, just below it.
    parts = np.floor((known - low) / ((high - low) or 1.0) * BINS + _ROUNDED).astype(np.int64)
    counts = np.bincount(np.minimum(parts, BINS - 1), minlength=BINS)
    most = int(counts.max())
    # Rounded up, so that one query among thousands is visible.
    return "".join(
        BLOCKS[-(-int(count) * len(BLOCKS) // most) - 1] if count else " " for count in counts
    )
