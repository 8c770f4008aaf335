"""The workbench: evaluations of a store as pages and as JSON, served to a browser."""

from __future__ import annotations

from importlib import import_module

from karat.errors import missing_extra


def require_libraries() -> None:
    """Raise an error with the install command if a library of the workbench is missing."""
    for library in ("fastapi", "uvicorn", "sqlalchemy"):
        try:
            import_module(library)
        except ModuleNotFoundError:
            raise missing_extra("karat serve", library, "web") from None
