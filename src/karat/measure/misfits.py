"""Refuse inputs that do not fit each other, where every score would be 0 by mistake.

While a run meets its gold, block by block, a ``Meeting`` counts what was found and keeps the
ids of both sides as long as nothing was. ``refuse_misfit`` decides once all blocks are in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from karat.data.columns import IN_MEMORY, Source
from karat.errors import MisfitError
from karat.measure.prepare import doc_of_hits

if TYPE_CHECKING:
    from karat.data.tables import Run
    from karat.measure.conventions import Conventions
    from karat.measure.prepare import Prepared
    from karat.measure.ranked import Ints, Ranked


# So many queries that find nothing are no accident.
MANY_QUERIES = 10
# So large a share of ids must be known to a corpus for the two to belong together.
LEAST_KNOWN = 0.05
# So many ids of a side are kept for the explanation.
_MOST_IDS = 300_000
_ALLOW = "--set missing_ids=allow (settings={'missing_ids': 'allow'} in Python)"


@dataclass(frozen=True, eq=False)
class Meeting:
    """What was seen of a run and its gold while they met; those of several blocks add up.

    ``queries`` have relevant gold, ``answers`` are calls that did not fail, ``reasons`` count
    what failed calls said; queries marked ``no_answer`` are in none of these. ``found`` says
    that a relevant item was returned for its query, ``occurs`` that one was for any query.
    ``gold`` and ``returned`` (``item_id`` and, where the run tells it, ``doc_id``) are ids,
    sorted; those returned are kept only where nothing was found, and None stands for no ids.
    """

    queries: int = 0
    answers: int = 0
    empty: int = 0
    failed: int = 0
    found: bool = False
    occurs: bool = False
    reasons: Mapping[str, int] = field(default_factory=dict)
    gold: pl.Series | None = None
    returned: pl.DataFrame | None = None

    def __add__(self, other: Meeting) -> Meeting:
        """Return the sum of two meetings."""
        found = self.found or other.found
        gold = [ids.to_frame() for ids in (self.gold, other.gold) if ids is not None]
        returned = [ids for ids in (self.returned, other.returned) if ids is not None]
        return Meeting(
            queries=self.queries + other.queries,
            answers=self.answers + other.answers,
            empty=self.empty + other.empty,
            failed=self.failed + other.failed,
            found=found,
            occurs=self.occurs or other.occurs,
            reasons=Counter(self.reasons) + Counter(other.reasons),
            gold=_few(pl.concat(gold))["item_id"] if gold else None,
            returned=_few(pl.concat(returned, how="diagonal")) if returned and not found else None,
        )


def _few(ids: pl.DataFrame) -> pl.DataFrame:
    return ids.unique().sort(ids.columns).head(_MOST_IDS)


def gold_side(gold: Prepared) -> Meeting:
    """Return what the gold contributes to a meeting."""
    relevant = gold.grade >= gold.conventions.rel
    codes = gold.rows["code"].to_numpy()
    relevant &= ~gold.no_answer[codes]
    items = gold.rows.filter(relevant).select("item_id")
    return Meeting(queries=len(np.unique(codes[relevant])), gold=_few(items)["item_id"])


def run_side(run: Run, gold: Prepared, ranked: Ranked, codes: Ints, failed: Ints) -> Meeting:
    """Return what a block of a run contributes; ``ranked`` are its lists, not cut at a depth."""
    counts = ~gold.no_answer
    found = bool((ranked.hits.grade >= gold.conventions.rel).any())
    answers = ranked.returned[counts[codes]]
    failures = int(counts[failed].sum())
    reasons = {}
    if failures and run.calls is not None:
        calls = run.calls.filter(pl.col("error").is_not_null())
        called = gold.code_of(calls["query_id"])
        texts = calls["error"].cast(pl.String).filter((called >= 0) & counts[called])
        reasons = dict(texts.value_counts(sort=True).rows())
    meeting = Meeting(
        answers=len(answers),
        empty=int((answers == 0).sum()),
        failed=failures,
        found=found,
        reasons=reasons,
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
    if meeting.returned is None:
        return meeting
    items = meeting.returned["item_id"]
    for ids in beside.partition_by("stage", include_key=False):
        if len(_in_both(ids["item_id"], items)):
            meeting += Meeting(returned=ids)
    return meeting


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
        if conventions.profile == "minimal" and not sides.meet:
            sides.refuse_levels()
        return
    if meeting.failed and not meeting.answers:
        reason, _ = min(meeting.reasons.items(), key=lambda item: (-item[1], item[0]))
        calls = f"{meeting.failed:,} of {meeting.failed:,} calls"
        raise _nothing_measured(run, f"{calls} of {run} failed: {reason}", "Fix the system")
    if meeting.answers and meeting.empty == meeting.answers:
        answers = f"{meeting.empty:,} of {meeting.answers:,} answers"
        advice = "Check the index and the filters"
        raise _nothing_measured(run, f"{answers} of {run} were empty", advice)
    if not meeting.queries:
        return
    if not sides.meet:
        sides.refuse_levels()
        sides.refuse_spelling()
    sides.refuse_corpus()
    if not sides.meet:
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
    return _nothing_measured(run, f"{run} is empty: it has no query", "Give a run with answers")


def _nothing_measured(run: str, summary: str, advice: str) -> MisfitError:
    details = [f"Nothing was measured. {advice}, or allow it with {_ALLOW}."]
    return MisfitError(summary, details, where=run)


@dataclass(frozen=True, eq=False)
class _Sides:
    """The ids of a run and its gold, of which none is the same."""

    meeting: Meeting
    conventions: Conventions
    run: str
    gold: str
    corpus: pl.DataFrame | None
    corpus_name: str

    @cached_property
    def gold_ids(self) -> pl.Series:
        """The relevant items of the gold."""
        known = self.meeting.gold
        return pl.Series("item_id", [], dtype=pl.String) if known is None else known

    @cached_property
    def returned(self) -> pl.DataFrame:
        """Each returned item with its document: the run's word, the corpus's, else the id's."""
        known = self.meeting.returned
        nothing = pl.DataFrame(schema={"item_id": pl.String})
        return self._with_documents(nothing if known is None else known)

    @cached_property
    def units(self) -> pl.Series:
        """What the run returned, at the level of the gold."""
        name = "item_id" if self.conventions.level == "item" else "doc_id"
        return self.returned[name].unique().sort()

    @cached_property
    def meet(self) -> bool:
        """Whether a relevant item was returned, for whatever query."""
        meeting = self.meeting
        return meeting.found or meeting.occurs or len(_in_both(self.units, self.gold_ids)) > 0

    def _with_documents(self, items: pl.DataFrame) -> pl.DataFrame:
        docs = doc_of_hits(items, self.corpus)
        if self.conventions.level == "span":
            docs = docs.str.replace(r":\d+-\d+$", "")
        return items.select("item_id", docs)

    def _in_corpus(
        self, ids: pl.Series, columns: Sequence[str] = ("item_id", "doc_id")
    ) -> pl.Series:
        """Return those of some ids that the corpus has, as an item or as a document."""
        if self.corpus is None:
            return ids.clear()
        known = [_in_both(self.corpus[name], ids).rename(ids.name) for name in columns]
        return pl.concat(known).unique()

    def _are_known(self, ids: pl.Series) -> bool:
        """Return whether the corpus has enough of some ids for them to be its own."""
        return len(self._in_corpus(ids)) >= LEAST_KNOWN * len(ids)

    def refuse_levels(self) -> None:
        """Refuse documents compared with chunks."""
        returned, gold = self.returned, self.gold_ids
        is_chunk = returned["item_id"] != returned["doc_id"]
        if self.conventions.level == "doc" and not is_chunk.any():
            raise self._misfit(
                f"level=doc, but no item of {self.run} has a document, so every score would be 0",
                "Give a corpus or a run with a doc_id for each item, or leave level=doc out.",
                returned["item_id"],
            )
        if self.conventions.level != "item":
            return
        if pair := self._chunk_of(returned, gold):
            names, pair = "documents, and {} returned chunks of them", (pair[1], pair[0])
        elif is_chunk.sum() * 2 <= returned.height:
            pair = self._chunk_of(self._with_documents(gold.to_frame("item_id")), self.units)
            names = "chunks, and {} returned whole documents"
        if pair:
            raise self._misfit(
                f"{self.gold} names {names.format(self.run)}, so no relevant item is found",
                "Count documents: --set level=doc (settings: {level: doc} in karat.yaml, "
                "settings={'level': 'doc'} in Python).",
                returned["item_id"],
                pairs=(pair,),
                where=self.gold,
            )

    def _chunk_of(self, items: pl.DataFrame, ids: pl.Series) -> tuple[str, str] | None:
        """Return an item and its document, which is among some ids and no item of the corpus."""
        documents = ids.filter(~ids.is_in(self._in_corpus(ids, ["item_id"]).implode()))
        is_chunk = pl.col("item_id") != pl.col("doc_id")
        chunks = items.filter(is_chunk & pl.col("doc_id").is_in(documents.implode()))
        return (chunks["item_id"][0], chunks["doc_id"][0]) if chunks.height else None

    def refuse_spelling(self) -> None:
        """Refuse ids that are the same in another spelling, unless the corpus has both."""
        spelling = spelling_difference(self.gold_ids, self.units)
        if spelling is None:
            return
        ids = pl.Series([name for pair in spelling.pairs for name in pair]).unique()
        if len(self._in_corpus(ids)) < len(ids):
            raise self._no_item(spelling)

    def refuse_unknown_items(self) -> None:
        """Refuse many queries that find nothing, unless a corpus has the ids of both sides."""
        if self.meeting.queries < MANY_QUERIES:
            return
        if self.corpus is None or not self._are_known(self.units):
            raise self._no_item(None)

    def _no_item(self, spelling: Spelling | None) -> MisfitError:
        return self._misfit(
            f"no relevant item occurs in {self.run}, so every score would be 0",
            "Check that both belong together. If they do, give the corpus that has the ids of "
            f"both, or allow it with {_ALLOW}."
            if spelling is None
            else spelling.advice,
            self.units,
            pairs=() if spelling is None else spelling.pairs,
        )

    def refuse_corpus(self) -> None:
        """Refuse a corpus that does not have the items of the gold."""
        gold = self.gold_ids
        if self.corpus is None or self._are_known(gold):
            return
        known = pl.concat([self.corpus["item_id"], self.corpus["doc_id"].rename("item_id")])
        spelling = spelling_difference(gold, _few(known.to_frame())["item_id"])
        count = len(self._in_corpus(gold))
        raise self._misfit(
            f"{count:,} of {len(gold):,} relevant items of {self.gold} occur in {self.corpus_name}",
            f"Give the corpus of this gold, or allow it with {_ALLOW}."
            if spelling is None
            else spelling.advice,
            self.corpus["item_id"],
            pairs=() if spelling is None else spelling.pairs,
            where=self.corpus_name,
        )

    def _misfit(
        self,
        summary: str,
        advice: str,
        ids: pl.Series,
        *,
        pairs: Sequence[tuple[str, str]] = (),
        where: str = "",
    ) -> MisfitError:
        """Make an error that shows two ids of the gold and of the other side, paired ids first."""
        other = self.corpus_name if where == self.corpus_name else self.run
        width = max(len(self.gold), len(other)) + len(" has")
        lines = []
        for at, name, every in ((0, self.gold, self.gold_ids), (1, other, ids)):
            few = every.unique().sort()
            names = list(dict.fromkeys([*(pair[at] for pair in pairs), *few.head(2).to_list()]))[:2]
            more = ", …" if len(few) > len(names) else ""
            lines.append(f"{f'{name} has':<{width}}  {', '.join(map(_shown, names))}{more}")
        return MisfitError(summary, [*lines, advice], where=where or self.run)


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

    @property
    def advice(self) -> str:
        """What to do about it."""
        return f"The ids differ by {self.difference}. Rename one side, or allow it with {_ALLOW}."


