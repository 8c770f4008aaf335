"""Refuse inputs that do not fit each other, where every score would be 0 by mistake.

While a run meets its gold, block by block, a ``Meeting`` counts what was found and keeps the
ids of both sides as long as nothing was. ``refuse_misfit`` decides once all blocks are in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from karat.data.columns import IN_MEMORY, Source, doc_of
from karat.errors import MisfitError

if TYPE_CHECKING:
    from karat.data.tables import Run
    from karat.measure.conventions import Conventions
    from karat.measure.prepare import Prepared
    from karat.measure.ranked import Ints, Ranked


from collections.abc import Iterator

# So many queries that find nothing are no accident.
MANY_QUERIES = 10
# So large a share of ids must be known to a corpus for the two to belong together.
LEAST_KNOWN = 0.05
# So many ids of a side are kept for the explanation.
_MOST_IDS = 300_000
_ALLOW = "--set missing_ids=allow (settings={'missing_ids': 'allow'} in Python)"
_RENAME = f"Rename one side, or allow it with {_ALLOW}."


@dataclass(frozen=True, eq=False)
class Meeting:
    """What was seen of a run and its gold while they met; those of several blocks add up.

    ``queries`` have relevant gold, ``answers`` are calls that did not fail, ``reasons`` count
    what failed calls said; queries marked ``no_answer`` are in none of these. ``found`` says
    that a relevant item was returned for its query, ``occurs`` that one was for any query.
    ``gold`` and ``returned`` (``item_id`` and, where the run tells it, ``doc_id``) are ids,
    sorted; those returned are kept only where nothing was found.
    """

    queries: int = 0
    answers: int = 0
    empty: int = 0
    failed: int = 0
    found: bool = False
    occurs: bool = False
    reasons: Mapping[str, int] = field(default_factory=dict)
    gold: pl.Series = field(default_factory=lambda: pl.Series("item_id", [], dtype=pl.String))
    returned: pl.DataFrame = field(
        default_factory=lambda: pl.DataFrame(schema={"item_id": pl.String})
    )

    def __add__(self, other: Meeting) -> Meeting:
        """Return the sum of two meetings."""
        found = self.found or other.found
        nothing = self.returned.clear()
        both = pl.concat([self.returned, other.returned], how="diagonal")
        reasons = dict(self.reasons)
        for reason, count in other.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
        return Meeting(
            queries=self.queries + other.queries,
            answers=self.answers + other.answers,
            empty=self.empty + other.empty,
            failed=self.failed + other.failed,
            found=found,
            occurs=self.occurs or other.occurs,
            reasons=reasons,
            gold=_few(pl.concat([self.gold, other.gold]).to_frame())["item_id"],
            returned=nothing if found else _few(both),
        )


def _few(ids: pl.DataFrame) -> pl.DataFrame:
    return ids.unique().sort(ids.columns).head(_MOST_IDS)


def gold_side(gold: Prepared, *, ids: bool = True) -> Meeting:
    """Return what the gold contributes to a meeting; its ``ids`` where they are needed."""
    relevant = gold.grade >= gold.conventions.rel
    codes = gold.rows["code"].to_numpy()
    relevant &= ~gold.no_answer[codes]
    queries = len(np.unique(codes[relevant]))
    if not ids:
        return Meeting(queries=queries)
    items = gold.rows.filter(relevant).select("item_id")
    return Meeting(queries=queries, gold=_few(items)["item_id"])


def run_side(run: Run, gold: Prepared, ranked: Ranked, codes: Ints, failed: Ints) -> Meeting:
    """Return what a block of a run contributes; ``ranked`` are its lists, not cut at a depth."""
    counts = ~gold.no_answer
    found = bool(ranked.hits.correct(gold.conventions.rel).any())
    answers = ranked.returned[counts[codes]]
    failures = int(counts[failed].sum())
    meeting = Meeting(
        answers=len(answers),
        empty=int((answers == 0).sum()),
        failed=failures,
        found=found,
        reasons=_reasons(run, gold) if failures else {},
    )
    if found:
        return meeting
    returned = returned_ids(run)
    occurs = False
    if gold.conventions.level == "item":
        relevant = gold.rows["item_id"].filter(gold.grade >= gold.conventions.rel)
        occurs = len(_in_both(returned["item_id"], relevant)) > 0
    return replace(meeting, returned=_few(returned), occurs=occurs)


def returned_ids(run: Run) -> pl.DataFrame:
    """Return every item that a run returned, with the document that the run names for it."""
    known = [name for name in ("item_id", "doc_id") if name in run.hits.columns]
    return run.hits.select(pl.col(known).cast(pl.String)).unique()


def ids_of_stages(run: Run) -> pl.DataFrame:
    """Return every item that a run returned, with its document and the stage that returned it."""
    hits = run.hits if run.staged else run.hits.with_columns(stage=pl.lit("final"))
    known = [name for name in ("item_id", "doc_id", "stage") if name in hits.columns]
    return hits.select(pl.col(known).cast(pl.String)).unique()


def add_other_stages(meeting: Meeting, beside: pl.DataFrame) -> Meeting:
    """Add what other stages of the same run returned, where they share an item with these lists.

    Their ids then are those of these lists, so that what was found there shows that they are
    real; a stage that shares nothing shows nothing.
    """
    own = meeting.returned["item_id"]
    for ids in beside.partition_by("stage", include_key=False):
        if len(_in_both(ids["item_id"], own)):
            meeting += Meeting(returned=ids)
    return meeting


def _reasons(run: Run, gold: Prepared) -> dict[str, int]:
    """Return the error texts of failed calls with their counts."""
    if run.calls is None:
        return {}
    calls = run.calls.filter(pl.col("error").is_not_null())
    asked = gold.code_of(calls["query_id"])
    counted = (asked >= 0) & ~gold.no_answer[asked]
    texts = calls["error"].cast(pl.String).filter(counted)
    return dict(texts.value_counts(sort=True).rows())


def refuse_misfit(
    meeting: Meeting,
    conventions: Conventions,
    *,
    run: str,
    gold: str,
    corpus: pl.DataFrame | None = None,
    corpus_name: str = "the corpus",
) -> None:
    """Raise ``MisfitError`` where a score of 0 would come from inputs that do not fit.

    ``run``, ``gold`` and ``corpus_name`` are what the message calls each side.
    """
    sides = _Sides(meeting, conventions, run, gold, corpus, corpus_name)
    if conventions.missing_ids == "allow":
        # Its sets expect documents or chunks, and only ``level`` can say which was meant.
        if conventions.profile == "minimal" and not meeting.found and not sides.occurs:
            sides.refuse_levels()
        return
    if meeting.failed and not meeting.answers:
        reason, count = min(meeting.reasons.items(), key=lambda item: (-item[1], item[0]))
        others = meeting.failed - count
        more = f" ({others:,} failed otherwise)" if others else ""
        raise MisfitError(
            f"{meeting.failed:,} of {meeting.failed:,} calls of {run} failed: {reason}{more}",
            [f"Nothing was measured. Fix the system, or allow it with {_ALLOW}."],
            where=run,
        )
    if meeting.answers and meeting.empty == meeting.answers:
        also = f", and {meeting.failed:,} calls failed" if meeting.failed else ""
        raise MisfitError(
            f"{meeting.empty:,} of {meeting.answers:,} answers of {run} were empty{also}",
            [f"Nothing was measured. Check the index and the filters, or allow it with {_ALLOW}."],
            where=run,
        )
    if not meeting.queries:
        return
    if not meeting.found and not sides.occurs:
        sides.refuse_levels()
        sides.refuse_spelling()
    if corpus is not None:
        sides.refuse_corpus()
    if not meeting.found and not sides.occurs:
        sides.refuse_unknown_items()


def refuse_foreign_corpus(gold: Prepared) -> None:
    """Raise ``MisfitError`` where the corpus is not that of the gold; no run is needed."""
    meeting = gold_side(gold)
    if gold.conventions.missing_ids == "allow" or not meeting.queries:
        return
    names = {
        "gold": side_name(gold.source, "the gold"),
        "corpus_name": side_name(gold.corpus_source, "the corpus"),
    }
    _Sides(meeting, gold.conventions, run="", corpus=gold.corpus, **names).refuse_corpus()


def empty_run(run: str) -> MisfitError:
    """Make the error for a run that holds no query at all."""
    return MisfitError(
        f"{run} is empty: it has no query",
        [f"Nothing was measured. Give a run with answers, or allow it with {_ALLOW}."],
        where=run,
    )


@dataclass(frozen=True, eq=False)
class _Sides:
    """The ids of a run and its gold, of which none is the same."""

    meeting: Meeting
    conventions: Conventions
    run: str
    gold: str
    corpus: pl.DataFrame | None
    corpus_name: str

    @property
    def returned(self) -> pl.DataFrame:
        """Each returned item with its document: the run's word, the corpus's, else the id's."""
        return self._with_documents(self.meeting.returned)

    def _with_documents(self, items: pl.DataFrame) -> pl.DataFrame:
        known = [pl.col("doc_id")] if "doc_id" in items.columns else []
        if self.corpus is not None:
            rows = self.corpus.filter(pl.col("item_id").is_in(items["item_id"].implode()))
            docs = rows.select("item_id", corpus_doc="doc_id")
            items = items.join(docs, on="item_id", how="left", maintain_order="left")
            known.append(pl.col("corpus_doc"))
        own = doc_of(pl.col("item_id"))
        if self.conventions.level == "span":
            own = own.str.replace(r":\d+-\d+$", "")
        return items.select("item_id", doc_id=pl.coalesce(*known, own))

    def _in_corpus(
        self, ids: pl.Series, columns: Sequence[str] = ("item_id", "doc_id")
    ) -> pl.Series:
        """Return those of some ids that the corpus has, as an item or as a document."""
        if self.corpus is None:
            return ids.clear()
        known = [_in_both(self.corpus[name], ids).rename(ids.name) for name in columns]
        return pl.concat(known).unique()

    @property
    def units(self) -> pl.Series:
        """What the run returned, at the level of the gold."""
        name = "item_id" if self.conventions.level == "item" else "doc_id"
        return self.returned[name].unique().sort()

    @property
    def occurs(self) -> bool:
        """Whether a relevant item was returned, for whatever query."""
        return self.meeting.occurs or len(_in_both(self.units, self.meeting.gold)) > 0

    def refuse_levels(self) -> None:
        """Refuse documents compared with chunks."""
        if self.conventions.level == "doc":
            self._refuse_no_documents()
        if self.conventions.level != "item":
            return
        returned, gold = self.returned, self.meeting.gold
        chunks = returned.filter(pl.col("item_id") != pl.col("doc_id"))
        documents = gold.filter(~gold.is_in(self._in_corpus(gold, ["item_id"]).implode()))
        chunk_of = chunks.filter(pl.col("doc_id").is_in(documents.implode()))
        if chunk_of.height:
            item, document = chunk_of.row(0)
            message = f"{self.gold} names documents, and {self.run} returned chunks of them"
            raise self._levels(message, (document, item))
        if chunks.height * 2 > returned.height:
            return
        items = returned["item_id"]
        whole = items.filter(~items.is_in(self._in_corpus(items, ["item_id"]).implode()))
        parts = self._with_documents(gold.to_frame("item_id")).filter(
            (pl.col("item_id") != pl.col("doc_id")) & pl.col("doc_id").is_in(whole.implode())
        )
        if parts.height:
            item, document = parts.row(0)
            message = f"{self.gold} names chunks, and {self.run} returned whole documents"
            raise self._levels(message, (item, document))

    def _levels(self, what: str, pair: tuple[str, str]) -> MisfitError:
        advice = (
            "Count documents: --set level=doc (settings: {level: doc} in karat.yaml, "
            "settings={'level': 'doc'} in Python)."
        )
        return MisfitError(
            f"{what}, so no relevant item is found",
            [*self._examples(self.run, self.returned["item_id"], Spelling("", (pair,))), advice],
            where=self.gold,
        )

    def _refuse_no_documents(self) -> None:
        returned = self.returned
        if (returned["item_id"] != returned["doc_id"]).any():
            return
        raise MisfitError(
            f"level=doc, but no item of {self.run} has a document, so every score would be 0",
            [
                *self._examples(self.run, returned["item_id"]),
                "Give a corpus or a run with a doc_id for each item, or leave level=doc out.",
            ],
            where=self.run,
        )

    def refuse_spelling(self) -> None:
        """Refuse ids that are the same in another spelling."""
        spelling = spelling_difference(self.meeting.gold, self.units)
        if spelling is None or self._are_real(spelling):
            return
        raise self._no_item(f"The ids differ by {spelling.difference}. {_RENAME}", spelling)

    def _are_real(self, spelling: Spelling) -> bool:
        """Return whether the corpus has both ids of a pair, so that they are two items."""
        ids = pl.Series([one for pair in spelling.pairs for one in pair]).unique()
        return len(self._in_corpus(ids)) == len(ids)

    def refuse_unknown_items(self) -> None:
        """Refuse many queries that find nothing, unless a corpus has the ids of both sides."""
        if self.meeting.queries < MANY_QUERIES:
            return
        units = self.units
        if self.corpus is not None and self._are_known(units):
            return
        spelling = swapped_prefixes(self.meeting.gold, units)
        if spelling is not None:
            advice = f"The ids differ by {spelling.difference}. {_RENAME}"
        else:
            advice = (
                "Check that both belong together. If they do, give the corpus that has the ids of "
                f"both, or allow it with {_ALLOW}."
            )
        raise self._no_item(advice, spelling)

    def _no_item(self, advice: str, spelling: Spelling | None) -> MisfitError:
        shown = self._examples(self.run, self.units, spelling)
        return MisfitError(
            f"no relevant item occurs in {self.run}, so every score would be 0",
            [*shown, advice],
            where=self.run,
        )

    def refuse_corpus(self) -> None:
        """Refuse a corpus that does not have the items of the gold."""
        if self.corpus is None:
            return
        gold = self.meeting.gold
        if self._are_known(gold):
            return
        items = self.corpus["item_id"]
        known = pl.concat([items, self.corpus["doc_id"].rename("item_id")])
        count = len(self._in_corpus(gold))
        spelling = spelling_difference(gold, _few(known.to_frame())["item_id"])
        advice = f"Give the corpus of this gold, or allow it with {_ALLOW}."
        if spelling is not None:
            advice = f"The ids differ by {spelling.difference}. {_RENAME}"
        raise MisfitError(
            f"{count:,} of {len(gold):,} relevant items of {self.gold} occur in {self.corpus_name}",
            [*self._examples(self.corpus_name, items, spelling), advice],
            where=self.corpus_name,
        )

    def _are_known(self, ids: pl.Series) -> bool:
        """Return whether the corpus has enough of some ids for them to be its own."""
        return len(self._in_corpus(ids)) >= LEAST_KNOWN * len(ids)

    def _examples(self, other: str, ids: pl.Series, spelling: Spelling | None = None) -> list[str]:
        """Return two ids of each side, one line per side, paired ids first."""
        pairs = () if spelling is None else spelling.pairs
        width = max(len(self.gold), len(other)) + len(" has")
        lines = []
        for at, name, every in ((0, self.gold, self.meeting.gold), (1, other, ids)):
            few = every.unique().sort()
            shown = list(dict.fromkeys([*(pair[at] for pair in pairs), *few.head(2).to_list()]))[:2]
            more = ", …" if len(few) > len(shown) else ""
            lines.append(f"{f'{name} has':<{width}}  {', '.join(map(_shown, shown))}{more}")
        return lines


