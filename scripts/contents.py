"""The files that a wheel and an sdist of karat must and must not contain."""

from __future__ import annotations

import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import declared
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SOURCE = declared.ROOT / "src" / "karat"
# Where an sdist may have files, and the files beside them.
FOLDERS = {"src", "tests", "docs", "examples", "bench", "scripts"}
FILES = {
    ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "PKG-INFO",
    "README.md", "conftest.py", "pyproject.toml",
}  # fmt: skip
# A larger wheel contains something by mistake.
LARGEST = {"wheel": 3_000_000, "sdist": 5_000_000}


def source_files(source: Path = SOURCE) -> set[str]:
    """Return every file of the package, without Python's caches."""
    return {
        f"karat/{file.relative_to(source).as_posix()}"
        for file in source.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def wheel_faults(wheel: Path, source: Path = SOURCE) -> list[str]:
    """Return the problems of a wheel, which must contain exactly the package."""
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if not name.endswith("/")}
        about = {name for name in names if ".dist-info/" in name}
        metadata = _one(packed, about, "/METADATA")
        entry_points = _one(packed, about, "/entry_points.txt").decode()
    code, wanted = names - about, source_files(source)
    faults = [f"the wheel lacks {name}" for name in sorted(wanted - code)]
    faults += [f"the wheel has {name}, which is not in src" for name in sorted(code - wanted)]
    faults += [] if any(name.endswith("/licenses/LICENSE") for name in about) else ["no LICENSE"]
    faults += [
        f"no entry point: {line}"
        for line in ("karat = karat.cli.main:main", "karat = karat.pytest_plugin")
        if line not in entry_points
    ]
    return faults + metadata_faults(message_from_bytes(metadata)) + _too_large(wheel, "wheel")


def sdist_faults(sdist: Path, source: Path = SOURCE) -> list[str]:
    """Return the missing and unexpected files of an sdist."""
    with tarfile.open(sdist) as packed:
        names = {one.name.partition("/")[2] for one in packed.getmembers() if one.isfile()}
    wanted = {f"src/{name}" for name in source_files(source)} | FILES
    faults = [f"the sdist lacks {name}" for name in sorted(wanted - names)]
    for name in sorted(names - wanted):
        folder, _, rest = name.partition("/")
        stray = folder not in FOLDERS or folder == "src" or "__pycache__" in rest
        if stray or name.startswith(("docs/images/", "bench/data/")):
            faults.append(f"the sdist has {name}")
    return faults + _too_large(sdist, "sdist")


def metadata_faults(metadata: Message) -> list[str]:
    """Return where a wheel's metadata differ from pyproject.toml."""
    project = declared.project()
    wanted = {
        "Name": project["name"],
        "Version": project["version"],
        "Requires-Python": project["requires-python"],
        "License-Expression": project["license"],
        "License-File": project["license-files"][0],
        "Description-Content-Type": "text/markdown",
    }
    faults = [
        f"{field} is {metadata.get(field)!r}, not {value!r}"
        for field, value in wanted.items()
        if metadata.get(field) != value
    ]
    extras = set(metadata.get_all("Provides-Extra") or [])
    if extras != set(project["optional-dependencies"]):
        faults.append(f"extras: {sorted(extras)}")
    asked = [Requirement(line) for line in metadata.get_all("Requires-Dist") or []]
    core = {_key(one) for one in asked if "extra ==" not in str(one.marker)}
    if core != {_key(one) for one in declared.core()}:
        faults.append(f"the core needs {sorted(core)}")
    return faults


def _key(one: Requirement) -> str:
    return f"{canonicalize_name(one.name)}{one.specifier}"


def _one(packed: zipfile.ZipFile, names: set[str], ending: str) -> bytes:
    return packed.read(next(name for name in sorted(names) if name.endswith(ending)))


def _too_large(file: Path, kind: str) -> list[str]:
    size = file.stat().st_size
    return [f"the {kind} has {size:,} bytes"] if size > LARGEST[kind] else []