# What is the same id in another writing, whichever side is written so.
_KEY = pl.col("key")
_VARIANTS: Mapping[str, pl.Expr] = {
    "white space around them": _KEY.str.strip_chars(),
    "quotation marks around them": _KEY.str.strip_chars("\"'"),
    "upper and lower case": _KEY.str.to_lowercase(),
    "zero padding": _KEY.str.replace_all(r"(^|[^0-9])0+([0-9])", "${1}${2}"),
    "a trailing .0": _KEY.str.replace(r"^([0-9]+)\.0+$", "${1}"),
    "their Unicode form": _KEY.str.normalize("NFC"),
    "hyphens, underscores and spaces": _KEY.str.replace_all(r"[ _]", "-"),
}
# What one side has and the other has not.
_WITHOUT_PATH = _KEY.str.replace(r"^.*[/\\]", "")
_EXTENSION = r"\.[A-Za-z][A-Za-z0-9]{0,4}$"
_ADDITIONS: Mapping[str, pl.Expr] = {
    "a file extension": _KEY.str.replace(_EXTENSION, ""),
    "a path": _WITHOUT_PATH,
    "a path and a file extension": _WITHOUT_PATH.str.replace(_EXTENSION, ""),
}


def spelling_difference(gold: pl.Series, other: pl.Series) -> Spelling | None:
    """Return the difference that makes ids of two sides the same; None where there is none.

    >>> gold = pl.Series(["doc_tax-02", "doc_tax-07"])
    >>> spelling_difference(gold, pl.Series(["tax-02", "tax-11"]))
    Spelling(difference='the prefix "doc_"', pairs=(('doc_tax-02', 'tax-02'),))
    """
    sides = _table(gold), _table(other)
    return _with_variants(*sides, _same) or _added(*sides) or _with_variants(*sides, _added)


