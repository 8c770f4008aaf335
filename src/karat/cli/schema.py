"""``karat schema``: print the JSON Schema of run logs, or check logs against it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from karat.errors import UsageError

if TYPE_CHECKING:
    from karat.formats.runlog_schema import LogChecks

Name = Annotated[
    str | None, typer.Argument(metavar="NAME", help="The schema. Default: list all schemas.")
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
    bool, typer.Option("--json", help="Print the list, or the result of a check, as JSON.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="With --check: print nothing; only set the exit code.")
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
    """Print the JSON Schema of run logs, or check logs against it.

    A check lists every line that no command can read. For a valid log it lists which facts are
    there, and which are missing to reproduce it. Exits with 2 when a line is bad.

    """
    from karat.formats import runlog_schema
    from karat.formats.files import atomic_write, check_path

    _refuse_contradictions(name, files or [], check=check, output=output, quiet=quiet)
    if name is None:
        _list(as_json=as_json)
        return
    chosen = runlog_schema.schema(name)
    if check:
        checks = runlog_schema.check_logs(files or [])
        if as_json:
            typer.echo(json.dumps(checks.to_dict(), indent=2, ensure_ascii=False))
        elif not quiet:
            _show(checks)
        if not checks.sound:
            raise typer.Exit(2)
    elif output is None or output == "-":
        typer.echo(chosen.text(), nl=False)
    else:
        check_path(output)
        with atomic_write(output) as path:
            path.write_text(chosen.text(), encoding="utf-8")


def _refuse_contradictions(
    name: str | None, files: Sequence[str], *, check: bool, output: str | None, quiet: bool
) -> None:
    if check and not files:
        raise UsageError("--check needs the logs: karat schema run-log --check runs/*.jsonl")
    if files and not check:
        raise UsageError(f"add --check to check {files[0]!r}; without it, name one schema")
    if check and output is not None:
        raise UsageError("-o writes a schema; --check prints its result, with --json as JSON")
    if output is not None and name is None:
        raise UsageError("-o writes one schema; name it: karat schema run-log -o FILE")
    if quiet and not check:
        raise UsageError("--quiet is for --check; leave it out")


def _list(*, as_json: bool) -> None:
    from karat.formats.runlog_schema import SCHEMAS

    if as_json:
        typer.echo(json.dumps([known.to_dict() for known in SCHEMAS.values()], indent=2))
        return
    for known in SCHEMAS.values():
        typer.echo(f"{known.name}  version {known.version}: {known.about}")
    typer.echo("\nkarat schema NAME prints one; karat schema NAME --check FILE... checks files.")


def _show(checks: LogChecks) -> None:
    from karat.pages.formatting import label
    from karat.pages.terminal import show_table, standard_console

    for line in checks.summary():
        typer.echo(line)
    if checks.sound_logs:
        typer.echo()
        show_table(checks.table(), standard_console())
    for log in checks.sound_logs:
        if log.differing:
            typer.echo(f"{label(log.name)}: not the same in all lines: {', '.join(log.differing)}")
    for log in checks.logs:
        for line in log.problems():
            typer.echo(line, err=True)
