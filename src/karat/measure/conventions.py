"""Conventions, decided once and printed in every report: order, ties, gaps, profiles.

A profile is a named reading of the field: conventions and the measures it reports by
default. ``--set KEY=VALUE`` changes one convention of the profile in force.
"""

from __future__ import annotations

import ast
import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from karat.data.columns import Duplicates
from karat.errors import UsageError, unknown

# "grade > 0" as a threshold: the smallest grade that a float can hold.
ANY_GRADE = 5e-324


Gain = Literal["linear", "exp"] | Mapping[float, float]
GainMap = tuple[tuple[float, float], ...]
# The names of gains elsewhere.
GAIN_ALIASES = {"exp-log2": "exp", "log2": "linear"}


@dataclass(frozen=True, slots=True)
class Conventions:
    """The decisions under which numbers are computed.

    ``order=None`` takes each run by what ranks it at its source: TREC files, dicts and
    tables by score, run logs by rank. ``k`` is what the letter k in ``R@k`` means where
    a query does not bring its own. ``unit=None`` resamples conversations where the queries
    say which they belong to (column ``group``), else queries. ``repeats`` says
    whether an item that a list returns again keeps its place, where it earns nothing, or
    the ranks below close up. ``gain`` is what a grade is
    worth to DCG, nDCG and CG where a measure names no gain: ``linear``, ``exp`` or a map of
    grades as text. ``missing_ids`` says whether inputs that do not fit each other are refused.
    """

    profile: str = "karat"
    order: Literal["score", "rank"] | None = None
    ties: Literal["id-asc", "id-desc", "given"] = "id-asc"
    repeats: Literal["keep", "drop"] = "keep"
    missing: Literal["zero", "skip"] = "zero"
    empty_gold: Literal["apart", "zero"] = "apart"
    missing_ids: Literal["refuse", "allow"] = "refuse"
    level: Literal["item", "doc", "span"] = "item"
    rel: float = 1.0
    gain: str = "linear"
    depth: int | None = None
    cover: float = 0.5
    k: int = 10
    interval: Literal["gaffke", "percentile", "none"] = "gaffke"
    unit: Literal["query", "group"] | None = None
    ci: float = 0.95
    boot: int = 2000
    permutations: int = 10_000
    seed: int = 0
    versions: tuple[str, ...] = ()
    # Whether lists that were cut, by their log or by their common length, end at that depth.
    short_lists: Literal["cut", "complete"] = "cut"
    # The other conventions come from a profile and cannot be set alone.
    score_type: Literal["float64", "float32"] = "float64"
    whole_grades: bool = False
    recall_point: Literal["trunc", "round"] = "trunc"
    duplicates: Duplicates = "agree"

    @property
    def alpha(self) -> float:
        """The chance of a wrong alarm that a test may have: 0.05 where intervals have 95 %."""
        # 1 - 0.95 is a little more than 0.05 in floats.
        return round(1 - self.ci, 12)

    def document(self) -> dict[str, Any]:
        """Return the conventions as in a report."""
        names = ["profile", *(name for name in SETTABLE if name not in _OPTIONAL)]
        values = {name: getattr(self, name) for name in names}
        if self.versions:
            values["versions"] = list(self.versions)
        if self.short_lists != PROFILES[self.profile].conventions.short_lists:
            values["short_lists"] = self.short_lists
        return values


@dataclass(frozen=True, slots=True)
class _Number:
    """A setting that is a number, from ``low`` to ``high``; messages call it ``meaning``."""

    meaning: str
    low: float
    high: float
    whole: bool = True

    def read(self, key: str, value: Any) -> float | int:
        """Return the number; refuse any other value."""
        try:
            number = math.nan if isinstance(value, bool) or "_" in str(value) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        fits = self.low <= number <= self.high and (not self.whole or number == int(number))
        if not fits:
            raise UsageError(f"{key} is {value!r}; it must be {self.meaning}")
        if not self.whole:
            return number
        return int(str(value)) if str(value).isdecimal() else int(number)


def _versions(value: Any) -> tuple[str, ...]:
    parts = value.split("<") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(p, str) and p for p in parts):
        raise UsageError(f"versions is {value!r}; write them from old to new, as in v1<v2<v3")
    if len(set(parts)) < len(parts):
        raise UsageError(f"versions is {value!r}; one of them occurs twice")
    return tuple(parts)


