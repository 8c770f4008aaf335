"""What the written sections of a page show, worked out by hand from small documents."""

from __future__ import annotations

import pytest

from karat.reports.html.render import contents_of

from .made_documents import (
    COUNTS,
    cell,
    compared,
    comparison,
    contexts_of,
    document,
    gate,
    page_of,
    part,
    sections_of,
    system,
    table,
)


def test_the_verdict_comes_first_with_its_reasons():
    page = page_of(document(system("alpha"), gates=[gate("alpha")], blocking={}))
    banner = page.all("div", cls="banner")[0]
    assert "bad" in banner.attributes["class"]
    assert banner.one("strong").text == "FAIL"
    assert "its lower bound is below 0.80" in banner.text
    assert page.one("h1").text == "alpha"


def test_a_gate_shows_value_interval_margin_n_and_what_is_needed():
    page = page_of(document(system("alpha"), gates=[gate("alpha")], blocking={}))
    row = table(page, "Gates")[1]
    # 0.4 - 0.8 = -0.4
    assert row[:3] == ["R@5 >= 0.8", "fail", "0.5000"]
    assert row[4:] == ["[0.4000, 0.6000]", "−0.4000 lower bound", "40", "0.8800"]


def test_a_gate_bar_stands_where_its_numbers_are():
    made = sections_of(document(system("alpha"), gates=[gate("alpha")], blocking={}))
    ((_, (row,)),) = made.verdict.gates
    marks = {one.kind: one for one in row.bar.marks}
    # The scale goes from 0 at 5 to 1 at 165, so 160 wide: 0.5 is at 85, 0.8 at 133, 0.4 at 69.
    assert (marks["value"].x, marks["limit"].x) == (85.0, 133.0)
    assert (marks["interval"].x, marks["interval"].width) == (69.0, 32.0)
    assert (marks["passing"].x, marks["passing"].width) == (133.0, 32.0)


def test_a_gate_at_most_passes_on_the_left_of_its_limit():
    slow = gate("alpha", "latency.p50", on="ci_high", value=30.0, mean=20.0, ci=[10.0, 30.0])
    slow = {key: value for key, value in slow.items() if key != "min"}
    slow |= {"max": 100.0, "verdict": "pass", "ceiling": None}
    made = sections_of(document(system("alpha"), gates=[slow], blocking={}))
    ((_, (row,)),) = made.verdict.gates
    marks = {one.kind: one for one in row.bar.marks}
    assert row.margin == "−70.0000"
    # 105 is at 165: 100 at 5 + 160 / 1.05, the passing side from 5 to there.
    assert marks["limit"].x == pytest.approx(5 + 160 / 1.05, abs=0.06)
    assert marks["passing"].x == 5.0
    assert row.tone == "good"


def test_gates_that_stop_a_change_stand_before_those_that_pass():
    gates = [gate("alpha", verdict="pass", min=0.1), gate("alpha", min=0.9)]
    rows = table(page_of(document(system("alpha"), gates=gates, blocking={})), "Gates")
    assert [row[1] for row in rows[1:]] == ["fail", "pass"]


def test_gates_of_several_systems_stand_below_their_names():
    gates = [gate("beta"), gate("alpha")]
    made = document(system("alpha"), system("beta"), gates=gates, blocking={})
    assert [row[0] for row in table(page_of(made), "Gates")[1:]] == [
        "alpha",
        "R@5 >= 0.8",
        "beta",
        "R@5 >= 0.8",
    ]


def test_a_gate_without_a_value_has_no_bar_and_no_margin():
    lost = gate("alpha", value=None, mean=None, ci=None, n=0, verdict="unmeasurable", needed=None)
    page = page_of(document(system("alpha"), gates=[lost], blocking={}))
    assert table(page, "Gates")[1][1:] == ["cannot tell", "-", "", "", "-", "0", "-"]
    assert page.all("strong", cls="banner-word")[0].text == "CANNOT TELL"


def test_without_gates_and_comparison_the_page_says_that_nothing_is_judged():
    page = page_of(document(system("alpha")))
    assert "neither gates nor a comparison" in page.one("div", cls="banner").text
    assert not page.all("table", cls="gates")


def test_a_partial_system_leaves_no_verdict_and_is_named():
    page = page_of(document(system("alpha"), system("beta", partial=True)))
    assert page.all("div", cls="banner")[0].text.startswith("CANNOT TELL partial: beta")


