"""Time writing and using the page of a report, and write bench/SHOWING.md.

    python bench/showing.py          about three minutes on a quiet machine

The commands are whole processes and run in turns; the page is opened in Debian's Chromium with
the network cut. Ends with 1 when a target is missed.
"""

import json
import random
import shutil
import sys
from pathlib import Path
from statistics import median

from playwright.sync_api import Page, sync_playwright

from contenders import HERE, KARAT
from race import Contender, once, race
from results import Section, Target, document, finish, machine

OUT = HERE / "SHOWING.md"
ITEMS, HITS, SYSTEMS = 50_000, 100, ("one", "two")
MEASURES = ("nDCG@10", "R@10", "R@100", "RR@10", "P@5")
BROWSER = "chromium-headless-shell"
# From a typed letter to the frame that shows the filtered rows, in milliseconds.
TYPED = """async letters => {
    const box = document.querySelector('#query-table input[type=search]');
    const times = [];
    for (const text of letters) {
        await new Promise(done => setTimeout(done, 300));
        const start = performance.now();
        box.value = text;
        box.dispatchEvent(new Event('input', {bubbles: true}));
        const before = document.querySelector('#query-table [aria-live]').textContent;
        await new Promise(done => {
            const look = () => {
                const now = document.querySelector('#query-table [aria-live]').textContent;
                const late = performance.now() - start > 2000;
                if (now !== before || late) requestAnimationFrame(() => setTimeout(done));
                else requestAnimationFrame(look);
            };
            requestAnimationFrame(look);
        });
        times.push(performance.now() - start);
    }
    return times;
}"""
PAINTED = """() => performance.getEntriesByType('paint')
    .find(one => one.name === 'first-contentful-paint')?.startTime"""


def folder_of(queries: int) -> Path:
    """Write two runs of this many queries, their gold, segments and a corpus."""
    folder = HERE / "data" / f"showing-{queries}"
    if not (folder / "done").exists():
        print(f"generating {folder.name}", file=sys.stderr)
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder, queries, random.Random(7))
        (folder / "done").touch()
    return folder


def _write(folder: Path, queries: int, dice: random.Random) -> None:
    words = [f"word{number}" for number in range(20_000)]
    items = [str(1_000_000 + number * 137) for number in range(ITEMS)]

    def text(length: int) -> str:
        places = (min(int(dice.paretovariate(0.5)), len(words)) - 1 for _ in range(length))
        return " ".join(words[place] for place in places)

    corpus = [{"item_id": item, "text": text(56)} for item in items]
    _lines(folder / "corpus.jsonl", map(json.dumps, corpus))
    gold, asked = {}, []
    for number in range(queries):
        query_id = str(100_000 + 7 * number)
        gold[query_id] = dice.sample(items, 1 + (number % 10 == 0))
        segments = {"language": dice.choice(["en", "es", "pt"]), "topic": f"t{number % 20}"}
        asked.append({"query_id": query_id, "text": text(6), **segments})
    _lines(folder / "queries.jsonl", map(json.dumps, asked))
    judged = [f"{query} 0 {item} 1" for query, own in gold.items() for item in own]
    _lines(folder / "qrels.txt", judged)
    for system in SYSTEMS:
        rows = []
        for query, own in gold.items():
            hits = dice.sample(items, HITS)
            if dice.random() < 0.8 and own[0] not in hits:
                hits[min(int(dice.expovariate(0.2)), HITS - 1)] = own[0]
            rows += [f"{query} Q0 {hit} {n} {HITS - n}.5 x" for n, hit in enumerate(hits, 1)]
        _lines(folder / f"{system}.trec", rows)


def _lines(path: Path, lines) -> None:
    path.write_text("\n".join(lines) + "\n")


def command(folder: Path, *output: str) -> list[str]:
    runs = [str(folder / f"{system}.trec") for system in SYSTEMS]
    files = ["--gold", str(folder / "qrels.txt"), "--queries", str(folder / "queries.jsonl")]
    files += ["--corpus", str(folder / "corpus.jsonl")]
    asked = ["-m", ",".join(MEASURES), "--by", "language", "--by", "topic", "--quiet"]
    return [KARAT, "compare", *runs, *files, *asked, *output]


def written(queries: int) -> Section:
    folder = folder_of(queries)
    page = folder / "report.html"
    once(command(folder, "-o", str(page)))
    plain = Contender("karat compare", command(folder), 5)
    paged = Contender("the same with -o report.html", command(folder, "-o", str(page)), 5)
    race([plain, paged])
    beyond = paged.best - plain.best
    return Section(
        f"written: {queries:,} queries × {len(SYSTEMS)} systems × {HITS} hits, {ITEMS:,} items",
        ["", "best s", "median s"],
        [(c.name, f"{c.best:.2f}", f"{c.median:.2f}") for c in (plain, paged)],
        note="The index of the corpus was made before, by a round that is not counted.",
        targets=[Target.at_most("written beyond the evaluation", 5, beyond, "s")],
    )


def opened(queries: int) -> Section:
    folder = folder_of(queries)
    page = folder / "report.html"
    once(command(folder, "-o", str(page)))
    size = page.stat().st_size / 1e6
    paints, typed = _measured(page)
    return Section(
        f"opened: {queries:,} queries × {len(SYSTEMS)} systems",
        ["", "best", "median"],
        [
            ("size of the file, MB", f"{size:.2f}", ""),
            ("first paint, ms", f"{min(paints):.0f}", f"{median(paints):.0f}"),
            ("letters typed to rows shown, ms", f"{min(typed):.0f}", f"{median(typed):.0f}"),
        ],
        targets=[
            Target.at_most("size of a report on 10,000 queries", 8, size, "MB"),
            Target.at_most("first paint", 1_000, median(paints), "ms"),
            Target.at_most("filter", 100, median(typed), "ms"),
        ],
    )


def _measured(path: Path) -> tuple[list[float], list[float]]:
    paints, typed = [], []
    with sync_playwright() as playwright:
        program = shutil.which(BROWSER)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for _ in range(5):
            page: Page = browser.new_context(offline=True).new_page()
            page.goto(path.resolve().as_uri())
            page.locator("#query-table [role=row]").nth(3).wait_for()
            paints.append(page.evaluate(PAINTED))
            typed += page.evaluate(TYPED, ["w", "wo", "word1", "word12", "word123", "", "1000"])
            page.context.close()
        browser.close()
    return paints, typed


def main() -> None:
    sections = [written(6_980), opened(10_000)]
    text = document(
        sections,
        machine(),
        "`make bench-showing`",
        about="The page of a report: how long it takes to write, and how it answers in Chromium.",
        ratios="",
        packages=("karat", "polars", "numpy", "vl-convert-python", "playwright"),
    )
    finish(sections, text, OUT)


if __name__ == "__main__":
    main()
