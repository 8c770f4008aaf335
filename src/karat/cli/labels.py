"""``karat labels``: judgments in the store: imported, compared, decided on and exported."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from karat.cli.saving import StoreUrl, tell_waiting
from karat.errors import UsageError

if TYPE_CHECKING:
    from karat.pages.result import Result

# How many rows a terminal shows without --limit.
_LISTED = 20

Pool = Annotated[
    str,
    typer.Argument(metavar="POOL", help="Pairs with their texts, as karat pool writes them."),
]
Files = Annotated[
    list[str],
    typer.Argument(metavar="FILE...", help="Label lines, or gold in any format that is read."),
]
Name = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="The name of the new set.")
]
Which = Annotated[
    str | None,
    typer.Option("--set", metavar="SET", help="The set: its id or name. Default: the only one."),
]
Rater = Annotated[
    str | None, typer.Option("--rater", metavar="NAME", help="Only the judgments of this rater.")
]
Giver = Annotated[
    str | None,
    typer.Option(
        "--rater", metavar="NAME", help="The rater of judgments that name none; gold needs one."
    ),
]
Decider = Annotated[str, typer.Option("--rater", metavar="NAME", help="Who decides.")]
Withdrawer = Annotated[str, typer.Option("--rater", metavar="NAME", help="Whose judgment it is.")]
From = Annotated[
    str | None,
    typer.Option(
        "--source",
        metavar="TEXT",
        help="Where the judgments come from. Default: what the file says.",
    ),
]
Queries = Annotated[
    str | None, typer.Option("--queries", metavar="FILE", help="The queries' texts, with --name.")
]
Corpus = Annotated[
    str | None, typer.Option("--corpus", metavar="FILE", help="The items' texts, with --name.")
]
Format = Annotated[
    str | None,
    typer.Option("--format", metavar="FORMAT", help="The format of the files."),
]
Query = Annotated[str, typer.Option("--query", metavar="ID", help="The query of the pair.")]
Item = Annotated[str, typer.Option("--item", metavar="ID", help="The item of the pair.")]
Grade = Annotated[
    str,
    typer.Option("--grade", metavar="GRADE", help="A number, or none: the pair gets no grade."),
]
Rationale = Annotated[str, typer.Option("--rationale", metavar="TEXT", help="Why.")]
Every = Annotated[bool, typer.Option("--all", help="Show decided pairs too.")]
Limit = Annotated[
    str | None,
    typer.Option("--limit", metavar="N", help="How many. Default: 20, and all with --json."),
]
Resolve = Annotated[
    str,
    typer.Option(
        "--resolve",
        metavar="HOW",
        help="To gold: majority, dawid-skene or adjudicated; to label lines: every, or log with"
        " what was replaced and withdrawn.",
    ),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="Write gold.txt, gold.csv, gold.jsonl, … or FORMAT:OUT, as beir:folder; repeatable.",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse to leave ties out.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]

F = TypeVar("F", bound=Callable[..., Any])
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
)

EXAMPLES = """\b
Examples:
  karat labels
  karat labels import judged.jsonl people.jsonl --name returns
  karat labels conflicts --set returns
  karat labels export --set returns --resolve majority -o qrels.txt
"""


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def labels(
    context: typer.Context,
    store: StoreUrl = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Keep judgments: each with its pair, rater, time, rationale and source.

    Without a command it lists the label sets and the progress of their raters. No judgment is
    ever overwritten or deleted: one that was replaced or withdrawn stays but does not count.

    """
    if context.invoked_subcommand is None:
        list_sets(store=store, as_json=as_json, quiet=quiet)
    elif store is not None or as_json or quiet:
        raise UsageError(f"options go after the command: karat labels {context.invoked_subcommand}")


def _command(name: str, *examples: str) -> Callable[[F], F]:
    """Register a command under a name, with what its help shows as examples."""
    lines = "".join(f"  karat labels {name} {one}".rstrip() + "\n" for one in examples)
    return app.command(name, epilog=f"\b\nExamples:\n{lines}", context_settings=_SETTINGS)


