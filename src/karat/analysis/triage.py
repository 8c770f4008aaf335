"""The worst queries of a run beside their gold, BM25's list and the class of each failure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from karat.analysis import Analysis, counts_of, stage_runs
from karat.analysis.diagnose.findings import findings
from karat.analysis.failures import CLASSES, QueryFailures, classify, countable, missed_line
from karat.analysis.failures.case import best_gold
from karat.data.tables import Queries, Run
from karat.errors import MissingInputError, UsageError, unknown
from karat.evaluation.evaluation import Evaluation
from karat.evaluation.report_text import conventions_lines, nothing_found
from karat.evaluation.segments import By, segments_by
from karat.evaluation.stages import KEEP, Staged, Thresholds, rescore_stages, thresholds_from
from karat.evaluation.top_lists import (
    CorpusLookup,
    assessed,
    corpus_rows,
    gold_of,
    logged_texts,
    query_texts,
    ranked_of,
    top_lists,
)
from karat.measure.names import Measure, parse_measures
from karat.measure.prepare import Prepared
from karat.measure.ranked import Ints
from karat.measure.score_builder import score
from karat.measure.scores import Scores
from karat.pages.formatting import NOTHING, figure, label
from karat.pages.page import Page, Section, TableColumns, table
from karat.pages.serialize import dumps

if TYPE_CHECKING:
    from karat.retrieve.corpus_index import CorpusIndex

# How many queries are shown, and how far down BM25's list gold is searched for.
WORST, BM25_DEPTH = 20, 1000

Row = Mapping[str, Any]

# Columns in which an eval set has notes on a query for its readers.
_NOTES = ("notes", "note")
# The reason for a missing list, if the log gives none.
_UNANSWERED = {"failed": "the call failed", "missing": "the run has no answer for it"}


@dataclass(frozen=True, eq=False, repr=False)
class Triage(Analysis):
    """The worst queries of a run; ``inspector`` looks up any other query."""

    inspector: QueryInspector | None = None

    def to_frame(self) -> pl.DataFrame:
        """Return one row per query that is shown: its value, its class and why."""
        names = ("query_id", "text", "status", "value", "class", "because")
        schema = {name: pl.Float64 if name == "value" else pl.String for name in names}
        rows = [[query[name] for name in names] for query in self.body["queries"]]
        return pl.DataFrame(rows, schema=schema, orient="row")


def triage(
    evaluation: Evaluation,
    run: Any,
    *,
    measure: str | None = None,
    worst: int = WORST,
    query_ids: Sequence[str] = (),
    thresholds: Thresholds | Sequence[str] = (),
    commands: Callable[[str, Mapping[str, Any]], dict[str, str]] | None = None,
) -> Triage:
    """Show the ``worst`` queries of a run by a measure, or those of some ids.

    An evaluation with an ``index_cache`` shows BM25's list and the texts of its corpus file.
    Without ``measure`` the first of the evaluation counts. ``commands`` gives the shell commands
    that show and ask a query again, by its id and what the run's log says about itself.

    >>> evaluation = karat.Evaluation("qrels.txt", queries="queries.jsonl", corpus="corpus.jsonl")
    >>> worst = karat.triage(evaluation, "dense.jsonl", worst=1).to_dict()["queries"][0]
    >>> worst["query_id"]
    'q11'
    """
    conventions = evaluation.prepared.conventions
    thresholds = thresholds_from(thresholds, conventions.profile)
    if measure is None:
        chosen = next(each for each in evaluation.measures if each.definition.better != "none")
    else:
        chosen, *more = parse_measures([measure], conventions=conventions)
        if more:
            several = f"one measure selects the bad queries, not {1 + len(more)}"
            raise UsageError(f"{several}; give -m one of them")
    keep = max(KEEP, thresholds.miss, thresholds.far)
    staged_runs = stage_runs(evaluation, [run], [chosen], keep=keep, of_stages=[])
    ((name, staged),) = staged_runs.systems.items()
    cut = staged.final.cut
    if measure is None and cut is not None and str(chosen) in cut.beyond and cut.depth:
        # A default measure is taken at a k that the lists reach.
        chosen = replace(chosen, k=cut.depth)
        staged = replace(staged, final=rescore_stages(staged, [chosen]))
    queries, index = evaluation.queries, evaluation.index
    failures = classify(staged, queries, thresholds=thresholds)
    inspector = QueryInspector(staged, chosen, failures, queries)
    to_fix = findings(staged, queries, thresholds=thresholds, by=evaluation.by).findings
    rows = inspector.chosen(query_ids) if query_ids else inspector.worst(worst)
    texts = {row: text for row in rows if (text := inspector.text(row)) is not None}
    bm25, lacks = bm25_lists(index, staged.gold, texts, BM25_DEPTH)
    if index is None and evaluation.corpus is not None:
        lacks = (
            "BM25's list and the items' texts need an index of the corpus file: give"
            ' karat.Evaluation(…, index_cache=Path(".karat"))'
        )
    meta, stages = staged.final.meta, {**staged.line, **staged.beside}
    body = {
        "measure": str(chosen),
        "system": name,
        **counts_of(staged),
        "worst": None if query_ids else worst,
        "queries": [
            query | ({} if commands is None else commands(query["query_id"], meta))
            for query in inspector.inspect(rows, items=index, bm25=bm25)
        ],
        "depth": {
            "final": staged.depth(staged.final).known,
            "stages": {name: staged.depth(lists).known for name, lists in stages.items()},
        },
        "bm25": {"lacks": lacks} if bm25 is None else {"depth": BM25_DEPTH},
        "failures": failures.to_dict(),
        "segments": {str(by): inspector.by_segment(by) for by in evaluation.by},
        "lines": thresholds.to_dict(),
        "findings": [finding.sentence for finding in to_fix],
    }
    return replace(staged_runs.result(Triage, body, triage_page), inspector=inspector)


def to_misses(result: Triage) -> bytes:
    """Return every miss as JSON: the query, the returned items, and the gold."""
    return dumps([] if result.inspector is None else result.inspector.misses(), sort_keys=False)


@dataclass(frozen=True, eq=False)
class QueryInspector:
    """Looks up the queries of one run: the worst by ``measure``, and the facts about each."""

    staged: Staged
    measure: Measure
    failures: QueryFailures
    queries: Queries | None = None

    def worst(self, n: int) -> list[int]:
        """Return the rows of the n worst queries that have gold, worst first.

        Of equal values the one whose gold lies deepest comes first, then the one further up in
        the table. A query without a value was not answered, and comes before all others.
        """
        final, name = self.staged.final, str(self.measure)
        better = self.measure.definition.better
        if better == "none":
            raise UsageError(f"{name} ranks no query as worse; choose another measure")
        if (lacks := final.lacks.get(name)) is not None:
            raise MissingInputError(f"{name} is not measured: {lacks}")
        values = final.values(name) * (1 if better == "higher" else -1)
        values = np.where(np.isnan(values), -np.inf, values)
        order = np.lexsort((-best_gold(final, self.staged.gold).rank, values))
        with_gold = assessed(final)
        return [row for row in order.tolist() if with_gold[row]][:n]

    def chosen(self, query_ids: Sequence[str]) -> list[int]:
        """Return the rows of some queries; for an unknown id the error names the nearest."""
        numbers = self.staged.gold.numbers
        for query_id in query_ids:
            if query_id not in numbers:
                raise unknown("query", query_id, numbers)
        return [numbers[query_id] for query_id in dict.fromkeys(query_ids)]

    def text(self, row: int) -> str | None:
        """Return a query's text: that of the queries, else of the log."""
        return self._texts.get(self.staged.gold.query_ids[row])

    def misses(self) -> list[dict[str, Any]]:
        """Return every miss: the query, the returned top k, and the gold."""
        gold = self.staged.gold
        last = np.full(len(gold.query_ids), self.failures.thresholds.miss)
        return misses_of(self.staged.final, gold, self.queries, last)

    def inspect(
        self, rows: Sequence[int], *, items: CorpusLookup | None = None, bm25: Scores | None = None
    ) -> list[dict[str, Any]]:
        """Return some queries as plain data: gold, lists, terms, failure class.

        ``items`` knows the corpus; ``bm25`` are the scores of BM25's own lists.
        """
        gold, final = self.staged.gold, self.staged.final
        top = _top_hits(final, gold, rows, KEEP)
        bm25_top = {} if bm25 is None else _top_hits(bm25, gold, rows, KEEP)
        hits = [hit for lists in (top, bm25_top) for hits in lists.values() for hit in hits]
        corpus = corpus_rows(items, [hit["item_id"] for hit in hits])
        texts = {item["item_id"]: item["text"] for item in corpus}
        for hit in hits:
            hit["text"] = texts.get(hit["item_id"])
        relevant = self._gold_with_ranks(rows, items, bm25)
        attributes: dict[str, dict[str, Any]] = {}
        if self.queries is not None:
            chosen = pl.col("query_id").is_in([gold.query_ids[row] for row in rows])
            frame = self.queries.frame.drop("text").filter(chosen)
            attributes = {facts.pop("query_id"): facts for facts in frame.to_dicts()}
        values = final.values(str(self.measure))
        errors = logged_texts(self.staged.calls, "error")
        queries = []
        for row in rows:
            query_id, text = gold.query_ids[row], self.text(row)
            query_attributes = attributes.get(query_id, {})
            notes = [query_attributes.pop(name, None) for name in _NOTES]
            miss = self.failures.by_query.get(query_id)
            queries.append(
                {
                    "query_id": query_id,
                    "text": text,
                    "note": next((note for note in notes if note), None),
                    "attributes": {
                        name: value for name, value in query_attributes.items() if value is not None
                    },
                    "status": final.status[row],
                    "error": errors.get(query_id),
                    "value": None if np.isnan(values[row]) else float(values[row]),
                    "miss": miss is not None,
                    "class": miss and miss.kind,
                    "because": miss and miss.because,
                    "evidence": miss and dict(miss.evidence),
                    "top": top[row],
                    "bm25": bm25_top[row] if bm25_top and text else None,
                    "gold": relevant[row],
                    "terms": shared_terms(
                        text,
                        {item["item_id"]: item["text"] for item in relevant[row]},
                        top[row][0]["text"] if top[row] else None,
                    ),
                }
            )
        return queries

    def _gold_with_ranks(
        self, rows: Sequence[int], items: CorpusLookup | None, bm25: Scores | None
    ) -> dict[int, list[dict[str, Any]]]:
        """Return each query's gold, with its rank in each list, None where it is not found."""
        lists = {"final": self.staged.final} | ({} if bm25 is None else {"bm25": bm25})
        earlier = {**self.staged.line, **self.staged.beside}
        ranks = {name: _judged_ranks(scores, rows) for name, scores in lists.items()}
        stages = {name: _judged_ranks(scores, rows) for name, scores in earlier.items()}
        relevant: dict[int, list[dict[str, Any]]] = {}
        for row, gold in gold_of(self.staged.gold, rows, items).items():
            relevant[row] = [item._asdict() for item in gold]
            for facts in relevant[row]:
                place = facts.pop("judgment")
                facts["ranks"] = {name: known.get(place) for name, known in ranks.items()}
                facts["ranks"]["stages"] = {name: at.get(place) for name, at in stages.items()}
        return relevant

    def by_segment(self, by: By) -> dict[str, dict[str, Any]]:
        """Return how many queries of each segment miss, by class."""
        segments, with_gold = {}, assessed(self.staged.final)
        for segment in segments_by(self.staged.final.table["query_id"], self.queries, by):
            kinds = [miss.kind for miss in self.failures.queries if segment.mask[miss.row]]
            counts = {name: kinds.count(name) for name in CLASSES if name in kinds}
            segments[segment.name] = {
                "queries": int((segment.mask & with_gold).sum()),
                "misses": len(kinds),
                "classes": countable(counts),
            }
        return segments

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        return query_texts(self.staged.calls, self.queries)


