"""``@command(NAME)``: a function whose parameters are options, or groups of them, is a command.

A parameter's default declares it: ``argument``, ``option`` or ``flag``. Its annotation says what
it takes: ``str``, ``int``, ``float``, ``bool``, or a list of texts. A group is a dataclass of such
fields, declared once in ``karat.cli.options`` and shared by commands::

    @command("sweep")
    def sweep(
        inputs: ScoringOptions,
        output: PageOptions,
        *,
        ks: str | None = option("--k", "K,K...", "The cut-offs. Default: 1,3,5,10,20."),
    ) -> int | None:
        \"\"\"Show how measures change with the cut-off.

Examples:
          karat sweep bm25.trec --gold qrels.txt
        \"\"\"

The docstring is the help. A command returns its exit code; None is 0.
"""

from __future__ import annotations

import argparse
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from types import NoneType
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

from karat.errors import UsageError, unknown

WIDTH = 100
_HELP_COLUMN = 28
REQUIRED: Any = object()
MOST = 1_000_000


@dataclass(frozen=True)
class Parameter:
    """An option or argument: its spelling, its purpose, and the numbers it takes."""

    names: tuple[str, ...]
    metavar: str
    help: str
    default: Any = None
    least: float = 1
    most: float = MOST
    otherwise: str | None = None

    @property
    def written(self) -> str:
        """Its form in help: ``-o, --output OUT``."""
        return " ".join(filter(None, [", ".join(self.names), self.metavar]))


def option(names: str, metavar: str, help: str, default: Any = None, **limits: Any) -> Any:
    """Declare an option with a value; ``names`` are separated by commas.

    ``least`` and ``most`` limit a number; ``otherwise`` is a word accepted instead.
    """
    return Parameter(tuple(names.split(", ")), metavar, help, default, **limits)


def flag(names: str, help: str, default: bool | None = False) -> Any:
    """Declare an option without a value; with the default None there is also ``--no-NAME``."""
    return Parameter(tuple(names.split(", ")), "", help, default)


def argument(metavar: str, help: str, default: Any = REQUIRED) -> Any:
    """Declare an argument; one that ends in ``...`` may be given several times."""
    return Parameter((), metavar, help, default)


@dataclass(frozen=True, eq=False)
class _Slot:
    """Where the value of a parameter goes: a name, the type it has, and the groups that take it."""

    name: str
    parameter: Parameter
    kind: Any
    many: bool

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return self.parameter.names[-1] if self.parameter.names else self.parameter.metavar


class Command:
    """A command: its parameters, its help, and the function that it calls.

    ``about`` says what it does, ``examples`` are the lines of its examples.
    """

    def __init__(self, function: Callable[..., int | None]) -> None:
        about, _, examples = (inspect.getdoc(function) or "").partition("Examples:\n")
        self.function, self.about = function, about.strip()
        self.examples = textwrap.dedent(examples).splitlines()

    @cached_property
    def groups(self) -> dict[str, Any]:
        """The groups of options, by the name of their argument."""
        hints = get_type_hints(self.function).items()
        return {name: hint for name, hint in hints if is_dataclass(hint)}

    @cached_property
    def slots(self) -> dict[str, _Slot]:
        """Every option and argument, those of the groups among them."""
        slots: dict[str, _Slot] = {}
        hints = get_type_hints(self.function)
        for name, parameter in inspect.signature(self.function).parameters.items():
            group = self.groups.get(name)
            if group is None:
                slots.setdefault(name, _slot(name, parameter.default, hints[name]))
                continue
            group_hints = get_type_hints(group)
            for field in fields(group):
                hint = group_hints[field.name]
                slots.setdefault(field.name, _slot(field.name, field.default, hint))
        return slots

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters, arguments first."""
        every = [slot.parameter for slot in self.slots.values()]
        return sorted(every, key=lambda parameter: bool(parameter.names))

    def usage(self, name: str) -> str:
        """Return how the command is called."""
        needed = []
        for parameter in self.parameters:
            required = parameter.default is REQUIRED
            if not parameter.names:
                needed.append(parameter.metavar if required else f"[{parameter.metavar}]")
            elif required:
                needed.append(f"{parameter.names[-1]} {parameter.metavar}")
        return " ".join(["karat", name, *needed, "[OPTIONS]"])

    def help(self, name: str) -> str:
        """Return the text of ``--help``."""
        arguments = [(each.metavar, each.help) for each in self.parameters if not each.names]
        options = [(each.written, each.help) for each in self.parameters if each.names]
        parts = [f"Usage: {self.usage(name)}"]
        parts += [textwrap.fill(" ".join(part.split()), WIDTH) for part in self.about.split("\n\n")]
        parts += [f"Arguments:\n{definitions(arguments)}"] if arguments else []
        parts.append(f"Options:\n{definitions([*options, ('-h, --help', 'Show this help.')])}")
        if self.examples:
            parts.append("Examples:\n" + "\n".join(f"  {line}" for line in self.examples))
        return "\n\n".join(parts) + "\n"

    def run(self, name: str, words: Sequence[str]) -> int:
        """Parse the words after the command's name, and call it."""
        values = self.parse(name, words)
        arguments: dict[str, Any] = {}
        for key in inspect.signature(self.function).parameters:
            group = self.groups.get(key)
            if group is None:
                arguments[key] = values[key]
            else:
                arguments[key] = group(
                    **{field.name: values[field.name] for field in fields(group)}
                )
        return self.function(**arguments) or 0

    def parse(self, name: str, words: Sequence[str]) -> dict[str, Any]:
        """Return the value of each parameter; raise UsageError for missing ones."""
        parser = _Parser(prog=f"karat {name}", add_help=False, allow_abbrev=False)
        slots = self.slots.values()
        for slot in slots:
            if slot.parameter.names:
                _declare(parser, slot)
        end = words.index("--") if "--" in words else len(words)
        known, rest = parser.parse_known_args(list(words[:end]))
        for word in rest:
            if word.startswith("-") and word != "-":
                names = [name for slot in slots for name in slot.parameter.names]
                raise unknown("option", word.partition("=")[0], names)
        rest += words[end + 1 :]
        given = vars(known)
        for slot in slots:
            if not slot.parameter.names:
                given[slot.name] = rest if slot.many else next(iter(rest), None)
                rest = [] if slot.many else rest[1:]
        if rest:
            raise UsageError(f"unexpected argument {rest[0]!r}; see {parser.prog} --help")
        values = {name: self._value(slot, given[name]) for name, slot in self.slots.items()}
        for name, slot in self.slots.items():
            if slot.parameter.default is REQUIRED and values[name] in (None, []):
                raise UsageError(f"{slot.shown} is missing; see {parser.prog} --help")
        return values

    def _value(self, slot: _Slot, given: Any) -> Any:
        parameter = slot.parameter
        if given is None or (slot.many and not given):
            if slot.many and parameter.default is not None:
                return []
            return None if parameter.default is REQUIRED else parameter.default
        if slot.kind is int and isinstance(given, str) and given != parameter.otherwise:
            return whole(slot.shown, given, parameter)
        if slot.kind is float and isinstance(given, str):
            return decimal(slot.shown, given, parameter)
        return given


