"""Files as bytes and text: opening, decompressing, decoding, and replacing them whole.

Every reader and writer goes through here, so a missing, cut off, binary or wrongly
encoded file is refused in one place and no output is ever half written. What the
lines mean is the business of the formats.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

import polars as pl

from karat.columns import Source
from karat.errors import InputError, UsageError
from karat.formats.limits import DOCUMENT, LINE, too_large_a_document, too_long_a_line
from karat.formats.room import chunk_bytes
from karat.formats.streams import (
    CUT_OFF,
    DAMAGE,
    DAMAGED,
    Packing,
    last_line_end,
    long_line,
    packing_of,
    unpacked,
    whole,
)

if TYPE_CHECKING:
    from karat.formats.field_mapping import Renamed

# Large enough that calls cost nothing beside parsing, small enough to stay in cache.
CHUNK_BYTES = 8 << 20
HEAD_BYTES = 1 << 16
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BOM = b"\xef\xbb\xbf"
# How Polars tells what the operating system said.
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
# What the operating system says when there is no room, on the disk or for this user.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# How a database of SQLite begins, and what SQLite keeps beside one.
_DATABASE, _BESIDE = b"SQLite format 3\0", ("-wal", "-shm", "-journal")

# Endings that say how a file is packed or laid out, not what it is called.
_PACKINGS = {".gz": "gzip", ".zst": "zstd"}
_LAYOUTS = {".trec", ".txt", ".run", ".tsv", ".csv", ".jsonl", ".json", ".parquet"}


@dataclass(frozen=True)
class Input:
    """A file, or what came through standard input, ready to be read more than once."""

    source: Source
    path: Path | None = None
    data: bytes | None = None
    # The columns that the user gave other names.
    renamed: Renamed | None = None

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def suffix(self) -> str:
        """The ending that tells the layout, past ``.gz`` and ``.zst``."""
        return layout_suffix(self.name)

    @property
    def stem(self) -> str:
        """The name without the endings that only say how it is packed and laid out."""
        if self.path is None:
            return "stdin"
        name = unpacked_name(self.name)
        suffix = Path(name).suffix
        return name.removesuffix(suffix) if suffix.lower() in _LAYOUTS else name

    @property
    def packing(self) -> Packing | None:
        with self.open() as file:
            return packing_of(file.read(4))

    def scannable(self) -> Path | io.BytesIO:
        """What Polars reads from."""
        return io.BytesIO(self.data) if self.data is not None else self._file()

    def head(self) -> bytes:
        """The first 64 KiB of the unpacked bytes, for telling formats apart."""
        first = next(self._pieces(HEAD_BYTES), b"")
        return _without_mark(first, self.name)[:HEAD_BYTES]

    def chunks(self, size: int | None = None, *, lead: bytes = b"") -> Iterator[bytes]:
        """The unpacked bytes in pieces of whole lines, without a byte order mark.

        Every piece begins with ``lead``, which spares whoever wants it there a copy.
        """
        rest: list[bytes] = []
        done, waiting, most = 0, 0, LINE.bytes()
        for piece in self._pieces(chunk_bytes() if size is None else size):
            if not done and not rest:
                piece = _without_mark(piece, self.name)
            cut = piece.rfind(b"\n") + 1
            if len(piece) > most and (long := long_line(piece, waiting, most)) is not None:
                place = done + waiting + long if long else done
                raise too_long_a_line(self.name, self._line_at(place), most)
            if cut:
                yield b"".join((lead, *rest, memoryview(piece)[:cut]))
                done, rest, waiting = done + waiting + cut, [piece[cut:]], len(piece) - cut
            else:
                rest.append(piece)
                waiting += len(piece)
            if waiting > most:
                rest.clear()
                raise too_long_a_line(self.name, self._line_at(done), most)
        if last := b"".join(rest):
            yield lead + last

    def text(self, most: int | None = None) -> str:
        """The whole file as text; one of more than ``most`` bytes is refused."""
        limit = DOCUMENT.bytes() if most is None else most
        if self.path is not None and self.path.stat().st_size > limit:
            raise too_large_a_document(self.name, limit)
        data = whole(self._pieces(CHUNK_BYTES), self.name, limit)
        return decode(_without_mark(data, self.name), self)

    def check_lines(self) -> None:
        """Refuse a line that is too long, looking only where one would have to end."""
        most = LINE.bytes()
        with self.open() as file:
            size, start = file.seek(0, os.SEEK_END), 0
            while size - start > most:
                ends = last_line_end(file, start, start + most + 1)
                if ends is None:
                    raise too_long_a_line(self.name, self._line_at(start), most)
                start = ends + 1

    def _line_at(self, place: int) -> int:
        """The number of the line that begins after so many bytes."""
        line = 1
        for piece in self._pieces(CHUNK_BYTES):
            line += piece.count(b"\n", 0, max(place, 0))
            place -= len(piece)
            if place <= 0:
                break
        return line

    def _file(self) -> Path:
        if self.path is None:
            raise InputError("holds neither a path nor data", where=self.name)
        return self.path

    def open(self) -> IO[bytes]:
        """The bytes as they are, packed where they are packed."""
        if self.data is not None:
            return io.BytesIO(self.data)
        try:
            return self._file().open("rb", buffering=0)
        except OSError as error:
            raise unreadable(self.name, error) from None

    def _pieces(self, size: int) -> Iterator[bytes]:
        packing = self.packing
        with self.open() as file:
            try:
                if packing is not None:
                    yield from unpacked(file, packing, size, self.name)
                while packing is None and (piece := file.read(size)):
                    yield piece
            except OSError as error:
                raise unreadable(self.name, error) from None


def open_input(path: str | Path) -> Input:
    """Open a file, or standard input for ``-``; refuses what cannot hold anything."""
    refuse_no_path(path)
    if str(path) == "-":
        data = _piped(sys.stdin.buffer, "stdin")
        if not data:
            raise InputError("is empty; pipe a file into karat", where="stdin")
        return Input(Source("stdin", sha256=hashlib.sha256(data).hexdigest()), data=data)
    path = Path(path)
    try:
        if path.is_dir():
            raise InputError("is a folder; a file is expected", where=str(path))
        source = Source.of(path)
        if not path.is_file():
            with path.open("rb") as stream:
                return Input(source, data=_piped(stream, path.name))
    except (OSError, ValueError) as error:
        raise unreadable(str(path), error) from None
    if path.stat().st_size == 0:
        raise InputError("is empty; a file with at least one line is expected", where=path.name)
    return Input(source, path=path)


def _piped(stream: IO[bytes], name: str) -> bytes:
    """All that comes through a pipe, which may have no end."""
    return whole(iter(partial(stream.read, CHUNK_BYTES), b""), name, DOCUMENT.bytes())


def refuse_no_path(path: object) -> None:
    """Refuse what no file can be called."""
    if not isinstance(path, (str, os.PathLike)):
        given = "None" if path is None else type(path).__name__
        raise UsageError(f"a path is expected, not {given}")
    if path == "":
        raise UsageError("an empty file name was given; a path is expected")


def unreadable(name: str, error: BaseException) -> InputError:
    """What went wrong while reading, in one line."""
    if isinstance(error, FileNotFoundError):
        return InputError("no such file; check the path", where=name)
    if isinstance(error, PermissionError):
        return InputError("may not be read; check its permissions", where=name)
    told = str(error).partition("\n")[0]
    if "unexpected end of file" in told or "incomplete frame" in told:
        return InputError(CUT_OFF, where=name)
    if isinstance(error, DAMAGE) or "corrupt" in told:
        return InputError(DAMAGED, where=name)
    if "utf" in told.lower():
        return InputError("is not UTF-8 text; save it as UTF-8", where=name)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else told
    return InputError(f"cannot be read ({reason}); check the file", where=name)


def _without_mark(piece: bytes, name: str) -> bytes:
    if piece.startswith(_UTF16):
        raise InputError("is UTF-16 text; save it as UTF-8", where=name)
    return piece.removeprefix(_BOM)


def decode(data: bytes, file: Input, *, first_line: int = 1) -> str:
    """Bytes as text; anything that is not UTF-8 text is refused with its line."""
    nul = data.find(b"\0")
    if nul >= 0:
        raise InputError(
            "holds a NUL byte, so it is binary; text is expected",
            where=file.name,
            line=first_line + data.count(b"\n", 0, nul),
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8",
            where=file.name,
            line=first_line + data.count(b"\n", 0, error.start),
        ) from None


def unpacked_name(name: str) -> str:
    """A file name without ``.gz`` or ``.zst``."""
    suffix = Path(name).suffix
    return name.removesuffix(suffix) if suffix.lower() in _PACKINGS else name


def layout_suffix(name: str) -> str:
    """The ending that tells the layout: ``.jsonl`` for ``run.jsonl.gz``."""
    return Path(unpacked_name(name)).suffix.lower()


def refuse_database(path: str | Path) -> None:
    """Refuse to write over a database, or what belongs to one: a store is no output."""
    target = os.path.realpath(path)
    bases = [target.removesuffix(ending) for ending in _BESIDE if target.endswith(ending)]
    for base in (target, *bases):
        if _is_database(base):
            whose = "" if base == target else f"belongs to {Path(base).name!r}, which "
            raise InputError(
                f"{whose}is a SQLite database, as a store of karat's is; choose another name",
                where=str(path),
            )


def refuse_closed_folder(path: str | Path) -> None:
    """Refuse a place that may not be written to, before any work is done for what goes there."""
    folder = Path(os.path.realpath(path)).parent
    while not folder.exists():
        folder = folder.parent
    if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
        raise InputError("its folder may not be written to; choose another place", where=str(path))


def _is_database(path: str) -> bool:
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return file.read(len(_DATABASE)) == _DATABASE
    except OSError:
        # Whoever writes there is told why not.
        return False


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Write to a temporary name beside ``path``, renamed to it when the block succeeds.

    A failure leaves what was there before, and nothing else. Missing folders are made.
    What is not a regular file (a device, a pipe) is written to directly.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        if target.is_dir():
            raise InputError("is a folder; a file name is expected", where=str(path))
        with _writing(path):
            yield target
        return
    refuse_database(target)
    temporary = target.with_name(f".{target.name[:180]}.{secrets.token_hex(6)}.part")
    with _writing(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            if target.exists():
                temporary.chmod(target.stat().st_mode & 0o7777)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def _writing(path: str | Path) -> Iterator[None]:
    """Tell of what fails under the name that was asked for, not the temporary one."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, pl.exceptions.ComputeError) as error:
        told = str(error).partition("\n")[0]
        reason = error.strerror if isinstance(error, OSError) else None
        if number := _OS_ERROR.search(told):
            reason = os.strerror(int(number[1]))
        first = "make room, or " if reason in [os.strerror(one) for one in FULL] else ""
        raise InputError(
            f"cannot be written: {reason or told}; {first}choose another place", where=str(path)
        ) from None


