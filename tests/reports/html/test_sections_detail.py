"""Segments, failures and stages of a page, worked out by hand from small documents."""

from __future__ import annotations

from .made_documents import (
    cell,
    compared,
    comparison,
    document,
    gate,
    page_of,
    part,
    sections_of,
    system,
    table,
)

VALUES = {
    "high": {"R@5": part(0.9, [0.85, 0.95])},
    "low": {"R@5": part(0.3, [0.2, 0.4])},
    "middle": {"R@5": part(0.75, [0.7, 0.9])},
    "one": {"R@5": part(0.9, None, n=1)},
}


def tones(made: dict, column: int = 0) -> dict[str, tuple[str, str]]:
    (heat,) = sections_of(made).segments.maps
    return {line.value: (line.cells[column].tone, line.cells[column].word) for line in heat.lines}


def test_a_cell_is_coloured_by_its_interval_against_the_gate():
    made = document(system("alpha", segments={"topic": VALUES}), gates=[gate("alpha")], blocking={})
    assert tones(made) == {
        "high": ("good", "above limit"),
        "low": ("bad", "below limit"),
        "middle": ("unsure", "around limit"),
        "one": ("unsure", "no interval"),
    }


def test_the_gate_of_a_segment_comes_before_that_of_all_queries():
    own = gate("alpha", segment={"topic": "low"}, min=0.1)
    made = document(
        system("alpha", segments={"topic": VALUES}), gates=[gate("alpha"), own], blocking={}
    )
    assert tones(made)["low"] == ("good", "above limit")
    assert tones(made)["middle"] == ("unsure", "around limit")


def test_a_gate_of_one_system_colours_the_others_too():
    made = document(
        system("alpha", segments={"topic": VALUES}),
        system("beta", segments={"topic": VALUES}),
        gates=[gate("beta")],
        blocking={},
    )
    assert tones(made, 0) == tones(made, 1)


def test_without_a_gate_a_cell_is_held_against_all_queries():
    made = document(system("alpha", {"R@5": cell(0.5)}, segments={"topic": VALUES}))
    assert tones(made)["high"] == ("good", "above overall")
    assert tones(made)["low"] == ("bad", "below overall")
    assert tones(made)["one"] == ("", "no interval")


def test_where_less_is_better_above_is_bad():
    times = {"slow": {"latency.p50": part(9.0, [8.0, 10.0])}}
    measures = {"latency.p50": cell(5.0, better="lower")}
    made = document(system("alpha", measures, segments={"topic": times}))
    assert tones(made)["slow"] == ("bad", "above overall")


def test_a_small_segment_is_hatched_and_says_so():
    page = page_of(document(system("alpha", segments={"topic": VALUES})))
    (small,) = page.all("td", cls="small-n")
    assert small.text.endswith("small n")


def test_a_difference_within_a_segment_stands_in_its_cell():
    within = comparison(
        "alpha",
        "beta",
        segment={"topic": "low"},
        delta=-0.2,
        ci=[-0.3, -0.1],
        verdict="worse",
        regression=True,
    )
    made = document(
        system("alpha", segments={"topic": VALUES}),
        system("beta", segments={"topic": VALUES}),
        **compared(comparison("alpha", "beta"), within),
    )
    rows = {row[0]: row for row in table(page_of(made), "By topic")[2:]}
    assert rows["low"][3].endswith("−0.2000 [−0.30, −0.10] worse")
    assert "regression" not in rows["high"][3]


def test_crossed_columns_find_their_gate_and_comparison():
    crossed = {"pt-BR × hard": {"R@5": part(0.3, [0.2, 0.4])}}
    own = gate("alpha", segment={"language": "pt-BR", "level": "hard"}, min=0.1)
    made = document(
        system("alpha", segments={"language × level": crossed}), gates=[own], blocking={}
    )
    assert tones(made) == {"pt-BR × hard": ("good", "above limit")}