def gain_setting(value: Any) -> str:
    """Return the convention ``gain`` as text: linear, exp or a map such as ``{1: 1, 2: 5}``.

    >>> gain_setting("exp"), gain_setting({2: 5, 1: 1}), gain_setting("{1: 1, 2: 5}")
    ('exp', '{1: 1, 2: 5}', '{1: 1, 2: 5}')
    """
    gains = GAIN_ALIASES.get(value, value) if isinstance(value, str) else value
    if gains in ("linear", "exp"):
        return str(gains)
    if isinstance(gains, str):
        try:
            gains = ast.literal_eval(gains)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            gains = None
    if not isinstance(gains, Mapping):
        raise UsageError(
            f"gain is {value!r}; it can be linear, exp or a map such as {{1: 1, 2: 5}}"
        )
    return show_map(gain_map(gains, f"{value!r}"))


_ABOVE_0 = "a whole number above 0"
# Fewer resamples are useless; more are probably a typing error.
_SETTINGS: Mapping[str, tuple[str, ...] | _Number | Callable[[Any], Any]] = {
    "order": ("score", "rank"),
    "ties": ("id-asc", "id-desc", "given"),
    "repeats": ("keep", "drop"),
    "missing": ("zero", "skip"),
    "empty_gold": ("apart", "zero"),
    "missing_ids": ("refuse", "allow"),
    "level": ("item", "doc", "span"),
    "rel": _Number("a number above 0", ANY_GRADE, 1e12, whole=False),
    "gain": gain_setting,
    "depth": _Number(_ABOVE_0, 1, 10**12),
    "cover": _Number("a share, above 0 and at most 1", ANY_GRADE, 1, whole=False),
    "k": _Number(_ABOVE_0, 1, 10**12),
    "interval": ("gaffke", "percentile", "none"),
    "unit": ("query", "group"),
    "ci": _Number("a share from 0.5 to below 1, such as 0.95", 0.5, 1 - 2**-53, whole=False),
    "boot": _Number("a whole number from 100 to 1,000,000", 100, 1_000_000),
    "permutations": _Number("a whole number from 100 to 10,000,000", 100, 10_000_000),
    "seed": _Number("a whole number from 0", 0, 2**63 - 1),
    "versions": _versions,
    "short_lists": ("complete",),
}
SETTABLE = tuple(_SETTINGS)
_OPTIONAL = {"versions", "short_lists"}
# The ranking column comes from the run, and resampling follows the values.
_INDECISIVE = {"profile", "order", "missing_ids", "short_lists"}
_RESAMPLING = {"interval", "unit", "ci", "boot", "permutations", "seed"}
# What a query's value depends on.
DECISIVE = tuple(
    field.name
    for field in dataclasses.fields(Conventions)
    if field.name not in _INDECISIVE | _RESAMPLING
)


@dataclass(frozen=True, slots=True)
class Profile:
    """A named reading: its conventions and the measures it reports by default.

    ``primary`` is the measure that decides a comparison. ``no_regression`` says which measures
    may not get worse: the primary one, or all of them.
    """

    name: str
    about: str
    conventions: Conventions
    measures: tuple[str, ...]
    primary: str
    no_regression: Literal["primary", "all"] = "primary"


_TREC = Conventions(
    profile="trec",
    order="score",
    ties="id-desc",
    repeats="drop",
    missing="skip",
    empty_gold="zero",
    score_type="float32",
    whole_grades=True,
    duplicates="last",
    short_lists="complete",
)
_TREC_10 = replace(
    _TREC, profile="trec10", score_type="float64", recall_point="round", duplicates="refuse"
)
_TREC_MEASURES = (
    *("NumRet", "NumRel", "NumRelRet", "AP", "GMAP", "Rprec", "Bpref", "RR"),
    *(f"IPrec@{x / 10:.1f}" for x in range(11)),
    *(f"P@{k}" for k in (5, 10, 15, 20, 30, 100, 200, 500, 1000)),
)
_RAG_MEASURES = (
    *(f"Hit@{k}" for k in (1, 3, 5, 10, 20)),
    *(f"R@{k}" for k in (1, 3, 5, 10, 20)),
    *("WR@5", "RR", "nDCG@5", "AP@10", "P@5"),
    *("DistinctDocs@5", "Redundancy@5", "Novelty@5", "Fresh@5", "AUC@20"),
    *("latency.retrieve.p50", "latency.retrieve.p90"),
    *("latency.rerank.p50", "latency.rerank.p90"),
)
_MEMORY_MEASURES = (
    *(f"Hit@{k}" for k in (1, 3, 5, 10)),
    *("RR", "nDCG@10", "P@5", "Sim@10", "FPR@1", "Coverage(of='items')@10"),
    *("latency.total.p50", "latency.total.p95", "latency.total.p99"),
)
# Profiles of systems that score inputs without checking that they fit.
_LENIENT = Conventions(missing_ids="allow", short_lists="complete")

