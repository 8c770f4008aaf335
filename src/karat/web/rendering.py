"""Pages from templates and JSON from data, neither of which a browser can take for a script."""

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

from karat.web.assets import CHARTS, VEGA, address, asset_table

# Placeholders in a rendered page for what differs per answer, so that the page can be cached.
_NONCE, _CSRF = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
_PLAIN_STYLES = ("tokens.css", "karat.css", "page.css", "print.css", "workbench.css")
_PLAIN_SCRIPTS = ("theme.js", "api.js")

Document = Mapping[str, Any]


class Json(JSONResponse):
    """JSON that stays data even where a browser takes it for a page."""

    def render(self, content: Any) -> bytes:
        """Return JSON text in which no character can begin a tag."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return escape_html_in_json(text.encode("utf-8", "replace"))


def escape_html_in_json(data: bytes) -> bytes:
    """Return JSON with <, > and & as escapes; they occur only in strings."""
    for character, escape in ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026")):
        data = data.replace(character, escape)
    return data


@dataclass(frozen=True)
class PageAssets:
    """The styles and scripts of a page, each with the nonce that lets it run."""

    base_styles: Sequence[str] = _PLAIN_STYLES
    base_scripts: Sequence[str] = _PLAIN_SCRIPTS

    def styles(self, *names: str) -> Markup:
        """Return links to the style sheets of every page, then to those named."""
        tag = Markup('<link rel="stylesheet" href="{}" nonce="{}">')
        return Markup("\n").join(
            tag.format(address(name), _NONCE) for name in (*self.base_styles, *names)
        )

    def scripts(self, *names: str) -> Markup:
        """Return the scripts of every page, then those named; api.js gets the session's token."""
        tag = Markup('<script src="{}" nonce="{}"{}></script>')
        attributes = {
            "api.js": Markup(' data-csrf="{}" defer').format(_CSRF),
            VEGA: Markup(" async"),
        }
        return Markup("\n").join(
            tag.format(address(name), _NONCE, attributes.get(name, Markup(" defer")))
            for name in (*self.base_scripts, *names)
        )


@cache
def templates() -> Environment:
    """Return the workbench's templates, with those of the report below them."""
    from karat.report.html.render import environment

    made = environment()
    made.loader = ChoiceLoader([PackageLoader("karat.web"), PackageLoader("karat.report.html")])
    return made


def render(request: Request, name: str, *, status_code: int = 200, **context: Any) -> HTMLResponse:
    """Return a page from a template, which extends workbench.html."""
    return personalize(
        request, render_template(request.app, name, **context), status_code=status_code
    )


def render_report(
    request: Request, name: str, *, document: Document, head: Document | None, **context: Any
) -> HTMLResponse:
    """Return the page of a report; without the ``head`` of a view it shows no single queries."""
    from karat.report.html.assets import SCRIPTS, STYLES
    from karat.report.html.render import context_of

    # The library is large and loads asynchronously.
    charts = VEGA if VEGA in asset_table() else CHARTS
    scripts = (*(name for name in SCRIPTS if name != CHARTS), "api.js", charts)
    assets = PageAssets((*STYLES, "workbench.css"), scripts)
    made = context_of(document, head)
    return render(request, name, **{**made, "assets": assets, "parts": None, **context})


def render_template(app: FastAPI, name: str, **context: Any) -> bytes:
    """Return a page with placeholders, which can be cached; ``personalize`` fills them."""
    settings = app.state.settings
    defaults = {
        "assets": PageAssets(),
        "csp": None,
        "store": app.state.store.name,
        "with_token": settings.token is not None,
        "with_config": settings.config is not None,
    }
    text = templates().get_template(name).render(defaults | context)
    return text.encode("utf-8", "replace")


def personalize(request: Request, page: bytes, *, status_code: int = 200) -> HTMLResponse:
    """Return a rendered page for one session, with this answer's nonce."""
    for placeholder, value in ((_NONCE, request.state.nonce), (_CSRF, request.state.csrf)):
        page = page.replace(placeholder.encode(), value.encode())
    return HTMLResponse(page, status_code=status_code)
