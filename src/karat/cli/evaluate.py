"""``karat eval``: score one or many runs against gold."""

from __future__ import annotations

from karat.cli.command import command
from karat.cli.options import OutputOptions, ReportOptions
from karat.cli.saving import SavingOptions

EXAMPLES = """\b
Examples:
  karat eval bm25.trec --gold qrels.txt
  karat eval bm25.trec dense.jsonl --gold qrels.txt -m nDCG@10,R@100 -o report.json
  karat eval run.trec --gold qrels.txt --profile trec -o trec:-
  karat eval run.jsonl --gold qrels.txt --queries queries.jsonl --by language
  karat eval run.jsonl --gold eval.jsonl --field gold=gold_ids
  karat eval run.jsonl --gold qrels.txt --queries queries.jsonl --gates gates.yaml
  karat eval "s3a://runs/2026-11/*.parquet" --gold qrels.parquet --engine spark
"""


@command
def evaluate(inputs: ReportOptions, output: OutputOptions, saving: SavingOptions) -> None:
    """Score one or many runs against gold.

    Exits with 1 when a gate fails, with 3 when one cannot be judged or not one query could be
    scored.

    """
    from dataclasses import replace

    from karat.cli.publish import publish
    from karat.report.assembly import report_runs
    from karat.report.outputs import default_names, needs_document, needs_items, refuse_collisions

    runs = inputs.runs
    outputs = output.parse(
        [*inputs.files(), *saving.files()],
        names=default_names(runs),
        systems=len(runs),
        profile=inputs.profile,
    )
    time = output.time(outputs)
    saving.check()
    details = inputs.details(outputs, full=saving.save or needs_document(outputs, output.as_json))
    evaluation, details = inputs.load(details, indexed=saving.save or needs_items(outputs))
    with evaluation:
        report = replace(report_runs(evaluation, runs, details), timestamp=time)
    refuse_collisions(outputs, report)
    saving.keep(report)
    publish(report, outputs, as_json=output.as_json, quiet=output.quiet)
