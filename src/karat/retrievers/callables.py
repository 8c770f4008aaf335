"""Callables named in a karat.yaml: ``module:callable`` or ``file.py:callable``."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from karat.errors import InputError, UsageError


def load_callable(name: str, folder: Path) -> Callable[..., Any]:
    """What a name stands for; files are looked for from the folder of the karat.yaml."""
    found: Callable[..., Any] = load_object(name, folder)
    if not callable(found):
        raise UsageError(f"{name} is {type(found).__name__}, which cannot be called")
    return found


def load_object(name: str, folder: Path) -> Any:
    """What a name stands for, callable or not."""
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute:
        raise UsageError(f"{name!r} names no callable; write module:callable or file.py:callable")
    # What lies beside the karat.yaml can be imported, also later and by what is loaded here.
    beside = str(folder.resolve())
    if beside not in sys.path:
        sys.path.append(beside)
    module = _from_file(folder / place) if place.endswith(".py") else _by_name(place)
    found: Any = module
    for step in attribute.split("."):
        if not hasattr(found, step):
            public = [one for one in vars(module) if not one.startswith("_")]
            raise UsageError(f"{place} has no {attribute!r}; it has {', '.join(public[:10])}")
        found = getattr(found, step)
    return found


def takes(call: Callable[..., Any], kind: type) -> bool:
    """Whether the first argument is annotated to be of this kind."""
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):
        return False
    if not parameters:
        return False
    wanted = parameters[0].annotation
    return wanted is kind or str(wanted).rpartition(".")[2] == kind.__name__


def words_of(error: BaseException) -> str:
    """What an exception says; one that cannot even say it says nothing."""
    try:
        return str(error)
    except Exception:
        return ""


def told(error: BaseException) -> str:
    """What an exception of someone else's code says, in one line."""
    text = " ".join(words_of(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError("no such file; check the path", where=str(path))
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(f"karat_file_{digest}", path)
    if spec is None or spec.loader is None:
        raise InputError("cannot be loaded as Python", where=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"failed while it was loaded: {told(error)}", where=str(path)) from error
    return module


def _by_name(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"no module {error.name!r}; is it installed or beside karat.yaml?"
        ) from None
    except Exception as error:
        raise UsageError(f"module {name} failed while it was loaded: {told(error)}") from error
