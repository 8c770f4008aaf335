"""What pyproject.toml declares: dependencies of the core and of each extra, and what they bring."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent

# Extras for those who work on karat; all others are for those who use it.
TOOLS = ("test", "check", "fuzz", "release")


@cache
def project() -> dict[str, Any]:
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return dict(whole["project"])


def extras() -> list[str]:
    """The extras that a user installs."""
    return [name for name in project()["optional-dependencies"] if name not in TOOLS]


@cache
def core() -> tuple[Requirement, ...]:
    return tuple(Requirement(line) for line in project()["dependencies"])


@cache
def of_extra(extra: str) -> tuple[Requirement, ...]:
    """What an extra asks for itself; an extra that names others asks for what they ask for."""
    found: list[Requirement] = []
    for line in project()["optional-dependencies"][extra]:
        one = Requirement(line)
        if canonicalize_name(one.name) == project()["name"]:
            found += [other for name in sorted(one.extras) for other in of_extra(name)]
        else:
            found.append(one)
    return tuple(found)


def direct() -> dict[str, Requirement]:
    """Each package that the core or an extra for users names, by its name on the index."""
    return {canonicalize_name(one.name): one for one in _wanted()}


def installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def needs(one: Requirement) -> list[Requirement]:
    """What an installed package needs here, with the extras that it was asked with."""
    held = installed(one.name)
    lines = [] if held is None else held.requires or []
    wanted = [Requirement(line) for line in lines]
    asked = ["", *one.extras]
    return [
        other
        for other in wanted
        if other.marker is None or any(other.marker.evaluate({"extra": extra}) for extra in asked)
    ]


def closure(wanted: list[Requirement]) -> dict[str, Distribution | None]:
    """All that these requirements install, by name; None stands for what is not installed."""
    found: dict[str, Distribution | None] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    ahead = list(wanted)
    while ahead:
        one = ahead.pop()
        key = (canonicalize_name(one.name), frozenset(one.extras))
        if key in seen:
            continue
        seen.add(key)
        found[key[0]] = installed(one.name)
        ahead += needs(one)
    return dict(sorted(found.items()))


def everything() -> dict[str, Distribution | None]:
    """All that the core and every extra for users install."""
    return closure(_wanted())


def _wanted() -> list[Requirement]:
    """What the core and the extras for users ask for, on this Python."""
    every = [*core(), *(one for extra in extras() for one in of_extra(extra))]
    return [one for one in every if one.marker is None or one.marker.evaluate()]
