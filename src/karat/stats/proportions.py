"""Wilson's score interval for a share, and what it takes to pass a minimum with it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from karat.errors import UsageError
from karat.stats.quantiles import two_sided_z


def wilson(mean: float, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """The interval for the true share behind a share of ``mean`` among ``n``.

    It also holds for a mean of values between 0 and 1, whose variance is at most that of a
    share with the same mean; it is wider than needed then.

    >>> low, high = wilson(1.0, 20)
    >>> round(low, 4), high
    (0.8389, 1.0)
    """
    if n < 1 or not 0 <= mean <= 1:
        raise UsageError(f"Wilson's interval needs n of at least 1 and a share, not {n} and {mean}")
    z = two_sided_z(confidence)
    square = z * z
    # At the ends the formula cancels to these values, though not in floats.
    if mean == 1:
        return n / (n + square), 1.0
    if mean == 0:
        return 0.0, square / (n + square)
    centre = mean + square / (2 * n)
    half = z * (mean * (1 - mean) / n + square / (4 * n * n)) ** 0.5
    scale = 1 + square / n
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def wilson_needed(
    minimum: float, n: int, *, confidence: float = 0.95, strict: bool = False
) -> float | None:
    """The smallest share k/n whose lower bound reaches ``minimum``, or exceeds it if ``strict``.

    None where not even a perfect column does, or there is no column.
    """
    if n < 1:
        return None
    search = bisect_right if strict else bisect_left
    k = search(
        range(n + 1), minimum, key=lambda count: wilson(count / n, n, confidence=confidence)[0]
    )
    return k / n if k <= n else None


def queries_for_perfect(minimum: float, confidence: float = 0.95) -> int | None:
    """The smallest n at which the lower bound of a perfect column, n/(n + z²), is ``minimum``.

    >>> queries_for_perfect(0.9)
    35
    """
    if minimum >= 1:
        return None
    square = two_sided_z(confidence) ** 2
    enough = 2 + int(2 * square * max(minimum, 0) / (1 - minimum))
    return 1 + bisect_left(range(1, enough), minimum, key=lambda n: n / (n + square))