def _judged_ranks(scores: Scores, rows: Sequence[int]) -> Mapping[int, int]:
    """Return the first rank of each judgment of some queries, by its row in the gold."""
    found = ranked_of(scores).found
    chosen = np.isin(found.query, np.array(rows, dtype=np.int64))
    if found.row is None or not chosen.any():
        return {}
    pairs = zip(found.row[chosen].tolist(), found.rank[chosen].tolist(), strict=True)
    # By rank within a query: of several the first one stays.
    return dict(reversed(list(pairs)))


def misses_of(
    scores: Scores, gold: Prepared, queries: Queries | None, last: Ints
) -> list[dict[str, Any]]:
    """Return every query that has gold, and none of it up to rank ``last``.

    Queries and ``last`` are in the order of the score table, gold is best grade first. The run
    must be scored with ``keep`` at least as deep.
    """
    missed = assessed(scores) & (best_gold(scores, gold).rank > last)
    rows: list[int] = np.flatnonzero(missed).tolist()
    if not rows:
        return []
    lists = _top_hits(scores, gold, rows, int(last[rows].max()))
    relevant = gold_of(gold, rows, None)
    texts, errors = query_texts(scores.calls, queries), logged_texts(scores.calls, "error")
    misses = []
    for row in rows:
        query_id, status = gold.query_ids[row], scores.status[row]
        best_first = sorted(relevant[row], key=lambda item: (-item.grade, item.item_id))
        miss: dict[str, Any] = {
            "query": texts.get(query_id, query_id),
            "retrieved": [hit["item_id"] for hit in lists[row] if hit["rank"] <= last[row]],
            "relevant": [item.item_id for item in best_first],
        }
        if status in _UNANSWERED:
            miss["error"] = errors.get(query_id, _UNANSWERED[status])
        misses.append(miss)
    return misses


