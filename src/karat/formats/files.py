"""Files as bytes and text: open, decompress, decode, and write atomically.

Every reader and writer goes through this module, so a missing, truncated, binary or wrongly
encoded file is refused in one place, and no output is ever half written. The formats interpret
the lines.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import re
import secrets
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import polars as pl

from karat.data.columns import Source
from karat.errors import InputError, UsageError
from karat.formats.limits import (
    MAX_DOCUMENT,
    MAX_LINE,
    chunk_bytes,
    document_too_large,
    line_too_long,
    max_unpacked,
    unpacks_too_large,
)

if TYPE_CHECKING:
    from karat.formats.field_mapping import FileMapping
if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd
Packing = Literal["gzip", "zstd"]
# Large enough that calls cost little next to parsing, small enough to stay in cache.
CHUNK_BYTES = 8 << 20
HEAD_BYTES = 1 << 16
# Error numbers of a full disk or an exhausted quota.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# Suffixes that are not part of the name of a run.
_PACKINGS = {".gz": "gzip", ".zst": "zstd"}
_LAYOUTS = {".trec", ".txt", ".run", ".tsv", ".csv", ".jsonl", ".json", ".parquet"}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BOM = b"\xef\xbb\xbf"
# The errors that unpacking damaged bytes raises.
_UNPACK_ERRORS = (zlib.error, gzip.BadGzipFile, zstd.ZstdError)
_CUT_OFF = "the file ends early: the compressed data is cut off; copy or write it again"
_DAMAGED = "the compressed data is damaged; copy or write it again"
# How Polars quotes an error of the operating system.
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
# The first bytes of a SQLite database, and the suffixes of the files next to it.
_SQLITE, _SQLITE_SUFFIXES = b"SQLite format 3\0", ("-wal", "-shm", "-journal")


@dataclass(frozen=True)
class Input:
    """A file, or the content of standard input, that can be read more than once."""

    source: Source
    path: Path | None = None
    data: bytes | None = None
    mapping: FileMapping | None = None
    """The columns that the user renames with ``--field``."""

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def suffix(self) -> str:
        """The suffix that shows the format, without ``.gz`` and ``.zst``."""
        return layout_suffix(self.name)

    @property
    def stem(self) -> str:
        """The name without the suffixes for format and compression."""
        if self.path is None:
            return "stdin"
        name = _unpacked_name(self.name)
        suffix = Path(name).suffix
        return name.removesuffix(suffix) if suffix.lower() in _LAYOUTS else name

    def rename_columns(self, table: pl.DataFrame) -> pl.DataFrame:
        """Return a table of this file under karat's column names."""
        return table if self.mapping is None else self.mapping.frame(table)

    def rename_keys(self, names: list[str]) -> list[str]:
        """Return names of columns of this file as karat's names."""
        return names if self.mapping is None else self.mapping.keys(names)

    def explaining(self) -> AbstractContextManager[None]:
        """Add to input errors which mapped columns the file lacks."""
        return nullcontext() if self.mapping is None else self.mapping.explaining()

    @property
    def packing(self) -> Packing | None:
        with self.open() as file:
            return _packing_of(file.read(4))

    def scannable(self) -> Path | io.BytesIO:
        """Return what Polars reads from."""
        return io.BytesIO(self.data) if self.data is not None else self._file()

    def head(self) -> bytes:
        """Return the first 64 KiB of the unpacked bytes, for detecting the format."""
        first = next(self._pieces(HEAD_BYTES), b"")
        return _without_byte_order_mark(first, self.name)[:HEAD_BYTES]

    def chunks(self, size: int | None = None, *, lead: bytes = b"") -> Iterator[bytes]:
        """Yield the unpacked bytes in pieces of whole lines, without a byte order mark.

        Every piece begins with ``lead``, which saves the caller a copy.
        """
        rest: list[bytes] = []
        done, waiting, most = 0, 0, MAX_LINE.bytes()
        for piece in self._pieces(chunk_bytes() if size is None else size):
            if not done and not rest:
                piece = _without_byte_order_mark(piece, self.name)
            cut = piece.rfind(b"\n") + 1
            if len(piece) > most and (long := _find_long_line(piece, waiting, most)) is not None:
                offset = done + waiting + long if long else done
                raise line_too_long(self.name, self._line_at(offset), most)
            if cut:
                yield b"".join((lead, *rest, memoryview(piece)[:cut]))
                done, rest, waiting = done + waiting + cut, [piece[cut:]], len(piece) - cut
            else:
                rest.append(piece)
                waiting += len(piece)
            if waiting > most:
                rest.clear()
                raise line_too_long(self.name, self._line_at(done), most)
        if last := b"".join(rest):
            yield lead + last

    def text(self, most: int | None = None) -> str:
        """Return the whole file as text; raise InputError beyond ``most`` bytes."""
        limit = MAX_DOCUMENT.bytes() if most is None else most
        if self.path is not None and self.path.stat().st_size > limit:
            raise document_too_large(self.name, limit)
        data = _join(self._pieces(CHUNK_BYTES), self.name, limit)
        return decode(_without_byte_order_mark(data, self.name), self)

    def check_lines(self) -> None:
        """Raise InputError for a line that is too long; reads only where one would have to end."""
        most = MAX_LINE.bytes()
        with self.open() as file:
            size, start = file.seek(0, os.SEEK_END), 0
            while size - start > most:
                end = _find_last_line_end(file, start, start + most + 1)
                if end is None:
                    raise line_too_long(self.name, self._line_at(start), most)
                start = end + 1

    def _line_at(self, offset: int) -> int:
        """Return the number of the line that starts after ``offset`` bytes."""
        line = 1
        for piece in self._pieces(CHUNK_BYTES):
            line += piece.count(b"\n", 0, max(offset, 0))
            offset -= len(piece)
            if offset <= 0:
                break
        return line

    def _file(self) -> Path:
        if self.path is None:
            raise InputError("holds neither a path nor data", where=self.name)
        return self.path

    def open(self) -> IO[bytes]:
        """Open the file for reading its bytes as they are, packed or not."""
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
                    yield from _unpack(file, packing, size, self.name)
                while packing is None and (piece := file.read(size)):
                    yield piece
            except OSError as error:
                raise unreadable(self.name, error) from None


