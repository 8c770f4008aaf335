"""Files as bytes and text: opening, decompressing, decoding, and replacing them whole.

Every reader and writer goes through here, so a missing, cut off, binary or wrongly
encoded file is refused in one place and no output is ever half written. What the
lines mean is the business of the formats.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import secrets
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import polars as pl

from karat.columns import Source
from karat.errors import InputError, UsageError

Packing = Literal["gzip", "zstd"]

# Large enough that calls cost nothing beside parsing, small enough to stay in cache.
CHUNK_BYTES = 8 << 20
HEAD_BYTES = 1 << 16
_ZSTD_ROWS = 200_000
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BOM = b"\xef\xbb\xbf"
# How Polars tells what the operating system said.
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_CUT_OFF = "the file ends early: the compressed data is cut off; copy or write it again"

# Endings that say how a file is packed or laid out, not what it is called.
_PACKINGS = {".gz": "gzip", ".zst": "zstd"}
_LAYOUTS = {".trec", ".txt", ".run", ".tsv", ".csv", ".jsonl", ".json", ".parquet"}


@dataclass(frozen=True)
class Input:
    """A file, or what came through standard input, ready to be read more than once."""

    source: Source
    path: Path | None = None
    data: bytes | None = None

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
        with self._open() as file:
            start = file.read(4)
        for magic, packing in _PACKED.items():
            if start.startswith(magic):
                return "gzip" if packing == "gzip" else "zstd"
        return None

    def scannable(self) -> Path | io.BytesIO:
        """What Polars reads from."""
        return io.BytesIO(self.data) if self.data is not None else self._file()

    def head(self) -> bytes:
        """The first 64 KiB of the unpacked bytes, for telling formats apart."""
        first = next(self._pieces(HEAD_BYTES), b"")
        return _without_mark(first, self.name)[:HEAD_BYTES]

    def chunks(self, size: int = CHUNK_BYTES, *, lead: bytes = b"") -> Iterator[bytes]:
        """The unpacked bytes in pieces of whole lines, without a byte order mark.

        Every piece begins with ``lead``, which spares whoever wants it there a copy.
        """
        rest: list[bytes | memoryview] = []
        first = True
        for piece in self._pieces(size):
            if first:
                piece, first = _without_mark(piece, self.name), False
            cut = piece.rfind(b"\n") + 1
            if cut:
                yield b"".join((lead, *rest, memoryview(piece)[:cut]))
                rest = [piece[cut:]]
            else:
                rest.append(piece)
        if last := b"".join(rest):
            yield lead + last

    def text(self) -> str:
        """The whole file as text."""
        return decode(b"".join(self.chunks()), self)

    def _file(self) -> Path:
        if self.path is None:
            raise InputError("holds neither a path nor data", where=self.name)
        return self.path

    def _open(self) -> IO[bytes]:
        if self.data is not None:
            return io.BytesIO(self.data)
        try:
            return self._file().open("rb", buffering=0)
        except OSError as error:
            raise unreadable(self.name, error) from None

    def _pieces(self, size: int) -> Iterator[bytes]:
        packing = self.packing
        if packing == "zstd":
            yield from self._unpacked_by_polars()
            return
        with self._open() as file:
            unpacked = gzip.GzipFile(fileobj=file) if packing == "gzip" else file
            try:
                while piece := unpacked.read(size):
                    yield piece
            except EOFError:
                raise InputError(_CUT_OFF, where=self.name) from None
            except (OSError, zlib.error) as error:
                raise unreadable(self.name, error) from None

    def _unpacked_by_polars(self) -> Iterator[bytes]:
        """Python before 3.14 cannot unpack zstd; Polars can, as lines."""
        lines = pl.scan_lines(self.scannable(), glob=False)
        try:
            for batch in lines.collect_batches(chunk_size=_ZSTD_ROWS, maintain_order=True):
                buffer = io.BytesIO()
                batch.write_csv(buffer, include_header=False, quote_style="never")
                yield buffer.getvalue()
        except (OSError, pl.exceptions.PolarsError) as error:
            raise unreadable(self.name, error) from None


def open_input(path: str | Path) -> Input:
    """Open a file, or standard input for ``-``; refuses what cannot hold anything."""
    refuse_no_path(path)
    if str(path) == "-":
        data = sys.stdin.buffer.read()
        if not data:
            raise InputError("is empty; pipe a file into karat", where="stdin")
        return Input(Source("stdin", sha256=hashlib.sha256(data).hexdigest()), data=data)
    path = Path(path)
    try:
        if path.is_dir():
            raise InputError("is a folder; a file is expected", where=str(path))
        source = Source.of(path)
        if not path.is_file():
            return Input(source, data=path.read_bytes())
    except (OSError, ValueError) as error:
        raise unreadable(str(path), error) from None
    if path.stat().st_size == 0:
        raise InputError("is empty; a file with at least one line is expected", where=path.name)
    return Input(source, path=path)


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
        return InputError(_CUT_OFF, where=name)
    if isinstance(error, (zlib.error, gzip.BadGzipFile)) or "corrupt" in told:
        return InputError("the compressed data is damaged; copy or write it again", where=name)
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
        raise InputError(
            f"cannot be written: {reason or told}; choose another place", where=str(path)
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
