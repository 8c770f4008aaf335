"""Texts made into vectors: by a real model from a folder, by callables, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import model_folders
import numpy as np
import pytest

from karat.errors import CallError, InputError, KaratError, MissingExtraError, UsageError
from karat.retrieve.build_context import BuildContext
from karat.retrieve.models import Embedder, ModelOptions, unit_rows
from karat.retrieve.protocol import Query

SCIFACT = Path(__file__).parents[2] / "../shared/data/scifact"
LONG = "waves " * 400


def made(folder: Path, **options):
    return Embedder(ModelOptions(**options), BuildContext(folder=folder))


def tokens(model, text):
    """How many tokens of a query the model reads, None if unknown."""
    [answer] = model.answers([Query("q1", text)])[1]
    return answer.cost.get("query_tokens")


@pytest.fixture(scope="module")
def model(minilm):
    return made(minilm.parent, model=model_folders.MINILM, path=minilm.name)


def test_vectors_are_what_the_library_itself_gives(model, minilm):
    from fastembed import TextEmbedding

    texts = ["A storm at sea", "calm harbour", "", LONG]
    library = TextEmbedding(model_folders.MINILM, specific_model_path=str(minilm))
    expected = np.stack(list(library.embed(texts, batch_size=1)))
    vectors = model.items(texts)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_vectors_agree_with_those_of_the_same_model_in_full_precision(model):
    if not SCIFACT.is_dir():
        pytest.skip("needs SciFact beside the project")
    import karat
    from karat.retrieve.build_context import Items

    items = Items(karat.read_corpus(str(SCIFACT / "corpus.beir-layout.jsonl.gz")))
    kept = np.load(SCIFACT / "runs_made_here/all-MiniLM-L6-v2.docs.float16.npy", mmap_mode="r")
    rows = [0, 1, 2591, 5182]
    vectors = model.items([items.titled[row] for row in rows])
    cosines = (vectors * kept[rows].astype(np.float32)).sum(axis=1)
    assert cosines.min() > 0.998


def test_like_texts_are_nearer_than_unlike_ones(model):
    storm, gale, tax = model.items(
        ["a storm at sea", "a gale on the ocean", "filing a tax return in March"]
    )
    asked = model.queries(["rough weather on the water"])[0]
    assert asked.shape == (384,)
    assert asked @ storm > asked @ tax
    assert storm @ gale > storm @ tax + 0.2


def test_a_text_has_the_same_vector_whatever_stands_beside_it(model):
    together = model.items(["a storm", LONG, "calm"])
    alone = np.concatenate([model.items([text]) for text in ("a storm", LONG, "calm")])
    assert together.tobytes() == alone.tobytes()


def test_odd_texts_are_texts(model):
    million = "".join(chr(97 + i % 26) + (" " if i % 7 == 0 else "") for i in range(1_000_000))
    vectors = model.items(["", "   ", "\ud83d", "日本語のテキスト", million[:1_000_000]])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert model.items([]).shape == (0, 384)


def test_what_the_log_says_of_a_model(model, minilm):
    weights = hashlib.sha256((minilm / "model.onnx").read_bytes()).hexdigest()
    assert model.meta == {
        "embedding_model": {
            "name": model_folders.MINILM,
            "sha256": weights,
            "max_length": 256,
            "dim": 384,
        },
        "libraries": {
            "fastembed": version("fastembed"),
            "onnxruntime": version("onnxruntime"),
        },
    }


def test_tokens_are_counted_as_far_as_the_model_reads(model):
    assert tokens(model, "storm at sea") == 5  # with [CLS] and [SEP]
    assert tokens(model, LONG) == 256


def test_max_length_takes_effect_and_leaves_the_folder_alone(minilm, tmp_path):
    folder = model_folders.with_tokenizer(tmp_path / "long", max_length=512)
    shutil.copy(minilm / "model.onnx", folder)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    own = made(tmp_path, model=model_folders.MINILM, path="long")
    cut = made(tmp_path, model=model_folders.MINILM, path="long", max_length=16)
    words = ["the", "storm", "took", "the", "mast", "and", "then", "the", "sail"]
    text, start = " ".join(words * 4), " ".join((words * 4)[:14])
    assert tokens(cut, text) == 16
    assert cut.items([text]).tobytes() == own.items([start]).tobytes()
    assert cut.items([text]).tobytes() != own.items([text]).tobytes()
    assert cut.meta["embedding_model"]["max_length"] == 16
    assert own.meta["embedding_model"]["max_length"] == 512
    assert cut.digest != own.digest
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_prefixes_stand_before_queries_and_items(minilm):
    plain = made(minilm, model=model_folders.MINILM, path=".")
    both = made(
        minilm, model=model_folders.MINILM, path=".", query_prefix="query: ", item_prefix="text: "
    )
    assert both.queries(["storm"])[0].tobytes() == plain.queries(["query: storm"])[0].tobytes()
    assert both.items(["storm"]).tobytes() == plain.items(["text: storm"]).tobytes()
    assert both.digest != plain.digest


def test_a_folder_is_all_that_is_needed(minilm, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("the network was asked")

    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert made(minilm, model=model_folders.MINILM, path=".").queries(["storm"])[0].shape == (384,)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({}, UsageError, "neither model nor embed is given"),
        ({"model": "x", "embed": "m.py:f"}, UsageError, "both model and embed are given"),
        ({"model": "BAAI/bge-smal-en-v1.5"}, UsageError, "did you mean BAAI/bge-small-en-v1.5?"),
        ({"model": "all-MiniLM"}, UsageError, "did you mean sentence-transformers/all-MiniLM-L6"),
        ({"model": "qqq"}, UsageError, "one of them is "),
        ({"embed": "m.py:f", "path": "x"}, UsageError, "path is for a model"),
        ({"embed": "m.py:f", "max_length": 9}, UsageError, "max_length is for a model"),
        ({"embed": "m.py:f", "threads": 2}, UsageError, "threads is for a model"),
        ({"embed": "m.py:f"}, InputError, "no such file"),
        ({"model": model_folders.MINILM, "path": "none"}, InputError, "no such folder"),
        ({"model": model_folders.MINILM, "path": "a.txt"}, InputError, "is a file"),
        ({"model": "minishlab/potion-base-8M", "threads": 2}, UsageError, "threads"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(tmp_path, options, error, told):
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(error) as caught:
        made(tmp_path, **options)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("removed", "told"),
    [
        ("model.onnx", "holds no model.onnx"),
        ("tokenizer.json", "holds no tokenizer.json"),
        ("tokenizer_config.json", "holds no tokenizer_config.json"),
    ],
)
def test_a_missing_file_of_a_model_is_named(minilm, tmp_path, removed, told):
    shutil.copytree(minilm, tmp_path / "folder")
    (tmp_path / "folder" / removed).unlink()
    with pytest.raises(InputError, match=told) as caught:
        made(tmp_path, model=model_folders.MINILM, path="folder")
    assert "needs model.onnx, tokenizer.json, tokenizer_config.json there" in str(caught.value)


@pytest.mark.parametrize("damaged", ["model.onnx", "tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_file_of_a_model_is_one_line(minilm, tmp_path, damaged):
    shutil.copytree(minilm, tmp_path / "folder")
    (tmp_path / "folder" / damaged).write_bytes(b"no such thing")
    with pytest.raises(InputError, match="cannot be loaded as") as caught:
        made(tmp_path, model=model_folders.MINILM, path="folder")
    assert "\n" not in str(caught.value)


def test_a_tokenizer_without_any_limit_says_what_to_do(minilm, tmp_path):
    shutil.copytree(minilm, tmp_path / "folder")
    config = tmp_path / "folder" / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"model_max_length": 10**30}))
    with pytest.raises(InputError, match="model_max_length"):
        made(tmp_path, model=model_folders.MINILM, path="folder")


def test_a_folder_with_some_other_model_is_refused(splade):
    with pytest.raises(InputError, match="holds another model: it gives 30,522 numbers"):
        made(splade, model=model_folders.MINILM, path=".")


@pytest.mark.parametrize(("length", "told"), [(3, "at least 4"), (513, "at most 512")])
def test_lengths_that_a_model_cannot_read_are_refused(minilm, length, told):
    with pytest.raises(UsageError, match=told):
        made(minilm, model=model_folders.MINILM, path=".", max_length=length)


_LOAD = """
import sys
from karat.errors import KaratError
from karat.retrieve import models
from karat.retrieve.build_context import BuildContext
models._PATIENCE = 1
try:
    models.load_model(
        "TextEmbedding", models.ModelOptions(model="BAAI/bge-small-en-v1.5"), BuildContext()
    )
