"""A LangChain retriever or vector store: documents that carry an id, as hits.

Nothing is traced: what LangSmith's variables in the environment ask for is left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from karat.columns import ITEM_NAMES
from karat.errors import CallError, UsageError, missing_extra
from karat.formats.forms import Form
from karat.formats.yamls import shown
from karat.retrievers.callables import load_object
from karat.retrievers.foreign import Foreign
from karat.retrievers.forms import Text
from karat.retrievers.protocol import Answer, Finder, Hit, Hits, Query
from karat.retrievers.python import expanded, made_by, refuse_literals
from karat.retrievers.returned import hits_of, text_of
from karat.retrievers.workshop import Workshop

# The file or page that a text was loaded from is better than nothing.
_KEYS = (*ITEM_NAMES, "source")

Ask = Callable[[str, int], Any]


class Options(Form):
    """Which retriever or vector store, and where its documents have their ids."""

    call: Text = Field(
        description="module:name or file.py:name of a retriever, a vector store or what makes one"
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="a mapping of further arguments for what makes it, by their names",
    )
    id: Text | None = Field(
        None, description="the key of a document's metadata that holds the item's id"
    )
    scores: Literal["similarity", "distance"] = Field(
        "similarity",
        description="similarity, or distance where a vector store's score is low for what is near",
    )

    @model_validator(mode="after")
    def _agree(self) -> Options:
        refuse_literals(self.options)
        return self


def make(options: Options, workshop: Workshop, parts: Mapping[str, Finder]) -> LangChain:
    """The retriever or vector store that the name stands for."""
    try:
        from langchain_core.vectorstores import VectorStore
        from langsmith import tracing_context
    except ImportError:
        raise missing_extra("retriever langchain", "langchain-core", "langchain") from None
    foreign = Foreign(
        options.call,
        workshop.timeout,
        workshop.redact,
        around=lambda: tracing_context(enabled=False),
    )
    more = expanded(options.options, workshop)
    found = foreign.load(lambda: load_object(options.call, workshop.folder))
    if inspect.isclass(found) or inspect.isroutine(found):
        found = made_by(found, more, foreign)
    elif more:
        raise UsageError(f"{options.call} is made already; leave out options")
    ask = _asking(found, options.call)
    if options.scores == "distance" and not isinstance(found, VectorStore):
        raise UsageError(f"{options.call} is a retriever, which gives no scores; leave out scores")
    meta = {"call": options.call, "class": type(found).__name__}
    return LangChain(ask, options, foreign, meta)


def _asking(found: Any, name: str) -> Ask:
    """How to ask it for k documents: with scores, where it has any."""
    from langchain_core.runnables import Runnable
    from langchain_core.vectorstores import VectorStore, VectorStoreRetriever

    if isinstance(found, VectorStore):
        scored = type(found).similarity_search_with_score
        if scored is VectorStore.similarity_search_with_score:
            return lambda text, k: found.similarity_search(text, k=k)
        return lambda text, k: found.similarity_search_with_score(text, k=k)
    if isinstance(found, VectorStoreRetriever) and "k" not in found.search_kwargs:
        return lambda text, k: found.invoke(text, k=k)
    if isinstance(found, Runnable):
        # Any other has a number of documents of its own.
        return lambda text, k: found.invoke(text)
    raise UsageError(
        f"{name} is {type(found).__name__}; a LangChain retriever or vector store is expected, "
        "or a function without arguments that makes one"
    )


class LangChain:
    """Asks for documents, and takes their ids from where they have them."""

    batch = 1
    concurrency = 1
    deep = False

    def __init__(
        self,
        ask: Ask,
        options: Options,
        foreign: Foreign,
        meta: Mapping[str, Any],
    ) -> None:
        self.meta = meta
        self._ask = ask
        self._foreign = foreign
        self._key = options.id
        self._sign = -1.0 if options.scores == "distance" else 1.0

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """The documents for each query, in the order in which they come."""
        return [Answer(self._foreign.call(self._asking(query.text, k))) for query in queries]

    def _asking(self, text: str, k: int) -> Callable[[], Hits]:
        def ask() -> Hits:
            documents = self._ask(text, k)
            if not isinstance(documents, list | tuple):
                raise CallError(
                    f"{self._foreign.name} returned {shown(documents)}; "
                    "a list of documents is expected"
                )
            hits = hits_of([self._hit(one) for one in documents[:k]], k, self._foreign.name)
            return self._signed(hits)

        return ask

    def _hit(self, one: Any) -> Hit:
        document, score = one if isinstance(one, tuple) and len(one) == 2 else (one, None)
        metadata = getattr(document, "metadata", None)
        if not isinstance(metadata, Mapping):
            raise CallError(
                f"{self._foreign.name} returned {shown(document)} as a hit; a document is expected"
            )
        version = metadata.get("version")
        return Hit(
            self._id(document, metadata),
            score,
            doc_id=text_of(metadata.get("doc_id")),
            version=text_of(metadata.get("doc_version") if version is None else version),
            text=document.page_content,
        )

    def _id(self, document: Any, metadata: Mapping[Any, Any]) -> Any:
        keys = _KEYS if self._key is None else (self._key,)
        own = document.id if self._key is None else None
        found = next((metadata[key] for key in keys if metadata.get(key) is not None), None)
        if own is None and found is None:
            has = ", ".join(map(str, metadata)) or "nothing"
            what = "no id" if self._key is None else f"no {self._key!r} in its metadata"
            raise CallError(
                f"{self._foreign.name} returned a document with {what}; its metadata holds {has}: "
                "set id to the key that has the item's id"
            )
        return found if own is None else own

    def _signed(self, hits: Hits) -> Hits:
        """Scores that are high for what is near; a list that ends with its best is refused."""
        scores = [self._sign * hit.score for hit in hits if hit.score is not None]
        if scores and scores[0] < scores[-1] and scores == sorted(scores):
            other = "similarity" if self._sign < 0 else "distance"
            raise CallError(
                f"{self._foreign.name} returned scores that are best for the last hit; "
                f"set scores: {other}"
            )
        if self._sign > 0:
            return hits
        return [hit._replace(score=None if hit.score is None else -hit.score) for hit in hits]
