"""Vectors that a user keeps in a file, of items or of queries."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from karat.errors import InputError, KaratError
from karat.formats.files import unreadable
from karat.retrievers.callables import told

Floats = npt.NDArray[np.float32]
# How the two kinds of files begin.
_NPY, _ZIP = b"\x93NUMPY", b"PK"
# Products of larger numbers could leave single precision.
LARGEST = 1e15

# So many rows are looked at together: enough to be fast, few enough to fit beside the rest.
_BLOCK = 4096


@dataclass(frozen=True)
class Kept:
    """The vectors of a file; ``ids`` says whose they are, where the file says so."""

    name: str
    sha256: str
    rows: Floats
    ids: dict[str, int] | None = None

    @property
    def meta(self) -> dict[str, Any]:
        """What the log says of the file."""
        return {"name": Path(self.name).name, "sha256": self.sha256}

    def of_items(self, ids: Sequence[str]) -> Floats:
        """The vectors in the order of the corpus."""
        if self.ids is None:
            if len(self.rows) != len(ids):
                raise InputError(
                    f"holds {len(self.rows):,} vectors for {len(ids):,} items; "
                    "one an item is expected, in the order of the corpus",
                    where=self.name,
                )
            return self.rows
        missing = [one for one in ids if one not in self.ids]
        if missing:
            raise InputError(
                f"has no vector for item {missing[0]!r} ({len(missing):,} are missing); "
                "one an item of the corpus is expected",
                where=self.name,
            )
        return self.rows[[self.ids[one] for one in ids]]


def read_vectors(path: Path) -> Kept:
    """A .npy file of one row a text, or a .npz file with ``ids`` and ``vectors``."""
    where = str(path)
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            start = file.read(len(_NPY))
            if start == _NPY:
                return Kept(where, digest, _rows(np.load(path, mmap_mode="r"), where))
            if not start.startswith(_ZIP):
                raise InputError(
                    "is neither .npy nor .npz; write it with numpy.save or numpy.savez",
                    where=where,
                )
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                return _from_archive(archive, digest, where)
    except (KaratError, MemoryError):
        raise
    except OSError as error:
        raise unreadable(where, error) from None
    except Exception as error:
        # A damaged archive can fail in any way at all.
        raise InputError(f"is damaged ({told(error)}); write it again", where=where) from None


def _from_archive(archive: Any, digest: str, where: str) -> Kept:
    missing = [name for name in ("ids", "vectors") if name not in archive.files]
    if missing:
        raise InputError(
            f"holds no {' and no '.join(missing)}; a .npz needs ids and vectors", where=where
        )
    try:
        ids, rows = archive["ids"], _rows(archive["vectors"], where)
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        raise InputError(
            "holds Python objects; save ids with numpy.array(ids, dtype=str) and vectors as a "
            "table of numbers",
            where=where,
        ) from None
    return Kept(where, digest, rows, _ids(ids, len(rows), where))


def _rows(given: npt.NDArray[Any], where: str) -> Floats:
    """The numbers in single precision, each of them finite."""
    if given.ndim != 2 or not given.shape[1] or given.dtype.kind not in "fiu":
        shape = " × ".join(str(size) for size in given.shape) or "one value"
        raise InputError(
            f"holds {given.dtype} in the shape {shape}; a table of numbers is expected, "
            "one row a vector",
            where=where,
        )
    rows = np.empty(given.shape, dtype=np.float32)
    for start in range(0, len(given), _BLOCK):
        block = given[start : start + _BLOCK]
        with np.errstate(over="ignore"):
            rows[start : start + len(block)] = block
        bad = ~(np.abs(rows[start : start + len(block)]) <= LARGEST).all(axis=1)
        if bad.any():
            raise InputError(
                f"row {start + int(bad.argmax()):,} (counted from 0) holds nan, inf or more than "
                f"{LARGEST:g}; vectors need ordinary numbers",
                where=where,
            )
    return rows


def _ids(given: npt.NDArray[Any], expected: int, where: str) -> dict[str, int]:
    if given.ndim != 1 or given.dtype.kind not in "USiu":
        raise InputError(
            f"ids are {given.dtype}; a list of texts or whole numbers is expected", where=where
        )
    if len(given) != expected:
        raise InputError(f"holds {len(given):,} ids for {expected:,} vectors", where=where)
    names = np.char.decode(given, "utf-8") if given.dtype.kind == "S" else given
    ids: dict[str, int] = {}
    for row, name in enumerate(names.tolist()):
        if ids.setdefault(str(name), row) != row:
            raise InputError(f"id {str(name)!r} occurs twice; ids must differ", where=where)
    return ids
