"""What damage to ranked lists costs: hard negatives put in, items taken out, the order shuffled.

Damage is done in ``edits``; ``lists`` has the lists before and after it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from karat.analysis.runs import Analysis
from karat.analysis.stress.edits import (
    Edit,
    Edited,
    Insert,
    ListToEdit,
    Shuffle,
    StressSettings,
    own_negatives,
    sample,
    with_gold,
)
from karat.analysis.stress.lists import (
    Lists,
    ListSource,
    LoggedLists,
    RerunSystem,
    SearchedSystem,
    isolate_user_code,
)
from karat.analysis.stress.page import stress_page
from karat.data.tables import Run
from karat.errors import InputError, UsageError
from karat.evaluation.comparison import compare_scores
from karat.evaluation.evaluation import Evaluation
from karat.evaluation.origins import origin_inputs
from karat.evaluation.segments import CROSS
from karat.evaluation.systems import ComparedSystem
from karat.evaluation.verdict import Comparison, Rule
from karat.measures.aggregates import Values
from karat.measures.score_builder import score
from karat.measures.scores import Interval, plan_of
from karat.pages.result import utf8
from karat.pages.serialize import Record
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Query, queries_from
from karat.retrieve.rerun import mine_negatives
from karat.retrieve.search import OpenBar, no_bar
from karat.stats.means import mean_intervals
from karat.stats.paired import holm

OWN, MINED = "own", "bm25"
DEFAULT_EDITS: tuple[Edit, ...] = (Insert((1, 2, 3)),)
# Negatives by query, the hardest first.
Negatives = Mapping[str, Sequence[str]]


class Stress(Analysis):
    """What each kind of damage costs one or several systems."""

    @property
    def unmeasured(self) -> str | None:
        """Why the result says nothing; None if anything was measured."""
        scenarios = [
            scenario for system in self.body["systems"] for scenario in system["scenarios"]
        ]
        if any(fall["n"] for scenario in scenarios for fall in scenario["measures"].values()):
            return None
        return "not one query could be measured"


def stress(
    evaluation: Evaluation,
    run: Any = None,
    *,
    systems: Sequence[SearchedSystem] = (),
    edits: Sequence[Edit] = DEFAULT_EDITS,
    sample_size: int | None = None,
    negatives: str | None = None,
    inputs: Mapping[str, Any] | None = None,
    open_bar: OpenBar = no_bar,
) -> Stress:
    """Damage ranked lists, and measure how much worse they become on the same queries.

    The lists are those of a ``run``, or what ``systems`` retrieve; of a system all later stages,
    such as a reranker, run again on the damaged list. Each edit is a scenario of its own.
    ``negatives`` that an edit inserts are the eval set's ``own``, or the best by ``bm25`` that are
    not gold; its own if it has any. ``sample_size`` queries are drawn by the seed.
    """
    population = with_gold(evaluation.prepared)
    if not population:
        raise InputError("no query has gold; nothing can drop", where=evaluation.gold.source.name)
    seed = evaluation.prepared.conventions.seed
    chosen = sample(population, sample_size, seed)
    edits = [replace(edit, seed=seed) if isinstance(edit, Shuffle) else edit for edit in edits]
    test = _StressTest(
        StressSettings(
            evaluation.gold,
            evaluation.prepared.conventions,
            evaluation.measures,
            evaluation.queries,
            evaluation.corpus,
            by=evaluation.by,
        ),
        edits,
        chosen,
        _negatives_source(evaluation, edits, chosen, negatives),
    )
    if run is not None:
        found = [_stress_run(evaluation, evaluation.open(run).read(), test)]
    else:
        corpus = evaluation.corpus
        if corpus is not None:
            # The corpus was read for the gold; systems need not read it again.
            systems = [
                replace(one, context=replace(one.context, corpus=lambda: corpus)) for one in systems
            ]
        mined: dict[str, Negatives] = {}
        found = [_stress_system(system, test, mined, open_bar) for system in systems]
    return _result(_with_correction(found), evaluation, test, len(population), inputs or {})


@dataclass(frozen=True, eq=False)
class _StressTest:
    """What is measured, on which queries, under which edits; ``source`` is that of negatives."""

    settings: StressSettings
    edits: Sequence[Edit]
    query_ids: Sequence[str]
    source: str | None

    @property
    def most_negatives(self) -> int:
        """How many negatives a query needs; 0 if none is put in."""
        return most_negatives(self.edits)


@dataclass(frozen=True, eq=False)
class _SystemStress:
    """A system with what the edits did to it."""

    lists: ListSource
    scenarios: Sequence[Scenario]
    failures: Mapping[str, int]
    not_in_corpus: int

    def to_dict(self, test: _StressTest) -> dict[str, Any]:
        """Return the system as plain data."""
        about = dict(self.lists.about)
        negatives = {"source": test.source, "not_in_corpus": self.not_in_corpus}
        return {
            "name": utf8(self.lists.name),
            **about,
            "queries": {
                "sampled": len(test.query_ids),
                "missing": self.lists.missing,
                "failed": len(self.lists.failed),
            },
            "failures": dict(sorted(self.failures.items())),
            "negatives": None if test.source is None else negatives,
            "scenarios": [
                {**scenario.to_dict(), "how": about["how"]} for scenario in self.scenarios
            ],
        }


def most_negatives(edits: Sequence[Edit]) -> int:
    """Return how many negatives a query needs for these edits."""
    return max((len(edit.ranks) for edit in edits if isinstance(edit, Insert)), default=0)


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
    lacking = [
        *([] if evaluation.corpus else ["a corpus"]),
        *([] if evaluation.queries else ["the queries' texts"]),
    ]
    if lacking:
        alone = "" if named else f"{where} has no negatives of its own, and "
        raise UsageError(
            f"{alone}mining them by BM25 needs {' and '.join(lacking)}; give --corpus and "
            "--queries, or name them in karat.yaml"
        )
    return MINED


def _stress_run(evaluation: Evaluation, run: Run, test: _StressTest) -> _SystemStress:
    """Edit the lists of a run as they are."""

    def mine() -> Negatives:
        corpus = evaluation.corpus
        context = BuildContext() if corpus is None else BuildContext(corpus=lambda: corpus)
        queries = [] if evaluation.queries is None else queries_from(evaluation.queries)
        return _mine(context, queries, test)

    return _apply_edits(LoggedLists.of(run, test.settings, test.query_ids), test, mine)


def _stress_system(
    system: SearchedSystem, test: _StressTest, mined: dict[str, Negatives], open_bar: OpenBar
) -> _SystemStress:
    """Edit a system's retrieved lists, and run all later stages again."""
    # Each query is asked, run again as it is, and run again after each edit.
    calls = len(test.query_ids) * (2 + len(test.edits))
    chunker = system.config.chunker
    with open_bar(system.config.name, calls) as bar:
        lists = RerunSystem.of(system, test.settings, test.query_ids, bar)

        def mine() -> Negatives:
            # Systems over the same chunks share their negatives.
            key = json.dumps(chunker, sort_keys=True)
            if key not in mined:
                mined[key] = _mine(system.context, system.queries, test, chunker=chunker)
            return mined[key]

        return _apply_edits(lists, test, mine)


