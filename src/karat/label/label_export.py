"""Judgments of the store written to files: gold in any format, or label lines."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from karat.data.tables import Queries
from karat.errors import InputError, UsageError, unknown
from karat.formats import write_eval_set, write_gold
from karat.formats.conversion import lost_columns
from karat.formats.files import check_path, layout_suffix, refuse_database, write_lines
from karat.formats.registry import FORMATS, Format, format_for_writing
from karat.label.label_pages import export_page
from karat.label.label_store import (
    LabelResult,
    Waiting,
    Where,
    choose_set,
    open_store,
    set_dict,
)
from karat.label.labelling import METHODS, Majority, gold_of, label_lines, rater_name, resolve
from karat.pages.formatting import plural
from karat.store import Judgment, LabelItem, LabelSet
from karat.store.database import store_address

# Written as label lines: the judgments that count, or all that were ever given.
EVERY, LOG = "every", "log"
_AS_LINES = (EVERY, LOG)


def export_labels(
    outputs: Sequence[str],
    resolve_by: str,
    *,
    label_set: str | None = None,
    rater: str | None = None,
    strict: bool = False,
    store: Where = None,
    waiting: Waiting | None = None,
) -> LabelResult:
    """Write a set's judgments to files; nothing is written if a file cannot be.

    ``resolve_by`` is majority, dawid-skene or adjudicated (gold with one grade per pair), or
    every or log (label lines). ``strict`` refuses ties, which are left out otherwise.
    """
    if resolve_by not in (*METHODS, *_AS_LINES):
        raise unknown("way to resolve", resolve_by, (*METHODS, *_AS_LINES))
    if strict and resolve_by in _AS_LINES:
        raise UsageError(f"--strict is for ties, which --resolve {resolve_by} does not have")
    files = _files(outputs, store_address(store).files(), lines=resolve_by in _AS_LINES)
    name = None if rater is None else rater_name(rater)
    with open_store(store, waiting) as opened:
        chosen = choose_set(opened, label_set)
        items = opened.label_items(chosen.id)
        judgments = opened.judgments(chosen.id, rater=name, every=resolve_by == LOG)
    if not judgments:
        who = "" if name is None else f" by {name}"
        raise UsageError(f"nothing was judged{who} in label set {chosen.id} ({chosen.name}) yet")
    body: dict[str, Any] = {"set": set_dict(chosen), "resolve": resolve_by, "rater": name}
    if resolve_by in _AS_LINES:
        body |= {"judgments": len(judgments), "files": _write_lines(items, judgments, files)}
        return LabelResult(body, export_page)
    resolved = resolve(items, judgments, resolve_by)
    _check(resolved, chosen, resolve_by, strict=strict)
    body |= {**resolved.counts(), "adjudicated": resolved.adjudicated}
    body["ties"] = [tie.to_dict() for tie in resolved.ties]
    body["files"] = _write_gold(resolved, items, files)
    return LabelResult(body, export_page)


def _check(resolved: Majority, label_set: LabelSet, resolve_by: str, *, strict: bool) -> None:
    if strict and resolved.ties:
        first = resolved.ties[0]
        raise UsageError(
            f"label set {label_set.id} has {plural(len(resolved.ties), 'tie')} by {resolve_by}, the"
            f" first on query {first.query_id!r}, item {first.item_id!r}; decide them with karat"
            " labels adjudicate, or leave --strict out"
        )
    if not resolved.grades:
        raise UsageError(
            f"no pair of label set {label_set.id} ({label_set.name}) gets a grade by {resolve_by};"
            " karat labels conflicts shows what raters say"
        )


@dataclass(frozen=True)
class _File:
    path: str
    form: Format

    def to_dict(self, rows: int, lost: Sequence[str] = ()) -> dict[str, Any]:
        return {"path": self.path, "format": self.form.name, "rows": rows, "lost": list(lost)}


def _files(outputs: Sequence[str], store_files: Sequence[str], *, lines: bool) -> list[_File]:
    """Return the files to write, with the format of their prefix or suffix; never the store."""
    if not outputs:
        raise UsageError("nothing to write; name a file with -o")
    files = [_file(text, lines=lines) for text in outputs]
    taken = set(map(os.path.realpath, store_files))
    seen = set()
    for path in (file.path for file in files):
        place = path if path == "-" else os.path.realpath(path)
        if place in seen:
            raise UsageError(f"-o {path} is given twice; choose another name for one of them")
        if place in taken:
            raise UsageError(f"-o {path} is the store itself; choose another name")
        refuse_database(path)
        seen.add(place)
    return files


def _file(text: str, *, lines: bool) -> _File:
    check_path(text)
    prefix, _, rest = text.partition(":")
    named = prefix if rest and prefix in FORMATS else None
    path = rest if named else text
    if not lines:
        if path == "-" and named is None:
            raise UsageError("-o - is standard output; name its format, as in -o trec:-")
        form = format_for_writing(path, "gold", named)
        form.writer("gold")
        return _File(path, form)
    if named not in (None, "labels") or (named is None and layout_suffix(path) != ".jsonl"):
        raise UsageError(
            f"-o {text}: every judgment is written as label lines; end the name in .jsonl, or"
            f" write labels:{path}"
        )
    return _File(path, FORMATS["labels"])


def _write_lines(
    items: list[LabelItem], judgments: list[Judgment], files: Sequence[_File]
) -> list[dict[str, Any]]:
    lines = [line.removesuffix("\n") for line in label_lines(items, judgments)]
    for file in files:
        write_lines(lines, file.path)
    return [file.to_dict(len(lines)) for file in files]


def _write_gold(
    resolved: Majority, items: list[LabelItem], files: Sequence[_File]
) -> list[dict[str, Any]]:
    gold, queries = gold_of(resolved), _queries(resolved, items)
    lost = []
    for file in files:
        try:
            lost.append(lost_columns(file.form, "gold", gold))
        except InputError as error:
            # If a sample cannot be written in this format, the whole cannot either.
            raise InputError(error.what, where=file.path) from None
    for file in files:
        if queries is not None and file.form.together:
            write_eval_set(queries, gold, file.path, format=file.form.name)
        else:
            write_gold(gold, file.path, format=file.form.name)
    rows = gold.frame.height
    return [file.to_dict(rows, columns) for file, columns in zip(files, lost, strict=True)]


def _queries(resolved: Majority, items: list[LabelItem]) -> Queries | None:
    """Return the texts of the graded queries; None if the set came without texts."""
    graded = {item.query_id for item, _ in resolved.grades}
    texts = {item.query_id: item.query for item in items if item.query_id in graded}
    return Queries.from_dict(texts) if all(text.strip() for text in texts.values()) else None
