"""``karat search``: ask systems every query and log what they return."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from karat.cli import options

if TYPE_CHECKING:
    from karat.retrieve.search import SearchResult

ConfigFile = Annotated[
    str | None,
    typer.Argument(metavar="CONFIG", help="The karat.yaml. Default: that of this folder."),
]
Systems = Annotated[
    list[str] | None,
    typer.Option("--system", metavar="NAME", help="Ask only this system; repeatable."),
]
Log = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="LOG",
        help="The run log; {system} stands for each system's name. Default: runs/{system}.jsonl.",
    ),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Resume an interrupted log, and retry failed calls."),
]
Restart = Annotated[
    bool, typer.Option("--restart", help="Throw an interrupted log away and start over.")
]
Limit = Annotated[
    str | None, typer.Option("--limit", metavar="N", help="Ask only the first N queries.")
]
Filter = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="COLUMN=VALUE",
        help="Ask only queries with this value; repeatable.",
    ),
]
Concurrency = Annotated[
    str | None, typer.Option("--concurrency", metavar="N", help="How many calls run at once.")
]
Rate = Annotated[
    str | None, typer.Option("--rate", metavar="N", help="At most so many calls per second.")
]
Timeout = Annotated[
    str | None, typer.Option("--timeout", metavar="SECONDS", help="The time limit of one call.")
]
Retries = Annotated[
    str | None,
    typer.Option("--retries", metavar="N", help="How often to retry a failure that may pass."),
]
MaxFailures = Annotated[
    str | None,
    typer.Option(
        "--max-failures",
        metavar="SHARE",
        help="A run with a larger share of failed calls is partial. Default: 0.05.",
    ),
]
NoLatency = Annotated[
    bool,
    typer.Option(
        "--no-latency",
        help="Leave out times and embedding counts: equal runs are then equal bytes.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the outcomes of the calls as JSON.")]

EXAMPLES = """\b
Examples:
  karat search karat.yaml --system bm25 -o runs/bm25.jsonl
  karat search
  karat search --system live --concurrency 16 --rate 50 --resume
  karat search --limit 20 --filter language=pt-BR
"""


def search(
    config: ConfigFile = None,
    system: Systems = None,
    output: Log = None,
    resume: Resume = False,
    restart: Restart = False,
    limit: Limit = None,
    only: Filter = None,
    concurrency: Concurrency = None,
    rate: Rate = None,
    timeout: Timeout = None,
    retries: Retries = None,
    max_failures: MaxFailures = None,
    no_latency: NoLatency = False,
    as_json: Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Ask the systems of a karat.yaml every query, and write one run log per system.

    A failed call is logged with its reason. Exits with 3 if more than --max-failures of a
    system's calls failed (a partial run), and with 2 if all of them did; an earlier log with
    answers then stays as it is.

    """
    from functools import partial

    from karat.cli.numbers import decimal, optional_whole
    from karat.cli.progress import counting
    from karat.cli.streams import heed_interrupts
    from karat.project.systems import plan_search
    from karat.retrieve.search import SearchOptions

    heed_interrupts()
    plan = plan_search(
        config,
        systems=system,
        output=output,
        limit=optional_whole("--limit", limit, most=10**9),
        only=only or [],
        timeout=decimal("--timeout", timeout, least=0.001),
        options=SearchOptions(
            concurrency=optional_whole("--concurrency", concurrency, most=256),
            rate=decimal("--rate", rate, least=0.001),
            retries=optional_whole("--retries", retries, least=0, most=100),
            max_failures=decimal("--max-failures", max_failures, least=0, most=1),
            resume=resume,
            restart=restart,
            latency=not no_latency,
        ),
    )
    results = plan.search(partial(counting, quiet=quiet or as_json))
    show_results(results, as_json=as_json, quiet=quiet)


def show_results(results: Sequence[SearchResult], *, as_json: bool, quiet: bool) -> None:
    """Print the outcomes; exit with 3 if a run is partial."""
    from karat.cli.publish import EXIT_CANNOT_TELL
    from karat.retrieve.search import refuse_all_failed

    if as_json:
        documents = [result.to_dict() for result in results]
        typer.echo(json.dumps(documents, indent=2, ensure_ascii=False))
    elif not quiet:
        for result in results:
            typer.echo("\n".join(result.summary()))
    refuse_all_failed(results)
    partial_runs = [result.system for result in results if result.partial]
    if partial_runs:
        names = ", ".join(partial_runs)
        typer.echo(f"karat: partial: too many calls of {names} failed", err=True)
        raise typer.Exit(EXIT_CANNOT_TELL)
