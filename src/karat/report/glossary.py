"""The registered measures as plain data: for ``karat measures`` and the reference page."""

from __future__ import annotations

from typing import Any

from karat.errors import unknown
from karat.measures.names import parse_measure
from karat.measures.registry import MEASURES, Definition

# Set by conventions or part of the name, never written as a parameter.
_NOT_WRITTEN = {"path", "recall_point", "versions"}
_CUTOFFS = {"must": "@k", "may": "[@k]", "none": "", "recall": "@x", "path": ".<what>"}


def glossary() -> list[dict[str, Any]]:
    """Return every measure, in alphabetical order."""
    return [entry(MEASURES[name]) for name in sorted(MEASURES, key=str.casefold)]


def entry(definition: Definition) -> dict[str, Any]:
    """Return one measure: how it is written, what it means, which direction is better."""
    parameters = {
        key: value for key, value in definition.parameters.items() if key not in _NOT_WRITTEN
    }
    return {
        "name": definition.name,
        "written": definition.name + _CUTOFFS[definition.cutoff],
        "about": definition.about,
        "better": definition.better,
        "parameters": parameters,
        "aliases": list(definition.aliases),
        "needs": list(definition.needs),
    }


def named(text: str) -> Definition:
    """Return the measure of that name or alias, with or without parameters and cut-off."""
    if any(character in text for character in "@(."):
        return parse_measure(text).definition
    for definition in MEASURES.values():
        if text.casefold() in {name.casefold() for name in (definition.name, *definition.aliases)}:
            return definition
    raise unknown("measure", text, MEASURES)
