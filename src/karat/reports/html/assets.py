"""Styles and scripts of a page, inlined into it, and the Vega library that draws its charts."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from markupsafe import Markup

from karat.errors import KaratError
from karat.formats.files import atomic_write

BASE_STYLES = ("tokens.css", "karat.css", "page.css")
STYLES = (
    *BASE_STYLES,
    "sections.css",
    "charts.css",
    "queries.css",
    "drawer.css",
    "lists.css",
    "print.css",
)
SCRIPTS = (
    "theme.js",
    "nav.js",
    "elements.js",
    "words.js",
    "place.js",
    "data.js",
    "table_model.js",
    "table_controls.js",
    "table_rows.js",
    "table.js",
    "lists.js",
    "lines.js",
    "outcomes.js",
    "drawer.js",
    "downloads.js",
    "charts.js",
)
# The page fetches nothing, and runs only the scripts that are in the file.
_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src {styles}; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
# The Vega-Lite that compiles for the Vega of the same bundle; older versions warn.
_VEGA_VERSION = "6.4"
_VEGA_EXPORTS = "window.vegaEmbed = vegaEmbed; window.vega = vega; window.vegaLite = vegaLite;"


@dataclass(frozen=True)
class Inlined:
    """Styles and scripts inside the page."""

    css: str
    js: Sequence[str]

    def styles(self) -> Markup:
        """Return the style sheets as one element."""
        return Markup(f"<style>{self.css}</style>")  # noqa: S704

    def scripts(self) -> Markup:
        """Return the scripts, one element each."""
        elements = (Markup(f"<script>{script}</script>") for script in self.js)  # noqa: S704
        return Markup("\n").join(elements)

    @property
    def policy(self) -> str:
        """The content security policy of the page: run and show only what is in it."""
        scripts = " ".join(map(_source_hash, self.js))
        return _POLICY.format(scripts=scripts, styles=_source_hash(self.css))


@cache
def inlined() -> Inlined:
    """Return all styles and scripts of a report; Vega first, where it is installed."""
    library = vega()
    scripts = "\n".join(asset(name) for name in SCRIPTS)
    return Inlined(
        css="\n".join(asset(name) for name in STYLES),
        js=[*([] if library is None else [library]), scripts],
    )


def asset(name: str) -> str:
    """Return a style sheet or script of the report by its name."""
    return files("karat.reports.html").joinpath("assets", name).read_text("utf-8")


@cache
def vega() -> str | None:
    """Return the Vega library as one script, or None where it is not installed.

    It goes into a page as it is: escaping ``</`` in it would change its meaning. The user's
    cache holds it: building it takes two seconds and always gives the same bytes.
    """
    if find_spec("vl_convert") is None:
        return None
    key = f"{version('vl-convert-python')} {_VEGA_VERSION} {_VEGA_EXPORTS}"
    name = f"vega-bundle-{hashlib.sha256(key.encode()).hexdigest()[:16]}.js"
    with suppress(UnicodeDecodeError):
        if cached := read_cached(name).decode():
            return cached
    import vl_convert

    script: str = vl_convert.javascript_bundle(_VEGA_EXPORTS, _VEGA_VERSION)
    write_cached(name, script.encode())
    return script


def read_cached(name: str) -> bytes:
    """Return a file of the user's cache; nothing if it cannot be read."""
    with suppress(OSError, RuntimeError):
        path = _cached(name)
        return path.read_bytes() if path.is_file() else b""
    return b""


def write_cached(name: str, content: bytes) -> None:
    """Write a file of the user's cache; without one, the next process makes the content again."""
    with suppress(KaratError, OSError, RuntimeError):
        path = _cached(name)
        if path.is_file() or not path.exists():
            with atomic_write(path) as file:
                file.write_bytes(content)


def _cached(name: str) -> Path:
    """Return the place of a file in the cache; RuntimeError where the user has no home."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    folder = chosen if chosen.is_absolute() else Path.home() / ".cache"
    if not folder.is_absolute():
        raise RuntimeError("the home folder is a relative path")
    return folder / "karat" / name


def _source_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "replace")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
