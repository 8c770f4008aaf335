"""What ``karat stress`` damages: a system, whose later stages then run again, or a run's lists."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from karat.analysis.staged import whole_in
from karat.analysis.stress.drops import Lists
from karat.analysis.stress.edits import Edited, Entry
from karat.analysis.stress.terms import Grades, Terms, edited_run, ranked_lists
from karat.cli.progress import Bar
from karat.cli.searching import CONFIG, Plan
from karat.formats import read_run
from karat.measures.conventions import Conventions
from karat.measures.ranked import UNLIMITED
from karat.measures.scores import Scores, score
from karat.retrievers.blueprints import Blueprint
from karat.retrievers.digests import run_digest
from karat.retrievers.journal import is_complete
from karat.retrievers.protocol import Answer, Query
from karat.retrievers.records import run_of
from karat.retrievers.rerunning import Rerunner, Start
from karat.retrievers.runner import Failed
from karat.tables import Run

_FROM_A_LOG = "no reranker can be run again from a log; the figure is arithmetic on the list"
_NO_ORDER = (
    "nothing puts the list in another order after it was retrieved; the figure is arithmetic on it"
)
_INSIDE = "; to run the reranker of a part again, name the part with --system"


class Subject(Protocol):
    """Lists that can be damaged: ``entries`` as they were, ``before`` what came of them.

    ``told`` is what a report says of how the lists after damage are made; ``failed`` names the
    queries that could not be asked, with the reason, ``missing`` counts those never asked.
    """

    @property
    def name(self) -> str: ...
    @property
    def entries(self) -> Mapping[str, Sequence[Entry]]: ...
    @property
    def before(self) -> Lists: ...
    @property
    def failed(self) -> Mapping[str, str]: ...
    @property
    def missing(self) -> int: ...
    @property
    def conventions(self) -> Conventions: ...
    @property
    def told(self) -> Mapping[str, Any]: ...
    def after(self, edited: Mapping[str, Edited]) -> Lists: ...
    def grades(self, items: Mapping[str, Sequence[str]]) -> Grades: ...
    def knows(self, query_id: str, item_id: str) -> bool: ...


@dataclass(frozen=True, eq=False)
class LoggedLists:
    """The final lists of a run, which are edited as they are."""

    run: Run
    terms: Terms
    scores: Scores
    entries: Mapping[str, Sequence[Entry]]
    before: Lists

    @classmethod
    def of(cls, run: Run, terms: Terms, query_ids: Sequence[str]) -> LoggedLists:
        """The lists of some queries, in the order that the conventions give them."""
        scores = score(run, terms.on(query_ids), [], keep=UNLIMITED)
        entries = ranked_lists(scores)
        made = edited_run(run, entries, terms.corpus)
        final = {name: [item for item, _ in own] for name, own in entries.items()}
        return cls(run, terms, scores, entries, Lists(made, final))

    @property
    def name(self) -> str:
        """The run's name."""
        return self.run.name

    @property
    def failed(self) -> Mapping[str, str]:
        """The calls that failed when the run was made, with the reasons that it logged."""
        reasons: dict[str, str] = {}
        if self.run.calls is not None and "error" in self.run.calls.columns:
            told = self.run.calls.select("query_id", "error").iter_rows()
            reasons = {str(name): str(error) for name, error in told}
        return {name: reasons.get(name, "failed") for name in self._with_status("failed")}

    @property
    def missing(self) -> int:
        """How many queries the run does not have."""
        return len(self._with_status("missing"))

    def _with_status(self, status: str) -> list[str]:
        names = self.scores.table["query_id"].filter(self.scores.status == status)
        return [str(name) for name in names]

    @property
    def conventions(self) -> Conventions:
        """With what ranked the run."""
        return self.scores.conventions

    @property
    def told(self) -> Mapping[str, Any]:
        """That nothing but the list is measured, and how to measure more."""
        told: dict[str, Any] = {
            "how": "list edited",
            "because": _FROM_A_LOG,
            "stages": [],
            "reranker": None,
            "lists_from": "run",
        }
        system = self.run.meta.get("system")
        if system and "run_digest" in self.run.meta and self._config_is_near():
            told["for_real"] = f"karat stress {CONFIG} --system {system}"
        return told

    def _config_is_near(self) -> bool:
        """Whether a karat.yaml lies here, beside the log or in the folder above it."""
        path = self.run.source.path
        folders = [Path(), *([] if path is None else [path.parent, path.parent.parent])]
        return any((folder / CONFIG).is_file() for folder in folders)

    def after(self, edited: Mapping[str, Edited]) -> Lists:
        """The edited lists; where the log says how many are returned, they are no longer."""
        k = whole_in(self.run.meta, "k") or UNLIMITED
        lists = {
            name: one.entries[: max(k, len(self.entries[name]))] for name, one in edited.items()
        }
        final = {name: [item for item, _ in own] for name, own in lists.items()}
        return Lists(edited_run(self.run, lists, self.terms.corpus), final)

    def grades(self, items: Mapping[str, Sequence[str]]) -> Grades:
        """Which of some items are gold for their queries."""
        lists = {name: [(item, None) for item in own] for name, own in items.items()}
        return self.terms.grades(edited_run(self.run, lists, self.terms.corpus), list(lists))

    def knows(self, query_id: str, item_id: str) -> bool:
        """Any item can stand in a list that nobody reads."""
        return True


