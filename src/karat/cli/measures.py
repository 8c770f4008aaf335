"""``karat measures``: list the measures, or describe one."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from karat.errors import UsageError

if TYPE_CHECKING:
    from karat.measures.registry import Definition

Name = Annotated[
    str | None, typer.Argument(metavar="NAME", help="One measure, by any of its names.")
]
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]

EXAMPLES = """\b
Examples:
  karat measures
  karat measures nDCG
"""


def measures(name: Name = None, as_json: Json = False) -> None:
    """List the measures, or describe one of them."""
    from karat.report.glossary import entry, glossary

    entries = [entry(_named(name))] if name else glossary()
    if as_json:
        typer.echo(json.dumps(entries, indent=2, sort_keys=True, ensure_ascii=False))
    elif name:
        _describe(entries[0])
    else:
        _list(entries)


def _named(name: str) -> Definition:
    """Return the measure of that name, also in trec_eval's spelling (``P_5``)."""
    from karat.measures.names import parse_measure
    from karat.report.glossary import named

    try:
        return named(name)
    except UsageError as unknown:
        with suppress(UsageError):
            return parse_measure(name).definition
        raise unknown from None


def _list(entries: list[dict[str, Any]]) -> None:
    width = max(len(str(measure["name"])) for measure in entries)
    for measure in entries:
        first_line = _plain(measure["about"]).partition("\n")[0]
        typer.echo(f"{measure['name']:<{width}}  {first_line}")
    typer.echo("\nkarat measures NAME describes one; write measures as nDCG@10 or P(rel=2)@5.")


def _describe(measure: dict[str, Any]) -> None:
    better = (
        "neither way is better" if measure["better"] == "none" else f"{measure['better']} is better"
    )
    typer.echo(f"{measure['written']}  ({better})\n\n{_plain(measure['about'])}\n")
    if measure["parameters"]:
        pairs = ", ".join(f"{key}={value!r}" for key, value in measure["parameters"].items())
        typer.echo(f"parameters: {pairs}")
    if measure["aliases"]:
        typer.echo(f"also read as: {', '.join(measure['aliases'])}")


def _plain(text: str) -> str:
    return text.replace("``", "")
