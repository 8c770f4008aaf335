"""Folders of Markdown and text files: each file is a document of a corpus."""

from __future__ import annotations

import hashlib
from pathlib import Path

import polars as pl

from karat.columns import Source
from karat.errors import InputError
from karat.formats.files import Input
from karat.tables import Corpus

ENDINGS = (".md", ".markdown", ".txt")
_BEIR = ("corpus.jsonl", "corpus.jsonl.gz", "corpus.jsonl.zst")


def is_folder_of_documents(path: str | Path) -> bool:
    """Whether a path is a folder that is not a BEIR folder with a corpus."""
    folder = Path(path)
    return (
        str(path) != "-" and folder.is_dir() and not any((folder / one).exists() for one in _BEIR)
    )


def read_folder(path: str | Path) -> Corpus:
    """Read every Markdown or text file as a document that is called as the file.

    A file in a folder further in is called ``folder/file.md``. Hidden ones are passed over.
    """
    folder = Path(path)
    files = sorted(
        (file.relative_to(folder).as_posix(), file)
        for file in folder.rglob("*")
        if file.suffix.lower() in ENDINGS and file.is_file()
    )
    files = [(name, file) for name, file in files if not _hidden(name)]
    if not files:
        raise InputError(
            f"is a folder without corpus.jsonl, and holds no file that ends in {_any(ENDINGS)}",
            where=str(path),
        )
    digest = hashlib.sha256()
    texts = []
    for name, file in files:
        text = _text(file, name)
        texts.append(text)
        # Lengths keep the end of one file apart from the beginning of the next.
        digest.update(f"{name}\0{len(text)}\0{text}".encode())
    frame = pl.DataFrame({"item_id": [name for name, _ in files], "text": texts})
    source = Source(folder.resolve().name, sha256=digest.hexdigest())
    return Corpus.from_frame(frame.with_columns(doc_id="item_id"), source=source)


def _text(file: Path, name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        told = name.encode("utf-8", "replace").decode()
        raise InputError("its name is not UTF-8; rename it", where=told) from None
    return Input(Source(name), path=file).text()


def _hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _any(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