def test_findings_are_a_numbered_list():
    page = page_of(document(system("alpha"), findings=["first this", "then that"]))
    assert [one.text for one in page.one("ol").all("li")] == ["first this", "then that"]


def test_two_systems_are_one_table_with_the_difference_between_them():
    made = document(
        system("alpha", {"R@5": cell(0.5, [0.4, 0.6])}),
        system("beta", {"R@5": cell(0.6, [0.5, 0.7])}),
        **compared(comparison("alpha", "beta")),
    )
    rows = table(page_of(made), "beta against alpha")
    assert rows[1][:4] == [
        "R@5 decides",
        "0.5000 [0.40, 0.60]",
        "0.6000 [0.50, 0.70]",
        "+0.1000 [0.05, 0.15]",
    ]
    assert rows[1][5:] == ["0.008", "better", "12 / 25 / 3", "40", "0.0700"]
    assert page_of(made).one("h1").text == "beta against alpha"


def test_the_counts_of_better_and_worse_queries_are_drawn_by_their_shares():
    made = document(system("alpha"), system("beta"), **compared(comparison("alpha", "beta")))
    split = sections_of(made).systems.pairs[0].rows[0].delta.split
    # 90 wide: 12, 25 and 3 of 40.
    assert [(one.kind, one.width) for one in split.marks] == [
        ("wins", 27.0),
        ("equal", pytest.approx(56.25, abs=0.06)),
        ("losses", pytest.approx(6.75, abs=0.06)),
    ]
    assert split.says == "12 queries better, 25 equal, 3 worse"


def test_a_measure_of_few_queries_does_not_stretch_the_scale_of_the_others():
    rows = [
        comparison("alpha", "beta"),
        comparison("alpha", "beta", "P@5", ci=[-0.6, 0.8], n=4),
    ]
    measures = {"R@5": cell(0.5), "P@5": cell(0.5, n=4)}
    made = document(system("alpha", measures), system("beta", measures), **compared(*rows))
    first, second = sections_of(made).systems.pairs[0].rows
    marks = [{one.kind: one.x for one in row.delta.bar.marks} for row in (first, second)]
    # The value 0.1 of a scale to 0.15 * 1.05, and of one to 0.8 * 1.05, on 55 to the right of 60.
    half = marks[0]["zero"] - 5
    assert marks[0]["value"] == pytest.approx(5 + half + half * 0.1 / (0.15 * 1.05), abs=0.06)
    assert marks[1]["value"] == pytest.approx(5 + half + half * 0.1 / (0.8 * 1.05), abs=0.06)


def test_three_systems_have_a_table_of_all_and_one_for_each_pair():
    made = document(
        *(system(name) for name in ("alpha", "beta", "gamma")),
        **compared(
            comparison("alpha", "beta"),
            comparison("alpha", "gamma", verdict="worse", delta=-0.1, ci=[-0.15, -0.05]),
        ),
    )
    page = page_of(made)
    rows = table(page, "Measures by system")
    assert rows[0] == ["measure", "alpha baseline", "beta", "gamma", "n"]
    assert rows[1][3] == "0.5000 [0.40, 0.60]−0.1000 worse"
    assert table(page, "gamma against alpha")[1][6] == "worse"


def test_repeated_runs_are_compared_as_one_system():
    made = document(
        *(system(name) for name in ("alpha", "beta-1", "beta-2")),
        **compared(comparison("alpha", "beta")),
    )
    row = table(page_of(made), "beta against alpha")[1]
    assert row[1:3] == ["0.5000 [0.40, 0.60]", "0.6000"]


def test_a_measure_that_was_not_made_says_what_it_lacks():
    lacking = cell(None, n=0, ceiling=None, lacks="latency.rerank is not in the run")
    page = page_of(document(system("alpha", {"R@5": cell(0.5), "latency.rerank.p50": lacking})))
    assert table(page, "Measures by system")[2][1] == "- not measured"
    assert "latency.rerank is not in the run" in page.one("section", id="systems").text


def test_ties_and_a_ceiling_below_one_are_shown():
    tied = cell(0.2, [0.1, 0.3], ceiling=0.4, ties=[0.15, 0.25])
    page = page_of(document(system("alpha", {"P@5": tied})))
    assert table(page, "Measures by system")[1] == [
        "P@5",
        "0.2000 [0.10, 0.30] ties [0.15, 0.25]",
        "40",
        "0.4000",
    ]


