"""The rule of the playbook on segments: queries of one kind that fare worse than all others."""

from __future__ import annotations

import math

import numpy as np

from karat.analysis.playbook.case import Case, Finding, Mask, at_least, mean, short
from karat.analysis.segments import NONE, SMALL, By, Segment, segments_by
from karat.errors import MissingInputError
from karat.measures.numbers import Values
from karat.stats.corrections import holm
from karat.stats.student import standard_error, t_p
from karat.tables import Queries

# A column with more values than this is no segment column unless it is asked for.
MOST_VALUES = 20


def segment_gap(case: Case) -> list[Finding]:
    """Segments whose R lies clearly below that of all other queries."""
    near = case.near
    recall = case.values("R", near)
    # Of what has room: a segment with much gold a query is no worse for that.
    reached = recall / case.ceiling("R", near.k)
    tested = []
    for by, segment in _segments(case):
        inside, rest = segment.mask & ~np.isnan(reached), ~segment.mask & ~np.isnan(reached)
        if min(inside.sum(), rest.sum()) >= SMALL:
            tested.append((by, segment, inside, rest))
    if not tested:
        raise MissingInputError(f"needs a segment of {SMALL} queries with as many outside of it")
    gaps = [mean(reached[rest]) - mean(reached[inside]) for _, _, inside, rest in tested]
    wide = [at for at, gap in enumerate(gaps) if at_least(gap, case.lines.segment_gap)]
    if not wide:
        return []
    # The segments of a column are one family, whichever other columns are looked at.
    ps: dict[int, float | None] = {}
    for column in dict.fromkeys(str(by) for by, *_ in tested):
        own = [at for at, (by, *_) in enumerate(tested) if str(by) == column]
        tests = [_welch(case, reached, *tested[at][2:]) for at in own]
        ps |= dict(zip(own, holm(tests), strict=True))
    return [
        _gap(case, recall, tested[at], p)
        for at in sorted(wide, key=lambda one: (-gaps[one], one))
        if (p := ps[at]) is not None and p < case.alpha
    ]


def _gap(
    case: Case, recall: Values, tested: tuple[By, Segment, Mask, Mask], p: float | None
) -> Finding:
    by, segment, inside, rest = tested
    k = case.near.k
    own, others = mean(recall[inside]), mean(recall[rest])
    where = " and ".join(f"{column} = {value}" for column, value in segment.where.items())
    chance = "< 0.001" if p is not None and p < 0.001 else f"= {p:.2g}"
    look_at = "normalisation, tokenisation, stop words and synonyms there"
    sentence = (
        f"R@{k} {short(own)} where {where} ({int(inside.sum())} queries) but {short(others)} for"
        f" the other {int(rest.sum())}, p {chance}; look at {look_at}"
    )
    figures = {
        "column": str(by),
        "segment": segment.name,
        f"R@{k}": own,
        "rest": others,
        "n": int(inside.sum()),
        "n_rest": int(rest.sum()),
        "p": p,
    }
    return Finding("segment_gap", sentence, figures, look_at)


def _segments(case: Case) -> list[tuple[By, Segment]]:
    queries = case.queries
    if queries is None:
        raise MissingInputError("needs queries with attributes, such as language or topic")
    chosen = list(case.by) or [By((name,)) for name in queries.segments if _few(queries, name)]
    if not chosen:
        raise MissingInputError(
            f"needs an attribute of the queries with 2 to {MOST_VALUES} values; the queries have"
            f" {', '.join(queries.segments) or 'none'}"
        )
    ids = case.staged.final.table["query_id"]
    return [(by, segment) for by in chosen for segment in segments_by(ids, queries, by)]


def _few(queries: Queries, column: str) -> bool:
    """Whether a column has few enough values to make segments of it unasked."""
    seen: set[str] = set()
    for value in queries.frame[column].to_list():
        several = value if isinstance(value, list) and value else [value]
        seen.update(NONE if one is None else str(one) for one in several)
        if len(seen) > MOST_VALUES:
            return False
    return len(seen) > 1


def _welch(case: Case, values: Values, inside: Mask, rest: Mask) -> float:
    """Welch's t test of two means; queries of one conversation may depend on each other."""
    groups = case.staged.final.groups
    (a, df_a), (b, df_b) = (
        standard_error(values[mask], None if groups is None else groups[mask])
        for mask in (inside, rest)
    )
    difference = mean(values[rest]) - mean(values[inside])
    error = math.hypot(a, b)
    if math.isnan(error) or error == 0:
        return t_p(difference, error, 1)
    df = error**4 / (a**4 / df_a + b**4 / df_b)
    return t_p(difference, error, df)
