"""Sheets: finished work on labels as one document and one page, whatever its inputs were."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from karat.columns import Source
from karat.reports.document import SCHEMA_VERSION, input_of
from karat.reports.pages import Page
from karat.version import __version__


@dataclass(frozen=True, eq=False)
class Sheet:
    """``body`` is the plain data, ``page_of`` how that reads, ``inputs`` what it was made from."""

    body: Mapping[str, Any]
    conventions: Mapping[str, Any]
    inputs: Mapping[str, Source | Sequence[Source] | None]
    page_of: Callable[[Mapping[str, Any]], Page]

    def results(self) -> dict[str, Any]:
        """The document without its inputs, whose digests take a pass over every file."""
        return {
            "schema_version": SCHEMA_VERSION,
            "tool": {"name": "karat", "version": __version__},
            "conventions": dict(self.conventions),
            **self.body,
        }

    def document(self) -> dict[str, Any]:
        """The whole document, with the digest of every input."""
        return {
            **self.results(),
            "inputs": {name: _told(given) for name, given in self.inputs.items()},
        }

    def page(self) -> Page:
        """The page on it."""
        return self.page_of(self.results())


def _told(given: Source | Sequence[Source] | None) -> Any:
    if given is None or isinstance(given, Source):
        return given and input_of(given)
    return [input_of(one) for one in given]
