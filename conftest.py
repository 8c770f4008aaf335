"""For all tests: one Polars thread a process, since xdist brings the others, and in CI no luck."""

from __future__ import annotations

import os

from hypothesis import settings

# Before anything imports Polars.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

# How long an example takes says more about the machine than about karat. At home every run tries
# new examples; CI repeats the same ones, so that only a change fails it.
settings.register_profile("home", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "home")
