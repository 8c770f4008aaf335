"""``karat eval``, ``karat compare`` and ``karat run``: from runs to a report and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import karat
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
    parse_settings,
)
from karat.errors import UsageError

CONFIG = argument("CONFIG", "The karat.yaml. Default: the one in this folder.", None)
SYSTEMS = option("--system", "NAME", "Run only this system; repeatable.")


@command("eval")
def evaluate(inputs: ReportOptions, output: OutputOptions, saving: SavingOptions) -> int:
    """Score one or many runs against gold.

    Exits with 1 when a gate fails, with 3 when one cannot be judged or no query could be
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
    outputs = output.parse(inputs, saving, systems=len(inputs.runs))
    forms = output.forms(outputs, saving)
    with inputs.evaluation(forms=forms) as evaluation:
        details = inputs.details(forms)
        report = karat.report(evaluation, *inputs.runs, compare=False, **details)
    return output.publish(report, outputs, saving)


@dataclass(frozen=True, kw_only=True)
class ComparedRuns(ReportOptions):
    """The baseline and the runs that are compared with it."""

    runs: list[str] = argument("RUN...", "The baseline run, then the others.")


@command("compare")
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

    One measure decides: --primary, else the profile's. Any other measure that got worse is a
    caution. Exits with 1 when the deciding measure is worse or a gate fails (or, with
    --no-regression all, when any measure got worse by more than the margin), with 3 when a gate
    cannot be judged, or when --require-verdict is given and the verdict is unclear.

    Examples:
      karat compare base.trec new.trec --gold qrels.txt
      karat compare base.trec new.trec --gold qrels.txt -m nDCG@10,R@100 --primary R@100
      karat compare a.trec b.trec c.trec --gold qrels.txt --pairs all -o report.md
      karat compare base.jsonl new-1.jsonl new-2.jsonl --gold qrels.txt --replicates
      karat compare base.jsonl new.jsonl --gold qrels.txt --queries queries.jsonl --by language
      karat compare new.jsonl --gold qrels.txt --baseline main
    """
    rule, systems = decided_by.rule(), len(inputs.runs) + (baseline is not None)
    if systems < 2:
        raise UsageError("compare needs at least two runs: the baseline first, then the others")
    outputs = output.parse(inputs, saving, systems=systems, reads_store=baseline is not None)
    forms = output.forms(outputs, saving)
    with inputs.evaluation(forms=forms, primary=rule.primary) as evaluation:
        report = karat.report(
            evaluation,
            *inputs.runs,
            rule=rule,
            replicates=replicates,
            baseline=baseline,
            store=saving.store,
            **inputs.details(forms),
        )
    # A stored baseline is not saved again.
    stored = None if baseline is None else report.systems[0].name
    return output.publish(report, outputs, saving, stored=stored, require_verdict=require_verdict)


@command("run")
def run(
    output: OutputOptions,
    saving: SavingOptions,
    *,
    config: str | None = CONFIG,
    system: list[str] | None = SYSTEMS,
    field: list[str] | None = FIELDS,
    settings: list[str] | None = SETTINGS,
    fresh: bool = flag("--fresh", "Search with every system again, even if nothing changed."),
    no_regression: str | None = NO_REGRESSION,
    require_verdict: bool = REQUIRE_VERDICT,
) -> int:
    """Run a karat.yaml: search, evaluate, compare, check the gates, report.

    A log whose system, files, corpus and queries are unchanged is reused; an interrupted one is
    resumed. A live system (http, python, a store) is searched again unless it has an
    index_version. The first of several systems is the baseline of the comparison, and the others
    are checked by the gates; with compare: false all of them are, side by side.

    Examples:
      karat run
      karat run path/to/karat.yaml -o report.md
      karat run --system bm25 --system hybrid --fresh
      karat run --set rel=2 --set seed=7
      karat run --json
    """
    from karat.cli.progress import counting, progress
    from karat.cli.streams import heed_interrupts

    heed_interrupts()
    quiet = output.quiet or output.as_json
    project = karat.Project(
        config,
        systems=system,
        settings=parse_settings(settings or []),
        fields=field,
        no_regression=no_regression,
        notify=notify,
        progress=partial(progress, quiet=quiet),
        open_bar=partial(counting, quiet=quiet),
    )
    outputs = project.outputs(
        output.output or [], stdout_taken=output.as_json, taken=saving.files()
    )
    report = project.run(
        fresh=fresh,
        forms=output.forms(outputs, saving),
        report_search=partial(show_search, quiet=quiet),
    )
    return output.publish(report, outputs, saving, require_verdict=require_verdict, name_files=True)


def show_search(result: karat.SearchResult, *, quiet: bool) -> None:
    """Print the outcome of a system's calls."""
    if not quiet:
        for line in result.summary():
            notify(line)
