"""The charts of a page: their figures worked by hand, what they say, and what is left out."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from karat.reports.html.charts import charts_of
from karat.reports.html.render import environment


def point(k, mean, *, ceiling=1.0, wide=0.1):
    ci = None if wide is None or mean is None else [mean - wide, mean + wide]
    return {"k": k, "mean": mean, "ci": ci, "n": 30, "ceiling": ceiling, "headroom": None}


def curve(*points, knee=None):
    return {"points": list(points), "knee": knee, "knee_because": None, "area": None}


def part(name, lost, *, queries=3):
    return {"part": name, "lost": lost, "ci": None, "queries": queries, "share": 0.1}


FALL = {
    "measure": "R@10",
    "ceiling": 0.9,
    "value": 0.5,
    "n": 30,
    "parts": [
        *(part("retriever", 0.3), part("filters", 0.0)),
        *(part("cut_off", 0.2), part("reranker", -0.1)),
    ],
    "unknown": {"filters": "needs the raw lists in the log"},
    "ends_at": None,
}


def stage(p50, p95, *, share=None):
    spread = {name: {"value": None, "ci": None} for name in ("mean", "p90", "p99")}
    own = {"n": 30, "p50": {"value": p50, "ci": None}, "p95": {"value": p95, "ci": None}}
    return own | spread | ({} if share is None else {"share": share})


def system(name, *, quality=0.6, total: float | None = 10.0, **other) -> dict[str, Any]:
    made = {
        "name": name,
        "measures": {
            "size": {"mean": 5.0, "ci": None, "n": 30, "better": "none"},
            "R@5": {"mean": quality, "ci": None, "n": 30, "better": "higher"},
        },
        "sweep": {"measures": {"R": curve(point(1, 0.2), point(5, 0.6), point(10, 0.61), knee=5)}},
        "waterfalls": [FALL],
    }
    if total is not None:
        stages = {"total": stage(total, 2 * total), "search": stage(0.8 * total, total, share=0.8)}
        made["latency"] = {"stages": stages}
    return made | other


def document(*systems, k: int | None = 5, primary="R@5", **other) -> dict[str, Any]:
    made = {"conventions": {"k": k, "ci": 0.95}, "systems": list(systems)}
    return {**made, "rule": {"primary": primary}, **other}


def charts(*systems, **other):
    return {chart.id: chart for chart in charts_of(document(*systems, **other))}


def rows(chart):
    return chart.spec["data"]["values"]


def texts(spec) -> str:
    return json.dumps(spec, ensure_ascii=False)


def layers(chart, kind):
    return [layer for layer in chart.spec["layer"] if layer["mark"]["type"] == kind]


def test_every_kind_of_chart_is_made_in_the_order_of_the_sections():
    made = charts_of(document(system("a"), system("b")))
    found = [(chart.id, chart.section) for chart in made]
    assert found == [
        ("curve-0", "curves"),
        ("loss-0-0", "losses"),
        ("loss-1-0", "losses"),
        ("latency", "latency"),
        ("trade", "trade"),
    ]


def test_a_curve_has_the_points_that_were_measured_with_their_ends():
    line = curve(point(1, 0.25, wide=0.05), point(5, 0.5, wide=None), point(20, None))
    chart = charts(system("a", sweep={"measures": {"R": line}}))["curve-0"]
    found = [(row["k"], row["mean"], row["low"], row["high"]) for row in rows(chart)]
    assert found == [(1, 0.25, pytest.approx(0.2), pytest.approx(0.3)), (5, 0.5, None, None)]
    # What was not measured is still a row of the table.
    assert chart.table.grid == [
        ["k", "a"],
        ["1", "0.2500\t[0.20, 0.30]"],
        ["5", "0.5000\t"],
        ["20", "-\t"],
    ]


def test_the_knee_alone_is_ringed_and_the_sentence_says_what_a_ring_is():
    chart = charts(system("a"))["curve-0"]
    assert [row["k"] for row in rows(chart) if row["knee"]] == [5]
    assert "a ring is where a curve levels off" in chart.about
    steep = curve(point(1, 0.2), point(5, 0.6))
    plain = charts(system("a", sweep={"measures": {"R": steep}}))["curve-0"]
    assert not any(row["knee"] for row in rows(plain))
    assert "ring" not in plain.about


def marks_of_k(chart):
    return [layer["data"]["values"] for layer in layers(chart, "rule") if "data" in layer]


def test_the_k_of_the_report_is_marked_where_the_axis_reaches_it():
    assert marks_of_k(charts(system("a"), k=5)["curve-0"]) == [[{"k": 5, "name": "k = 5"}]]
    assert marks_of_k(charts(system("a"), k=7)["curve-0"]) == [[{"k": 7, "name": "k = 7"}]]
    for elsewhere in (50, None):
        assert marks_of_k(charts(system("a"), k=elsewhere)["curve-0"]) == []


def test_a_ceiling_below_one_is_drawn_as_the_best_reachable():
    line = curve(point(1, 0.2, ceiling=0.4), point(5, 0.6, ceiling=1.0))
    chart = charts(system("a", sweep={"measures": {"R": line}}))["curve-0"]
    (best,) = [layer["data"]["values"] for layer in layers(chart, "line") if "data" in layer]
    assert best == [{"k": 1, "mean": 0.4}, {"k": 5, "mean": 1.0}]
    assert [row[-1] for row in chart.table.grid] == ["ceiling", "0.4000", ""]
    plain = charts(system("a"))["curve-0"]
    assert not [layer for layer in layers(plain, "line") if "data" in layer]


def test_a_curve_says_its_value_at_the_report_s_k_and_where_it_is_flat():
    low = curve(point(1, 0.1), point(5, 0.3), point(10, 0.5))
    chart = charts(system("good"), system("poor", sweep={"measures": {"R": low}}))["curve-0"]
    assert chart.about.startswith(
        "R at k = 5 is 0.6000 [0.50, 0.70] for good and 0.3000 [0.20, 0.40] for poor."
    )
    assert chart.table.lines[0].startswith("good: ▁██ knee at k = 5")
    # A k that was not measured is not spoken of: the largest that was is.
    one = charts(system("good"), k=7)["curve-0"]
    assert one.about.startswith("R at k = 10 is 0.6100 [0.51, 0.71] for good.")


def test_of_many_systems_the_best_are_named():
    def at_five(name, mean):
        return system(name, sweep={"measures": {"R": curve(point(5, mean, wide=None))}})

    many = [at_five(f"s{n}", n / 20) for n in (4, 9, 2, 7)]
    assert charts(*many)["curve-0"].about == (
        "R at k = 5 is 0.4500 for s9, 0.3500 for s7, 0.2000 for s4 and 1 more."
    )


def test_a_measure_that_only_some_systems_have_keeps_their_colours():
    other = {"nDCG": curve(point(1, 0.3), point(5, 0.3))}
    made = charts(system("a"), system("b", sweep={"measures": other}))
    assert made["curve-0"].table.grid[0] == ["k", "a"]
    assert made["curve-1"].table.grid[0] == ["k", "b"]
    (line,) = layers(made["curve-1"], "line")
    assert line["encoding"]["color"]["scale"]["range"] == ["var(--series-2)"]


def test_a_waterfall_goes_down_from_the_ceiling_to_the_value():
    chart = charts(system("a"))["loss-0-0"]
    spans = [(row["part"], round(row["low"], 9), round(row["high"], 9)) for row in rows(chart)]
    assert spans == [
        ("ceiling", 0.0, 0.9),
        ("retriever", 0.6, 0.9),
        ("filters", 0.6, 0.6),
        ("cut_off", 0.4, 0.6),
        ("reranker", 0.4, 0.5),
        ("value", 0.0, 0.5),
    ]
    names = ["0.9000", "−0.3000", "?", "−0.2000", "+0.1000", "0.5000"]
    assert [row["name"] for row in rows(chart)] == names
    colours = {row["part"]: row["colour"] for row in rows(chart)}
    assert colours["cut_off"] != colours["reranker"]
    joins = chart.spec["layer"][0]["data"]["values"]
    assert [round(one["level"], 9) for one in joins] == [0.9, 0.6, 0.6, 0.4, 0.5]


def test_a_waterfall_names_the_largest_losses():
    chart = charts(system("a"))["loss-0-0"]
    assert chart.about == (
        "From its ceiling 0.9000 to its value 0.5000, R@10 loses 0.3000 in retriever and 0.2000 in"
        " cut_off."
    )
    assert ["filters", "-", "", ""] in [row[:4] for row in chart.table.grid]
    assert chart.table.lines == ["not known: filters needs the raw lists in the log"]
    short = FALL | {"parts": [part("retriever", 0.0)], "unknown": {}, "value": 0.9}
    assert charts(system("a", waterfalls=[short]))["loss-0-0"].about == (
        "From its ceiling 0.9000 to its value 0.9000, R@10 loses nothing."
    )


def test_a_waterfall_without_a_value_is_left_out():
    empty = FALL | {"value": None, "ceiling": None}
    made = charts(system("a", waterfalls=[empty, FALL]))
    assert [name for name in made if name.startswith("loss")] == ["loss-0-1"]


def test_the_title_names_the_system_where_there_are_several():
    assert charts(system("a"))["loss-0-0"].title == "R@10"
    assert charts(system("a"), system("b"))["loss-1-0"].title == "b: R@10"


def test_latencies_go_from_the_median_to_p95_with_the_whole_call_last():
    chart = charts(system("a", total=10.0), system("b", total=None))["latency"]
    found = [(row["stage"], row["p50"], row["p95"]) for row in rows(chart)]
    assert sorted(found) == [("search", 8.0, 10.0), ("total", 10.0, 20.0)]
    (points,) = layers(chart, "point")
    assert points["encoding"]["y"]["sort"] == ["search", "total"]
    assert [row[0] for row in chart.table.grid] == ["stage", "search", "total"]
    assert chart.about == "A call takes 10.0 ms with a at the median."


def test_a_stage_without_a_p95_is_a_point_and_one_without_a_median_is_not_drawn():
    stages = {"fast": stage(1.0, None), "none": stage(None, None)}
    chart = charts(system("a", latency={"stages": stages}))["latency"]
    assert [(row["stage"], row["p95"]) for row in rows(chart)] == [("fast", None)]
    assert [row[0] for row in chart.table.grid] == ["stage", "fast", "none"]
    assert chart.about == "Fast takes 1.00 ms with a at the median."


def test_times_far_apart_stand_on_a_log_scale_and_the_axis_says_so():
    near = charts(system("a", total=10.0), system("b", total=40.0))["latency"]
    far = charts(system("a", total=1.0), system("b", total=400.0))["latency"]
    axes = [layers(chart, "point")[0]["encoding"]["x"] for chart in (near, far)]
    assert [axis["scale"]["type"] for axis in axes] == ["linear", "log"]
    assert [axis["title"] for axis in axes] == ["ms", "ms, log scale"]
    assert axes[0]["scale"]["domain"] == [0.0, 80.0]


def test_quality_against_latency_joins_those_that_none_beats():
    made = charts(
        system("quick", quality=0.4, total=5.0),
        system("good", quality=0.8, total=20.0),
        system("slow", quality=0.7, total=30.0),
    )
    chart = made["trade"]
    assert {row["system"]: row["front"] for row in rows(chart)} == {
        "quick": True,
        "good": True,
        "slow": False,
    }
    assert [[cell.rstrip() for cell in row] for row in chart.table.grid[1:]] == [
        ["quick", "0.4000", "5.00", "front"],
        ["good", "0.8000", "20.0", "front"],
        ["slow", "0.7000", "30.0", "beaten by good"],
    ]
    assert chart.about.startswith(
        "No system beats quick (0.4000 at 5.00 ms) and good (0.8000 at 20.0 ms) in both R@5 and"
        " latency."
    )


def test_a_measure_that_is_better_low_turns_the_front_around():
    pair = [system("quick", quality=0.4, total=5.0), system("good", quality=0.8, total=20.0)]
    for one in pair:
        one["measures"]["R@5"]["better"] = "lower"
    assert [row["front"] for row in rows(charts(*pair)["trade"])] == [True, False]


def test_the_measure_that_decides_is_drawn_if_one_of_its_sides_is_better():
    other = system("a")
    other["measures"]["RR"] = {"mean": 0.3, "ci": None, "n": 30, "better": "higher"}
    assert rows(charts(other, primary="RR")["trade"])[0]["quality"] == 0.3
    assert "trade" not in charts(other, primary="size")


def test_a_system_without_latency_stands_in_the_table_of_quality_against_latency():
    chart = charts(system("a"), system("b", total=None))["trade"]
    assert [row["system"] for row in rows(chart)] == ["a"]
    assert chart.table.lines == ["b: has no latency"]


def test_a_report_without_curves_losses_or_latency_has_no_charts():
    stored = system("a", total=None)
    del stored["sweep"], stored["waterfalls"]
    assert charts_of(document(stored)) == []


def test_a_stored_baseline_beside_a_new_system_has_no_line_but_is_no_obstacle():
    stored = system("old", total=None)
    del stored["sweep"], stored["waterfalls"]
    made = charts(stored, system("new"))
    assert made["curve-0"].table.grid[0] == ["k", "new"]
    assert "loss-1-0" in made
    assert "loss-0-0" not in made


def test_twelve_systems_differ_in_colour_or_shape():
    chart = charts(*(system(f"s{n}") for n in range(12)))["curve-0"]
    (dots,) = layers(chart, "point")[-1:]
    drawn = dots["encoding"]
    pairs = zip(drawn["color"]["scale"]["range"], drawn["shape"]["scale"]["range"], strict=True)
    assert len(set(pairs)) == 12


def test_two_names_that_look_alike_keep_two_lines():
    chart = charts(system("a\x01"), system("a\x02"))["curve-0"]
    assert {row["system"] for row in rows(chart)} == {"a�", "a�-2"}
    assert chart.table.grid[0] == ["k", "a�", "a�-2"]


def test_a_name_from_right_to_left_does_not_turn_the_sentence_around():
    made = charts(system("אבג"), system("plain"))
    assert "\u2068אבג\u2069" in made["curve-0"].about
    assert made["loss-0-0"].title == "\u2068אבג\u2069: R@10"
    assert "\u2068" not in made["loss-1-0"].title


def test_a_name_that_overrides_the_direction_is_made_harmless():
    made = charts(system("a\u202eb\x1b[2J"), system("<script>"))
    for chart in made.values():
        assert "\u202e" not in texts(chart.spec) + chart.about + chart.title
        assert "\x1b" not in texts(chart.spec) + str(chart.table.grid)


def test_specifications_hold_neither_widths_nor_colours_nor_addresses():
    for chart in charts_of(document(system("a"), system("b"))):
        assert not {"config", "width", "background", "$schema"} & set(chart.spec)
        assert "#" not in texts(chart.spec)
        assert "://" not in texts(chart.spec)


def test_the_same_document_gives_the_same_charts_and_is_left_as_it_was():
    one = document(system("a"), system("b"))
    before = copy.deepcopy(one)
    assert charts_of(one) == charts_of(before)
    assert one == before


def test_a_chart_on_a_page_is_a_figure_with_a_caption_and_a_table():
    page = environment().from_string(
        '{% from "sections/charts.html" import chart %}{{ chart(one) }}'
    )
    chart = charts(system("<script>alert(1)</script>"), system("b"))["curve-0"]
    shown = page.render(one=chart)
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert shown.count("<tr>") == len(chart.table.grid)
    assert 'data-chart="curve-0"' in shown
    assert " style=" not in shown
