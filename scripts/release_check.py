"""Tries a release as users will get it: the wheel in fresh environments, with the core alone and
with each extra, from the index.

    python scripts/release_check.py DIST [EXTRA …]

DIST holds a wheel and an sdist, as make build leaves them. With names of extras only those are
tried. Exits with 1 when something is wrong.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import audit_imports
import contents
import declared
import first_steps

# Imports that show that an extra works; store and web are run instead.
IMPORTS = {
    "bm25": "import Stemmer",
    "charts": "import vl_convert",
    "chroma": "import chromadb",
    "dense": "import fastembed",
    "http": "import certifi, httpcore, jmespath",
    "judge": "import openai",
    "langchain": "import langchain_core",
    "pgvector": "import psycopg",
    "postgres": "import psycopg, sqlalchemy",
    "qdrant": "import qdrant_client",
    "spark": "import pandas, pyarrow, pyspark",
    "store": "import sqlalchemy",
    "web": "import fastapi, uvicorn",
}
# Loads every module that needs no extra, as the core alone must be able to; what needs one says so.
LOAD_ALL = """\
import contextlib, importlib, pkgutil, karat.errors
for one in pkgutil.walk_packages(karat.__path__, "karat."):
    if not one.name.startswith({apart!r}) and not one.name.endswith("__main__"):
        with contextlib.suppress(karat.errors.MissingExtraError):
            importlib.import_module(one.name)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Tries a release as users will get it.")
    parser.add_argument("dist", type=Path)
    parser.add_argument("extras", nargs="*", metavar="EXTRA")
    options = parser.parse_args()
    (wheel,) = options.dist.glob("*.whl")
    (sdist,) = options.dist.glob("*.tar.gz")
    faults = contents.wheel_faults(wheel) + contents.sdist_faults(sdist)
    for file in (wheel, sdist):
        print(f"{file.name}: {file.stat().st_size:,} bytes")
    for extra in options.extras or ["", *(one for one in IMPORTS if one in declared.extras())]:
        faults += _tried(wheel, extra)
    for fault in faults:
        print(fault, file=sys.stderr)
    return bool(faults)


def _tried(wheel: Path, extra: str) -> list[str]:
    """Return problems of the core, or of one extra, in a separate environment."""
    name = f"karat[{extra}]" if extra else "karat"
    with tempfile.TemporaryDirectory() as folder:
        try:
            steps = _installed(wheel, extra, Path(folder))
            _use(steps, extra)
        except (RuntimeError, subprocess.CalledProcessError) as trouble:
            return [f"{name}: {trouble}"]
    print(f"{name}: works", flush=True)
    return []


def _installed(wheel: Path, extra: str, folder: Path) -> first_steps.Steps:
    environment, empty = folder / "environment", folder / "empty"
    empty.mkdir()
    commands = [
        [sys.executable, "-m", "venv", str(environment)],
        [
            *(str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"),
            *("--disable-pip-version-check", f"{wheel.resolve()}{f'[{extra}]' if extra else ''}"),
        ],
        [str(environment / "bin" / "python"), "-m", "pip", "check"],
    ]
    for words in commands:
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  our own words
    return first_steps.Steps(environment, empty, {"HOME": str(folder)})


def _use(steps: first_steps.Steps, extra: str) -> None:
    if not extra:
        first_steps.take(steps)
        apart = tuple(f"karat.{part.strip('/').replace('/', '.')}" for part in audit_imports.WHOLE)
        steps.python(LOAD_ALL.format(apart=(*apart, "karat.recipes", "karat.pytest_plugin")))
        return
    steps.python(IMPORTS[extra])
    steps.karat("--version")
    if extra == "web":
        steps.karat("init", "first")
        first_steps.serve(steps)


if __name__ == "__main__":
    sys.exit(main())
