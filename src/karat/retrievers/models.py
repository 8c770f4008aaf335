"""Models of fastembed, loaded by name or from a folder; what goes wrong is told in one line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from karat.errors import InputError, KaratError, UsageError, missing_extra
from karat.retrievers.callables import told
from karat.retrievers.libraries import versions

Family = Literal["TextEmbedding", "SparseTextEmbedding", "TextCrossEncoder"]

# Seconds to find out whether a model can be fetched at all.
_PATIENCE = 10
# This one reads words with no tokenizer; of its lists of stop words the English one is used.
_BM25 = "qdrant/bm25"


@dataclass(frozen=True)
class Model:
    """A model that is ready; ``digest`` is of every file that decides what it gives."""

    library: Any
    name: str
    sha256: str
    digest: str
    max_length: int | None
    needs_idf: bool = False

    @property
    def meta(self) -> dict[str, Any]:
        """What the log says of it."""
        length = {} if self.max_length is None else {"max_length": self.max_length}
        return {"name": self.name, "sha256": self.sha256, **length}

    @property
    def libraries(self) -> dict[str, str]:
        """What runs it, for the log as well."""
        return versions("fastembed", "onnxruntime")


def load_model(
    family: Family,
    name: str,
    *,
    folder: Path | None = None,
    max_length: int | None = None,
    threads: int | None = None,
) -> Model:
    """The model of this name; from a folder nothing is ever fetched."""
    maker = _maker(family)
    described = _described(maker, name)
    if threads is not None and not described.model_file.endswith(".onnx"):
        raise UsageError(f"threads: model {name} uses none; leave it out")
    needed = _needed(described)
    if folder is not None:
        _check_folder(folder, described.model, needed)
        library = _from_folder(maker, described, folder, threads)
    else:
        library = _by_name(maker, described, threads)
    _check_width(library, described, folder)
    length = _cut(library, name, max_length)
    home = Path(library.model._model_dir)
    hashes = {file: _sha256(home / file) for file in needed}
    listed = "\n".join(f"{file} {digest}" for file, digest in sorted(hashes.items()))
    return Model(
        library,
        described.model,
        hashes[needed[0]],
        hashlib.sha256(f"{described.model}\n{length}\n{listed}".encode()).hexdigest(),
        length,
        bool(getattr(described, "requires_idf", None)),
    )


def sound(text: str) -> str:
    """The text as a tokenizer takes it: half a surrogate pair, which JSON can bring, is none."""
    return text.encode("utf-8", "replace").decode()


def _maker(family: Family) -> Any:
    try:
        import fastembed
        from fastembed.rerank.cross_encoder import TextCrossEncoder
    except ImportError:
        raise missing_extra("an embedding model", "fastembed", "dense") from None
    return TextCrossEncoder if family == "TextCrossEncoder" else getattr(fastembed, family)


def _described(maker: Any, name: str) -> Any:
    known = {one.model.lower(): one for one in maker._list_supported_models()}
    if name.lower() in known:
        return known[name.lower()]
    # The part after the slash is what people remember.
    bases = {one.rpartition("/")[2]: model.model for one, model in known.items()}
    near = get_close_matches(name.lower().rpartition("/")[2], bases, n=1, cutoff=0.5)
    hint = f"did you mean {bases[near[0]]}?" if near else f"one of them is {bases.popitem()[1]}"
    raise UsageError(f"unknown model {name!r}; fastembed has {len(known)}: {hint}")


def _needed(described: Any) -> list[str]:
    """The files without which the model cannot work, the weights first."""
    if described.model.lower() == _BM25:
        return ["english.txt"]
    words = ["tokenizer.json"]
    if described.model_file.endswith(".onnx"):
        words.append("tokenizer_config.json")
    return [described.model_file, *described.additional_files, *words]


def _check_folder(folder: Path, name: str, needed: list[str]) -> None:
    if not folder.is_dir():
        what = "is a file; path" if folder.exists() else "no such folder; path"
        raise InputError(f"{what} must be a folder with the files of {name}", where=str(folder))
    missing = [file for file in needed if not (folder / file).is_file()]
    if missing:
        raise InputError(
            f"holds no {' and no '.join(missing)}; {name} needs {', '.join(needed)} there",
            where=str(folder),
        )


def _check_width(library: Any, described: Any, folder: Path | None) -> None:
    """Refuse a folder with the weights of some other model, where its vectors tell."""
    expected = getattr(described, "dim", None)
    if expected is None and not getattr(described, "requires_idf", True):
        expected = getattr(described, "vocab_size", None)
    session = getattr(library.model, "model", None)
    if folder is None or not expected or session is None:
        return
    found = {output.shape[-1] for output in session.get_outputs() if output.shape}
    if found and expected not in found and all(isinstance(width, int) for width in found):
        raise InputError(
            f"holds some other model: it gives {max(found):,} numbers, "
            f"{described.model} gives {expected:,}",
            where=str(folder),
        )


def _from_folder(maker: Any, described: Any, folder: Path, threads: int | None) -> Any:
    try:
        with _quiet():
            return maker(
                described.model,
                threads=threads,
                specific_model_path=str(folder),
                local_files_only=True,
            )
    except Exception as error:
        raise InputError(
            f"cannot be loaded as {described.model}: {told(error)}", where=str(folder)
        ) from error


def _by_name(maker: Any, described: Any, threads: int | None) -> Any:
    """From what was fetched before, else from the network if there is one."""
    try:
        with _quiet():
            return maker(described.model, threads=threads, local_files_only=True)
    except Exception as error:
        absent = error
    with _quiet():
        _check_reachable(described, absent)
        try:
            return maker(described.model, threads=threads)
        except Exception as error:
            raise _unavailable(described.model, told(error)) from error


def _check_reachable(described: Any, absent: Exception) -> None:
    """One quick question, since the library itself waits most of a minute before it gives up."""
    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE:
        raise _unavailable(described.model, "HF_HUB_OFFLINE is set") from absent
    if described.sources.hf is None:
        return
    try:
        HfApi().model_info(described.sources.hf, timeout=_PATIENCE)
    except Exception as error:
        raise _unavailable(described.model, told(error)) from error


def _unavailable(name: str, why: str) -> KaratError:
    return UsageError(
        f"model {name} is not on this machine and cannot be fetched ({why}); "
        "give path: a folder with its files"
    )


def _cut(library: Any, name: str, wanted: int | None) -> int | None:
    """How many tokens of a text the model reads, after it was told how many to read."""
    tokenizer = getattr(library.model, "tokenizer", None)
    own: dict[str, Any] | None = getattr(tokenizer, "truncation", None)
    if wanted is None:
        return None if own is None else int(own["max_length"])
    if tokenizer is None or own is None:
        raise UsageError(f"max_length: model {name} reads texts whole; leave it out")
    least = tokenizer.num_special_tokens_to_add(True) + 1
    if wanted < least:
        raise UsageError(f"max_length is {wanted}; model {name} needs at least {least}")
    most = max(int(own["max_length"]), _positions(Path(library.model._model_dir)))
    if wanted > most:
        raise UsageError(f"max_length is {wanted}; model {name} reads at most {most}")
    tokenizer.enable_truncation(**{**own, "max_length": wanted})
    return wanted


def _positions(home: Path) -> int:
    """How many places the model itself knows, as far as its files say."""
    try:
        config = json.loads((home / "config.json").read_bytes())
    except (OSError, ValueError):
        return 0
    told_so = config.get("max_position_embeddings") if isinstance(config, dict) else None
    return told_so if isinstance(told_so, int) else 0


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's own lines, since what matters of them comes as an error."""
    from loguru import logger

    logger.disable("fastembed")
    try:
        yield
    finally:
        logger.enable("fastembed")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
