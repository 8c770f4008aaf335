"""The entry point: the commands under one name, and every error as one line and an exit code."""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import Annotated, Any

import typer
from typer.main import get_command

import karat
from karat.cli import (
    ab,
    calibrate,
    check,
    chunks,
    compare,
    convert,
    demo,
    diagnose,
    evaluate,
    history,
    init,
    judge,
    labels,
    measures,
    pool,
    run,
    schema,
    search,
    serve,
    stages,
    story,
    stress,
    sweep,
    triage,
)
from karat.cli import (
    next as next_command,
)
from karat.cli.streams import lookalikes, open_streams
from karat.errors import KaratError, MisfitError, UsageError
from karat.process_limits import check_limits, no_room
from karat.report.workflow_commands import guarded_streams, in_workflow

EXIT_OK, EXIT_BAD, EXIT_BUG, EXIT_INTERRUPTED, EXIT_PIPE_CLOSED = 0, 2, 70, 130, 141

# Typer brings its own copy of click or imports it, depending on its version: this is what
# either raises for an option or argument that it refuses.
_Refusal: type[Exception] = typer.BadParameter.__mro__[1]
_HELP = ["-h", "--help"]

app = typer.Typer(
    name="karat",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": _HELP, "max_content_width": 100},
)

EXAMPLES = """\b
Start here:
  karat demo
  karat eval bm25.trec --gold qrels.txt -m nDCG@10 -m R@100
"""


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def karat_command(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
) -> None:
    """Measure retrieval quality: is it good enough, did the change help, what to fix next."""
    if version:
        typer.echo(f"karat {karat.__version__}")
        raise typer.Exit(EXIT_OK)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(EXIT_BAD)


