"""Label sets in the store: made, filled from files, listed, compared, decided on and exported.

What files bring is in ``label_sets``; what people read of a result in ``label_pages``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from karat.data.tables import Queries
from karat.errors import InputError, UsageError, unknown
from karat.formats.files import check_path, layout_suffix, refuse_database, write_lines
from karat.formats.labels import ADJUDICATION
from karat.formats.readers import lost_columns, write_eval_set, write_gold
from karat.formats.registry import FORMATS, Format, format_for_writing
from karat.label import label_pages
from karat.label.inputs import corpus_table, queries_table, refuse_repeats, refuse_two_pipes
from karat.label.label_sets import (
    ImportedJudgment,
    pairs_to_label,
    read_judgments,
    read_pool,
    refuse_contradictions,
)
from karat.label.raters import (
    FEW,
    METHODS,
    ResolvedGrades,
    agreement,
    alphas,
    conflicts,
    decisions,
    gold_of,
    label_lines,
    progress,
    rater_name,
    rationale_text,
    resolve,
)
from karat.pages.formatting import plural
from karat.pages.page import Page
from karat.pages.result import Result
from karat.store import (
    AddedLabelSet,
    Judgment,
    LabelItem,
    LabelSet,
    NameTakenError,
    NewJudgment,
    NoHistoryError,
    Store,
)
from karat.store.database import store_address
from karat.store.records import checked_set_name, printable_name

_MAKE = "make a set with karat labels new POOL, or with karat labels import FILE --name NAME"
# A message names this many sets.
_NAMED = 10
# Written as label lines: the judgments that count, or all that were ever given.
_AS_LINES = ("every", "log")


@dataclass(frozen=True, eq=False, repr=False)
class LabelResult(Result):
    """The result of one action on the store: ``body`` is plain data, ``page_of`` its page."""

    body: Mapping[str, Any]
    page_of: Callable[[Mapping[str, Any]], Page]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return dict(self.body)

    def page(self) -> Page:
        """Return the page that people read."""
        return self.page_of(self.body)


class _OpenSet(NamedTuple):
    """A label set in an open store."""

    store: Store
    set: LabelSet
    items: list[LabelItem]

    @property
    def name(self) -> str:
        return f"label set {self.set.id} ({self.set.name})"

    def position(self, query: str, item: str) -> int:
        """Return the position of a pair; one that is not in the set is refused."""
        for each in self.items:
            if (each.query_id, each.item_id) == (query, item):
                return each.position
        of_query = sorted(each.item_id for each in self.items if each.query_id == query)
        if of_query:
            raise unknown(f"item of query {query!r} in label set {self.set.id}", item, of_query)
        queries = sorted({each.query_id for each in self.items})
        raise unknown(f"query in label set {self.set.id}", query, queries)

    def judgment_dict(self, judgment: Judgment) -> dict[str, Any]:
        """Return a judgment with the ids of its pair."""
        item = self.items[judgment.position]
        return {**judgment.document(), "query_id": item.query_id, "item_id": item.item_id}

    def result(self, page_of: Callable[[Mapping[str, Any]], Page], **body: Any) -> LabelResult:
        """Return the result of an action on this set."""
        return LabelResult({"set": _set_dict(self.set), **body}, page_of)


def _set_dict(label_set: LabelSet) -> dict[str, Any]:
    return {"id": label_set.id, "name": label_set.name, "size": label_set.size}


@dataclass(frozen=True)
class LabelSets:
    """The label sets of a store; a method opens it, does one thing and returns the result.

    ``waiting`` is called if another process uses the store. ``label_set`` is the id or the name
    of a set; None stands for the only one that there is.

    >>> sets = LabelSets("labels.db")
    >>> result = sets.add(["qrels.txt"], name="mine", rater="ann")
    >>> sets.overview().to_dict()["sets"][0]["name"]
    'mine'
    """

    store: str | None = None
    waiting: Callable[[str], None] = lambda name: None

    @contextmanager
    def _open(self) -> Iterator[Store]:
        with Store.open(self.store, waiting=self.waiting) as store:
            if not store.lasting:
                raise UsageError("an in-memory store saves nothing; name a file")
            try:
                yield store
            except NoHistoryError as error:
                message = f"no judgments are kept here; {_MAKE}"
                raise NoHistoryError(message, where=error.where) from None

    @contextmanager
    def _open_set(self, name: str | None) -> Iterator[_OpenSet]:
        with self._open() as store:
            label_set = _choose_set(store, name)
            yield _OpenSet(store, label_set, store.label_items(label_set.id))

    def overview(self) -> LabelResult:
        """List every set: what is judged, where raters differ, and the progress of each rater."""
        with self._open() as store:
            sets = [_summary(store, label_set) for label_set in store.label_sets()]
        return LabelResult({"sets": sets}, label_pages.sets_page)

    def new(self, pool: str, name: str | None = None) -> LabelResult:
        """Make a set of a pool's pairs; the same pairs again are the set that exists."""
        check_path(pool)
        if name is not None:
            checked_set_name(name)
        items = read_pool(pool)
        file = "stdin" if pool == "-" else Path(pool).name
        title = file.split(".")[0] if name is None else name
        with self._open() as store:
            added = _add_set(store, title, items, about=f"From the pool {file}.")
        body = {"set": _set_dict(added.set), "new": added.new}
        return LabelResult(body, label_pages.new_set_page)

    def add(
        self,
        files: Sequence[str],
        *,
        label_set: str | None = None,
        name: str | None = None,
        rater: str | None = None,
        source: str | None = None,
        queries: str | None = None,
        corpus: str | None = None,
        format: str | None = None,
    ) -> LabelResult:
        """Add the judgments of files to a set, or with ``name`` to a new set of their pairs.

        All of it is added or nothing. Judgments that exist already are not added again.
        """
        if label_set is not None and name is not None:
            raise UsageError("--set adds to an existing set and --name makes one; give one of them")
        if name is None and (queries or corpus):
            raise UsageError("--queries and --corpus bring texts to a new set; name it with --name")
        if queries is not None and corpus is None:
            queries_only = "--queries has the queries' texts"
            raise UsageError(f"{queries_only}; give those of the items with --corpus")
        refuse_two_pipes(*files, queries, corpus)
        refuse_repeats("", files)
        if name is not None:
            checked_set_name(name)
        source = None if source is None else printable_name("source", source)
        imported = [
            read_judgments(file, rater=rater, source=source, format=format) for file in files
        ]
        judgments = [judgment for file in imported for judgment in file.judgments]
        refuse_contradictions(judgments)
        if name is None:
            with self._open_set(label_set) as opened:
                rows = _rows(judgments, opened.items, opened.name)
                judged = opened.store.judge_many(opened.set.id, rows)
            added = AddedLabelSet(opened.set, False, judged)
        else:
            texts = None
            if corpus is not None:
                texts = queries_table(queries, list(files), gold_format=format)
                if texts is None:
                    items_only = "--corpus has the items' texts"
                    raise UsageError(f"{items_only}; give the queries' with --queries")
            pairs = (judgment.pair for judgment in judgments)
            items = pairs_to_label(pairs, queries=texts, corpus=corpus_table(corpus))
            items = [replace(item, position=at) for at, item in enumerate(items)]
            about = f"The pairs of {', '.join(file.name for file in imported)}."
            with self._open() as store:
                added = _add_set(store, name, items, _rows(judgments, items, name), about=about)
        body = {
            "set": _set_dict(added.set),
            "new": added.new,
            "files": [
                {
                    "name": file.name,
                    "format": file.form,
                    "judgments": len(file.judgments),
                    "failed": file.failed,
                }
                for file in imported
            ],
            "added": added.judgments.added,
            "known": added.judgments.known,
            "cannot_tell": sum(judgment.grade is None for judgment in judgments),
            "failed": sum(file.failed for file in imported),
            "raters": dict(sorted(Counter(judgment.rater for judgment in judgments).items())),
        }
        return LabelResult(body, label_pages.import_page)

    def conflicts(
        self,
        label_set: str | None = None,
        *,
        include_decided: bool = False,
        limit: int | None = None,
    ) -> LabelResult:
        """Return the pairs that raters grade differently, with what each of them said."""
        with self._open_set(label_set) as opened:
            differing = conflicts(opened.items, opened.store.judgments(opened.set.id))
        texts = {item.query_id: item.query for item in opened.items}
        listed = [each for each in differing if include_decided or each["decision"] is None]
        return opened.result(
            label_pages.conflicts_page,
            total=len(differing),
            open=sum(conflict["decision"] is None for conflict in differing),
            listed=len(listed),
            conflicts=[{**each, "query": texts[each["query_id"]]} for each in listed[:limit]],
        )

    def adjudicate(
        self,
        query: str,
        item: str,
        grade: float | None,
        *,
        rater: str,
        rationale: str = "",
        label_set: str | None = None,
    ) -> LabelResult:
        """Decide on the grade of a pair; None decides that it gets none."""
        name, why = rater_name(rater), rationale_text(rationale)
        with self._open_set(label_set) as opened:
            at = opened.position(query, item)
            judgment = opened.store.judge(
                opened.set.id, at, name, grade, rationale=why, source=ADJUDICATION
            )
        document = opened.judgment_dict(judgment)
        return opened.result(label_pages.judgment_page, act="decided", judgment=document)

    def withdraw(
        self, query: str, item: str, *, rater: str, label_set: str | None = None
    ) -> LabelResult:
        """Withdraw the newest judgment of a rater on a pair."""
        name = rater_name(rater)
        with self._open_set(label_set) as opened:
            at = opened.position(query, item)
            by_rater = opened.store.judgments(opened.set.id, rater=name)
            on_pair = [judgment for judgment in by_rater if judgment.position == at]
            if not on_pair:
                pair = f"query {query!r}, item {item!r} in {opened.name}"
                message = f"{name} has no judgment that counts on {pair}"
                raise UsageError(f"{message}; see karat labels log")
            judgment = opened.store.withdraw(opened.set.id, on_pair[-1].id)
        document = opened.judgment_dict(judgment)
        return opened.result(label_pages.judgment_page, act="withdrawn", judgment=document)

    def agreement(self, label_set: str | None = None) -> LabelResult:
        """Return how far every two raters agree, and all of them, and what a majority leaves."""
        with self._open_set(label_set) as opened:
            judgments = opened.store.judgments(opened.set.id)
        by_majority = resolve(opened.items, judgments)
        return opened.result(
            label_pages.agreement_page,
            few=FEW,
            raters=progress(opened.set.size, judgments),
            pairs=agreement(judgments),
            alpha=alphas(judgments),
            majority={**by_majority.counts(), "adjudicated": by_majority.adjudicated},
        )

    def log(
        self, label_set: str | None = None, *, rater: str | None = None, limit: int | None = None
    ) -> LabelResult:
        """Return every judgment, the newest first, and whether it counts, or was replaced."""
        name = None if rater is None else rater_name(rater)
        with self._open_set(label_set) as opened:
            judgments = opened.store.judgments(opened.set.id, rater=name, every=True)
            valid = opened.store.judgments(opened.set.id, rater=name)
        if not judgments:
            raise UsageError(f"{name or 'nobody'} has not judged anything in {opened.name}")
        counting = {judgment.id for judgment in valid}

        def state(judgment: Judgment) -> str:
            if judgment.withdrawn_at is not None:
                return "withdrawn"
            return "counts" if judgment.id in counting else "replaced"

        newest = judgments[::-1][:limit]
        rows = [{**opened.judgment_dict(each), "state": state(each)} for each in newest]
        return opened.result(label_pages.log_page, total=len(judgments), judgments=rows)

    def export(
        self,
        outputs: Sequence[str],
        resolve_by: str,
        *,
        label_set: str | None = None,
        rater: str | None = None,
        strict: bool = False,
    ) -> LabelResult:
        """Write a set's judgments to files; nothing is written if a file cannot be.

        ``resolve_by`` is majority, dawid-skene or adjudicated (gold with one grade per pair), or
        every or log (label lines). ``strict`` refuses ties, which are left out otherwise.
        """
        as_lines = resolve_by in _AS_LINES
        if resolve_by not in (*METHODS, *_AS_LINES):
            raise unknown("way to resolve", resolve_by, (*METHODS, *_AS_LINES))
        if strict and as_lines:
            raise UsageError(f"--strict is for ties, which --resolve {resolve_by} does not have")
        files = _output_files(outputs, store_address(self.store).files(), as_lines=as_lines)
        name = None if rater is None else rater_name(rater)
        with self._open_set(label_set) as opened:
            judgments = opened.store.judgments(opened.set.id, rater=name, every=resolve_by == "log")
        if not judgments:
            raise UsageError(f"{name or 'nobody'} has not judged anything in {opened.name}")
        settings = {"resolve": resolve_by, "rater": name}
        if as_lines:
            lines = [line.removesuffix("\n") for line in label_lines(opened.items, judgments)]
            for path, _ in files:
                write_lines(lines, path)
            written = [_written(path, form, len(lines)) for path, form in files]
            return opened.result(
                label_pages.export_page, **settings, judgments=len(judgments), files=written
            )
        resolved = resolve(opened.items, judgments, resolve_by)
        if strict and resolved.ties:
            first = resolved.ties[0]
            raise UsageError(
                f"{opened.name} has {plural(len(resolved.ties), 'tie')} by {resolve_by}, the first"
                f" on query {first['query_id']!r}, item {first['item_id']!r}; decide them with"
                " karat labels adjudicate, or leave --strict out"
            )
        if not resolved.grades:
            nothing = f"no pair of {opened.name} gets a grade by {resolve_by}"
            raise UsageError(f"{nothing}; karat labels conflicts shows what raters say")
        written = _write_gold(resolved, opened.items, files)
        counts = {**resolved.counts(), "ties": resolved.ties}
        return opened.result(
            label_pages.export_page,
            **settings,
            **counts,
            adjudicated=resolved.adjudicated,
            files=written,
        )


