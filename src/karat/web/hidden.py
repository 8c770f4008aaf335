"""What no sentence and no log may hold: the token, passwords, and what a karat.yaml names."""

from __future__ import annotations

import os
import re
from pathlib import Path

from karat.errors import KaratError
from karat.retrievers.secrets import FROM_ENVIRONMENT
from karat.store.place import place_of
from karat.web.settings import Settings

_NAME = re.compile(r"\w+")


def secrets_of(settings: Settings) -> dict[str, str]:
    """Every secret that is known here, by the name that is shown in its place."""
    found = {} if settings.config is None else _named_in(settings.config)
    for at, one in enumerate(_of_store(settings.store)):
        found["KARAT_STORE:password" + (f"-{at}" if at else "")] = one
    if settings.token is not None:
        found["KARAT_TOKEN"] = settings.token
    return found


def _named_in(config: Path) -> dict[str, str]:
    """The environment variables that a karat.yaml asks for anywhere, whoever looks them up."""
    try:
        text = config.read_text("utf-8", "replace")
    except OSError:
        return {}
    names = {name for one in FROM_ENVIRONMENT.findall(text) for name in _NAME.findall(one)}
    return {name: os.environ[name] for name in sorted(names) if os.environ.get(name)}


def _of_store(store: str | None) -> list[str]:
    try:
        place = place_of(store)
    except KaratError:
        return []
    options = [one for name, one in place.url.query.items() if "pass" in name.lower()]
    return [str(one) for one in (place.url.password, *options) if one]
