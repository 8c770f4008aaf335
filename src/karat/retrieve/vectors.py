"""Vectors of texts: read from files, cached by text, and searched exactly."""

from __future__ import annotations

import hashlib
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from karat.errors import InputError, KaratError
from karat.formats.files import atomic_write, check_writable, unreadable
from karat.jobs.cache import file_sha256, ignore_in_git
from karat.retrieve.protocol import Progress
from karat.retrieve.user_code import error_line

Floats = npt.NDArray[np.float32]
# How a .npz file begins.
_ZIP = b"PK"
# Products of larger numbers could leave single precision.
LARGEST = 1e15

# So many rows are looked at together: enough to be fast, few enough to fit beside the rest.
_BLOCK = 4096


@dataclass(frozen=True)
class VectorFile:
    """The vectors of a file, with ids if the file has them."""

    name: str
    sha256: str
    rows: Floats
    ids: dict[str, int] | None = None

    @property
    def meta(self) -> dict[str, Any]:
        """What the log says of the file."""
        return {"name": Path(self.name).name, "sha256": self.sha256}

    def of_items(self, ids: Sequence[str]) -> Floats:
        """Return the vectors in the order of the corpus."""
        if self.ids is None:
            if len(self.rows) != len(ids):
                raise InputError(
                    f"holds {len(self.rows):,} vectors for {len(ids):,} items; "
                    "one per item is expected, in the order of the corpus",
                    where=self.name,
                )
            return self.rows
        missing = [item_id for item_id in ids if item_id not in self.ids]
        if missing:
            raise InputError(
                f"has no vector for item {missing[0]!r} ({len(missing):,} are missing); "
                "one per item of the corpus is expected",
                where=self.name,
            )
        return self.rows[[self.ids[item_id] for item_id in ids]]


def read_vectors(path: Path) -> VectorFile:
    """Read a .npy file with one row per text, or a .npz file with ``ids`` and ``vectors``."""
    where = str(path)
    try:
        digest = file_sha256(path)
        with path.open("rb") as file:
            is_archive = file.read(len(_ZIP)) == _ZIP
            file.seek(0)
            if not is_archive:
                loaded = np.load(path, mmap_mode="r", allow_pickle=False)
                return VectorFile(where, digest, _rows(loaded, where))
            with np.load(file, allow_pickle=False) as archive:
                if missing := sorted({"ids", "vectors"} - set(archive.files)):
                    lacks = " and no ".join(missing)
                    raise InputError(f"holds no {lacks}; a .npz needs ids and vectors", where=where)
                rows = _rows(archive["vectors"], where)
                return VectorFile(where, digest, rows, _ids(archive["ids"], len(rows), where))
    except (KaratError, MemoryError):
        raise
    except OSError as error:
        raise unreadable(where, error) from None
    except Exception as error:
        # A damaged archive can fail in any way at all.
        raise InputError(
            f"cannot be read ({error_line(error)}); write a table of numbers with numpy.save, or "
            "ids as text and vectors with numpy.savez",
            where=where,
        ) from None


def _rows(array: npt.NDArray[Any], where: str) -> Floats:
    """Return the numbers in single precision; all must be finite."""
    if array.ndim != 2 or not array.shape[1] or array.dtype.kind not in "fiu":
        shape = " × ".join(str(size) for size in array.shape) or "one value"
        raise InputError(
            f"holds {array.dtype} in the shape {shape}; a table of numbers is expected, "
            "one row per vector",
            where=where,
        )
    with np.errstate(over="ignore"):
        rows = array.astype(np.float32)
    bad = ~(np.abs(rows) <= LARGEST).all(axis=1)
    if bad.any():
        raise InputError(
            f"row {int(bad.argmax()):,} (counted from 0) holds nan, inf or more than "
            f"{LARGEST:g}; vectors need ordinary numbers",
            where=where,
        )
    return rows


def _ids(array: npt.NDArray[Any], expected: int, where: str) -> dict[str, int]:
    if array.ndim != 1 or array.dtype.kind not in "USiu":
        raise InputError(
            f"ids are {array.dtype}; a list of texts or whole numbers is expected", where=where
        )
    if len(array) != expected:
        raise InputError(f"holds {len(array):,} ids for {expected:,} vectors", where=where)
    names = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
    ids: dict[str, int] = {}
    for row, name in enumerate(names.tolist()):
        if ids.setdefault(str(name), row) != row:
            raise InputError(f"id {str(name)!r} occurs twice; ids must differ", where=where)
    return ids


