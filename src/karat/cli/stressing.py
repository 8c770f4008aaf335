"""From a karat.yaml or a run to what damage costs: queries drawn, lists edited, drops measured."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from karat.analysis.stress.drops import Stressed, corrected, stress
from karat.analysis.stress.edits import Case, Edit, Insert, Shuffle
from karat.analysis.stress.terms import Terms, own_negatives, sample, with_gold
from karat.cli.progress import counting
from karat.cli.publish import EXIT_CANNOT_TELL
from karat.cli.scoring import Ready, ready
from karat.cli.searching import Plan, plan_of
from karat.cli.searching import Request as SearchRequest
from karat.cli.stress_inputs import Request, check, parse_edits, sample_size, scoring, scoring_by
from karat.cli.stress_subjects import LoggedLists, RerunSystem, Subject, someone_elses_code
from karat.columns import Source
from karat.errors import InputError, UsageError
from karat.formats import scan_run
from karat.reports.document import input_of, utf8
from karat.reports.origins import origin_inputs
from karat.reports.pages import Paper
from karat.reports.stress import stress_page
from karat.retrievers.blueprints import Blueprint
from karat.retrievers.protocol import Query, queries_from
from karat.retrievers.rerunning import mine_negatives
from karat.retrievers.workshop import Workshop

OWN, MINED = "own", "bm25"
# Items for each query by BM25, best first.
Mine = Callable[[], Mapping[str, Sequence[str]]]


@dataclass(frozen=True, eq=False)
class Test:
    """What is measured, on which queries, under which edits, and where negatives come from."""

    terms: Terms
    edits: Sequence[Edit]
    chosen: Sequence[str]
    source: str | None

    @property
    def most(self) -> int:
        """How many negatives a query needs; 0 where none is put in."""
        return _most(self.edits)


@dataclass(frozen=True, eq=False)
class Found:
    """A subject with what the edits did to it."""

    subject: Subject
    scenarios: Sequence[Stressed]
    failures: Mapping[str, int]
    not_in_corpus: int

    def document(self, test: Test) -> dict[str, Any]:
        """The subject as it stands in a report."""
        told = dict(self.subject.told)
        return {
            "name": utf8(self.subject.name),
            **told,
            "queries": {
                "sampled": len(test.chosen),
                "missing": self.subject.missing,
                "failed": len(self.subject.failed),
            },
            "failures": dict(sorted(self.failures.items())),
            "negatives": None
            if test.source is None
            else {"source": test.source, "not_in_corpus": self.not_in_corpus},
            "scenarios": [{**one.document(), "how": told["how"]} for one in self.scenarios],
        }


def stress_all(request: Request) -> Paper:
    """Damage the lists of every system, and say what each kind of damage costs."""
    edits = parse_edits(request)
    count = sample_size(request)
    check(request)
    plan = None
    if request.of_systems:
        plan = plan_of(SearchRequest(config=request.subject, systems=request.systems or None))
        _check_texts(plan, edits)
    given = ready(scoring(request) if plan is None else scoring_by(plan.config, request))
    population = with_gold(given.prepared)
    if not population:
        raise InputError("no query has gold; nothing can drop", where=given.gold.source.name)
    test = _test(given, edits, sample(population, count, _seed(given)), request.negatives)
    if plan is None:
        found = [_of_run(request, given, test)]
    else:
        plan = _sharing(plan, given)
        mined: dict[str, Mapping[str, Sequence[str]]] = {}
        found = [_of_system(plan, one, test, mined, quiet=request.quiet) for one in plan.blueprints]
    return _paper(_corrected(found), given, plan, test, len(population))


def _test(given: Ready, edits: Sequence[Edit], chosen: Sequence[str], wanted: str | None) -> Test:
    conventions = given.prepared.conventions
    terms = Terms(given.gold, conventions, given.measures, given.queries, given.corpus, by=given.by)
    # The seed may come from the karat.yaml, which is read after the options.
    seeded = [replace(one, seed=_seed(given)) if isinstance(one, Shuffle) else one for one in edits]
    return Test(terms, seeded, chosen, _source(given, edits, chosen, wanted))


def _seed(given: Ready) -> int:
    return given.prepared.conventions.seed


def _most(edits: Sequence[Edit]) -> int:
    return max((len(one.ranks) for one in edits if isinstance(one, Insert)), default=0)


def _source(
    given: Ready, edits: Sequence[Edit], chosen: Sequence[str], wanted: str | None
) -> str | None:
    """Where negatives come from: the eval set's own where it has some, else BM25."""
    if not _most(edits):
        return None
    has_own = not own_negatives(given.gold).keys().isdisjoint(chosen)
    if has_own and wanted != MINED:
        return OWN
    where = given.gold.source.name
    if wanted == OWN:
        raise InputError(
            "holds no negatives for these queries: no judgment of grade 0, nor negatives in an "
            "eval set; add some, or mine them with --negatives bm25",
            where=where,
        )
    lacking = [
        *([] if given.corpus else ["a corpus"]),
        *([] if given.queries else ["the queries' texts"]),
    ]
    if lacking:
        alone = "" if wanted else f"{where} has no negatives of its own, and "
        raise UsageError(
            f"{alone}mining them by BM25 needs {' and '.join(lacking)}; give --corpus and "
            "--queries, or name them in karat.yaml"
        )
    return MINED


