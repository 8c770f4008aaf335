"""Options that several commands share: groups, each declared once.

``karat.cli.command`` expands a group into the options of a command. A group builds the object of
its options: an ``Evaluation``, a ``Rule``, a list of outputs, a place in the store.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import karat
from karat.cli.command import REQUIRED, argument, flag, option
from karat.errors import UsageError

if TYPE_CHECKING:
    from karat.pages.result import Result
    from karat.reports.document import Report
    from karat.reports.outputs import Form, Output

EXIT_FAILED, EXIT_CANNOT_TELL = 1, 3

# Single options of several commands.
QUERIES = option("--queries", "FILE", "Queries with attributes; only these count.")
CORPUS = option("--corpus", "FILE", "Items with texts and versions.")
PROFILE = option("--profile", "NAME", "Conventions for measures and gaps.", "karat")
SETTINGS = option("--set", "KEY=VALUE", "Change one convention; repeatable.")
FIELDS = option(
    "--field",
    "FIELD=COLUMN",
    "Map a karat field to one of your columns, such as gold=gold_ids or"
    " corpus.item_id=uid; repeatable.",
)
BY = option(
    "--by",
    "COLUMN",
    "Also report each value of it, or of two crossed: 'language*topic'; repeatable.",
)
SEED = option("--seed", "N", "The random seed for resampling. Default: 0.")
STRICT = flag("--strict", "Refuse an item that a run returns twice for a query.")
RUN_FORMAT = option("--run-format", "FORMAT", "The format of the runs.")
GOLD_FORMAT = option("--gold-format", "FORMAT", "The format of the gold.")
JSON = flag("--json", "Print the result as JSON, not as tables.")
QUIET = flag("--quiet", "Print neither tables nor progress.")
STORE = option(
    "--store", "URL", "A file or SQLAlchemy URL. Default: $KARAT_STORE, else .karat/history.db."
)
NO_REGRESSION = option(
    "--no-regression",
    "WHICH",
    "What must not get worse: primary (the default), or all measures (profile memory).",
)
REQUIRE_VERDICT = flag("--require-verdict", "Exit with 3 when the verdict is unclear.")
THRESHOLDS = option(
    "--line",
    "KEY=VALUE",
    "Change a threshold: what a miss is (miss=5), what counts as low; repeatable.",
)
WITHOUT_TEXTS = flag("--without-texts", "Keep pairs without text, as ids only.")


def echo(message: str = "", *, err: bool = False, end: str = "\n") -> None:
    """Print a line to standard output or standard error."""
    print(message, file=sys.stderr if err else sys.stdout, end=end, flush=True)


def notify(message: str) -> None:
    """Print a message to standard error."""
    echo(message, err=True)


def cannot_tell(because: str) -> int:
    """Print why there is no result, and return exit code 3."""
    notify(f"karat: cannot tell: {because}")
    return EXIT_CANNOT_TELL


def parse_settings(texts: Sequence[str], seed: str | None = None) -> dict[str, str]:
    """Parse ``KEY=VALUE`` pairs; the same key twice is a contradiction.

    >>> parse_settings(["ties=given", "rel=2"], seed="7")
    {'ties': 'given', 'rel': '2', 'seed': '7'}
    """
    settings: dict[str, str] = {}
    for text in texts:
        # A key that is unknown or has no value is refused where settings are read.
        key, value = (part.strip() for part in text.partition("=")[::2])
        if settings.setdefault(key, value) != value:
            raise UsageError(f"--set {key} is given twice with different values")
    if seed is not None and settings.setdefault("seed", seed) != seed:
        raise UsageError("--seed and --set seed=… contradict each other")
    return settings


def check_stdin(names: Sequence[str | None]) -> None:
    """Refuse two inputs from standard input."""
    if list(names).count("-") > 1:
        raise UsageError("only one input can be standard input (-)")


def messages(*, quiet: bool) -> Callable[[str], None]:
    """Return a function that prints messages; if ``quiet``, only warnings."""
    return lambda message: notify(message) if not quiet or message.startswith("karat: ") else None


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """The runs, the gold, and how they are read."""

    runs: list[str] = argument("RUN...", "Runs to score; - reads standard input.")
    gold: str = option("--gold", "FILE", "The judgments: qrels or any supported format.", REQUIRED)
    profile: str = PROFILE
    settings: list[str] | None = SETTINGS
    by: list[str] | None = BY
    queries: str | None = QUERIES
    corpus: str | None = CORPUS
    strict: bool = STRICT
    run_format: str | None = RUN_FORMAT
    gold_format: str | None = GOLD_FORMAT
    field: list[str] | None = FIELDS
    quiet: bool = QUIET

    def files(self) -> list[str]:
        """Return every input by name."""
        named = [*self.runs, self.gold, self.queries, self.corpus]
        return [name for name in named if name is not None]

    def evaluation(self, **more: Any) -> karat.Evaluation:
        """Read and check everything but the runs; ``more`` goes to ``Evaluation``."""
        from karat.cli.progress import progress
        from karat.cli.streams import heed_interrupts

        heed_interrupts()
        options: dict[str, Any] = {
            "queries": self.queries,
            "corpus": self.corpus,
            "profile": self.profile,
            "settings": parse_settings(self.settings or []),
            "by": self.by or [],
            "fields": self.field,
            "strict": self.strict,
            "run_format": self.run_format,
            "gold_format": self.gold_format,
            "notify": messages(quiet=self.quiet),
            "progress": None if self.quiet else partial(progress, quiet=False),
        }
        return karat.Evaluation(self.gold, **(options | more))


@dataclass(frozen=True, kw_only=True)
class ScoringOptions(InputOptions):
    """Inputs whose numbers have intervals."""

    seed: str | None = SEED

    def evaluation(self, **more: Any) -> karat.Evaluation:
        """Read and check everything but the runs."""
        return super().evaluation(seed=self.seed, **more)


@dataclass(frozen=True, kw_only=True)
class ReportOptions(ScoringOptions):
    """Scoring for a report: with gates, a judge's labels, and ranges over unjudged items."""

    measures: list[str] | None = option(
        "-m, --measure",
        "MEASURE",
        "What to report, such as 'nDCG@10, R@{1,5}'; repeatable. Default: the profile's.",
    )
    gates: str | None = option(
        "--gates", "FILE", "Gates, as YAML or sentences; exits with 1 if one fails."
    )
    judged: str | None = option(
        "--judged", "FILE", "A judge's labels: also report P and nDCG on gold plus labels."
    )
    human: list[str] | None = option(
        "--human",
        "FILE",
        "People's judgments of some of what --judged judges: P@k corrected for its errors;"
        " repeatable.",
    )
    bounds: bool | None = flag(
        "--bounds",
        "How far judging the unjudged items could change the numbers. Default: shown for runs of"
        " up to 200,000 hits.",
        None,
    )
    strict_bounds: bool = flag(
        "--strict-bounds", "Decide only what no judgment of unjudged items can change."
    )
    engine: str = option(
        "--engine",
        "ENGINE",
        "local, spark or spark=MASTER: Spark reads Parquet, CSV, TSV, TREC and JSONL, folders,"
        " patterns and URLs, and gives the same numbers.",
        "local",
    )

    def files(self) -> list[str]:
        """Return every input by name."""
        named = [*super().files(), self.gates, self.judged, *(self.human or [])]
        return [name for name in named if name is not None]

    def evaluation(self, *, forms: Sequence[Form] = (), **more: Any) -> karat.Evaluation:
        """Read and check everything but the runs, as far as the report's forms need it."""
        from karat.measure.conventions import PROFILES, conventions_of

        local = {"--human": self.human, "--bounds": self.bounds}
        local["--strict-bounds"] = self.strict_bounds
        for name, value in local.items():
            if value and self.engine != "local":
                raise UsageError(f"{name} needs every list in one place; use --engine local")
        conventions_of(self.profile)
        # Another tool's own form holds all measures of its profile.
        dialect = any(form.profile is not None for form in forms)
        return super().evaluation(
            measures=self.measures or None,
            gates=None if self.gates is None else Path(self.gates),
            judged=self.judged,
            engine=self.engine,
            more_measures=PROFILES[self.profile].measures if dialect else (),
            index_cache=_cache_folder() if any(form.indexed for form in forms) else None,
            **more,
        )

    def details(self, forms: Sequence[Form]) -> dict[str, Any]:
        """Return the arguments of ``karat.report`` for its content besides scores."""
        return {
            "full": any(form.in_full for form in forms),
            "bounds": self.bounds,
            "strict_bounds": self.strict_bounds,
            "human": self.human or (),
            "forms": forms,
        }


