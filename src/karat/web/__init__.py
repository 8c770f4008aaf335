"""The workbench: evaluations of a store as pages and as JSON, served to a browser."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from karat.errors import missing_extra

if TYPE_CHECKING:
    from karat.web.settings import Settings

_LIBRARIES = ("fastapi", "uvicorn", "sqlalchemy")


def require_libraries() -> None:
    """Raise an error with the install command if a library of the workbench is missing."""
    for library in _LIBRARIES:
        try:
            import_module(library)
        except ModuleNotFoundError:
            raise missing_extra("karat serve", library, "web") from None


def serve(
    settings: Settings,
    notify: Callable[[str], None],
    *,
    open_page: bool = False,
    quiet: bool = False,
) -> None:
    """Serve until Ctrl-C or SIGTERM; ``notify`` gets warnings and the link to open."""
    require_libraries()
    from karat.web import server

    server.serve(settings, notify, open_page=open_page, quiet=quiet)
