"""From the options of ``karat serve`` to a server: whatever cannot work is refused before."""

from __future__ import annotations

import gc
import os
import secrets
from collections.abc import Sequence
from contextlib import nullcontext, suppress
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
_TOKEN_BYTES = 24
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
    no_token: bool,
    allowed_hosts: Sequence[str],
) -> Settings:
    """The settings that the options spell out."""
    from karat.web.settings import Settings, is_loopback

    if token is not None and no_token:
        raise UsageError("--token and --no-token exclude each other; give one of them")
    if not port.isdecimal() or len(port) > 5 or int(port) > _HIGHEST_PORT:
        raise UsageError(f"--port is {port!r}; it is a whole number from 0 to {_HIGHEST_PORT:,}")
    if config is None and Path(CONFIG).is_file():
        config = CONFIG
    # Neither is for what runs here: callables and services see the environment, and print it.
    own_token, own_store = (os.environ.pop(name, None) or None for name in (TOKEN, STORE))
    if token is None and not no_token:
        token = own_token
    made_up = token is None and not no_token and is_loopback(host)
    return Settings(
        store=own_store if store is None else store,
        config=None if config is None else Path(config),
        pool=None if pool is None else Path(pool),
        host=host,
        port=int(port),
        token=secrets.token_urlsafe(_TOKEN_BYTES) if made_up else token,
        link_holds_token=made_up,
        allowed_hosts=tuple(allowed_hosts),
    )


def serve_until_stopped(settings: Settings, *, open_page: bool, quiet: bool) -> None:
    """Check what is to be served, then serve it."""
    for library in _LIBRARIES:
        try:
            import_module(library)
        except ModuleNotFoundError:
            raise missing_extra("karat serve", library, "web") from None
    name = _checked(settings)
    from karat.web.opening import opening
    from karat.web.server import serve

    if settings.token is not None and len(settings.token) < _SHORTEST_TOKEN and not quiet:
        told = f"a token of fewer than {_SHORTEST_TOKEN} characters can be guessed"
        typer.echo(f"karat: warning: {told}", err=True)

    # Commands end before garbage adds up; this one goes on.
    gc.enable()
    with opening(settings.token) if open_page else nullcontext() as open_in_browser:

        def ready(address: str) -> None:
            # Nobody could enter without a link that holds a token made here.
            if not quiet or settings.link_holds_token:
                link = settings.link(address)
                typer.echo(f"karat serves {link} (store {name}); Ctrl-C ends it", err=True)
            if open_in_browser is not None:
                open_in_browser(address)

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