def _cache_folder() -> Path:
    from karat.jobs.cache import CACHE_FOLDER

    return Path(CACHE_FOLDER)


@dataclass(frozen=True, kw_only=True)
class RuleOptions:
    """The rule of a comparison."""

    primary: str | None = option(
        "--primary", "MEASURE", "The measure that decides. Default: the profile's."
    )
    margin: float = option(
        "--margin",
        "SHARE",
        "A change that does not matter: 0.02 is 2 % of the mean.",
        0.02,
        least=0,
        most=1e9,
    )
    margin_kind: str = option(
        "--margin-kind", "KIND", "relative (to the baseline) or absolute.", "relative"
    )
    margin_on: str = option(
        "--margin-on",
        "WHAT",
        "What must be beyond the margin: the whole interval, or mean: the change itself.",
        "interval",
    )
    pairs: str = option("--pairs", "WHICH", "Compare with the baseline, or all pairs.", "baseline")
    correction: str = option("--correction", "NAME", "Correct several tests by holm or bh.", "holm")
    detect: float | None = option(
        "--detect", "X", "Report how many queries would detect this change.", least=0, most=1e9
    )
    no_regression: str | None = NO_REGRESSION

    def rule(self) -> karat.Rule:
        """Return the rule that the options describe."""
        if self.primary is not None:
            karat.parse_measure(self.primary)
        choices: dict[str, Any] = vars(self)
        return karat.Rule(**choices)


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Outputs of an analysis; a command may add forms."""

    output: list[str] | None = option(
        "-o, --output", "OUT", "Write out.json or out.md; repeatable."
    )
    as_json: bool = JSON
    quiet: bool = QUIET

    def parse(self, inputs: Sequence[str | None], *more_forms: Form) -> list[Output]:
        """Read every ``-o``; an output that cannot be written is refused before any work."""
        from karat.reports.outputs import PAGE_FORMS, PICTURES, parse_outputs

        forms: Mapping[str, Form] = {**PAGE_FORMS, **{form.name: form for form in more_forms}}
        check_stdin(inputs)
        named = [name for name in inputs if name is not None]
        outputs = parse_outputs(
            self.output or [], inputs=named, stdout_taken=self.as_json, forms=forms
        )
        if any(output.form.name in PICTURES for output in outputs):
            from karat.pages.charts import check_charts

            check_charts()
        return outputs

    def publish(self, result: Result, outputs: Sequence[Output] = ()) -> int:
        """Write the files and print the page; exit code 3 if nothing was measured."""
        from karat.pages.result import to_json
        from karat.reports.outputs import write_outputs, write_stdout

        write_outputs(outputs, result)
        if self.as_json:
            write_stdout(to_json(result))
        elif not self.quiet and all(output.path is not None for output in outputs):
            show(result)
        reason = getattr(result, "unmeasured", None)
        return 0 if reason is None else cannot_tell(reason)


def show(result: Result) -> None:
    """Print the page of a result."""
    from karat.pages.terminal import show_page, standard_console

    show_page(result.page(), standard_console())


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Outputs of a report."""

    output: list[str] | None = option(
        "-o, --output",
        "OUT",
        "Write out.html, out.json, out.csv, out.parquet, out.md, junit:out.xml, trec:out.txt,"
        " or what another tool writes: story: memory: ab: minimal: misses:; repeatable.",
    )
    as_json: bool = JSON
    quiet: bool = QUIET
    timestamp: str | None = option(
        "--timestamp",
        "TIME",
        "The time that memory: reports. Default: SOURCE_DATE_EPOCH, else null.",
    )

    def parse(
        self,
        inputs: ReportOptions,
        saving: SavingOptions,
        *,
        systems: int,
        reads_store: bool = False,
    ) -> list[Output]:
        """Read every ``-o``; an output that cannot be written is refused before any work."""
        check_stdin(inputs.files())
        input_files = [*inputs.files(), *saving.files(used=reads_store)]
        if not self.output:
            if self.timestamp is not None:
                self.time([])
            return []
        from karat.reports.outputs import default_names, parse_outputs

        outputs = parse_outputs(
            self.output,
            inputs=input_files,
            stdout_taken=self.as_json,
            systems=systems,
            names=default_names(inputs.runs),
            profile=inputs.profile,
        )
        self.time(outputs)
        return outputs

    def forms(self, outputs: Sequence[Output], saving: SavingOptions) -> list[Form]:
        """Return every form that the report will have, also for ``--json`` and the store."""
        if not (outputs or self.as_json or saving.save):
            return []
        from karat.reports.outputs import JSON as JSON_FORM
        from karat.reports.outputs import STORED

        forms = dict.fromkeys(output.form for output in outputs)
        forms |= {JSON_FORM: None} if self.as_json else {}
        return [*forms, *([STORED] if saving.save else [])]

    def time(
        self, outputs: Sequence[Output], environ: Mapping[str, str] = os.environ
    ) -> str | None:
        """Return ``--timestamp``, else the environment's SOURCE_DATE_EPOCH, else None; in UTC.

        A report never takes the time from the clock.
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

    def publish(
        self,
        report: Report,
        outputs: Sequence[Output],
        saving: SavingOptions,
        *,
        stored: str | None = None,
        require_verdict: bool = False,
        name_files: bool = False,
    ) -> int:
        """Save, write and print the report; return the exit code that it asks for.

        ``stored`` is a system already in the store. ``name_files`` says where the report
        was written, for files that the user did not name.
        """
        if outputs:
            from karat.reports.outputs import refuse_collisions

            report = replace(report, timestamp=self.time(outputs))
            refuse_collisions(outputs, report)
        # Saved before the exit code: a failed gate is part of the history.
        if saving.save:
            saving.keep(report, skip=stored)
        return publish_report(
            report,
            outputs,
            as_json=self.as_json,
            quiet=self.quiet,
            require_verdict=require_verdict,
            name_files=name_files,
        )


def publish_report(
    report: Report,
    outputs: Sequence[Output],
    *,
    as_json: bool,
    quiet: bool,
    require_verdict: bool = False,
    name_files: bool = False,
) -> int:
    """Write and print a report, annotate GitHub's page of the run, and return the exit code."""
    files = []
    if outputs:
        from karat.reports.outputs import write_outputs

        files = write_outputs(outputs, report)
    if as_json:
        from karat.pages.result import to_json
        from karat.reports.outputs import write_stdout

        write_stdout(to_json(report))
    elif not quiet and all(output.path is not None for output in outputs):
        show(report)
    if name_files and files and not (quiet or as_json):
        notify(f"report → {', '.join(map(str, files))}")
    if outputs:
        for line in report.uncounted_failures([output.form.name for output in outputs]):
            notify(f"karat: {line}")
    if os.environ.get("GITHUB_ACTIONS"):
        from karat.reports.github import announce

        announce(report, os.environ, require_verdict=require_verdict)
    code, reasons = report.outcome(require_verdict=require_verdict)
    for reason in reasons:
        notify(f"karat: {reason}")
    return code


