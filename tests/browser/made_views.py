"""Views made by hand for tests of the query table and drawer, and a page of only those two."""

from __future__ import annotations

import base64
import gzip
import json
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup
from playwright.sync_api import Page

from karat.reports.html.assets import SCRIPTS, STYLES, Inlined, asset
from karat.reports.html.render import environment

from .checks import PATIENCE, Pages

STATUSES = ["scored", "missing", "failed", "no_answer", "empty_gold"]
CLASSES = ["failed_call", "not_in_run", "not_in_index", "complete_miss", "low_rank"]
PAGE = """{% extends "base.html" %}
{% block main %}<h1>Made by hand</h1>
{% include "sections/queries.html" %}{% include "sections/downloads.html" %}{% endblock %}
{% block data %}
<script type="application/json" id="karat-head">{{ head | data }}</script>
<script type="application/json" id="karat-report">{{ doc | data }}</script>
<script type="text/plain" id="karat-rows">{{ rows }}</script>
{% for block in blocks %}
<script type="text/plain" class="karat-block" data-block="{{ loop.index0 }}">{{ block }}</script>
{% endfor %}
{% endblock %}"""


@dataclass
class Made:
    """A view in the shape that pages read."""

    head: dict[str, Any]
    rows: dict[str, Any]
    details: list[dict[str, Any]]
    texts: dict[str, Any]

    def page(self) -> str:
        """A page with the table, the drawer and the downloads, under a report's own policy."""
        script = "\n".join(asset(name) for name in SCRIPTS if name != "charts.js")
        assets = Inlined(css="\n".join(map(asset, STYLES)), js=[script])
        size = self.head["block"]
        starts = range(0, len(self.details), size)
        blocks = [{"queries": self.details[at : at + size], "texts": self.texts} for at in starts]
        return (
            environment()
            .from_string(PAGE)
            .render(
                assets=assets,
                csp=assets.policy,
                head=self.head,
                doc={"made": "by hand", "value": 0.1, "text": "</script><b>"},
                rows=_packed(self.rows),
                blocks=map(_packed, blocks),
            )
        )

    def write(self, folder: Path) -> str:
        """The page as a file; its address."""
        path = folder / "made.html"
        path.write_text(self.page(), "utf-8")
        return path.as_uri()


def shower(pages: Pages, folder: Path) -> Callable[..., Page]:
    """A function that opens a made view with the network cut, at a fragment or an open query."""

    def show(made: Made, fragment: str = "", *, row: int | None = None, **options: Any) -> Page:
        page = pages.new(**options)
        page.goto(made.write(folder) + fragment)
        page.locator(".qt-count").wait_for()
        if row is not None:
            page.evaluate("(row) => void karat.drawer.open(row)", row)
            page.locator(".dr-lists").wait_for()
        return page

    return show


def _packed(value: object) -> str:
    return Markup(base64.b64encode(gzip.compress(json.dumps(value).encode(), mtime=0)).decode())


def head_of(systems: Sequence[str], queries: int, **more: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "systems": list(systems),
        "baseline": 0,
        "measures": [
            {"name": "nDCG@5", "better": "higher"},
            {"name": "Cost", "better": "lower"},
            {"name": "Length", "better": "none"},
        ],
        "primary": "nDCG@5",
        "k": 5,
        "miss_at": 5,
        "rel": 1.0,
        "level": "item",
        "queries": queries,
        "block": 4,
        "kept": 5,
        "classes": CLASSES,
        "statuses": STATUSES,
        "columns": ["language", "topic"],
        "unjudged": [{"hits": 10, "unjudged": 2} for _ in systems],
        "bm25": None,
        "bm25_depth": 1000,
        "texts": None,
        "commands": [f"karat triage runs/{name}.jsonl --query {{query}}" for name in systems],
        **more,
    }


def hits(*items: str, grades: Mapping[str, float] | None = None) -> list[list[Any]]:
    """A list as a detail has it: scores go down from 0.9."""
    known = grades or {}
    return [[item, round(0.9 - at / 10, 1), known.get(item)] for at, item in enumerate(items)]