def _top_hits(
    scores: Scores, gold: Prepared, rows: Sequence[int], k: int
) -> dict[int, list[dict[str, Any]]]:
    """Return the first k hits of some queries, each with its judgment."""
    lists = top_lists(scores, gold, k).filter(pl.col("row").is_in(list(rows)))
    names = ("row", "rank", "item_id", "score", "grade", "repeat")
    columns = [name for name in names if name in lists.columns]
    hits: dict[int, list[dict[str, Any]]] = {row: [] for row in rows}
    for hit in lists.select(columns).iter_rows(named=True):
        row, repeat, grade = hit.pop("row"), hit.pop("repeat", False), hit["grade"]
        relevant = grade is not None and grade >= gold.conventions.rel
        facts = {"score": None, **hit, "gold": relevant}
        hits[row].append({**facts, "repeat": True} if repeat else facts)
    return hits


def bm25_lists(
    index: CorpusIndex | None, gold: Prepared, texts: Mapping[int, str], depth: int
) -> tuple[Scores | None, str | None]:
    """Return BM25's lists for queries by their row, scored as the run is.

    If something is lacking, the lists are None and the reason is returned.
    """
    if index is None:
        return None, "BM25's list needs the items' texts: give --corpus"
    if not texts:
        return None, "BM25's list needs the queries' texts: give --queries"
    ids = [gold.query_ids[row] for row in texts]
    hits = index.bm25(list(texts.values()), depth)
    names = pl.Series("query_id", ids, dtype=pl.String).gather(hits["query"])
    calls = pl.DataFrame({"query_id": ids})
    run = Run(hits.drop("query").with_columns(names), calls=calls, order="rank", name="bm25")
    try:
        return score(run, gold, [], keep=KEEP, derived=True), None
    except MissingInputError as error:
        return None, str(error)