def unit_rows(rows: npt.NDArray[Any]) -> Floats:
    """Return the rows with length 1; rows of zeros stay as they are."""
    units = np.empty(rows.shape, dtype=np.float32)
    for part, wide in _blocks(rows):
        lengths = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
        units[part] = wide / np.where(lengths == 0, 1.0, lengths)
    return units


def _blocks(rows: npt.NDArray[Any]) -> Iterator[tuple[slice, npt.NDArray[np.float64]]]:
    """Yield the rows in double precision, a few at a time."""
    for start in range(0, len(rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        yield part, rows[part].astype(np.float64)


def top_rows(scores: npt.NDArray[Any], k: int) -> npt.NDArray[np.intp]:
    """Return the rows of the k highest scores, best first; ties keep their order.

    >>> top_rows(np.array([0.1, 0.7, 0.7, 0.3]), 3).tolist()
    [1, 2, 3]
    """
    if k < len(scores):
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        rows = np.flatnonzero(scores >= least)
    else:
        rows = np.arange(len(scores))
    return rows[np.argsort(-scores[rows], kind="stable")][:k]


def sharing_rows(scores: npt.NDArray[Any], k: int, *, above: float = 0.0) -> npt.NDArray[np.intp]:
    """Return the rows of the k highest scores that are above a limit, as ``top_rows`` does."""
    rows = np.flatnonzero(scores > above)
    return rows[top_rows(scores[rows], k)]


Metric = Literal["cosine", "dot"]
# Scores that are held at a time, and rows that are scored anew at a time.
_MOST_SCORES = 50_000_000

# How far single precision can be off in one multiplication, relative and absolute.
_OFF, _LEAST = 2.0**-24, 2.0**-149


class Nearest(NamedTuple):
    """The best rows for a query, with their scores and cosines."""

    rows: npt.NDArray[np.intp]
    scores: npt.NDArray[np.float64]
    cosines: npt.NDArray[np.float64]


class ExactIndex:
    """Vectors in memory; equal scores come in row order.

    The product in single precision chooses candidates, wide enough that its rounding loses
    none; their scores are then worked out one by one in double precision. So a query has the
    same scores alone as among others, and equal vectors have equal scores.
    """

    def __init__(self, rows: Floats, metric: Metric) -> None:
        self.rows = unit_rows(rows) if metric == "cosine" else rows
        self._cosine = metric == "cosine"
        squares = [(wide * wide).sum(axis=1) for _, wide in _blocks(self.rows)]
        self._lengths = np.sqrt(np.concatenate([np.empty(0), *squares]))
        self._longest = float(self._lengths.max(initial=0.0))

    def top(self, queries: Floats, k: int) -> list[Nearest]:
        """Return the k best rows for each query."""
        if self._cosine:
            queries = unit_rows(queries)
        nearest: list[Nearest] = []
        step = max(1, _MOST_SCORES // max(1, len(self.rows)))
        for start in range(0, len(queries), step):
            portion = queries[start : start + step]
            nearest += [
                self._best(query, rough, k)
                for query, rough in zip(portion, portion @ self.rows.T, strict=True)
            ]
        return nearest

    def _best(self, query: Floats, rough: Floats, k: int) -> Nearest:
        wide = query.astype(np.float64)
        length = float(np.sqrt((wide * wide).sum()))
        off = len(query) * (_OFF * length * self._longest + _LEAST)
        rows = np.arange(len(rough))
        if k < len(rough):
            # Those that rounding may have put below the k best are candidates, too.
            least = float(np.partition(rough, len(rough) - k)[len(rough) - k])
            # In single precision as well, or all scores would be widened to be compared.
            floor = np.nextafter(np.float32(least - 2.1 * off), np.float32(-np.inf))
            rows = np.flatnonzero(rough >= floor)
        dots = np.empty(len(rows))
        for part, block in _blocks(self.rows[rows]):
            # Row by row, and so the same whatever else is in the block.
            dots[part] = np.einsum("ij,j->i", block, wide)
        lengths = length * self._lengths[rows]
        cosines = np.clip(dots / np.where(lengths == 0, 1.0, lengths), -1.0, 1.0)
        scores = cosines if self._cosine else dots
        best = top_rows(scores, k)
        return Nearest(rows[best], scores[best], cosines[best])


# A dense vector is a row of numbers; a sparse one has a term and its weight in each place.
Vector = npt.NDArray[Any]
Cached = TypeVar("Cached")

# Seconds of work that a stop may cost.
_INTERVAL = 20.0
_KEY_BYTES = 32
_log = logging.getLogger("karat")


class VectorCache:
    """The vectors of one model; ``digest`` covers all that decides a text's vector."""

    def __init__(self, folder: Path | None, digest: str, *, interval: float = _INTERVAL) -> None:
        # The first half named the folders of an earlier layout.
        self.home = None if folder is None else folder / "vectors" / digest[-32:]
        self._interval = interval

    def fill(
        self,
        texts: Sequence[str],
        embed: Callable[[Sequence[str]], Iterable[Vector]],
        put: Callable[[list[int], Vector], None],
        *,
        step: int,
        progress: Progress,
    ) -> int:
        """Pass every text's vector to ``put`` with its rows; return how many were computed.

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
        unsaved: dict[bytes, Vector] = {}
        saved_at = time.monotonic()
        try:
            for start in range(0, len(new), step):
                keys = new[start : start + step]
                computed = embed([texts[rows[key][0]] for key in keys])
                for key, vector in zip(keys, computed, strict=True):
                    put(rows[key], vector)
                    unsaved[key] = vector
                if time.monotonic() - saved_at >= self._interval:
                    self._save(unsaved)
                    unsaved, saved_at = {}, time.monotonic()
                progress("embedding", start + len(keys), len(new))
        finally:
            if unsaved:
                self._save(unsaved)
        return len(new)

    def _save(self, vectors: Mapping[bytes, Vector]) -> None:
        """Write vectors to a file of their own."""
        if self.home is None:
            return
        part = self.home / f"{uuid.uuid4().hex}.npz"
        with atomic_write(part) as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                keys=np.frombuffer(b"".join(vectors), dtype=np.uint8).reshape(-1, _KEY_BYTES),
                sizes=np.array([len(vector) for vector in vectors.values()], dtype=np.int64),
                values=np.concatenate(list(vectors.values())),
            )

    def _prepare(self) -> None:
        """Create the folder, so that one that cannot be written is refused before the work."""
        if self.home is None:
            return
        try:
            self.home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"vectors cannot be kept there: {error.strerror}", where=str(self.home)
            ) from None
        check_writable(self.home / "vectors.npz")
        ignore_in_git(self.home.parent)

    def _known(self, rows: Mapping[bytes, list[int]]) -> Iterator[tuple[bytes, Vector]]:
        """Yield each text of ``rows`` that is cached; ``rows`` may shrink meanwhile."""
        for part in [] if self.home is None else sorted(self.home.glob("*.npz")):
            cached_part = read_cached(part, _read_part, "its texts are embedded again")
            for key, vector in cached_part or ():
                if key in rows:
                    yield key, vector


def _read_part(arrays: Mapping[str, npt.NDArray[Any]]) -> list[tuple[bytes, Vector]]:
    """Return the texts' keys and vectors."""
    keys, sizes, values = (arrays[name] for name in ("keys", "sizes", "values"))
    if sizes.shape != (len(keys),) or sizes.sum() != len(values):
        raise ValueError(f"{len(keys)} keys, {len(sizes)} sizes and {len(values)} numbers")
    vectors = np.split(values, np.cumsum(sizes)[:-1])
    return [(key.tobytes(), vector) for key, vector in zip(keys, vectors, strict=True)]


def read_cached(
    path: Path, read: Callable[[Mapping[str, npt.NDArray[Any]]], Cached], remedy: str
) -> Cached | None:
    """Return what ``read`` makes of the arrays of a .npz in the cache; None if it is not there.

    A damaged file, which its checksums reveal, is deleted with a warning.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return read(archive)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        # What was opened last: an index lies in two files.
        raise unreadable(str(error.filename or path), error) from None
    except MemoryError:
        raise
    except Exception as error:
        # A damaged archive can fail in any way at all.
        _log.warning("%s is damaged (%s); %s", path, error_line(error), remedy)
        # In a folder that cannot be written to it stays.
        with suppress(OSError):
            path.unlink(missing_ok=True)
        return None


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
