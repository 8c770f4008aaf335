"""Texts made into vectors: by a model of fastembed, or by a callable of the user's."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import Field

from karat.errors import CallError, UsageError
from karat.formats.forms import Form
from karat.retrievers.callables import load_callable, told
from karat.retrievers.foreign import Foreign
from karat.retrievers.forms import Count, Text
from karat.retrievers.models import Model, load_model, sound
from karat.retrievers.vectors import LARGEST
from karat.retrievers.vectors import Floats as Floats
from karat.retrievers.workshop import Workshop

# Short, and a word in most vocabularies: what the size of a vector is found out with.
_PROBE = "word"
# So many rows are looked at together: enough to be fast, few enough to fit beside the rest.
_BLOCK = 4096


class ModelForm(Form):
    """Which model makes vectors of texts, and how."""

    model: Text | None = Field(None, description="the name of a fastembed model")
    path: Text | None = Field(
        None, description="a folder that holds the model's files; nothing is fetched then"
    )
    embed: Text | None = Field(
        None, description="file.py:callable or module:callable that makes vectors of texts"
    )
    max_length: Count | None = Field(
        None, description="how many tokens of a text are read, from 1; the model's limit if absent"
    )
    query_prefix: str = Field("", description="text to put before every query")
    item_prefix: str = Field("", description="text to put before every item")
    threads: Count | None = Field(None, description="how many threads the model may use, from 1")
    batch_size: Count = Field(1, description="how many texts go through the model at once, from 1")


class _Encoder(Protocol):
    """What makes vectors; queries and items may be told apart."""

    digest: str
    about: Mapping[str, Any]
    libraries: Mapping[str, str]

    def vectors(self, texts: Sequence[str], *, query: bool) -> Any: ...
    def tokens(self, text: str) -> int | None: ...


class Embedder:
    """Makes vectors in single precision, of length 1 unless ``unit`` is false.

    A text of which a model makes nothing but zeros keeps them.
    """

    def __init__(self, encoder: _Encoder, form: ModelForm, *, unit: bool = True) -> None:
        self._encoder = encoder
        self._query_prefix = form.query_prefix
        self._prefix = form.item_prefix
        self._unit = unit
        self._dim: int | None = None
        self.batch_size = form.batch_size

    @property
    def meta(self) -> Mapping[str, Any]:
        """What the log says of the model."""
        told = {"embedding_model": {**self._encoder.about, "dim": self.dim}}
        libraries = dict(self._encoder.libraries)
        return {**told, "libraries": libraries} if libraries else told

    @cached_property
    def digest(self) -> str:
        """The sha256 of all that decides which vector an item's text has."""
        # Texts that go through a model together can change each other's last digits.
        told = [self._encoder.digest, self._prefix, self._unit, self.batch_size]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    @property
    def dim(self) -> int:
        """How long the vectors are."""
        if self._dim is None:
            self._dim = self._embed([_PROBE], query=False).shape[1]
        return self._dim

    def items(self, texts: Sequence[str]) -> Floats:
        """One row an item."""
        return self._rows([self._prefix + text for text in texts], query=False)

    def query(self, text: str) -> Floats:
        """The vector of a query."""
        row: Floats = self.queries([text])[0]
        return row

    def queries(self, texts: Sequence[str]) -> Floats:
        """One row a query."""
        return self._rows([self._query_prefix + text for text in texts], query=True)

    def tokens(self, text: str) -> int | None:
        """How many tokens of a query the model reads; None where nobody can tell."""
        return self._encoder.tokens(self._query_prefix + text)

    def _rows(self, texts: Sequence[str], *, query: bool) -> Floats:
        rows = np.empty((len(texts), self.dim), dtype=np.float32)
        for start in range(0, len(texts), self.batch_size):
            batch = texts[start : start + self.batch_size]
            rows[start : start + len(batch)] = self._embed(batch, query=query)
        return rows

    def _embed(self, texts: Sequence[str], *, query: bool) -> Floats:
        name = self._encoder.about["name"]
        given = self._encoder.vectors([sound(text) for text in texts], query=query)
        rows = checked_rows(given, len(texts), name)
        if self._dim is None:
            self._dim = rows.shape[1]
        elif rows.shape[1] != self._dim:
            raise CallError(
                f"{name} gave a vector of {rows.shape[1]} numbers after one of {self._dim}; "
                "all must have the same"
            )
        return unit_rows(rows) if self._unit else rows.astype(np.float32)