def _choose_set(store: Store, name: str | None) -> LabelSet:
    """Return the set with this id or name, or the only one that there is."""
    sets = store.label_sets()
    if not sets:
        raise UsageError(f"there is no label set in {store.name} yet; {_MAKE}")
    # Names are unique, and none is a whole number, as ids are.
    matches = [each for each in sets if name is None or name.strip() in (str(each.id), each.name)]
    if not matches:
        set_names = [str(each.id) for each in sets] + [each.name for each in sets]
        raise unknown("label set", str(name), set_names)
    if len(matches) > 1:
        names = ", ".join(f"{each.id} ({each.name})" for each in matches[:_NAMED])
        many = f"there are {len(matches)} label sets to choose from"
        raise UsageError(f"{many}; name one with --set and its id: {names}")
    return matches[0]


def _summary(store: Store, label_set: LabelSet) -> dict[str, Any]:
    items, judgments = store.label_items(label_set.id), store.judgments(label_set.id)
    differing = conflicts(items, judgments)
    return {
        **label_set.document(),
        "judged": len({judgment.position for judgment in judgments}),
        "conflicts": len(differing),
        "open": sum(conflict["decision"] is None for conflict in differing),
        "decided": len(decisions(judgments)),
        "raters": progress(label_set.size, judgments),
        "sources": dict(sorted(Counter(judgment.source for judgment in judgments).items())),
        "readable": bool(items and items[0].text.strip()),
    }


