"""The view of a comparison, put together out of the views that its evaluations were saved with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from karat.analysis.failures.classes import CLASSES
from karat.analysis.verdicts import Rule
from karat.errors import InputError
from karat.reports.html.rows import STATUSES
from karat.reports.stored_comparison import Entry, compare_stored, line_up
from karat.store import Stored

Row = Mapping[str, Any]
# A part of a report's view, unpacked: by the report's id and its own name; None where the
# report was saved without.
Parts = Callable[[int, str], Any]


@dataclass(frozen=True, eq=False)
class Side:
    """One system of a comparison, with the view of the report that it was saved in."""

    entry: Entry
    parts: Parts

    @cached_property
    def head(self) -> Row | None:
        """The head of its own view; None where nothing of single queries was saved."""
        found: Row | None = None if self.entry.place is None else self.part("head")
        return found

    @cached_property
    def rows(self) -> Row | None:
        """The rows of its own view."""
        found: Row | None = None if self.head is None else self.part("rows")
        return found

    @cached_property
    def order(self) -> list[int]:
        """Where each query of the comparison stands in its own view."""
        places = {query_id: at for at, query_id in enumerate((self.rows or {})["query_id"])}
        return [places[query_id] for query_id in self.entry.scores.table["query_id"].to_list()]

    def part(self, name: str) -> Any:
        """A part of the view of its own report."""
        return self.parts(self.entry.evaluation.report_id, name)

    def column(self, name: str, otherwise: Any) -> list[Any]:
        """What its own rows say of each query of the comparison."""
        if self.rows is None:
            return [otherwise] * self.entry.scores.table.height
        own = self.rows[name][self.entry.place]
        return [own[at] for at in self.order]

    def detail(self, index: int) -> tuple[Row, Row] | None:
        """One query of the comparison in its own view, and the texts beside it."""
        if self.head is None:
            return None
        at, size = self.order[index], self.head["block"]
        block = self.block(at // size)
        return block["queries"][at % size], block["texts"]

    def block(self, number: int) -> Row:
        """Some queries in full; where there is a head, every block of it is there."""
        found: Row | None = self.part(f"block-{number}")
        if found is None:
            where = f"report {self.entry.evaluation.report_id}"
            raise InputError("is damaged: some of its queries are gone", where=where)
        return found

    def tops(self) -> list[list[str]]:
        """The items at the top of its list for each query; reads every block once."""
        head = self.head or {}
        blocks = map(self.block, range(-(-head["queries"] // head["block"])))
        own = [
            [hit[0] for hit in query["systems"][self.entry.place]["hits"][: head["k"]]]
            for block in blocks
            for query in block["queries"]
        ]
        return [own[at] for at in self.order]


@dataclass(frozen=True, eq=False)
class Merged:
    """A comparison's view: head, rows, and every single query."""

    sides: Sequence[Side]

    @property
    def entries(self) -> list[Entry]:
        """The evaluations compared, the baseline first."""
        return [side.entry for side in self.sides]

    @cached_property
    def known(self) -> list[Side]:
        """The sides that were saved with what lies behind single queries."""
        return [side for side in self.sides if side.rows is not None]

    def head(self, primary: str) -> dict[str, Any] | None:
        """The head; None where no side was saved with its queries."""
        if not self.known:
            return None
        first = self.known[0].head or {}
        measures = self.sides[0].entry.scores.measures
        return {
            **first,
            "systems": [side.entry.name for side in self.sides],
            "baseline": 0,
            "measures": [{"name": str(one), "better": one.definition.better} for one in measures],
            "primary": primary,
            "queries": self.sides[0].entry.scores.table.height,
            "classes": list(CLASSES),
            "statuses": list(STATUSES),
            "columns": list(self.segments),
            "unjudged": self._own("unjudged", {"hits": 0, "unjudged": 0}),
            "commands": self._own("commands", None),
            "texts": self._texts(),
        }

    @cached_property
    def rows(self) -> dict[str, Any]:
        """The rows; values and statuses come from the scores, which every side has."""
        scores = [side.entry.scores for side in self.sides]
        places = {status: at for at, status in enumerate(STATUSES)}
        return {
            "query_id": scores[0].table["query_id"].to_list(),
            "text": self._first("text", None),
            "gold": self._first("gold", 0),
            "status": [[places[one] for one in own.status.to_list()] for own in scores],
            "values": {
                str(one): [own.table[str(one)].fill_nan(None).to_list() for own in scores]
                for one in scores[0].measures
            },
            "rank": [side.column("rank", None) for side in self.sides],
            "class": [self._classes(side) for side in self.sides],
            "unjudged": [side.column("unjudged", 0) for side in self.sides],
            "different": self._different(),
            "segments": self.segments,
        }

    @cached_property
    def segments(self) -> dict[str, Any]:
        """Which segments each query is in, by every column that a side was split by."""
        found: dict[str, Any] = {}
        for side in self.known:
            for name, own in (side.rows or {})["segments"].items():
                of = [own["of"][at] for at in side.order]
                found.setdefault(name, {"names": own["names"], "of": of})
        return found

    def query(self, index: int) -> dict[str, Any]:
        """One query in full: every system's list beside the gold, texts included."""
        told = [side.detail(index) for side in self.sides]
        first = next(one[0] for one in told if one is not None)
        texts: dict[str, Any] = {}
        for one in reversed(told):
            texts |= {} if one is None else one[1]
        detail = {
            **first,
            "index": index,
            "gold": [self._gold(item, told) for item in first["gold"]],
            "systems": [
                self._system(side, index, one) for side, one in zip(self.sides, told, strict=True)
            ],
            "bm25": next((one[0]["bm25"] for one in told if one and one[0]["bm25"]), None),
        }
        return with_texts(detail, texts)

    def _own(self, key: str, otherwise: Any) -> list[Any]:
        """What the head of each side's own view says of it."""
        return [
            otherwise if side.head is None else side.head[key][side.entry.place]
            for side in self.sides
        ]

    def _texts(self) -> str | None:
        """What the sides say of texts that are not there, and whose queries are not at all."""
        told = [(side.head or {}).get("texts") for side in self.known]
        lacking = [side.entry.name for side in self.sides if side.rows is None]
        if lacking:
            told.append(f"{', '.join(lacking)}: saved without what lies behind single queries")
        return "; ".join(dict.fromkeys(filter(None, told))) or None

    def _first(self, name: str, otherwise: Any) -> list[Any]:
        """A column that is the same for all systems, from the first view that has it."""
        side = self.known[0] if self.known else None
        if side is None or side.rows is None:
            return [otherwise] * self.sides[0].entry.scores.table.height
        return [side.rows[name][at] for at in side.order]

    def _classes(self, side: Side) -> list[int]:
        """Classes by the numbers of today's list, whatever numbers they were saved under."""
        names = (side.head or {}).get("classes", [])
        numbers = {at: CLASSES.index(name) for at, name in enumerate(names) if name in CLASSES}
        return [numbers.get(at, -1) for at in side.column("class", -1)]

    def _different(self) -> list[int]:
        """Whether the tops of the systems are different lists; needs every block."""
        n = self.sides[0].entry.scores.table.height
        if len(self.known) < 2:
            return [0] * n
        tops = [side.tops() for side in self.known]
        return [int(any(own[at] != tops[0][at] for own in tops[1:])) for at in range(n)]

    def _gold(self, item: Row, told: Sequence[tuple[Row, Row] | None]) -> dict[str, Any]:
        """A judged item, with the ranks at which each system's own lists have it."""
        ranks = []
        for side, one in zip(self.sides, told, strict=True):
            same = None if one is None else _same_item(one[0]["gold"], item)
            place = side.entry.place
            ranks.append({} if same is None or place is None else same["ranks"][place])
        return {**item, "ranks": ranks}

    def _system(self, side: Side, index: int, told: tuple[Row, Row] | None) -> Row:
        if told is not None and side.entry.place is not None:
            own: Row = told[0]["systems"][side.entry.place]
            return own
        return {
            "status": side.entry.scores.status[index],
            "error": None,
            "class": None,
            "because": "saved without its lists",
            "searched": None,
            "hits": [],
            "calls": {},
        }


