"""What the labelling commands share: settings, forms of output, and how a result is published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import typer

from karat.cli.options import parse_settings
from karat.cli.publish import EXIT_CANNOT_TELL
from karat.errors import UsageError
from karat.pages.result import Result, to_json
from karat.report.outputs import PAGE_FORMS, Form, Output, forms_of, write_outputs, write_stdout

PAIRS = Form("pool", ".jsonl", "the pairs to judge, one per line", "karat.label.pool.to_jsonl")
PAIR_FORMS = {**forms_of(PAIRS), **PAGE_FORMS}


def settings_of(texts: Sequence[str] | None, seed: str | None) -> dict[str, Any]:
    """Return the settings of ``--set`` and ``--seed``."""
    settings: dict[str, Any] = dict(parse_settings(texts or []))
    if seed is not None and settings.setdefault("seed", seed) != seed:
        raise UsageError("--seed and --set seed=… contradict each other")
    return settings


def input_names(*inputs: str | Sequence[str] | None) -> list[str]:
    """Return the names of all input files, so that no output replaces one."""
    names: list[str] = []
    for given in inputs:
        names += [] if given is None else [given] if isinstance(given, str) else given
    return names


def publish_result(
    result: Result, outputs: Sequence[Output], *, as_json: bool, quiet: bool
) -> None:
    """Write the files, then print the page unless standard output holds something else."""
    write_outputs(outputs, result)
    if as_json:
        write_stdout(to_json(result))
    elif not quiet and all(output.path is not None for output in outputs):
        show(result)


def show(result: Result) -> None:
    """Print the page of a result."""
    from karat.pages.terminal import show_page, standard_console

    show_page(result.page(), standard_console())


def exit_cannot_tell(because: str) -> NoReturn:
    """Leave with exit code 3 and say why there is no answer."""
    typer.echo(f"karat: cannot tell: {because}", err=True)
    raise typer.Exit(EXIT_CANNOT_TELL)