def _in_both(many: pl.Series, few: pl.Series) -> pl.Series:
    """Return the ids that both have; it is quick where the first are more."""
    return many.filter(many.is_in(few.implode())).unique()


def _shown(name: str) -> str:
    """Return an id as it is; in quotation marks where its ends could not be seen."""
    cut = name if len(name) <= 80 else f"{name[:60]}…"
    return repr(cut) if cut != cut.strip() or not cut.isprintable() or '"' in cut else cut


def side_name(source: Source, otherwise: str) -> str:
    """Return the name of one side for messages: its file, else ``otherwise``."""
    return otherwise if source is IN_MEMORY else source.name


# --- The spelling difference between two sets of ids that share none ---------------------------

# Affixes are looked for in so many ids of the longer side.
_SAMPLE = 20_000
_LONGEST_ID = 500
# An affix that ends in the middle of a word or number needs so many pairs to be believed.
_PAIRS = 3
# So many ids of a side have the affix, or it is none of that side.
_SHARE = 0.9


@dataclass(frozen=True)
class Spelling:
    """A difference in words (``the prefix "doc_"``) and ids of both sides that it pairs."""

    difference: str
    pairs: tuple[tuple[str, str], ...]


# What is the same id in another writing, whichever side is written so.
_VARIANTS: Mapping[str, pl.Expr] = {
    "white space around them": pl.col("id").str.strip_chars(),
    "quotation marks around them": pl.col("id").str.strip_chars("\"'"),
    "upper and lower case": pl.col("id").str.to_lowercase(),
    "zero padding": pl.col("id").str.replace_all(r"(^|[^0-9])0+([0-9])", "${1}${2}"),
    "a trailing .0": pl.col("id").str.replace(r"^([0-9]+)\.0+$", "${1}"),
    "their Unicode form": pl.col("id").str.normalize("NFC"),
    "hyphens, underscores and spaces": pl.col("id").str.replace_all(r"[ _]", "-"),
}
# What one side has and the other has not.
_ADDITIONS: Mapping[str, pl.Expr] = {
    "a file extension": pl.col("id").str.replace(r"\.[A-Za-z][A-Za-z0-9]{0,4}$", ""),
    "a path": pl.col("id").str.replace(r"^.*[/\\]", ""),
    "a path and a file extension": pl.col("id")
    .str.replace(r"^.*[/\\]", "")
    .str.replace(r"\.[A-Za-z][A-Za-z0-9]{0,4}$", ""),
}


