"""Check that all libraries that karat imports are declared, in the right extra."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import declared
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SOURCE = declared.ROOT / "src" / "karat"

# Which part of karat may import what an extra brings.
PARTS = {
    "label/judges.py": "judge",
    "pages/charts.py": "charts",
    "recipes/minimal/search_service.py": "web",
    "reports/html/assets.py": "charts",
    "retrieve/bm25.py": "bm25",
    "retrieve/chroma.py": "chroma",
    "retrieve/http": "http",
    "retrieve/langchain.py": "langchain",
    "retrieve/models.py": "dense",
    "retrieve/pgvector": "pgvector",
    "retrieve/qdrant.py": "qdrant",
    "spark/": "spark",
    "store/": "store",
    "web/": "web",
}
# Libraries that are imported by another name than they are installed by.
NAMES = {
    "Stemmer": "pystemmer",
    "backports": "backports-zstd",
    "vl_convert": "vl-convert-python",
    "yaml": "pyyaml",
}
# In the standard library, but not yet of the Python that runs this.
LATER = {"compression"}
# Parts that are loaded through one door, which says what is missing; elsewhere an import stands
# in the function that needs it.
WHOLE = ("spark/", "store/", "web/")
# pytest loads its plugin, so pytest is there.
BESIDE = {"pytest_plugin.py": "pytest"}


class Import(NamedTuple):
    place: str
    line: int
    library: str
    at_top: bool
    for_types: bool


class Offer(NamedTuple):
    where: str
    extra: str


@cache
def look(source: Path = SOURCE) -> tuple[list[Import], list[Offer]]:
    """Every import of a library that is neither Python's own nor karat's, and every offer of an
    extra in a message about a missing one.
    """
    imports: list[Import] = []
    offers: list[Offer] = []
    for file in sorted(source.rglob("*.py")):
        place = file.relative_to(source).as_posix()
        own = {path.stem for path in file.parent.glob("*.py")} if "recipes/" in place else set()
        own |= {"karat", *sys.stdlib_module_names, *LATER}
        tree = ast.parse(file.read_text("utf-8"))
        types = _for_types(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = sorted(_imported(node) - own)
                told = (node in tree.body, node in types)
                imports += [Import(place, node.lineno, name, *told) for name in names]
            elif (extra := _offered(node)) is not None:
                offers.append(Offer(f"src/karat/{place}", extra))
    return imports, offers


def _for_types(tree: ast.Module) -> list[ast.stmt]:
    """Return the imports under TYPE_CHECKING, which never run."""
    checks = [one for one in tree.body if isinstance(one, ast.If)]
    found = [one for one in checks if ast.unparse(one.test).endswith("TYPE_CHECKING")]
    return [one for check in found for one in check.body]


def _imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    """The libraries that a statement imports, by their first name."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    return set() if node.level or node.module is None else {node.module.partition(".")[0]}


def _offered(node: ast.AST) -> str | None:
    """Return the extra that a call of missing_extra or import_library names, its last argument."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        places = {"missing_extra": 3, "import_library": 4}
        last = node.args[-1] if len(node.args) == places.get(node.func.id) else None
        if isinstance(last, ast.Constant):
            return str(last.value)
    return None


def faults(source: Path = SOURCE) -> list[str]:
    """Return problems of the imports and of the messages about missing libraries."""
    found = [fault for one in look(source)[0] if (fault := _fault(one)) is not None]
    return found + _silent_extras(source)


def optional() -> set[str]:
    """The libraries that karat imports and the core does not bring."""
    core = _given(declared.core())
    return {one.library for one in look()[0] if _package(one.library) not in core}


def brought_along() -> dict[str, str]:
    """Libraries that karat imports and only another one declares, with that other one."""
    packages = {_package(one.library) for one in look()[0]}
    own = declared.direct()
    parents = {
        name: [parent for parent in sorted(own) if name in _given((own[parent],))]
        for name in sorted(packages - own.keys() - set(BESIDE.values()))
    }
    return {name: " and ".join(found) for name, found in parents.items() if found}


def _fault(one: Import) -> str | None:
    where = f"src/karat/{one.place}:{one.line}"
    package = _package(one.library)
    if package in _given(declared.core()) or BESIDE.get(one.place) == package:
        return None
    homes = [extra for extra in declared.extras() if package in _given(declared.of_extra(extra))]
    if not homes:
        return f"{where}: imports {one.library}, which pyproject.toml does not declare"
    if one.for_types:
        return None
    part = _part(one.place)
    if PARTS.get(part) not in homes:
        named = " or ".join(homes)
        return f"{where}: imports {one.library} of the extra {named}, which is not that part's"
    if one.at_top and part not in WHOLE:
        return f"{where}: imports {one.library} at the top, so nothing can say what is missing"
    return None


@cache
def _given(wanted: tuple[Requirement, ...]) -> set[str]:
    """The packages that requirements name, and those which these cannot be without."""
    named = {canonicalize_name(one.name) for one in wanted}
    return named | {
        canonicalize_name(other.name) for one in wanted for other in declared.needs(one)
    }


def _package(library: str) -> str:
    return NAMES.get(library, canonicalize_name(library))


def _silent_extras(source: Path) -> list[str]:
    """Return extras that no message offers, and messages that offer unknown extras."""
    imports, offers = look(source)
    offered = {one.extra for one in offers}
    known = declared.project()["optional-dependencies"]
    wrong = [f"{one.where}: offers karat[{one.extra}]" for one in offers if one.extra not in known]
    used = {_part(one.place) for one in imports} & PARTS.keys()
    silent = sorted({PARTS[part] for part in used} - offered)
    return wrong + [f"no message says: pip install 'karat[{one}]'" for one in silent]


def _part(place: str) -> str:
    return next((part for part in PARTS if place.startswith(part)), "")
