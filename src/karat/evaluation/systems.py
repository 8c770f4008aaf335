"""The systems of a comparison: each with one run, or with repeated runs of the same system."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from karat.errors import UsageError
from karat.measures.aggregates import Values
from karat.measures.conventions import DECISIVE, Conventions
from karat.measures.names import Measure
from karat.measures.scores import Scores

# What tells repeated runs of one system apart: dense-1, dense.run2, dense_seed3.
_REPEAT = re.compile(r"(?<=.)[-_.]?(?:(?:run|rep|replicate|seed|(?<=[-_.])r)[-_]?)?\d+$", re.I)


@dataclass(frozen=True, eq=False)
class ComparedSystem:
    """A system to be compared: its name, and the scores of each of its runs."""

    name: str
    runs: tuple[Scores, ...]

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What it was scored by."""
        return self.runs[0].measures

    @property
    def conventions(self) -> Conventions:
        """Return the conventions it was scored under."""
        return self.runs[0].conventions

    @property
    def height(self) -> int:
        """Return the number of queries, scored or not."""
        return self.runs[0].table.height

    def matrix(self, measure: str) -> Values:
        """One row a query, one column a run."""
        return np.stack([run.values(measure) for run in self.runs], axis=1)

    def values(self, measure: str) -> Values:
        """One value a query: the mean over its runs, of those that have one."""
        if len(self.runs) == 1:
            return self.runs[0].values(measure)
        matrix = self.matrix(measure)
        known = ~np.isnan(matrix)
        total = np.where(known, matrix, 0.0).sum(axis=1)
        return np.where(known.any(axis=1), total / np.maximum(known.sum(axis=1), 1), np.nan)


@dataclass(frozen=True, eq=False)
class Pair:
    """A system and what it is compared with."""

    baseline: ComparedSystem
    system: ComparedSystem
    identical: bool = False

    @property
    def names(self) -> tuple[str, str]:
        """Return the names of both."""
        return self.baseline.name, self.system.name

    @property
    def scores(self) -> tuple[Scores, Scores]:
        """Return the first run of both."""
        return self.baseline.runs[0], self.system.runs[0]

    @property
    def repeated(self) -> bool:
        """Return whether one of them was run more than once."""
        return len(self.baseline.runs) + len(self.system.runs) > 2

    def values(self, measure: str) -> tuple[Values, Values]:
        """One value a query of both."""
        return self.baseline.values(measure), self.system.values(measure)


def compared_systems(
    scores: Sequence[Scores], *, replicates: bool = False, names: Sequence[str] | None = None
) -> list[ComparedSystem]:
    """Return the systems, in order; with ``replicates`` the runs of one name are one system.

    Runs belong together that log the same system or whose names differ in a last number only.
    """
    own = [one.system for one in scores] if names is None else list(names)
    if not replicates:
        distinct = distinct_names(own)
        return [ComparedSystem(name, (one,)) for name, one in zip(distinct, scores, strict=True)]
    together: dict[str, list[Scores]] = {}
    for name, one in zip(own, scores, strict=True):
        logged = one.meta.get("system")
        system = str(logged) if logged else _REPEAT.sub("", name) or name
        together.setdefault(system, []).append(one)
    if all(len(some) == 1 for some in together.values()):
        raise UsageError(
            f"no system has repeated runs: {', '.join(together)}; name them alike,"
            " as in dense-1.trec dense-2.trec, or leave --replicates out"
        )
    return [ComparedSystem(name, tuple(some)) for name, some in together.items()]


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return the names in order, each once: a repeated one gets a number that is still free.

    >>> distinct_names(["bm25", "bm25", "dense", "bm25"])
    ['bm25', 'bm25-2', 'dense', 'bm25-3']
    """
    taken = set(names)
    seen: set[str] = set()
    distinct = []
    for name in names:
        number, candidate = 2, name
        while candidate in seen or (candidate != name and candidate in taken):
            number, candidate = number + 1, f"{name}-{number}"
        seen.add(candidate)
        distinct.append(candidate)
    return distinct


def check_comparable(systems: Sequence[ComparedSystem]) -> None:
    """Refuse scores that were not made alike, and say what differs."""
    scores = [run for system in systems for run in system.runs]
    for one in scores[1:]:
        different = differences(scores[0], one)
        if different:
            raise UsageError(
                f"{scores[0].system} and {one.system} cannot be compared:"
                f" {'; '.join(different)}; score both alike"
            )


def differences(a: Scores, b: Scores) -> list[str]:
    """What makes two systems' scores incomparable, in words."""
    if (told := _different_queries(a, b)) is not None:
        return [told]
    found = []
    if a.fingerprint != b.fingerprint:
        found.append("their gold differs")
    if a.measures != b.measures:
        names = {str(measure) for measure in a.measures} ^ {str(measure) for measure in b.measures}
        found.append(f"only one of them has {', '.join(sorted(names))}")
    for name in (*DECISIVE, "unit"):
        ours, theirs = (getattr(one.conventions, name) for one in (a, b))
        if ours != theirs:
            found.append(f"{name} is {ours} for one and {theirs} for the other")
    if a.conventions.missing == "skip" and not found:
        found += _different_answers(a, b)
    return found


def _different_queries(a: Scores, b: Scores) -> str | None:
    ours, theirs = a.table["query_id"].to_list(), b.table["query_id"].to_list()
    if ours == theirs:
        return None
    only = sorted(set(ours) ^ set(theirs))
    if not only:
        return "their queries stand in different order"
    many = "1 query is" if len(only) == 1 else f"{len(only):,} queries are"
    return f"{many} in only one of them, such as {only[0]!r}"


def _different_answers(a: Scores, b: Scores) -> list[str]:
    """With ``missing=skip`` a query that only one of them answers would count for that one."""
    skipped = ("missing", "failed")
    unlike = a.status.is_in(skipped) != b.status.is_in(skipped)
    only = a.table["query_id"].filter(unlike)
    if not len(only):
        return []
    many = "1 query was" if len(only) == 1 else f"{len(only):,} queries were"
    told = f"{many} answered by one of them only, such as {only[0]!r}, and missing=skip leaves"
    return [f"{told} those out of its mean; use --set missing=zero"]
