"""What the sections of a page say is true of every cell, row and list that they say it of."""

from __future__ import annotations

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


def few_in_common() -> dict:
    """Own means 0.5 of 40 queries and 0.7 of 30; of the 30 that both have 0.55 and 0.7."""
    row = comparison("alpha", "beta", n=30, baseline_mean=0.55, system_mean=0.7, delta=0.15)
    return document(
        system("alpha", {"R@5": cell(0.5, [0.4, 0.6]), "P@5": cell(0.3)}),
        system("beta", {"R@5": cell(0.7, [0.6, 0.8], n=30), "P@5": cell(0.4)}),
        **compared(
            row, comparison("alpha", "beta", "P@5", baseline_mean=0.3, system_mean=0.4, delta=0.1)
        ),
    )


def test_the_means_of_a_pair_are_those_that_its_difference_is_of():
    page = page_of(few_in_common())
    first, second = table(page, "beta against alpha")[1:]
    # 0.70 - 0.55 = 0.15, where the systems' own would leave 0.20.
    assert first[1:3] == ["0.5500", "0.7000 [0.60, 0.80]"]
    assert first[3].startswith("+0.1500")
    assert second[1:3] == ["0.3000", "0.4000"]
    assert "Means are over the queries that both systems have" in page.all("caption")[0].text


def test_what_to_fix_next_names_its_system_where_there_are_several():
    told = {"findings": ["first this"], "findings_of": "beta"}
    both = page_of(document(system("alpha"), system("beta"), **told))
    assert both.one("div", cls="findings").one("h2").text == "What to fix next in beta"
    alone = page_of(document(system("beta"), **told))
    assert alone.one("div", cls="findings").one("h2").text == "What to fix next"


def test_a_gate_on_the_mean_colours_by_the_interval_and_says_that_it_is_on_the_mean():
    values = {
        "around": {"R@5": part(0.35, [0.25, 0.45])},
        "above": {"R@5": part(0.6, [0.5, 0.7])},
        "few": {"R@5": part(0.6, None, n=1)},
    }
    own = gate("alpha", on="mean", min=0.3)
    made = document(system("alpha", segments={"topic": values}), gates=[own], blocking={})
    (heat,) = sections_of(made).segments.maps
    found = {line.value: (line.cells[0].tone, line.cells[0].word) for line in heat.lines}
    # 0.3 lies within [0.25, 0.45], though the mean 0.35 is above it.
    assert found == {
        "around": ("unsure", "around limit"),
        "above": ("good", "above limit"),
        "few": ("unsure", "no interval"),
    }
    assert heat.measures == [("R@5", "its gates")]


def test_a_failed_call_costs_nothing_where_the_query_is_apart():
    lost = {**system("alpha"), "counts": COUNTS | {"failed_calls": 2, "no_answer": 2}}
    rows = {row[0]: row for row in table(page_of(document(lost)), "Counts")}
    assert rows["failed calls"][2].endswith("if the query is scored: worst value")
    assert rows["missing"][2].endswith("worst value")
    skipped = document(lost)
    skipped["conventions"] = skipped["conventions"] | {"missing": "skip"}
    rows = {row[0]: row for row in table(page_of(skipped), "Counts")}
    assert rows["failed calls"][2].endswith("if the query is scored: left out")


def reversal(value: str, n: int, sure: str) -> str:
    return f"b changes R@5 by +0.100 overall but by -0.200 where topic {value} (n = {n}), {sure}"


def turned(*sentences: str) -> dict:
    more = compared(comparison("alpha", "beta")) | {"reversals": list(sentences)}
    return document(system("alpha"), system("beta"), **more)


def test_reversals_beyond_chance_come_first():
    chance, sure = "though that may be chance", "beyond chance"
    sentences = [reversal(name, 9, chance) for name in "abcef"] + [reversal("d", 30, sure)]
    made = turned(*sentences)
    section = page_of(made).one("section", id="segments")
    assert section.one("h3").text == "A segment contradicts the overall result"
    listed = [one.text.partition("topic ")[2][0] for one in section.all("li")]
    assert listed == ["d", "a", "b", "c", "e", "f"]
    assert ("segments", "Segments") in contents_of(contexts_of(made), ())


def decided(*verdicts: str) -> dict:
    names = [f"s{at}" for at in range(len(verdicts))]
    rows = [
        comparison("base", name, verdict=verdict)
        for name, verdict in zip(names, verdicts, strict=True)
    ]
    return document(*(system(name) for name in ("base", *names)), **compared(*rows))


