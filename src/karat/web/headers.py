"""The headers that every answer has, whoever gives it."""

from __future__ import annotations

_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src {scripts}; "
    "img-src 'self' data:; connect-src 'self'; font-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
POLICY = "Content-Security-Policy"


def policy(nonce: str | None = None) -> str:
    """What a page may load: what has the nonce of its answer, else nothing."""
    return _POLICY.format(scripts="'none'" if nonce is None else f"'nonce-{nonce}'")


def plain_headers() -> dict[str, str]:
    """The headers of an answer that is no page."""
    return {POLICY: policy(), **HEADERS}