_EPOCH = "SOURCE_DATE_EPOCH"


def _time_of_epoch(text: str) -> str:
    try:
        when = datetime.fromtimestamp(int(text), UTC)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{_EPOCH} is {text!r}; give a whole number of seconds since 1970, as date +%s prints"
        ) from None
    return _spelled(when)


def _spelled(when: datetime) -> str:
    return f"{when.replace(tzinfo=None).isoformat(timespec='seconds')}Z"


@dataclass(frozen=True, kw_only=True)
class SavingOptions:
    """Options that save a report in a store, with tags."""

    save: bool = flag("--save", "Save the evaluation in the store.")
    tag: list[str] | None = option(
        "--tag", "TAG", "Save it under this tag, such as main; repeatable."
    )
    store: str | None = STORE

    def files(self, *, used: bool = False) -> list[str]:
        """Return the files of the store, if it is used; no output may take their place.

        Refuses now, before any work, what could not be saved later.
        """
        if self.tag and not self.save:
            raise UsageError("--tag is for what is saved; add --save")
        if not (used or self.save):
            return []
        if self.save:
            self.check()
        from karat.store.database import store_address

        return store_address(self.store).files()

    def check(self) -> None:
        """Refuse, before any work, what could not be saved later."""
        from karat.store import Store, checked_tags

        checked_tags(self.tag or [])
        with Store.open(self.store) as opened:
            if not opened.lasting:
                raise UsageError("an in-memory store saves nothing; name a file")
            opened.check()

    def keep(self, report: Report, *, skip: str | None = None) -> None:
        """Save every system of the report but ``skip``."""
        name, ids = karat.save(report, self.store, self.tag or (), skip=skip, waiting=tell_waiting)
        if ids:
            notify(f"saved as {', '.join(map(str, ids))} in {name}")
        else:
            notify("karat: warning: nothing was saved: no query could be scored")


def tell_waiting(name: str) -> None:
    """Report that another process holds the store."""
    notify(f"karat: {name} is in use by another process; waiting for it")