_WORD = re.compile(r"\w+")


def terms_of(text: str) -> tuple[str, ...]:
    """Return the different words of a text, whatever their case, in their order.

    >>> terms_of("Café opening: CAFÉ, 9 am")
    ('café', 'opening', '9', 'am')
    """
    return tuple(dict.fromkeys(_WORD.findall(text.casefold())))


def shared_terms(
    query: str | None, gold: Mapping[str, str | None], top: str | None
) -> dict[str, Any] | None:
    """Return the words that a query shares with its gold and with the first hit.

    ``gold_words`` are shared with the gold item that shares most, ``gold_item``; ``missing``
    are in no gold. Values that need a missing text are None.

    >>> terms = shared_terms("When is my refund due", {"a": "Refunds", "b": "a refund"}, None)
    >>> terms["gold_words"], terms["missing"]
    (['refund'], ['when', 'is', 'my', 'due'])
    """
    if query is None:
        return None
    words = terms_of(query)
    shared = {
        item: [word for word in words if word in terms_of(text)]
        for item, text in gold.items()
        if text is not None
    }
    best = max(shared, key=lambda item: len(shared[item]), default=None)
    in_gold = None if best is None else shared[best]
    in_any = {word for in_item in shared.values() for word in in_item}
    in_top = None if top is None else [word for word in words if word in terms_of(top)]
    return {
        "query": len(words),
        "query_words": list(words),
        "gold": None if in_gold is None else len(in_gold),
        "gold_words": in_gold,
        "gold_item": best,
        "share": None if in_gold is None or not words else len(in_gold) / len(words),
        "missing": None if in_gold is None else [word for word in words if word not in in_any],
        "top": None if in_top is None else len(in_top),
        "top_words": in_top,
    }


