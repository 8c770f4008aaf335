"""From a karat.yaml to a report: logs made or used again, then scored, compared and gated."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import typer

from karat.analysis.verdicts import Rule
from karat.cli.comparing import compare_runs, rule_of, with_primary
from karat.cli.interrupts import heed_interrupts
from karat.cli.scoring import Request as ScoringRequest
from karat.cli.scoring import parse_settings, ready, score
from karat.cli.searching import (
    Plan,
    Request,
    config_path,
    lines_on,
    plan_of,
    refuse_all_failed,
    search_one,
)
from karat.cli.skipping import without_queries
from karat.config import Config, read_config
from karat.errors import InputError
from karat.formats.files import file_name
from karat.measures.misfits import refuse_foreign_corpus
from karat.reports.document import Report
from karat.reports.outputs import FORMS, Form, Output, parse_outputs
from karat.retrievers.blueprints import Blueprint
from karat.retrievers.digests import check_files, files_of, run_digest
from karat.retrievers.journal import begins_with, failed_of, first_meta, is_complete, part_of
from karat.retrievers.searching import Searched, is_reusable, notes_in
from karat.systems import workshop_of

__all__ = ["Request", "outputs_of", "run_all"]


def outputs_of(
    request: Request,
    given: Sequence[str],
    *,
    stdout_taken: bool,
    forms: Mapping[str, Form] = FORMS,
    kept: Sequence[str] = (),
) -> list[Output]:
    """The outputs of the config, with those of the command line, checked before any work.

    ``kept`` are further files that none of them may take, as those of the store.
    """
    path = config_path(request.config)
    config = read_config(path)
    names = list(dict.fromkeys(request.systems or config.blueprints))
    wanted = [*(config.output(text) for text in config.outputs), *given]
    known = [name for name in names if name in config.blueprints]
    return parse_outputs(
        wanted,
        inputs=[*_taken(config, path, known), *kept],
        stdout_taken=stdout_taken,
        forms=forms,
        systems=len(names),
        names=names,
        profile=config.profile,
    )


def _taken(config: Config, path: Path, names: Sequence[str]) -> list[str]:
    """Where no report may go: what is read, and the logs."""
    named = [config.queries, config.gold, config.corpus, config.judged, *config.human]
    read = [str(path), *(config.path(name) for name in named if name is not None)]
    workshop = workshop_of(config, path.parent.absolute())
    for name in names:
        read += sorted(map(str, files_of(config.blueprints[name], workshop)))
    runs = Path(config.path(config.runs))
    logs = [runs / f"{file_name(name)}.jsonl" for name in names]
    return [*read, *(str(one) for log in logs for one in (log, part_of(log), failed_of(log)))]


def run_all(
    request: Request,
    *,
    fresh: bool,
    in_full: bool = False,
    indexed: bool = False,
    forms: Sequence[Form] = (),
    no_regression: str | None = None,
) -> Report:
    """Ask the systems, score what they returned, compare it, hold it against the gates.

    ``in_full`` also tells what lies behind the figures, ``indexed`` what single items say.
    """
    heed_interrupts()
    try:
        plan = plan_of(request)
    except InputError:
        skipped = without_queries(request.config, request.systems)
        if skipped is None:
            raise
        return skipped
    gold = plan.config.gold or plan.config.queries
    if gold is None:
        raise InputError(
            "has no gold; name its file: gold: qrels.txt", where=plan.config.place.file
        )
    index_in = plan.workshop.cache if indexed else None
    scoring = replace(_scoring(plan, gold, request), forms=forms, index_in=index_in)
    rule = _rule(plan.config, no_regression)
    # Whatever is wrong with the gold, the gates or any system is told before anything is asked.
    given = ready(with_primary(scoring, rule))
    scoring.fields.check()
    refuse_foreign_corpus(given.prepared)
    for blueprint in plan.blueprints:
        check_files(blueprint, plan.workshop)
    searched = []
    for blueprint in plan.blueprints:
        searched.append(_logged(plan, blueprint, fresh=fresh, request=request))
        if not request.quiet:
            for line in lines_on(searched[-1]):
                typer.echo(line, err=True)
    refuse_all_failed(searched)
    with _logs_kept(plan):
        if len(scoring.runs) == 1 or not plan.config.compare:
            scored = score(scoring, given=given, in_full=in_full)
            report = scored.gated(scored.report())
        else:
            report = compare_runs(scoring, rule, given=given, in_full=in_full)
        return _stamped(report, plan.config)


@contextmanager
def _logs_kept(plan: Plan) -> Iterator[None]:
    """Ctrl-C while scoring costs no log."""
    try:
        yield
    except KeyboardInterrupt:
        logs, verb = ", ".join(map(str, plan.logs.values())), "is" if len(plan.logs) == 1 else "are"
        raise KeyboardInterrupt(
            f"interrupted before the report; {logs} {verb} whole: run it again to go on"
        ) from None


def _stamped(report: Report, config: Config) -> Report:
    """The report with what the config says of its origin.

    The versions it does not name are those of the logs: one that is used again was not made
    by the code that is checked out now.
    """
    return replace(
        report,
        config_digest=config.digest,
        dataset_version=config.dataset_version or report.dataset_version,
        code_version=config.code_version or report.code_version,
    )


def _logged(plan: Plan, blueprint: Blueprint, *, fresh: bool, request: Request) -> Searched:
    """A system's log: the one that is there if nothing it depends on changed, else a new one."""
    path = plan.logs[blueprint.name]
    digest = run_digest(blueprint, plan.workshop, plan.queries, k=plan.wishes.k)
    ids = [query.query_id for query in plan.queries]
    if not fresh and is_reusable(blueprint) and is_complete(path, digest, ids):
        share = blueprint.calls.max_failures
        notes = notes_in(first_meta(path))
        return Searched(blueprint.name, path, len(ids), 0, share, reused=True, notes=notes)
    # What was interrupted goes on, and of a log with failed calls only those are asked again.
    begun = begins_with(part_of(path), digest)
    repairable = is_reusable(blueprint) and begins_with(path, digest)
    resume = not fresh and (begun or repairable)
    remedy = f"run it again{' without --fresh' if fresh else ''} to go on"
    wishes = replace(plan.wishes, resume=resume, restart=not resume, remedy=remedy)
    return search_one(replace(plan, wishes=wishes), blueprint, quiet=request.quiet, digest=digest)


