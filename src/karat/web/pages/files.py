"""The style sheets and scripts that pages link to."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from karat.web.asset_table import body_of, table

router = APIRouter(include_in_schema=False)

_FOREVER = "public, max-age=31536000, immutable"


@router.get("/assets/{name}")
def asset(request: Request, name: str) -> Response:
    """One of the table; asked for by its digest it may be kept for good."""
    found = table().get(name)
    if found is None:
        raise HTTPException(404)
    same = request.query_params.get("v") == found.digest
    headers = {"Cache-Control": _FOREVER if same else "no-cache", "ETag": f'"{found.digest}"'}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(body_of(found), media_type=found.kind, headers=headers)