@dataclass(frozen=True, eq=False)
class Compared:
    """All that a page on a comparison is made of."""

    document: dict[str, Any]
    head: dict[str, Any] | None
    warnings: tuple[str, ...]
    view: Merged


def compare_views(stored: Sequence[Stored], rule: Rule, parts: Parts) -> Compared:
    """Compare stored evaluations with the first of them, down to single queries."""
    lineup = line_up(stored)
    view = Merged([Side(entry, parts) for entry in lineup.entries])
    found = compare_stored(lineup.entries, rule, segments=view.segments)
    lacking = [side.entry.told for side in view.sides if side.rows is None]
    told = [f"{name} was saved without its lists: only its values are known" for name in lacking]
    return Compared(found.document, view.head(found.primary), (*lineup.warnings, *told), view)


def with_texts(detail: Row, texts: Row) -> dict[str, Any]:
    """A query's detail with the texts of its own items."""
    items = [item["item_id"] for item in detail["gold"]]
    items += [hit[0] for system in detail["systems"] for hit in system["hits"]]
    items += [hit[0] for hit in detail["bm25"] or ()]
    own = {item: texts[item] for item in dict.fromkeys(items) if item in texts}
    return {**detail, "texts": own}


def _same_item(gold: Sequence[Row], item: Row) -> Row | None:
    return next((one for one in gold if one["item_id"] == item["item_id"]), None)