PROFILES: Mapping[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(
            "karat",
            "karat's defaults: gaps count as 0 and are reported",
            Conventions(),
            ("nDCG@10", "RR@10", "R@1", "R@3", "R@5", "R@10", "P@5", "AP@100"),
            primary="nDCG@10",
        ),
        Profile("trec", "trec_eval 9, as pytrec_eval has it", _TREC, _TREC_MEASURES, primary="AP"),
        Profile("trec10", "trec_eval 10", _TREC_10, _TREC_MEASURES, primary="AP"),
        Profile(
            "story",
            "a story tool's RQ: ties in story order, unlabelled queries skipped",
            replace(_LENIENT, profile="story", order="score", ties="given", k=5),
            ("RR", "R@k"),
            primary="RR",
        ),
        Profile(
            "rag",
            "a RAG course's lesson: logged ranks, exponential gains, no-answer items apart",
            Conventions(profile="rag", order="rank", gain="exp", k=5),
            _RAG_MEASURES,
            primary="nDCG@5",
        ),
        Profile(
            "memory",
            'a memory system\'s targets: its "Recall@K" is Hit@K, linear gains',
            Conventions(profile="memory", order="score"),
            _MEMORY_MEASURES,
            primary="Hit@1",
            no_regression="all",
        ),
        Profile(
            "ab",
            "an A/B harness: relevant is any grade above 0, unlabelled queries count 0",
            replace(
                _LENIENT, profile="ab", order="score", empty_gold="zero", rel=ANY_GRADE, gain="exp"
            ),
            ("R@k", "RR@k", "nDCG@k"),
            primary="nDCG@k",
        ),
        Profile(
            "minimal",
            "a minimal eval loop: the order returned, questions outside the KB are not misses",
            replace(_LENIENT, profile="minimal", order="rank", k=5),
            ("Hit@k", "R@k", "P@k", "RR@k"),
            primary="Hit@k",
        ),
    )
}


def conventions_of(profile: str, settings: Mapping[str, Any] | None = None) -> Conventions:
    """Return the conventions of a profile with some of them changed.

    >>> conventions_of("trec", {"missing": "zero"}).missing
    'zero'
    >>> conventions_of("karat", {"tie": "given"})
    Traceback (most recent call last):
    karat.errors.UsageError: unknown setting 'tie'; did you mean ties?
    """
    if not isinstance(profile, str) or not isinstance(settings, Mapping | None):
        raise UsageError("profile is a name, and settings a dict such as {'ties': 'given'}")
    if profile not in PROFILES:
        raise unknown("profile", profile, PROFILES)
    values = {key: _value(key, value) for key, value in (settings or {}).items()}
    return replace(PROFILES[profile].conventions, **values)


def _value(key: str, value: Any) -> Any:
    if key not in _SETTINGS:
        raise unknown("setting", str(key), SETTABLE)
    setting = _SETTINGS[key]
    if isinstance(setting, _Number):
        return setting.read(key, value)
    if not isinstance(setting, tuple):
        return setting(value)
    if value not in setting:
        raise UsageError(f"{key} is {value!r}; it can be {', '.join(setting)}")
    return value


def setting_names() -> list[str]:
    """Return what ``--set`` takes, with the values of each where they are few."""
    words = {key: setting for key, setting in _SETTINGS.items() if isinstance(setting, tuple)}
    words["gain"] = ("linear", "exp")
    return [f"{key}={'|'.join(words[key])}" if key in words else key for key in SETTABLE]


def gain_map(gains: Mapping[Any, Any], where: str) -> GainMap:
    """Return gains by grade, for hashing; each a finite number that is not negative."""
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


def show_map(gains: GainMap) -> str:
    """Return a map of gains as measures print it.

    >>> show_map(((1.0, 1.0), (2.0, 5.0)))
    '{1: 1, 2: 5}'
    """
    return "{" + ", ".join(f"{show_number(g)}: {show_number(worth)}" for g, worth in gains) + "}"


def show_number(value: Any) -> str:
    """Return a number or text as measures print it: the shortest form that reads the same again."""
    exact = isinstance(value, float) and float(f"{value:g}") == value
    return f"{value:g}" if exact else repr(value)


@lru_cache(maxsize=64)
def gain_of_setting(text: str) -> Gain:
    """Return the gain that the convention stands for, as measures take it."""
    return text if text in ("linear", "exp") else ast.literal_eval(text)  # type: ignore[return-value]
