"""Charts: what is drawn and what is not, the same bytes each time, and no network."""

from __future__ import annotations

import json
import re

import pytest

from karat.analysis.sweep import sweep_chart
from karat.errors import MissingExtraError
from karat.pages import charts
from karat.pages.charts import marks_of, pareto_chart, png, stacked, svg, waterfall_chart


def point(k, mean, *, n=30, beyond=False):
    ci = None if mean is None else [mean - 0.05, mean + 0.05]
    return {"k": k, "mean": mean, "ci": ci, "n": n, "beyond_log": beyond}


def line(*means, knee=None, ks=(1, 3, 5, 10), n=30):
    points = [point(k, mean, n=n, beyond=mean is None) for k, mean in zip(ks, means, strict=True)]
    return {"points": points, "knee": knee}


def system(name, lines, *, segments=None, budget=None):
    return {"name": name, "measures": lines, "segments": segments or {}, "budget": budget}


def document(*systems, ks=(1, 3, 5, 10)):
    return {"ks": list(ks), "systems": list(systems)}


TOKENS = {"kind": "tokens", "points": [point(k, 50.0 * k) for k in (1, 3, 5, 10)]}
ONE = document(system("bm25", {"R": line(0.4, 0.6, 0.7, 0.7, knee=5)}, budget=TOKENS))


def panels(spec, column=0):
    return spec["concat"][column]["vconcat"]


def texts_of(drawing: bytes) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", drawing.decode())


def test_the_same_document_gives_the_same_drawing_to_the_byte():
    first, second = (svg(sweep_chart(json.loads(json.dumps(ONE)))) for _ in range(2))
    assert first == second
    assert first.startswith(b"<svg")


def test_a_picture_is_a_png():
    assert png(sweep_chart(ONE)).startswith(b"\x89PNG\r\n\x1a\n")


def test_a_drawing_names_measures_systems_and_cut_offs():
    texts = texts_of(svg(sweep_chart(ONE)))
    for text in ("R", "tokens", "bm25", "1", "3", "5", "10", "all queries"):
        assert text in texts


