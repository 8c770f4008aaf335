"""Groups of options become the options of a command, each declared once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from karat.cli.command import command

Name = Annotated[str, typer.Option("--name", help="Its name.")]
Loud = Annotated[bool, typer.Option("--loud", help="In capitals.")]
Many = Annotated[list[str] | None, typer.Option("--tag", help="Repeatable.")]


@dataclass(frozen=True, kw_only=True)
class Naming:
    name: Name
    loud: Loud = False


@dataclass(frozen=True, kw_only=True)
class Tagging:
    tag: Many = None
    loud: Loud = False


def app() -> typer.Typer:
    made = typer.Typer()

    @made.command()
    @command
    def greet(naming: Naming, tagging: Tagging, times: int = 1) -> None:
        """Greet somebody."""
        text = f"{naming.name} {tagging.tag or []}" * times
        typer.echo(text.upper() if naming.loud and tagging.loud else text)

    return made


def test_groups_are_expanded_with_their_defaults():
    done = CliRunner().invoke(app(), ["--name", "ada", "--tag", "x", "--tag", "y"])
    assert done.output == "ada ['x', 'y']\n"
    assert CliRunner().invoke(app(), ["--name", "ada"]).output == "ada []\n"
    assert CliRunner().invoke(app(), []).exit_code == 2


def test_an_option_of_two_groups_is_declared_once_and_reaches_both():
    assert CliRunner().invoke(app(), ["--name", "ada", "--loud"]).output == "ADA []\n"
    help_ = CliRunner().invoke(app(), ["--help"]).output
    assert help_.count("--loud") == 1
    assert "Greet somebody." in help_
