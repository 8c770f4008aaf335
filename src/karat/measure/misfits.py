"""Refuse inputs that do not fit each other, where every score would be 0 by mistake.

While a run meets its gold, block by block, a ``Meeting`` counts what was found and keeps the
ids of both sides as long as nothing was. ``refuse_misfit`` decides once all blocks are in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
    from karat.measure.spelling import Spelling


# This many queries without a find are not a coincidence.
MANY_QUERIES = 10
# The least share of ids that a corpus must have to belong to them.
LEAST_KNOWN = 0.05
# The number of ids per side kept for the message.
_MOST_IDS = 300_000
_ALLOW = "--set missing_ids=allow (settings={'missing_ids': 'allow'} in Python)"


@dataclass(frozen=True, eq=False)
class Meeting:
    """The counts of a run and its gold, collected block by block; those of several blocks add up.

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
    """Return the gold's part of a meeting."""
    relevant = gold.grade >= gold.conventions.rel
    codes = gold.rows["code"].to_numpy()
    relevant &= ~gold.no_answer[codes]
    items = gold.rows.filter(relevant).select("item_id")
    return Meeting(queries=len(np.unique(codes[relevant])), gold=_few(items)["item_id"])


def run_side(run: Run, gold: Prepared, ranked: Ranked, codes: Ints, failed: Ints) -> Meeting:
    """Return the part of a block of a run; ``ranked`` are its lists, not cut at a depth."""
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
    id_columns = [name for name in ("item_id", "doc_id") if name in run.hits.columns]
    return run.hits.select(pl.col(id_columns).cast(pl.String)).unique()


def ids_of_stages(run: Run) -> pl.DataFrame:
    """Return every item that a run returned, with its document and the stage that returned it."""
    hits = run.hits if run.staged else run.hits.with_columns(stage=pl.lit("final"))
    id_columns = [name for name in ("item_id", "doc_id", "stage") if name in hits.columns]
    return hits.select(pl.col(id_columns).cast(pl.String)).unique()


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
    """The ids of a run and its gold, without a common one."""

    meeting: Meeting
    conventions: Conventions
    run: str
    gold: str
    corpus: pl.DataFrame | None
    corpus_name: str

    @cached_property
    def gold_ids(self) -> pl.Series:
        """The relevant items of the gold."""
        gold_ids = self.meeting.gold
        return pl.Series("item_id", [], dtype=pl.String) if gold_ids is None else gold_ids

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
        """Whether a relevant item was returned for any query."""
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
        known_ids = [_in_both(self.corpus[name], ids).rename(ids.name) for name in columns]
        return pl.concat(known_ids).unique()

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
        from karat.measure.spelling import spelling_difference

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
            else _advice(spelling),
            self.units,
            pairs=() if spelling is None else spelling.pairs,
        )

    def refuse_corpus(self) -> None:
        """Refuse a corpus that does not have the items of the gold."""
        gold = self.gold_ids
        if self.corpus is None or self._are_known(gold):
            return
        from karat.measure.spelling import spelling_difference

        corpus_ids = pl.concat([self.corpus["item_id"], self.corpus["doc_id"].rename("item_id")])
        spelling = spelling_difference(gold, _few(corpus_ids.to_frame())["item_id"])
        count = len(self._in_corpus(gold))
        raise self._misfit(
            f"{count:,} of {len(gold):,} relevant items of {self.gold} occur in {self.corpus_name}",
            f"Give the corpus of this gold, or allow it with {_ALLOW}."
            if spelling is None
            else _advice(spelling),
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


def _advice(spelling: Spelling) -> str:
    return f"The ids differ by {spelling.difference}. Rename one side, or allow it with {_ALLOW}."


def _in_both(many: pl.Series, few: pl.Series) -> pl.Series:
    """Return the common ids; fast where the first set is larger."""
    return many.filter(many.is_in(few.implode())).unique()


def _shown(name: str) -> str:
    """Return an id as it is; in quotation marks where its ends could not be seen."""
    cut = name if len(name) <= 80 else f"{name[:60]}…"
    return repr(cut) if cut != cut.strip() or not cut.isprintable() or '"' in cut else cut


def side_name(source: Source, otherwise: str) -> str:
    """Return the name of one side for messages: its file, else ``otherwise``."""
    return otherwise if source is IN_MEMORY else source.name
