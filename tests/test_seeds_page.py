"""docs/seeds.md names a test for every requirement, and every test that it names is there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8")
CHAPTERS = {"story": "S", "rag": "R", "memory": "M", "ab": "A", "minimal": "N"}
_TEST = re.compile(r"tests/[\w/]+\.py(?:::\w+)?")


def rows(chapter: str) -> list[list[str]]:
    """The cells of every table row of a chapter."""
    text = PAGE.partition(f"\n## {chapter}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    # The line above |---|---| is the head of its table.
    rules = {at for at, line in enumerate(lines) if set(line) <= set("|-: ")}
    told = [line for at, line in enumerate(lines) if not rules & {at, at + 1}]
    return [[one.strip() for one in re.split(r"(?<!\\)\|", line)[1:-1]] for line in told]


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef))


BETWEEN = "Where the documents contradict each other"


@pytest.mark.parametrize("chapter", [*CHAPTERS, BETWEEN])
def test_every_row_has_a_test_that_exists(chapter):
    assert len(rows(chapter)) >= (8 if chapter == BETWEEN else 20)
    for row in rows(chapter):
        named = _TEST.findall(row[-1])
        assert named, f"no test: {row[:3]}"
        assert all(row), f"an empty cell: {row[:3]}"
        for test in named:
            file, _, name = test.partition("::")
            assert (ROOT / file).is_file(), f"{row[0]}: {file} is not there"
            assert name in names_in(file), f"{row[0]}: {test} is not there"


@pytest.mark.parametrize(("chapter", "letter"), CHAPTERS.items())
def test_requirements_are_numbered_without_a_gap(chapter, letter):
    numbers = [row[0] for row in rows(chapter) if re.fullmatch(r"[A-Z]\d+", row[0])]
    assert numbers == [f"{letter}{n}" for n in range(1, len(numbers) + 1)]


def test_no_requirement_stands_twice():
    told = Counter(row[2] for chapter in CHAPTERS for row in rows(chapter) if len(row) == 5)
    assert [text for text, count in told.items() if count > 1] == []


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_document_has_its_page_and_its_recipe(chapter):
    assert (ROOT / "docs" / f"seed-{chapter}.md").is_file()
    assert (ROOT / "src" / "karat" / "recipes" / chapter / "karat.yaml").is_file()
    assert f"(seed-{chapter}.md)" in PAGE
