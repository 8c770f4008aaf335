"""A small corpus in several scripts, a deterministic embedding of it, and systems built by spec."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from karat.data.tables import Corpus
from karat.formats.settings import parse_yaml
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Query
from karat.retrieve.system import SearchSystem, build_system
from karat.retrieve.system_config import SystemConfig, parse_systems

# Ids and texts with accents, CJK, Cyrillic, emoji, spaces and '#'.
TEXTS = {
    "café#1": "Crème brûlée and café au lait at the corner",
    "日本 語#2": "東京 検索 エンジン 評価",
    "🍎 pie": "Apple pie 🍎 with cinnamon and butter",
    "naïve#3": "naïve Bayes sorts spam mail",
    "plain-4": "A plain text about gravel roads",
    "Ж#5": "Поиск по документам и базам",
}
# What each of these should find first.
BEST = {
    "crème brûlée café": "café#1",
    "東京 検索": "日本 語#2",
    "apple pie 🍎 cinnamon": "🍎 pie",
    "naïve Bayes spam": "naïve#3",
    "plain gravel roads": "plain-4",
    "Поиск документам": "Ж#5",
}
NOTHING = "zzyzx qqq"
SIZE = 64

# The same words as ``embed`` below, as a user would write them.
EMBED = f"""\
import zlib


def embed(texts):
    return [[float(number) for number in vector(text)] for text in texts]


def vector(text):
    counts = [0] * {SIZE}
    for size in (1, 2, 3):
        for start in range(len(text) - size + 1):
            gram = text.lower()[start : start + size]
            counts[zlib.crc32(gram.encode()) % {SIZE}] += size
    return counts
"""


def embed(text: str) -> np.ndarray:
    """Counts of grams of characters; longer ones weigh more, and no length is 1."""
    counts = np.zeros(SIZE)
    for size in (1, 2, 3):
        for start in range(len(text) - size + 1):
            gram = text.lower()[start : start + size]
            counts[zlib.crc32(gram.encode()) % SIZE] += size
    return counts


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


def by_cosine(text: str) -> list[str]:
    """The ids as exact cosine ranks them."""
    near = {item: cosine(embed(text), embed(body)) for item, body in TEXTS.items()}
    return sorted(near, key=lambda item: -near[item])


def write_embed(folder: Path) -> str:
    """The embedding as a file of a user's; what it is called in a karat.yaml."""
    (folder / "embed.py").write_text(EMBED, encoding="utf-8")
    return "embed.py:embed"


def context(folder: Path, environment: dict[str, str] | None = None, **more: Any) -> BuildContext:
    return BuildContext(
        corpus=lambda: Corpus.from_dict(TEXTS),
        folder=folder,
        cache=folder / ".karat",
        environment=environment or {},
        **more,
    )


def system_config(yaml: str, name: str = "one") -> SystemConfig:
    """The system of this name as the text of a karat.yaml has it."""
    file = parse_yaml(yaml, "karat.yaml")
    return parse_systems(file.data["systems"], file.place.at("systems"))[name]


def built(shop: BuildContext, yaml: str, name: str = "one") -> SearchSystem:
    """The system of this name, out of the text of a karat.yaml."""
    return build_system(system_config(yaml, name), shop)


def system(shop: BuildContext, spec: str) -> SearchSystem:
    """A system of one line: ``{retriever: bm25}``."""
    return built(shop, f"systems:\n  one: {spec}\n")


def ask(asked: SearchSystem, text: str, k: int = 10, **attributes: Any) -> list[Any]:
    return asked.find([Query("q1", text, attributes)], k)[0].hits


def ids(hits: list[Any]) -> list[str]:
    return [hit.item_id for hit in hits]
