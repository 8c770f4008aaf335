"""Where karat keeps what it made: indexes, calls, judgments and the history."""

from __future__ import annotations

OWN_FOLDER = ".karat"
