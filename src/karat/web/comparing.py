"""The evaluations that an address names, compared; a comparison is kept while it is looked at."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.concurrency import run_in_threadpool

from karat.errors import UsageError
from karat.reports.html.merging import Compared, compare_views
from karat.reports.stored_comparison import rule_of
from karat.web.parts import part_of
from karat.web.wanted import Name
from karat.web.workers import costly

MOST = 12
_HIGHEST = 2**31 - 1


class Asked(BaseModel):
    """Which evaluations to compare, with which of them, and what decides."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ids: Annotated[
        list[str], Field(description="Ids with commas between them; the first is the baseline.")
    ]
    baseline: int | None = Field(None, description="The id of the baseline, if not the first.")
    primary: Name | None = Field(None, description="The measure that decides.")
    margin: float | None = Field(
        None, description="The share of the baseline's mean that is no matter; else the reports'."
    )

    @field_validator("baseline", "primary", "margin", mode="before")
    @classmethod
    def _empty_is_none(cls, value: Any, info: Any) -> Any:
        return cls.model_fields[info.field_name].default if value == "" else value

    @property
    def chosen(self) -> list[int]:
        """The ids in order; a form names each by itself, and then the oldest comes first."""
        words = [word.strip() for text in self.ids for word in text.split(",") if word.strip()]
        ids = list(dict.fromkeys(_id(word) for word in words))
        if len(self.ids) > 1:
            ids.sort()
        if len(ids) > MOST:
            raise UsageError(f"{len(ids)} evaluations are too many at once; take {MOST} at most")
        if self.baseline is None:
            return ids
        if self.baseline not in ids:
            raise UsageError(f"the baseline {self.baseline} is not one of the evaluations compared")
        return [self.baseline, *(id for id in ids if id != self.baseline)]

    @property
    def spelled(self) -> str:
        """The same question as the end of an address."""
        more = {"primary": self.primary, "margin": self.margin}
        usual = {name: type(self).model_fields[name].default for name in more}
        told = [(name, one) for name, one in more.items() if one != usual[name]]
        return urlencode([("ids", ",".join(map(str, self.chosen))), *told], safe=",")

    def with_baseline(self, id: int) -> str:
        """The same question with another baseline, as the end of an address."""
        return self.model_copy(update={"baseline": id}).spelled


async def compared(request: Request, asked: Asked) -> Compared:
    """The comparison that an address asks for; one that is not kept waits for its turn."""
    app, key = request.app, (tuple(asked.chosen), asked.primary, asked.margin)
    if app.state.compared.holds(key):
        return await run_in_threadpool(_compared, app, asked, key)
    return await costly(request, partial(_compared, app, asked, key))


def _compared(app: FastAPI, asked: Asked, key: Hashable) -> Compared:
    def compare() -> Compared:
        stored = [app.state.store.baseline(str(id)) for id in asked.chosen]
        rule = rule_of(stored, primary=asked.primary, margin=asked.margin)
        return compare_views(stored, rule, lambda report, name: part_of(app, report, name))

    found: Compared = app.state.compared.get(key, compare)
    return found


def _id(word: str) -> int:
    if not word.isdecimal() or len(word) > 10 or not 0 < int(word) <= _HIGHEST:
        raise UsageError(f"ids are numbers with commas between them, not {word[:40]!r}")
    return int(word)
