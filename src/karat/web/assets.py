"""Style sheets and scripts of the pages: a fixed table, read at the start, and Vega."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files

# Vega and the script that draws with it are served as one.
VEGA, CHARTS = "vega.js", "charts.js"
_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_DIGEST_LENGTH = 16
_MAKE = """
import sys
from karat.reports.html.assets import vega
sys.stdout.buffer.write((vega() or "").encode())
"""


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the pages; ``body`` is None for Vega, which is large and made on demand."""

    kind: str
    digest: str
    body: bytes | None


@cache
def asset_table() -> Mapping[str, Asset]:
    """Return every asset by its name; no other name is served, and no name is a path."""
    assets = dict(_files())
    try:
        library = version("vl-convert-python")
    except PackageNotFoundError:
        return assets
    return assets | {VEGA: Asset(_KINDS[".js"], f"{library}-{assets[CHARTS].digest}", None)}


def address(name: str) -> str:
    """Return the URL of an asset; it changes with the content."""
    return f"/assets/{name}?v={asset_table()[name].digest}"


def body_of(asset: Asset) -> bytes:
    """Return the content of an asset."""
    if asset.body is not None:
        return asset.body
    return b"\n".join([VEGA_SCRIPT.made(), asset_table()[CHARTS].body or b""])


def _files() -> Iterator[tuple[str, Asset]]:
    for package in ("karat.reports.html", "karat.web"):
        folder = files(package).joinpath("assets")
        for file in sorted(folder.iterdir(), key=lambda file: file.name):
            kind = next((kind for end, kind in _KINDS.items() if file.name.endswith(end)), None)
            if kind is not None:
                body = file.read_bytes()
                digest = hashlib.sha256(body).hexdigest()[:_DIGEST_LENGTH]
                yield file.name, Asset(kind, digest, body)


class VegaScript:
    """The Vega library as one script, made once, in a process that leaves this one to answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._script = b""
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Make it now, in a thread."""
        threading.Thread(target=self.made, name="karat-vega", daemon=True).start()

    def made(self) -> bytes:
        """Return the script; wait until it is made. It is empty if it could not be made."""
        from karat.reports.html.assets import cached_vega

        with self._lock:
            if not self._script:
                self._script = (cached_vega() or "").encode() or self._from_process()
            return self._script

    def end(self) -> None:
        """Stop making it."""
        if self._process is not None:
            self._process.kill()

    def _from_process(self) -> bytes:
        try:
            self._process = subprocess.Popen(  # noqa: S603 - fixed arguments
                [sys.executable, "-P", "-c", _MAKE],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return b""
        script, _ = self._process.communicate()
        return script if self._process.returncode == 0 else b""


VEGA_SCRIPT = VegaScript()