def embedder(form: ModelForm, workshop: Workshop, *, unit: bool = True) -> Embedder:
    """What the form asks for: a model, or a callable."""
    return Embedder(_encoder(form, workshop), form, unit=unit)


def unit_rows(rows: npt.NDArray[Any]) -> Floats:
    """The rows with length 1; rows of zeros stay as they are."""
    made = np.empty(rows.shape, dtype=np.float32)
    for start in range(0, len(rows), _BLOCK):
        wide = rows[start : start + _BLOCK].astype(np.float64)
        lengths = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
        made[start : start + _BLOCK] = wide / np.where(lengths == 0, 1.0, lengths)
    return made


def checked_rows(given: Any, expected: int, name: str) -> npt.NDArray[np.float64]:
    """What a model or a callable gave, as numbers: one row a text, all of them finite."""
    try:
        rows = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise CallError(f"{name} gave what cannot be read as vectors: {told(error)}") from None
    if rows.ndim != 2 or len(rows) != expected or not rows.shape[1]:
        shape = f"an array of {' × '.join(str(size) for size in rows.shape)}"
        raise CallError(
            f"{name} gave {shape if rows.ndim else 'one value'} for {expected:,} "
            f"text{'' if expected == 1 else 's'}; one row of numbers a text is expected"
        )
    if not (np.abs(rows) <= LARGEST).all():
        raise CallError(f"{name} gave a vector with nan, inf or more than {LARGEST:g}")
    return rows


def _encoder(form: ModelForm, workshop: Workshop) -> _Encoder:
    if (form.model is None) == (form.embed is None):
        given = "both model and embed are" if form.model else "neither model nor embed is"
        raise UsageError(f"{given} given; give one of them")
    if form.model is not None:
        model = load_model(
            "TextEmbedding",
            form.model,
            folder=None if form.path is None else workshop.path(form.path),
            max_length=form.max_length,
            threads=form.threads,
        )
        return _ByModel(model, form.batch_size)
    for key in ("path", "max_length", "threads"):
        if getattr(form, key) is not None:
            raise UsageError(f"{key} is for a model; with embed leave it out")
    return _ByCallable(form.embed or "", workshop)


class _ByModel:
    """A model of fastembed."""

    def __init__(self, model: Model, batch_size: int) -> None:
        self._library = model.library
        self._name = model.name
        self._batch = batch_size
        self.digest = model.digest
        self.about: Mapping[str, Any] = model.meta
        self.libraries: Mapping[str, str] = model.libraries

    def vectors(self, texts: Sequence[str], *, query: bool) -> Any:
        """The model's own ways with queries and with items."""
        way = self._library.query_embed if query else self._library.passage_embed
        try:
            return list(way(list(texts), batch_size=self._batch))
        except Exception as error:
            raise CallError(f"model {self._name} failed: {told(error)}") from error

    def tokens(self, text: str) -> int | None:
        """What the model's tokenizer counts, as far as the model reads."""
        return int(self._library.token_count([sound(text)]))


class _ByCallable:
    """A callable: a list of texts in, as many vectors out."""

    def __init__(self, name: str, workshop: Workshop) -> None:
        self._name = name
        self._call: Callable[..., Any] = load_callable(name, workshop.folder)
        self._foreign = Foreign(name, workshop.timeout, workshop.redact)
        sha256 = hashlib.sha256(_source(name, workshop.folder).read_bytes()).hexdigest()
        self.digest = hashlib.sha256(f"{name}\n{sha256}".encode()).hexdigest()
        self.about: Mapping[str, Any] = {"name": name, "sha256": sha256}
        self.libraries: Mapping[str, str] = {}

    def vectors(self, texts: Sequence[str], *, query: bool) -> Any:
        """Whatever it gives; for a query it must be in time."""
        if query:
            return self._foreign.call(lambda: self._call(list(texts)))
        return self._foreign.load(lambda: self._call(list(texts)), done="asked for vectors")

    def tokens(self, text: str) -> int | None:
        """Nobody can tell."""
        return None


def _source(name: str, folder: Path) -> Path:
    """The file that a callable was loaded from."""
    place = name.rpartition(":")[0]
    if place.endswith(".py"):
        return folder / place
    source = getattr(sys.modules[place], "__file__", None)
    if source is None:
        raise UsageError(f"module {place} has no file; name one that has")
    return Path(source)
