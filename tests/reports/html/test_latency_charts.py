"""Names beside the points of a chart: none covers another, and none is outside."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from karat.report.html.latency_charts import NamedPoint, place_names

POINT = st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.text("abc", max_size=40))


def covered(one, other) -> float:
    """The area that two boxes (left, top, width, height) share."""
    sides = [
        min(one[at] + one[at + 2], other[at] + other[at + 2]) - max(one[at], other[at])
        for at in (0, 1)
    ]
    return max(sides[0], 0.0) * max(sides[1], 0.0)


@given(st.lists(POINT, min_size=1, max_size=15))
def test_no_label_covers_another_one_or_a_point_in_a_plot_of_240_by_250(points):
    found = place_names([NamedPoint(*one) for one in points], [0.0, 1.0], [0.0, 1.0])
    middles = [(240 * x, 250 - 250 * y) for x, y, _ in points]
    dots = [(x - 5, y - 5, 10, 10) for x, y in middles]
    boxes = []
    for (x, y), label in zip(middles, found, strict=True):
        if label["name"]:
            wide = 6.5 * len(label["name"])
            left = x + label["dx"] - (wide if label["align"] == "right" else 0)
            boxes.append((left, y + label["dy"] - 6, wide, 12))
            assert left >= 0
            assert left + wide <= 240
    for at, box in enumerate(boxes):
        assert not any(covered(box, dot) for dot in dots)
        assert not any(covered(box, other) for other in boxes[:at])


@given(POINT)
def test_a_lone_point_is_always_labelled(point):
    (label,) = place_names([NamedPoint(*point)], [0.0, 1.0], [0.0, 1.0])
    assert label["name"] is not None
    assert label["name"].rstrip("…") == point[2][: len(label["name"].rstrip("…"))]


def test_a_label_stands_above_to_the_right_unless_that_is_outside():
    middle, right = (
        place_names([NamedPoint(x, 0.5, "bm25")], [0, 10], [0, 1])[0] for x in (5.0, 10.0)
    )
    assert middle["align"] == "left"
    assert middle["dx"] > 0 > middle["dy"]
    assert right["align"] == "right"
    assert right["dx"] < 0


def test_a_log_axis_places_labels_by_ratios():
    # The middle of 1 to 100 by ratios is 10: to its right there is room for a long name.
    (label,) = place_names(
        [NamedPoint(10.0, 0.5, "abcdefghijklmno")], [1, 100], [0, 1], by_ratio=True
    )
    assert label["align"] == "left"
    (label,) = place_names(
        [NamedPoint(60.0, 0.5, "abcdefghijklmno")], [1, 100], [0, 1], by_ratio=True
    )
    assert label["align"] == "right"
