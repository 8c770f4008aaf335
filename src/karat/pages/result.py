"""Result: the base of everything that an analysis returns, and AnalysisResult for plain data."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO, StringIO
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from karat.data.columns import Source
from karat.errors import UsageError
from karat.pages.formatting import utf8
from karat.pages.page import Page
from karat.version import __version__

if TYPE_CHECKING:
    import polars as pl

SCHEMA_VERSION = 2
# What every document of karat begins with.
ENVELOPE: Mapping[str, Any] = {
    "schema_version": SCHEMA_VERSION,
    "tool": {"name": "karat", "version": __version__},
}

Inputs = Mapping[str, Any]


class Result(ABC):
    """What an analysis found: plain data, a table, a page, and files of them.

    A subclass gives ``to_dict`` and ``page``; ``to_frame`` where its rows are not ``systems``.
    """

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the whole result as plain data with stable keys."""

    @abstractmethod
    def page(self) -> Page:
        """Return the page that people read."""

    def to_frame(self) -> pl.DataFrame:
        """Return one row per system; nested numbers have dotted column names."""
        import polars as pl

        body = self.to_dict()
        rows = [dict(_flat(row)) for row in body.get("systems") or [body]]
        return pl.DataFrame(rows, infer_schema_length=None)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to a file; its suffix picks the form.

        The file is complete or not there: it is written under another name and renamed.
        """
        place = Path(path)
        write = _WRITERS.get(place.suffix.lower())
        if write is None:
            raise UsageError(f"cannot save {str(path)!r}: use {', '.join(_WRITERS)}")
        data = write(self)
        place.parent.mkdir(parents=True, exist_ok=True)
        unfinished = place.with_name(f".karat-{token_hex(4)}")
        try:
            unfinished.write_bytes(data)
            unfinished.replace(place)
        finally:
            unfinished.unlink(missing_ok=True)

    def __repr__(self) -> str:
        from rich.console import Console

        from karat.pages.terminal import PIPED_WIDTH, show_page

        text = StringIO()
        console = Console(file=text, width=PIPED_WIDTH, markup=False, emoji=False, highlight=False)
        show_page(self.page(), console)
        return text.getvalue().rstrip()

    def _repr_html_(self) -> str:
        from karat.pages.html import page_html

        return page_html(self.page())


@dataclass(frozen=True, eq=False, repr=False)
class AnalysisResult(Result):
    """A finished analysis as plain data: ``page_of`` makes its page of ``results()``.

    ``inputs`` are what it was made from: sources, lists of sources, or plain data about them.
    """

    body: Mapping[str, Any]
    conventions: Mapping[str, Any]
    page_of: Callable[[Mapping[str, Any]], Page]
    inputs: Inputs = field(default_factory=dict)

    def results(self) -> dict[str, Any]:
        """Return the result without its inputs, whose digests read every file once more."""
        return {**ENVELOPE, "conventions": dict(self.conventions), **self.body}

    def to_dict(self) -> dict[str, Any]:
        """Return the whole document, with the digest of every input."""
        inputs = {name: _input(value) for name, value in self.inputs.items()}
        return {**self.results(), "inputs": inputs}

    def page(self) -> Page:
        """Return the page that people read."""
        return self.page_of(self.results())


def input_of(source: Source) -> dict[str, Any]:
    """Return an input as a document lists it: its name and the digest of its bytes."""
    return {"name": utf8(source.name), "sha256": source.digest()}


def _input(value: Any) -> Any:
    if isinstance(value, Source):
        return input_of(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_input(element) for element in value]
    return value


def record_frame(records: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Return one row per gate or comparison: its interval in two columns, its segment by name."""
    import polars as pl

    rows = []
    for record in records:
        low, high = record["ci"] or (None, None)
        segment = " × ".join((record["segment"] or {}).values()) or None
        plain = {k: v for k, v in record.items() if not isinstance(v, Mapping | list | tuple)}
        rows.append(plain | {"segment": segment, "ci_low": low, "ci_high": high})
    return pl.DataFrame(rows, infer_schema_length=None)


def _flat(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the scalars of nested mappings under dotted names; lists are left out."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif not isinstance(value, (list, tuple)):
            yield f"{prefix}{key}", value


def to_json(result: Result) -> bytes:
    """Return the whole document as JSON; same inputs, same bytes."""
    from karat.pages.serialize import dumps

    return dumps(result.to_dict())


def to_csv(result: Result) -> bytes:
    """Return the table as CSV with a header; what was not measured is empty."""
    from karat.pages.serialize import csv_table

    return csv_table(result.to_frame())


def to_jsonl(result: Result) -> bytes:
    """Return the table with one JSON object per row."""
    return result.to_frame().write_ndjson().encode()


def to_parquet(result: Result) -> bytes:
    """Return the table as Parquet."""
    buffer = BytesIO()
    result.to_frame().write_parquet(buffer)
    return buffer.getvalue()


def to_markdown(result: Result) -> bytes:
    """Return the page as Markdown."""
    from karat.pages.markdown import page_markdown

    return page_markdown(result.page()).encode()


def to_html(result: Result) -> bytes:
    """Return the page as an HTML document of its own."""
    from karat.pages.html import page_document

    return page_document(result.page()).encode()


def to_png(result: Result) -> bytes:
    """Return the charts of the page as one picture."""
    from karat.pages.charts import page_chart, png

    return png(page_chart(result.page()))


def to_svg(result: Result) -> bytes:
    """Return the charts of the page as one drawing."""
    from karat.pages.charts import page_chart, svg

    return svg(page_chart(result.page()))


_WRITERS: dict[str, Callable[[Result], bytes]] = {
    ".json": to_json,
    ".csv": to_csv,
    ".jsonl": to_jsonl,
    ".parquet": to_parquet,
    ".md": to_markdown,
    ".html": to_html,
    ".png": to_png,
    ".svg": to_svg,
}