def _scoring(plan: Plan, gold: str, request: Request) -> ScoringRequest:
    """What ``karat eval`` would be asked for these logs."""
    config = plan.config
    # What the command line sets goes before what the file does.
    given = parse_settings(request.settings)
    settings = {key: _spelled(value) for key, value in config.settings.items()} | given
    seed = None if config.seed is None or "seed" in given else str(config.seed)
    return ScoringRequest(
        runs=[str(plan.logs[blueprint.name]) for blueprint in plan.blueprints],
        gold=config.path(gold),
        measures=config.measures,
        profile=config.profile,
        settings=[f"{key}={value}" for key, value in settings.items()],
        by=config.by,
        queries=None if config.queries is None else config.path(config.queries),
        corpus=None if config.corpus is None else config.path(config.corpus),
        gates=str(config_path(request.config)) if config.gates else None,
        judged=None if config.judged is None else config.path(config.judged),
        human=[config.path(name) for name in config.human],
        bounds=config.bounds,
        strict_bounds=config.strict_bounds,
        seed=seed,
        fields=config.mapping.without_runs(),
        quiet=request.quiet,
    )


def _rule(config: Config, no_regression: str | None) -> Rule:
    margin = "0.02" if config.margin is None else str(config.margin)
    strict = no_regression or config.no_regression
    primary, margin_on = config.primary, config.margin_on
    return rule_of(primary, margin, "relative", margin_on, "baseline", "holm", None, strict)


def _spelled(value: object) -> str:
    """A setting of a YAML file as ``--set`` takes it."""
    return value if isinstance(value, str) else json.dumps(value)