def test_nothing_is_fetched_and_no_drawing_points_anywhere():
    drawing = svg(sweep_chart(ONE)).decode()
    assert set(re.findall(r"https?://[^\"' )]+", drawing)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    abroad = {"data": {"url": "https://example.org/data.json"}, "mark": "point", "encoding": {}}
    with pytest.raises(ValueError, match=r"(?i)not allowed|base url"):
        svg(abroad)


def test_the_renderer_has_nothing_to_complain_about(capfd):
    import vl_convert

    segments = {"language": {"pt": {"R": line(0.1, 0.2, 0.3, 0.4)}}}
    both = document(system("a", {"R": line(0.4, 0.6, 0.7, 0.7, knee=5)}, segments=segments))
    for spec in (sweep_chart(ONE), sweep_chart(both), waterfall_chart(LOSSES), pareto_chart(SPEED)):
        vl_convert.vegalite_to_svg(spec, vl_version="5.20", show_warnings=True)
    assert capfd.readouterr().err == ""


def test_what_lies_beyond_a_log_is_not_drawn():
    spec = sweep_chart(document(system("short", {"R": line(0.4, 0.6, None, None)})))
    (panel,) = panels(spec)
    assert [row["place"] for row in panel["data"]["values"]] == [1, 3]
    # The axis still shows how far was asked for.
    assert panel["encoding"]["x"]["scale"]["domain"] == [1, 10]


def test_the_knee_alone_is_ringed():
    (panel, _) = panels(sweep_chart(ONE))
    assert [row["place"] for row in panel["data"]["values"] if row["knee"]] == [5]
    (ring,) = [layer for layer in panel["layer"] if layer.get("transform") == [KNEE]]
    assert ring["mark"]["shape"] == "circle"


KNEE = {"filter": "datum.knee"}


def test_every_measure_has_a_panel_and_tokens_one_below():
    lines = {"R": line(0.4, 0.6, 0.7, 0.7), "nDCG": line(0.3, 0.4, 0.5, 0.5)}
    spec = sweep_chart(document(system("a", lines, budget=TOKENS)))
    titles = [panel["encoding"]["y"]["title"] for panel in panels(spec)]
    assert titles == ["R", "nDCG", "tokens"]


def test_a_latency_is_a_point_with_its_interval_at_the_k_of_its_log():
    def timed(k):
        budget = {"kind": "latency.total.p50", "k": k, "mean": 20.0, "ci": [18.0, 25.0], "n": 9}
        return budget | {"because": None}

    lines = {"R": line(0.4, 0.6, 0.7, 0.7)}
    spec = sweep_chart(
        document(system("a", lines, budget=timed(10)), system("b", lines, budget=timed(50)))
    )
    _, below = panels(spec)
    assert below["encoding"]["y"]["title"] == "latency.total.p50 (ms)"
    assert {row["who"]: row["place"] for row in below["data"]["values"]} == {"a": 10, "b": 50}
    assert below["layer"][0]["mark"]["type"] == "rule"
    assert below["encoding"]["x"]["scale"]["domain"] == [1, 50]


def test_budgets_of_tokens_stand_by_their_size():
    ks = ("500tok", "1000tok", "2000tok")
    spec = sweep_chart(document(system("a", {"R": line(0.2, 0.3, 0.4, ks=ks)}), ks=ks))
    (panel,) = panels(spec)
    assert [row["place"] for row in panel["data"]["values"]] == [500, 1000, 2000]
    assert panel["encoding"]["x"]["title"] == "tokens"


def test_a_single_cut_off_is_drawn_too():
    spec = sweep_chart(document(system("a", {"R": line(0.5, ks=(5,))}), ks=(5,)))
    assert "5" in texts_of(svg(spec))


def test_panels_of_one_measure_share_their_scale_so_that_they_compare():
    segments = {"language": {"en": {"R": line(0.1, 0.1, 0.2, 0.2)}}}
    spec = sweep_chart(document(system("a", {"R": line(0.4, 0.6, 0.7, 0.9)}, segments=segments)))
    ends = {str(panel["encoding"]["y"]["scale"]) for at in (0, 1) for panel in panels(spec, at)}
    assert len(ends) == 1


def test_no_two_lines_look_alike():
    marks = marks_of([f"s{n}" for n in range(49)])
    pairs = set(zip(marks["color"]["range"], marks["shape"]["range"], strict=True))
    assert len(pairs) == 49


def test_a_name_that_steers_a_terminal_is_made_harmless():
    spec = sweep_chart(document(system("a\x1b[2J", {"R": line(0.4, 0.6, 0.7, 0.7)})))
    assert "\x1b" not in json.dumps(spec, ensure_ascii=False)


def test_a_missing_library_is_answered_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(charts, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'karat\[charts\]'"):
        png(sweep_chart(ONE))


LOSSES = {
    "measure": "R@10",
    "ceiling": 0.9,
    "value": 0.5,
    "parts": [
        {"part": "never retrieved", "lost": 0.3},
        {"part": "filters", "lost": None},
        {"part": "rerank", "lost": -0.1},
        {"part": "cut at k", "lost": 0.2},
    ],
    "unknown": {"filters": "needs the raw lists in the log"},
}
SPEED = {
    "measure": "nDCG@10",
    "latency": "latency.total.p50",
    "front": ["bm25", "dense"],
    "systems": [
        {"system": "bm25", "latency": {"value": 10.0}, "quality": {"value": 0.4}},
        {"system": "dense", "latency": {"value": 40.0}, "quality": {"value": 0.6}},
        {"system": "slow", "latency": {"value": 50.0}, "quality": {"value": 0.3}},
    ],
}


def test_a_waterfall_goes_down_from_the_ceiling_to_the_value():
    bars = waterfall_chart(LOSSES)["data"]["values"]
    spans = [(bar["part"], round(bar["low"], 9), round(bar["high"], 9)) for bar in bars]
    assert spans == [
        ("ceiling", 0.0, 0.9),
        ("never retrieved", 0.6, 0.9),
        ("filters", 0.6, 0.6),
        ("rerank", 0.6, 0.7),
        ("cut at k", 0.5, 0.7),
        ("value", 0.0, 0.5),
    ]
    names = ["0.9000", "-0.3000", "?", "+0.1000", "-0.2000", "0.5000"]
    assert [bar["name"] for bar in bars] == names
    assert "never retrieved" in texts_of(svg(waterfall_chart(LOSSES)))


def test_quality_against_latency_joins_those_that_none_beats():
    spec = pareto_chart(SPEED)
    assert spec["encoding"]["y"]["title"] == "nDCG@10"
    assert [point["front"] for point in spec["data"]["values"]] == [True, True, False]
    joined, dots = spec["layer"]
    assert joined["transform"] == [{"filter": "datum.front"}]
    assert dots["encoding"]["color"]["scale"]["domain"] == ["bm25", "dense", "slow"]
    assert svg(spec) == svg(pareto_chart(SPEED))


def test_charts_stand_below_each_other():
    drawn = texts_of(svg(stacked([waterfall_chart(LOSSES), pareto_chart(SPEED)])))
    assert "never retrieved" in drawn
    assert "Quality against latency" in drawn