except KaratError as error:
    print(error)
"""


def _without_network(tmp_path, **environment):
    begun = time.monotonic()
    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", _LOAD],
        env={**os.environ, "FASTEMBED_CACHE_PATH": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert told.stderr == ""
    assert time.monotonic() - begun < 60
    return told.stdout


def test_a_model_that_cannot_be_fetched_is_one_line(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        told = _without_network(tmp_path, HF_ENDPOINT=f"http://127.0.0.1:{closed.getsockname()[1]}")
    assert told.startswith(
        "model BAAI/bge-small-en-v1.5 is not on this machine and cannot be fetched ("
    )
    assert told.endswith("name a folder with its files\n")
    assert told.count("\n") == 1


def test_a_network_that_does_not_answer_is_not_waited_for(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        told = _without_network(tmp_path, HF_ENDPOINT=f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert "cannot be fetched" in told
    assert told.count("\n") == 1


def test_a_machine_that_is_to_stay_offline_does(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        told = _without_network(tmp_path, HF_HUB_OFFLINE="1", HF_ENDPOINT=address)
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert "HF_HUB_OFFLINE is set)" in told


def test_without_the_library_the_command_that_installs_it_is_told(minilm, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastembed", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'karat\[dense\]'"):
        made(minilm, model=model_folders.MINILM, path=".")


COUNTING = """
def embed(texts):
    return [[text.count("a"), text.count("b"), 1] for text in texts]
