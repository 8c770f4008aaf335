"""The cost of damage to ranked lists: negatives inserted, items removed, order shuffled.

Damage is done in ``edits``; ``lists`` has the lists before and after it. The front, the figures
and the page are here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from karat.analysis import Analysis, counted_lines, inputs_of
from karat.analysis.stress.edits import (
    Edit,
    EditedList,
    Insert,
    ListToEdit,
    Shuffle,
    most_negatives,
    parse_edits,
)
from karat.analysis.stress.lists import (
    FinalLists,
    ListSource,
    SearchedSystem,
    grades_in,
    isolate_user_code,
    lists_of_run,
    lists_of_system,
    own_negatives,
    prepared_for,
    sample,
    with_gold,
)
from karat.errors import InputError, UsageError, unknown
from karat.evaluation.comparison import compare_scores
from karat.evaluation.evaluation import Evaluation
from karat.evaluation.report_text import conventions_lines, origin_of
from karat.evaluation.segments import CROSS, SMALL
from karat.evaluation.systems import ComparedSystem
from karat.evaluation.top_lists import share_of
from karat.evaluation.verdict import Comparison, Rule
from karat.measure.aggregates import mean
from karat.measure.names import Measure
from karat.measure.score_builder import score
from karat.measure.scores import Scores
from karat.pages.formatting import (
    NOTHING,
    PART,
    change,
    figure,
    interval,
    label,
    p_value,
    percent,
    plural,
    utf8,
)
from karat.pages.page import Grid, Page, Section
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Query, queries_from
from karat.retrieve.rerun import mine_negatives
from karat.retrieve.search import OpenBar, no_bar
from karat.stats.paired import holm

__all__ = ["Stress", "stress"]

# Where negatives come from: the eval set itself, or BM25.
OWN, MINED = "own", "bm25"
# How long the top of a list is where no measure names a cut-off.
_TOP = 5

Document = Mapping[str, Any]
# Negatives by query, the hardest first.
Negatives = Mapping[str, Sequence[str]]


class Stress(Analysis):
    """The cost of each kind of damage to one or several systems."""

    @property
    def unmeasured(self) -> str | None:
        """Why nothing was measured; None if anything was."""
        scenarios = [
            scenario for system in self.body["systems"] for scenario in system["scenarios"]
        ]
        if any(fall["n"] for scenario in scenarios for fall in scenario["measures"].values()):
            return None
        return "no query could be measured"


def stress(
    evaluation: Evaluation,
    run: Any = None,
    *,
    insert: int | None = None,
    at: str | None = None,
    drop: Sequence[str] = (),
    shuffle: bool = False,
    truncate: Sequence[str] = (),
    negatives: str | None = None,
    sample_size: int | None = None,
    systems: Sequence[SearchedSystem] = (),
    inputs: Mapping[str, Any] | None = None,
    open_bar: OpenBar = no_bar,
) -> Stress:
    """Damage ranked lists, and measure how much worse they become on the same queries.

    The lists are those of a ``run``, or what ``systems`` retrieve; of a system all later stages,
    such as a reranker, run again on the damaged list. Each kind of damage is a scenario of its own:
    ``insert`` hard negatives ``at`` ranks (``"1,2,3"``; the default: three on top), ``drop`` the
    first so many items or the best ``"gold"``, ``shuffle``, ``truncate`` to so many.
    ``negatives`` are the eval set's ``own``, or the best by ``bm25`` that are not gold; its own if
    it has any. ``sample_size`` queries are drawn by the seed.

    >>> result = karat.stress(karat.Evaluation("qrels.txt"), "dense.jsonl", drop=["1"]).to_dict()
    >>> result["primary"], result["sampled"]
    ('nDCG@10', 11)
    """
    edits = parse_edits(insert=insert, at=at, drop=drop, shuffle=shuffle, truncate=truncate)
    if negatives is not None and not most_negatives(edits):
        raise UsageError("--negatives chooses what --insert inserts; give --insert too")
    if negatives not in (None, OWN, MINED):
        raise unknown("--negatives", str(negatives), (OWN, MINED))
    population = with_gold(evaluation.prepared)
    if not population:
        raise InputError("no query has gold; nothing can drop", where=evaluation.gold.source.name)
    seed = evaluation.prepared.conventions.seed
    chosen = sample(population, sample_size, seed)
    edits = [replace(edit, seed=seed) if isinstance(edit, Shuffle) else edit for edit in edits]
    source = _negatives_source(evaluation, edits, chosen, negatives)
    test = _StressTest(evaluation, edits, chosen, source)
    sources, documents = [], []
    if run is not None:
        lists = lists_of_run(evaluation.open(run).read(), evaluation, chosen)
        corpus, queries = evaluation.corpus, evaluation.queries
        context = BuildContext() if corpus is None else BuildContext(corpus=lambda: corpus)
        negatives_by_query = test.negatives(context, queries_from(queries) if queries else [])
        sources.append(lists)
        documents.append(_stress_lists(lists, test, negatives_by_query))
    for system in systems if run is None else ():
        lists, document = _stress_system(system, test, open_bar)
        sources.append(lists)
        documents.append(document)
    correct_p([scenario for document in documents for scenario in document["scenarios"]])
    logs = [lists.log for lists in sources if lists.log is not None]
    return Stress(
        {
            "primary": str(evaluation.measures[0]),
            "with_gold": len(population),
            "sampled": len(chosen),
            "systems": documents,
        },
        sources[0].conventions.document(),
        stress_page,
        {
            **inputs_of(evaluation, [log.source for log in logs]),
            **(inputs or {}),
            **origin_of([log.meta for log in logs], evaluation.queries),
        },
    )


@dataclass(frozen=True, eq=False)
class _StressTest:
    """The measures, queries and edits; ``source`` is that of negatives.

    ``mined`` holds negatives by the chunker of their corpus.
    """

    evaluation: Evaluation
    edits: Sequence[Edit]
    query_ids: Sequence[str]
    source: str | None
    mined: dict[str, Negatives] = field(default_factory=dict)

    def negatives(
        self,
        context: BuildContext,
        queries: Sequence[Query],
        chunker: Mapping[str, Any] | None = None,
    ) -> Negatives:
        """Return the negatives of the eval set, or the best items of a corpus by BM25."""
        if self.source != MINED:
            return own_negatives(self.evaluation.gold)
        key = json.dumps(chunker, sort_keys=True)
        if key not in self.mined:
            chosen, most = set(self.query_ids), most_negatives(self.edits)
            test_queries = [query for query in queries if query.query_id in chosen]
            with isolate_user_code():
                self.mined[key] = mine_negatives(context, test_queries, most, chunker=chunker)
        return self.mined[key]


def _negatives_source(
    evaluation: Evaluation, edits: Sequence[Edit], chosen: Sequence[str], named: str | None
) -> str | None:
    """Return where negatives come from: the eval set's own if it has some, else BM25."""
    if not most_negatives(edits):
        return None
    has_own = not own_negatives(evaluation.gold).keys().isdisjoint(chosen)
    if has_own and named != MINED:
        return OWN
    where = evaluation.gold.source.name
    if named == OWN:
        raise InputError(
            "holds no negatives for these queries: no judgment of grade 0, nor negatives in an "
            "eval set; add some, or mine them with --negatives bm25",
            where=where,
        )
    if evaluation.corpus is None or evaluation.queries is None:
        alone = "" if named else f"{where} has no negatives of its own, and "
        raise UsageError(
            f"{alone}mining them by BM25 needs a corpus and the queries' texts; give --corpus and"
            " --queries, or name them in karat.yaml"
        )
    return MINED


