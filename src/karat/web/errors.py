"""Every error as one sentence: JSON for the API, a page for people."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from karat.errors import CallError, InputError, KaratError, MissingExtraError
from karat.reports.figures import label
from karat.store import NotStoredError
from karat.web.rendering import Json, render

_TITLES = {
    400: "This cannot be answered",
    401: "A token is needed",
    403: "Not allowed",
    404: "Not found",
    405: "Not allowed here",
    413: "Too much at once",
    500: "Something went wrong",
    502: "A system gave no answer",
    503: "Not at the moment",
}
# So much of what was sent is repeated at most.
_ECHOED = 200


class Refusal(BaseModel):
    """What the API answers where it cannot do what was asked."""

    error: str


class NotNowError(KaratError):
    """What cannot be done beside all that is being done now."""


class NoSuchThingError(KaratError):
    """A page or an evaluation that is not there."""


def error_response(request: Request, status: int, sentence: str) -> Response:
    """A sentence as JSON under /api, else as a page; nothing in it steers a terminal or page."""
    sentence = label(" ".join(sentence.splitlines()))
    if is_api(request):
        return Json({"error": sentence}, status_code=status)
    title = _TITLES.get(status, "This cannot be answered")
    return render(request, "error.html", status_code=status, title=title, sentence=sentence)


def is_api(request: Request) -> bool:
    """Whether a program asks, not a person."""
    # Not by the address, which cannot be put together where the Host header is none.
    return str(request.scope["path"]).startswith("/api/")


def status_of(error: KaratError, store: str) -> int:
    """The status of one of karat's own errors; what the store cannot do now, it may do later."""
    if isinstance(error, NoSuchThingError | NotStoredError):
        return 404
    if isinstance(error, NotNowError):
        return 503
    if isinstance(error, CallError):
        return 502
    if isinstance(error, MissingExtraError):
        return 501
    if isinstance(error, InputError) and (error.where or "").startswith(store):
        return 503
    return 400


def handle_errors(app: FastAPI) -> None:
    """Have every error told in one sentence."""

    @app.exception_handler(KaratError)
    def refused(request: Request, error: KaratError) -> Response:
        status = status_of(error, request.app.state.store.name)
        return error_response(request, status, str(error))

    @app.exception_handler(RequestValidationError)
    def misread(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])[:_ECHOED] or "the body"
        return error_response(request, 400, f"{place}: {first['msg'].lower()}")

    @app.exception_handler(HTTPException)
    def answered(request: Request, error: HTTPException) -> Response:
        told = {404: f"there is nothing at {request.url.path[:_ECHOED]}"}
        sentence = told.get(error.status_code, str(error.detail))
        return error_response(request, error.status_code, sentence)
