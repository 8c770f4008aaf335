"""Models that turn texts into vectors: of fastembed by name or folder, or a callable."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from karat.errors import CallError, InputError, UsageError, missing_extra
from karat.formats.settings import ConfigModel
from karat.jobs.cache import file_sha256
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Answer, Query
from karat.retrieve.system_config import (
    BatchSize,
    EmbedCall,
    LocalModelOptions,
    MaxLength,
    ModelFolder,
    ModelName,
    QueryPrefix,
    Threads,
)
from karat.retrieve.user_code import (
    UserCode,
    error_line,
    library_versions,
    load_callable,
    source_of,
)
from karat.retrieve.vectors import LARGEST, Floats, unit_rows

Family = Literal["TextEmbedding", "SparseTextEmbedding", "TextCrossEncoder"]

# Seconds to find out whether a model can be fetched at all.
_PATIENCE = 10
# This one reads words with no tokenizer; of its lists of stop words the English one is used.
_BM25 = "qdrant/bm25"


@dataclass(frozen=True)
class Model:
    """A loaded model; ``digest`` covers every file that decides its output."""

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
        """The versions of the libraries that run it."""
        return library_versions("fastembed", "onnxruntime")

    def run(self, method: str, *arguments: Any, **options: Any) -> list[Any]:
        """Return what a method of the library gives for texts."""
        try:
            return list(getattr(self.library, method)(*arguments, **options))
        except Exception as error:
            raise CallError(f"model {self.name} failed: {error_line(error)}") from error

    def tokens(self, text: str) -> int:
        """Return the number of tokens that the model reads of a text."""
        return int(self.library.token_count([valid_unicode(text)]))


def load_model(family: Family, options: LocalModelOptions, context: BuildContext) -> Model:
    """Load the model that options name; from a folder nothing is fetched."""
    name = options.model or ""
    folder = None if options.path is None else context.path(options.path)
    try:
        import fastembed
        from fastembed.rerank.cross_encoder import TextCrossEncoder
    except ImportError:
        raise missing_extra("an embedding model", "fastembed", "dense") from None
    maker = TextCrossEncoder if family == "TextCrossEncoder" else getattr(fastembed, family)
    described = _described(maker, name)
    if options.threads is not None and not described.model_file.endswith(".onnx"):
        raise UsageError(f"threads: model {name} uses none; leave it out")
    needed = _needed(described)
    if folder is not None:
        _check_folder(folder, described.model, needed)
    library = _loaded(maker, described, folder, options.threads)
    _check_width(library, described, folder)
    length = _set_max_length(library, name, options.max_length)
    model_folder = Path(library.model._model_dir)
    hashes = {file: file_sha256(model_folder / file) for file in needed}
    listed = "\n".join(f"{file} {digest}" for file, digest in sorted(hashes.items()))
    return Model(
        library,
        described.model,
        hashes[needed[0]],
        hashlib.sha256(f"{described.model}\n{length}\n{listed}".encode()).hexdigest(),
        length,
        bool(getattr(described, "requires_idf", None)),
    )


def valid_unicode(text: str) -> str:
    """Replace lone surrogates, which JSON can hold and tokenizers refuse."""
    return text.encode("utf-8", "replace").decode()


def _described(maker: Any, name: str) -> Any:
    model_entries = {entry.model.lower(): entry for entry in maker._list_supported_models()}
    if name.lower() in model_entries:
        return model_entries[name.lower()]
    # The part after the slash is what people remember.
    bases = {entry.rpartition("/")[2]: model.model for entry, model in model_entries.items()}
    near = get_close_matches(name.lower().rpartition("/")[2], bases, n=1, cutoff=0.5)
    hint = f"did you mean {bases[near[0]]}?" if near else f"one of them is {bases.popitem()[1]}"
    raise UsageError(f"unknown model {name!r}; fastembed has {len(model_entries)}: {hint}")


def _needed(described: Any) -> list[str]:
    """Return the files that the model needs, its weights first."""
    if described.model.lower() == _BM25:
        return ["english.txt"]
    words = ["tokenizer.json"]
    if described.model_file.endswith(".onnx"):
        words.append("tokenizer_config.json")
    return [described.model_file, *described.additional_files, *words]


def _check_folder(folder: Path, name: str, needed: list[str]) -> None:
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "no such folder"
        raise InputError(f"{problem}; it must be a folder with {name}", where=str(folder))
    missing = [file for file in needed if not (folder / file).is_file()]
    if missing:
        raise InputError(
            f"holds no {' and no '.join(missing)}; {name} needs {', '.join(needed)} there",
            where=str(folder),
        )


def _check_width(library: Any, described: Any, folder: Path | None) -> None:
    """Refuse a folder with the weights of another model, as far as its outputs show it."""
    expected = getattr(described, "dim", None)
    if expected is None and not getattr(described, "requires_idf", True):
        expected = getattr(described, "vocab_size", None)
    session = getattr(library.model, "model", None)
    if folder is None or not expected or session is None:
        return
    widths = {output.shape[-1] for output in session.get_outputs() if output.shape}
    if widths and expected not in widths and all(isinstance(width, int) for width in widths):
        raise InputError(
            f"holds another model: it gives {max(widths):,} numbers, "
            f"{described.model} gives {expected:,}",
            where=str(folder),
        )


def _loaded(maker: Any, described: Any, folder: Path | None, threads: int | None) -> Any:
    """Load a model from a folder; without one from the local cache, else from the network."""
    from huggingface_hub import HfApi, constants
    from loguru import logger

    name = described.model
    where = {} if folder is None else {"specific_model_path": str(folder)}
    # Errors say what matters.
    logger.disable("fastembed")
    try:
        try:
            return maker(name, threads=threads, local_files_only=True, **where)
        except Exception as error:
            if folder is not None:
                raise InputError(
                    f"cannot be loaded as {name}: {error_line(error)}", where=str(folder)
                ) from error
        if constants.HF_HUB_OFFLINE:
            raise ConnectionError("HF_HUB_OFFLINE is set")
        if described.sources.hf is not None:
            # Asked once, since the library itself waits most of a minute before it gives up.
            HfApi().model_info(described.sources.hf, timeout=_PATIENCE)
        return maker(name, threads=threads)
    except InputError:
        raise
    except Exception as error:
        raise UsageError(
            f"model {name} is not on this machine and cannot be fetched ({error_line(error)}); "
            "name a folder with its files"
        ) from error
    finally:
        logger.enable("fastembed")


def _set_max_length(library: Any, name: str, max_length: int | None) -> int | None:
    """Set how many tokens of a text the model reads; return that number."""
    tokenizer = getattr(library.model, "tokenizer", None)
    truncation: dict[str, Any] | None = getattr(tokenizer, "truncation", None)
    if max_length is None:
        return None if truncation is None else int(truncation["max_length"])
    if tokenizer is None or truncation is None:
        raise UsageError(f"max_length: model {name} reads texts whole; leave it out")
    least = tokenizer.num_special_tokens_to_add(True) + 1
    if max_length < least:
        raise UsageError(f"max_length is {max_length}; model {name} needs at least {least}")
    most = max(int(truncation["max_length"]), _positions(Path(library.model._model_dir)))
    if max_length > most:
        raise UsageError(f"max_length is {max_length}; model {name} reads at most {most}")
    tokenizer.enable_truncation(**{**truncation, "max_length": max_length})
    return max_length


def _positions(folder: Path) -> int:
    """Return the number of positions that the model's config names, else 0."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return 0
    positions = config.get("max_position_embeddings") if isinstance(config, dict) else None
    return positions if isinstance(positions, int) else 0


