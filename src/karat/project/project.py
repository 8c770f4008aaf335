"""Project: a karat.yaml, whose systems are searched, evaluated, compared and reported."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from karat.data.columns import Source
from karat.data.tables import Gold, Queries
from karat.errors import InputError, UsageError
from karat.evaluation.evaluation import Evaluation, Progress
from karat.evaluation.gates import judge, measures_of
from karat.evaluation.inputs import STORY as STORY
from karat.evaluation.verdict import Rule, rule_from
from karat.formats import read_corpus, read_run
from karat.formats.field_mapping import Fields
from karat.formats.files import safe_file_name
from karat.formats.story import read_story_queries
from karat.jobs.journal import part_of
from karat.measure.conventions import PROFILES
from karat.measure.misfits import refuse_foreign_corpus
from karat.measure.names import parse_measures
from karat.measure.scores import Counts, Scores
from karat.project.config import Config, read_config
from karat.project.systems import SearchPlan, build_context_of, config_path, plan_search
from karat.reports.assembly import Details, correction_of, report
from karat.reports.document import Report, build_report
from karat.reports.outputs import FORMS, JSON, Form, Output, parse_outputs
from karat.retrieve.run_log import failed_log, first_meta, has_digest, is_complete, notes_in
from karat.retrieve.search import (
    OpenBar,
    SearchResult,
    is_reusable,
    no_bar,
    refuse_all_failed,
    search,
)
from karat.retrieve.system_config import SystemConfig, check_files, files_of, run_digest

_NO_QUERIES = Source("nothing asked")


class Project:
    """What a karat.yaml says, ready to be run: ``Project("karat.yaml").run().save("r.html")``.

    Without a path it is the karat.yaml of the current folder. ``systems`` picks some of its
    systems, the first of which is the baseline. ``settings`` and ``fields`` go before those of the
    file. ``notify`` is called with messages, ``progress`` with the names of the logs that are
    scored, and ``open_bar`` shows the calls of a search.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        systems: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        fields: Fields | Mapping[str, str] | None = None,
        no_regression: str | None = None,
        notify: Callable[[str], None] | None = None,
        progress: Progress | None = None,
        open_bar: OpenBar = no_bar,
    ) -> None:
        self.path = config_path(path)
        self.config = read_config(self.path)
        self._systems = systems
        self._settings = dict(settings or {})
        self._fields = Fields.of(fields)
        self._no_regression = no_regression
        self._notify = notify or (lambda message: None)
        self._progress = progress
        self._open_bar = open_bar

    def run(
        self,
        *,
        fresh: bool = False,
        forms: Sequence[Form] = (JSON,),
        report_search: Callable[[SearchResult], None] = lambda result: None,
    ) -> Report:
        """Search, score what the systems returned, compare it, and check the gates.

        A log is reused if nothing that it depends on changed, unless ``fresh``. ``forms`` are those
        that the report will be written in, and decide how much it holds. ``report_search`` is
        called with the outcome of each system's search.
        """
        try:
            plan = plan_search(self.path, systems=self._systems, fields=self._fields)
        except InputError:
            if (skipped := self._report_without_queries()) is not None:
                return skipped
            raise
        config = plan.config
        # Report errors in the gold, the gates or a system before the first call.
        evaluation = self._evaluation(plan, forms)
        human = [config.path(name) for name in config.human]
        details = Details(
            full=any(form.in_full for form in forms),
            bounds=config.bounds,
            strict_bounds=config.strict_bounds,
            correction=correction_of(evaluation, self._file(config.judged), human),
            forms=forms,
        )
        evaluation.fields.check()
        refuse_foreign_corpus(evaluation.prepared)
        for system_config in plan.system_configs:
            check_files(system_config, plan.context)
        results = []
        for system_config in plan.system_configs:
            results.append(self._search(plan, system_config, fresh=fresh))
            report_search(results[-1])
        refuse_all_failed(results)
        logs = [str(plan.logs[system_config.name]) for system_config in plan.system_configs]
        with _keeping_logs(plan):
            made = report(
                evaluation, *logs, compare=config.compare, rule=self._rule(), details=details
            )
        # Versions that the file does not name are those of the logs: a log that is reused was not
        # made by the code that is checked out now.
        return replace(
            made,
            config_digest=config.digest,
            dataset_version=config.dataset_version or made.dataset_version,
            code_version=config.code_version or made.code_version,
        )

    def outputs(
        self,
        more: Sequence[str] = (),
        *,
        stdout_taken: bool = False,
        forms: Mapping[str, Form] = FORMS,
        taken: Sequence[str] = (),
    ) -> list[Output]:
        """Return the outputs of the file and ``more``, checked before any work.

        ``taken`` are further files that none of them may replace, such as those of a store.
        """
        config = self.config
        names = list(dict.fromkeys(self._systems or config.system_configs))
        known = [name for name in names if name in config.system_configs]
        return parse_outputs(
            [*(config.output(text) for text in config.outputs), *more],
            inputs=[*self._files(known), *taken],
            stdout_taken=stdout_taken,
            forms=forms,
            systems=len(names),
            names=names,
            profile=config.profile,
        )

    def _files(self, systems: Sequence[str]) -> list[str]:
        """Return what no report may replace: every file that is read, and the logs."""
        config = self.config
        named = [config.queries, config.gold, config.corpus, config.judged, *config.human]
        files = [str(self.path), *(config.path(name) for name in named if name is not None)]
        context = build_context_of(config, self.path.parent.absolute())
        for name in systems:
            files += sorted(map(str, files_of(config.system_configs[name], context)))
            log = Path(config.path(config.runs)) / f"{safe_file_name(name)}.jsonl"
            files += [str(log), str(part_of(log)), str(failed_log(log))]
        return files

    def _file(self, name: str | None) -> str | None:
        return None if name is None else self.config.path(name)

    def _rule(self) -> Rule:
        config = self.config
        strict: Any = self._no_regression or config.no_regression
        margin = 0.02 if config.margin is None else config.margin
        return Rule(
            primary=config.primary, margin=margin, margin_on=config.margin_on, no_regression=strict
        )

    def _evaluation(self, plan: SearchPlan, forms: Sequence[Form]) -> Evaluation:
        """Read what the file names; settings of the caller go before its own."""
        config = plan.config
        gold = config.gold or config.queries
        if gold is None:
            raise InputError("has no gold; name its file: gold: qrels.txt", where=config.place.file)
        # A setting of the file as --set takes it.
        settings = {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in config.settings.items()
        }
        dialect = any(form.profile is not None for form in forms)
        return Evaluation(
            config.path(gold),
            queries=self._file(config.queries),
            corpus=self._file(config.corpus),
            profile=config.profile,
            settings=settings | self._settings,
            measures=config.measures or None,
            primary=self._rule().primary,
            by=config.by,
            gates=self.path if config.gates else None,
            judged=self._file(config.judged),
            fields=config.mapping.without_runs(),
            seed=None if "seed" in self._settings else config.seed,
            more_measures=PROFILES[config.profile].measures if dialect else (),
            index_cache=plan.context.cache if any(form.indexed for form in forms) else None,
            notify=self._notify,
            progress=self._progress,
        )

    def _search(
        self, plan: SearchPlan, system_config: SystemConfig, *, fresh: bool
    ) -> SearchResult:
        """Return a system's log: the one that is there if nothing changed, else a new one."""
        path = plan.logs[system_config.name]
        digest = run_digest(system_config, plan.context, plan.queries, k=plan.options.k)
        ids = [query.query_id for query in plan.queries]
        if not fresh and is_reusable(system_config) and is_complete(path, digest, ids):
            share = system_config.calls.max_failures
            notes = notes_in(first_meta(path))
            return SearchResult(
                system_config.name, path, len(ids), 0, share, reused=True, notes=notes
            )
        # An interrupted log is resumed; of a log with failed calls only those are asked again.
        begun = has_digest(part_of(path), digest)
        repairable = is_reusable(system_config) and has_digest(path, digest)
        resume = not fresh and (begun or repairable)
        remedy = f"run it again{' without --fresh' if fresh else ''} to go on"
        options = replace(plan.options, resume=resume, restart=not resume, remedy=remedy)
        return replace(plan, options=options).search_one(
            system_config, self._open_bar, digest=digest
        )

    def _report_without_queries(self) -> Report | None:
        """Return the report of a story that names no queries; None for any other project.

        A file of queries with nothing in it names none either.
        """
        config = self.config
        file = config.queries or config.gold
        if config.profile != STORY or not config.system_configs:
            return None
        if file is not None and not _holds_no_queries(config.path(file)):
            return None
        source = _NO_QUERIES if file is None else Source.of(Path(config.path(file)))
        # A story that cannot be read is refused, whether anything is asked or not.
        corpus = self._file(config.corpus)
        texts = None if corpus is None else read_corpus(corpus, fields=config.mapping)
        names = dict.fromkeys(self._systems or config.system_configs)
        scores = [_scores_of_nothing(config, name) for name in names]
        judgments = {"query_id": pl.String, "item_id": pl.String, "grade": pl.Float64}
        asked = {"query_id": pl.String, "text": pl.String}
        empty = build_report(
            scores,
            gold=Gold(pl.DataFrame(schema=judgments), ()),
            queries=Queries(pl.DataFrame(schema=asked), source),
            corpus=texts,
        )
        gatings = [
            judge(config.gates, own, None, system=own.system, left_out=config.left_out)
            for own in scores
            if config.gates
        ]
        return replace(
            empty,
            gold=source,
            gatings=tuple(gatings),
            config_digest=config.digest,
            dataset_version=config.dataset_version,
            code_version=config.code_version,
        )