def gold_of(item: str, *ranks: Mapping[str, int | None], **more: Any) -> dict[str, Any]:
    return {
        "item_id": item,
        "doc_id": item.split("#")[0],
        "grade": 1.0,
        "in_corpus": True,
        "version": None,
        "section": None,
        "ranks": list(ranks),
        "bm25": None,
        **more,
    }


def detail_of(index: int, query_id: str, text: str | None, **more: Any) -> dict[str, Any]:
    """A query that nothing special is known of: both systems return a, b and c."""
    listed = {
        "status": "scored",
        "error": None,
        "class": None,
        "because": None,
        "searched": 50,
        "hits": hits("a", "b", "c", grades={"a": 1.0}),
        "calls": {},
    }
    return {
        "index": index,
        "query_id": query_id,
        "text": text,
        "note": None,
        "attributes": {"language": "en"},
        "gold": [gold_of("a", {"final": 1}, {"final": 1})],
        "systems": [dict(listed), dict(listed)],
        "bm25": None,
        "negatives": [],
        **more,
    }


# The queries of the small view. What each mode holds can be read off the columns:
# looking at "new" against the baseline "old" by nDCG@5, where higher is better,
#   misses     2, 4, 9          (a class)
#   regressed  2, 5             (2: 0.5 to 0; 5: 1 to 0.63)
#   improved   1, 7             (1: 0 to 1; 7: 0.2 to 0.3)
#   different  1, 2, 5, 7
#   unjudged   2, 3, 6
# By Cost, where lower is better: regressed 1, 7 and improved 2.
SMALL: dict[str, list[Any]] = {
    "query_id": ["q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10"],
    "text": [
        "how long does a refund take",
        "Où est mon colis, façade côté cour",
        "STRASSE und Straße",
        None,
        "refund to a debit card",
        "مرحبا بالعالم",
        "退款需要多长时间",
        "change of address",
        "address of the shop",
        "nobody can answer this",
    ],
    "old": [0.0, 0.5, 1.0, 0.0, 1.0, 0.4, 0.2, 0.7, 0.0, None],
    "new": [1.0, 0.0, 1.0, 0.0, 0.63, 0.4, 0.3, 0.7, 0.0, None],
    "old_cost": [10.0, 30.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, None],
    "new_cost": [20.0, 20.0, 5.0, 5.0, 5.0, 5.0, 7.0, 5.0, 5.0, None],
    "new_rank": [1, None, 1, None, 2, 3, 4, 1, None, None],
    "new_class": [-1, 4, -1, 1, -1, -1, -1, -1, 3, -1],
    "new_status": [0, 0, 0, 1, 0, 0, 0, 0, 0, 3],
    "new_unjudged": [0, 2, 1, 0, 0, 3, 0, 0, 0, 0],
    "different": [1, 1, 0, 0, 1, 0, 1, 0, 0, 0],
    "language": [[0], [1], [2], [0], [0], [], [], [0], [0], [0]],
    "topic": [[0], [1], [], [0], [0], [], [0], [1], [1], []],
}


def drawn(page: Page) -> list[str]:
    """The ids of the rows that are elements, which stand in the order that they say they have."""
    found = page.locator(".qt-body > [role=row]").evaluate_all(
        "rows => rows.map(r => [Number(r.ariaRowIndex), r.firstChild.textContent])"
    )
    assert found == sorted(found)
    return [query_id for _, query_id in found]


def until(page: Page, expression: str, arg: Any = None) -> None:
    """Wait until it is true; asked from outside, since the page's policy forbids to evaluate."""
    awaited(page, lambda: page.evaluate(expression, arg), expression)


