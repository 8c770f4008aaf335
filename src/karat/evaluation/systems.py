"""The systems of a comparison: repeated runs, a stored baseline, and the overlap of lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from karat.data.tables import Corpus, Gold, Queries
from karat.errors import UsageError
from karat.evaluation.verdict import Rule, primary_of
from karat.measure import aggregates
from karat.measure.aggregates import Values
from karat.measure.conventions import DECISIVE, Conventions
from karat.measure.lists import without_repeats
from karat.measure.names import Measure
from karat.measure.ranked import Ints, Mask
from karat.measure.scores import Scores
from karat.pages.formatting import plural
from karat.version import __version__

# How deep lists are compared, and where Jaccard looks.
DEPTH, TOP = 100, 10
# Deeper than any list.
WHOLE_LISTS = 1 << 31
# Ten items hold 86 % of the weight of a rank-biased overlap with this persistence.
PERSISTENCE = 0.9
_PLACE = ("row", "rank", "item_id")

# The suffixes of repeated runs of one system: dense-1, dense.run2, dense_seed3.
_REPEAT = re.compile(r"(?<=.)[-_.]?(?:(?:run|rep|replicate|seed|(?<=[-_.])r)[-_]?)?\d+$", re.I)


@dataclass(frozen=True, eq=False)
class ComparedSystem:
    """A system to be compared: its name, and the scores of each of its runs."""

    name: str
    runs: tuple[Scores, ...]

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Return the measures it was scored by."""
        return self.runs[0].measures

    @property
    def conventions(self) -> Conventions:
        """Return the conventions it was scored under."""
        return self.runs[0].conventions

    def matrix(self, measure: str) -> Values:
        """Return one row per query and one column per run."""
        return np.stack([run.values(measure) for run in self.runs], axis=1)

    def values(self, measure: str) -> Values:
        """Return one value per query: the mean over its runs, of those that have one."""
        if len(self.runs) == 1:
            return self.runs[0].values(measure)
        matrix = self.matrix(measure)
        has_value = ~np.isnan(matrix)
        total = np.where(has_value, matrix, 0.0).sum(axis=1)
        return np.where(has_value.any(axis=1), total / np.maximum(has_value.sum(axis=1), 1), np.nan)

    def number(self, measure: Measure, rows: Mask) -> float | None:
        """Return the measure's number over these queries; of repeated runs the mean of theirs."""
        numbers = [run.number(measure, rows) for run in self.runs]
        return aggregates.mean(np.array(numbers, dtype=np.float64))


