"""Trends as drawings: where points stand, and where no line may lead from one to the next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from karat.data.columns import Source
from karat.measure.scores import Summary
from karat.reports import history
from karat.reports.history import EDGE, HEIGHT, WIDTH
from karat.store import SavedEvaluation, TrendPoint

from .made_documents import attributes

START = datetime(2026, 1, 1, tzinfo=UTC)


def trend_lines(points, **more):
    return attributes(history.trend_lines(points, **more))


def points(means, *, system="bm25", breaks=(), first=1):
    made, before = [], None
    for at, mean in enumerate(means):
        broken = ("gold",) if at in breaks else ()
        known = mean is not None and before is not None and not broken
        made.append(
            TrendPoint(
                measure="RR",
                saved=SavedEvaluation(
                    id=first + at,
                    report_id=1,
                    saved_at=START + timedelta(days=first + at),
                    system=system,
                    summaries={
                        "RR": Summary(
                            mean=mean,
                            n=10,
                            better="higher",
                            ci=None,
                        )
                    },
                    conventions={},
                    version="1",
                    run=Source("run"),
                    gold=Source("gold"),
                ),
                breaks=broken,
                change=mean - before if known else None,
            )
        )
        before = mean
    return made


def test_points_stand_evenly_from_the_lowest_to_the_highest():
    (line,) = trend_lines(points([0.2, 0.6, 0.4]))
    assert [dot.x for dot in line.dots] == [EDGE, WIDTH / 2, WIDTH - EDGE]
    assert [dot.y for dot in line.dots] == [HEIGHT - EDGE, EDGE, HEIGHT / 2]
    assert line.paths == ["M6 50 L120 6 L234 28"]
    assert (line.last, line.changed) == ("0.4000", "−0.2000")
    assert line.about == "3 evaluations, 0.2000 at first, 0.4000 at last"


def test_no_line_leads_across_a_break():
    (line,) = trend_lines(points([0.1, 0.2, 0.9, 0.8], breaks={2}))
    assert len(line.paths) == 2
    (broken,) = line.breaks
    assert broken.about == "other gold"
    assert line.dots[1].x < broken.x < line.dots[2].x
    assert "not comparable throughout: other gold" in line.about


def test_no_line_leads_across_what_was_not_measured():
    (line,) = trend_lines(points([0.1, None, 0.3, 0.2]))
    assert [dot.id for dot in line.dots] == [1, 3, 4]
    assert len(line.paths) == 1
    assert line.paths[0].startswith(f"M{line.dots[1].x:g} ")


@pytest.mark.parametrize("means", [[0.5], [0.5, 0.5], [None], [None, None]])
def test_what_never_moves_stands_in_the_middle(means):
    (line,) = trend_lines(points(means))
    assert all(dot.y == HEIGHT / 2 for dot in line.dots)
    assert len(line.dots) == sum(mean is not None for mean in means)


def test_the_system_saved_last_comes_first_with_its_last_points():
    old = points([0.1] * 5, system="a-old", first=1)
    new = points([0.2, 0.3, 0.4], system="b-new", first=10)
    lines = trend_lines([*old, *new], last=2)
    assert [line.system for line in lines] == ["b-new", "a-old"]
    assert [dot.id for dot in lines[0].dots] == [11, 12]


def test_a_change_too_small_to_be_seen_is_steady_and_has_no_sign():
    (line,) = trend_lines(points([0.2, 0.2 - 1e-9]))
    assert (line.changed, line.steady) == ("0.0000", True)
    (line,) = trend_lines(points([0.2, 0.3]))
    assert (line.changed, line.steady) == ("+0.1000", False)
    (line,) = trend_lines(points([0.2]))
    assert (line.changed, line.steady) == ("", False)
