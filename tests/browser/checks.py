"""What every page is held to while it is open: nothing fetched, nothing failed, nothing logged."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
)

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
SCHEMES = ("light", "dark")
# Seconds after which what is waited for is given up; a busy machine may need some of them.
PATIENCE = 60

# A refused script or style is told to the console too, but without the directive or the place.
_REFUSALS = """
document.addEventListener("securitypolicyviolation", (event) => {
  console.error(`refused by ${event.violatedDirective}: ${event.blockedURI} ${event.sample}`);
});
"""


@dataclass
class Watch:
    """What goes wrong on the pages of one context, one line each."""

    origin: str | None
    troubles: list[str] = field(default_factory=list)

    def follow(self, context: BrowserContext) -> None:
        context.add_init_script(_REFUSALS)
        context.on("console", self._logged)
        context.on("weberror", lambda error: self.troubles.append(f"error: {error.error}"))
        context.on("request", self._asked)
        context.on("requestfailed", self._failed)
        context.on("dialog", self._asked_to_look)

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            where = message.location.get("url", "")
            self.troubles.append(f"console {message.type}: {message.text} {where}".rstrip())

    def _asked_to_look(self, dialog: Dialog) -> None:
        """No page of karat opens a box: a text that was run as a script did."""
        self.troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _asked(self, request: Request) -> None:
        if not self._allowed(request):
            self.troubles.append(f"request: {request.url[:200]}")

    def _allowed(self, request: Request) -> bool:
        if request.url.startswith(("data:", "blob:", "about:")):
            return True
        if request.url.startswith("file:"):
            # The file itself is opened, and nothing beside it is read.
            return self.origin is None and request.is_navigation_request()
        return self.origin is not None and f"{request.url}/".startswith(f"{self.origin}/")

    def _failed(self, request: Request) -> None:
        # What the page itself gave up, such as a search that a newer one overtook, is aborted.
        if request.failure != "net::ERR_ABORTED":
            self.troubles.append(f"failed: {request.url[:200]} {request.failure}")


@dataclass
class Pages:
    """Makes pages, each in a context of its own; ``close`` asserts that nothing went wrong."""

    browser: Browser
    _open: list[tuple[BrowserContext, Watch]] = field(default_factory=list)
    _expected: list[str] = field(default_factory=list)

    def new(
        self,
        origin: str | None = None,
        *,
        scheme: str = "light",
        size: dict[str, int] = DESKTOP,
        **options: Any,
    ) -> Page:
        """A page that may talk to this origin alone; without one, the network is cut."""
        context = self.browser.new_context(
            offline=origin is None, color_scheme=scheme, viewport=size, **options
        )
        context.set_default_timeout(PATIENCE * 1_000)
        watch = Watch(origin)
        watch.follow(context)
        self._open.append((context, watch))
        return context.new_page()

    def expect(self, pattern: str) -> None:
        """A trouble that this test brings about; that it came is asserted too."""
        self._expected.append(pattern)

    def troubles(self) -> list[str]:
        """All that went wrong so far, expected or not."""
        return [trouble for _, watch in self._open for trouble in watch.troubles]

    def close(self) -> None:
        self._await_expected()
        for context, _ in self._open:
            for page in context.pages[:1]:
                # What is on its way may arrive; a page without scripts has no clock of its own.
                page.wait_for_timeout(20)
            context.close()
        unmet, found = self._unmet(), self.troubles()
        assert not unmet, f"expected, and did not happen: {unmet}"
        left = [t for t in found if not any(re.search(one, t) for one in self._expected)]
        assert not left, "\n".join(left)

    def _await_expected(self) -> None:
        """On a busy machine what a test brings about is told some time after it."""
        pages = [page for context, _ in self._open for page in context.pages[:1]]
        until = time.monotonic() + PATIENCE
        while pages and self._unmet() and time.monotonic() < until:
            pages[0].wait_for_timeout(20)

    def _unmet(self) -> list[str]:
        found = self.troubles()
        return [one for one in self._expected if not any(re.search(one, t) for t in found)]
