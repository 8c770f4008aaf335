"""The page that asks for the token; the guard reads what it sends."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import RedirectResponse

router = APIRouter(include_in_schema=False)


@router.get("/login")
def login() -> RedirectResponse:
    """Whoever gets here has shown the token, or needs none."""
    return RedirectResponse("/", status_code=303)
