"""The entry point: runs a command, and turns every error into one line and an exit code."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

import karat
from karat.cli.command import COMMANDS, Command, definitions
from karat.cli.options import echo
from karat.cli.streams import open_streams
from karat.errors import KaratError, MisfitError, UsageError, unknown
from karat.process_limits import LIMITS, check_limits, no_room

EXIT_OK, EXIT_BAD, EXIT_BUG, EXIT_INTERRUPTED, EXIT_PIPE_CLOSED = 0, 2, 70, 130, 141

# The modules with commands, searched in this order and loaded one by one.
_MODULES = ("evaluate", "start", "analyze", "label", "labels", "data", "workbench", "compat")
_HELP = {"-h", "--help"}
_ABOUT = "Measure retrieval quality: is it good enough, did the change help, what to fix next."
_START = """\
Start here:
  karat demo
  karat eval bm25.trec --gold qrels.txt -m nDCG@10 -m R@100
"""


class _LoadedLater(ModuleType):
    """A placeholder for a slow module, loaded at first use."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = import_module(self.__name__)
        vars(self).update(vars(module))
        return getattr(module, name)


def load_command(name: str) -> Command | None:
    """Return a command by its name, such as ``eval`` or ``labels import``."""
    for module in _MODULES:
        import_module(f"karat.cli.{module}")
        if name in COMMANDS:
            return COMMANDS[name]
    return None


def load_commands() -> dict[str, Command]:
    """Return every command by its name."""
    load_command("")
    return COMMANDS


def help_text() -> str:
    """Return the text of ``karat --help``."""
    summaries = [
        (name, command.about.partition("\n")[0])
        for name, command in load_commands().items()
        if " " not in name
    ]
    return (
        f"Usage: karat COMMAND [OPTIONS]\n\n{_ABOUT}\n\nCommands:\n{definitions(summaries)}\n\n"
        "karat COMMAND --help describes a command; karat --version prints the version.\n\n"
        f"{_START}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; user errors never raise."""
    # A command ends before garbage in cycles could add up, and looking for it takes a tenth
    # of the time that a small evaluation takes.
    gc.disable()
    # NumPy's threads sleep while they have no work; in a loop they would use a third of the time.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    with contextlib.ExitStack() as stack:
        stack.enter_context(open_streams())
        if os.environ.get("GITHUB_ACTIONS"):
            from karat.reports.github import guarded_streams

            # Output must not be read as workflow commands.
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
        if arguments[:1] == ["--version"]:
            echo(f"karat {karat.__version__}")
            return EXIT_OK
        if not arguments or arguments[0].startswith("-"):
            asks = _HELP & set(arguments)
            echo(help_text(), err=not asks, end="")
            return EXIT_OK if asks else EXIT_BAD
        name, command, words = _find_command(arguments)
        if _HELP & set(words[: words.index("--")] if "--" in words else words):
            echo(command.help(name), end="")
            return EXIT_OK
        if LIMITS:
            check_limits()
        # Plain files are scored before Polars could be loaded.
        sys.modules.setdefault("polars", _LoadedLater("polars"))
        return command.run(name, words)
    except MisfitError as error:
        return _refuse_in_lines(error)
    except KaratError as error:
        return _refuse(str(error))


def _find_command(arguments: list[str]) -> tuple[str, Command, list[str]]:
    """Return the name of the command, the command, and the words after it."""
    name, *words = arguments
    command = load_command(name)
    if command is None:
        names = [known for known in COMMANDS if " " not in known]
        raise UsageError(f"{unknown('command', name, names)}; see karat --help")
    group = [known.removeprefix(f"{name} ") for known in COMMANDS if known.startswith(f"{name} ")]
    if group and words and not words[0].startswith("-"):
        part, *words = words
        if part not in group:
            raise unknown("command", part, group, inside=f"karat {name} {part}")
        name = f"{name} {part}"
    return name, COMMANDS[name], words


def _refuse(message: str, code: int = EXIT_BAD) -> int:
    line = " ".join(message.split())
    # Without a stream for the message, the exit code reports the error.
    with contextlib.suppress(OSError):
        echo(f"karat: {line}", err=True)
    return code


def _refuse_in_lines(error: MisfitError) -> int:
    """Print the sentence, then examples of both sides below each other."""
    code = _refuse(f"{error.summary}.")
    for line in error.details:
        # Control characters are shown, not sent to the terminal.
        printable = "".join(
            letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line
        )
        echo(f"  {printable}", err=True)
    return code


def _close_quietly() -> None:
    """Discard the interpreter's last flush: the reader of the output has closed it."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
