"""From the options of ``karat serve`` to a server: whatever cannot work is refused before."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from karat.cli.searching import CONFIG
from karat.errors import InputError, UsageError, missing_extra

if TYPE_CHECKING:
    from karat.web.settings import Settings

TOKEN = "KARAT_TOKEN"  # noqa: S105 - the name of a variable
STORE = "KARAT_STORE"
_HIGHEST_PORT = 65_535
# A token that can be guessed is said to be one.
_SHORTEST_TOKEN = 16
_PATIENCE = 3.0
_LIBRARIES = ("fastapi", "uvicorn", "sqlalchemy")


def settings_of(
    *,
    config: str | None,
    store: str | None,
    pool: str | None,
    host: str,
    port: str,
    token: str | None,
    allowed_hosts: Sequence[str],
) -> Settings:
    """The settings that the options spell out."""
    from karat.web.settings import Settings

    if not port.isdecimal() or len(port) > 5 or int(port) > _HIGHEST_PORT:
        raise UsageError(f"--port is {port!r}; it is a whole number from 0 to {_HIGHEST_PORT:,}")
    if config is None and Path(CONFIG).is_file():
        config = CONFIG
    # Neither is for what runs here: callables and services see the environment, and print it.
    own_token, own_store = (os.environ.pop(name, None) or None for name in (TOKEN, STORE))
    return Settings(
        store=own_store if store is None else store,
        config=None if config is None else Path(config),
        pool=None if pool is None else Path(pool),
        host=host,
        port=int(port),
        token=own_token if token is None else token,
        allowed_hosts=tuple(allowed_hosts),
    )


def serve_until_stopped(settings: Settings, *, quiet: bool) -> None:
    """Check what is to be served, then serve it."""
    for library in _LIBRARIES:
        try:
            import_module(library)
        except ModuleNotFoundError:
            raise missing_extra("karat serve", library, "web") from None
    name = _checked(settings)
    from karat.web.server import serve

    if settings.token is not None and len(settings.token) < _SHORTEST_TOKEN and not quiet:
        told = f"a token of fewer than {_SHORTEST_TOKEN} characters can be guessed"
        typer.echo(f"karat: warning: {told}", err=True)

    def ready(address: str) -> None:
        if not quiet:
            typer.echo(f"karat serves {address} (store {name}); Ctrl-C ends it", err=True)

    # Commands end before garbage adds up; this one goes on.
    gc.enable()
    serve(settings, ready)


def _checked(settings: Settings) -> str:
    """Refuse a config or a store that this karat cannot read; the name of the store."""
    if settings.config is not None:
        from karat.config import read_config

        read_config(settings.config)
    if settings.pool is not None and not settings.pool.is_file():
        raise InputError("no such file; karat pool writes one", where=str(settings.pool))
    from karat.store import NoHistoryError, Store

    with Store.open(settings.store, patience=_PATIENCE) as opened:
        # One that is not there yet begins with the first evaluation that is saved.
        with suppress(NoHistoryError):
            opened.stamp()
        return opened.name