def _stress_system(
    system: SearchedSystem, test: _StressTest, open_bar: OpenBar
) -> tuple[ListSource, dict[str, Any]]:
    """Edit a system's retrieved lists, and run all later stages again."""
    corpus = test.evaluation.corpus
    if corpus is not None:
        # The corpus was read for the gold; the system need not read it again.
        system = replace(system, context=replace(system.context, corpus=lambda: corpus))
    # Each query is asked, run again as it is, and run again after each edit.
    calls = len(test.query_ids) * (2 + len(test.edits))
    with open_bar(system.config.name, calls) as bar:
        lists = lists_of_system(system, test.evaluation, test.query_ids, bar)
        negatives = test.negatives(system.context, system.queries, system.config.chunker)
        return lists, _stress_lists(lists, test, negatives)


def _stress_lists(lists: ListSource, test: _StressTest, candidates: Negatives) -> dict[str, Any]:
    """Return the effect of every edit on these lists, as plain data."""
    negatives: dict[str, list[str]] = {}
    unknown = 0
    if test.source is not None:
        for name in lists.entries:
            items = candidates.get(name, [])
            negatives[name] = [item for item in items if lists.knows(name, item)]
            unknown += len(items) - len(negatives[name])
    graded = {
        name: [(item, None) for item in dict.fromkeys([*dict(entries), *negatives.get(name, ())])]
        for name, entries in lists.entries.items()
    }
    gold = grades_in(lists.run_of(graded), test.evaluation, list(graded))
    to_edit = []
    for name, entries in lists.entries.items():
        grades, hardest = gold.get(name, {}), negatives.get(name, [])
        if test.source == MINED:
            # The best items by BM25 are often gold.
            hardest = [item for item in hardest if item not in grades]
        to_edit.append(ListToEdit(name, entries, grades, hardest))
    failures = Counter(lists.failed.values())
    scenarios = []
    for edit in test.edits:
        edited = {before.query_id: edit.apply(before) for before in to_edit}
        after = lists.after(touched_by(edit, edited))
        failures.update(after.failed.values())
        scenario = measure_edit(edit, edited, lists.before, after, test.evaluation)
        scenarios.append({**scenario, "how": lists.about["how"]})
    return {
        "name": utf8(lists.name),
        **lists.about,
        "queries": {
            "sampled": len(test.query_ids),
            "missing": lists.missing,
            "failed": len(lists.failed),
        },
        "failures": dict(sorted(failures.items())),
        "negatives": test.source and {"source": test.source, "not_in_corpus": unknown},
        "scenarios": scenarios,
    }


