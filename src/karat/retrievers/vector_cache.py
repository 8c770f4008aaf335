"""Vectors that a model made before, kept by the texts that they are of.

Each save is a file of its own that never changes, so that processes can share a folder; a
file that is damaged is told of, dropped and made again.
"""

from __future__ import annotations

import hashlib
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from karat.errors import InputError
from karat.formats.files import refuse_closed_folder, replacing, unreadable
from karat.retrievers.callables import told
from karat.retrievers.workshop import Progress

Arrays = Mapping[str, npt.NDArray[Any]]
V = TypeVar("V")

# Seconds of work that a stop may cost.
_INTERVAL = 20.0
_KEY_BYTES = 32
_log = logging.getLogger("karat")


class Layout(Protocol[V]):
    """How vectors of one kind lie in a file; what does not fit is a ValueError."""

    def pack(self, vectors: Sequence[V]) -> Arrays: ...
    def unpack(self, arrays: Arrays, count: int) -> Sequence[V]: ...


class VectorCache(Generic[V]):
    """The vectors of one model; ``digest`` is of all that decides which vector a text has."""

    def __init__(
        self, folder: Path, digest: str, layout: Layout[V], *, interval: float = _INTERVAL
    ) -> None:
        self.home = folder / "vectors" / digest[:32]
        self._layout = layout
        self._interval = interval

    def fill(
        self,
        texts: Sequence[str],
        embed: Callable[[Sequence[str]], Iterable[V]],
        put: Callable[[list[int], V], None],
        *,
        step: int,
        progress: Progress,
    ) -> int:
        """Put every text's vector at the rows that the text has; returns how many are new.

        What is not known yet is embedded ``step`` texts at a time and saved as it goes.
        """
        rows: dict[bytes, list[int]] = {}
        for row, text in enumerate(texts):
            rows.setdefault(_key(text), []).append(row)
        for key, vector in self._known(rows):
            put(rows.pop(key), vector)
        if rows:
            self._prepare()
        new = list(rows)
        unsaved = _Unsaved(self)
        try:
            for start in range(0, len(new), step):
                keys = new[start : start + step]
                made = embed([texts[rows[key][0]] for key in keys])
                for key, vector in zip(keys, made, strict=True):
                    put(rows[key], vector)
                    unsaved.add(key, vector)
                unsaved.save_after(self._interval)
                progress("embedding", start + len(keys), len(new))
        finally:
            unsaved.save()
        return len(new)

    def save(self, keys: Sequence[bytes], vectors: Sequence[V]) -> None:
        """Add vectors, under a name that nobody else has."""
        table = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, _KEY_BYTES)
        part = self.home / f"{uuid.uuid4().hex}.npz"
        with replacing(part) as temporary, temporary.open("wb") as file:
            arrays: dict[str, Any] = {**self._layout.pack(vectors), "keys": table}
            np.savez(file, **arrays)

    def _prepare(self) -> None:
        """Make the folder, so that one that cannot be written to is known before the work."""
        try:
            self.home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"vectors cannot be kept there: {error.strerror}", where=str(self.home)
            ) from None
        refuse_closed_folder(self.home / "vectors.npz")
        ignore = self.home.parent / ".gitignore"
        if not ignore.exists():
            with replacing(ignore) as temporary:
                temporary.write_text("*\n")

    def _known(self, wanted: Mapping[bytes, list[int]]) -> Iterator[tuple[bytes, V]]:
        """Each text that is wanted and known, with its vector; ``wanted`` may shrink meanwhile."""
        for part in sorted(self.home.glob("*.npz")):
            try:
                keys, vectors = self._read(part)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise unreadable(str(part), error) from None
            except MemoryError:
                raise
            except Exception as error:
                # A damaged archive can fail in any way at all.
                _log.warning("%s is damaged (%s); its texts are embedded again", part, told(error))
                part.unlink(missing_ok=True)
                continue
            for key, vector in zip(keys, vectors, strict=True):
                if key in wanted:
                    yield key, vector

    def _read(self, part: Path) -> tuple[list[bytes], Sequence[V]]:
        with part.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        keys = arrays.pop("keys")
        if keys.dtype != np.uint8 or keys.ndim != 2 or keys.shape[1] != _KEY_BYTES:
            raise ValueError(f"keys are {keys.dtype} {keys.shape}")
        return [row.tobytes() for row in keys], self._layout.unpack(arrays, len(keys))


class _Unsaved(Generic[V]):
    """What has been made since the last save."""

    def __init__(self, cache: VectorCache[V]) -> None:
        self._cache = cache
        self._keys: list[bytes] = []
        self._vectors: list[V] = []
        self._begun = time.monotonic()

    def add(self, key: bytes, vector: V) -> None:
        self._keys.append(key)
        self._vectors.append(vector)

    def save_after(self, seconds: float) -> None:
        if time.monotonic() - self._begun >= seconds:
            self.save()

    def save(self) -> None:
        if self._keys:
            self._cache.save(self._keys, self._vectors)
        self._keys, self._vectors = [], []
        self._begun = time.monotonic()


class DenseRows:
    """Vectors of one length, in single precision."""

    def __init__(self, dim: int) -> None:
        self._dim = dim

    def pack(self, vectors: Sequence[npt.NDArray[np.float32]]) -> Arrays:
        """One table."""
        return {"vectors": np.stack(vectors)}

    def unpack(self, arrays: Arrays, count: int) -> Sequence[npt.NDArray[np.float32]]:
        """The rows of the table."""
        table = arrays["vectors"]
        if table.dtype != np.float32 or table.shape != (count, self._dim):
            raise ValueError(f"vectors are {table.dtype} {table.shape}")
        if not np.isfinite(table).all():
            raise ValueError("a vector is not finite")
        return list(table)


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