def run(
    systems: Mapping[str, Any] | Callable[..., Any],
    queries: Any,
    gold: Any = None,
    *,
    corpus: Any = None,
    measures: str | Sequence[str] | None = None,
    profile: str = "karat",
    settings: Mapping[str, Any] | None = None,
    by: Sequence[str] = (),
    gates: Any = None,
    logs: str | Path | None = None,
    **decided_by: Any,
) -> Report:
    """Search, evaluate, compare and gate systems without a karat.yaml; the first is the baseline.

    A system is a mapping as in a karat.yaml, or a function from a text, or a text and k, to a
    ranked list. A single function is a system by its own name.
    Without ``gold`` it is in the queries' file. ``logs`` keeps the run logs under such a name as
    ``runs/{system}.jsonl``. ``decided_by`` are parts of a ``Rule``, such as ``primary``.

    >>> report = run({"a": lambda text, k: ["d1"]}, {"q1": "one?"}, {"q1": ["d1"]}, measures="RR")
    >>> report.systems[0].scores.means()
    {'RR': 1.0}
    """
    rule = rule_from(None, decided_by)
    if not isinstance(systems, Mapping):
        systems = {getattr(systems, "__name__", "system").strip("<>"): systems}
    evaluation = Evaluation(
        queries if gold is None else gold,
        queries=queries,
        corpus=corpus,
        profile=profile,
        settings=settings,
        measures=measures,
        primary=rule.primary,
        by=by,
        gates=gates,
    )
    if evaluation.queries is None:
        raise UsageError("a search asks the queries' texts; give queries")
    with TemporaryDirectory() as folder:
        names = str(Path(folder) / "{system}.jsonl") if logs is None else logs
        results = search(systems, evaluation.queries, evaluation.corpus, logs=names)
        refuse_all_failed(results)
        # Logs in a folder that goes away are read before it does.
        runs: list[Any] = [str(result.path) for result in results]
        if logs is None:
            runs = [read_run(path) for path in runs]
        return report(evaluation, *runs, rule=rule)