class ModelOptions(LocalModelOptions):
    """Which model makes vectors of texts, and how."""

    embed: EmbedCall = None
    query_prefix: QueryPrefix = ""
    item_prefix: str = Field("", description="text to put before every item")
    batch_size: BatchSize = 1


class QueryModelOptions(ConfigModel):
    """Which model makes the vectors of queries: the one that made those in the store."""

    model: ModelName = None
    model_path: ModelFolder = None
    embed: EmbedCall = None
    max_length: MaxLength = None
    query_prefix: QueryPrefix = ""
    threads: Threads = None


class Embedder:
    """Makes vectors in single precision, of length 1 unless ``unit`` is false.

    A model of fastembed makes them, or a callable: a list of texts in, as many vectors out. A
    text of which it makes nothing but zeros keeps them.
    """

    def __init__(self, options: ModelOptions, context: BuildContext, *, unit: bool = True) -> None:
        if problem := model_problem(options):
            raise UsageError(problem)
        self.batch_size = options.batch_size
        self._options = options
        self._unit = unit
        self._dim: int | None = None
        self._model: Model | None = None
        self._vectors: Callable[[list[str], bool], Any]
        self._about: Mapping[str, Any]
        if options.embed is None:
            model = self._model = load_model("TextEmbedding", options, context)
            self._about, digest = model.meta, model.digest

            def vectors(texts: list[str], query: bool) -> Any:
                method = "query_embed" if query else "passage_embed"
                return model.run(method, texts, batch_size=options.batch_size)

            self._vectors = vectors
        else:
            name = options.embed
            call = load_callable(name, context.folder)
            code = UserCode(name, context.timeout, context.redact)
            sha256 = file_sha256(source_of(name, context.folder))
            digest = hashlib.sha256(f"{name}\n{sha256}".encode()).hexdigest()
            self._about = {"name": name, "sha256": sha256}
            self._vectors = lambda texts, query: (
                code.call(lambda: call(texts))
                if query
                else code.load(lambda: call(texts), done="asked for vectors")
            )
        # Texts that go through a model together can change each other's last digits.
        decisive = json.dumps([digest, options.item_prefix, unit, options.batch_size])
        # The sha256 of all that decides an item's vector.
        self.digest = hashlib.sha256(decisive.encode()).hexdigest()

    @property
    def meta(self) -> Mapping[str, Any]:
        """What the log says of the model."""
        meta = {"embedding_model": {**self._about, "dim": self.dim}}
        return meta if self._model is None else {**meta, "libraries": self._model.libraries}

    @property
    def dim(self) -> int:
        """The length of the vectors."""
        if self._dim is None:
            self._dim = self._embed(["word"], query=False).shape[1]
        return self._dim

    def items(self, texts: Sequence[str]) -> Floats:
        """Return one row per item."""
        return self._rows([self._options.item_prefix + text for text in texts], query=False)

    def queries(self, texts: Sequence[str]) -> Floats:
        """Return one row per query."""
        return self._rows([self._options.query_prefix + text for text in texts], query=True)

    def answers(self, queries: Sequence[Query]) -> tuple[Floats, list[Answer]]:
        """Return one row per query, and answers with the time and tokens that it took."""
        start = time.perf_counter()
        rows = self.queries([query.text for query in queries])
        share = (time.perf_counter() - start) * 1000 / len(queries)
        answers = [Answer([], latency={"embed": share}) for _ in queries]
        if self._model is not None:
            for query, answer in zip(queries, answers, strict=True):
                tokens = self._model.tokens(self._options.query_prefix + query.text)
                answer.cost["query_tokens"] = float(tokens)
        return rows, answers

    def _rows(self, texts: Sequence[str], *, query: bool) -> Floats:
        rows = np.empty((len(texts), self.dim), dtype=np.float32)
        for start in range(0, len(texts), self.batch_size):
            batch = texts[start : start + self.batch_size]
            rows[start : start + len(batch)] = self._embed(batch, query=query)
        return rows

    def _embed(self, texts: Sequence[str], *, query: bool) -> Floats:
        name = self._about["name"]
        output = self._vectors([valid_unicode(text) for text in texts], query)
        rows = checked_rows(output, len(texts), name)
        if self._dim is None:
            self._dim = rows.shape[1]
        elif rows.shape[1] != self._dim:
            raise CallError(
                f"{name} gave a vector of {rows.shape[1]} numbers after one of {self._dim}; "
                "all must have the same"
            )
        return unit_rows(rows) if self._unit else rows.astype(np.float32)


