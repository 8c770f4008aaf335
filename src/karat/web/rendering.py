"""Pages out of templates and JSON out of data, so that neither can be taken for a script."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from fastapi import FastAPI, Request
from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import Markup
from starlette.responses import HTMLResponse, JSONResponse

from karat.web.asset_table import CHARTS, VEGA, address, table

# Stand in a rendered page for what each answer has anew, so that the page itself can be kept.
_NONCE, _CSRF = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
_PLAIN_STYLES = ("tokens.css", "karat.css", "page.css", "print.css", "workbench.css")
_PLAIN_SCRIPTS = ("theme.js", "api.js")


Document = Mapping[str, Any]


class Json(JSONResponse):
    """JSON that stays data even where a browser takes it for a page."""

    def render(self, content: Any) -> bytes:
        """As text; what could begin a tag is spelled as a number."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return harmless(text.encode("utf-8", "replace"))


def harmless(data: bytes) -> bytes:
    """JSON without any character that begins a tag or an entity; they occur in texts only."""
    for sign, spelled in ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026")):
        data = data.replace(sign, spelled)
    return data


@dataclass(frozen=True)
class Linked:
    """Styles and scripts that a page links to, each with the nonce that lets it run."""

    base_styles: Sequence[str] = _PLAIN_STYLES
    base_scripts: Sequence[str] = _PLAIN_SCRIPTS

    def styles(self, *names: str) -> Markup:
        """The style sheets of every page, then those named."""
        tag = Markup('<link rel="stylesheet" href="{}" nonce="{}">')
        return Markup("\n").join(
            tag.format(address(name), _NONCE) for name in (*self.base_styles, *names)
        )

    def scripts(self, *names: str) -> Markup:
        """The scripts of every page, then those named; the API's knows the session's token."""
        tag = Markup('<script src="{}" nonce="{}"{}></script>')
        told = {"api.js": Markup(' data-csrf="{}" defer').format(_CSRF), VEGA: Markup(" async")}
        return Markup("\n").join(
            tag.format(address(name), _NONCE, told.get(name, Markup(" defer")))
            for name in (*self.base_scripts, *names)
        )


@cache
def templates() -> Environment:
    """The workbench's templates over those of the report."""
    from karat.reports.html.render import environment

    made = environment()
    made.loader = ChoiceLoader([PackageLoader("karat.web"), PackageLoader("karat.reports.html")])
    return made


def render(request: Request, name: str, *, status_code: int = 200, **context: Any) -> HTMLResponse:
    """A page out of a template, which extends workbench.html."""
    return page(request, rendered(request.app, name, **context), status_code=status_code)


def render_report(
    request: Request, name: str, *, document: Document, head: Document | None, **context: Any
) -> HTMLResponse:
    """The page of a report; without the ``head`` of a view it shows no single queries."""
    from karat.reports.html.render import SCRIPTS, STYLES, context_of

    # Nothing waits for the library, which is large: it comes when it comes.
    charts = VEGA if VEGA in table() else CHARTS
    scripts = (*(name for name in SCRIPTS if name != CHARTS), "api.js", charts)
    assets = Linked((*STYLES, "workbench.css"), scripts)
    made = context_of(document, head)
    return render(request, name, **{**made, "assets": assets, "parts": None, **context})


def rendered(app: FastAPI, name: str, **context: Any) -> bytes:
    """A page before it is anybody's: it can be kept, and given with ``page``."""
    settings = app.state.settings
    given = {
        "assets": Linked(),
        "csp": None,
        "store": app.state.store.name,
        "with_token": settings.token is not None,
        "with_config": settings.config is not None,
    }
    text = templates().get_template(name).render(given | context)
    return text.encode("utf-8", "replace")


def page(request: Request, made: bytes, *, status_code: int = 200) -> HTMLResponse:
    """A rendered page for one session, with this answer's nonce."""
    own = ((_NONCE, request.state.nonce), (_CSRF, request.state.csrf))
    for hole, value in own:
        made = made.replace(hole.encode(), value.encode())
    return HTMLResponse(made, status_code=status_code)
