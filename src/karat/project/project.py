"""Project: a karat.yaml, whose systems are searched, evaluated, compared and reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from karat.data.columns import Source
from karat.data.tables import Gold, Queries
from karat.errors import InputError, UsageError
from karat.evaluation.evaluation import Evaluation, Progress
from karat.evaluation.gate_files import read_gate_file
from karat.evaluation.gates import judge, measures_of
from karat.evaluation.inputs import STORY as STORY
from karat.evaluation.verdict import Rule, rule_from
from karat.formats.field_mapping import Fields, FieldsLike
from karat.formats.files import safe_file_name
from karat.formats.readers import read_corpus, read_run
from karat.formats.story import read_story_queries
from karat.jobs.journal import part_of
from karat.measure.conventions import PROFILES, conventions_of
from karat.measure.misfits import refuse_foreign_corpus
from karat.measure.names import parse_measures
from karat.measure.scores import Counts, Scores
from karat.project.config import Config, read_config
from karat.project.systems import (
    CONFIG_FILE,
    SearchPlan,
    build_context_of,
    config_path,
    plan_search,
)
from karat.reports.assembly import correction_of, report
from karat.reports.document import Report
from karat.reports.outputs import FORMS, JSON, Form, Output, parse_outputs
from karat.retrieve.run_log import failed_log, first_meta, has_digest, is_complete, notes_in
from karat.retrieve.search import (
    OpenBar,
    SearchOptions,
    SearchResult,
    is_reusable,
    no_bar,
    refuse_all_failed,
    search,
)
from karat.retrieve.system_config import SystemConfig, check_files, files_of, run_digest

# Analyses are loaded where they are asked for: a search needs none.
if TYPE_CHECKING:
    from karat.analysis.check import Check
    from karat.analysis.stress import Stress


class Project:
    """What a karat.yaml says, ready to be run: ``Project("karat.yaml").run().save("r.html")``.

    Without a path it is the karat.yaml of the current folder. ``systems`` picks some of its
    systems, the first of which is the baseline. ``settings`` and ``fields`` go before those of the
    file. ``notify`` is called with messages, ``progress`` with the names of the logs that are
    scored, and ``open_bar`` shows the calls of a search.

    >>> report = karat.Project("karat.yaml").run()
    >>> report.verdict, [system.name for system in report.systems]
    ('unclear', ['bm25', 'hybrid'])
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        systems: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        fields: Fields | FieldsLike = None,
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
        human: Any = [config.path(name) for name in config.human]
        human = correction_of(evaluation, human) if human else ()
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
        try:
            finished = report(
                evaluation,
                *logs,
                compare=config.compare,
                rule=self._rule(),
                full=any(form.in_full for form in forms),
                bounds=config.bounds,
                strict_bounds=config.strict_bounds,
                human=human,
                forms=forms,
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"interrupted before the report; run it again: {', '.join(logs)} will be reused"
            ) from None
        # Versions that the file does not name are those of the logs: a log that is reused was not
        # made by the code that is checked out now.
        return replace(
            finished,
            config_digest=config.digest,
            dataset_version=config.dataset_version or finished.dataset_version,
            code_version=config.code_version or finished.code_version,
        )

    def search(
        self,
        *,
        output: str | None = None,
        limit: int | None = None,
        only: Sequence[str] = (),
        timeout: float | None = None,
        options: SearchOptions | None = None,
        report_search: Callable[[SearchResult], None] = lambda result: None,
    ) -> list[SearchResult]:
        """Ask the systems every query, and write one run log per system.

        ``only`` keeps queries with a value (``language=pt-BR``), ``limit`` the first so many.
        ``output`` names the logs, with ``{system}`` for each system's name. ``report_search`` is
        called with the outcome of each system. Raises InputError if all calls of a system failed.
        """
        plan = plan_search(
            self.path,
            systems=self._systems,
            output=output,
            limit=limit,
            only=only,
            timeout=timeout,
            fields=self._fields,
            options=options,
        )
        results = plan.search(self._open_bar)
        for result in results:
            report_search(result)
        refuse_all_failed(results)
        return results

    def stress(
        self,
        *,
        profile: str | None = None,
        measures: Sequence[str] = ("nDCG@5", "R@5", "RR@10"),
        by: Sequence[str] = (),
        seed: int | str | None = None,
        sample_size: int | None = 100,
        negatives: str | None = None,
        **damage: Any,
    ) -> Stress:
        """Damage what the systems retrieve and rerun their later stages, as ``karat.stress``."""
        from karat.analysis.stress import stress
        from karat.analysis.stress.edits import most_negatives, parse_edits
        from karat.analysis.stress.lists import SearchedSystem

        edits = parse_edits(**damage)
        plan = plan_search(self.path, systems=self._systems or None)
        config = plan.config
        systems = [
            SearchedSystem(
                system, plan.context, plan.queries, plan.logs[system.name], plan.options.k
            )
            for system in plan.system_configs
        ]
        for system in (
            plan.system_configs if config.corpus is None and most_negatives(edits) else ()
        ):
            if system.stages.rerank is not None or system.stages.mmr is not None:
                raise UsageError(
                    f"system {system.name!r} reads texts, and those of negatives come from a"
                    " corpus; name one in karat.yaml: corpus: items.jsonl"
                )
        evaluation = config.evaluation(
            profile=profile or config.profile,
            settings=self._settings,
            measures=measures,
            by=by,
            seed=seed,
            notify=self._notify,
        )
        return stress(
            evaluation,
            systems=systems,
            sample_size=sample_size,
            negatives=negatives,
            inputs=config.inputs,
            open_bar=self._open_bar,
            **damage,
        )

    def outputs(
        self,
        more: Sequence[str] = (),
        *,
        stdout_taken: bool = False,
        forms: Mapping[str, Form] = FORMS,
        taken: Sequence[str] = (),
    ) -> list[Output]:
        """Return the file's outputs and ``more``, checked; none may replace one of ``taken``."""
        config = self.config
        names = list(dict.fromkeys(self._systems or config.system_configs))
        # No report may replace a file that is read, nor a log.
        inputs = [*config.files, *taken]
        context = build_context_of(config, self.path.parent.absolute())
        for name in names:
            if name in config.system_configs:
                inputs += sorted(map(str, files_of(config.system_configs[name], context)))
                log = Path(config.path(config.runs)) / f"{safe_file_name(name)}.jsonl"
                inputs += [str(log), str(part_of(log)), str(failed_log(log))]
        return parse_outputs(
            [*(config.output(text) for text in config.outputs), *more],
            inputs=inputs,
            stdout_taken=stdout_taken,
            forms=forms,
            systems=len(names),
            names=names,
            profile=config.profile,
        )

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
        dialect = any(form.profile is not None for form in forms)
        return config.evaluation(
            settings=self._settings,
            measures=config.measures or None,
            primary=self._rule().primary,
            by=config.by,
            gates=self.path if config.gates else None,
            judged=config.file(config.judged),
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
        """Return the report of a story without any query; None for any other project."""
        config = self.config
        file = config.queries or config.gold
        if config.profile != STORY or not config.system_configs:
            return None
        source = Source("nothing asked")
        if file is not None:
            try:
                if read_story_queries(config.path(file)):
                    return None
            except InputError:
                return None
            source = Source.of(Path(config.path(file)))
        # A story that cannot be read is refused, whether anything is asked or not.
        corpus = config.file(config.corpus)
        texts = None if corpus is None else read_corpus(corpus, fields=config.mapping)
        gold, queries = Gold.from_dict({}), Queries.from_dict({})
        measures = parse_measures(
            config.measures or PROFILES[STORY].measures, conventions=config.conventions
        )
        measures = list(dict.fromkeys([*measures, *measures_of(config.gates)]))
        scores = [
            Scores(
                system=name,
                source=source,
                measures=tuple(measures),
                query_ids=(),
                columns={str(measure): np.empty(0) for measure in measures},
                status=np.empty(0, dtype=object),
                counts=Counts(),
                conventions=config.conventions,
                meta={},
            )
            for name in dict.fromkeys(self._systems or config.system_configs)
        ]
        gatings = [
            judge(config.gates, system, None, system=system.system, left_out=config.left_out)
            for system in scores
            if config.gates
        ]
        return replace(
            Report.of(scores, gold=gold, queries=queries, corpus=texts),
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
        raise UsageError("a search needs the queries' texts; give queries")
    with TemporaryDirectory() as folder:
        names = str(Path(folder) / "{system}.jsonl") if logs is None else logs
        results = search(systems, evaluation.queries, evaluation.corpus, logs=names)
        refuse_all_failed(results)
        # Logs in a folder that goes away are read before it does.
        runs: list[Any] = [str(result.path) for result in results]
        if logs is None:
            runs = [read_run(path) for path in runs]
        return report(evaluation, *runs, rule=rule)


def check_eval_set(
    config_file: str | None = None,
    *,
    gold: str | None = None,
    queries: str | None = None,
    corpus: str | None = None,
    gates: str | None = None,
    by: Sequence[str] = (),
    runs: Sequence[str] = (),
    measures: Sequence[str] | None = None,
    profile: str | None = None,
    settings: Mapping[str, Any] | None = None,
    spread: float | None = None,
    fields: Fields | FieldsLike = None,
    strict: bool = False,
    progress: Progress | None = None,
) -> Check:
    """Check the eval set that the options name, else the karat.yaml.

    A wrong option is refused before any file is read.

    >>> check_eval_set("karat.yaml").to_dict()["verdict"]
    'sound'
    """
    from karat.analysis.check import check

    config = Config()
    if config_file is not None or (gold is None and Path(CONFIG_FILE).is_file()):
        config = read_config(config_file or CONFIG_FILE)
    profile = profile or config.profile
    settings = config.settings | dict(settings or {})
    conventions = conventions_of(profile, settings)
    if len(runs) not in (0, 2):
        raise UsageError("--run is given twice, for two runs whose difference gives the spread")
    if runs and spread is not None:
        raise UsageError("--spread is for a check without runs; give --run or --spread")
    queries = queries or config.file(config.queries)
    gold = gold or config.file(config.gold) or queries
    corpus = corpus or config.file(config.corpus)
    if gold is None:
        raise UsageError("nothing to check: name a karat.yaml, or give --gold FILE")
    files = [name for name in (gold, corpus, *runs) if name is not None]
    limits = None if gates is None else read_gate_file(gates, conventions=conventions)
    with nullcontext() if progress is None else progress(files) as begin:
        if begin is not None:
            begin(files[0])
        evaluation = Evaluation(
            gold,
            queries=queries,
            corpus=corpus,
            profile=profile,
            settings=settings,
            measures=measures or config.measures or None,
            fields=config.mapping.updated(Fields.of(fields)),
        )
        result = check(
            evaluation,
            *runs,
            gates=config.gates if limits is None else limits.gates,
            by=by or config.by,
            spread=spread,
            strict=strict,
        )
    digest = {"config_digest": config.digest} if config.digest else {}
    source = None if limits is None else limits.source
    return replace(result, inputs={**result.inputs, "gates": source, **digest})