def _mine(
    context: BuildContext,
    queries: Sequence[Query],
    test: _StressTest,
    chunker: Mapping[str, Any] | None = None,
) -> Negatives:
    chosen = set(test.query_ids)
    asked = [query for query in queries if query.query_id in chosen]
    with isolate_user_code():
        return mine_negatives(context, asked, test.most_negatives, chunker=chunker)


def _apply_edits(
    lists: ListSource, test: _StressTest, mine: Callable[[], Negatives]
) -> _SystemStress:
    negatives: dict[str, list[str]] = {}
    unknown = 0
    if test.source is not None:
        candidates = own_negatives(test.settings.gold) if test.source == OWN else mine()
        for name in lists.entries:
            items = candidates.get(name, [])
            negatives[name] = [item for item in items if lists.knows(name, item)]
            unknown += len(items) - len(negatives[name])
    to_edit = _lists_to_edit(lists, test, negatives)
    failures = Counter(lists.failed.values())
    scenarios = []
    for edit in test.edits:
        edited = {one.query_id: edit.apply(one) for one in to_edit}
        # A list into which no negative could be put shows nothing.
        touched = {
            name: edited_list
            for name, edited_list in edited.items()
            if edited_list.placed or not isinstance(edit, Insert)
        }
        after = lists.after(touched)
        failures.update(after.failed.values())
        scenarios.append(measure_edit(edit, edited, lists.before, after, test.settings))
    return _SystemStress(lists, scenarios, failures, unknown)


