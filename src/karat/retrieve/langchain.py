"""langchain: a LangChain retriever or vector store whose documents carry ids.

Nothing is traced: what LangSmith's variables in the environment ask for is left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import Field

from karat.data.columns import ITEM_NAMES
from karat.errors import CallError, UsageError, missing_extra
from karat.formats.settings import preview
from karat.retrieve.build_context import BuildContext
from karat.retrieve.placeholders import map_texts
from karat.retrieve.protocol import Answer, Finder, Hits, Query, QueryFinder
from karat.retrieve.python import PythonOptions, made_by
from karat.retrieve.system_config import Text
from karat.retrieve.user_code import UserCode, hits_from, load_object

# The file or page that a text was loaded from is better than nothing.
_KEYS = (*ITEM_NAMES, "source")

Ask = Callable[[str, int], Any]


class LangchainOptions(PythonOptions):
    """Which retriever or vector store, and where its documents hold their ids."""

    call: Text = Field(
        description="module:name or file.py:name of a retriever, a vector store or what makes one"
    )
    id: Text | None = Field(
        None, description="the key of a document's metadata that holds the item's id"
    )
    scores: Literal["similarity", "distance"] = Field(
        "similarity",
        description="similarity, or distance where a vector store's score is low for what is near",
    )


Options = LangchainOptions


def make(
    options: LangchainOptions, context: BuildContext, parts: Mapping[str, Finder]
) -> QueryFinder:
    """Load the retriever or vector store."""
    try:
        from langchain_core.vectorstores import VectorStore
        from langsmith import tracing_context
    except ImportError:
        raise missing_extra("retriever langchain", "langchain-core", "langchain") from None
    code = UserCode(
        options.call,
        context.timeout,
        context.redact,
        around=lambda: tracing_context(enabled=False),
    )
    arguments = map_texts(options.options, context.expand)
    loaded = code.load(lambda: load_object(options.call, context.folder))
    if inspect.isclass(loaded) or inspect.isroutine(loaded):
        loaded = made_by(loaded, arguments, code)
    elif arguments:
        raise UsageError(f"{options.call} is an object, which takes no options; leave them out")
    ask = _asking(loaded, options.call)
    if options.scores == "distance" and not isinstance(loaded, VectorStore):
        raise UsageError(f"{options.call} is a retriever, which gives no scores; leave out scores")

    def search(query: Query, k: int) -> Answer:
        return Answer(code.call(lambda: _hits(ask(query.text, k), k, options)))

    meta = {"call": options.call, "class": type(loaded).__name__}
    return QueryFinder(search, meta, deep=False)


def _asking(loaded: Any, name: str) -> Ask:
    """Return how to ask it for k documents, with scores if it has any."""
    from langchain_core.runnables import Runnable
    from langchain_core.vectorstores import VectorStore, VectorStoreRetriever

    if isinstance(loaded, VectorStore):
        scored = type(loaded).similarity_search_with_score
        if scored is VectorStore.similarity_search_with_score:
            return lambda text, k: loaded.similarity_search(text, k=k)
        return lambda text, k: loaded.similarity_search_with_score(text, k=k)
    if isinstance(loaded, VectorStoreRetriever) and "k" not in loaded.search_kwargs:
        return lambda text, k: loaded.invoke(text, k=k)
    if isinstance(loaded, Runnable):
        # Any other has a number of documents of its own.
        return lambda text, k: loaded.invoke(text)
    raise UsageError(
        f"{name} is {type(loaded).__name__}; a LangChain retriever or vector store is expected, "
        "or a function without arguments that makes one"
    )


def _hits(documents: Any, k: int, options: LangchainOptions) -> Hits:
    """Return documents as hits, with scores that are high for what is near.

    Refuses a list with its best hit last.
    """
    name, distances = options.call, options.scores == "distance"
    if not isinstance(documents, list | tuple):
        raise CallError(f"{name} returned {preview(documents)}; a list of documents is expected")
    hits = hits_from([_hit(document, options) for document in documents[:k]], k, name)
    if distances:
        hits = [hit._replace(score=None if hit.score is None else -hit.score) for hit in hits]
    scores = [hit.score for hit in hits if hit.score is not None]
    if scores and scores[0] < scores[-1] and scores == sorted(scores):
        raise CallError(
            f"{name} returned scores that are best for the last hit; "
            f"set scores: {'similarity' if distances else 'distance'}"
        )
    return hits


def _hit(returned: Any, options: LangchainOptions) -> Mapping[str, Any]:
    document, score = (
        returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    )
    metadata = getattr(document, "metadata", None)
    if not isinstance(metadata, Mapping):
        raise CallError(
            f"{options.call} returned {preview(document)} as a hit; a document is expected"
        )
    keys = _KEYS if options.id is None else (options.id,)
    document_id = document.id if options.id is None else None
    metadata_id = next((metadata[key] for key in keys if metadata.get(key) is not None), None)
    if document_id is None and metadata_id is None:
        raise CallError(
            f"{options.call} returned a document without {options.id or 'id'!r}; its "
            f"metadata holds {', '.join(map(str, metadata)) or 'nothing'}: set id to the key "
            "that has the item's id"
        )
    item_id = metadata_id if document_id is None else document_id
    facts = {key: metadata.get(key) for key in ("doc_id", "version", "doc_version")}
    return {"item_id": item_id, "score": score, "text": document.page_content, **facts}