def _holds_no_queries(path: str) -> bool:
    """Return whether a file is a list of queries with nothing in it."""
    try:
        return not read_story_queries(path)
    except InputError:
        return False


def _scores_of_nothing(config: Config, system: str) -> Scores:
    """Return the scores of a system that was asked nothing."""
    conventions = config.conventions
    named = parse_measures(config.measures or PROFILES[STORY].measures, conventions=conventions)
    measures = tuple(dict.fromkeys([*named, *measures_of(config.gates)]))
    columns = {str(measure): pl.Float64 for measure in measures}
    return Scores(
        system=system,
        source=_NO_QUERIES,
        measures=measures,
        table=pl.DataFrame(schema={"query_id": pl.String, **columns}),
        status=pl.Series("status", [], dtype=pl.String),
        counts=Counts(),
        conventions=conventions,
        meta={},
    )


@contextmanager
def _keeping_logs(plan: SearchPlan) -> Iterator[None]:
    """Say that Ctrl-C while scoring costs no log."""
    try:
        yield
    except KeyboardInterrupt:
        logs = ", ".join(map(str, plan.logs.values()))
        verb = "is" if len(plan.logs) == 1 else "are"
        raise KeyboardInterrupt(
            f"interrupted before the report; {logs} {verb} whole: run it again to go on"
        ) from None