def _add_set(
    store: Store,
    name: str,
    items: list[LabelItem],
    judgments: Sequence[NewJudgment] = (),
    *,
    about: str,
) -> AddedLabelSet:
    try:
        return store.add_judged_set(name, items, judgments, about=about)
    except NameTakenError as error:
        remedy = "with --name, or add judgments to that set: karat labels import … --set"
        raise UsageError(f"{error} {remedy}") from None


def _rows(
    judgments: Sequence[ImportedJudgment], items: Sequence[LabelItem], set_name: str
) -> list[NewJudgment]:
    """Return judgments of a set; those of pairs that it does not have are refused."""
    positions = {(item.query_id, item.item_id): item.position for item in items}
    lacking = [judgment for judgment in judgments if judgment.pair not in positions]
    if lacking:
        pairs = plural(len({judgment.pair for judgment in lacking}), "pair is", "pairs are")
        query, item = lacking[0].pair
        first = f"{pairs} not in {set_name}, the first query {query!r}, item {item!r}"
        advice = "leave such pairs out, or make a set of the file with --name"
        raise InputError(f"{first}; {advice}", where=lacking[0].place)
    return [replace(judgment, position=positions[judgment.pair]) for judgment in judgments]


def _output_files(
    outputs: Sequence[str], store_files: Sequence[str], *, as_lines: bool
) -> list[tuple[str, Format]]:
    """Return the files to write, with the format of their prefix or suffix; never the store."""
    if not outputs:
        raise UsageError("nothing to write; name a file with -o")
    files = [_output_file(text, as_lines=as_lines) for text in outputs]
    used_files = dict.fromkeys(map(os.path.realpath, store_files), "the store itself")
    for path, _ in files:
        place = path if path == "-" else os.path.realpath(path)
        if place in used_files:
            raise UsageError(f"-o {path} is {used_files[place]}; choose another name")
        refuse_database(path)
        used_files[place] = "given twice"
    return files


