"""The doors: read and write each kind of table in whatever format its file has.

Picks the format, opens the file, and leaves the rest to the format's module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from karat.columns import Duplicates
from karat.errors import InputError
from karat.formats.beir import Folder
from karat.formats.detect import detect_input, format_for_writing, refuse_binary
from karat.formats.documents import is_folder_of_documents, read_folder
from karat.formats.field_mapping import Fields, FieldsGiven, Renamed
from karat.formats.files import Input, open_input, refuse_no_path
from karat.formats.registry import Format, Kind, format_named
from karat.formats.tabular import holds_queries
from karat.tables import Blocks, Corpus, Gold, Queries, Run


def read_gold(
    path: str | Path,
    *,
    format: str | None = None,
    duplicates: Duplicates = "agree",
    fields: Fields | FieldsGiven = None,
) -> Gold:
    """Read graded judgments; ``duplicates`` is as in ``Gold.from_frame``.

    ``fields`` says which columns of the file are what: ``{"gold": "gold_ids"}``.
    """
    with _opened(path, "gold", format, fields) as (file, form):
        return cast("Gold", _read(form, "gold", file, duplicates=duplicates))


def read_run(
    path: str | Path,
    *,
    format: str | None = None,
    name: str | None = None,
    strict: bool = False,
    fields: Fields | FieldsGiven = None,
) -> Run:
    """Read what a system returned; it is called as its file unless ``name`` is given.

    ``fields`` says which columns of the file are what: ``{"item_id": "pid"}``.
    """
    with _opened(path, "run", format, fields) as (file, form):
        return cast("Run", _read(form, "run", file, name=_name(file, name), strict=strict))


def scan_run(
    path: str | Path,
    *,
    format: str | None = None,
    name: str | None = None,
    strict: bool = False,
    fields: Fields | FieldsGiven = None,
) -> Blocks:
    """Open a run to be read in blocks of whole queries, in little memory."""
    with _opened(path, "run", format, Fields.of(fields)) as (file, form):
        scan = form.scanner()
        own = {"name": _name(file, name), "strict": strict}
        # What is read in blocks is looked at again after the last of them.
        if scan is None:
            return cast("Blocks", _read(form, "run", file, **own))
        with file.source.unchanged():
            return cast("Blocks", scan(file, **own))


def read_queries(
    path: str | Path, *, format: str | None = None, fields: Fields | FieldsGiven = None
) -> Queries:
    """Read queries with their attributes.

    ``fields`` says which columns of the file are what: ``{"text": "utterance"}``.
    """
    with _opened(path, "queries", format, fields) as (file, form):
        return cast("Queries", _read(form, "queries", file))


def read_corpus(
    path: str | Path, *, format: str | None = None, fields: Fields | FieldsGiven = None
) -> Corpus:
    """Read the items that can be found; a folder of texts is one document a file.

    ``fields`` says which columns of the file are what: ``{"item_id": "uid"}``.
    """
    if format is None and is_folder_of_documents(path):
        return read_folder(path)
    with _opened(path, "corpus", format, fields) as (file, form):
        return cast("Corpus", _read(form, "corpus", file))


def read_eval_set(
    path: str | Path, *, format: str | None = None, fields: Fields | FieldsGiven = None
) -> tuple[Queries, Gold]:
    """Read a file that carries both queries and their gold."""
    together = Fields.of(fields).together()
    with _opened(path, "gold", format, together) as (file, form):
        if not form.both():
            raise InputError(
                f"is {form.name}, which holds gold without queries; give the queries' own file",
                where=file.name,
            )
        gold = _read(form, "gold", file, duplicates="agree")
        return cast("Queries", _read(form, "queries", file)), cast("Gold", gold)


def queries_beside(
    path: str | Path, *, format: str | None = None, fields: Fields | FieldsGiven = None
) -> Queries | None:
    """Read the queries that a gold file itself carries; None where it carries none."""
    if str(path) == "-":
        return None
    with _opened(path, "gold", format, Fields.of(fields).together()) as (file, form):
        if isinstance(file, Folder):
            carried = file.has_queries
        else:
            names = form.column_names()
            carried = form.both() if names is None else holds_queries(names(file))
        return cast("Queries", _read(form, "queries", file)) if carried else None


def write_gold(gold: Gold, path: str | Path, *, format: str | None = None) -> None:
    """Write judgments; without ``format`` the file's ending decides."""
    format_for_writing(path, "gold", format).writer("gold")(gold, path)


def write_run(run: Run, path: str | Path, *, format: str | None = None) -> None:
    """Write a run; without ``format`` the file's ending decides."""
    format_for_writing(path, "run", format).writer("run")(run, path)


def write_queries(queries: Queries, path: str | Path, *, format: str | None = None) -> None:
    """Write queries; without ``format`` the file's ending decides."""
    format_for_writing(path, "queries", format).writer("queries")(queries, path)


def write_eval_set(
    queries: Queries, gold: Gold, path: str | Path, *, format: str | None = None
) -> None:
    """Write queries and their gold to one file (or BEIR folder)."""
    format_for_writing(path, "gold", format).writer_of_both()(queries, gold, path)


def write_corpus(corpus: Corpus, path: str | Path, *, format: str | None = None) -> None:
    """Write items; without ``format`` the file's ending decides."""
    format_for_writing(path, "corpus", format).writer("corpus")(corpus, path)


def _read(form: Format, kind: Kind, file: Input | Folder, **more: Any) -> Any:
    """What the format makes of a file that stays as it is meanwhile."""
    with file.source.unchanged():
        table = form.reader(kind)(file, **more)
    # Of a folder, the file in it that was read.
    table.source.check()
    return table


def _name(file: Input | Folder, name: str | None) -> str:
    return file.stem if name is None else name


@contextmanager
def _opened(
    path: str | Path, kind: Kind, format: str | None, given: Fields | FieldsGiven
) -> Iterator[tuple[Input | Folder, Format]]:
    """An open file and its format; what goes wrong with it names the columns that it lacks.

    A mapping that is for this file alone must fit it; shared ones are checked by who shares them.
    """
    fields = Fields.of(given)
    renamed = Renamed.of(fields, kind)
    try:
        yield _open(path, kind, format, renamed)
    except InputError as error:
        if renamed is None:
            raise
        raise renamed.explained(error) from None
    if not isinstance(given, Fields):
        fields.check()


def _open(
    path: str | Path, kind: Kind, format: str | None, renamed: Renamed | None
) -> tuple[Input | Folder, Format]:
    refuse_no_path(path)
    if str(path) != "-" and Path(path).is_dir():
        if format not in (None, "beir"):
            raise InputError(f"is a folder; {format} is read from a file", where=str(path))
        return Folder.at(Path(path)), format_named("beir")
    file = replace(open_input(path), renamed=renamed)
    with file.source.unchanged():
        if format is None:
            return file, detect_input(file, kind)
        if format != "parquet":
            refuse_binary(file, file.head())
    return file, format_named(format)
