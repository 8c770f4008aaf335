"""``karat compare``: did the change help?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from karat.cli.command import command
from karat.cli.options import NoRegression, OutputOptions, ReportOptions, RequireVerdict
from karat.cli.saving import Baseline, SavingOptions
from karat.errors import UsageError

if TYPE_CHECKING:
    from karat.evaluation.verdict import Rule

Runs = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="The run to compare with, then the others."),
]
Primary = Annotated[
    str | None,
    typer.Option(
        "--primary", metavar="MEASURE", help="The measure that decides. Default: the profile's."
    ),
]
Margin = Annotated[
    str,
    typer.Option(
        "--margin", metavar="SHARE", help="A change that does not matter: 0.02 is 2 % of the mean."
    ),
]
MarginKind = Annotated[
    str,
    typer.Option("--margin-kind", metavar="KIND", help="relative (to the baseline) or absolute."),
]
MarginOn = Annotated[
    str,
    typer.Option(
        "--margin-on",
        metavar="WHAT",
        help="What must be beyond the margin: the whole interval, or mean: the change itself.",
    ),
]
Pairs = Annotated[
    str, typer.Option("--pairs", metavar="WHICH", help="Each with the baseline, or all pairs.")
]
Correction = Annotated[
    str,
    typer.Option("--correction", metavar="NAME", help="For several tests: holm or bh."),
]
Detect = Annotated[
    str | None,
    typer.Option("--detect", metavar="X", help="Say how many queries would detect this change."),
]
Replicates = Annotated[
    bool,
    typer.Option(
        "--replicates", help="Runs named alike (x-1, x-2) are repeated runs of one system."
    ),
]

EXAMPLES = """\b
Examples:
  karat compare base.trec new.trec --gold qrels.txt
  karat compare base.trec new.trec --gold qrels.txt -m nDCG@10,R@100 --primary R@100 --margin 0.01
  karat compare a.trec b.trec c.trec --gold qrels.txt --pairs all -o report.md
  karat compare base.jsonl new-1.jsonl new-2.jsonl --gold qrels.txt --replicates
  karat compare base.jsonl new.jsonl --gold qrels.txt --queries queries.jsonl --by language
  karat compare new.jsonl --gold qrels.txt --baseline main
"""


@dataclass(frozen=True, kw_only=True)
class ComparedRuns(ReportOptions):
    """The baseline and the runs that are compared with it."""

    runs: Runs


@dataclass(frozen=True, kw_only=True)
class RuleOptions:
    """What decides the comparison."""

    primary: Primary = None
    margin: Margin = "0.02"
    margin_kind: MarginKind = "relative"
    margin_on: MarginOn = "interval"
    pairs: Pairs = "baseline"
    correction: Correction = "holm"
    detect: Detect = None
    no_regression: NoRegression = None

    def rule(self) -> Rule:
        """Return the rule that the options spell out; refuse one that they do not."""
        from karat.evaluation.verdict import Rule
        from karat.measures.names import parse_measure

        if self.primary is not None:
            parse_measure(self.primary)
        words: dict[str, Any] = {
            "margin_kind": self.margin_kind,
            "margin_on": self.margin_on,
            "pairs": self.pairs,
            "correction": self.correction,
            "no_regression": self.no_regression,
        }
        detect = None if self.detect is None else _number("--detect", self.detect)
        margin = _number("--margin", self.margin)
        return Rule(primary=self.primary, margin=margin, detect=detect, **words)


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{option} is {text!r}; it is a number, such as 0.02") from None


@command
def compare(
    inputs: ComparedRuns,
    decided_by: RuleOptions,
    output: OutputOptions,
    saving: SavingOptions,
    replicates: Replicates = False,
    baseline: Baseline = None,
    require_verdict: RequireVerdict = False,
) -> None:
    """Compare runs with the first one, query by query.

    One measure decides: --primary, else the profile's; what else got worse is a caution. Exits
    with 1 when it is worse or a gate fails (or, with --no-regression all, when any measure got
    worse by more than the margin), with 3 when a gate cannot be judged, or when
    --require-verdict is given and the verdict is unclear.

    """
    from dataclasses import replace

    from karat.cli.publish import publish
    from karat.report.assembly import check_comparison, report_comparison
    from karat.report.outputs import default_names, needs_document, needs_items, refuse_collisions

    rule, runs = decided_by.rule(), inputs.runs
    outputs = output.parse(
        [*inputs.files(), *saving.files(used=baseline is not None)],
        names=default_names(runs),
        systems=len(runs) + (baseline is not None),
        profile=inputs.profile,
    )
    time = output.time(outputs)
    saving.check()
    details = inputs.details(outputs, full=saving.save or needs_document(outputs, output.as_json))
    check_comparison(len(runs), rule, details, replicates=replicates, baseline=baseline)
    evaluation, details = inputs.load(
        details, indexed=saving.save or needs_items(outputs), primary=rule.primary
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
    publish(
        report,
        outputs,
        as_json=output.as_json,
        quiet=output.quiet,
        require_verdict=require_verdict,
    )
