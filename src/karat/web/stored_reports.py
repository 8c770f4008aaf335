"""Stored evaluations by URL: filters of the list, parts of reports, and comparisons."""

from __future__ import annotations

import gzip
from collections.abc import Hashable
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import FastAPI, Path, Request
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.concurrency import run_in_threadpool

from karat.errors import InputError, UsageError
from karat.report.html.view import unpacked
from karat.report.stored_comparison import ComparedView, compare_views, rule_of
from karat.store import EvaluationPage, Store
from karat.web.errors import NotFoundError
from karat.web.workers import run_costly

MOST_PER_PAGE = 200
MOST_COMPARED = 12
_HIGHEST_ID = 2**31 - 1

Id = Annotated[int, Path(ge=1, le=_HIGHEST_ID)]
# No name is longer, and a refused one is repeated in the error.
Name = Annotated[str, Field(max_length=200)]


class EvaluationFilters(BaseModel):
    """Filters of the list of evaluations, and the page; empty filters do nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    system: Name | None = Field(None, description="Only of this system.")
    tag: Name | None = Field(None, description="Only with this tag.")
    gold: Name | None = Field(None, description="Only on gold whose SHA-256 begins so.")
    verdict: Name | None = Field(None, description="Only with this verdict.")
    search: Name | None = Field(None, description="Words in the system, note, run, commit or tags.")
    page: int = Field(1, ge=1, le=1_000_000)
    size: int = Field(50, ge=1, le=MOST_PER_PAGE)

    @field_validator("system", "tag", "gold", "verdict", "search", "page", "size", mode="before")
    @classmethod
    def _empty_is_none(cls, value: Any, info: Any) -> Any:
        """Treat an empty text, which a form sends, as not given."""
        return cls.model_fields[info.field_name].default if value == "" else value

    @property
    def filters(self) -> dict[str, str]:
        """Return the filters that are set."""
        return self.model_dump(exclude={"page", "size", "measure"}, exclude_none=True)

    def listed(self, store: Store) -> EvaluationPage:
        """Return the evaluations of the page."""
        first = (self.page - 1) * self.size
        return store.listed(**self.filters, limit=self.size, offset=first)

    def pages(self, total: int) -> int:
        """Return the number of pages; an empty list has one."""
        return max(1, -(-total // self.size))


def part_of(app: FastAPI, report_id: int, name: str) -> Any:
    """Return a part of a report's page as data, or None if it was saved without."""
    return app.state.parts.get((report_id, name), lambda: _read(app, report_id, name))


def text_of(app: FastAPI, report_id: int, name: str) -> bytes:
    """Return a part of a report's page as JSON text."""
    packed = app.state.store.part(report_id, name)
    if packed is None:
        raise saved_without_details(report_id)
    try:
        return gzip.decompress(packed)
    except (OSError, EOFError):
        raise damaged(app, report_id) from None


def saved_without_details(report_id: int) -> NotFoundError:
    """Return the error for a report that was saved without its queries."""
    return NotFoundError(
        f"report {report_id} was saved without details of its queries;"
        " save it again with this karat"
    )


def _read(app: FastAPI, report_id: int, name: str) -> Any:
    packed = app.state.store.part(report_id, name)
    try:
        return None if packed is None else unpacked(packed)
    except (OSError, EOFError, ValueError):
        raise damaged(app, report_id) from None


def damaged(app: FastAPI, report_id: int) -> InputError:
    """Return the error for a report whose parts cannot be read."""
    where = f"{app.state.store.name}: report {report_id}"
    return InputError("is damaged: the details of its queries cannot be read", where=where)


class ComparisonRequest(BaseModel):
    """The evaluations to compare, their baseline, and the rule of the comparison."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ids: Annotated[
        list[str], Field(description="Ids with commas between them; the first is the baseline.")
    ]
    baseline: int | None = Field(None, description="The id of the baseline, if not the first.")
    primary: Name | None = Field(None, description="The measure that decides.")
    margin: float | None = Field(
        None,
        description="The share of the baseline's mean below which a difference does not matter;"
        " default: the reports'.",
    )

    @field_validator("baseline", "primary", "margin", mode="before")
    @classmethod
    def _empty_is_none(cls, value: Any, info: Any) -> Any:
        return cls.model_fields[info.field_name].default if value == "" else value

    @property
    def chosen(self) -> list[int]:
        """Return the ids, baseline first; a form sends them one by one, and then the oldest is."""
        words = [word.strip() for text in self.ids for word in text.split(",") if word.strip()]
        ids = list(dict.fromkeys(_id(word) for word in words))
        if len(self.ids) > 1:
            ids.sort()
        if len(ids) > MOST_COMPARED:
            raise UsageError(
                f"{len(ids)} evaluations are too many at once; take {MOST_COMPARED} at most"
            )
        if self.baseline is None:
            return ids
        if self.baseline not in ids:
            raise UsageError(f"the baseline {self.baseline} is not one of the evaluations compared")
        return [self.baseline, *(id for id in ids if id != self.baseline)]

    @property
    def query_string(self) -> str:
        """Return the comparison as a query string."""
        rule = {"primary": self.primary, "margin": self.margin}
        changed = [(name, value) for name, value in rule.items() if value is not None]
        return urlencode([("ids", ",".join(map(str, self.chosen))), *changed], safe=",")

    def with_baseline(self, id: int) -> str:
        """Return the comparison with another baseline, as a query string."""
        return self.model_copy(update={"baseline": id}).query_string


async def comparison_of(request: Request, wanted: ComparisonRequest) -> ComparedView:
    """Return a comparison; one that is not cached waits for a slot."""
    app, key = request.app, (tuple(wanted.chosen), wanted.primary, wanted.margin)
    if app.state.comparisons.holds(key):
        return await run_in_threadpool(_compared, app, wanted, key)
    return await run_costly(request, partial(_compared, app, wanted, key))


def _compared(app: FastAPI, wanted: ComparisonRequest, key: Hashable) -> ComparedView:
    def compare() -> ComparedView:
        stored = [app.state.store.baseline(str(id)) for id in wanted.chosen]
        rule = rule_of(stored, primary=wanted.primary, margin=wanted.margin)
        return compare_views(stored, rule, lambda report, name: part_of(app, report, name))

    found: ComparedView = app.state.comparisons.get(key, compare)
    return found


def _id(word: str) -> int:
    if not word.isdecimal() or len(word) > 10 or not 0 < int(word) <= _HIGHEST_ID:
        raise UsageError(f"ids are numbers with commas between them, not {word[:40]!r}")
    return int(word)