"""


def test_a_callable_can_make_the_vectors(tmp_path):
    (tmp_path / "own.py").write_text(COUNTING)
    own = made(tmp_path, embed="own.py:embed", batch_size=2)
    vectors = own.items(["aa", "b", ""])
    expected = [[2 / 5**0.5, 0, 1 / 5**0.5], [0, 0.5**0.5, 0.5**0.5], [0, 0, 1]]
    np.testing.assert_allclose(vectors, expected, atol=1e-7)
    assert tokens(own, "aa") is None
    digest = hashlib.sha256((tmp_path / "own.py").read_bytes()).hexdigest()
    assert own.meta == {"embedding_model": {"name": "own.py:embed", "sha256": digest, "dim": 3}}
    (tmp_path / "own.py").write_text(COUNTING + "# changed")
    assert made(tmp_path, embed="own.py:embed").digest != own.digest


def test_a_callable_is_given_batches(tmp_path):
    (tmp_path / "own.py").write_text(
        "import json, pathlib\n"
        "def embed(texts):\n"
        "    with pathlib.Path(__file__).with_name('batches').open('a') as file:\n"
        "        print(json.dumps(texts), file=file)\n"
        "    return [[1.0]] * len(texts)\n"
    )
    own = made(tmp_path, embed="own.py:embed", batch_size=2, item_prefix="> ")
    own.items(["one", "two", "three"])
    batches = [json.loads(line) for line in (tmp_path / "batches").read_text().splitlines()]
    assert [batch for batch in batches if batch != ["word"]] == [["> one", "> two"], ["> three"]]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return [[1.0, 2.0]] * 3", "gave an array of 3 × 2 for 1 text; one row"),
        ("return [1.0, 2.0]", "gave an array of 2 for 1 text"),
        ("return [[]]", "gave an array of 1 × 0 for 1 text"),
        ("return None", "gave one value for 1 text"),
        ("return [[1.0], [1.0, 2.0]]", "cannot be read as vectors"),
        ("return [['x']]", "cannot be read as vectors"),
        ("return [[float('nan')]]", "nan, inf or more"),
        ("return [[float('inf')]]", "nan, inf or more"),
        (
            "raise RuntimeError('the service\\nis down')",
            "RuntimeError: the service is down",
        ),
        ("return [[1.0] * len(texts[0])]", "gave a vector of 3 numbers after one of 4"),
    ],
)
def test_a_callable_that_gives_no_vectors_is_a_failed_call(tmp_path, body, told):
    (tmp_path / "own.py").write_text(f"def embed(texts):\n    {body}\n")
    own = made(tmp_path, embed="own.py:embed")
    with pytest.raises((CallError, UsageError)) as caught:
        own.items(["abc"])
    assert str(caught.value).startswith("own.py:embed ")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_text_of_which_nothing_is_made_stays_zero(tmp_path):
    (tmp_path / "own.py").write_text("def embed(texts):\n    return [[0.0, 0.0]] * len(texts)\n")
    assert made(tmp_path, embed="own.py:embed").items(["a"]).tolist() == [[0.0, 0.0]]


def test_secrets_stay_out_of_a_callables_errors(tmp_path):
    (tmp_path / "own.py").write_text("def embed(texts):\n    raise OSError('bad key s3cr3t')\n")
    context = BuildContext(folder=tmp_path, environment={"KEY": "s3cr3t"})
    context.expand("${KEY}")
    with pytest.raises(KaratError, match=r"bad key \$\{KEY\}"):
        Embedder(ModelOptions(embed="own.py:embed"), context).queries(["a"])[0]


def test_lengths_are_one_from_the_smallest_numbers_to_the_largest():
    rows = unit_rows(np.array([[3e-30, 4e-30], [3e14, 4e14], [0, 0]], dtype=np.float32))
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0.6, 0.8], [0, 0]], atol=1e-6)
