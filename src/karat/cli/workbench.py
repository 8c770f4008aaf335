"""``karat history`` and ``karat serve``: saved evaluations, in the terminal and in a browser."""

from __future__ import annotations

import json
from typing import Any

import karat
from karat.cli.command import argument, command, flag, option
from karat.cli.options import QUIET, STORE, notify
from karat.errors import UsageError


@command("history")
def history(
    *,
    store: str | None = STORE,
    system: str | None = option("--system", "NAME", "Only evaluations of this system."),
    tag: str | None = option("--tag", "TAG", "Only evaluations with this tag."),
    limit: int = option("--limit", "N", "How many to show, newest first.", 20, most=10**9),
    trend: str | None = option("--trend", "MEASURE", "Show one measure over time, with intervals."),
    show: str | None = option("--show", "ID|TAG", "Show one evaluation: by id or tag."),
    tag_as: str | None = option("--tag-as", "TAG", "Add this tag to the evaluation of --show."),
    as_json: bool = flag("--json", "Print as JSON."),
) -> int:
    """List saved evaluations, show one of them, or a measure over time.

    Evaluations are saved by karat eval --save. Times are in UTC.

    Examples:
      karat history
      karat history --trend nDCG@10 --system bm25
      karat history --show 12 --tag-as release
    """
    if trend is not None and show is not None:
        raise UsageError("--trend and --show exclude each other; give one of them")
    if tag_as is not None and show is None:
        raise UsageError("--tag-as needs --show with the id of the evaluation that gets the tag")
    from karat.reports.history import show_evaluations, show_trend

    with karat.Store.open(store) as opened:
        if show is not None:
            return _show_one(opened, show, system, tag_as, as_json=as_json)
        if trend is not None:
            points = opened.trend(trend, system=system, tag=tag, limit=limit)
            if not points:
                raise opened.no_match(system=system, tag=tag)
            if as_json:
                documents = [point.document() for point in points]
                return _print({"measure": points[0].measure, "points": documents})
            show_trend(points)
            return 0
        evaluations = opened.evaluations(system=system, tag=tag, limit=limit)
        if not evaluations:
            raise opened.no_match(system=system, tag=tag)
        if as_json:
            return _print({"evaluations": [saved.document() for saved in evaluations]})
        show_evaluations(evaluations)
        return 0


def _show_one(
    store: karat.Store, ref: str, system: str | None, tag_as: str | None, *, as_json: bool
) -> int:
    """Show one evaluation; with ``tag_as`` give it a tag first."""
    from karat.reports.history import show_stored

    stored = store.baseline(ref, system=system)
    if tag_as is not None:
        store.tag(stored.evaluation.id, [tag_as])
        stored = store.baseline(str(stored.evaluation.id))
    if as_json:
        return _print({"evaluation": stored.evaluation.document(), "report": stored.report})
    show_stored(stored)
    return 0


def _print(document: dict[str, Any]) -> int:
    from karat.reports.outputs import write_stdout

    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_stdout((text + "\n").encode("utf-8", "replace"))
    return 0


@command("serve")
def serve(
    *,
    config: str | None = argument(
        "CONFIG",
        "The karat.yaml whose systems can be searched. Default: the one in this folder, if any.",
        None,
    ),
    store: str | None = STORE,
    pool: str | None = option("--pool", "FILE", "A pool to label, from karat pool."),
    host: str = option(
        "--host", "ADDRESS", "The address to listen on; others need a token.", "127.0.0.1"
    ),
    port: str = option("--port", "N", "The port; 0 chooses a free one.", "8000"),
    token: str | None = option(
        "--token",
        "TOKEN",
        "The token for visitors. Better as $KARAT_TOKEN, which other users cannot see. Default:"
        " a new one at every start, in the printed link.",
    ),
    no_token: bool = flag("--no-token", "Give every user of this machine read and write access."),
    open_page: bool = flag("--open", "Open the link in your browser."),
    allow_host: list[str] | None = option(
        "--allow-host", "NAME", "Another host name to accept; repeatable."
    ),
    quiet: bool = QUIET,
) -> int:
    """Show the store in a browser: evaluations, comparisons, labelling, live search.

    Open the printed link: it holds a token that keeps other users of this machine out. Other
    machines reach it only with --host, which needs a token of your own. Ctrl-C ends it.

    Examples:
      karat serve
      karat serve --store postgresql://ann@db.example/karat --port 0
      KARAT_TOKEN=… karat serve --host 0.0.0.0 --allow-host workbench.example
    """
    from karat.web import require_libraries

    require_libraries()
    from karat.web.server import serve as serve_workbench
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
    serve_workbench(settings, notify, open_page=open_page, quiet=quiet)
    return 0
