"""What the tests of the help centre share: its lines, and the grades of a question's gold."""

from __future__ import annotations

import json
from pathlib import Path

LANGUAGES = ("en", "pt-BR", "es-AR")


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def grades(question: dict) -> dict[str, int]:
    return {
        entry if isinstance(entry, str) else entry["chunk_id"]: 2
        if isinstance(entry, str)
        else entry["grade"]
        for entry in question["gold_evidence"]
    }