def _output_file(text: str, *, as_lines: bool) -> tuple[str, Format]:
    check_path(text)
    prefix, _, name = text.partition(":")
    form = prefix if name and prefix in FORMATS else None
    path = name if form else text
    if as_lines:
        if form != "labels" and (form or layout_suffix(path) != ".jsonl"):
            lines = f"-o {text}: every judgment is written as label lines"
            raise UsageError(f"{lines}; end the name in .jsonl, or write labels:{path}")
        return path, FORMATS["labels"]
    if path == "-" and form is None:
        raise UsageError("-o - is standard output; name its format, as in -o trec:-")
    writer = format_for_writing(path, "gold", form)
    writer.writer("gold")
    return path, writer


def _written(path: str, form: Format, rows: int, lost: Sequence[str] = ()) -> dict[str, Any]:
    return {"path": path, "format": form.name, "rows": rows, "lost": list(lost)}


def _write_gold(
    resolved: ResolvedGrades, items: list[LabelItem], files: Sequence[tuple[str, Format]]
) -> list[dict[str, Any]]:
    gold = gold_of(resolved)
    graded = {item.query_id for item, _ in resolved.grades}
    texts = {item.query_id: item.query for item in items if item.query_id in graded}
    written = []
    for path, form in files:
        try:
            lost = lost_columns(form, "gold", gold)
            written.append(_written(path, form, gold.frame.height, lost))
        except InputError as error:
            # If a sample cannot be written in this format, the whole cannot either.
            raise InputError(error.what, where=path) from None
    # A set that came without texts has none to write.
    has_texts = all(text.strip() for text in texts.values())
    for path, form in files:
        if has_texts and form.together:
            write_eval_set(Queries.from_dict(texts), gold, path, format=form.name)
        else:
            write_gold(gold, path, format=form.name)
    return written
