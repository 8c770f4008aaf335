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
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar

import polars as pl

from karat.data.columns import Source
from karat.errors import InputError, UsageError
from karat.formats.blocks import format_bytes, memory_budget, parse_size

if TYPE_CHECKING:
    from karat.formats.field_mapping import FileMapping
if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd
HEAD_BYTES = 1 << 16
# Error numbers of a full disk or an exhausted quota.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CHUNK_BYTES = 8 << 20
# How many chunks are parsed ahead; more would only take memory.
_AHEAD = 2
# The first bytes of Parquet and of packed files.
PARQUET, PACKED = b"PAR1", (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
_GZIP, _ZSTD = PACKED
_PACKINGS: dict[str, Literal["gzip", "zstd"]] = {".gz": "gzip", ".zst": "zstd"}
# Suffixes that are not part of the name of a run.
_LAYOUTS = {".trec", ".txt", ".run", ".tsv", ".csv", ".jsonl", ".json", ".parquet"}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# The errors that unpacking damaged bytes raises.
_UNPACK_ERRORS = (zlib.error, gzip.BadGzipFile, zstd.ZstdError)
_CUT_OFF = "the file ends early: the compressed data is cut off; copy or write it again"
_DAMAGED = "the compressed data is damaged; copy or write it again"
# How Polars quotes an error of the operating system.
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
# The first bytes of a SQLite database, and the suffixes of the files next to it.
_SQLITE, _SQLITE_SUFFIXES = b"SQLite format 3\0", ("", "-wal", "-shm", "-journal")

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class SizeLimit:
    """A number of bytes with the environment variable that sets it."""

    variable: str
    default: int
    about: str
    """What it limits, in the words of the documentation."""
    problem: str
    """What a message says of an input beyond the ``{limit}``."""

    def bytes(self, packed: int = 0) -> int:
        """Return the limit in force; unless it is set, a large packed file may unpack to more."""
        setting = os.environ.get(self.variable, "").strip()
        if setting:
            return parse_size(setting, self.variable)
        return max(self.default, _MAX_RATIO * packed)

    def error(self, where: str, *, packed: int = 0) -> InputError:
        """Return the error for an input beyond the limit."""
        problem = self.problem.format(limit=format_bytes(self.bytes(packed)))
        return InputError(f"{problem}, or set {self.variable} to more", where=where)


MAX_LINE = SizeLimit(
    "KARAT_MAX_LINE",
    64_000_000,
    "the longest line",
    "has a line longer than {limit}, the limit; end lines with a line feed",
)
MAX_DOCUMENT = SizeLimit(
    "KARAT_MAX_DOCUMENT",
    512_000_000,
    "the largest document that is read as a whole: JSON, stories and piped input",
    "is larger than {limit}, the limit for a file that is read as a whole; use a file with one "
    "record per line",
)
MAX_UNPACKED = SizeLimit(
    "KARAT_MAX_UNPACKED",
    32_000_000,
    "what a packed file may unpack to; unless set, 200 times its size if that is more",
    "unpacks to more than {limit}, the limit; check where it comes from",
)
LIMITS = (MAX_LINE, MAX_DOCUMENT, MAX_UNPACKED)
# Text that people write does not compress better than this; only repetition does.
_MAX_RATIO = 200
# A table with more columns most likely has its rows written as columns.
_MOST_COLUMNS = 10_000
# Rows that each have their own keys make a table of mostly empty cells.
_MOST_CELLS, _ALWAYS_ALLOWED = 20_000_000, 1_000


def check_columns(columns: int, rows: int, where: str) -> None:
    """Raise InputError if a table has too many columns for its number of rows."""
    most = max(_ALWAYS_ALLOWED, min(_MOST_COLUMNS, _MOST_CELLS // max(rows, 1)))
    if columns > most:
        raise InputError(
            f"has {columns:,} columns; a table of {rows:,} rows may have {most:,}; "
            "keep the columns that you need",
            where=where,
        )


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
    def stem(self) -> str:
        """The name without the suffixes for format and compression."""
        if self.path is None:
            return "stdin"
        path = Path(self.name)
        for suffixes in (_PACKINGS, _LAYOUTS):
            if path.suffix.lower() in suffixes:
                path = path.with_suffix("")
        return str(path)

    @cached_property
    def head(self) -> bytes:
        """The first 64 KiB of the unpacked bytes; raises InputError unless text or Parquet."""
        head = next(self._pieces(HEAD_BYTES), b"")
        if b"\0" in head and not head.startswith(PARQUET):
            decode(head, self)
        return head

    def chunks(self, size: int | None = None) -> Iterator[bytes]:
        """Yield the unpacked bytes in pieces of whole lines, without a byte order mark."""
        remaining: list[bytes] = []
        waiting, longest = 0, MAX_LINE.bytes()
        # No piece is longer than the longest line, so only its first line can be too long.
        for piece in self._pieces(min(size or memory_budget().chunk, longest)):
            end, cut = piece.find(b"\n"), piece.rfind(b"\n") + 1
            if waiting + (end if cut else len(piece)) > longest:
                raise MAX_LINE.error(self.name)
            if cut:
                yield b"".join((*remaining, memoryview(piece)[:cut]))
                remaining, waiting = [piece[cut:]], len(piece) - cut
            else:
                remaining.append(piece)
                waiting += len(piece)
        if last := b"".join(remaining):
            yield last

    def text(self) -> str:
        """Return the whole file as text; raise InputError beyond the limit for documents."""
        return decode(_join(self._pieces(_CHUNK_BYTES), self.name), self)

    def open(self) -> IO[bytes]:
        """Open the file for reading its bytes as they are, packed or not."""
        if self.path is None:
            return io.BytesIO(self.data or b"")
        try:
            return self.path.open("rb", buffering=0)
        except OSError as error:
            raise unreadable(self.name, error) from None

    def _pieces(self, size: int) -> Iterator[bytes]:
        """Yield the unpacked bytes without a byte order mark, ``size`` at a time."""
        total = 0
        with self.open() as file:
            start = file.read(len(_ZSTD))
            file.seek(0)
            stream: Any = file
            if start.startswith(_GZIP):
                stream = gzip.GzipFile(fileobj=file)
            elif start.startswith(_ZSTD):
                stream = zstd.ZstdFile(file)
            try:
                while piece := stream.read(size):
                    if not total and piece.startswith(_UTF16):
                        raise InputError("is UTF-16 text; save it as UTF-8", where=self.name)
                    content = piece if total else piece.removeprefix(BYTE_ORDER_MARK)
                    total += len(piece)
                    # Compared with the bytes read so far, so that a bomb is noticed early.
                    if stream is not file and total > MAX_UNPACKED.bytes(file.tell()):
                        raise MAX_UNPACKED.error(self.name, packed=file.tell())
                    yield content
            except EOFError:
                raise InputError(_CUT_OFF, where=self.name) from None
            except _UNPACK_ERRORS:
                raise InputError(_DAMAGED, where=self.name) from None
            except OSError as error:
                raise unreadable(self.name, error) from None


def open_input(path: str | Path, mapping: FileMapping | None = None) -> Input:
    """Open a file, or standard input for ``-``; raise InputError if it is empty or not a file."""
    check_path(path)
    if str(path) == "-":
        data = _join(_read_all(sys.stdin.buffer), "stdin")
        if not data:
            raise InputError("is empty; pipe a file into karat", where="stdin")
        return Input(_source_of_bytes("stdin", data), data=data, mapping=mapping)
    path = Path(path)
    try:
        if path.is_dir():
            raise InputError("is a folder; a file is expected", where=str(path))
        source = Source.of(path)
        if source.stamp is None:
            with path.open("rb") as stream:
                data = _join(_read_all(stream), path.name)
            return Input(_source_of_bytes(path.name, data), data=data, mapping=mapping)
    except (OSError, ValueError) as error:
        raise unreadable(str(path), error) from None
    if path.stat().st_size == 0:
        raise InputError("is empty; a file with at least one line is expected", where=path.name)
    return Input(source, path=path, mapping=mapping)


def _source_of_bytes(name: str, data: bytes) -> Source:
    """Return the source of bytes that are read once, with their digest."""
    return Source(name, sha256=hashlib.sha256(data).hexdigest())


def _read_all(stream: IO[bytes]) -> Iterator[bytes]:
    return iter(partial(stream.read, _CHUNK_BYTES), b"")


def _join(pieces: Iterable[bytes], where: str) -> bytes:
    """Return all pieces as one; raise InputError beyond the limit for documents."""
    parts, size, most = [], 0, MAX_DOCUMENT.bytes()
    for piece in pieces:
        size += len(piece)
        if size > most:
            raise MAX_DOCUMENT.error(where)
        parts.append(piece)
    return b"".join(parts)


def parse_ahead(
    chunks: Iterator[bytes], parse: Callable[[bytes], Parsed]
) -> Iterator[Future[Parsed]]:
    """Yield parsed chunks, some ahead of the consumer; reading has its own thread."""
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(_AHEAD) as pool:
        waiting: deque[Future[Parsed]] = deque()
        next_chunk = reader.submit(next, chunks, None)
        while (chunk := next_chunk.result()) is not None:
            next_chunk = reader.submit(next, chunks, None)
            waiting.append(pool.submit(parse, chunk))
            if len(waiting) > _AHEAD:
                yield waiting.popleft()
        yield from waiting


def check_path(path: object) -> None:
    """Raise UsageError for something that is not a path."""
    if not isinstance(path, (str, os.PathLike)):
        kind = "None" if path is None else type(path).__name__
        raise UsageError(f"a path is expected, not {kind}")
    if path == "":
        raise UsageError("an empty file name was given; a path is expected")


def unreadable(name: str, error: BaseException) -> InputError:
    """Return the InputError for a failed read."""
    message = str(error).partition("\n")[0]
    if isinstance(error, FileNotFoundError):
        problem = "no such file; check the path"
    elif isinstance(error, PermissionError):
        problem = "may not be read; check its permissions"
    elif "unexpected end of file" in message or "incomplete frame" in message:
        problem = _CUT_OFF
    elif isinstance(error, _UNPACK_ERRORS) or "corrupt" in message:
        problem = _DAMAGED
    elif "utf" in message.lower():
        problem = "is not UTF-8 text; save it as UTF-8"
    else:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else message
        problem = f"cannot be read ({reason}); check the file"
    return InputError(problem, where=name)


def decode(data: bytes, file: Input, *, first_line: int = 1) -> str:
    """Return bytes as text; raise InputError with the line of what is not UTF-8 text."""
    at = data.find(b"\0")
    problem = "holds a NUL byte, so it is binary; text is expected"
    if at < 0:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            at = error.start
            problem = f"byte 0x{data[at]:02x} is not UTF-8; save the file as UTF-8"
    raise InputError(problem, where=file.name, line=first_line + data.count(b"\n", 0, at))


def layout_suffix(name: str) -> str:
    """Return the suffix that shows the format: ``.jsonl`` for ``run.jsonl.gz``."""
    path = Path(name)
    return (path.with_suffix("") if path.suffix.lower() in _PACKINGS else path).suffix.lower()


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` when the block succeeds.

    After a failure the old file is still there, and nothing else. Missing folders are created.
    A device or pipe is written to directly.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise InputError("is a folder; a file name is expected", where=str(path))
    refuse_database(target)
    try:
        if target.exists() and not target.is_file():
            yield target
            return
        temporary = target.with_name(f".{target.name[:180]}.{secrets.token_hex(6)}.part")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            if target.exists():
                temporary.chmod(target.stat().st_mode & 0o7777)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except (OSError, pl.exceptions.ComputeError) as error:
        message = str(error).partition("\n")[0]
        reason = error.strerror if isinstance(error, OSError) else None
        if match := _OS_ERROR.search(message):
            reason = os.strerror(int(match[1]))
        is_full = reason in [os.strerror(number) for number in DISK_FULL]
        advice = "make room, or " if is_full else ""
        raise InputError(
            f"cannot be written: {reason or message}; {advice}choose another place", where=str(path)
        ) from None


def refuse_database(path: str | Path) -> None:
    """Raise InputError if writing to the path would overwrite a SQLite database."""
    target = os.path.realpath(path)
    for base in (target.removesuffix(suffix) for suffix in _SQLITE_SUFFIXES):
        start = b""
        # The writer reports what else is wrong with the path.
        with suppress(OSError):
            if Path(base).is_file():
                with Path(base).open("rb") as file:
                    start = file.read(len(_SQLITE))
        if start == _SQLITE:
            whose = "" if base == target else f"belongs to {Path(base).name!r}, which "
            raise InputError(
                f"{whose}is a SQLite database, as a store of karat's is; choose another name",
                where=str(path),
            )


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
            compression=_PACKINGS.get(Path(path).suffix.lower(), "uncompressed"),
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
    safe = "".join(char if char.isalnum() or char in "-_.+ " else "_" for char in system)
    return safe.strip(". ") or "system"