def awaited(page: Page, condition: Callable[[], Any], told: str) -> None:
    """Wait until something holds here, while the page goes on."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"never true: {told}"
        page.wait_for_timeout(20)


def small() -> Made:
    """Ten queries, two systems; the second query has a drawer worth opening."""
    own = deepcopy(SMALL)
    n = len(own["query_id"])
    rows = {
        "query_id": own["query_id"],
        "text": own["text"],
        "gold": [1] * 9 + [0],
        "status": [[0] * 9 + [3], own["new_status"]],
        "values": {
            "nDCG@5": [own["old"], own["new"]],
            "Cost": [own["old_cost"], own["new_cost"]],
            "Length": [[1.0] * n, [2.0] * n],
        },
        "rank": [[None, 2, 1, None, 1, 3, 5, 1, None, None], own["new_rank"]],
        "class": [[3, -1, -1, 3, -1, -1, -1, -1, 3, -1], own["new_class"]],
        "unjudged": [[1] * 10, own["new_unjudged"]],
        "different": own["different"],
        "segments": {
            "language": {"names": ["en", "fr", "de"], "of": own["language"]},
            "topic": {"names": ["refunds", "delivery"], "of": own["topic"]},
        },
    }
    details = [
        detail_of(at, query_id, text)
        for at, (query_id, text) in enumerate(zip(own["query_id"], own["text"], strict=True))
    ]
    details[1] = moved(1, own["query_id"][1], own["text"][1])
    texts = {
        "a": {"text": "Un remboursement arrive sous dix jours.", "cut": False, "title": "Refunds"},
        "g#1": {"text": "Votre COLIS part de la facade. " * 30, "cut": True, "title": None},
        "b": {"text": "Mon cote, ma cour.", "cut": False, "title": None},
    }
    return Made(head_of(["old", "new"], n), rows, details, texts)


def moved(index: int, query_id: str, text: str) -> dict[str, Any]:
    """Gold g#1 falls from rank 2 to raw rank 37, x stays first, b rises, n comes in new."""
    grades = {"g#1": 2.0, "b": 0.0}
    detail = detail_of(index, query_id, text, note="asked in a mail", negatives=["n"])
    detail["attributes"] = {"language": "fr", "tags": ["parcel", "late"], "hard": True}
    detail["gold"] = [
        gold_of("g#1", {"final": 2}, {"final": None, "raw": 37}, grade=2.0, bm25=1, section="Way"),
        gold_of("h#1", {"final": None}, {"final": None}),
        gold_of("lost#1", {}, {}, in_corpus=False),
    ]
    old, new = detail["systems"]
    old |= {"hits": hits("x", "g#1", "c", "b", grades=grades), "searched": 50}
    new |= {
        "hits": hits("x", "b", "n", grades=grades),
        "class": "low_rank",
        "because": "g#1 was retrieved at rank 37 and cut off",
        "searched": 40,
        "calls": {"latency.total": 12.25, "source": "fr"},
    }
    detail["bm25"] = [["g#1", 7.1, 2.0], ["b", 3.0, 0.0]]
    return detail


def large(n: int = 10_000) -> Made:
    """So many queries of two systems, with texts of a few words, and 100 details a block."""
    words = ("refund", "card", "parcel", "order", "delivery", "address", "seller", "account")

    def text(at: int) -> str:
        return (
            " ".join(words[(at * step + step) % 8] for step in (1, 3, 7, 9, 11, 13, 17)) + f" {at}"
        )

    old = [(at * 7919 % 1000) / 1000 for at in range(n)]
    new = [(at * 104729 % 1000) / 1000 for at in range(n)]
    ids = [f"query-{at}" for at in range(n)]
    rows = {
        "query_id": ids,
        "text": [text(at) for at in range(n)],
        "gold": [1] * n,
        "status": [[0] * n, [0] * n],
        "values": {"nDCG@5": [old, new], "Cost": [new, old], "Length": [old, old]},
        "rank": [[1 + at % 9 for at in range(n)], [1 + at % 7 for at in range(n)]],
        "class": [[-1] * n, [4 if at % 10 == 0 else -1 for at in range(n)]],
        "unjudged": [[at % 3 for at in range(n)], [at % 2 for at in range(n)]],
        "different": [at % 2 for at in range(n)],
        "segments": {
            "language": {"names": ["en", "pt", "es"], "of": [[at % 3] for at in range(n)]}
        },
    }
    details = [detail_of(at, ids[at], text(at)) for at in range(n)]
    head = head_of(["old", "new"], n, block=100, columns=["language"])
    return Made(head, rows, details, {"a": {"text": "A refund.", "cut": False, "title": None}})


