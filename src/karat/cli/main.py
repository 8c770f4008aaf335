"""The entry point: the commands under one name, and every error as one line and an exit code."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

import karat
from karat.cli.command import Command, definitions
from karat.cli.options import echo
from karat.cli.streams import open_streams
from karat.errors import KaratError, MisfitError, UsageError, unknown
from karat.process_limits import check_limits, no_room

EXIT_OK, EXIT_BAD, EXIT_BUG, EXIT_INTERRUPTED, EXIT_PIPE_CLOSED = 0, 2, 70, 130, 141

# The module of each command; a module is loaded when its command is called.
_MODULES = {
    "start": ("demo", "init", "check"),
    "evaluate": ("eval", "compare", "run"),
    "analyze": ("sweep", "triage", "stages", "stress", "diagnose", "chunks"),
    "label": ("pool", "judge", "calibrate", "next"),
    "labels": (
        *("labels", "labels list", "labels new", "labels import", "labels conflicts"),
        *("labels adjudicate", "labels withdraw", "labels agreement", "labels export"),
        "labels log",
    ),
    "data": ("search", "convert", "measures", "schema"),
    "workbench": ("history", "serve"),
    "compat": ("ab", "story"),
}
COMMANDS = {name: module for module, names in _MODULES.items() for name in names}
# Functions that cannot have the name of their command.
_FUNCTIONS = {"eval": "evaluate", "next": "next_judgments", "labels": "labels_list"}
_HELP = {"-h", "--help"}
_ABOUT = "Measure retrieval quality: is it good enough, did the change help, what to fix next."
_START = """\
Start here:
  karat demo
  karat eval bm25.trec --gold qrels.txt -m nDCG@10 -m R@100
"""


def load_command(name: str) -> Command:
    """Return a command by its name, such as ``eval`` or ``labels import``."""
    function = _FUNCTIONS.get(name, name.replace(" ", "_"))
    found: Command = getattr(import_module(f"karat.cli.{COMMANDS[name]}"), function)
    return found


def help_text() -> str:
    """Return the text of ``karat --help``."""
    summaries = [
        (name, load_command(name).about.partition("\n")[0]) for name in COMMANDS if " " not in name
    ]
    return (
        f"Usage: karat COMMAND [OPTIONS]\n\n{_ABOUT}\n\nCommands:\n{definitions(summaries)}\n\n"
        "karat COMMAND --help describes a command; karat --version prints the version.\n\n"
        f"{_START}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; never raises what a user could cause."""
    # A command ends before garbage in cycles could add up, and looking for it takes a tenth
    # of the time that a small evaluation takes.
    gc.disable()
    with contextlib.ExitStack() as stack:
        stack.enter_context(open_streams())
        if os.environ.get("GITHUB_ACTIONS"):
            from karat.reports.github import guarded_streams

            # What karat prints must not be read as commands.
            stack.enter_context(guarded_streams())
        return _run(list(sys.argv[1:] if arguments is None else arguments))


def _run(arguments: list[str]) -> int:
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        _close_quietly()
        return EXIT_PIPE_CLOSED
    except KeyboardInterrupt as stop:
        return _refuse(str(stop) or "interrupted; nothing was written", EXIT_INTERRUPTED)
    except MemoryError:
        return _refuse("out of memory; score fewer runs or measures at a time")
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{place}{error.strerror or error}")
    except Exception as error:
        if no_room(error):
            return _refuse(f"out of memory: a library cannot be loaded ({error}); raise the limit")
        # Everything that reaches this line is a bug in karat.
        if os.environ.get("KARAT_DEBUG"):
            traceback.print_exc()
            return EXIT_BUG
        summary = f"{type(error).__name__}: {error}"[:300]
        return _refuse(f"a bug in karat: {summary}; KARAT_DEBUG=1 shows where", EXIT_BUG)
    return code


def _invoke(arguments: list[str]) -> int:
    try:
        name, words = _split(arguments)
        if "--version" in arguments[:1]:
            echo(f"karat {karat.__version__}")
            return EXIT_OK
        if name is None:
            asked = _HELP & set(arguments)
            echo(help_text(), err=not asked, end="")
            return EXIT_OK if asked else EXIT_BAD
        command = load_command(name)
        if _HELP & set(words[: words.index("--")] if "--" in words else words):
            echo(command.help(name), end="")
            return EXIT_OK
        check_limits()
        return command.run(name, words)
    except MisfitError as error:
        return _refuse_in_lines(error)
    except KaratError as error:
        return _refuse(str(error))


def _split(arguments: list[str]) -> tuple[str | None, list[str]]:
    """Return the name of the command, the longest that fits, and the words after it."""
    if not arguments or arguments[0].startswith("-"):
        return None, arguments
    for length in (2, 1):
        name = " ".join(arguments[:length])
        if name in COMMANDS:
            words = arguments[length:]
            parts = [part.removeprefix(f"{name} ") for part in COMMANDS if f"{name} " in part]
            if parts and words and not words[0].startswith("-"):
                raise unknown("command", words[0], parts, inside=f"karat {name} {words[0]}")
            return name, words
    names = [command for command in COMMANDS if " " not in command]
    raise UsageError(f"{unknown('command', arguments[0], names)}; see karat --help")


def _refuse(message: str, code: int = EXIT_BAD) -> int:
    line = " ".join(message.split())
    # Where nobody can be told why, the exit code says that something is wrong.
    with contextlib.suppress(OSError):
        echo(f"karat: {line}", err=True)
    return code


def _refuse_in_lines(error: MisfitError) -> int:
    """Print the sentence, then examples of both sides below each other."""
    code = _refuse(f"{error.summary}.")
    for line in error.details:
        # What steers a terminal is shown, not obeyed.
        printable = "".join(
            letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line
        )
        echo(f"  {printable}", err=True)
    return code


def _close_quietly() -> None:
    """Let the interpreter's last flush go nowhere: the reader of our output has gone."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
