"""Small eval sets with something awkward in them, written as files and evaluated by karat."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from karat.cli.main import main

# Texts that a page must show as they are, each by what it is.
AWKWARD = {
    "long": "a long text with wörds " * 4500,
    "one_word": "x" * 20_000,
    "rtl": "مرحبا بالعالم، كيف أسترجع كلمة المرور؟ שלום עולם (123)",
    "emoji": "👩‍👩‍👧‍👦 🇧🇷 family and flag, combined e\u0301",
    "control": "bell \x07 escape \x1b[31mred nul \x00 override \u202egnp.exe",
    "script": "<script>alert(1)</script>",
    "broken_out": "</script></textarea><img src=x onerror=alert(1)>",
    "attribute": "\"'><svg/onload=alert(1)>",
    "template": "{{ 7 * 7 }} {% raw %} ${7*7}",
    "formula": '=HYPERLINK("http://karat.example","click")',
    "formula_at": "@SUM(1+1)*cmd|' /C calc'!A0",
    "link": "javascript:alert(1) https://karat.example/?a=1&amp;b=2",
    "markup": "# heading | a | [x](http://karat.example) <!-- --> &lt;b&gt; ]]>",
    "lines": "first line\n\n\tsecond line   three spaces",
}
# Of a system, and so of a file.
AWKWARD_NAME = '<i title="x">other & co'


def evaluated(
    folder: Path,
    *,
    gold: Mapping[str, Mapping[str, float]],
    runs: Mapping[str, Mapping[str, Sequence[str]]],
    queries: Mapping[str, Mapping[str, Any]] | None = None,
    corpus: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Path:
    """The report that ``karat eval``, or ``compare`` for several runs, writes as a page."""
    _write(folder / "gold.json", gold)
    words = ["--gold", str(folder / "gold.json"), *options]
    for name, lists in runs.items():
        _lines(folder / f"{name}.jsonl", _calls(name, lists))
    if queries is not None:
        _lines(folder / "queries.jsonl", ({"query_id": one, **q} for one, q in queries.items()))
        words += ["--queries", str(folder / "queries.jsonl")]
    if corpus is not None:
        _lines(folder / "corpus.jsonl", ({"item_id": i, "text": t} for i, t in corpus.items()))
        words += ["--corpus", str(folder / "corpus.jsonl")]
    page = folder / "report.html"
    command = "compare" if len(runs) > 1 else "eval"
    files = [str(folder / f"{name}.jsonl") for name in runs]
    words += ["--set", "short_lists=complete"]
    # Whether one is worse does not matter here.
    assert main([command, *files, *words, "--quiet", "-o", str(page)]) in (0, 1)
    return page


def _calls(system: str, lists: Mapping[str, Sequence[str]]) -> Iterator[dict[str, Any]]:
    for at, (query, items) in enumerate(lists.items()):
        topk = [{"rank": rank, "chunk_id": item} for rank, item in enumerate(items, 1)]
        yield {"query_id": query, "system": system, "topk": topk, "latency_ms": {"retrieve": at}}


def awkward(folder: Path) -> Path:
    """A report in which every text, and some ids and segments, are awkward."""
    queries = {
        f"q-{name}": {"text": text, "kind": text[:60], "language": "en"}
        for name, text in AWKWARD.items()
    }
    corpus = {f"d-{name}": text for name, text in AWKWARD.items()}
    names = list(AWKWARD)
    gold = {f"q-{name}": {f"d-{name}": 2.0, f"d-{names[0]}": 1.0} for name in names}
    asked = {name: names[at:] + names[:at] for at, name in enumerate(names)}
    runs = {
        "plain": {f"q-{name}": [f"d-{one}" for one in order] for name, order in asked.items()},
        AWKWARD_NAME: {
            f"q-{name}": [f"d-{one}" for one in reversed(order)] for name, order in asked.items()
        },
    }
    by = ["--by", "kind", "--by", "language", "-m", "nDCG@5", "-m", "R@5"]
    return evaluated(folder, gold=gold, runs=runs, queries=queries, corpus=corpus, options=by)


def segmented(folder: Path, segments: int) -> Path:
    """A report on two systems and so many segments, some small and some not."""
    queries, gold, first, second = {}, {}, {}, {}
    for at in range(2 * segments):
        one = f"q{at:04}"
        queries[one] = {"text": f"question {at}", "team": f"team {at % segments:03}"}
        gold[one] = {f"d{at}": 1.0}
        first[one] = ["x1", f"d{at}", "x2"] if at % 3 else ["x1", "x2", "x3"]
        second[one] = [f"d{at}", "x1", "x2"] if at % 2 else ["x1", "x2", f"d{at}"]
    return evaluated(
        folder,
        gold=gold,
        runs={"first": first, "second": second},
        queries=queries,
        options=["--by", "team", "-m", "nDCG@5", "-m", "R@1"],
    )


def bare(folder: Path, *, queries: int, systems: int = 1) -> Path:
    """A report on judgments and lists alone: no texts, no segments, no corpus."""
    gold = {f"q{at}": {f"d{at}": 1.0} for at in range(queries)}
    lists = {f"q{at}": [f"d{at + at % 2}", f"d{at}", "x"] for at in range(queries)}
    runs = {f"system{at}": lists for at in range(systems)}
    return evaluated(folder, gold=gold, runs=runs, options=["-m", "nDCG@5", "-m", "R@1"])


def _write(path: Path, data: object) -> None:
    path.write_text(json.dumps(data))


def _lines(path: Path, rows: Iterable[object]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