def write_frame(
    frame: pl.DataFrame, path: str | Path, *, separator: str = ",", header: bool = True
) -> None:
    """A frame as separated values; fields are quoted only where there is a header."""
    with _sink(path) as sink:
        frame.write_csv(
            sink,
            separator=separator,
            include_header=header,
            quote_style="necessary" if header else "never",
            compression=_packing_for(path),
            check_extension=False,
        )


def write_lines(lines: Iterable[str], path: str | Path) -> None:
    """Text line by line, packed as the file's ending says."""
    frame = pl.DataFrame({"line": list(lines)}, schema={"line": pl.String})
    write_frame(frame, path, header=False, separator="\t")


def write_parquet(frame: pl.DataFrame, path: str | Path) -> None:
    """A frame as Parquet, which packs its columns itself."""
    with _sink(path) as sink:
        frame.write_parquet(sink)


def _packing_for(path: str | Path) -> Literal["gzip", "zstd", "uncompressed"]:
    packing = _PACKINGS.get(Path(path).suffix.lower())
    return "gzip" if packing == "gzip" else "zstd" if packing == "zstd" else "uncompressed"


@contextmanager
def _sink(path: str | Path) -> Iterator[Path | io.BytesIO]:
    if str(path) == "-":
        buffer = io.BytesIO()
        yield buffer
        sys.stdout.flush()
        sys.stdout.buffer.write(buffer.getvalue())
        sys.stdout.buffer.flush()
        return
    name = os.fsencode(path).decode(errors="replace")
    if name != os.fspath(path):
        raise InputError("its name is not UTF-8; choose another name", where=name)
    with replacing(path) as temporary:
        yield temporary


def file_name(system: str) -> str:
    """A system's name as a file can have it.

    >>> file_name("hybrid v3/large")
    'hybrid v3_large'
    """
    safe = "".join(one if one.isalnum() or one in "-_.+ " else "_" for one in system).strip(". ")
    return safe or "system"
