"""``karat history``: saved evaluations, and a measure over time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from karat.cli.saving import StoreUrl
from karat.errors import UsageError

if TYPE_CHECKING:
    from karat.store import Store

System = Annotated[
    str | None, typer.Option("--system", metavar="NAME", help="Only evaluations of this system.")
]
Tag = Annotated[
    str | None, typer.Option("--tag", metavar="TAG", help="Only evaluations with this tag.")
]
Limit = Annotated[
    str, typer.Option("--limit", metavar="N", help="How many to show, the newest of them.")
]
Trend = Annotated[
    str | None,
    typer.Option("--trend", metavar="MEASURE", help="Show one measure over time, with intervals."),
]
Show = Annotated[
    str | None,
    typer.Option("--show", metavar="ID|TAG", help="Show one evaluation: by id or tag."),
]
TagAs = Annotated[
    str | None,
    typer.Option("--tag-as", metavar="TAG", help="Give the evaluation of --show this tag."),
]
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]

EXAMPLES = """\b
Examples:
  karat history
  karat history --trend nDCG@10 --system bm25
  karat history --show 12 --tag-as release
"""


def history(
    store: StoreUrl = None,
    system: System = None,
    tag: Tag = None,
    limit: Limit = "20",
    trend: Trend = None,
    show: Show = None,
    tag_as: TagAs = None,
    as_json: Json = False,
) -> None:
    """List saved evaluations, show one of them, or a measure over time.

    Evaluations are saved by karat eval --save. Times are in UTC.

    """
    if trend is not None and show is not None:
        raise UsageError("--trend and --show exclude each other; give one of them")
    if tag_as is not None and show is None:
        raise UsageError("--tag-as needs --show with the id of the evaluation that gets the tag")
    if not limit.isdecimal() or len(limit) > 9 or not int(limit):
        raise UsageError(f"--limit is {limit!r}; it is a whole number above 0")
    from karat.store import Store

    with Store.open(store) as opened:
        if show is not None:
            _show(opened, show, system, tag_as, as_json=as_json)
        elif trend is not None:
            _trend(opened, trend, system, tag, int(limit), as_json=as_json)
        else:
            _list(opened, system, tag, int(limit), as_json=as_json)


def _show(store: Store, ref: str, system: str | None, tag_as: str | None, *, as_json: bool) -> None:
    from karat.report.history import show_stored

    stored = store.baseline(ref, system=system)
    if tag_as is not None:
        store.tag(stored.evaluation.id, [tag_as])
        stored = store.baseline(str(stored.evaluation.id))
    if as_json:
        _print({"evaluation": stored.evaluation.document(), "report": stored.report})
    else:
        show_stored(stored)


def _trend(
    store: Store, measure: str, system: str | None, tag: str | None, limit: int, *, as_json: bool
) -> None:
    from karat.report.history import latest, show_trend

    points = latest(store.trend(measure, system=system, tag=tag), limit)
    if not points:
        raise store.no_match(system=system, tag=tag)
    if as_json:
        documents = [point.document() for point in points]
        _print({"measure": points[0].measure, "points": documents})
    else:
        show_trend(points)


def _list(store: Store, system: str | None, tag: str | None, limit: int, *, as_json: bool) -> None:
    from karat.report.history import show_evaluations

    evaluations = store.evaluations(system=system, tag=tag, limit=limit)
    if not evaluations:
        raise store.no_match(system=system, tag=tag)
    if as_json:
        _print({"evaluations": [evaluation.document() for evaluation in evaluations]})
    else:
        show_evaluations(evaluations)


def _print(document: dict[str, Any]) -> None:
    from karat.report.outputs import write_stdout

    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_stdout((text + "\n").encode("utf-8", "replace"))