def test_many_verdicts_are_counted_and_stand_in_one_table():
    page = page_of(decided(*["unclear"] * 8, "better", "better", "better", "worse"))
    assert page.one("p", cls="tally").text == "3 better, 8 unclear, 1 worse"
    assert not page.all("div", cls="banner")
    rows = table(page, "Verdicts")[1:]
    assert [row[1] for row in rows] == ["worse", *["unclear"] * 8, *["better"] * 3]
    assert rows[0] == ["s11 against base", "worse", "R@5 rose by 0.1"]


def test_three_verdicts_are_three_banners_and_gates_stay_one():
    page = page_of(decided("better", "worse", "unclear"))
    assert len(page.all("div", cls="banner")) == 3
    assert not page.all("table", cls="verdicts")
    gated = page_of(decided("better", "worse", "unclear") | {"gates": [gate("s0")], "blocking": {}})
    assert [one.one("strong").text for one in gated.all("div", cls="banner")] == ["FAIL"]
    assert gated.one("p", cls="tally").text == "1 better, 1 unclear, 1 worse"


def test_a_difference_has_a_true_minus_wherever_it_stands():
    fell = {"delta": -0.1, "ci": [-0.15, -0.05], "verdict": "worse"}
    rows = [comparison("alpha", "beta", **fell)]
    rows += [comparison("alpha", "beta", segment={"topic": "a"}, **fell)]
    parts = {"topic": {"a": {"R@5": part(0.4, [0.3, 0.5])}}}
    made = document(
        system("alpha", segments=parts),
        system("beta", segments=parts),
        gates=[gate("beta")],
        blocking={},
        findings=["beta changes R@5 by -0.100"],
        **compared(*rows) | {"reversals": [reversal("pt-BR", 30, "beyond chance")]},
    )
    made["decisions"][0]["because"] = "R@5 changed by -0.1000 [-0.150, -0.050]"
    page = page_of(made)
    for section in ("verdict", "systems", "segments"):
        text = page.one("section", id=section).text
        assert "\u22120." in text
        assert "-0." not in text
    assert "topic pt-BR" in page.text
    labels = [one.attributes.get("aria-label", "") for one in page.all("svg")]
    assert "R@5 changes by \u22120.1000 [\u22120.15, \u22120.05]" in labels


def missing(**classes: int) -> dict:
    missed = [{"query_id": "q 1&2", "class": "low_rank", "gold": ["c1"]}]
    return {
        "assessed": 40,
        "misses": sum(classes.values()),
        "miss_at": 10,
        "ends_at": None,
        "classes": classes,
        "unchecked": {},
        "dominant": [],
        "missed": missed,
    }


HEAD = {"k": 5, "systems": ["a & b"], "columns": ["topic"], "classes": ["low_rank"]}


def linked() -> dict:
    values = {"pt & BR": {"R@5": part(0.4, [0.3, 0.5])}}
    return document(
        system("a & b", failures=missing(low_rank=2), segments={"topic": values, "x": values}),
        findings=["1 query misses (q 1&2 …) by low_rank (13 queries)"],
    )


def test_what_names_queries_leads_to_them():
    page = page_of(linked(), HEAD)
    links = {one.text: one.attributes["href"] for one in page.one("ol").all("a")}
    assert links == {"q 1&2": "#q=q+1%262", "low_rank": "#class=low_rank&system=a+%26+b"}
    (count,) = page.one("table", cls="failures").all("a")
    assert count.attributes["href"] == "#class=low_rank&system=a+%26+b"
    # The page has no queries by x.
    segments = page.one("section", id="segments").all("a")
    assert [one.attributes["href"] for one in segments] == ["#in.topic=pt+%26+BR"]


def test_nothing_leads_to_queries_that_the_page_does_not_have():
    assert not page_of(linked()).all("a")


def test_a_gate_s_figures_carry_their_names_for_narrow_screens():
    page = page_of(document(system("alpha"), gates=[gate("alpha")], blocking={}))
    cells = page.one("table", cls="gates").all("td")
    named = {
        one.attributes["data-label"]: one.text for one in cells if "data-label" in one.attributes
    }
    assert named == {
        "value": "0.5000",
        "interval": "[0.4000, 0.6000]",
        "margin": "\u22120.4000 lower bound",
        "n": "40",
        "needed": "0.8800",
    }
