"""Which evaluations are asked for, as an address spells it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, field_validator

from karat.store import Listed, Store

MOST = 200
_HIGHEST = 2**31 - 1

Id = Annotated[int, Path(ge=1, le=_HIGHEST)]
# Nothing that is chosen by its name is longer, and what is refused is repeated.
Name = Annotated[str, Field(max_length=200)]


class Wanted(BaseModel):
    """A page of the evaluations that are all of this; what is left empty decides nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    system: Name | None = Field(None, description="Only of this system.")
    tag: Name | None = Field(None, description="Only with this tag.")
    gold: Name | None = Field(None, description="Only on gold whose SHA-256 begins so.")
    verdict: Name | None = Field(None, description="Only with this verdict.")
    search: Name | None = Field(None, description="Words in the system, note, run, commit or tags.")
    page: int = Field(1, ge=1, le=1_000_000)
    size: int = Field(50, ge=1, le=MOST)

    @field_validator("system", "tag", "gold", "verdict", "search", "page", "size", mode="before")
    @classmethod
    def _empty_is_none(cls, value: Any, info: Any) -> Any:
        """A form sends what nobody filled in as an empty text."""
        return cls.model_fields[info.field_name].default if value == "" else value

    @property
    def filters(self) -> dict[str, str]:
        """What narrows the list."""
        return self.model_dump(exclude={"page", "size", "measure"}, exclude_none=True)

    def listed(self, store: Store) -> Listed:
        """Those of the page."""
        first = (self.page - 1) * self.size
        return store.listed(**self.filters, limit=self.size, offset=first)

    def pages(self, total: int) -> int:
        """How many pages there are; one, even where it is empty."""
        return max(1, -(-total // self.size))
