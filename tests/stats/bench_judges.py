"""The simulated judges of bench/judges.py, which is a script and no package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_SCRIPT = Path(__file__).parents[2] / "bench" / "judges.py"
_SPEC = importlib.util.spec_from_file_location("bench_judges", _SCRIPT)
judges = importlib.util.module_from_spec(_SPEC)
# Dataclasses look their module up.
sys.modules["bench_judges"] = judges
_SPEC.loader.exec_module(judges)

World, held = judges.World, judges.held