def compared_systems(
    scores: Sequence[Scores], *, replicates: bool = False, names: Sequence[str] | None = None
) -> list[ComparedSystem]:
    """Return the systems, in order; with ``replicates`` the runs of one name are one system.

    Runs belong together if they log the same system or differ only in the last number of their
    names.
    """
    names = [run.system for run in scores] if names is None else names
    if not replicates:
        distinct = distinct_names(names)
        return [ComparedSystem(name, (run,)) for name, run in zip(distinct, scores, strict=True)]
    together: dict[str, list[Scores]] = {}
    for name, run in zip(names, scores, strict=True):
        logged = run.meta.get("system")
        system = str(logged) if logged else _REPEAT.sub("", name) or name
        together.setdefault(system, []).append(run)
    if all(len(runs) == 1 for runs in together.values()):
        raise UsageError(
            f"no system has repeated runs: {', '.join(together)}; name them alike,"
            " as in dense-1.trec dense-2.trec, or leave --replicates out"
        )
    return [ComparedSystem(name, tuple(runs)) for name, runs in together.items()]


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return the names in order, each once: a repeated one gets a number that is still free.

    >>> distinct_names(["bm25", "bm25", "dense", "bm25"])
    ['bm25', 'bm25-2', 'dense', 'bm25-3']
    """
    used_names = set(names)
    seen: set[str] = set()
    distinct = []
    for name in names:
        number, candidate = 2, name
        while candidate in seen or (candidate != name and candidate in used_names):
            number, candidate = number + 1, f"{name}-{number}"
        seen.add(candidate)
        distinct.append(candidate)
    return distinct


def check_comparable(systems: Sequence[ComparedSystem]) -> None:
    """Refuse scores made in different ways, and name the difference."""
    first, *others = [run for system in systems for run in system.runs]
    for other in others:
        if different := differences(first, other):
            raise UsageError(
                f"{first.system} and {other.system} cannot be compared:"
                f" {'; '.join(different)}; score both the same way"
            )


def differences(a: Scores, b: Scores) -> list[str]:
    """Return what makes two systems' scores incomparable, in words."""
    first_ids, second_ids = a.query_ids, b.query_ids
    if first_ids != second_ids:
        only = sorted(set(first_ids) ^ set(second_ids))
        if not only:
            return ["their queries are in a different order"]
        queries = plural(len(only), "query is", "queries are")
        return [f"{queries} in only one of them, such as {only[0]!r}"]
    different = []
    if a.fingerprint != b.fingerprint:
        different.append("their gold differs")
    if a.measures != b.measures:
        names = set(map(str, a.measures)) ^ set(map(str, b.measures))
        different.append(f"only one of them has {', '.join(sorted(names))}")
    for name in (*DECISIVE, "unit"):
        first, second = (getattr(scores.conventions, name) for scores in (a, b))
        if first != second:
            different.append(f"{name} is {first} for one and {second} for the other")
    if a.conventions.missing == "skip" and not different:
        # A query that only one of them answers would count for that one.
        skipped = ("missing", "failed")
        answered = a.ids(np.isin(a.status, skipped) != np.isin(b.status, skipped))
        if len(answered):
            queries = plural(len(answered), "query was", "queries were")
            different.append(
                f"{queries} answered by only one of them, such as {answered[0]!r}, and missing=skip"
                " leaves those out of its mean; use --set missing=zero"
            )
    return different


def with_baseline(
    ref: str,
    runs: Sequence[Scores],
    *,
    gold: Gold,
    queries: Queries | None,
    corpus: Corpus | None,
    notify: Callable[[str], None],
    store: str | None,
    primary: str | None = None,
) -> list[Scores]:
    """Return the stored baseline and the runs, all by the measures that they share.

    Refuses a baseline that was scored on other gold, queries or conventions, or lacks the
    deciding measure. Warns of one whose inputs are stale.
    The baseline is named after its tag, as in bm25@main.
    """
    from karat.store import Store
    from karat.store.differences import (
        find_same_run,
        reorder_like,
        staleness_warnings,
        with_common_measures,
    )

    with Store.open(store) as opened:
        stored = opened.baseline(ref)
    stored = replace(stored, scores=reorder_like(stored.scores, runs[0]))
    deciding = primary_of(Rule(primary=primary), runs[0].measures, runs[0].conventions).measure
    measures = dict.fromkeys(measure for run in runs for measure in run.measures)
    lacking = [str(measure) for measure in measures if measure not in stored.scores.measures]
    if deciding in lacking:
        raise UsageError(
            f"the baseline {ref} was not scored by {deciding}, the measure that decides;"
            " name another with --primary, or score it again and save it"
        )
    baseline, *runs = with_common_measures(stored.scores, runs)
    if different := dict.fromkeys(chain.from_iterable(differences(baseline, run) for run in runs)):
        raise UsageError(
            f"the baseline {ref} cannot be compared with these runs: {'; '.join(different)};"
            " score it again and save it"
        )
    warnings = staleness_warnings(
        stored,
        gold=gold.source,
        queries=None if queries is None else queries.source,
        corpus=None if corpus is None else corpus.source,
        runs=runs,
        version=__version__,
    )
    if lacking:
        warnings.insert(0, f"it was not scored by {', '.join(lacking)}")
    for sentence in warnings:
        notify(f"karat: warning: baseline {ref}: {sentence}")
    baseline = replace(baseline, system=f"{baseline.system}@{ref}")
    same = find_same_run(stored, runs)
    if same is not None and same.conventions.order == baseline.conventions.order:
        # Lists are not stored, but these are the very ones.
        baseline = replace(baseline, lists=same.lists)
    return [baseline, *runs]


