"""``@command``: a function whose parameters may be groups of options becomes a Typer command.

A group is a frozen, keyword-only dataclass whose fields are Typer options; it is declared once,
in ``karat.cli.options``, and shared by every command that takes it. To write a command::

    @command
    def sweep(inputs: ScoringOptions, output: PageOptions, ks: Ks = None) -> None:
        \"\"\"Show how measures change with the cut-off.\"\"\"
        with inputs.evaluation() as evaluation:
            ...

``karat sweep --help`` then shows the options of ``ScoringOptions`` and ``PageOptions`` and
``--k``, in this order, with their help and defaults; ``inputs`` and ``output`` arrive as objects.
A command that needs other help for one option inherits from the group and annotates the field
anew. An option that two groups have is declared once, and both get its value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

Command = Callable[..., None]


def command(function: Command) -> Command:
    """Return the function with every group of options expanded into its options."""
    hints = get_type_hints(function, include_extras=True)
    expanded: dict[str, inspect.Parameter] = {}
    groups: dict[str, Any] = {}
    plain: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if not is_dataclass(hints[name]):
            plain.append(name)
            expanded[name] = _parameter(name, hints[name], parameter.default)
            continue
        groups[name] = hints[name]
        annotations = get_type_hints(hints[name], include_extras=True)
        for field in fields(hints[name]):
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            expanded.setdefault(
                field.name, _parameter(field.name, annotations[field.name], default)
            )

    @wraps(function)
    def run(**values: Any) -> None:
        arguments = {name: values[name] for name in plain}
        for name, group in groups.items():
            own = {field.name: values[field.name] for field in fields(group)}
            arguments[name] = group(**own)
        function(**arguments)

    # Typer reads the signature and the annotations.
    run.__signature__ = inspect.Signature(list(expanded.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: one.annotation for name, one in expanded.items()}
    return run


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)