def spelling_difference(ours: pl.Series, theirs: pl.Series) -> Spelling | None:
    """Return the difference that makes ids of two sides the same; None where there is none.

    >>> gold = pl.Series(["doc_tax-02", "doc_tax-07"])
    >>> spelling_difference(gold, pl.Series(["tax-02", "tax-11"]))
    Spelling(difference='the prefix "doc_"', pairs=(('doc_tax-02', 'tax-02'),))
    """
    left, right = _table(ours), _table(theirs)
    return (
        _with_variants(left, right, _same)
        or _affix(left, right)
        or _addition(left, right)
        or _with_variants(left, right, lambda *sides: _affix(*sides) or _addition(*sides))
    )


def swapped_prefixes(ours: pl.Series, theirs: pl.Series) -> Spelling | None:
    """Return the prefixes that differ where both sides have one, as in doc_1 and chunk_1.

    Two sets of different items may be numbered so too: this explains, and proves nothing.
    """
    prefixes = [_shared_start(side) for side in (ours, theirs)]
    if not all(prefixes) or prefixes[0] == prefixes[1]:
        return None
    tables = [
        _table(side).with_columns(key=pl.col("id").str.slice(len(prefix)))
        for side, prefix in zip((ours, theirs), prefixes, strict=True)
    ]
    pairs = _pairs(*tables)
    difference = f"their prefixes: {_quoted(prefixes[0])} and {_quoted(prefixes[1])}"
    return Spelling(difference, pairs) if pairs else None


