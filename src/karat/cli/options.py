"""Options that several commands share: each declared once, and the groups that commands take.

``karat.cli.command`` expands a group into the options of a command.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from karat.errors import UsageError

if TYPE_CHECKING:
    from karat.evaluation.evaluation import Evaluation
    from karat.report.assembly import Details
    from karat.report.outputs import Output

Runs = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="Runs to score; - reads standard input."),
]

GoldFile = Annotated[
    str, typer.Option("--gold", metavar="FILE", help="The judgments: qrels or any format read.")
]
Measures = Annotated[
    list[str] | None,
    typer.Option(
        "-m",
        "--measure",
        metavar="MEASURE",
        help="What to report, such as 'nDCG@10, R@{1,5}'; repeatable. Default: the profile's.",
    ),
]
Profile = Annotated[
    str, typer.Option("--profile", metavar="NAME", help="The reading of measures and gaps.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one convention; repeatable."),
]
Fields = Annotated[
    list[str] | None,
    typer.Option(
        "--field",
        metavar="FIELD=COLUMN",
        help="Read one of karat's fields from a column of yours, such as gold=gold_ids or"
        " corpus.item_id=uid; repeatable.",
    ),
]
By = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        metavar="COLUMN",
        help="Also report each value of it, or of two crossed: 'language*topic'; repeatable.",
    ),
]
QueriesFile = Annotated[
    str | None,
    typer.Option("--queries", metavar="FILE", help="Queries with attributes; it says which count."),
]
CorpusFile = Annotated[
    str | None, typer.Option("--corpus", metavar="FILE", help="Items with texts and versions.")
]
GatesFile = Annotated[
    str | None,
    typer.Option("--gates", metavar="FILE", help="Limits that must hold, as YAML; else exit 1."),
]
JudgedFile = Annotated[
    str | None,
    typer.Option(
        "--judged", metavar="FILE", help="A judge's labels: P and nDCG also on gold and labels."
    ),
]
HumanFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--human",
        metavar="FILE",
        help="People's judgments of some of what --judged judges: P@k corrected for its errors;"
        " repeatable.",
    ),
]
Bounds = Annotated[
    bool | None,
    typer.Option(
        "--bounds/--no-bounds",
        help="What figures could be, whatever the unjudged items are."
        " Default: told of runs of up to 200,000 hits.",
        show_default=False,
    ),
]
StrictBounds = Annotated[
    bool,
    typer.Option("--strict-bounds", help="Decide only what holds whatever the unjudged items are."),
]
Seed = Annotated[
    str | None,
    typer.Option("--seed", metavar="N", help="What resampling starts from. Default: 0."),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="Write out.html, out.json, out.csv, out.parquet, out.md, junit:out.xml, trec:out.txt,"
        " or what another tool writes: story: memory: ab: minimal: misses:; repeatable.",
    ),
]
OwnOutputs = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="Write out.html, out.json, out.csv, out.parquet, out.md, junit:out.xml or"
        " trec:out.txt; repeatable.",
    ),
]
Timestamp = Annotated[
    str | None,
    typer.Option(
        "--timestamp",
        metavar="TIME",
        help="The time that memory: reports. Default: SOURCE_DATE_EPOCH, else null.",
    ),
]
PageOutputs = Annotated[
    list[str] | None,
    typer.Option("-o", "--output", metavar="OUT", help="Write out.json or out.md; repeatable."),
]
Lines = Annotated[
    list[str] | None,
    typer.Option(
        "--line",
        metavar="KEY=VALUE",
        help="Draw a line elsewhere: what a miss is (miss=5), what counts as low; repeatable.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON, not as tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print neither tables nor progress.")]
NoRegression = Annotated[
    str | None,
    typer.Option(
        "--no-regression",
        metavar="WHICH",
        help="What may not get worse: primary (the default), or all measures (profile memory).",
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse an item that a run returns twice for a query.")
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help="local, spark or spark=MASTER: Spark reads Parquet, CSV, TSV, TREC and JSONL, "
        "folders, patterns and URLs, and gives the same numbers.",
    ),
]
RunFormat = Annotated[
    str | None,
    typer.Option("--run-format", metavar="FORMAT", help="How the runs are laid out."),
]
GoldFormat = Annotated[
    str | None,
    typer.Option("--gold-format", metavar="FORMAT", help="How the gold is laid out."),
]

RequireVerdict = Annotated[
    bool, typer.Option("--require-verdict", help="Exit with 3 when the verdict is unclear.")
]


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """The runs, what they are scored against, and how it is read."""

    runs: Runs
    gold: GoldFile
    profile: Profile = "karat"
    settings: Settings = None
    by: By = None
    queries: QueriesFile = None
    corpus: CorpusFile = None
    seed: Seed = None
    strict: Strict = False
    run_format: RunFormat = None
    gold_format: GoldFormat = None
    field: Fields = None
    quiet: Quiet = False

    def files(self) -> list[str]:
        """Return every input by name."""
        named = [*self.runs, self.gold, self.queries, self.corpus]
        return [name for name in named if name is not None]

    def evaluation(self, *, index_cache: Path | None = None, **more: Any) -> Evaluation:
        """Read and check everything but the runs; ``more`` goes to ``Evaluation``.

        ``index_cache`` is the folder that keeps an index of the corpus, if one is needed.
        """
        from karat.cli.progress import progress
        from karat.cli.streams import heed_interrupts
        from karat.evaluation.evaluation import Evaluation
        from karat.formats.field_mapping import Fields

        heed_interrupts()
        if self.files().count("-") > 1:
            raise UsageError("only one input can be standard input (-)")

        def notify(message: str) -> None:
            if message.startswith("karat: ") or not self.quiet:
                typer.echo(message, err=True)

        options: dict[str, Any] = {
            "queries": self.queries,
            "corpus": self.corpus,
            "profile": self.profile,
            "settings": parse_settings(self.settings or []),
            "by": self.by or [],
            "fields": Fields.parse(self.field or []),
            "seed": self.seed,
            "strict": self.strict,
            "run_format": self.run_format,
            "gold_format": self.gold_format,
        }
        return Evaluation(
            self.gold,
            **(options | more),
            index_cache=index_cache,
            notify=notify,
            progress=None if self.quiet else partial(progress, quiet=False),
        )


@dataclass(frozen=True, kw_only=True)
class MeasuringOptions(ScoringOptions):
    """Scoring by measures that the user may name."""

    measures: Measures = None

    def evaluation(self, *, index_cache: Path | None = None, **more: Any) -> Evaluation:
        """Read and check everything but the runs."""
        own: dict[str, Any] = {"measures": self.measures or None, **more}
        return super().evaluation(index_cache=index_cache, **own)


@dataclass(frozen=True, kw_only=True)
class ReportOptions(MeasuringOptions):
    """Scoring for a report: with gates, a judge's labels, and what unjudged items could change."""

    gates: GatesFile = None
    judged: JudgedFile = None
    human: HumanFiles = None
    bounds: Bounds = None
    strict_bounds: StrictBounds = False
    engine: Engine = "local"

    def files(self) -> list[str]:
        """Return every input by name."""
        named = [*super().files(), self.gates, self.judged, *(self.human or [])]
        return [name for name in named if name is not None]

    def details(self, outputs: Sequence[Output], *, full: bool) -> Details:
        """Return what the report is to tell beside scores."""
        from karat.report.assembly import Details
        from karat.report.outputs import forms_in

        return Details(
            full=full,
            bounds=self.bounds,
            strict_bounds=self.strict_bounds,
            forms=forms_in(outputs),
        )

    def load(
        self, details: Details, *, indexed: bool, primary: str | None = None
    ) -> tuple[Evaluation, Details]:
        """Read the inputs; ``indexed`` with an index of the corpus."""
        from karat.jobs.cache import CACHE_FOLDER
        from karat.measures.conventions import PROFILES, conventions_of
        from karat.report.assembly import correction_of

        self._refuse_what_needs_lists()
        conventions_of(self.profile)
        # Another tool's own form holds all measures of its profile.
        dialect = any(form.profile is not None for form in details.forms)
        evaluation = self.evaluation(
            gates=None if self.gates is None else Path(self.gates),
            judged=self.judged,
            engine=self.engine,
            primary=primary,
            more_measures=PROFILES[self.profile].measures if dialect else (),
            index_cache=Path(CACHE_FOLDER) if indexed else None,
        )
        correction = correction_of(evaluation, self.judged, self.human or [])
        return evaluation, replace(details, correction=correction)

    def _refuse_what_needs_lists(self) -> None:
        """Refuse before Spark is started what compares whole lists with other labels."""
        if self.engine == "local":
            return
        asked = {"--human": self.human, "--bounds": self.bounds}
        asked["--strict-bounds"] = self.strict_bounds
        for name, given in asked.items():
            if given:
                raise UsageError(f"{name} needs every list in one place; use --engine local")


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Where a report goes."""

    output: Outputs = None
    as_json: Json = False
    quiet: Quiet = False
    timestamp: Timestamp = None

    def parse(
        self, inputs: Sequence[str], *, names: Sequence[str], systems: int, profile: str
    ) -> list[Output]:
        """Read every ``-o``; what could not be written later is refused before any work."""
        from karat.report.outputs import parse_outputs

        return parse_outputs(
            self.output or [],
            inputs=inputs,
            stdout_taken=self.as_json,
            systems=systems,
            names=names,
            profile=profile,
        )

    def time(
        self, outputs: Sequence[Output], environ: Mapping[str, str] = os.environ
    ) -> str | None:
        """Return ``--timestamp``, else the environment's SOURCE_DATE_EPOCH, else None; in UTC.

        A report never takes the time from the clock.

        >>> OutputOptions().time([], {})
        """
        stamped = any(output.form.stamped for output in outputs)
        if self.timestamp is None:
            epoch = environ.get(_EPOCH, "")
            return _time_of_epoch(epoch) if stamped and epoch else None
        if not stamped:
            raise UsageError("--timestamp is for -o memory:FILE; no other output holds a time")
        try:
            when = datetime.fromisoformat(self.timestamp)
            # A time without a zone is one in UTC, and a date alone its midnight.
            return _spelled(when.replace(tzinfo=when.tzinfo or UTC).astimezone(UTC))
        except (ValueError, OverflowError):
            raise UsageError(
                f"--timestamp is {self.timestamp!r}; write it as 2026-01-31T12:00:00Z"
            ) from None


_EPOCH = "SOURCE_DATE_EPOCH"


def _time_of_epoch(text: str) -> str:
    try:
        when = datetime.fromtimestamp(int(text), UTC)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{_EPOCH} is {text!r}; it is a whole number of seconds since 1970, as date +%s prints"
        ) from None
    return _spelled(when)


def _spelled(when: datetime) -> str:
    return f"{when.replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """Parse ``KEY=VALUE`` pairs; the same key twice is a contradiction.

    >>> parse_settings(["ties=given", "rel=2"])
    {'ties': 'given', 'rel': '2'}
    """
    settings: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not value.strip():
            from karat.measures.conventions import setting_names

            known = ", ".join(setting_names())
            raise UsageError(f"--set takes KEY=VALUE, not {text!r}; known: {known}")
        if settings.setdefault(key, value.strip()) != value.strip():
            raise UsageError(f"--set {key} is given twice with different values")
    return settings
