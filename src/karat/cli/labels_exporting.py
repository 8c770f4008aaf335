"""From judgments in the store to files: gold in any format, or label lines with every judgment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from karat.cli.conversion import lost_in
from karat.cli.interrupts import heed_interrupts
from karat.cli.labels_sets import Document, chosen, opened, set_document
from karat.cli.saving import store_files
from karat.errors import InputError, UsageError, unknown
from karat.formats import write_eval_set, write_gold
from karat.formats.detect import format_for_writing
from karat.formats.files import layout_suffix, refuse_database, refuse_no_path, write_lines
from karat.formats.registry import FORMATS, Format
from karat.judging.labelling import Majority, label_lines, rater_name
from karat.judging.resolving import METHODS, gold_of, resolve
from karat.reports.figures import several
from karat.store import Judgment, LabelItem, LabelSet
from karat.tables import Queries

# What is written as label lines: all that counts, or all there ever was.
EVERY, LOG = "every", "log"
_LINES = (EVERY, LOG)


@dataclass(frozen=True)
class Request:
    """What ``karat labels export`` was asked for."""

    resolve: str
    which: str | None
    rater: str | None
    outputs: Sequence[str]
    strict: bool


@dataclass(frozen=True)
class Output:
    """A file to write, and its format."""

    path: str
    form: Format


def to_stdout(outputs: Sequence[str]) -> bool:
    """Whether a file goes to standard output, where nothing else can go then."""
    return any(text == "-" or text.endswith(":-") for text in outputs)


def export_set(request: Request, where: str | None) -> Document:
    """Resolve and write; what cannot be written is refused before any file is touched."""
    heed_interrupts()
    if request.resolve not in (*METHODS, *_LINES):
        raise unknown("way to resolve", request.resolve, (*METHODS, *_LINES))
    if request.strict and request.resolve in _LINES:
        raise UsageError(f"--strict is for ties, which --resolve {request.resolve} does not have")
    outputs = _outputs(request, store_files(where, used=True))
    name = None if request.rater is None else rater_name(request.rater)
    with opened(where) as store:
        one = chosen(store, request.which)
        items = store.label_items(one.id)
        said = store.judgments(one.id, rater=name, every=request.resolve == LOG)
    if not said:
        who = "" if name is None else f" by {name}"
        raise UsageError(f"nothing was judged{who} in label set {one.id} ({one.name}) yet")
    told: Document = {"set": set_document(one), "resolve": request.resolve, "rater": name}
    if request.resolve in _LINES:
        return told | {"judgments": len(said), "files": _write_lines(items, said, outputs)}
    found = resolve(items, said, request.resolve)
    _check(found, one, request)
    ties = [tie.document() for tie in found.ties]
    counts = {**found.counts(), "adjudicated": found.adjudicated, "ties": ties}
    return told | counts | {"files": _write_gold(found, items, outputs)}


def _check(found: Majority, one: LabelSet, request: Request) -> None:
    if request.strict and found.ties:
        first, many = found.ties[0], several(len(found.ties), "tie")
        raise UsageError(
            f"label set {one.id} has {many} by {request.resolve}, the first on"
            f" query {first.query_id!r}, item {first.item_id!r}; decide them with karat labels"
            " adjudicate, or leave --strict out"
        )
    if not found.grades:
        raise UsageError(
            f"no pair of label set {one.id} ({one.name}) gets a grade by {request.resolve};"
            " karat labels conflicts shows what raters say"
        )


def _outputs(request: Request, kept: Sequence[str]) -> list[Output]:
    """Where to write, each with its format: by its prefix, else by its ending; never the store."""
    if not request.outputs:
        raise UsageError("nothing to write; name a file with -o")
    found = [_output(text, lines=request.resolve in _LINES) for text in request.outputs]
    taken = set(map(os.path.realpath, kept))
    seen = set()
    for path in (one.path for one in found):
        place = path if path == "-" else os.path.realpath(path)
        if place in seen:
            raise UsageError(f"-o {path} is given twice; choose another name for one of them")
        if place in taken:
            raise UsageError(f"-o {path} is the store itself; choose another name")
        refuse_database(path)
        seen.add(place)
    return found


def _output(text: str, *, lines: bool) -> Output:
    refuse_no_path(text)
    prefix, _, path = text.partition(":")
    named = prefix if path and prefix in FORMATS else None
    path = path if named else text
    if not lines:
        if path == "-" and named is None:
            raise UsageError("-o - is standard output; say its format, as in -o trec:-")
        form = format_for_writing(path, "gold", named)
        form.writer("gold")
        return Output(path, form)
    if named not in (None, "labels") or (named is None and layout_suffix(path) != ".jsonl"):
        raise UsageError(
            f"-o {text}: every judgment is written as label lines; end it in .jsonl, or say"
            f" labels:{path}"
        )
    return Output(path, FORMATS["labels"])


def _write_lines(
    items: list[LabelItem], said: list[Judgment], outputs: Sequence[Output]
) -> list[dict[str, Any]]:
    lines = [line.removesuffix("\n") for line in label_lines(items, said)]
    for one in outputs:
        write_lines(lines, one.path)
    return [_file(one, len(lines), ()) for one in outputs]


def _write_gold(
    found: Majority, items: list[LabelItem], outputs: Sequence[Output]
) -> list[dict[str, Any]]:
    gold, queries = gold_of(found), _queries(found, items)
    lost = []
    for one in outputs:
        try:
            lost.append(lost_in(one.form, "gold", gold))
        except InputError as error:
            # What a sample cannot be written as, the whole cannot either.
            raise InputError(error.what, where=one.path) from None
    for one in outputs:
        if queries is not None and one.form.both():
            write_eval_set(queries, gold, one.path, format=one.form.name)
        else:
            write_gold(gold, one.path, format=one.form.name)
    return [_file(one, gold.frame.height, own) for one, own in zip(outputs, lost, strict=True)]


def _queries(found: Majority, items: list[LabelItem]) -> Queries | None:
    """The texts of the queries that have a grade; None where the set came without texts."""
    graded = {item.query_id for item, _ in found.grades}
    texts = {item.query_id: item.query for item in items if item.query_id in graded}
    return Queries.from_dict(texts) if all(text.strip() for text in texts.values()) else None


def _file(one: Output, rows: int, lost: tuple[str, ...]) -> dict[str, Any]:
    return {"path": one.path, "format": one.form.name, "rows": rows, "lost": list(lost)}