def _table(ids: pl.Series) -> pl.DataFrame:
    table = pl.DataFrame({"id": ids.unique().sort()})
    return table.filter(pl.col("id").str.len_chars() <= _LONGEST_ID).with_columns(key="id")


def _pairs(left: pl.DataFrame, right: pl.DataFrame) -> tuple[tuple[str, str], ...]:
    """Return two ids of each side that have the same key."""
    both = left.join(right, on="key", maintain_order="left").filter(_KEY != "")
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

    def matched(variants: Sequence[str]) -> Spelling | None:
        written = []
        for table in (left, right):
            for name in variants:
                table = table.with_columns(key=_VARIANTS[name])
            written.append(table)
        return match(*written)

    needed = list(_VARIANTS)
    spelling = matched(needed)
    if spelling is None:
        return None
    for name in _VARIANTS:
        fewer = [variant for variant in needed if variant != name]
        if (with_fewer := matched(fewer)) is not None:
            needed, spelling = fewer, with_fewer
    return replace(spelling, difference=" and ".join(filter(None, [spelling.difference, *needed])))


def _added(left: pl.DataFrame, right: pl.DataFrame) -> Spelling | None:
    """Return a prefix, suffix, path or file extension that one side has and the other lacks."""
    for end, step in (("prefix", 1), ("suffix", -1)):
        for longer, shorter in ((left, right), (right, left)):
            if (match := _shared_affix(longer, shorter, step)) is not None:
                affix, pairs = match
                turned = longer is right
                pairs = [(b, a) if turned else (a, b) for a, b in pairs]
                return Spelling(f'the {end} "{affix}"', tuple(pairs))
    for difference, expression in _ADDITIONS.items():
        pairs_of_sides = _pairs(left.with_columns(key=expression), right) or _pairs(
            left, right.with_columns(key=expression)
        )
        if pairs_of_sides:
            return Spelling(difference, pairs_of_sides)
    return None


