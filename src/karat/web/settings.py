"""Settings of the workbench: from options and environment, checked before anything starts."""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from karat.errors import KaratError, UsageError
from karat.retrieve.placeholders import ENVIRONMENT_VARIABLE
from karat.store.database import VARIABLE as STORE_VARIABLE
from karat.store.database import store_address

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN_VARIABLE = "KARAT_TOKEN"  # noqa: S105 - the name of a variable
_HIGHEST_PORT = 65_535
_TOKEN_BYTES = 24
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where the store is, who may use it, and limits.

    An address that other machines can reach is refused without a token. ``store`` may hold a
    password and ``token`` is one: neither is printed. ``link_holds_token`` says that only the
    link that is printed shows the token. ``allowed_hosts`` are further names that a browser may
    use for this machine.
    """

    store: str | None = field(default=None, repr=False)
    config: Path | None = None
    pool: Path | None = None
    host: str = LOOPBACK[0]
    port: int = 8000
    token: str | None = field(default=None, repr=False)
    link_holds_token: bool = False
    allowed_hosts: tuple[str, ...] = ()
    max_body: int = 1_000_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "host", plain_host(self.host))
        if self.token is None and not is_loopback(self.host):
            raise UsageError(
                f"--host {self.host} may be reachable from other machines, which requires a token:"
                " --token TOKEN, or KARAT_TOKEN in the environment"
            )
        token = self.token or "none"
        if self.token == "" or not token.isascii() or not token.isprintable() or " " in token:
            raise UsageError("the token may only have letters, digits and signs, without spaces")

    def link(self, address: str) -> str:
        """Return the link to print, with the token if it was made for this link."""
        return link_with_token(address, self.token) if self.link_holds_token else address

    @property
    def names(self) -> frozenset[str]:
        """Return every name that a request may have in its Host header."""
        return frozenset(name.lower() for name in (*LOOPBACK, self.host, *self.allowed_hosts))


def settings_from_options(
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
    """Return the settings of command-line options and the environment.

    Takes KARAT_TOKEN and KARAT_STORE out of the environment: systems and services that run in
    this process could print them.
    """
    from karat.project.systems import CONFIG_FILE

    if token is not None and no_token:
        raise UsageError("--token and --no-token cannot be combined; give one of them")
    if not port.isdecimal() or len(port) > 5 or int(port) > _HIGHEST_PORT:
        raise UsageError(f"--port is {port!r}; give a whole number from 0 to {_HIGHEST_PORT:,}")
    if config is None and Path(CONFIG_FILE).is_file():
        config = CONFIG_FILE
    environment_token = os.environ.pop(TOKEN_VARIABLE, None) or None
    environment_store = os.environ.pop(STORE_VARIABLE, None) or None
    if token is None and not no_token:
        token = environment_token
    new_token = token is None and not no_token and is_loopback(host)
    return Settings(
        store=environment_store if store is None else store,
        config=None if config is None else Path(config),
        pool=None if pool is None else Path(pool),
        host=host,
        port=int(port),
        token=secrets.token_urlsafe(_TOKEN_BYTES) if new_token else token,
        link_holds_token=new_token,
        allowed_hosts=tuple(allowed_hosts),
    )


def link_with_token(address: str, token: str | None) -> str:
    """Return an address with the token, which the first answer removes again.

    >>> link_with_token("http://127.0.0.1:8000", "a+b")
    'http://127.0.0.1:8000/?token=a%2Bb'
    """
    return address if token is None else f"{address}/?token={quote(token, safe='')}"


def plain_host(host: str) -> str:
    """Return a host name or address as browsers spell it.

    >>> plain_host("LOCALHOST."), plain_host("127.1"), plain_host("[0:0::1]"), plain_host("db.lan")
    ('localhost', '127.0.0.1', '::1', 'db.lan')
    """
    name = host.strip().lower().rstrip(".")
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    with suppress(ValueError):
        return str(ipaddress.ip_address(bare))
    try:
        # Short and hexadecimal forms, such as 0x7f.1, are addresses to every program.
        return str(ipaddress.ip_address(socket.inet_aton(name)))
    except (OSError, ValueError):
        return name


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address.

    >>> is_loopback("127.1"), is_loopback("0.0.0.0"), is_loopback("workbench.example")
    (True, False, False)
    """
    name = plain_host(host)
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


def secrets_of(settings: Settings) -> dict[str, str]:
    """Return every known secret, by the name that is shown in its place."""
    known: dict[str, str] = {}
    if settings.config is not None:
        # All variables that the karat.yaml refers to.
        with suppress(OSError):
            text = settings.config.read_text("utf-8", "replace")
            words = " ".join(ENVIRONMENT_VARIABLE.findall(text))
            names = sorted(set(_WORD.findall(words)))
            known = {name: os.environ[name] for name in names if os.environ.get(name)}
    with suppress(KaratError):
        url = store_address(settings.store).url
        options = [value for name, value in url.query.items() if "pass" in name.lower()]
        passwords = [str(password) for password in (url.password, *options) if password]
        for index, password in enumerate(passwords):
            known[f"{STORE_VARIABLE}:password" + (f"-{index}" if index else "")] = password
    if settings.token is not None:
        known[TOKEN_VARIABLE] = settings.token
    return known
