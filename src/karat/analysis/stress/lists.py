"""The lists that a stress test damages: those of a run, or of a system that runs on from them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from karat.analysis.stress.edits import (
    Edited,
    Entry,
    Grades,
    StressSettings,
    edited_run,
    ranked_lists,
)
from karat.data.tables import Run
from karat.evaluation.stages import whole_in
from karat.formats import read_run
from karat.measures.conventions import Conventions
from karat.measures.ranked import UNLIMITED
from karat.measures.score_builder import score
from karat.measures.scores import Scores
from karat.retrieve.build_context import BuildContext, run_digest
from karat.retrieve.protocol import Answer, Query
from karat.retrieve.rerun import RerunStart, StageRerun
from karat.retrieve.run_log import is_complete, run_of
from karat.retrieve.runner import FailedCall
from karat.retrieve.search import ProgressBar
from karat.retrieve.system_config import SystemConfig

CONFIG = "karat.yaml"
_FROM_A_LOG = "no reranker can be run again from a log; the figure is arithmetic on the list"
_NO_ORDER = (
    "nothing puts the list in another order after it was retrieved; the figure is arithmetic on it"
)
_INSIDE = "; to run the reranker of a part again, name the part with --system"


@dataclass(frozen=True, eq=False)
class SearchedSystem:
    """A configured system: what builds it, what it is asked, and where its log would be."""

    config: SystemConfig
    context: BuildContext
    queries: Sequence[Query]
    log: Path
    k: int


@dataclass(frozen=True, eq=False)
class Lists:
    """What came of some lists: a run in their order, the final items of each, and failures."""

    run: Run
    final: Mapping[str, Sequence[str]]
    failed: Mapping[str, str] = field(default_factory=dict)


class ListSource(Protocol):
    """Lists that can be damaged: ``entries`` as they were, ``before`` what came of them.

    ``about`` says how lists are made after damage; ``failed`` names the queries that could not be
    asked, with the reason, ``missing`` counts those never asked.
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
    def about(self) -> Mapping[str, Any]: ...
    def after(self, edited: Mapping[str, Edited]) -> Lists: ...
    def grades(self, items: Mapping[str, Sequence[str]]) -> Grades: ...
    def knows(self, query_id: str, item_id: str) -> bool: ...


@dataclass(frozen=True, eq=False)
class LoggedLists:
    """The final lists of a run, which are edited as they are."""

    run: Run
    settings: StressSettings
    scores: Scores
    entries: Mapping[str, Sequence[Entry]]
    before: Lists

    @classmethod
    def of(cls, run: Run, settings: StressSettings, query_ids: Sequence[str]) -> LoggedLists:
        """Return the lists of some queries, in the order that the conventions give them."""
        scores = score(run, settings.on(query_ids), [], keep=UNLIMITED)
        entries = ranked_lists(scores)
        made = edited_run(run, entries, settings.corpus)
        final = {name: [item for item, _ in entry] for name, entry in entries.items()}
        return cls(run, settings, scores, entries, Lists(made, final))

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
        """The conventions, with what ranked the run."""
        return self.scores.conventions

    @property
    def about(self) -> Mapping[str, Any]:
        """That only the list is measured, and the command that measures more."""
        facts: dict[str, Any] = {
            "how": "list edited",
            "because": _FROM_A_LOG,
            "stages": [],
            "reranker": None,
            "lists_from": "run",
        }
        system = self.run.meta.get("system")
        if system and "run_digest" in self.run.meta and self._config_is_near():
            facts["for_real"] = f"karat stress {CONFIG} --system {system}"
        return facts

    def _config_is_near(self) -> bool:
        """Return whether a karat.yaml is here, beside the log or in the folder above it."""
        path = self.run.source.path
        folders = [Path(), *([] if path is None else [path.parent, path.parent.parent])]
        return any((folder / CONFIG).is_file() for folder in folders)

    def after(self, edited: Mapping[str, Edited]) -> Lists:
        """Return the edited lists, cut to the k of the log."""
        k = whole_in(self.run.meta, "k") or UNLIMITED
        lists = {
            name: edited_list.entries[: max(k, len(self.entries[name]))]
            for name, edited_list in edited.items()
        }
        final = {name: [item for item, _ in hits] for name, hits in lists.items()}
        return Lists(edited_run(self.run, lists, self.settings.corpus), final)

    def grades(self, items: Mapping[str, Sequence[str]]) -> Grades:
        """Return the items that are gold for their queries."""
        lists = {name: [(item, None) for item in own] for name, own in items.items()}
        return self.settings.grades(edited_run(self.run, lists, self.settings.corpus), list(lists))

    def knows(self, query_id: str, item_id: str) -> bool:
        """Return True: nothing reads the texts of this list."""
        return True


