"""A look at bytes before a fast reader gets them: are fields parted by one blank each?

Polars' CSV reader takes an empty field, a tab or a carriage return for something else
than white space; where there is none of these, it can be trusted.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from karat.formats.files import Input

# Looking at this many bytes at a time stays in the processor's nearest memory.
_WINDOW = 1 << 18
_PIECE = 4 << 20
_FEED, _SPACE, _MARK = b"\n #"
_THREADS = 2
# A smaller file is read at once, so that there is nothing to gain.
_LARGE = 32 << 20


def is_regular(file: Input) -> bool:
    """Whether a large file on disk, not packed, has one blank between fields throughout."""
    if file.path is None or file.packing is not None or file.has_mark:
        return False
    size = file.path.stat().st_size
    if size < _LARGE:
        return False
    share = -(-size // _THREADS)
    with ThreadPoolExecutor(_THREADS) as pool:
        parts = [pool.submit(_is_regular, file.path, at, share) for at in range(0, size, share)]
        return all(part.result() for part in parts)


def _is_regular(path: Path, start: int, length: int) -> bool:
    """Whether a part of a file is regular; it begins a byte early, to see across the seam."""
    early = min(start, 1)
    left = length + early
    piece = bytearray(_PIECE)
    with path.open("rb", buffering=0) as file:
        file.seek(start - early)
        after_blank = start == 0
        while left > 0 and (count := file.readinto(memoryview(piece)[: min(left, _PIECE)])):
            blanks = blanks_if_regular(memoryview(piece)[:count], after_blank=after_blank)
            if blanks is None:
                return False
            after_blank = piece[count - 1] <= ord(" ")
            left -= count
    return True


def blanks_if_regular(chunk: bytes | memoryview, *, after_blank: bool = True) -> int | None:
    """How many blanks part and end the fields, if it is always one that does."""
    codes = np.frombuffer(chunk, np.uint8)
    count = 0
    for start in range(0, len(codes), _WINDOW):
        window = codes[start : start + _WINDOW]
        blank = window <= _SPACE
        if (after_blank and blank[0]) or bool((blank[1:] & blank[:-1]).any()):
            return None
        if np.count_nonzero(window < _SPACE) != np.count_nonzero(window == _FEED):
            return None
        if bool((window == _MARK).any()) and _opens_a_line(codes, start):
            return None
        count += int(np.count_nonzero(blank))
        after_blank = bool(blank[-1])
    return count + (len(codes) > 0 and codes[-1] != _FEED)


def _opens_a_line(codes: NDArray[np.uint8], start: int) -> bool:
    """Whether a ``#`` in the window stands where a comment would begin."""
    marks = start + np.flatnonzero(codes[start : start + _WINDOW] == _MARK)
    # Before the first byte of a piece is what nobody sees: better to take it for a comment.
    return bool(marks[0] == 0) or bool((codes[marks - 1] == _FEED).any())