def _table(ids: pl.Series) -> pl.DataFrame:
    table = pl.DataFrame({"id": ids.unique().sort()})
    return table.filter(pl.col("id").str.len_chars() <= _LONGEST_ID).with_columns(key="id")


def _written(table: pl.DataFrame, variants: Sequence[str]) -> pl.DataFrame:
    """Return the table with each id's key in the plainest writing of all variants."""
    names = table["id"]
    for name in variants:
        table = table.with_columns(id="key").with_columns(key=_VARIANTS[name])
    return table.with_columns(id=names)


def _pairs(one: pl.DataFrame, other: pl.DataFrame) -> tuple[tuple[str, str], ...]:
    """Return two ids of each side that have the same key."""
    both = one.join(other, on="key", maintain_order="left").filter(pl.col("key") != "")
    return tuple(both.select("id", "id_right").unique("id", maintain_order=True).head(2).rows())


def _same(left: pl.DataFrame, right: pl.DataFrame) -> Spelling | None:
    pairs = _pairs(left, right)
    return Spelling("", pairs) if pairs else None


def _with_variants(
    left: pl.DataFrame,
    right: pl.DataFrame,
    match: Callable[[pl.DataFrame, pl.DataFrame], Spelling | None],
) -> Spelling | None:
    """Return a match in the plainest writing, with the variants that it needs beside it."""
    needed = list(_VARIANTS)
    spelling = match(_written(left, needed), _written(right, needed))
    if spelling is None:
        return None
    for name in _VARIANTS:
        fewer = [variant for variant in needed if variant != name]
        if (with_fewer := match(_written(left, fewer), _written(right, fewer))) is not None:
            needed, spelling = fewer, with_fewer
    return replace(spelling, difference=" and ".join(filter(None, [spelling.difference, *needed])))