def open_input(path: str | Path) -> Input:
    """Open a file, or standard input for ``-``; raise InputError if it is empty or not a file."""
    check_path(path)
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
    """Return everything from a pipe, up to the limit for documents."""
    return _join(iter(partial(stream.read, CHUNK_BYTES), b""), name, MAX_DOCUMENT.bytes())


def check_path(path: object) -> None:
    """Raise UsageError for something that is not a path."""
    if not isinstance(path, (str, os.PathLike)):
        kind = "None" if path is None else type(path).__name__
        raise UsageError(f"a path is expected, not {kind}")
    if path == "":
        raise UsageError("an empty file name was given; a path is expected")


def unreadable(name: str, error: BaseException) -> InputError:
    """Return the InputError for a failed read."""
    if isinstance(error, FileNotFoundError):
        return InputError("no such file; check the path", where=name)
    if isinstance(error, PermissionError):
        return InputError("may not be read; check its permissions", where=name)
    message = str(error).partition("\n")[0]
    if "unexpected end of file" in message or "incomplete frame" in message:
        return InputError(_CUT_OFF, where=name)
    if isinstance(error, _UNPACK_ERRORS) or "corrupt" in message:
        return InputError(_DAMAGED, where=name)
    if "utf" in message.lower():
        return InputError("is not UTF-8 text; save it as UTF-8", where=name)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else message
    return InputError(f"cannot be read ({reason}); check the file", where=name)


def decode(data: bytes, file: Input, *, first_line: int = 1) -> str:
    """Return bytes as text; raise InputError with the line of what is not UTF-8 text."""
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


def _without_byte_order_mark(piece: bytes, name: str) -> bytes:
    if piece.startswith(_UTF16):
        raise InputError("is UTF-16 text; save it as UTF-8", where=name)
    return piece.removeprefix(_BOM)


def layout_suffix(name: str) -> str:
    """Return the suffix that shows the format: ``.jsonl`` for ``run.jsonl.gz``."""
    return Path(_unpacked_name(name)).suffix.lower()


def _unpacked_name(name: str) -> str:
    """Return a file name without ``.gz`` or ``.zst``."""
    suffix = Path(name).suffix
    return name.removesuffix(suffix) if suffix.lower() in _PACKINGS else name


def _packing_of(start: bytes) -> Packing | None:
    if start.startswith(_GZIP):
        return "gzip"
    return "zstd" if start.startswith(_ZSTD) else None


def _unpack(file: IO[bytes], packing: Packing, size: int, where: str) -> Iterator[bytes]:
    """Yield the unpacked bytes, ``size`` at a time."""
    stream: Any = gzip.GzipFile(fileobj=file) if packing == "gzip" else zstd.ZstdFile(file)
    total = 0
    try:
        while piece := stream.read(size):
            total += len(piece)
            # Checked against the bytes read so far, so that a bomb is noticed early.
            packed = file.tell()
            if total > (most := max_unpacked(packed)):
                raise unpacks_too_large(where, packed, most)
            yield piece
    except EOFError:
        raise InputError(_CUT_OFF, where=where) from None
    except _UNPACK_ERRORS:
        raise InputError(_DAMAGED, where=where) from None


