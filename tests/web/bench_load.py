"""The clients, the server and the checks of bench/load.py, which are scripts and no package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

_BENCH = Path(__file__).parents[2] / "bench"


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"bench_{name}", _BENCH / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


stage, checks = _module("loading_stage"), _module("loading_checks")