def _check_texts(plan: Plan, edits: Sequence[Edit]) -> None:
    """Refuse to put in what a reranker could not read."""
    for blueprint in plan.blueprints if plan.config.corpus is None and _most(edits) else ():
        stages = blueprint.stages
        if stages.rerank is not None or stages.mmr is not None:
            raise UsageError(
                f"system {blueprint.name!r} reads texts, and those of negatives come from a "
                "corpus; name one in karat.yaml: corpus: items.jsonl"
            )


def _of_run(request: Request, given: Ready, test: Test) -> Found:
    """The lists of a run, edited as they are."""
    name = request.subject or ""
    run = scan_run(name, format=request.run_format, strict=request.strict).read()
    subject = LoggedLists.of(run, test.terms, test.chosen)

    def mine() -> Mapping[str, Sequence[str]]:
        corpus = given.corpus
        workshop = Workshop() if corpus is None else Workshop(corpus=lambda: corpus)
        asked = [] if given.queries is None else queries_from(given.queries)
        return _mined(workshop, asked, test)

    return _stressed(subject, test, mine)


def _of_system(
    plan: Plan,
    blueprint: Blueprint,
    test: Test,
    mined: dict[str, Mapping[str, Sequence[str]]],
    *,
    quiet: bool,
) -> Found:
    """A system's lists, edited where it retrieved them, and all that follows run again."""
    # Each query is asked, run again as it is, and run again after each edit.
    calls = len(test.chosen) * (2 + len(test.edits))
    with counting(blueprint.name, calls, quiet=quiet) as bar:
        subject = RerunSystem.of(plan, blueprint, test.terms, test.chosen, bar)

        def mine() -> Mapping[str, Sequence[str]]:
            # Systems over the same chunks share their negatives.
            key = json.dumps(blueprint.chunker, sort_keys=True)
            if key not in mined:
                chunker = blueprint.chunker
                mined[key] = _mined(plan.workshop, plan.queries, test, chunker=chunker)
            return mined[key]

        return _stressed(subject, test, mine)


def _mined(
    workshop: Workshop,
    queries: Sequence[Query],
    test: Test,
    chunker: Mapping[str, Any] | None = None,
) -> Mapping[str, Sequence[str]]:
    chosen = set(test.chosen)
    asked = [query for query in queries if query.query_id in chosen]
    with someone_elses_code():
        return mine_negatives(workshop, asked, test.most, chunker=chunker)