def one_system() -> Made:
    """The small view with its second system alone."""
    made = small()
    rows = made.rows
    for name in ("status", "rank", "class", "unjudged"):
        rows[name] = rows[name][1:]
    rows["values"] = {name: both[1:] for name, both in rows["values"].items()}
    rows["different"] = [0] * len(rows["query_id"])
    made.head |= {"systems": ["new"], "commands": made.head["commands"][1:]}
    made.head |= {"bm25_depth": None}
    made.head |= {"bm25": "the corpus is not given", "texts": "the texts are not in this report"}
    for detail in made.details:
        detail["systems"] = detail["systems"][1:]
        detail["bm25"] = None
        for gold in detail["gold"]:
            gold["ranks"] = gold["ranks"][1:]
    made.texts.clear()
    return made


def documents() -> Made:
    """The first query's gold is documents and the lists are chunks, as with level=doc.

    Document d is the second card of "old" by its chunk d#3, and the first of "new" by d#1; it is
    second in BM25's list too. Document e is 23rd in "old" and in no other list.
    """
    made = small()
    made.head |= {"level": "doc"}
    made.details[0] |= {
        "gold": [
            gold_of("d", {"final": 2}, {"final": 1}, bm25=2),
            gold_of("e", {"final": 23}, {"final": None}),
        ],
        "bm25": [["x#1", 7.1, None], ["d#3", 3.0, 1.0]],
    }
    old, new = made.details[0]["systems"]
    old |= {"hits": hits("x#1", "d#3", "d#1", grades={"d#3": 1.0}), "searched": 20}
    new |= {"hits": hits("d#1", "x#1", grades={"d#1": 1.0}), "searched": 20}
    return made


def three_systems() -> Made:
    """The small view with a third system, which has b first as nobody has, and x third."""
    made = five_systems()
    for name in ("status", "rank", "class", "unjudged"):
        made.rows[name] = made.rows[name][:3]
    made.rows["values"] = {name: every[:3] for name, every in made.rows["values"].items()}
    made.head |= head_of(["old", "new", "third"], 10)
    for detail in made.details:
        detail["systems"] = detail["systems"][:3]
        for gold in detail["gold"]:
            gold["ranks"] = gold["ranks"][:3]
    made.details[1]["systems"][2] = {
        **made.details[1]["systems"][2],
        "hits": hits("b", "n", "x", "c"),
    }
    return made


def five_systems() -> Made:
    """The small view with its second system four times."""
    made = small()
    rows = made.rows
    for name in ("status", "rank", "class", "unjudged"):
        rows[name] = [rows[name][0], *[rows[name][1]] * 4]
    rows["values"] = {name: [both[0], *[both[1]] * 4] for name, both in rows["values"].items()}
    made.head |= head_of(["old", "new", "third", "fourth", "fifth"], 10)
    for detail in made.details:
        detail["systems"] = [detail["systems"][0], *[detail["systems"][1]] * 4]
        for gold in detail["gold"]:
            gold["ranks"] = [gold["ranks"][0], *[gold["ranks"][1]] * 4]
    return made


HOSTILE = '<img src=x onerror="window.ran=1"><script>window.ran=1</script>'


def hostile() -> Made:
    """Whatever a file may hold: markup, right-to-left, emoji, control characters, 100 kB."""
    made = small()
    ids = [
        'it\'s\n"two" lines',
        HOSTILE,
        "=1+1",
        "$(touch ran) `ran`",
        "\u202eabc",
        "-5",
        "+x",
        "@y",
    ]
    long = "word " * 20_000
    texts = [
        HOSTILE,
        "\u202egnol \u2066" + "א" * 300,
        "👩‍👩‍👧‍👦" * 200,
        "a\x07b\x1b[31m",
        long,
        "\t=1",
        "",
        " ",
    ]
    for at, (query_id, text) in enumerate(zip(ids, texts, strict=True)):
        made.rows["query_id"][at] = made.details[at]["query_id"] = query_id
        made.rows["text"][at] = made.details[at]["text"] = text
        made.details[at]["attributes"] = {HOSTILE: HOSTILE, "n" * 300: "v" * 3000}
        made.details[at]["note"] = HOSTILE
    made.details[0]["systems"][1] |= {
        "error": HOSTILE + "\n" + long,
        "status": "failed",
        "hits": [],
    }
    made.texts |= {"a": {"text": HOSTILE + long, "cut": True, "title": HOSTILE}}
    made.head["systems"] = [HOSTILE, "a\u202eb" * 30]
    return made