def _lists_to_edit(lists: ListSource, test: _StressTest, negatives: Negatives) -> list[ListToEdit]:
    """Return each list with the gold in it and its negatives."""
    judged = {
        name: list(dict.fromkeys([*(item for item, _ in entries), *negatives.get(name, ())]))
        for name, entries in lists.entries.items()
    }
    gold = lists.grades(judged)
    found = []
    for name, entries in lists.entries.items():
        grades, candidates = gold.get(name, {}), negatives.get(name, ())
        if test.source == MINED:
            # The best items by BM25 are often gold.
            candidates = [item for item in candidates if item not in grades]
        found.append(ListToEdit(name, entries, grades, candidates))
    return found


def _with_correction(found: Sequence[_SystemStress]) -> list[_SystemStress]:
    """Return all systems with p corrected for all scenarios that are shown."""
    scenarios = iter(corrected([scenario for system in found for scenario in system.scenarios]))
    return [
        replace(system, scenarios=[next(scenarios) for _ in system.scenarios]) for system in found
    ]


def _result(
    found: Sequence[_SystemStress],
    evaluation: Evaluation,
    test: _StressTest,
    population: int,
    inputs: Mapping[str, Any],
) -> Stress:
    body = {
        "primary": str(test.settings.measures[0]),
        "with_gold": population,
        "sampled": len(test.query_ids),
        "systems": [system.to_dict(test) for system in found],
    }
    logs = [system.lists.run for system in found if isinstance(system.lists, LoggedLists)]
    return Stress(
        body,
        found[0].lists.conventions.document(),
        stress_page,
        {
            "gold": evaluation.gold.source,
            "runs": [run.source for run in logs],
            "queries": evaluation.queries and evaluation.queries.source,
            "corpus": evaluation.corpus and evaluation.corpus.source,
            **inputs,
            **origin_inputs([run.meta for run in logs], evaluation.queries),
        },
    )


@dataclass(frozen=True, slots=True)
class Fall(Record):
    """What a measure was before and after; ``drop`` is how much worse it got, whichever way.

    ``worse``, ``same`` and ``better`` count queries.
    """

    before: float | None
    after: float | None
    drop: float | None
    ci: Interval
    p: float | None
    p_adjusted: float | None
    n: int
    worse: int
    same: int
    better: int

    @classmethod
    def of(cls, row: Comparison) -> Fall:
        """Return the comparison of after with before, read as a drop."""
        sign = 1.0 if row.better == "lower" else -1.0
        ends = None if row.ci is None else sorted(sign * end + 0.0 for end in row.ci)
        return cls(
            before=row.baseline_mean,
            after=row.system_mean,
            drop=None if row.delta is None else sign * row.delta + 0.0,
            ci=None if ends is None else (ends[0], ends[1]),
            p=row.p,
            p_adjusted=row.p_adjusted,
            n=row.n,
            worse=row.losses,
            same=row.ties,
            better=row.wins,
        )


@dataclass(frozen=True, slots=True)
class Fate(Record):
    """Where the negatives ended that were put in: the shares of a query's, over the queries.

    ``before`` is the share that stood in the top without being put there, ``returned`` the share
    anywhere in the final list; ``mean_rank`` is that of the negatives returned.
    """

    top: int
    in_top: float | None
    ci: Interval
    before: float | None
    returned: float | None
    mean_rank: float | None