@_command("list", "", "--store postgresql://me@db/karat --json")
def list_sets(store: StoreUrl = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """List the sets and their raters.

    Shows how much is judged, on how many pairs raters differ, and the progress of each rater.

    """
    from karat.label.label_store import list_label_sets

    _show(list_label_sets(store, waiting=tell_waiting), as_json=as_json, quiet=quiet)


@_command("new", "pool.jsonl", "pool.jsonl --name 'returns, May'")
def new(
    pool: Pool,
    name: Name = None,
    store: StoreUrl = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a set of a pool.

    The same pairs again, in any order, are the set that exists.

    """
    from karat.label.label_store import new_label_set

    result = new_label_set(pool, name, store, waiting=tell_waiting)
    _show(result, as_json=as_json, quiet=quiet)


@_command(
    "import",
    "judged.jsonl people.jsonl --set returns",
    "qrels.txt --rater Ana --name returns",
    "gold.csv --rater Ana --name returns --queries queries.jsonl --corpus corpus.jsonl",
)
def bring_in(
    files: Files,
    which: Which = None,
    name: Name = None,
    rater: Giver = None,
    source: From = None,
    queries: Queries = None,
    corpus: Corpus = None,
    form: Format = None,
    store: StoreUrl = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Add judgments from files.

    To an existing set, or with --name to a new one of the files' pairs. Takes label lines with
    their raters and rationales (karat judge and the workbench write them) and gold of any
    format, as one rater's. All of it is added or nothing; judgments that exist already are not
    added again. A pair that a judge failed on is left out, never a 0.

    """
    from karat.cli.streams import heed_interrupts
    from karat.label.label_store import import_labels

    heed_interrupts()
    result = import_labels(
        files,
        label_set=which,
        name=name,
        rater=rater,
        source=source,
        queries=queries,
        corpus=corpus,
        format=form,
        store=store,
        waiting=tell_waiting,
    )
    _show(result, as_json=as_json, quiet=quiet)


@_command("conflicts", "", "--set returns --all")
def conflicts(
    which: Which = None,
    every: Every = False,
    limit: Limit = None,
    store: StoreUrl = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show where raters differ.

    The pairs with the largest differences come first, with each rater's grade and rationale.
    "Can't tell" contradicts no grade.

    """
    from karat.label.label_store import label_conflicts

    result = label_conflicts(
        which,
        include_decided=every,
        limit=_limit(limit, as_json=as_json),
        store=store,
        waiting=tell_waiting,
    )
    _show(result, as_json=as_json, quiet=quiet)


@_command("adjudicate", "--set returns --query q07 --item refunds#2 --grade 2 --rater Ana")
def adjudicate(
    query: Query,
    item: Item,
    grade: Grade,
    rater: Decider,
    which: Which = None,
    rationale: Rationale = "",
    store: StoreUrl = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Decide on the grade of a pair.

    A decision overrides what raters say, which is kept. The newest decision counts. It is stored
    as a judgment whose source is adjudication; karat labels withdraw takes it back.

    """
    from karat.label.label_store import adjudicate as decide

    result = decide(
        query,
        item,
        _grade(grade),
        rater=rater,
        rationale=rationale,
        label_set=which,
        store=store,
        waiting=tell_waiting,
    )
    _show(result, as_json=as_json, quiet=quiet)


@_command("withdraw", "--set returns --query q07 --item refunds#2 --rater Ana")
def withdraw(
    query: Query,
    item: Item,
    rater: Withdrawer,
    which: Which = None,
    store: StoreUrl = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take back a judgment.

    Takes back the newest judgment of a rater on a pair, or a decision. It stays in the log. The
    rater's earlier judgment of the pair counts again.

    """
    from karat.label.label_store import withdraw_judgment

    result = withdraw_judgment(
        query, item, rater=rater, label_set=which, store=store, waiting=tell_waiting
    )
    _show(result, as_json=as_json, quiet=quiet)


@_command("agreement", "", "--set returns --json")
def agreement(
    which: Which = None, store: StoreUrl = None, as_json: Json = False, quiet: Quiet = False
) -> None:
    """Show how far raters agree.

    Every two raters by Cohen's kappa, all of them by Krippendorff's alpha.

    """
    from karat.label.label_store import label_agreement

    _show(label_agreement(which, store, waiting=tell_waiting), as_json=as_json, quiet=quiet)


@_command(
    "export",
    "--resolve majority -o qrels.txt -o gold.jsonl",
    "--set returns --resolve dawid-skene -o beir:returns",
    "--set returns --resolve every -o labels.jsonl",
)
def export(
    resolve: Resolve,
    which: Which = None,
    rater: Rater = None,
    output: Outputs = None,
    strict: Strict = False,
    store: StoreUrl = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write gold, or every judgment.

    Gold has one grade per pair; every judgment is a line that import reads back. A decided pair
    has that grade, whatever HOW is. A pair on which no grade wins is a tie: it is not written,
    and the command lists it.

    """
    from karat.cli.streams import heed_interrupts
    from karat.label.label_export import export_labels

    heed_interrupts()
    outputs = output or []
    piped = any(text == "-" or text.endswith(":-") for text in outputs)
    if piped and as_json:
        raise UsageError("--json and -o - both go to standard output; write one to a file")
    result = export_labels(
        outputs,
        resolve,
        label_set=which,
        rater=rater,
        strict=strict,
        store=store,
        waiting=tell_waiting,
    )
    for line in result.page().notes if piped and not quiet else ():
        typer.echo(line, err=True)
    _show(result, as_json=as_json, quiet=quiet or piped)


@_command("log", "", "--set returns --rater Ana")
def log(
    which: Which = None,
    rater: Rater = None,
    limit: Limit = None,
    store: StoreUrl = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List every judgment ever given.

    The newest comes first; replaced and withdrawn judgments are marked.

    """
    from karat.label.label_store import label_log

    result = label_log(
        which,
        rater=rater,
        limit=_limit(limit, as_json=as_json),
        store=store,
        waiting=tell_waiting,
    )
    _show(result, as_json=as_json, quiet=quiet)


def _show(result: Result, *, as_json: bool, quiet: bool) -> None:
    from karat.cli.label_commands import publish_result

    publish_result(result, [], as_json=as_json, quiet=quiet)


def _limit(text: str | None, *, as_json: bool) -> int | None:
    from karat.cli.numbers import whole

    if text is not None:
        return whole("--limit", text)
    return None if as_json else _LISTED


def _grade(text: str) -> float | None:
    if text == "none":
        return None
    # Python reads more texts as numbers than people write.
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,17})?", text) is None:
        raise UsageError(f"--grade is {text!r}; give a number from 0 to 100, or none")
    return float(text)
