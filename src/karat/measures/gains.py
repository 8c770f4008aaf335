"""What a grade is worth: the grade itself, 2^grade - 1, or a map of grades to gains."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from karat.errors import UsageError

Gain = Literal["linear", "exp"] | Mapping[float, float]
GainMap = tuple[tuple[float, float], ...]

_OTHER_NAMES = {"exp-log2": "exp", "log2": "linear"}


def gain_map(gains: Mapping[Any, Any], where: str) -> GainMap:
    """Gains by grade, for hashing; each a finite number that is not negative."""
    numbers = [*gains, *gains.values()]
    fine = all(
        isinstance(n, int | float) and not isinstance(n, bool) and 0 <= n < float("inf")
        for n in numbers
    )
    if not gains or not fine or gains.get(0, 0) != 0:
        raise UsageError(
            f"gain in {where} must map grades to gains, none below 0 and grade 0 to 0,"
            " such as {1: 1, 2: 5}"
        )
    return tuple(sorted((float(grade), float(gain)) for grade, gain in gains.items() if grade))


def show_number(value: Any) -> str:
    """A number or text as measures print it: the shortest form that reads the same again."""
    exact = isinstance(value, float) and float(f"{value:g}") == value
    return f"{value:g}" if exact else repr(value)


def show_map(gains: GainMap) -> str:
    """A map of gains as measures print it.

    >>> show_map(((1.0, 1.0), (2.0, 5.0)))
    '{1: 1, 2: 5}'
    """
    return "{" + ", ".join(f"{show_number(g)}: {show_number(worth)}" for g, worth in gains) + "}"


def gain_setting(value: Any) -> str:
    """The convention ``gain`` as text: linear, exp or a map such as ``{1: 1, 2: 5}``.

    >>> gain_setting("exp"), gain_setting({2: 5, 1: 1}), gain_setting("{1: 1, 2: 5}")
    ('exp', '{1: 1, 2: 5}', '{1: 1, 2: 5}')
    """
    gains = value
    if isinstance(value, str):
        name = _OTHER_NAMES.get(value, value)
        if name in ("linear", "exp"):
            return name
        try:
            gains = ast.literal_eval(value)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            gains = None
    if not isinstance(gains, Mapping):
        raise UsageError(
            f"gain is {value!r}; it can be linear, exp or a map such as {{1: 1, 2: 5}}"
        )
    return show_map(gain_map(gains, f"{value!r}"))


@lru_cache(maxsize=64)
def gain_of_setting(text: str) -> Gain:
    """The gain that the convention stands for, as measures take it."""
    if text == "linear":
        return "linear"
    return "exp" if text == "exp" else ast.literal_eval(text)