def touched_by(edit: Edit, edited: Mapping[str, EditedList]) -> dict[str, EditedList]:
    """Return the usable lists: those into which a negative could be put."""
    if not isinstance(edit, Insert):
        return dict(edited)
    return {name: result for name, result in edited.items() if result.placed}


def measure_edit(
    edit: Edit,
    edited: Mapping[str, EditedList],
    before: FinalLists,
    after: FinalLists,
    evaluation: Evaluation,
) -> dict[str, Any]:
    """Return how much an edit costs, over the queries that could be edited and made again.

    ``edited`` counts the lists that changed. A query into which no negative could be put is
    left out and counted, as is one whose call failed.
    """
    touched = touched_by(edit, edited)
    remaining = {name: change for name, change in touched.items() if name not in after.failed}
    scenario: dict[str, Any] = {
        "scenario": edit.name,
        "edit": edit.to_dict(),
        "edited": sum(result.changed for result in remaining.values()),
        "short": sum(result.short for result in remaining.values()),
        "failed": len(touched) - len(remaining),
        "measures": {str(measure): dict(_NOTHING) for measure in evaluation.measures},
    }
    scores: list[Scores] = []
    if remaining:
        # The order is fixed: an edited list keeps the order that it was given.
        gold = prepared_for(evaluation, list(remaining), order="rank")
        scores = [
            score(lists.run, gold, evaluation.measures, lenient=evaluation.lenient, derived=True)
            for lists in (before, after)
        ]
        systems = [
            ComparedSystem(name, (edit_result,))
            for name, edit_result in zip(("before", "after"), scores, strict=True)
        ]
        comparisons = compare_scores(systems, Rule(), queries=evaluation.queries, by=evaluation.by)
        scenario |= _falls(comparisons.rows)
    if isinstance(edit, Insert):
        scenario |= {
            "without_negatives": len(edited) - len(touched),
            "inserted": sum(len(result.placed) for result in remaining.values()),
            "moved": sum(result.moved for result in remaining.values()),
            "gold_refused": sum(result.refused for result in remaining.values()),
            "at_the_end": sum(result.beyond for result in remaining.values()),
            "negatives": _fate(remaining, before, after, scores, evaluation.measures),
        }
    return scenario


_NOTHING = {
    **dict.fromkeys(("before", "after", "drop", "ci", "p", "p_adjusted")),
    **dict.fromkeys(("n", "worse", "same", "better"), 0),
}