# Every command of the modules loaded so far, by name; a name of two words is in a group.
COMMANDS: dict[str, Command] = {}


def command(*names: str) -> Callable[[Callable[..., int | None]], Command]:
    """Make a function the command of that name, or of several."""

    def declare(function: Callable[..., int | None]) -> Command:
        declared = Command(function)
        COMMANDS.update(dict.fromkeys(names, declared))
        return declared

    return declare


def _slot(name: str, parameter: Any, hint: Any) -> _Slot:
    if not isinstance(parameter, Parameter):
        raise TypeError(f"{name} is declared by option(), flag() or argument()")
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
    many = get_origin(hint) is list or any(get_origin(kind) is list for kind in kinds)
    return _Slot(name, parameter, str if many else kinds[0], many)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


class _Once(argparse.Action):
    """Takes one value, and refuses a second instead of silently ignoring one."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        if getattr(namespace, self.dest) is not None:
            raise UsageError(f"{option_string} is given twice; it takes one value")
        setattr(namespace, self.dest, values)


def _declare(parser: argparse.ArgumentParser, slot: _Slot) -> None:
    parameter = slot.parameter
    if slot.kind is bool and parameter.default is None:
        action = argparse.BooleanOptionalAction
        parser.add_argument(*parameter.names, dest=slot.name, action=action, default=None)
    elif slot.kind is bool:
        parser.add_argument(*parameter.names, dest=slot.name, action="store_true")
    else:
        parser.add_argument(
            *parameter.names,
            dest=slot.name,
            action="append" if slot.many else _Once,
        )


def whole(shown: str, text: str, limits: Parameter) -> int:
    """Return the whole number that an option was given."""
    digits = text.removeprefix("-")
    # Python accepts more decimals than karat, and long ones are slow.
    plain = digits.isascii() and digits.isdecimal() and len(digits) < 20
    if plain and limits.least <= int(text) <= limits.most:
        return int(text)
    more = f", or {limits.otherwise}" if limits.otherwise else ""
    raise UsageError(
        f"{shown} is {text!r}; give a whole number from {limits.least:,} to {limits.most:,}{more}"
    )


def decimal(shown: str, text: str, limits: Parameter) -> float:
    """Return the number that an option was given."""
    try:
        number = float("nan") if "_" in text else float(text)
    except ValueError:
        number = float("nan")
    if limits.least <= number <= limits.most:
        return number
    upper = "" if limits.most >= 1e9 else f" to {limits.most:g}"
    raise UsageError(f"{shown} is {text!r}; a number from {limits.least:g}{upper} is expected")


def definitions(rows: Sequence[tuple[str, str]]) -> str:
    """Return terms and their explanations in two columns."""
    lines = []
    for term, text in rows:
        wrapped = textwrap.wrap(text, WIDTH - _HELP_COLUMN) or [""]
        fits = len(term) + 4 <= _HELP_COLUMN
        lines += [f"  {term:<{_HELP_COLUMN - 2}}{wrapped.pop(0)}"] if fits else [f"  {term}"]
        lines += [" " * _HELP_COLUMN + line for line in wrapped]
    return "\n".join(lines)