def overlap(baseline: ComparedSystem, system: ComparedSystem) -> dict[str, Any] | None:
    """Compare the top 100 items of two systems' first runs; None where they were not kept.

    Means over the queries that both systems answered: the Jaccard index of the first 10, the
    extrapolated rank-biased overlap (p = 0.9), and Kendall's tau of the items in both lists, None
    where no query has two of them. Repeated runs are never called identical.
    """
    first, second = baseline.runs[0].lists, system.runs[0].lists
    if first is None or second is None:
        return None
    rows = np.intersect1d(first["row"].unique().to_numpy(), second["row"].unique().to_numpy())
    a, b = (_numbered(lists, rows) for lists in (first, second))
    common = a.join(b, on=["row", "item_id"], suffix="_b", maintain_order="left")
    at, ra, rb = (common[name].to_numpy() for name in ("row", "rank", "rank_b"))
    lengths = [np.bincount(lists["row"].to_numpy(), minlength=len(rows)) for lists in (a, b)]
    short = [np.minimum(length, TOP) for length in lengths]
    both = np.bincount(at[(ra <= TOP) & (rb <= TOP)], minlength=len(rows))
    same = first.select(_PLACE).sort(_PLACE).equals(second.select(_PLACE).sort(_PLACE))
    return {
        "baseline": baseline.name,
        "system": system.name,
        "queries": len(rows),
        f"Jaccard@{TOP}": aggregates.mean(both / (short[0] + short[1] - both)),
        "RBO": aggregates.mean(_rbo(at, np.maximum(ra, rb), lengths)),
        "tau": aggregates.mean(_tau(at, ra, rb, len(rows))),
        "identical": len(baseline.runs) + len(system.runs) == 2 and same,
    }


def identical_pairs(overlaps: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Return the names of the pairs whose lists are the same."""
    return {(shared["baseline"], shared["system"]) for shared in overlaps if shared["identical"]}


def _numbered(lists: pl.DataFrame, rows: Ints) -> pl.DataFrame:
    """Return the lists of these rows, numbered from 0, with each item once."""
    hits = without_repeats(lists.filter(pl.col("row").is_in(rows.tolist()))).sort("row", "rank")
    hits = hits.with_columns(rank=pl.int_range(1, pl.len() + 1).over("row"))
    return hits.with_columns(row=np.searchsorted(rows, hits["row"].to_numpy()))


def _rbo(at: Ints, depth: Ints, lengths: list[Ints]) -> Values:
    """Return the extrapolated RBO (Webber et al. 2010, equation 32) of lists of any lengths.

    An item in both lists belongs to their overlap from the deeper of its two ranks on, so
    each brings a tail of the weights p^d/d, which is a difference of two cumulated sums.
    """
    p, n = PERSISTENCE, len(lengths[0])
    short, long = np.minimum(*lengths), np.maximum(*lengths)
    d = np.arange(1, DEPTH + 1)
    power = np.concatenate(([0.0], np.cumsum(p**d)))
    share = np.concatenate(([0.0], np.cumsum(p**d / d)))
    agreed = np.bincount(at, weights=share[long[at]] - share[depth - 1], minlength=n)
    shared = np.bincount(at, minlength=n)
    shared_short = np.bincount(at[depth <= short[at]], minlength=n)
    missing = (power[long] - power[short]) / short - (share[long] - share[short])
    beyond = ((shared - shared_short) / long + shared_short / short) * p**long
    return np.asarray((1 - p) / p * (agreed + shared_short * missing) + beyond)


def _tau(at: Ints, ra: Ints, rb: Ints, n: int) -> Values:
    """Return Kendall's tau for each query with at least two items in both lists, else NaN."""
    taus = np.full(n, np.nan)
    order = np.argsort(at, kind="stable")
    ends = np.cumsum(np.bincount(at, minlength=n))
    for row, (start, end) in enumerate(zip(ends - np.diff(ends, prepend=0), ends, strict=True)):
        if end - start > 1:
            first, second = ra[order[start:end]], rb[order[start:end]]
            agree = np.sign(first[:, None] - first) * np.sign(second[:, None] - second)
            taus[row] = agree.sum() / (len(first) * (len(first) - 1))
    return taus
