"""``karat serve``: the workbench, a website over the store."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from karat.cli import options
from karat.cli.saving import StoreUrl

Config = Annotated[
    str | None,
    typer.Argument(
        metavar="CONFIG",
        help="The karat.yaml whose systems can be asked. Default: that of this folder, if any.",
    ),
]
Pool = Annotated[
    str | None,
    typer.Option("--pool", metavar="FILE", help="A pool to be labelled, from karat pool."),
]
Host = Annotated[
    str,
    typer.Option("--host", metavar="ADDRESS", help="Where to listen; others need a token."),
]
Port = Annotated[str, typer.Option("--port", metavar="N", help="0 takes a free one.")]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        help="What visitors must know. Better as $KARAT_TOKEN, which other users cannot see."
        " Default: a new one at every start, in the link that is printed.",
    ),
]
NoToken = Annotated[
    bool,
    typer.Option("--no-token", help="Let every user of this machine in, as reader and as writer."),
]
Open = Annotated[bool, typer.Option("--open", help="Open the link in your browser.")]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host", metavar="NAME", help="A further name that leads here; repeatable."
    ),
]

EXAMPLES = """\b
Examples:
  karat serve
  karat serve --store postgresql://ann@db.example/karat --port 0
  KARAT_TOKEN=… karat serve --host 0.0.0.0 --allow-host workbench.example
"""


def serve(
    config: Config = None,
    store: StoreUrl = None,
    pool: Pool = None,
    host: Host = "127.0.0.1",
    port: Port = "8000",
    token: Token = None,
    no_token: NoToken = False,
    open_page: Open = False,
    allow_host: AllowHost = None,
    quiet: options.Quiet = False,
) -> None:
    """Show the store in a browser: evaluations, comparisons, labelling, live search.

    Open the printed link: it holds a token that keeps other users of this machine out. Other
    machines reach it only with --host, which needs a token of your own. Ctrl-C ends it.

    """
    from karat.web import require_libraries
    from karat.web import serve as serve_workbench

    require_libraries()
    from karat.web.settings import settings_from_options

    settings = settings_from_options(
        config=config,
        store=store,
        pool=pool,
        host=host,
        port=port,
        token=token,
        no_token=no_token,
        allowed_hosts=allow_host or (),
    )
    notify = partial(typer.echo, err=True)
    serve_workbench(settings, notify, open_page=open_page, quiet=quiet)