@dataclass(frozen=True, eq=False)
class RerunSystem:
    """A system's retrieved lists, from which its later stages run again."""

    rerunner: Rerunner
    terms: Terms
    bar: Bar
    starts: Mapping[str, Start]
    failed: Mapping[str, str]
    before: Lists
    from_log: bool
    missing: int = 0

    @classmethod
    def of(
        cls, plan: Plan, blueprint: Blueprint, terms: Terms, query_ids: Sequence[str], bar: Bar
    ) -> RerunSystem:
        """Build the system and get its lists, from its log if nothing changed since."""
        wanted = set(query_ids)
        queries = [query for query in plan.queries if query.query_id in wanted]
        building = replace(plan.workshop, progress=bar.build)
        with someone_elses_code(), building.open() as workshop:
            k = blueprint.stages.k or plan.wishes.k
            rerunner = Rerunner(blueprint, workshop.build(blueprint), k, workshop)
            log = _log(plan, rerunner)
            asked = rerunner.ask(queries) if log is None else rerunner.read(log, queries)
            starts: dict[str, Start] = {}
            failed: dict[str, str] = {}
            for query, outcome in asked:
                bar.advance(1)
                if isinstance(outcome, Failed):
                    failed[query.query_id] = outcome.reason
                else:
                    starts[query.query_id] = outcome
        empty = Lists(run_of(blueprint.name, {}, [], []), {})
        made = cls(rerunner, terms, bar, starts, failed, empty, from_log=log is not None)
        before = made._rerun({name: start.raw for name, start in starts.items()})
        return replace(made, before=before, failed={**failed, **before.failed})

    @property
    def name(self) -> str:
        """The system's name."""
        return self.rerunner.blueprint.name

    @property
    def entries(self) -> Mapping[str, Sequence[Entry]]:
        """The lists as they were retrieved, of queries whose calls went well."""
        return {
            name: [(hit.item_id, hit.score) for hit in start.raw]
            for name, start in self.starts.items()
            if name not in self.failed
        }

    @property
    def conventions(self) -> Conventions:
        """Lists that a system made are in its own order."""
        return replace(self.terms.conventions, order="rank")

    @property
    def told(self) -> Mapping[str, Any]:
        """What ran again."""
        stages, model = self.rerunner.stages, self.rerunner.reranker
        inside = _reranks_inside(self.rerunner.blueprint)
        because = f"{', '.join(stages)} ran again on every edited list"
        if not stages:
            because = _NO_ORDER + (_INSIDE if inside else "")
        return {
            "how": "reranked" if model is not None else "reordered" if stages else "list edited",
            "because": because,
            "stages": stages,
            "reranker": None if model is None else dict(model),
            "lists_from": "log" if self.from_log else "retriever",
        }

    def after(self, edited: Mapping[str, Edited]) -> Lists:
        """What the later stages make of the edited lists."""
        return self._rerun(
            {
                name: self.rerunner.hits(self.starts[name], one.entries)
                for name, one in edited.items()
            }
        )

    def _rerun(self, lists: Mapping[str, Any]) -> Lists:
        queries: list[Query] = []
        answers: list[Answer] = []
        failed: dict[str, str] = {}
        with someone_elses_code():
            for name, hits in lists.items():
                outcome = self.rerunner.again(self.starts[name], hits)
                self.bar.advance(1)
                if isinstance(outcome, Failed):
                    failed[name] = outcome.reason
                else:
                    queries.append(self.starts[name].query)
                    answers.append(Answer(outcome.hits))
        final = {
            query.query_id: [hit.item_id for hit in answer.hits]
            for query, answer in zip(queries, answers, strict=True)
        }
        return Lists(run_of(self.name, {}, queries, answers), final, failed)

    def grades(self, items: Mapping[str, Sequence[str]]) -> Grades:
        """Which of some items are gold for their queries."""
        answers = [
            Answer(self.rerunner.hits(self.starts[name], [(item, None) for item in own]))
            for name, own in items.items()
        ]
        queries = [self.starts[name].query for name in items]
        return self.terms.grades(run_of(self.name, {}, queries, answers), list(items))

    def knows(self, query_id: str, item_id: str) -> bool:
        """Whether a stage that reads texts could read this item."""
        return self.rerunner.knows(self.starts[query_id], item_id)


@contextmanager
def someone_elses_code() -> Iterator[None]:
    """Keep what it prints off standard output, and come back from wherever it went."""
    with chdir(Path.cwd()), redirect_stdout(sys.stderr):
        yield


def _log(plan: Plan, rerunner: Rerunner) -> Run | None:
    """The system's log, if it answers these queries and nothing that it depends on changed."""
    blueprint = rerunner.blueprint
    path = plan.logs[blueprint.name]
    if not rerunner.takes_logs or not path.is_file():
        return None
    digest = run_digest(blueprint, plan.workshop, plan.queries, k=plan.wishes.k)
    ids = [query.query_id for query in plan.queries]
    return read_run(path) if is_complete(path, digest, ids) else None


def _reranks_inside(blueprint: Blueprint) -> bool:
    return any(
        part.stages.rerank is not None or _reranks_inside(part) for part in blueprint.parts.values()
    )
