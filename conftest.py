"""Set before anything imports Polars: one thread a test process, since xdist brings the others."""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")
