"""What the workbench is told at its start."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from karat.errors import UsageError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where the store is, who may ask, and how much at once.

    An address that others can reach is refused without a token.
    ``store`` may hold a password and ``token`` is one: neither shows up where this is printed.
    ``link_holds_token`` says that nobody but the reader of the link knows the token.
    ``allowed_hosts`` are names, besides those of this machine, that a browser may ask for.
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
                f"--host {self.host} may let other machines in, which needs a token:"
                " --token TOKEN, or KARAT_TOKEN in the environment"
            )
        token = self.token or "none"
        if self.token == "" or not token.isascii() or not token.isprintable() or " " in token:
            raise UsageError("the token is made of letters, digits and signs, without blanks")

    def link(self, address: str) -> str:
        """Return what to open in a browser, with the token where it was made for this link."""
        return linked(address, self.token) if self.link_holds_token else address

    @property
    def names(self) -> frozenset[str]:
        """Every name that a request may ask for in its Host header."""
        return frozenset(name.lower() for name in (*LOOPBACK, self.host, *self.allowed_hosts))


def linked(address: str, token: str | None) -> str:
    """Return an address with the token in it, which the first answer takes out again.

    >>> linked("http://127.0.0.1:8000", "a+b"), linked("http://127.0.0.1:8000", None)
    ('http://127.0.0.1:8000/?token=a%2Bb', 'http://127.0.0.1:8000')
    """
    return address if token is None else f"{address}/?token={quote(token, safe='')}"


def plain_host(host: str) -> str:
    """A name or address as browsers spell it.

    >>> plain_host("LOCALHOST."), plain_host("127.1"), plain_host("[0:0::1]"), plain_host("db.lan")
    ('localhost', '127.0.0.1', '::1', 'db.lan')
    """
    name = host.strip().lower().rstrip(".")
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    with suppress(ValueError):
        return str(ipaddress.ip_address(bare))
    try:
        # What every program on this machine takes for an address, such as 0x7f.1.
        return str(ipaddress.ip_address(socket.inet_aton(name)))
    except (OSError, ValueError):
        return name


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

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