def _sharing(plan: Plan, given: Ready) -> Plan:
    """The plan with the corpus that was read for the gold, so that it is read once."""
    corpus = given.corpus
    if corpus is None:
        return plan
    return replace(plan, workshop=replace(plan.workshop, corpus=lambda: corpus))


def _stressed(subject: Subject, test: Test, mine: Mine) -> Found:
    """Apply every edit to the lists of a subject."""
    items, unknown = _negatives(subject, test, mine)
    cases = _cases(subject, test, items)
    failures = Counter(subject.failed.values())
    scenarios = []
    for edit in test.edits:
        edited = {case.query_id: edit.apply(case) for case in cases}
        # A list that negatives were to be put into and were not has nothing to show.
        touched = {
            name: one for name, one in edited.items() if one.placed or not isinstance(edit, Insert)
        }
        after = subject.after(touched)
        failures.update(after.failed.values())
        scenarios.append(stress(edit, edited, subject.before, after, test.terms))
    return Found(subject, scenarios, failures, unknown)


def _negatives(subject: Subject, test: Test, mine: Mine) -> tuple[Mapping[str, Sequence[str]], int]:
    """What may be put into each list, and how many items were left out as unknown."""
    if test.source is None:
        return {}, 0
    given = own_negatives(test.terms.gold) if test.source == OWN else mine()
    known: dict[str, list[str]] = {}
    unknown = 0
    for name in subject.entries:
        own = given.get(name, [])
        known[name] = [item for item in own if subject.knows(name, item)]
        unknown += len(own) - len(known[name])
    return known, unknown


def _cases(subject: Subject, test: Test, negatives: Mapping[str, Sequence[str]]) -> list[Case]:
    """Each list with the gold in it and its negatives."""
    lists = {name: [item for item, _ in own] for name, own in subject.entries.items()}
    judged = {
        name: list(dict.fromkeys([*own, *negatives.get(name, ())])) for name, own in lists.items()
    }
    gold = subject.grades(judged)
    cases = []
    for name, entries in subject.entries.items():
        own = gold.get(name, {})
        candidates = negatives.get(name, ())
        if test.source == MINED:
            # The best items by BM25 are often gold, which is no fault of anyone's.
            candidates = [item for item in candidates if item not in own]
        cases.append(Case(name, entries, own, candidates))
    return cases


def _corrected(found: Sequence[Found]) -> list[Found]:
    """All systems with p corrected for all scenarios that are shown."""
    scenarios = iter(corrected([one for own in found for one in own.scenarios]))
    return [replace(one, scenarios=[next(scenarios) for _ in one.scenarios]) for one in found]


def _paper(
    found: Sequence[Found], given: Ready, plan: Plan | None, test: Test, population: int
) -> Paper:
    body = {
        "primary": str(test.terms.measures[0]),
        "with_gold": population,
        "sampled": len(test.chosen),
        "systems": [one.document(test) for one in found],
    }
    subjects = [one.subject for one in found]
    config: dict[str, Any] = {}
    if plan is not None:
        config = {
            "config": input_of(Source.of(Path(plan.config.path(plan.config.place.file)))),
            "config_digest": plan.config.digest,
        }
    logs = [one.run for one in subjects if isinstance(one, LoggedLists)]
    return Paper(
        body,
        subjects[0].conventions,
        given.gold.source,
        [one.source for one in logs],
        stress_page,
        queries=None if given.queries is None else given.queries.source,
        corpus=None if given.corpus is None else given.corpus.source,
        more_inputs=config | origin_inputs([one.meta for one in logs], given.queries),
    )


def end(paper: Paper) -> None:
    """Leave with 3 if nothing could be measured."""
    scenarios = [one for system in paper.body["systems"] for one in system["scenarios"]]
    if not any(fall["n"] for one in scenarios for fall in one["measures"].values()):
        typer.echo("karat: cannot tell: not one query could be measured", err=True)
        raise typer.Exit(EXIT_CANNOT_TELL)