@dataclass(frozen=True, eq=False)
class RerunSystem:
    """A system's retrieved lists, from which its later stages run again."""

    rerunner: StageRerun
    settings: StressSettings
    bar: ProgressBar
    starts: Mapping[str, RerunStart]
    failed: Mapping[str, str]
    before: Lists
    from_log: bool
    missing: int = 0

    @classmethod
    def of(
        cls,
        system: SearchedSystem,
        settings: StressSettings,
        query_ids: Sequence[str],
        bar: ProgressBar,
    ) -> RerunSystem:
        """Build the system and get its lists, from its log if nothing changed since then."""
        wanted = set(query_ids)
        queries = [query for query in system.queries if query.query_id in wanted]
        building = replace(system.context, progress=bar.build)
        with isolate_user_code(), building.open() as context:
            config = system.config
            k = config.stages.k or system.k
            rerunner = StageRerun(config, context.build(config), k, context)
            log = _usable_log(system, rerunner)
            asked = rerunner.ask(queries) if log is None else rerunner.read(log, queries)
            starts: dict[str, RerunStart] = {}
            failed: dict[str, str] = {}
            for query, outcome in asked:
                bar.advance(1)
                if isinstance(outcome, FailedCall):
                    failed[query.query_id] = outcome.reason
                else:
                    starts[query.query_id] = outcome
        empty = Lists(run_of(config.name, {}, [], []), {})
        made = cls(rerunner, settings, bar, starts, failed, empty, from_log=log is not None)
        before = made._rerun({name: start.raw for name, start in starts.items()})
        return replace(made, before=before, failed={**failed, **before.failed})

    @property
    def name(self) -> str:
        """The system's name."""
        return self.rerunner.system_config.name

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
        return replace(self.settings.conventions, order="rank")

    @property
    def about(self) -> Mapping[str, Any]:
        """What ran again."""
        stages, model = self.rerunner.stages, self.rerunner.reranker
        inside = _reranks_inside(self.rerunner.system_config)
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
        """Return what the later stages make of the edited lists."""
        return self._rerun(
            {
                name: self.rerunner.hits(self.starts[name], edited_list.entries)
                for name, edited_list in edited.items()
            }
        )

    def _rerun(self, lists: Mapping[str, Any]) -> Lists:
        queries: list[Query] = []
        answers: list[Answer] = []
        failed: dict[str, str] = {}
        with isolate_user_code():
            for name, hits in lists.items():
                outcome = self.rerunner.again(self.starts[name], hits)
                self.bar.advance(1)
                if isinstance(outcome, FailedCall):
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
        """Return the items that are gold for their queries."""
        answers = [
            Answer(self.rerunner.hits(self.starts[name], [(item, None) for item in own]))
            for name, own in items.items()
        ]
        queries = [self.starts[name].query for name in items]
        return self.settings.grades(run_of(self.name, {}, queries, answers), list(items))

    def knows(self, query_id: str, item_id: str) -> bool:
        """Return whether stages that read texts can read this item."""
        return self.rerunner.knows(self.starts[query_id], item_id)


@contextmanager
def isolate_user_code() -> Iterator[None]:
    """Send what user code prints to standard error, and restore the working folder."""
    with chdir(Path.cwd()), redirect_stdout(sys.stderr):
        yield


def _usable_log(system: SearchedSystem, rerunner: StageRerun) -> Run | None:
    """Return the system's log if it answers these queries and nothing it depends on changed."""
    if not rerunner.takes_logs or not system.log.is_file():
        return None
    digest = run_digest(system.config, system.context, system.queries, k=system.k)
    ids = [query.query_id for query in system.queries]
    return read_run(system.log) if is_complete(system.log, digest, ids) else None


def _reranks_inside(system_config: SystemConfig) -> bool:
    return any(
        part.stages.rerank is not None or _reranks_inside(part)
        for part in system_config.parts.values()
    )
