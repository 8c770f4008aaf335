"""Errors as one sentence: JSON for the API, a page for people."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from karat.errors import CallError, InputError, KaratError, MissingExtraError
from karat.pages.formatting import label
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
# At most this much of a request is repeated in an error.
_LONGEST_ECHO = 200


class Refusal(BaseModel):
    """The API's answer to a request that it refuses."""

    error: str


class UnavailableError(KaratError):
    """The server is too busy for a request; it may work later."""


class NotFoundError(KaratError):
    """A page or an evaluation that does not exist."""


def error_response(request: Request, status: int, sentence: str) -> Response:
    """Return a sentence as JSON under /api, else as a page, without control characters."""
    sentence = label(" ".join(sentence.splitlines()))
    if is_api(request):
        return Json({"error": sentence}, status_code=status)
    title = _TITLES.get(status, "This cannot be answered")
    return render(request, "error.html", status_code=status, title=title, sentence=sentence)


def is_api(request: Request) -> bool:
    """Return whether a request is for the API."""
    # Not from request.url, which fails where the Host header is malformed.
    return str(request.scope["path"]).startswith("/api/")


def status_of(error: KaratError, store: str) -> int:
    """Return the HTTP status of one of karat's errors; the store's may pass, so they are 503."""
    if isinstance(error, NotFoundError | NotStoredError):
        return 404
    if isinstance(error, UnavailableError):
        return 503
    if isinstance(error, CallError):
        return 502
    if isinstance(error, MissingExtraError):
        return 501
    if isinstance(error, InputError) and (error.where or "").startswith(store):
        return 503
    return 400


def handle_errors(app: FastAPI) -> None:
    """Answer every error with one sentence."""

    @app.exception_handler(KaratError)
    def refused(request: Request, error: KaratError) -> Response:
        status = status_of(error, request.app.state.store.name)
        return error_response(request, status, str(error))

    @app.exception_handler(RequestValidationError)
    def misread(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])[:_LONGEST_ECHO] or "the body"
        return error_response(request, 400, f"{place}: {first['msg'].lower()}")

    @app.exception_handler(HTTPException)
    def answered(request: Request, error: HTTPException) -> Response:
        sentence = str(error.detail)
        if error.status_code == 404:
            sentence = f"there is nothing at {request.url.path[:_LONGEST_ECHO]}"
        return error_response(request, error.status_code, sentence)
