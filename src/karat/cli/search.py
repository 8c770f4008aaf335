"""``karat search``: ask systems every query and log what they return."""

from __future__ import annotations

from typing import Annotated

import typer

from karat.cli import options

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
        help="The run log; {system} in its name stands for each. Default: runs/{system}.jsonl.",
    ),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on with a log that was interrupted, or ask failed calls."),
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
    str | None, typer.Option("--rate", metavar="N", help="How many calls a second at most.")
]
Timeout = Annotated[
    str | None, typer.Option("--timeout", metavar="SECONDS", help="How long a call may take.")
]
Retries = Annotated[
    str | None,
    typer.Option("--retries", metavar="N", help="How often to try again what may pass later."),
]
MaxFailures = Annotated[
    str | None,
    typer.Option(
        "--max-failures",
        metavar="SHARE",
        help="The share of failed calls past which a run is partial. Default: 0.05.",
    ),
]
NoLatency = Annotated[
    bool,
    typer.Option(
        "--no-latency",
        help="Leave out times and embedding counts: equal runs are then equal bytes.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print what came of the calls as JSON.")]

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
    """Ask the systems of a karat.yaml every query, and write one run log a system.

    A call that fails is logged with its reason. Exits with 3 when more than --max-failures of
    a system's calls failed: such a run is partial. Exits with 2 when all of them did; an earlier
    log with answers then stays as it is.

    """
    from karat.cli.searching import Request, search_all, show_searched

    request = Request(
        config=config,
        systems=system,
        output=output,
        resume=resume,
        restart=restart,
        limit=limit,
        only=only or [],
        concurrency=concurrency,
        rate=rate,
        timeout=timeout,
        retries=retries,
        max_failures=max_failures,
        latency=not no_latency,
        quiet=quiet or as_json,
    )
    show_searched(search_all(request), as_json=as_json, quiet=quiet)
