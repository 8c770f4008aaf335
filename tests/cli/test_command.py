"""Groups of options become the options of a command, each declared once."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from karat.cli.command import REQUIRED, Command, argument, flag, option
from karat.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Naming:
    name: str = option("--name", "NAME", "Its name.", REQUIRED)
    loud: bool = flag("--loud", "In capitals.")


@dataclass(frozen=True, kw_only=True)
class Tagging:
    tag: list[str] | None = option("--tag", "TAG", "Repeatable.")
    loud: bool = flag("--loud", "In capitals.")


said: list[object] = []


@Command
def greet(
    naming: Naming,
    tagging: Tagging,
    *,
    others: list[str] | None = argument("OTHER...", "More people.", None),
    times: int = option("-n, --times", "N", "How often.", 1, most=5, otherwise="all"),
    share: float | None = option("--share", "X", "How much.", least=0, most=1),
    polite: bool | None = flag("--polite", "Say please.", None),
) -> int:
    """Greet somebody.

    Twice if asked.

    Examples:
      karat greet --name ada
    """
    said.append((naming.name, tagging.tag, others, times, share, polite, naming.loud, tagging.loud))
    return 7


def call(*words: str) -> object:
    said.clear()
    assert greet.run("greet", words) == 7
    return said[0]


def test_groups_are_expanded_with_their_defaults():
    assert call("--name", "ada") == ("ada", None, None, 1, None, None, False, False)
    assert call("--name=ada", "--tag", "x", "--tag", "y")[1] == ["x", "y"]


def test_an_option_of_two_groups_is_declared_once_and_reaches_both():
    assert call("--name", "ada", "--loud")[-2:] == (True, True)
    assert greet.help("greet").count("--loud") == 1


def test_arguments_and_options_may_stand_in_any_order():
    assert call("bob", "--name", "ada", "eve", "-n", "3")[2:4] == (["bob", "eve"], 3)
    assert call("--name", "ada", "--", "--loud")[2] == ["--loud"]
    assert call("--name", "-", "-")[:3] == ("-", None, ["-"])


def test_values_have_the_type_of_their_annotation():
    assert call("--name", "ada", "-n", "all", "--share", "0.5", "--no-polite")[3:6] == (
        "all",
        0.5,
        False,
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--name is missing; see karat greet --help"),
        (["--name", "a", "--name", "b"], "--name is given twice; it takes one value"),
        (["--name", "a", "-n", "6"], "--times is '6'; give a whole number from 1 to 5, or all"),
        (["--name", "a", "-n", "two"], "--times is 'two'"),
        (["--name", "a", "--share", "1.5"], "--share is '1.5'; a number from 0 to 1 is expected"),
        (["--name", "a", "--share", "nan"], "--share is 'nan'"),
        (["--name", "a", "--loudd"], "unknown option '--loudd'; did you mean --loud?"),
        (["--name", "a", "--lo"], "unknown option '--lo'"),
        (["--name"], "expected one argument"),
    ],
)
def test_bad_usage_is_refused(words, message):
    with pytest.raises(UsageError) as refused:
        greet.run("greet", words)
    assert message in str(refused.value)


def test_help_shows_usage_description_options_and_examples():
    text = greet.help("greet")
    assert text.startswith("Usage: karat greet [OTHER...] --name NAME [OPTIONS]\n\nGreet somebody.")
    assert "Twice if asked." in text
    assert "-n, --times N" in text
    assert text.endswith("Examples:\n  karat greet --name ada\n")
    assert max(map(len, text.splitlines())) <= 100
