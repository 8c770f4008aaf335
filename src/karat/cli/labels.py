"""``karat labels``: judgments kept in the store, listed, compared, decided on and exported."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import karat
from karat.cli.command import REQUIRED, argument, command, flag, option
from karat.cli.options import JSON, QUIET, STORE, PageOptions, notify, tell_waiting
from karat.errors import UsageError

if TYPE_CHECKING:
    from karat.pages.result import Result

# How many rows a terminal shows without --limit.
_LISTED = 20
_SET = option("--set", "SET", "The set: its id or name. Default: the only one.")
_NAME = option("--name", "NAME", "The name of the new set.")
_QUERY = option("--query", "ID", "The query of the pair.", REQUIRED)
_ITEM = option("--item", "ID", "The item of the pair.", REQUIRED)
_LIMIT = option("--limit", "N", "How many. Default: 20, and all with --json.")
_OF_RATER = option("--rater", "NAME", "Only the judgments of this rater.")


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """The store that holds the labels, and how a result is shown."""

    store: str | None = STORE
    as_json: bool = JSON
    quiet: bool = QUIET

    @property
    def sets(self) -> karat.LabelSets:
        """The label sets of the store."""
        from karat.cli.streams import heed_interrupts

        heed_interrupts()
        return karat.LabelSets(self.store, tell_waiting)

    def show(self, result: Result) -> int:
        """Print the result."""
        return PageOptions(output=None, as_json=self.as_json, quiet=self.quiet).publish(result)

    def limit(self, limit: int | None) -> int | None:
        """Return how many rows to show."""
        return limit if limit is not None or self.as_json else _LISTED


@command("labels", "labels list")
def labels_list(options: LabelOptions) -> int:
    """List the label sets, and the progress of their raters.

    Judgments are kept with their pair, rater, time, rationale and source. No judgment is ever
    overwritten or deleted: one that was replaced or withdrawn stays but does not count. The
    commands are labels list, new, import, conflicts, adjudicate, withdraw, agreement, export and
    log.

    Examples:
      karat labels
      karat labels list --store postgresql://me@db/karat --json
      karat labels import judged.jsonl people.jsonl --name returns
      karat labels conflicts --set returns
      karat labels export --set returns --resolve majority -o qrels.txt
    """
    return options.show(options.sets.overview())


@command("labels new")
def labels_new(
    options: LabelOptions,
    *,
    pool: str = argument("POOL", "Pairs with their texts, as karat pool writes them."),
    name: str | None = _NAME,
) -> int:
    """Make a set of a pool.

    The same pairs again, in any order, are the set that exists.

    Examples:
      karat labels new pool.jsonl
      karat labels new pool.jsonl --name 'returns, May'
    """
    return options.show(options.sets.new(pool, name))


@command("labels import")
def labels_import(
    options: LabelOptions,
    *,
    files: list[str] = argument("FILE...", "Label lines, or gold in any supported format."),
    which: str | None = _SET,
    name: str | None = _NAME,
    rater: str | None = option(
        "--rater", "NAME", "The rater of judgments that name none; gold needs one."
    ),
    source: str | None = option(
        "--source", "TEXT", "Where the judgments come from. Default: what the file says."
    ),
    queries: str | None = option("--queries", "FILE", "The queries' texts, with --name."),
    corpus: str | None = option("--corpus", "FILE", "The items' texts, with --name."),
    form: str | None = option("--format", "FORMAT", "The format of the files."),
) -> int:
    """Add judgments from files.

    To an existing set, or with --name to a new one of the files' pairs. Takes label lines with
    their raters and rationales (karat judge and the workbench write them) and gold of any
    format, as one rater's. All of it is added or nothing; judgments that exist already are not
    added again. A pair that a judge failed on is left out, never a 0.

    Examples:
      karat labels import judged.jsonl people.jsonl --set returns
      karat labels import qrels.txt --rater Ana --name returns
      karat labels import gold.csv --rater Ana --name returns --queries queries.jsonl
    """
    result = options.sets.add(
        files,
        label_set=which,
        name=name,
        rater=rater,
        source=source,
        queries=queries,
        corpus=corpus,
        format=form,
    )
    return options.show(result)


@command("labels conflicts")
def labels_conflicts(
    options: LabelOptions,
    *,
    which: str | None = _SET,
    every: bool = flag("--all", "Show decided pairs too."),
    limit: int | None = _LIMIT,
) -> int:
    """Show where raters differ.

    The pairs with the largest differences come first, with each rater's grade and rationale.
    "Can't tell" contradicts no grade.

    Examples:
      karat labels conflicts
      karat labels conflicts --set returns --all
    """
    shown = options.limit(limit)
    return options.show(options.sets.conflicts(which, include_decided=every, limit=shown))


@command("labels adjudicate")
def labels_adjudicate(
    options: LabelOptions,
    *,
    query: str = _QUERY,
    item: str = _ITEM,
    grade: str = option("--grade", "GRADE", "A number, or none: the pair gets no grade.", REQUIRED),
    rater: str = option("--rater", "NAME", "Who decides.", REQUIRED),
    which: str | None = _SET,
    rationale: str = option("--rationale", "TEXT", "Why.", ""),
) -> int:
    """Decide on the grade of a pair.

    A decision overrides the raters' grades, which are kept. The newest decision counts. It is
    stored as a judgment whose source is adjudication; karat labels withdraw takes it back.

    Examples:
      karat labels adjudicate --set returns --query q07 --item refunds#2 --grade 2 --rater Ana
    """
    # Python reads more texts as numbers than people write.
    if grade != "none" and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,17})?", grade) is None:
        raise UsageError(f"--grade is {grade!r}; give a number from 0 to 100, or none")
    result = options.sets.adjudicate(
        query,
        item,
        None if grade == "none" else float(grade),
        rater=rater,
        rationale=rationale,
        label_set=which,
    )
    return options.show(result)


@command("labels withdraw")
def labels_withdraw(
    options: LabelOptions,
    *,
    query: str = _QUERY,
    item: str = _ITEM,
    rater: str = option("--rater", "NAME", "The rater who judges.", REQUIRED),
    which: str | None = _SET,
) -> int:
    """Take back a judgment.

    Takes back the newest judgment of a rater on a pair, or a decision. It stays in the log. The
    rater's earlier judgment of the pair counts again.

    Examples:
      karat labels withdraw --set returns --query q07 --item refunds#2 --rater Ana
    """
    return options.show(options.sets.withdraw(query, item, rater=rater, label_set=which))


@command("labels agreement")
def labels_agreement(options: LabelOptions, *, which: str | None = _SET) -> int:
    """Show how far raters agree.

    Every two raters by Cohen's kappa, all of them by Krippendorff's alpha.

    Examples:
      karat labels agreement
      karat labels agreement --set returns --json
    """
    return options.show(options.sets.agreement(which))


@command("labels export")
def labels_export(
    options: LabelOptions,
    *,
    resolve: str = option(
        "--resolve",
        "HOW",
        "To gold: majority, dawid-skene or adjudicated; to label lines: every, or log with what"
        " was replaced and withdrawn.",
        REQUIRED,
    ),
    which: str | None = _SET,
    rater: str | None = _OF_RATER,
    output: list[str] | None = option(
        "-o, --output",
        "OUT",
        "Write gold.txt, gold.csv, gold.jsonl, … or FORMAT:OUT, as beir:folder; repeatable.",
    ),
    strict: bool = flag("--strict", "Fail on ties instead of leaving them out."),
) -> int:
    """Write gold, or every judgment.

    Gold has one grade per pair; every judgment is a line that import reads back. A decided pair
    has that grade, however others are resolved. A pair on which no grade wins is a tie: it is not
    written, and the command lists it.

    Examples:
      karat labels export --resolve majority -o qrels.txt -o gold.jsonl
      karat labels export --set returns --resolve dawid-skene -o beir:returns
      karat labels export --set returns --resolve every -o labels.jsonl
    """
    outputs = output or []
    piped = any(text == "-" or text.endswith(":-") for text in outputs)
    if piped and options.as_json:
        raise UsageError("--json and -o - both go to standard output; write one to a file")
    result = options.sets.export(outputs, resolve, label_set=which, rater=rater, strict=strict)
    if not piped:
        return options.show(result)
    for line in () if options.quiet else result.page().notes:
        notify(str(line))
    return 0


@command("labels log")
def labels_log(
    options: LabelOptions,
    *,
    which: str | None = _SET,
    rater: str | None = _OF_RATER,
    limit: int | None = _LIMIT,
) -> int:
    """List every judgment ever given.

    The newest comes first; replaced and withdrawn judgments are marked.

    Examples:
      karat labels log
      karat labels log --set returns --rater Ana
    """
    return options.show(options.sets.log(which, rater=rater, limit=options.limit(limit)))