def test_the_measure_that_decides_stands_first_whatever_the_alphabet_says():
    measures = {"AP": cell(0.3), "R@5": cell(0.5)}
    made = document(
        system("alpha", measures),
        system("beta", measures),
        **compared(comparison("alpha", "beta"), comparison("alpha", "beta", "AP")),
    )
    assert [row.measure for row in sections_of(made).systems.rows] == ["R@5", "AP"]


def test_counts_that_are_zero_are_quiet_and_others_stand_out():
    lost = COUNTS | {"missing": 3, "no_answer": 2, "scored": 35}
    page = page_of(document({**system("alpha"), "counts": lost}))
    cells = {
        row.all("th")[0].text: row.all("td")[0]
        for row in page.one("table", cls="counts").all("tr")[1:]
    }
    kinds = {name: one.attributes["class"].split()[-1] for name, one in cells.items()}
    assert kinds["missing"] == "loud"
    assert kinds["failed calls"] == "quiet"
    assert kinds["no answer"] == "plain"
    assert cells["scored"].text == "35"
    assert len(cells) == len(COUNTS)


def test_unjudged_hits_are_counted_where_the_view_knows_them():
    head = {"k": 5, "own_k": False, "unjudged": [{"hits": 200, "unjudged": 50}]}
    page = page_of(document(system("alpha")), head)
    rows = table(page, "Counts")
    assert "loud" in page.one("table", cls="counts").all("tr")[-1].all("td")[0].attributes["class"]
    assert rows[-1][:2] == ["unjudged in the top 5", "50 25 % of 200"]
    own = table(page_of(document(system("alpha")), head | {"own_k": True}), "Counts")[-1]
    assert own[0] == "unjudged in the top k"
    assert own[2].endswith("k is each query's own")
    assert "unjudged" not in str(table(page_of(document(system("alpha"))), "Counts"))


def test_a_judges_labels_show_beside_the_gold():
    bounds = {"P@5": {"gold": cell(0.5, [0.4, 0.6]), "gold_and_judge": cell(0.75), "unjudged": 0.1}}
    judged = {"added": 3, "known": 0, "elsewhere": 0, "failed": 0, "reversed": []}
    made = document(system("alpha", {"P@5": cell(0.5, [0.4, 0.6])}, bounds=bounds), judged=judged)
    row = table(page_of(made), "Measures on gold alone, and with the labels of a judge added")[1]
    assert row == ["P@5", "alpha", "0.5000 [0.40, 0.60]", "0.7500", "10 %"]


def test_only_sections_that_are_there_stand_in_the_contents():
    bare = contexts_of(document(system("alpha")))
    assert [name for name, _ in contents_of(bare, {"curves"})] == [
        *("verdict", "systems", "counts", "curves", "queries", "provenance", "downloads"),
    ]
    full = contexts_of(document(system("alpha", segments={"topic": {"a": {"R@5": part(0.5)}}})))
    assert ("segments", "Segments") in contents_of(full, ())


def test_inputs_conventions_and_digests_are_told():
    made = document(system("alpha", meta={"run_digest": "ef" * 32, "chunker": "words"}))
    made["inputs"] |= {"config_digest": "12" * 32, "gates": {"name": "g.yaml", "sha256": "34" * 32}}
    page = page_of(made)
    inputs = table(page, "Every input with the SHA-256 of its bytes")
    assert ["gold", "gold.jsonl", "ab" * 32] in inputs
    assert ["gates", "g.yaml", "34" * 32] in inputs
    assert ["configuration", "", "12" * 32] in inputs
    told = {row[0]: row[1:] for row in table(page, "Conventions")[1:]}
    assert told["missing"][0] == "zero"
    assert told["depth"][0] == "not set"
    assert set(told) == set(made["conventions"])
    assert "words" in table(page, "As recorded in the logs")[1]
    assert "karat 0.1.0" in page.one("section", id="provenance").text


def test_a_convention_that_differs_is_told_system_by_system():
    systems = [
        system("alpha", conventions={"order": "rank"}),
        system("beta", conventions={"order": "score"}),
    ]
    made = document(*systems)
    made["conventions"] = made["conventions"] | {"order": None}
    told = {row[0]: row[1] for row in table(page_of(made), "Conventions")[1:]}
    assert told["order"] == "alpha: rank, beta: score"


def test_a_system_that_answered_nothing_is_said_first():
    lost = {**COUNTS, "queries": 40, "scored": 0, "missing": 10, "failed_calls": 30}
    told = page_of(document({**system("alpha"), "counts": lost})).text
    assert "CANNOT TELL" in told
    assert "nothing scored: alpha" in told
    assert "MEASURED" not in told
