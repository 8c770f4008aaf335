"""What a package index and pip-audit know of the versions that are installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import Request, urlopen

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

USUAL = "https://pypi.org/simple"
# As a page of files, or as a document where the index has it.
ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"


class Known(NamedTuple):
    """What was found, and for which packages nothing could be found out."""

    faults: list[str]
    unknown: dict[str, str]


def yanked(pins: dict[str, str], index: str | None = None) -> Known:
    """Which of these versions the index asks nobody to install any more."""
    base = index or index_url()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda name: files(name, base), pins))
    faults, unknown = [], {}
    for (name, version), answer in zip(pins.items(), answers, strict=True):
        if isinstance(answer, str):
            unknown[name] = answer
            continue
        reasons = [reason for file, reason in answer if version_of(file) == Version(version)]
        if not reasons:
            unknown[name] = f"the index has no file of version {version}"
        elif all(reason is not None for reason in reasons):
            faults.append(f"{name} {version} is yanked: {reasons[0] or 'no reason given'}")
    return Known(faults, unknown)


def index_url() -> str:
    """The index that pip is set up with."""
    if "PIP_INDEX_URL" in os.environ:
        return os.environ["PIP_INDEX_URL"]
    words = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    done = subprocess.run(words, capture_output=True, text=True)  # noqa: S603  our own words
    return done.stdout.strip() or USUAL


def vulnerabilities(pins: dict[str, str], limit: float = 300) -> Known:
    """Known vulnerabilities of these versions, as far as pip-audit can ask its service."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "pins.txt"
        wanted.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
        words = ["--requirement", str(wanted), "--no-deps", "--disable-pip", "--format", "json"]
        words += ["--progress-spinner", "off", "--timeout", "20"]
        try:
            done = subprocess.run(  # noqa: S603  our own words
                [sys.executable, "-m", "pip_audit", *words],
                capture_output=True,
                text=True,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return Known([], dict.fromkeys(pins, f"pip-audit took longer than {limit:.0f} s"))
    return read_audit(pins, done.stdout, done.stderr)


def read_audit(pins: dict[str, str], out: str, err: str) -> Known:
    """What pip-audit found. It ends with 0 also for packages that it could not look up at all."""
    try:
        entries = {entry["name"]: entry for entry in json.loads(out)["dependencies"]}
    except (ValueError, KeyError, TypeError):
        said = (err.strip() or out.strip() or "nothing").splitlines()[-1]
        return Known([], dict.fromkeys(pins, f"pip-audit said: {said}"))
    faults, unknown = [], {}
    for name, version in pins.items():
        entry = entries.get(name, {"skip_reason": "pip-audit left it out"})
        if "vulns" not in entry:
            unknown[name] = str(entry.get("skip_reason", "pip-audit does not say why"))
            continue
        faults += [f"{name} {version}: {_vulnerability(one)}" for one in entry["vulns"]]
    return Known(faults, unknown)


def _vulnerability(one: dict[str, Any]) -> str:
    fixed = ", ".join(one.get("fix_versions") or []) or "no version"
    return f"{one['id']}, fixed in {fixed}"


def files(name: str, index: str) -> list[tuple[str, str | None]] | str:
    """Every file of a package, with the reason why it is yanked if it is; or the trouble."""
    url = f"{index.rstrip('/')}/{name}/"
    asked = Request(url, headers={"Accept": ACCEPT})  # noqa: S310  as pip is set up
    try:
        with urlopen(asked, timeout=60) as reply:  # noqa: S310
            body = reply.read().decode("utf-8", "replace")
            kind = reply.headers.get_content_type()
    except (URLError, TimeoutError, OSError) as trouble:
        return f"the index does not answer: {getattr(trouble, 'reason', trouble)}"
    return list(_from_document(body) if kind.endswith("json") else _from_page(body))


def _from_document(body: str) -> Iterator[tuple[str, str | None]]:
    for file in json.loads(body).get("files", []):
        why = file.get("yanked", False)
        yield file["filename"], None if why is False else "" if why is True else str(why)


def _from_page(body: str) -> list[tuple[str, str | None]]:
    page = _Links()
    page.feed(body)
    return page.files


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.files: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        if tag == "a" and found.get("href"):
            name = str(found["href"]).partition("#")[0].rpartition("/")[2]
            why = (found["data-yanked"] or "") if "data-yanked" in found else None
            self.files.append((name, why))


def version_of(file: str) -> Version | None:
    try:
        if file.endswith(".whl"):
            return parse_wheel_filename(file)[1]
        return parse_sdist_filename(file)[1]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None
