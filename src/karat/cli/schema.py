"""``karat schema``: the contract of run logs as a JSON Schema, and logs held against it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from karat.errors import UsageError

if TYPE_CHECKING:
    from karat.formats.log_checks import LogCheck
    from karat.reports.grids import Grid

Name = Annotated[
    str | None, typer.Argument(metavar="NAME", help="The schema. Default: list what there is.")
]
Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE...", help="With --check: the logs; - is standard input."),
]
Check = Annotated[
    bool, typer.Option("--check", help="Check files line by line instead of printing the schema.")
]
Output = Annotated[
    str | None,
    typer.Option("-o", "--output", metavar="FILE", help="Write the schema there; - prints it."),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print the list, or what a check found, as JSON.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="With --check: print nothing; the exit code tells.")
]

EXAMPLES = """\b
Examples:
  karat schema
  karat schema run-log -o run-log.schema.json
  karat schema run-log --check runs/*.jsonl
"""


def schema(
    name: Name = None,
    files: Files = None,
    check: Check = False,
    output: Output = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Print the contract of run logs, or check logs against it.

    A check names every line that no command would read, and says of a sound log what it has and
    lacks to be reproduced. Exits with 2 when a line is bad.

    """
    from karat.formats.contract import schema_named
    from karat.formats.files import refuse_no_path, replacing

    _refuse_contradictions(name, files or [], check=check, output=output, quiet=quiet)
    if name is None:
        _list(as_json=as_json)
        return
    chosen = schema_named(name)
    if check:
        _check(files or [], as_json=as_json, quiet=quiet)
    elif output is None or output == "-":
        typer.echo(chosen.text(), nl=False)
    else:
        refuse_no_path(output)
        with replacing(output) as place:
            place.write_text(chosen.text(), encoding="utf-8")


def _refuse_contradictions(
    name: str | None, files: Sequence[str], *, check: bool, output: str | None, quiet: bool
) -> None:
    if check and not files:
        raise UsageError("--check needs the logs: karat schema run-log --check runs/*.jsonl")
    if files and not check:
        raise UsageError(f"say --check to have {files[0]!r} checked; without it, name one schema")
    if check and output is not None:
        raise UsageError("-o writes a schema; what --check finds is printed, with --json as JSON")
    if output is not None and name is None:
        raise UsageError("-o writes one schema; name it: karat schema run-log -o FILE")
    if quiet and not check:
        raise UsageError("--quiet is for --check; leave it out")


def _list(*, as_json: bool) -> None:
    from karat.formats.contract import SCHEMAS

    if as_json:
        typer.echo(json.dumps([one.document() for one in SCHEMAS.values()], indent=2))
        return
    for one in SCHEMAS.values():
        typer.echo(f"{one.name}  version {one.version}: {one.about}")
    typer.echo("\nkarat schema NAME prints one; karat schema NAME --check FILE... checks files.")


def _check(files: Sequence[str], *, as_json: bool, quiet: bool) -> None:
    from karat.formats.log_checks import check_log, checks_document

    if list(files).count("-") > 1:
        raise UsageError("only one input can be standard input (-)")
    checks = [check_log(file) for file in files]
    if as_json:
        typer.echo(json.dumps(checks_document(checks), indent=2, ensure_ascii=False))
    elif not quiet:
        _show(checks)
    if not all(one.sound for one in checks):
        raise typer.Exit(2)


def _show(checks: Sequence[LogCheck]) -> None:
    from karat.reports.figures import label, several
    from karat.reports.terminal import show_grid, standard_console

    sound = [one for one in checks if one.sound]
    for one in sound:
        failed = f", {one.failed:,} failed" if one.failed else ""
        typer.echo(f"{label(one.name)}: sound, {several(one.lines, 'call')}{failed}")
    if sound:
        typer.echo()
        show_grid(_grid(sound), standard_console())
    for one in sound:
        if one.differing:
            typer.echo(f"{label(one.name)}: not the same in all lines: {', '.join(one.differing)}")
    for one in checks:
        _show_bad(one)


def _show_bad(check: LogCheck) -> None:
    from karat.reports.figures import label, several

    for error in check.errors:
        typer.echo(label(" ".join(str(error).split())), err=True)
    if check.bad > len(check.errors):
        typer.echo(f"and {check.bad - len(check.errors):,} more", err=True)
    if check.bad:
        lines = several(check.lines, "line")
        told = f"{check.bad:,} of {lines} cannot be read as a call of a run log"
        typer.echo(f"karat: {label(check.name)}: {told}", err=True)


def _grid(checks: Sequence[LogCheck]) -> Grid:
    """What each log has to be reproduced; one log is told what each is good for."""
    from karat.formats.log_checks import FACTS
    from karat.reports.figures import label

    if len(checks) == 1:
        rows = [[fact, checks[0].has[fact].word, why] for fact, why in FACTS.items()]
        return [["has", "in lines", "what"], *rows]
    names = [label(one.name) for one in checks]
    return [["has", *names], *([fact, *(one.has[fact].word for one in checks)] for fact in FACTS)]