@dataclass(frozen=True, eq=False)
class Scenario:
    """What one edit did: the drop of each measure, and what happened to the lists.

    ``lists`` holds every list that was edited and could be made again; a query into which no
    negative could be put is left out and counted as ``without``, one whose call failed as
    ``failed``.
    """

    edit: Edit
    lists: Mapping[str, Edited]
    without: int
    failed: int
    falls: Mapping[str, Fall]
    segments: Mapping[str, Mapping[str, Mapping[str, Fall]]] = field(default_factory=dict)
    fate: Fate | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the scenario as plain data."""
        facts: dict[str, Any] = {
            "scenario": self.edit.name,
            "edit": self.edit.to_dict(),
            "edited": sum(hits.changed for hits in self.lists.values()),
            "short": sum(hits.short for hits in self.lists.values()),
            "failed": self.failed,
            "measures": {name: fall.to_dict() for name, fall in self.falls.items()},
        }
        if self.segments:
            facts["segments"] = {
                column: {
                    value: {name: fall.to_dict() for name, fall in falls.items()}
                    for value, falls in values.items()
                }
                for column, values in self.segments.items()
            }
        if self.fate is not None:
            facts |= {
                "without_negatives": self.without,
                "inserted": sum(len(hits.placed) for hits in self.lists.values()),
                "moved": sum(hits.moved for hits in self.lists.values()),
                "gold_refused": sum(hits.refused for hits in self.lists.values()),
                "at_the_end": sum(hits.beyond for hits in self.lists.values()),
                "negatives": self.fate.to_dict(),
            }
        return facts


def measure_edit(
    edit: Edit, edited: Mapping[str, Edited], before: Lists, after: Lists, settings: StressSettings
) -> Scenario:
    """Return how much an edit costs, over the queries that could be edited and made again."""
    inserting = edit.to_dict()["kind"] == "insert"
    touched = {
        name: edited_list
        for name, edited_list in edited.items()
        if edited_list.placed or not inserting
    }
    kept = {name: one for name, one in touched.items() if name not in after.failed}
    rows = _compared(before.run, after.run, list(kept), settings) if kept else []
    falls = {row.measure: Fall.of(row) for row in rows if row.segment is None}
    return Scenario(
        edit,
        kept,
        without=len(edited) - len(touched),
        failed=len(touched) - len(kept),
        falls=falls or {str(measure): _NOTHING for measure in settings.measures},
        segments=_by_segment(rows),
        fate=_fate(kept, before.final, after.final, settings) if inserting else None,
    )


_NOTHING = Fall(None, None, None, None, None, None, 0, 0, 0, 0)


def corrected(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """Correct p for the number of scenarios; the first measure is one family."""
    cells = [(at, name) for at, scenario in enumerate(scenarios) for name in scenario.falls]
    adjusted: dict[tuple[int, str], float | None] = {}
    for primary in (True, False):
        family = [
            (at, name) for at, name in cells if (name == next(iter(scenarios[at].falls))) == primary
        ]
        found = holm([scenarios[at].falls[name].p for at, name in family])
        adjusted |= dict(zip(family, found, strict=True))
    return [
        replace(
            scenario,
            falls={
                name: replace(fall, p_adjusted=adjusted[at, name])
                for name, fall in scenario.falls.items()
            },
        )
        for at, scenario in enumerate(scenarios)
    ]


def _compared(
    before: Run, after: Run, query_ids: Sequence[str], settings: StressSettings
) -> list[Comparison]:
    """Compare after with before on these queries, overall and by segment."""
    # What ranks a run has been decided: an edited list has the order that it was given.
    gold = settings.on(query_ids, order="rank")
    contenders = [
        ComparedSystem(name, (score(run, gold, settings.measures, derived=True),))
        for name, run in (("before", before), ("after", after))
    ]
    found = compare_scores(contenders, Rule(), queries=settings.queries, by=settings.by)
    return list(found.rows)


def _by_segment(rows: Sequence[Comparison]) -> dict[str, dict[str, dict[str, Fall]]]:
    segments: dict[str, dict[str, dict[str, Fall]]] = {}
    for row in rows:
        if row.segment:
            column, value = CROSS.join(row.segment), CROSS.join(row.segment.values())
            own = segments.setdefault(column, {}).setdefault(value, {})
            own[row.measure] = Fall.of(row)
    return segments


def _fate(
    edited: Mapping[str, Edited],
    before: Mapping[str, Sequence[str]],
    after: Mapping[str, Sequence[str]],
    settings: StressSettings,
) -> Fate:
    """Return where the negatives stand in the final lists."""
    top = settings.top
    ranks: list[int] = []
    shares: list[list[float]] = []
    for name, edited_list in edited.items():
        found = {
            item: rank for rank, item in enumerate(after[name], 1) if item in edited_list.placed
        }
        ranks += found.values()
        counts = (
            sum(rank <= top for rank in found.values()),
            sum(item in edited_list.placed for item in before[name][:top]),
            len(found),
        )
        shares.append([count / len(edited_list.placed) for count in counts])
    if not shares:
        return Fate(top, None, None, None, None, None)
    table = np.array(shares)
    in_top, earlier, returned = (math.fsum(column) / len(column) for column in table.T.tolist())
    return Fate(
        top,
        in_top=in_top,
        ci=_interval(table[:, :1], list(edited), settings),
        before=earlier,
        returned=returned,
        mean_rank=math.fsum(ranks) / len(ranks) if ranks else None,
    )


def _interval(column: Values, query_ids: Sequence[str], settings: StressSettings) -> Interval:
    """The interval of a mean share; conversations are drawn whole where queries belong to some."""
    if settings.conventions.interval == "none":
        return None
    gold = settings.on(query_ids)
    groups = None
    if gold.group is not None:
        groups = gold.group[[gold.numbers[name] for name in query_ids]]
    plan = plan_of(settings.conventions)
    ((low, high),) = mean_intervals(column, plan, ranges=[(0.0, 1.0)], groups=groups).tolist()
    return None if math.isnan(low) else (low, high)
