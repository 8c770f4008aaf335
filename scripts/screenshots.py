"""Take the screenshots of the report and the workbench for the documentation, docs/images.

    python scripts/screenshots.py [NAME…]

Takes the demo in a temporary folder, saves its evaluations, serves them, and photographs every
page at a fixed size without motion. Latencies are measured, so those differ from time to time.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

from playwright.sync_api import Browser, Page, sync_playwright

from karat.cli.main import main as karat

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from browser.conftest import program, serving  # noqa: E402

IMAGES = ROOT / "docs" / "images"
MOST_BYTES = 200_000
WIDE = {"width": 1200, "height": 820}
PHONE = {"width": 390, "height": 844}
QUERY = "q_051"
STORE = "history.db"
# How much the reranker was given on each day.
DEPTHS = (8, 14, 20, 30, 50)
FIRST_SAVED = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)


def report(page: Page, place: Places) -> None:
    page.goto(place.report)
    page.locator("#verdict").wait_for()


def segments(page: Page, place: Places) -> None:
    report(page, place)
    page.locator("#segments").scroll_into_view_if_needed()
    page.evaluate("document.querySelector('#segments').scrollIntoView()")


def charts(page: Page, place: Places) -> None:
    report(page, place)
    page.evaluate("document.querySelector('#curves').scrollIntoView()")
    page.locator("#curves figure.chart svg").first.wait_for()
    page.locator("#losses figure.chart svg").first.wait_for()


def drawer(page: Page, place: Places) -> None:
    page.goto(f"{place.report}#q={QUERY}")
    page.locator("#drawer [dir=auto]").first.wait_for()


def home(page: Page, place: Places) -> None:
    page.goto(f"{place.url}/")
    page.wait_for_load_state("networkidle")


def comparison(page: Page, place: Places) -> None:
    page.goto(f"{place.url}/compare?ids=9,10&margin=0.05")
    page.locator("#verdict").wait_for()
    page.wait_for_load_state("networkidle")


def labelling(page: Page, place: Places) -> None:
    page.goto(f"{place.url}/label")
    made = page.evaluate(
        """karat.api.post("/api/label-sets", {report_id: 5, depth: 5, seed: 0, name: "top 5"})"""
    )
    page.goto(f"{place.url}/label/{made['id']}")
    page.get_by_label("Your name").fill("Ana")
    page.keyboard.press("Enter")
    page.get_by_role("progressbar").wait_for()
    page.wait_for_load_state("networkidle")


def explorer(page: Page, place: Places) -> None:
    page.goto(f"{place.url}/explore")
    page.locator("main input[type=search]").fill("reset my password")
    page.keyboard.press("Enter")
    page.wait_for_load_state("networkidle")


PICTURES: dict[str, tuple[Callable[[Page, Places], None], dict[str, int], str]] = {
    "report": (report, WIDE, "light"),
    "report-dark": (report, WIDE, "dark"),
    "report-phone": (report, PHONE, "light"),
    "segments": (segments, WIDE, "light"),
    "charts": (charts, WIDE, "light"),
    "drawer": (drawer, WIDE, "light"),
    "workbench": (home, WIDE, "light"),
    "comparison": (comparison, WIDE, "dark"),
    "labelling": (labelling, WIDE, "light"),
    "explorer": (explorer, WIDE, "light"),
}


class Places:
    """The path of the report and the address of the workbench."""

    def __init__(self, folder: Path, url: str) -> None:
        self.report, self.url = (folder / "out" / "report.html").as_uri(), url


def main(names: list[str]) -> int:
    """Take the pictures of these names, or all; 1 if one is too large to keep."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    too_large = []
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as place, browsing() as on:
        for name in names or PICTURES:
            picture = taken(on, place, name)
            (IMAGES / f"{name}.png").write_bytes(picture)
            sys.stdout.write(f"docs/images/{name}.png  {len(picture) / 1000:.0f} kB\n")
            too_large += [name] if len(picture) > MOST_BYTES else []
    if too_large:
        sys.stderr.write(f"larger than {MOST_BYTES:,} bytes: {', '.join(too_large)}\n")
    return 1 if too_large else 0


def taken(browser: Browser, place: Places, name: str) -> bytes:
    """One picture: no motion, one pixel a pixel, in the time zone of the server."""
    prepare, size, scheme = PICTURES[name]
    context = browser.new_context(
        viewport=size,
        color_scheme=scheme,
        device_scale_factor=1,
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="UTC",
    )
    page = context.new_page()
    prepare(page, place)
    picture: bytes = page.screenshot(animations="disabled", caret="hide")
    context.close()
    return picture


@contextmanager
def served(folder: Path) -> Iterator[Places]:
    """The demo with a history of days on which its reranker was given more, and the workbench."""
    place = folder / "help-centre"
    karat(["demo", str(place), "--quiet"])
    config = (place / "karat.yaml").read_text()
    with chdir(place):
        for day, depth in enumerate(DEPTHS):
            tag = "main" if depth == DEPTHS[-1] else f"day-{day + 1}"
            Path("karat.yaml").write_text(reranking(config, depth))
            moment = FIRST_SAVED + timedelta(days=day)
            with patch("karat.store.history.as_utc", lambda now, moment=moment: now or moment):
                karat(["run", "--save", "--store", STORE, "--quiet", "--tag", tag])
        with serving("karat.yaml", store=STORE, cwd=Path()) as url:
            yield Places(place, url)


def reranking(config: str, depth: int) -> str:
    """The demo's karat.yaml with so many hits given to its reranker, the last of its systems."""
    before, _, after = config.rpartition("    k: 50\n")
    return f"{before}    k: {depth}\n{after}".replace("k_raw: 50 ", f"k_raw: {depth} ")


@contextmanager
def browsing() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        yield browser
        browser.close()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