def _shared_affix(
    longer: pl.DataFrame, shorter: pl.DataFrame, step: int
) -> tuple[str, list[tuple[str, str]]] | None:
    """Return the affix that turns most ids of one side into ids of the other, with pairs.

    It is a prefix of the keys read forwards (``step`` 1), or backwards (-1) for a suffix.
    """
    known = {key[::step]: name for name, key in shorter.iter_rows()}
    sample = longer.gather_every(-(-longer.height // _SAMPLE) or 1).rows()
    pairs: dict[str, list[tuple[str, str]]] = {}
    between_words = set()
    for name, key in sample:
        for at in range(1, len(key)):
            affix, base = key[::step][:at], key[::step][at:]
            if base in known:
                pairs.setdefault(affix, []).append((name, known[base]))
                inner, outer = affix[-1], base[0]
                letters = inner.isalnum() and outer.isalnum()
                if not letters or inner.isdigit() != outer.isdigit():
                    between_words.add(affix)
    # Most pairs first; of equals the shortest, which leaves the most of each id.
    for affix in sorted(pairs, key=lambda affix: (-len(pairs[affix]), len(affix), affix)):
        # Digits that continue a number make another number: d10 is not d1 with the suffix 0.
        if affix in between_words or (len(pairs[affix]) >= _PAIRS and not affix.isdigit()):
            sharing = sum(key[::step].startswith(affix) for _, key in sample)
            if sharing >= _SHARE * len(sample):
                return affix[::step], pairs[affix][:2]
    return None