def _falls(rows: Sequence[Comparison]) -> dict[str, Any]:
    """Return the drop of each measure, overall and by segment: how much worse it got.

    ``worse``, ``same`` and ``better`` count queries.
    """
    falls: dict[str, Any] = {"measures": {}}
    for row in rows:
        sign = 1.0 if row.better == "lower" else -1.0
        measures = falls["measures"]
        if row.segment:
            column, value = CROSS.join(row.segment), CROSS.join(row.segment.values())
            segments = falls.setdefault("segments", {}).setdefault(column, {})
            measures = segments.setdefault(value, {})
        measures[row.measure] = {
            "before": row.baseline_mean,
            "after": row.system_mean,
            "drop": None if row.delta is None else sign * row.delta + 0.0,
            "ci": None if row.ci is None else sorted(sign * end + 0.0 for end in row.ci),
            "p": row.p,
            "p_adjusted": row.p_adjusted,
            "n": row.n,
            "worse": row.losses,
            "same": row.ties,
            "better": row.wins,
        }
    return falls


def correct_p(scenarios: Sequence[dict[str, Any]]) -> None:
    """Correct p for the number of scenarios, in place; the first measure is one family."""
    for primary in (True, False):
        falls = [
            fall
            for scenario in scenarios
            for place, fall in enumerate(scenario["measures"].values())
            if (place == 0) == primary
        ]
        for fall, p in zip(falls, holm([fall["p"] for fall in falls]), strict=True):
            fall["p_adjusted"] = p


def _fate(
    edited: Mapping[str, EditedList],
    before: FinalLists,
    after: FinalLists,
    scores: Sequence[Scores],
    measures: Sequence[Measure],
) -> dict[str, Any]:
    """Return where the negatives ended: the shares of a query's, over the queries.

    ``before`` is the share in the top without insertion, ``returned`` the share
    anywhere in the final list; ``mean_rank`` is that of the negatives returned.
    """
    top = top_of(measures)
    ranks: list[int] = []
    shares: list[list[float]] = []
    for name, result in edited.items():
        placed = [rank for rank, item in enumerate(after.final[name], 1) if item in result.placed]
        ranks += placed
        in_top = sum(rank <= top for rank in placed)
        earlier = sum(item in result.placed for item in before.final[name][:top])
        shares.append([count / len(result.placed) for count in (in_top, earlier, len(placed))])
    if not shares:
        return {"top": top} | dict.fromkeys(("in_top", "ci", "before", "returned", "mean_rank"))
    table = np.array(shares)
    places = {name: place for place, name in enumerate(scores[0].query_ids)}
    share = share_of(table[:, 0], scores[0], np.array([places[name] for name in edited]))
    return {
        "top": top,
        "in_top": share["mean"],
        "ci": share["ci"],
        "before": mean(table[:, 1]),
        "returned": mean(table[:, 2]),
        "mean_rank": mean(np.array(ranks, dtype=np.float64)),
    }


def top_of(measures: Sequence[Measure]) -> int:
    """Return how long the top of a list is: where the first measure with a cut-off looks."""
    return next((measure.k for measure in measures if isinstance(measure.k, int)), _TOP)


_SOURCES = {OWN: "of the eval set", MINED: "mined by BM25, hence not judged"}
# Incomplete edits, for one query and for more.
_EVENTS = {
    "short": ("list is too short or lacks the gold", "lists are too short or lack the gold"),
    "gold_refused": ("negative is gold and stays out", "negatives are gold and stay out"),
    "at_the_end": ("negative is at the end of its list", "negatives are at the end of their lists"),
    "failed": ("query left out: its call failed", "queries left out: their calls failed"),
    "without_negatives": ("query left out: no negatives", "queries left out: no negatives"),
}


def stress_page(results: Document) -> Page:
    """Return the page: what each kind of damage costs, and where the negatives ended."""
    systems, primary = results["systems"], results["primary"]
    headline, sections = [], []
    for system in systems:
        whose = f"{label(system['name'])}, " if len(systems) > 1 else ""
        sections.append(Section(_title(system), _grid(system), list(_lines(system))))
        for scenario in system["scenarios"]:
            sentence = _fall_sentence(primary, scenario["measures"][primary])
            headline.append(f"{whose}{scenario['scenario']}: {sentence}")
            sections += _segment_sections(system, scenario, primary)
    queries = plural(results["with_gold"], "query", "queries")
    how = "drop: how much worse · p corrected (holm) · −/=/+ queries worse, equal, better"
    measures = [{"measures": systems[0]["scenarios"][0]["measures"]}]
    notes = [
        f"{results['sampled']:,} of {queries} with gold · {how}",
        *conventions_lines({**results, "systems": measures, "comparisons": []}),
    ]
    return Page("What damage costs", headline, sections, notes)