def _join(pieces: Iterable[bytes], where: str, most: int) -> bytes:
    """Return all pieces as one; raise InputError beyond ``most`` bytes."""
    parts, size = [], 0
    for piece in pieces:
        size += len(piece)
        if size > most:
            raise document_too_large(where, most)
        parts.append(piece)
    return b"".join(parts)


def _find_long_line(piece: bytes, before: int, most: int) -> int | None:
    """Return where the first line longer than ``most`` bytes starts in a piece, or None.

    ``before`` bytes of the piece's first line came in earlier pieces.
    """
    start = 0
    while (end := piece.find(b"\n", start)) >= 0:
        if before + end - start > most:
            return start
        start, before = end + 1, 0
    return None


def _find_last_line_end(file: IO[bytes], start: int, end: int) -> int | None:
    """Return the position of the last line feed in a range; reads from its end backwards."""
    while end > start:
        begin = max(start, end - HEAD_BYTES)
        file.seek(begin)
        position = file.read(end - begin).rfind(b"\n")
        if position >= 0:
            return begin + position
        end = begin
    return None


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` when the block succeeds.

    After a failure the old file is still there, and nothing else. Missing folders are created.
    A device or pipe is written to directly.
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
    """Report write errors under the user's path, not the temporary one."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, pl.exceptions.ComputeError) as error:
        message = str(error).partition("\n")[0]
        reason = error.strerror if isinstance(error, OSError) else None
        if number := _OS_ERROR.search(message):
            reason = os.strerror(int(number[1]))
        advice = "make room, or " if reason in [os.strerror(number) for number in DISK_FULL] else ""
        raise InputError(
            f"cannot be written: {reason or message}; {advice}choose another place", where=str(path)
        ) from None


def refuse_database(path: str | Path) -> None:
    """Raise InputError if writing to the path would overwrite a SQLite database."""
    target = os.path.realpath(path)
    bases = [target.removesuffix(suffix) for suffix in _SQLITE_SUFFIXES if target.endswith(suffix)]
    for base in (target, *bases):
        if _is_database(base):
            whose = "" if base == target else f"belongs to {Path(base).name!r}, which "
            raise InputError(
                f"{whose}is a SQLite database, as a store of karat's is; choose another name",
                where=str(path),
            )


def _is_database(path: str) -> bool:
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        # The writer reports the reason.
        return False


def check_writable(path: str | Path) -> None:
    """Raise InputError if the folder of a path is not writable, before any work is done."""
    folder = Path(os.path.realpath(path)).parent
    while not folder.exists():
        folder = folder.parent
    if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
        raise InputError("its folder may not be written to; choose another place", where=str(path))


def write_frame(
    frame: pl.DataFrame, path: str | Path, *, separator: str = ",", header: bool = True
) -> None:
    """Write a frame as separated values; fields are quoted only if there is a header."""
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
    """Write lines of text, compressed if the suffix says so."""
    frame = pl.DataFrame({"line": list(lines)}, schema={"line": pl.String})
    write_frame(frame, path, header=False, separator="\t")


def write_parquet(frame: pl.DataFrame, path: str | Path) -> None:
    """Write a frame as Parquet."""
    with _sink(path) as sink:
        frame.write_parquet(sink)


def _packing_for(path: str | Path) -> Literal["gzip", "zstd", "uncompressed"]:
    packing = _PACKINGS.get(Path(path).suffix.lower())
    return "gzip" if packing == "gzip" else "zstd" if packing == "zstd" else "uncompressed"


@contextmanager
def _sink(path: str | Path) -> Iterator[Path | io.BytesIO]:
    if str(path) in ("-", "/dev/stdout"):
        buffer = io.BytesIO()
        yield buffer
        sys.stdout.flush()
        sys.stdout.buffer.write(buffer.getvalue())
        sys.stdout.buffer.flush()
        return
    name = os.fsencode(path).decode(errors="replace")
    if name != os.fspath(path):
        raise InputError("its name is not UTF-8; choose another name", where=name)
    with atomic_write(path) as temporary:
        yield temporary


def safe_file_name(system: str) -> str:
    """Return a system's name with characters that any file system accepts.

    >>> safe_file_name("hybrid v3/large")
    'hybrid v3_large'
    """
    safe = "".join(char if char.isalnum() or char in "-_.+ " else "_" for char in system).strip(
        ". "
    )
    return safe or "system"
