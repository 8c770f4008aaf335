"""Rewriting queries by a callable: the text that is searched for instead of the one asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from karat.errors import CallError
from karat.retrievers.callables import load_callable, takes
from karat.retrievers.foreign import Foreign
from karat.retrievers.forms import RewriteForm
from karat.retrievers.protocol import Query

if TYPE_CHECKING:
    from karat.retrievers.workshop import Workshop


@dataclass(frozen=True)
class Rewrite:
    """A callable from text to text, or from a Query to text; ``both`` searches for both."""

    call: Callable[..., Any]
    both: bool
    whole: bool
    foreign: Foreign

    @classmethod
    def of(cls, form: RewriteForm, workshop: Workshop) -> Rewrite:
        """The callable that a form names; one whose argument is a Query gets it whole."""
        call = load_callable(form.call, workshop.folder)
        foreign = Foreign(f"rewrite {form.call}", workshop.timeout, workshop.redact)
        return cls(call, form.both, whole=takes(call, Query), foreign=foreign)

    def apply(self, query: Query) -> Query:
        """The query with its new text."""
        text = self.foreign.call(lambda: self.call(query if self.whole else query.text))
        if not isinstance(text, str):
            raise CallError(f"rewrite gave {type(text).__name__} instead of text")
        if not text.strip():
            raise CallError("rewrite gave a blank text; to leave a query as it is, return its own")
        return replace(query, text=text)
