"""A small search service over a JSONL corpus: POST /search, ranked by shared words.

karat starts it by itself (karat.yaml: start). To run it by hand:

    python search_service.py corpus.jsonl --port 8000

A line of the corpus is an object with chunk_id (or item_id, or id) and text; doc_id is the
part of the id before its # unless the line has one, and every other key is metadata.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

try:
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel, Field
except ImportError as error:
    raise SystemExit(
        f"search_service.py needs {error.name}; install it with: pip install 'karat[http,web]'"
    ) from None


class SearchRequest(BaseModel):
    """What is asked for; ``filters`` keeps chunks whose metadata equal it, key by key."""

    query: str = Field(min_length=1)
    top_k: int = Field(5, ge=1, le=50)
    filters: dict[str, Any] | None = None


class SearchHit(BaseModel):
    """One chunk; a larger score is better."""

    doc_id: str
    chunk_id: str
    score: float
    text: str
    metadata: dict[str, Any]


class SearchResponse(BaseModel):
    """The hits, best first."""

    query: str
    hits: list[SearchHit]


class Index:
    """Chunks and their words; a chunk scores the share of the query's words that it has.

    With ``rare`` a word counts more the fewer chunks have it.
    """

    def __init__(self, chunks: list[dict[str, Any]], *, rare: bool = False) -> None:
        self.chunks = chunks
        self.words = [set(words_of(chunk["text"])) for chunk in chunks]
        self.chunks_with = Counter(word for words in self.words for word in words)
        self.rare = rare

    def search(self, request: SearchRequest) -> list[SearchHit]:
        """The best chunks that share a word with the query; equals stay in corpus order."""
        asked = Counter(words_of(request.query))
        wanted = {word: times * self._weight(word) for word, times in asked.items()}
        total = sum(wanted.values()) or 1.0
        shared = [sum(wanted[word] for word in wanted if word in words) for words in self.words]
        # Rounded, so that chunks tie that differ in the last digit of a sum.
        scores = [round(one / total, 9) for one in shared]
        rows = [row for row, score in enumerate(scores) if score and self._kept(row, request)]
        rows.sort(key=lambda row: -scores[row])
        return [SearchHit(**self.chunks[row], score=scores[row]) for row in rows[: request.top_k]]

    def _weight(self, word: str) -> float:
        if not self.rare:
            return 1.0
        return math.log((len(self.chunks) + 1) / (self.chunks_with[word] + 0.5))

    def _kept(self, row: int, request: SearchRequest) -> bool:
        chunk = self.chunks[row]
        known = {**chunk["metadata"], "doc_id": chunk["doc_id"]}
        return all(known.get(key) == value for key, value in (request.filters or {}).items())


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return re.findall(r"\w+", text.lower())


def read_chunks(path: Path) -> list[dict[str, Any]]:
    """The corpus as the service returns it."""
    chunks = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip():
            continue
        record = json.loads(line)
        own = [key for key in ("chunk_id", "item_id", "id") if key in record]
        chunk_id = str(record.pop(own[0]))
        doc_id = str(record.pop("doc_id", chunk_id.partition("#")[0]))
        text = record.pop("text")
        chunks.append({"chunk_id": chunk_id, "doc_id": doc_id, "text": text, "metadata": record})
    return chunks


def service(corpus: Path, *, rare: bool = False) -> FastAPI:
    """The application over a corpus."""
    app = FastAPI(title="search")
    index = Index(read_chunks(corpus), rare=rare)

    @app.post("/search")
    def search(request: SearchRequest) -> SearchResponse:
        return SearchResponse(query=request.query, hits=index.search(request))

    return app


def main() -> None:
    """Serve a corpus on this machine."""
    parser = argparse.ArgumentParser(description="A search service over a JSONL corpus.")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--rare", action="store_true", help="count rare words more than common")
    options = parser.parse_args()
    app = service(options.corpus, rare=options.rare)
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
