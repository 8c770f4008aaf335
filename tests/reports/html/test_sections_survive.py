"""Documents that are odd, hostile or large: the sections stay whole, and text stays text."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from karat.reports.html.render import environment

from .made_documents import (
    SECTIONS,
    cell,
    compared,
    comparison,
    document,
    gate,
    html_of,
    page_of,
    part,
    read,
    sections_of,
    system,
)

SCRIPT = "<script>alert(1)</script>"
NAMES = {
    "markup": f'{SCRIPT}"><img src=x onerror=alert(1)>',
    "right to left": "מנוע חיפוש",
    "emoji": "search 🔎👩‍👩‍👧",
    "steering": "a\u202egnp.exe\x1b[31m\x00b",
    "long": "n" * 10_000,
}


def everything(name: str) -> dict:
    """A document that has the name wherever a file could have put it."""
    values = {name: {"R@5": part(0.5, [0.4, 0.6], n=5)}}
    failed = {
        "assessed": 4,
        "misses": 1,
        "miss_at": 10,
        "ends_at": 3,
        "classes": {"low_rank": 1},
        "unchecked": {"cut_by_k": name},
        "dominant": [{"item_id": name, "queries": 3}],
        "missed": [],
    }
    meta = {"retriever": name, "chunker": {"name": name}, "k": 10, "run_digest": name}
    own = {"segments": {name: values}, "failures": failed, "meta": meta, "partial": True}
    rows = [
        comparison("first", name),
        comparison("first", name, segment={name: name}),
    ]
    made = document(
        system("first", **own),
        system(name, {"R@5": cell(0.5, [0.4, 0.6], lacks=name)}, **own),
        gates=[gate(name, segment={name: name}, because=name), gate("first")],
        blocking={name: {"at_limits": 0.5, "as_measured": 0.5}, "first": None},
        gates_left_out=[name],
        findings=[name],
        **compared(*rows) | {"reversals": [name], "replicates": {name: 2}},
    )
    made["decisions"][0]["because"] = name
    made["inputs"] |= {"dataset_version": name, "code_version": name}
    made["inputs"]["gold"]["name"] = name
    return made


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_name_from_a_file_is_only_text(name):
    html = html_of(everything(name))
    page = read(html)
    assert not page.all("script")
    assert not page.all("img")
    assert "\u202e" not in html
    assert "\x1b" not in html
    assert "\x00" not in html
    assert "n" * 8_193 not in html
    assert "undefined" not in page.text.lower()


def test_two_long_names_that_differ_in_their_middle_stay_apart():
    names = [f"{'a' * 200}{middle}{'b' * 200}" for middle in "xyz"]
    shown = sections_of(document(*map(system, names))).systems.names
    assert len(set(shown)) == 3
    text = page_of(document(*map(system, names))).one("section", id="systems").text
    assert all(name in text for name in names)


def test_one_query_gives_values_without_intervals():
    alone = {"R@5": cell(1.0, None, n=1)}
    made = document(
        system("alpha", alone, segments={"topic": {"x": {"R@5": part(1.0, None, n=1)}}}),
        gates=[gate("alpha", ci=None, value=None, mean=1.0, n=1, verdict="unmeasurable")],
        blocking={},
    )
    page = page_of(made)
    assert "None" not in page.text
    assert "nan" not in page.text.lower()


def test_no_value_at_all_is_no_error():
    lost = {"R@5": cell(None, None, n=0, ceiling=None)}
    none = comparison(
        "alpha",
        "beta",
        n=0,
        delta=None,
        ci=None,
        baseline_mean=None,
        system_mean=None,
        p_adjusted=None,
        detectable=None,
        margin=None,
        verdict="unclear",
    )
    segments = {"topic": {"x": {"R@5": part(None, None, n=0)}}}
    made = document(
        system("alpha", lost, segments=segments),
        system("beta", lost, segments=segments),
        **compared(none),
    )
    page = page_of(made)
    assert "None" not in page.text
    assert "no value" in page.one("section", id="segments").text


@pytest.mark.parametrize("count", [1, 2, 3, 12])
def test_any_number_of_systems_has_a_column_each(count):
    names = [f"s{number}" for number in range(count)]
    rows = [comparison("s0", name) for name in names[1:]]
    made = document(*map(system, names), **(compared(*rows) if rows else {}))
    counted = sections_of(made).counts
    assert counted.names == names
    assert all(len(row.counts) == count for row in counted.rows)
    assert len(sections_of(made).systems.pairs) == count - 1
    page_of(made)


def test_a_measure_that_this_version_does_not_know_is_still_shown():
    page = page_of(document(system("alpha", {"Wonder@5": cell(0.5)})))
    assert "Wonder@5" in page.one("section", id="systems").text


def test_without_a_view_and_without_inputs_the_page_is_whole():
    made = document(system("alpha"))
    del made["inputs"]
    assert page_of(made, None).one("section", id="provenance")


def test_markup_obeys_a_policy_without_inline_styles_and_scripts():
    html = html_of(everything("plain"))
    assert not re.search(r"\sstyle=", html)
    assert not re.search(r"\son[a-z]+=", html)


def test_tables_have_captions_and_heads_with_scopes():
    page = page_of(everything("plain"))
    tables = page.all("table")
    assert len(tables) > 8
    for table in tables:
        assert table.one("caption").text
        assert all("scope" in head.attributes for head in table.all("th"))


def test_regions_and_drawings_have_names_and_ids_are_unique():
    page = page_of(everything("plain"))
    regions = [one for one in page.all("div") if one.attributes.get("role") == "region"]
    names = [one.attributes["aria-label"] for one in regions]
    assert len(set(names)) == len(names)
    assert all(one.attributes["tabindex"] == "0" for one in regions)
    for drawing in page.all("svg"):
        named = drawing.attributes.get("role") == "img" and drawing.attributes["aria-label"]
        assert named or drawing.attributes.get("aria-hidden") == "true"
    ids = re.findall(r'\sid="([^"]+)"', html_of(everything("plain")))
    assert len(set(ids)) == len(ids)


def test_headings_leave_out_no_level():
    page = page_of(everything("plain"))

    def walk(element):
        for child in element.children:
            if re.fullmatch("h[1-6]", child.tag):
                yield int(child.tag[1])
            yield from walk(child)

    levels = list(walk(page))
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_rows_are_as_long_as_their_heads():
    page = page_of(everything("plain"))
    for table in page.all("table"):
        lengths = {
            sum(int(one.attributes.get("colspan", 1)) for one in row.children)
            for row in table.one("thead").all("tr")[:1]
            + [row for body in table.all("tbody") for row in body.all("tr")]
        }
        assert len(lengths) == 1


def test_every_section_is_a_template_of_its_own():
    known = environment().list_templates()
    assert {f"sections/{name}.html" for name in SECTIONS} <= set(known)
