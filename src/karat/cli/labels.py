"""``karat labels``: judgments in the store, brought in, looked into, settled and taken out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from karat.cli.saving import StoreUrl
from karat.errors import UsageError

Pool = Annotated[
    str,
    typer.Argument(metavar="POOL", help="Pairs with their texts, as karat pool writes them."),
]
Files = Annotated[
    list[str],
    typer.Argument(metavar="FILE...", help="Label lines, or gold in any format that is read."),
]
Name = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="What the new set is called.")
]
Which = Annotated[
    str | None,
    typer.Option("--set", metavar="SET", help="The set: its id or name. Default: the only one."),
]
Rater = Annotated[
    str | None, typer.Option("--rater", metavar="NAME", help="Only what this rater said.")
]
Giver = Annotated[
    str | None,
    typer.Option("--rater", metavar="NAME", help="Who gave what names no rater; gold needs one."),
]
Decider = Annotated[str, typer.Option("--rater", metavar="NAME", help="Who decides.")]
Withdrawer = Annotated[str, typer.Option("--rater", metavar="NAME", help="Whose judgment it is.")]
From = Annotated[
    str | None,
    typer.Option("--source", metavar="TEXT", help="Where they come from. Default: as they say."),
]
Queries = Annotated[
    str | None, typer.Option("--queries", metavar="FILE", help="The queries' texts, with --name.")
]
Corpus = Annotated[
    str | None, typer.Option("--corpus", metavar="FILE", help="The items' texts, with --name.")
]
Format = Annotated[
    str | None,
    typer.Option("--format", metavar="FORMAT", help="How the files are laid out."),
]
Query = Annotated[str, typer.Option("--query", metavar="ID", help="The query of the pair.")]
Item = Annotated[str, typer.Option("--item", metavar="ID", help="The item of the pair.")]
Grade = Annotated[
    str,
    typer.Option("--grade", metavar="GRADE", help="A number, or none: the pair gets no grade."),
]
Rationale = Annotated[str, typer.Option("--rationale", metavar="TEXT", help="Why.")]
Every = Annotated[bool, typer.Option("--all", help="Show those that were decided on too.")]
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
    """Keep judgments: who said what of which pair, when, why, and where that comes from.

    Without a command: the label sets, and how far their raters are. No judgment is ever
    overwritten or deleted: one that was replaced or withdrawn stays, and no longer counts.

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

    How much is judged, on how many pairs raters differ, and who is how far.

    """
    from karat.cli.labels_sets import listed, show
    from karat.reports.labels import sets_page

    show(listed(store), sets_page, as_json=as_json, quiet=quiet)


@_command("new", "pool.jsonl", "pool.jsonl --name 'returns, May'")
def new(
    pool: Pool,
    name: Name = None,
    store: StoreUrl = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a set of a pool.

    The same pairs again, in whatever order, are the set that is there.

    """
    from karat.cli.labels_sets import made_of_pool, show
    from karat.reports.labels import made_page

    show(made_of_pool(pool, name, store), made_page, as_json=as_json, quiet=quiet)


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

    To a set that is there, or with --name to a new one of the files' own pairs. Takes label
    lines with their raters and rationales (karat judge and the workbench write them) and gold
    of any format, which is one rater's. All of it is added or nothing; what is there already is
    not added again. A pair that a judge failed on is left out, never a 0.

    """
    from karat.cli.labels_importing import Request, import_files
    from karat.cli.labels_sets import show
    from karat.reports.labels import import_page

    texts = {"queries": queries, "corpus": corpus}
    request = Request(files, which, name, rater=rater, source=source, format=form, **texts)
    show(import_files(request, store), import_page, as_json=as_json, quiet=quiet)


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

    The pairs widest apart come first, with each rater's grade and rationale. Who can't tell
    contradicts nobody.

    """
    from karat.cli.labels_deciding import found_conflicts
    from karat.cli.labels_sets import show
    from karat.reports.labels import conflicts_page

    told = found_conflicts(store, which, every=every, limit=limit, as_json=as_json)
    show(told, conflicts_page, as_json=as_json, quiet=quiet)


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

    It outranks what raters say, which stays. The newest decision counts. It is kept as a
    judgment whose source is adjudication, and karat labels withdraw takes it back.

    """
    from karat.cli.labels_deciding import decide
    from karat.cli.labels_sets import show
    from karat.reports.labels import judgment_page

    told = decide(store, which, query, item, grade=grade, rater=rater, rationale=rationale)
    show(told, judgment_page, as_json=as_json, quiet=quiet)


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

    The newest of a rater on a pair: a decision, or what the rater said. It stays in the log.
    What the rater had said of the pair before counts again.

    """
    from karat.cli.labels_deciding import take_back
    from karat.cli.labels_sets import show
    from karat.reports.labels import judgment_page

    told = take_back(store, which, query, item, rater=rater)
    show(told, judgment_page, as_json=as_json, quiet=quiet)


@_command("agreement", "", "--set returns --json")
def agreement(
    which: Which = None, store: StoreUrl = None, as_json: Json = False, quiet: Quiet = False
) -> None:
    """Say how far raters agree.

    Every two by Cohen's kappa, all of them together by Krippendorff's alpha.

    """
    from karat.cli.labels_deciding import agreed
    from karat.cli.labels_sets import show
    from karat.reports.labels import agreement_page

    show(agreed(store, which), agreement_page, as_json=as_json, quiet=quiet)


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

    Gold has one grade a pair; every judgment is a line that import takes back. A pair that was
    decided on has that grade, whatever HOW is. Where no grade stands out there is a tie: it is
    not written, and said.

    """
    from karat.cli.labels_exporting import Request, export_set, to_stdout
    from karat.cli.labels_sets import show
    from karat.reports.labels import export_page, unwritten

    outputs = output or []
    piped = to_stdout(outputs)
    if piped and as_json:
        raise UsageError("--json and -o - both go to standard output; write one to a file")
    told = export_set(Request(resolve, which, rater, outputs=outputs, strict=strict), store)
    for line in unwritten(told) if piped and not quiet else ():
        typer.echo(line, err=True)
    show(told, export_page, as_json=as_json, quiet=quiet or piped)


@_command("log", "", "--set returns --rater Ana")
def log(
    which: Which = None,
    rater: Rater = None,
    limit: Limit = None,
    store: StoreUrl = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List all that was ever said.

    The newest comes first; what was replaced or withdrawn is there too, and says so.

    """
    from karat.cli.labels_deciding import logged
    from karat.cli.labels_sets import show
    from karat.reports.labels import log_page

    told = logged(store, which, rater=rater, limit=limit, as_json=as_json)
    show(told, log_page, as_json=as_json, quiet=quiet)