app.command("eval", epilog=evaluate.EXAMPLES)(evaluate.evaluate)
app.command("compare", epilog=compare.EXAMPLES)(compare.compare)
app.command("search", epilog=search.EXAMPLES)(search.search)
app.command("run", epilog=run.EXAMPLES)(run.run)
app.command("chunks", epilog=chunks.EXAMPLES)(chunks.chunks)
app.command("diagnose", epilog=diagnose.EXAMPLES)(diagnose.diagnose)
app.command("stress", epilog=stress.EXAMPLES)(stress.stress)
app.command("stages", epilog=stages.EXAMPLES)(stages.stages)
app.command("sweep", epilog=sweep.EXAMPLES)(sweep.sweep)
app.command("triage", epilog=triage.EXAMPLES)(triage.triage)
app.command("pool", epilog=pool.EXAMPLES)(pool.pool)
app.command("judge", epilog=judge.EXAMPLES)(judge.judge)
app.command("next", epilog=next_command.EXAMPLES)(next_command.next_)
app.command("calibrate", epilog=calibrate.EXAMPLES)(calibrate.calibrate)
app.add_typer(labels.app, name="labels")
app.command("ab", epilog=ab.EXAMPLES)(ab.ab)
app.command("story", epilog=story.EXAMPLES)(story.story)
app.command("init", epilog=init.EXAMPLES)(init.init)
app.command("history", epilog=history.EXAMPLES)(history.history)
app.command("serve", epilog=serve.EXAMPLES)(serve.serve)
app.command("check", epilog=check.EXAMPLES)(check.check)
app.command("convert", epilog=convert.EXAMPLES)(convert.convert)
app.command("schema", epilog=schema.EXAMPLES)(schema.schema)
app.command("measures", epilog=measures.EXAMPLES)(measures.measures)
app.command("demo", epilog=demo.EXAMPLES)(demo.demo)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; never raises what a user could cause."""
    # A command ends before garbage in cycles could add up, and looking for it takes a tenth
    # of the time that a small evaluation takes.
    gc.disable()
    with open_streams():
        _survive_any_encoding()
        with guarded_streams():
            return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = _invoke(list(sys.argv[1:] if arguments is None else arguments))
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
        # Whatever reaches this line is a bug of ours, and says so instead of what it did.
        if os.environ.get("KARAT_DEBUG"):
            if not in_workflow(os.environ):
                raise
            # The interpreter would print it after the guard of the streams is gone.
            traceback.print_exc()
            return EXIT_BUG
        told = f"{type(error).__name__}: {error}"
        return _refuse(f"a bug in karat: {told[:300]}; KARAT_DEBUG=1 shows where", EXIT_BUG)
    return code


def _invoke(arguments: list[str]) -> int:
    command = get_command(_only_what_is_called(arguments))
    called = _called(command, arguments)
    for one in called:
        _take_values_as_they_are(one)
    try:
        _refuse_repeated(called[-1], arguments)
        # Help and the version need no libraries.
        if not {*_HELP, "--version"} & set(arguments):
            check_limits()
        with command.make_context("karat", arguments) as context:
            command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except MisfitError as error:
        return _refuse_in_lines(error)
    except KaratError as error:
        return _refuse(str(error))
    except _Refusal as error:
        return _refuse(_in_our_words(error))
    return EXIT_OK


def _only_what_is_called(arguments: Sequence[str]) -> typer.Typer:
    """The app with the one command that is called: Typer takes its time to prepare each."""
    only = copy.copy(app)
    first = list(arguments[:1])
    commands = [one for one in app.registered_commands if [one.name] == first]
    groups = [one for one in app.registered_groups if [one.name] == first]
    if commands or groups:
        only.registered_commands, only.registered_groups = commands, groups
    return only


def _called(command: Any, arguments: Sequence[str]) -> list[Any]:
    """The whole and the commands within it that the first words name, each within the last."""
    found = [command]
    for word in arguments:
        inner = getattr(found[-1], "commands", {}).get(word)
        if inner is None:
            break
        found.append(inner)
    return found


def _refuse_repeated(command: Any, arguments: Sequence[str]) -> None:
    """An option that takes one value is given once: of two, one would be silently ignored."""
    given = [word.partition("=")[0] for word in takewhile(lambda word: word != "--", arguments)]
    options = [one for one in command.params if one.param_type_name == "option"]
    for parameter in options:
        single = not parameter.multiple and not parameter.is_flag
        if single and sum(given.count(name) for name in parameter.opts) > 1:
            raise UsageError(f"{parameter.opts[0]} is given twice; it takes one value")


def _take_values_as_they_are(command: Any) -> None:
    """Spare a tenth of a second: Typer loads pydantic to convert what is text or a flag anyway."""
    for parameter in command.get_params(typer.Context(command, help_option_names=_HELP)):
        described = getattr(parameter, "type_descriptor", None)
        if getattr(described, "annotation", None) in (str, bool, list[str]):
            parameter.process_value = partial(_take, parameter, parameter.process_value)


def _take(parameter: Any, convert: Callable[..., Any], context: Any, value: Any) -> Any:
    lacking = parameter.required and value in (None, (), [])
    acts = parameter.callback is not None and value
    if lacking or acts:
        return convert(context, value)
    several = getattr(parameter, "multiple", False) or parameter.nargs == -1
    return [] if value is None and several else value


def _refuse(message: str, code: int = EXIT_BAD) -> int:
    line = " ".join(message.split())
    # Where nobody can be told why, the exit code says that something is wrong.
    with contextlib.suppress(OSError):
        typer.echo(f"karat: {line}", err=True)
    return code


def _refuse_in_lines(error: MisfitError) -> int:
    """The sentence, then examples of both sides below each other."""
    code = _refuse(f"{error.summary}.")
    for line in error.details:
        # What steers a terminal is shown, not obeyed.
        printable = "".join(
            one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in line
        )
        typer.echo(f"  {printable}", err=True)
    return code


def _in_our_words(error: Exception) -> str:
    """Typer's refusal as one lower-case line that ends with where to look."""
    format_message = getattr(error, "format_message", error.__str__)
    message = str(format_message()).rstrip(".")
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "karat"
    end = "" if message.endswith("?") else ";"
    return f"{message[:1].lower()}{message[1:]}{end} see {path} --help"


def _survive_any_encoding() -> None:
    """A terminal that cannot show a character shows one that reads alike instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors=lookalikes())  # type: ignore[union-attr]


def _close_quietly() -> None:
    """Whoever read our output has gone: let the interpreter's last flush go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