# The page: how many queries miss, then each query beside its gold and lists.

# Longer texts are cut: no terminal line shows more.
_LONGEST = 2_000
# The most words to show; the JSON has all.
_MOST_WORDS = 12
_COMMANDS = {"reproduce": "reproduce", "search again": "ask_again"}
# Where one list is longer than the other.
_NO_HIT = {"item_id": "", "grade": None, "score": None, "gold": False, "text": None}


def triage_page(results: Row) -> Page:
    """Return the page; queries that were named by id are shown in full."""
    full, queries, failures = results["worst"] is None, results["queries"], results["failures"]
    classes = {name: n for name, n in failures["classes"].items() if n != 0}
    counts = [f"{name} {NOTHING if n is None else n}" for name, n in classes.items()]
    notes = ["* gold · - judged, not relevant"] if queries else []
    if queries and not full and "reproduce" in queries[0]:
        notes.append(f"in full: {queries[0]['reproduce']}")
    return Page(
        "Triage",
        [missed_line(failures), *([" · ".join(counts)] if counts else []), *results["findings"]],
        [
            *_segment_sections(results),
            *(section for query in queries for section in _query_sections(query, results, full)),
        ],
        [*notes, *_notes(results)],
    )


def _segment_sections(results: Row) -> Iterator[Section]:
    """Yield how many queries of each segment miss, by class."""
    classes = [name for name, n in results["failures"]["classes"].items() if n != 0]
    for column, segments in results["segments"].items():
        rows = [
            {**dict.fromkeys(classes, 0), **segment["classes"], **segment, column: value}
            for value, segment in segments.items()
        ]
        names = (column, "queries", "misses", *classes)
        yield Section("", table(rows, {name: name for name in names}))


def _notes(results: Row) -> list[str]:
    """Return how deep the lists were searched, what is unknown, and the conventions."""
    depths = {results["system"]: results["depth"]["final"], **results["depth"]["stages"]}
    lacks = results["bm25"].get("lacks")
    depths |= {} if lacks else {"BM25": results["bm25"]["depth"]}
    searched = ", ".join(f"{depth:,} of {label(name)}" for name, depth in depths.items())
    lines = [f"searched for gold in the first {searched}; {NOTHING} means not found there"]
    lines += [f"not shown: {lacks}"] if lacks else []
    unchecked = results["failures"]["unchecked"]
    if unchecked and results["failures"]["misses"]:
        lines.append(f"not checked: {', '.join(unchecked)} (--json says what each needs)")
    if results.get("nothing_found"):
        lines.append(nothing_found(results["nothing_found"]))
    made = {**results, "systems": [{"measures": {results["measure"]: {}}}]}
    return [*lines, conventions_lines(made)[0]]


def _query_sections(query: Row, results: Row, full: bool) -> Iterator[Section]:
    """Yield one query: its facts, its gold, and the run's list beside BM25's."""
    value = f"{results['measure']} {figure(query['value'])}"
    title = "  ".join(part for part in (query["query_id"], value, query["class"]) if part)
    lines = _query_lines(query)
    nothing = _UNANSWERED.get(query["status"], "nothing")
    lines += [] if query["top"] else [f"{results['system']}: {nothing}"]
    lines += ["BM25: no item shares a word"] if query["bm25"] == [] else []
    if full:
        lines += [f"{name}: {query[key]}" for name, key in _COMMANDS.items() if key in query]
    yield Section(title, lines=lines)
    yield from (_lists_in_full if full else _lists_in_short)(query, results["system"])


def _lists_in_full(query: Row, system: str) -> Iterator[Section]:
    """Yield the gold and the lists, with the whole text of each item below it."""
    lists = {
        "gold": [
            (f"* {item['item_id']} ({item['grade']:g})  {_place(item)}{_ranks(item)}", item["text"])
            for item in query["gold"]
        ]
    }
    for name, hits in {system: query["top"], "BM25": query["bm25"] or ()}.items():
        lists[name] = [(_hit_line(hit), hit["text"]) for hit in hits]
    for name, items in lists.items():
        texts = [(label(head), f"   {one_line(text or '', None)}") for head, text in items]
        yield Section(name, lines=[line for pair in texts for line in pair if line.strip()])