def model_problem(options: ModelOptions | QueryModelOptions) -> str | None:
    """Return why options name no model, or two, or what only a model has beside a callable."""
    if (options.model is None) == (options.embed is None):
        both_or_neither = (
            "both model and embed are" if options.model else "neither model nor embed is"
        )
        return f"{both_or_neither} given; give one of them"
    folder = "path" if isinstance(options, ModelOptions) else "model_path"
    for key in (folder, "max_length", "threads"):
        if options.embed is not None and getattr(options, key) is not None:
            return f"{key} is for a model; with embed leave it out"
    return None


def checked_rows(output: Any, expected: int, name: str) -> npt.NDArray[np.float64]:
    """Return a model's output as numbers: one finite row per text."""
    try:
        rows = np.asarray(output, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise CallError(
            f"{name} gave a value that cannot be read as vectors: {error_line(error)}"
        ) from None
    if rows.ndim != 2 or len(rows) != expected or not rows.shape[1]:
        shape = f"an array of {' × '.join(str(size) for size in rows.shape)}"
        raise CallError(
            f"{name} gave {shape if rows.ndim else 'one value'} for {expected:,} "
            f"text{'' if expected == 1 else 's'}; one row of numbers per text is expected"
        )
    if not (np.abs(rows) <= LARGEST).all():
        raise CallError(f"{name} gave a vector with nan, inf or more than {LARGEST:g}")
    return rows