def _fall_sentence(measure: str, fall: Document) -> str:
    drop, ends = fall["drop"], fall["ci"] or ()
    if drop is None:
        return f"{measure} could not be measured before and after on any query"
    over = f"over {plural(fall['n'], 'query', 'queries')}"
    if drop < 0:
        ends = sorted(-end for end in ends)
    moved = f"{'drops' if drop > 0 else 'gains'} by" if drop else "does not change: drop"
    return " ".join(filter(None, [measure, moved, figure(abs(drop)), interval(ends or None), over]))


def _title(system: Document) -> str:
    how, model = system["how"], system["reranker"]
    how += "" if model is None else f" by {label(str(model['name']))} ({model['kind']})"
    how += f" by {', '.join(system['stages'])}" if how == "reordered" else ""
    return f"{label(system['name'])}: {how}"


def _grid(system: Document) -> Grid:
    grid = [["scenario", "measure", "before", "after", "drop", "p", "−/=/+", "n"]]
    for scenario in system["scenarios"]:
        name = scenario["scenario"]
        for measure, fall in scenario["measures"].items():
            counts = f"{fall['worse']}/{fall['same']}/{fall['better']}"
            grid.append([name, measure, *_cells(fall), counts, str(fall["n"])])
            name = ""
    return grid


def _cells(fall: Document) -> list[str]:
    drop = f"{change(fall['drop'])}{PART}{interval(fall['ci'])}"
    return [figure(fall["before"]), figure(fall["after"]), drop, p_value(fall["p_adjusted"])]


def _lines(system: Document) -> Iterator[str]:
    """Yield how lists were made again, where negatives ended, and what was left out."""
    yield system["because"]
    if "for_real" in system:
        yield f"to run its later stages on the edited lists: {label(system['for_real'])}"
    negatives = system["negatives"] or {}
    for scenario in system["scenarios"]:
        name = scenario["scenario"]
        if "negatives" in scenario:
            yield f"{name}: {_fate_sentence(scenario, _SOURCES[negatives['source']])}"
        events = counted_lines(scenario, _EVENTS)
        if events:
            yield f"{name}: {' · '.join(events)}"
    if missing := system["queries"]["missing"]:
        yield f"{plural(missing, 'query is', 'queries are')} missing from the run"
    if failed := system["queries"]["failed"]:
        yield f"{plural(failed, 'query', 'queries')} left out: the call failed before any edit"
    if unknown := negatives.get("not_in_corpus"):
        yield f"{plural(unknown, 'negative')} left out: the corpus does not have them"
    for reason, count in system["failures"].items():
        yield f"  {count:,} × {label(reason)}"


def _fate_sentence(scenario: Document, source: str) -> str:
    """Return where the negatives ended up."""
    fate, moved = scenario["negatives"], scenario["moved"]
    text = f"{plural(scenario['inserted'], 'negative')} {source}"
    text += f", {moved:,} of them already in the lists" if moved else ""
    if fate["in_top"] is None:
        return text
    ends = f" ({' to '.join(map(percent, fate['ci']))})" if fate["ci"] else ""
    text += f"; {percent(fate['in_top'])}{ends} end in the top {fate['top']}"
    text += f", {percent(fate['before'])} before"
    rank = NOTHING if fate["mean_rank"] is None else f"{fate['mean_rank']:.1f}"
    return f"{text}; {percent(fate['returned'])} are returned, at rank {rank} on average"


def _segment_sections(system: Document, scenario: Document, primary: str) -> Iterator[Section]:
    """Yield the drop of the measure that decides, segment by segment."""
    for column, values in scenario.get("segments", {}).items():
        grid = [[label(column), "n", "before", "after", "drop", "p"]]
        for value, falls in values.items():
            fall = falls[primary]
            n = f"{fall['n']}{' small' if fall['n'] < SMALL else ''}"
            grid.append([label(value), n, *_cells(fall)])
        title = f"{label(system['name'])}, {scenario['scenario']}: {primary} by {label(column)}"
        yield Section(title, grid)
