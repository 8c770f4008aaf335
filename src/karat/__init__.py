"""karat measures retrieval quality. The public names; importing costs little and does nothing."""

from __future__ import annotations

import importlib
import os
from typing import Any

from karat.version import __version__ as __version__

# name -> the module that holds it, as the stub lists them; loaded at first use, so that
# ``import karat`` is cheap.
with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as _stub:  # noqa: PTH123
    _HOMES = {words[3]: words[1] for line in _stub if (words := line.split())[:1] == ["from"]}

# Every module of karat.analysis holds the function of its name.
_HOMES |= {
    name: f"karat.analysis.{name}"
    # pathlib would take a third of the time that importing karat takes.
    for file in os.listdir(f"{__path__[0]}/analysis")  # noqa: PTH208
    if (name := file.removesuffix(".py"))[0].isalpha()
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'karat' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