def test_a_measure_with_a_gate_on_the_column_is_shown_beside_the_primary_one():
    values = {"a": {"R@5": part(0.5, [0.4, 0.6]), "P@5": part(0.3, [0.2, 0.4])}}
    measures = {"R@5": cell(0.5), "P@5": cell(0.3), "RR": cell(0.2)}
    own = gate("alpha", "P@5", segment={"topic": "a"})
    made = document(system("alpha", measures, segments={"topic": values}), gates=[own], blocking={})
    (heat,) = sections_of(made).segments.maps
    assert [name for name, _ in heat.measures] == ["R@5", "P@5"]


def test_of_many_values_none_is_lost():
    values = {f"v{n:03}": {"R@5": part(n / 300, [n / 300, n / 300 + 0.01])} for n in range(300)}
    page = page_of(document(system("alpha", segments={"topic": values})))
    assert [row[0] for row in table(page, "By topic")[2:]] == list(values)


def test_reversals_stand_above_the_segments():
    made = document(
        system("alpha", segments={"topic": VALUES}),
        system("beta", segments={"topic": VALUES}),
        **compared(comparison("alpha", "beta")) | {"reversals": [f"turned {n}" for n in range(7)]},
    )
    section = page_of(made).one("section", id="segments")
    assert [one.text for one in section.one("div", cls="notice").all("li")] == [
        f"turned {n}" for n in range(7)
    ]
    assert section.text.index("turned 0") < section.text.index("By topic")


def test_a_report_without_segments_has_no_such_section():
    assert not page_of(document(system("alpha"))).all("section", id="segments")


def failures(**more) -> dict:
    return {
        "assessed": 40,
        "misses": 8,
        "miss_at": 10,
        "ends_at": None,
        "classes": {"complete_miss": 6, "low_rank": 2, "cut_by_k": 0, "not_in_index": 0},
        "unchecked": {},
        "dominant": [],
        "missed": [],
        **more,
    }


def test_failure_classes_are_counted_by_system_with_their_meaning():
    made = document(
        system("alpha", failures=failures()),
        system("beta", failures=failures(unchecked={"cut_by_k": "needs raw"})),
    )
    rows = table(page_of(made), "Failure classes")
    assert rows[1][:3] == ["all misses", "8 of 40 queries", "8 of 40 queries"]
    found = {row[0]: row for row in rows[2:]}
    # 6 and 2 of 8
    assert found["complete_miss"][1] == "6 75 %"
    assert found["low_rank"][1] == "2 25 %"
    assert found["low_rank"][3] == "returned too low: improve the ranking, or rerank"
    assert set(found) == {"complete_miss", "low_rank"}


def test_the_bars_of_failure_classes_share_one_scale():
    made = document(system("alpha", failures=failures()))
    widths = [row.cells[0].bar.marks[0].width for row in sections_of(made).failures.rows]
    assert widths == [90.0, 30.0]


def test_what_could_not_be_told_says_why_and_of_whom():
    untold = {"cut_by_k": "needs raw", "routed_away": "needs the source"}
    made = document(
        system("alpha", failures=failures(unchecked=untold)),
        system("beta", failures=failures(unchecked={"routed_away": "needs the source"})),
    )
    terms = page_of(made).one("section", id="failures").one("dl")
    assert [one.text for one in terms.all("dt")] == ["cut_by_k (alpha)", "routed_away"]
    assert [one.text for one in terms.all("dd")] == ["needs raw", "needs the source"]
    assert "cut_by_k" not in " ".join(sections_of(made).failures.empty)


def test_items_that_dominate_are_listed_by_system():
    items = [{"item_id": "c1#1", "queries": 4}, {"item_id": "c2#1", "queries": 2}]
    made = document(system("alpha", failures=failures(dominant=items)))
    rows = table(page_of(made), "Dominant items of alpha")
    assert rows[1:] == [["c1#1", "4"], ["c2#1", "2"]]


def test_a_report_that_looked_into_no_misses_has_no_such_section():
    page = page_of(document(system("alpha")))
    assert not page.all("section", id="failures")
