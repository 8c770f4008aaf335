"""``karat eval``, ``karat compare`` and ``karat run``: from runs to a report and a verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from karat.cli.command import argument, command, flag, option
from karat.cli.options import (
    FIELDS,
    NO_REGRESSION,
    REQUIRE_VERDICT,
    SETTINGS,
    OutputOptions,
    ReportOptions,
    RuleOptions,
    SavingOptions,
    notify,
    parse_fields,
    parse_settings,
)

if TYPE_CHECKING:
    from karat.retrieve.search import SearchResult

CONFIG = argument("CONFIG", "The karat.yaml. Default: that of this folder.", None)
SYSTEMS = option("--system", "NAME", "Ask only this system; repeatable.")


@command
def evaluate(inputs: ReportOptions, output: OutputOptions, saving: SavingOptions) -> int:
    """Score one or many runs against gold.

    Exits with 1 when a gate fails, with 3 when one cannot be judged or not one query could be
    scored.

    Examples:
      karat eval bm25.trec --gold qrels.txt
      karat eval bm25.trec dense.jsonl --gold qrels.txt -m nDCG@10,R@100 -o report.json
      karat eval run.trec --gold qrels.txt --profile trec -o trec:-
      karat eval run.jsonl --gold qrels.txt --queries queries.jsonl --by language
      karat eval run.jsonl --gold eval.jsonl --field gold=gold_ids
      karat eval run.jsonl --gold qrels.txt --queries queries.jsonl --gates gates.yaml
      karat eval "s3a://runs/2026-11/*.parquet" --gold qrels.parquet --engine spark
    """
    from karat.reports.assembly import report_runs
    from karat.reports.outputs import default_names, needs_document, needs_items, refuse_collisions

    runs = inputs.runs
    outputs = output.parse(
        [*inputs.files(), *saving.files()],
        names=default_names(runs),
        systems=len(runs),
        profile=inputs.profile,
    )
    time = output.time(outputs)
    saving.check()
    full = saving.save or needs_document(outputs, output.as_json)
    evaluation, details = inputs.load(
        outputs, full=full, indexed=saving.save or needs_items(outputs)
    )
    with evaluation:
        report = replace(report_runs(evaluation, runs, details), timestamp=time)
    refuse_collisions(outputs, report)
    saving.keep(report)
    return output.publish(report, outputs)


@dataclass(frozen=True, kw_only=True)
class ComparedRuns(ReportOptions):
    """The baseline and the runs that are compared with it."""

    runs: list[str] = argument("RUN...", "The run to compare with, then the others.")


@command
def compare(
    inputs: ComparedRuns,
    decided_by: RuleOptions,
    output: OutputOptions,
    saving: SavingOptions,
    *,
    replicates: bool = flag(
        "--replicates", "Runs named alike (x-1, x-2) are repeated runs of one system."
    ),
    baseline: str | None = option(
        "--baseline", "TAG|ID", "Compare with a saved evaluation: its tag, or its id."
    ),
    require_verdict: bool = REQUIRE_VERDICT,
) -> int:
    """Compare runs with the first one, query by query.

    One measure decides: --primary, else the profile's. Whatever else got worse is a caution.
    Exits with 1 when the deciding measure is worse or a gate fails (or, with --no-regression all,
    when any measure got worse by more than the margin), with 3 when a gate cannot be judged, or
    when --require-verdict is given and the verdict is unclear.

    Examples:
      karat compare base.trec new.trec --gold qrels.txt
      karat compare base.trec new.trec --gold qrels.txt -m nDCG@10,R@100 --primary R@100
      karat compare a.trec b.trec c.trec --gold qrels.txt --pairs all -o report.md
      karat compare base.jsonl new-1.jsonl new-2.jsonl --gold qrels.txt --replicates
      karat compare base.jsonl new.jsonl --gold qrels.txt --queries queries.jsonl --by language
      karat compare new.jsonl --gold qrels.txt --baseline main
    """
    from karat.reports.assembly import Details, check_comparison, report_comparison
    from karat.reports.outputs import (
        default_names,
        forms_in,
        needs_document,
        needs_items,
        refuse_collisions,
    )

    rule, runs = decided_by.rule(), inputs.runs
    outputs = output.parse(
        [*inputs.files(), *saving.files(used=baseline is not None)],
        names=default_names(runs),
        systems=len(runs) + (baseline is not None),
        profile=inputs.profile,
    )
    time = output.time(outputs)
    saving.check()
    asked = Details(strict_bounds=inputs.strict_bounds, forms=forms_in(outputs))
    check_comparison(len(runs), rule, asked, replicates=replicates, baseline=baseline)
    evaluation, details = inputs.load(
        outputs,
        full=saving.save or needs_document(outputs, output.as_json),
        indexed=saving.save or needs_items(outputs),
        primary=rule.primary,
    )
    with evaluation:
        report = report_comparison(
            evaluation,
            runs,
            rule,
            details,
            replicates=replicates,
            baseline=baseline,
            store=saving.store,
        )
    report = replace(report, timestamp=time)
    refuse_collisions(outputs, report)
    # A stored baseline is not saved again.
    saving.keep(report, skip=[] if baseline is None else [report.systems[0].name])
    return output.publish(report, outputs, require_verdict=require_verdict)


@command
def run(
    output: OutputOptions,
    saving: SavingOptions,
    *,
    config: str | None = CONFIG,
    system: list[str] | None = SYSTEMS,
    field: list[str] | None = FIELDS,
    settings: list[str] | None = SETTINGS,
    fresh: bool = flag("--fresh", "Ask every system again, even where nothing changed."),
    no_regression: str | None = NO_REGRESSION,
    require_verdict: bool = REQUIRE_VERDICT,
) -> int:
    """Do what a karat.yaml says: search, evaluate, compare, check the gates, report.

    A log whose system, files, corpus and queries are unchanged is used again; an interrupted
    one is resumed. A live system (http, python, a store) is asked again unless it has an
    index_version. The first of several systems is the baseline of the comparison, and the others
    are checked by the gates; with compare: false all of them are, side by side.

    Examples:
      karat run
      karat run path/to/karat.yaml -o report.md
      karat run --system bm25 --system hybrid --fresh
      karat run --set rel=2 --set seed=7
      karat run --json
    """
    import karat
    from karat.cli.progress import counting, progress
    from karat.cli.streams import heed_interrupts
    from karat.reports.outputs import forms_in, needs_document, needs_items

    heed_interrupts()
    quiet = output.quiet or output.as_json
    project = karat.Project(
        config,
        systems=system,
        settings=parse_settings(settings or []),
        fields=parse_fields(field or []),
        no_regression=no_regression,
        notify=notify,
        progress=partial(progress, quiet=quiet),
        open_bar=partial(counting, quiet=quiet),
    )
    saving.check()
    texts = output.output or []
    outputs = project.outputs(texts, stdout_taken=output.as_json, taken=saving.files())
    time = output.time(outputs)
    report = project.run(
        fresh=fresh,
        full=saving.save or needs_document(outputs, output.as_json),
        indexed=saving.save or needs_items(outputs),
        forms=forms_in(outputs),
        report_search=partial(show_search, quiet=quiet),
    )
    report = replace(report, timestamp=time)
    saving.keep(report)
    return output.publish(report, outputs, require_verdict=require_verdict, name_files=True)


def show_search(result: SearchResult, *, quiet: bool) -> None:
    """Print the outcome of a system's calls."""
    if not quiet:
        for line in result.summary():
            notify(line)
