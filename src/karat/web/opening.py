"""Opens the workbench in the user's browser, with a token that no other user can read."""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

from karat.web.settings import linked

_PAGE = """\
<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={url}">
<title>karat</title>
<p><a href="{url}">Open the workbench</a></p>
"""


@contextmanager
def opening(token: str | None) -> Iterator[Callable[[str], None]]:
    """Yield what opens an address in the browser.

    Other users can read the words of a command, so the browser is given a file that only its
    user can read and that leads on; it is removed at the end.
    """
    with TemporaryDirectory(prefix="karat-") as folder:
        yield lambda address: _open(Path(folder) / "open.html", linked(address, token))


def _open(file: Path, url: str) -> None:
    file.write_text(_PAGE.format(url=escape(url)), "utf-8")
    # A browser in a terminal returns when it is closed.
    threading.Thread(target=webbrowser.open, args=(file.as_uri(),), daemon=True).start()