def _lists_in_short(query: Row, system: str) -> Iterator[Section]:
    """Yield the gold, and the run's list beside BM25's, with the beginnings of their texts."""
    grade: TableColumns = {"grade": lambda row: _grade(row["grade"])}
    if query["gold"]:
        columns: TableColumns = {
            "item": "item_id",
            **grade,
            "what": _ranks,
            "text": lambda item: one_line(_place(item) + (item["text"] or "")),
        }
        yield Section("", table(query["gold"], columns))
    hits = zip_longest(query["top"], query["bm25"] or (), fillvalue=_NO_HIT)
    rows = [
        {**hit, "rank": rank, "item": _hit_name(hit), "BM25": _hit_name(other)}
        for rank, (hit, other) in enumerate(hits, 1)
    ]
    columns = {"rank": "rank", "item": "item", **grade, "score": "score"}
    columns |= {"BM25": "BM25"} if query["bm25"] else {}
    columns |= {"text": lambda hit: one_line(hit["text"] or "")}
    beside = " beside BM25" if query["bm25"] else ""
    if rows:
        yield Section(f"{system}{beside}", table(rows, columns))


def _query_lines(query: Row) -> list[str]:
    """Return the facts about a query."""
    lines = [query["text"] or "(the query's text is not known)"]
    if query["because"]:
        lines.append(query["because"])
    elif query["error"]:
        lines.append(f"the call failed: {query['error']}")
    attributes = [
        f"{name} {', '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in query["attributes"].items()
        if value is not False
    ]
    lines += [" · ".join(attributes)] if attributes else []
    lines += [f"note: {query['note']}"] if query["note"] else []
    terms = query["terms"]
    if terms is not None and terms["gold"] is not None:
        lines.append(_words(terms))
    return [one_line(line) for line in lines]


def _words(terms: Row) -> str:
    """Return the words that the query shares with its gold and with the first hit."""
    text = f"words: none of {terms['query']} in any gold"
    if terms["gold"]:
        shared = _some(terms["gold_words"])
        text = f"words: {terms['gold']} of {terms['query']} in {terms['gold_item']} ({shared})"
        text += f" · in no gold: {_some(terms['missing'])}" if terms["missing"] else ""
    if terms["top"] is not None:
        text += f" · in the first hit: {terms['top']}"
        text += f" ({_some(terms['top_words'])})" if terms["top"] else ""
    return text


def _some(words: Sequence[str]) -> str:
    more = len(words) - _MOST_WORDS
    return ", ".join(words[:_MOST_WORDS]) + (f" and {more} more" if more > 0 else "")


def _ranks(gold: Row) -> str:
    """Return the rank of a gold item in each list, and whether the corpus lacks it."""
    ranks = gold["ranks"]
    named = {"final": ranks["final"], **ranks["stages"]}
    named |= {"BM25": ranks["bm25"]} if "bm25" in ranks else {}
    text = " · ".join(f"{label(name)} {rank or NOTHING}" for name, rank in named.items())
    return f"not in the corpus · {text}" if gold["in_corpus"] is False else text


def _grade(grade: float | None) -> str:
    """Return a grade without needless decimals; empty if nobody judged."""
    return "" if grade is None else f"{grade:g}"


def one_line(text: str, longest: int | None = _LONGEST) -> str:
    """Return the beginning of a text on one line, without control characters."""
    return label(" ".join(text[:longest].split()))


def _place(gold: Row) -> str:
    """Return the section and version of a gold item in brackets."""
    place_parts = [part for part in (gold["section"], gold["version"]) if part]
    return f"[{', '.join(place_parts)}] " if place_parts else ""


def _hit_name(hit: Row) -> str:
    """Return the item of a hit with its mark, and whether the list has it higher up already."""
    mark = "*" if hit["gold"] else "-" if hit["grade"] is not None else " "
    return f"{mark} {hit['item_id']}{' (again)' if hit.get('repeat') else ''}".rstrip()


def _hit_line(hit: Row) -> str:
    grade = "" if hit["grade"] is None else f" ({_grade(hit['grade'])})"
    score = "" if hit["score"] is None else f"  {figure(hit['score'])}"
    return f"{hit['rank']:>2} {_hit_name(hit)}{grade}{score}"
