"""Whole numbers as options give them: text, checked the same way everywhere."""

from __future__ import annotations

from karat.errors import UsageError

MOST = 1_000_000


def whole(option: str, text: str, *, least: int = 1, most: int = MOST, otherwise: str = "") -> int:
    """The number that an option was given; ``otherwise`` is what else it takes, such as ``all``.

    >>> whole("-k", "10")
    10
    >>> whole("-k", "0")
    Traceback (most recent call last):
    karat.errors.UsageError: -k is '0'; it is a whole number from 1 to 1,000,000
    """
    digits = text.removeprefix("-")
    # Not every decimal is one of ours, and a long enough one takes Python's patience.
    if digits.isascii() and digits.isdecimal() and len(digits) < 20 and least <= int(text) <= most:
        return int(text)
    more = f", or {otherwise}" if otherwise else ""
    raise UsageError(f"{option} is {text!r}; it is a whole number from {least:,} to {most:,}{more}")


def optional_whole(
    option: str, text: str | None, *, least: int = 1, most: int = MOST
) -> int | None:
    """Return the whole number that an option was given, None if it was not."""
    return None if text is None else whole(option, text, least=least, most=most)


def decimal(option: str, text: str | None, *, least: float, most: float = 1e9) -> float | None:
    """Return the number that an option was given, None if it was not.

    >>> decimal("--rate", "2.5", least=0.001)
    2.5
    """
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if least <= number <= most:
        return number
    upper = "" if most >= 1e9 else f" to {most:g}"
    raise UsageError(f"{option} is {text!r}; a number from {least:g}{upper} is expected")
