"""The charts of a page, really drawn: marks, themes, widths, print, and a page without Vega."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from karat.reports.html.assets import BASE_STYLES, Inlined, asset, vega
from karat.reports.html.charts import charts_of
from karat.reports.html.render import environment

from .accessibility import assert_usable
from .checks import PHONE, SCHEMES
from .made_views import until

PAGE = """{% extends "base.html" %}{% from "sections/charts.html" import chart %}
{% block main %}<h1>Charts</h1><h2>All</h2><div class="charts">
{% for one in charts %}{{ chart(one) }}{% endfor %}</div>{% endblock %}
{% block data %}<script type="application/json" id="karat-charts">{{ specs | data }}</script>
{% endblock %}"""
WIDE = {"width": 1280, "height": 900}
HOSTILE = "</script><script>alert(1)</script>"


def page_of(document, *, drawing=True) -> str:
    """A page of charts alone, under the policy of a report."""
    charts = charts_of(document)
    scripts = "\n".join(asset(name) for name in ("theme.js", "charts.js"))
    styles = "\n".join(asset(name) for name in (*BASE_STYLES, "charts.css"))
    assets = Inlined(css=styles, js=[*([vega()] if drawing else []), scripts])
    specs = {chart.id: chart.spec for chart in charts}
    return (
        environment()
        .from_string(PAGE)
        .render(charts=charts, specs=specs, assets=assets, csp=assets.policy)
    )


@pytest.fixture(scope="package")
def results(demo: Path) -> dict:
    return json.loads((demo / "out" / "report.json").read_text())


@pytest.fixture
def show(pages, tmp_path):
    """Open a page of charts, once all of them are drawn."""

    def open_it(document, *, drawing=True, **options):
        path = tmp_path / "charts.html"
        path.write_text(page_of(document, drawing=drawing), newline="")
        page = pages.new(**options)
        page.goto(path.as_uri())
        if drawing:
            page.locator(".chart:not(.drawn)").first.wait_for(state="detached")
        return page

    return open_it


def marks(page, chart: str, kind: str) -> int:
    """How many marks of a kind a chart has drawn, its axes apart."""
    return page.locator(f"[data-chart={chart}] .role-mark.mark-{kind} > *").count()


def colour(page, selector: str, what: str) -> str:
    return page.eval_on_selector(selector, f"(one) => getComputedStyle(one).{what}")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_chart_is_drawn_with_its_marks_and_nothing_is_refused(show, results, scheme):
    page = show(results, scheme=scheme)
    # Two systems at five cut-offs: ten points; a waterfall of six parts between two ends.
    rings = sum(one["sweep"]["measures"]["R"]["knee"] is not None for one in results["systems"])
    assert marks(page, "curve-0", "symbol") == 10 + rings
    assert marks(page, "curve-0", "area") == 2
    assert marks(page, "loss-1-0", "rect") == 8
    assert marks(page, "loss-1-0", "text") == 8
    stages = sum(len(one["latency"]["stages"]) for one in results["systems"])
    assert marks(page, "latency", "symbol") == stages
    assert marks(page, "trade", "symbol") == 2


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_in_charts_has_the_colour_of_the_theme(show, results, scheme):
    page = show(results, scheme=scheme)
    muted = colour(page, ".chart figcaption p", "color")
    assert colour(page, "[data-chart=curve-0] .role-axis-label text", "fill") == muted
    ink = colour(page, ".chart h3", "color")
    assert colour(page, "[data-chart=loss-0-0] .role-mark.mark-text text", "fill") == ink


@pytest.mark.parametrize(("scheme", "size"), [("light", PHONE), ("dark", WIDE)])
def test_everyone_can_use_a_page_of_charts_with_its_tables_open(show, results, scheme, size):
    page = show(results, scheme=scheme, size=size)
    page.eval_on_selector_all("details", "all => all.forEach((one) => { one.open = true; })")
    assert_usable(page)


def test_the_button_goes_from_auto_to_light_to_dark_and_the_charts_follow(show, results):
    page = show(results, scheme="dark")
    button = page.locator("#theme")
    # The nDCG: no broken line is drawn before those of the systems.
    line = "[data-chart=curve-1] .role-mark.mark-line path"
    label = "[data-chart=curve-0] .role-axis-label text"
    seen = []
    for state in ("auto", "light", "dark", "auto"):
        assert button.get_attribute("aria-label").startswith(f"Theme: {state}")
        seen.append((colour(page, line, "stroke"), colour(page, label, "fill")))
        button.click()
    auto, light, dark, again = seen
    assert auto == dark == again
    assert all(one != other for one, other in zip(auto, light, strict=True))


def test_the_theme_is_kept_for_the_next_visit_and_told_to_the_page(show, results):
    page = show(results)
    page.evaluate(
        "document.addEventListener('karat:theme', (one) => { window.told = one.detail.theme; })"
    )
    for _ in range(2):
        page.locator("#theme").click()
    assert page.evaluate("window.told") == "dark"
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert page.locator("#theme").inner_text() == "Theme: dark"


def test_where_nothing_can_be_kept_the_theme_still_changes(show, results):
    page = show(results)
    page.context.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new Error('no'); } })"
    )
    page.reload()
    page.locator("#theme").click()
    assert page.locator("html").get_attribute("data-theme") == "light"


def widths(page) -> list[dict[str, float]]:
    return page.eval_on_selector_all(
        ".chart .plot",
        "all => all.map((one) => ({plot: one.clientWidth,"
        " svg: one.querySelector('svg').getBoundingClientRect().width}))",
    )


def test_a_chart_is_as_wide_as_its_place_and_follows_it_to_a_phone_and_back(show, results):
    page = show(results)
    wide = widths(page)
    assert all(abs(one["svg"] - one["plot"]) <= 1 for one in wide)
    for size in (PHONE, WIDE):
        page.set_viewport_size(size)
        fits = (
            "() => [...document.querySelectorAll('.plot')].every((one) => Math.abs("
            "one.querySelector('svg').getBoundingClientRect().width - one.clientWidth) <= 1)"
        )
        until(page, fits)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert widths(page) == wide


def test_on_a_phone_no_text_of_a_chart_is_cut(show, results):
    page = show(results, size=PHONE)
    cut = page.eval_on_selector_all(
        ".plot svg",
        """all => all.flatMap((svg) => {
          const frame = svg.getBoundingClientRect();
          return [...svg.querySelectorAll("text")].filter((one) => {
            const box = one.getBoundingClientRect();
            return box.width && (box.left < frame.left - 1 || box.right > frame.right + 1);
          }).map((one) => one.textContent);
        })""",
    )
    assert cut == []


def test_a_mark_says_its_figures_under_the_pointer_as_text(show, results):
    results = {**results, "systems": [{**one} for one in results["systems"]]}
    results["systems"][0]["name"] = HOSTILE
    page = show(results)
    page.locator("[data-chart=trade] .role-mark.mark-symbol > *").first.hover()
    tip = page.locator(".chart-tip")
    tip.wait_for()
    quality = results["systems"][0]["measures"][results["decisions"][0]["measure"]]["mean"]
    assert tip.inner_text().startswith(f"{HOSTILE}: {quality:.4f}")
    page.locator("h1").hover()
    tip.wait_for(state="hidden")


def test_the_table_of_a_chart_holds_its_figures(show, results):
    page = show(results)
    figure = page.locator("[data-chart=curve-0]")
    figure.get_by_text("As a table").click()
    last = figure.locator("tbody tr").nth(4).locator("td").first.inner_text()
    point = results["systems"][0]["sweep"]["measures"]["R"]["points"][4]
    assert last.startswith(f"{point['mean']:.4f} [")


def test_charts_far_below_are_drawn_for_print_before_the_page_was_ever_at_rest(show, results):
    page = show(results, size=PHONE)
    page.context.add_init_script(
        """
        window.requestIdleCallback = () => 0;
        window.empty = () =>
          [...document.querySelectorAll(".plot")].filter((one) => !one.firstChild).length;
        window.addEventListener("afterprint", () => { window.left = window.empty(); });
        """
    )
    page.reload()
    page.locator("[data-chart=curve-0].drawn").wait_for()
    assert page.evaluate("window.empty()") > 0
    page.pdf(format="A4")
    assert page.evaluate("window.left") == 0


def test_a_dark_page_is_printed_dark_on_white(show, results):
    page = show(results, scheme="dark")
    # The nDCG: no broken line is drawn before those of the systems.
    line = "[data-chart=curve-1] .role-mark.mark-line path"
    on_screen = colour(page, line, "stroke")
    page.emulate_media(media="print", color_scheme="dark")
    on_paper = colour(page, line, "stroke")
    page.emulate_media(media="screen", color_scheme="light")
    assert on_paper == colour(page, line, "stroke") != on_screen


def test_without_vega_the_tables_are_open_and_the_page_says_how_to_get_charts(show, results):
    page = show(results, drawing=False)
    assert page.locator("details[open]").count() == page.locator("figure.chart").count() > 0
    assert page.locator(".plot:visible").count() == 0
    notices = page.get_by_text("pip install 'karat[charts]'")
    assert notices.count() == 1


def test_without_scripts_the_tables_are_open_and_no_room_is_kept_for_drawings(show, results):
    page = show(results, drawing=False, java_script_enabled=False)
    figures = page.locator("figure.chart").count()
    assert page.locator("figure.chart table:visible").count() == figures > 0
    assert page.locator(".plot:visible").count() == 0


def test_a_drawn_chart_closes_its_table_and_is_not_printed_with_it(show, results):
    page = show(results)
    assert page.locator("figure.chart details[open]").count() == 0
    page.emulate_media(media="print")
    assert page.locator("figure.chart summary:visible").count() == 0
    assert page.locator("figure.chart .plot svg:visible").count() > 0


def test_charts_stand_two_a_row_on_paper(show, results):
    page = show(results, size={"width": 718, "height": 1000})
    page.emulate_media(media="print")
    tops = page.eval_on_selector_all(
        ".chart", "all => all.map((one) => Math.round(one.getBoundingClientRect().top))"
    )
    assert tops[0] == tops[1] < tops[2] == tops[3]


# A log scale has 1, 2 and 5 of each power of ten, a linear one even steps from 0.
@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.05, 20.0, {"0.05", "0.5", "20"}),
        (3.0, 20_000.0, {"50", "1,000", "20,000"}),
        (15.0, 40.0, {"0", "20", "40"}),
    ],
)
def test_times_are_written_as_plain_numbers(show, results, low, high, ticks):
    results = json.loads(json.dumps(results))
    for system, time in zip(results["systems"], (low, high), strict=True):
        for stage in system["latency"]["stages"].values():
            for name in ("p50", "p95"):
                stage[name].update(value=time, ci=None)
    page = show(results)
    for chart in ("latency", "trade"):
        texts = page.locator(f"[data-chart={chart}] .role-axis-label text").all_text_contents()
        assert ticks <= set(texts)
        assert not [one for one in texts if re.match(r"\d+e", one)]


def test_a_specification_cannot_fetch_anything(show, results, pages):
    page = show(results)
    spec = {"data": {"url": "https://karat.example/x.json"}, "mark": "point", "height": 50}
    page.evaluate(
        "(spec) => karat.charts.draw(document.querySelector('.plot'), spec).catch(() => null)", spec
    )
    pages.expect("a chart fetches nothing|karat.example")
    assert not [one for one in pages.troubles() if one.startswith(("request", "failed"))]


def trimmed(results: dict) -> dict:
    """One system, one query, one k: no intervals, no knee, and a part that is unknown."""
    (one, *_) = json.loads(json.dumps(results))["systems"]
    for line in one["sweep"]["measures"].values():
        line.update(points=line["points"][2:3], knee=None)
        line["points"][0].update(ci=None, n=1)
    for fall in one["waterfalls"]:
        fall["parts"][0]["lost"] = 0.0
        fall["unknown"] = {fall["parts"][0]["part"]: "needs something"}
    for measure in one["measures"].values():
        measure["ci"] = None
    for stage in one["latency"]["stages"].values():
        for name in ("p50", "p95"):
            stage[name]["ci"] = None
        stage["p95"]["value"] = None
    return {"conventions": results["conventions"], "systems": [one]}


def crowded(results: dict) -> dict:
    """Twelve systems with awkward names; some lack curves, losses or latency."""
    names = [HOSTILE, "نظام البحث", "👩‍👩‍👧 🚀", "x" * 200, *(f"s{n}" for n in range(8))]
    systems = []
    for at, name in enumerate(names):
        systems.append({**results["systems"][at % 2], "name": name})
    for lacking in ("sweep", "waterfalls", "latency"):
        del systems[5][lacking]
    del systems[6]["latency"]
    return {"conventions": results["conventions"], "systems": systems}


@pytest.mark.parametrize("change", [trimmed, crowded])
@pytest.mark.parametrize("size", [PHONE, WIDE])
def test_awkward_reports_are_drawn_too(show, results, change, size):
    page = show(change(results), size=size)
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    drawn = page.locator(".chart .plot svg.marks").count()
    assert drawn == page.locator("figure.chart").count() >= 4
    assert not re.search("NaN|undefined|null", page.locator("main").inner_text())