def _addition(one: pl.DataFrame, other: pl.DataFrame) -> Spelling | None:
    """Return a path or file extension that one side has."""
    for difference, expression in _ADDITIONS.items():
        for mine, yours in ((True, False), (False, True)):
            left, right = (
                table.with_columns(key=_on_key(expression, table)) if changed else table
                for table, changed in ((one, mine), (other, yours))
            )
            if pairs := _pairs(left, right):
                return Spelling(difference, pairs)
    return None


def _on_key(expression: pl.Expr, table: pl.DataFrame) -> pl.Series:
    return table.select(id="key").select(expression).to_series()


def _affix(one: pl.DataFrame, other: pl.DataFrame) -> Spelling | None:
    """Return a prefix or suffix that the ids of one side share and the other side lacks."""
    for end in ("prefix", "suffix"):
        for longer, shorter, turned in ((one, other, False), (other, one, True)):
            found = _shared_affix(longer, shorter, end)
            if found is not None:
                affix, pairs = found
                told = tuple((b, a) if turned else (a, b) for a, b in pairs)
                return Spelling(f"the {end} {_quoted(affix)}", told)
    return None


def _shared_affix(
    longer: pl.DataFrame, shorter: pl.DataFrame, end: str
) -> tuple[str, list[tuple[str, str]]] | None:
    """Return the affix that turns most ids of one side into ids of the other, with pairs."""
    known = dict(zip(shorter["key"].to_list(), shorter["id"].to_list(), strict=True))
    step = -(-longer.height // _SAMPLE) or 1
    sample = longer.gather_every(step)
    pairs: dict[str, list[tuple[str, str]]] = {}
    clean: dict[str, bool] = {}
    for name, key in sample.iter_rows():
        for affix, rest in _cuts(key, end):
            if rest in known:
                pairs.setdefault(affix, []).append((name, known[rest]))
                clean[affix] = clean.get(affix, False) or _is_clean(affix, rest, end)
    has_affix = pl.col("key").str.starts_with if end == "prefix" else pl.col("key").str.ends_with
    # Most pairs first; of equals the shortest, which leaves the most of each id.
    for affix in sorted(pairs, key=lambda one: (-len(pairs[one]), len(one), one)):
        # Digits that continue a number make another number: d10 is not d1 with the suffix 0.
        believed = clean[affix] or (len(pairs[affix]) >= _PAIRS and not affix.isdigit())
        if believed and sample.select(has_affix(affix).mean()).item() >= _SHARE:
            return affix, pairs[affix][:2]
    return None


def _cuts(key: str, end: str) -> Iterator[tuple[str, str]]:
    """Return every way to take an affix off an id."""
    for at in range(1, len(key)):
        yield (key[:at], key[at:]) if end == "prefix" else (key[at:], key[:at])


def _is_clean(affix: str, rest: str, end: str) -> bool:
    """Return whether the cut lies between words or numbers, and not inside one."""
    inner, outer = (affix[-1], rest[:1]) if end == "prefix" else (affix[0], rest[-1:])
    return not inner.isalnum() or not outer.isalnum() or inner.isdigit() != outer.isdigit()


def _shared_start(ids: pl.Series) -> str:
    """Return what all ids begin with, cut back to where a word or number ends."""
    low, high = ids.min(), ids.max()
    start = ""
    for a, b in zip(str(low), str(high), strict=False):
        if a != b:
            break
        start += a
    return start.rstrip("0123456789")


def _quoted(text: str) -> str:
    return f'"{text}"'
