"""karat.yaml: what to evaluate, with which measures and gates, and where the reports go."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import InstanceOf, PrivateAttr, ValidationError

from karat.errors import KaratError
from karat.evaluation.gate_files import CONFIG_KEYS, ConfigForm, parse_gates
from karat.evaluation.gates import Gate
from karat.evaluation.segments import By
from karat.formats.field_mapping import Fields
from karat.formats.settings import Place, explain_error, preview, read_yaml
from karat.measures.conventions import Conventions, conventions_of
from karat.measures.names import parse_measure, parse_measures
from karat.retrieve.system_config import SystemConfig, parse_systems

_PREFIX = re.compile(r"(?P<form>[a-z0-9]{2,}:)?(?P<path>.*)", re.DOTALL)


class Config(ConfigForm):
    """What a karat.yaml says; a field a key, and paths as they are written there.

    ``settings`` are the conventions that ``--set`` takes.
    """

    gates: tuple[InstanceOf[Gate], ...] = ()

    _folder: Path = PrivateAttr(default_factory=Path)
    _digest: str = PrivateAttr(default="")
    _mapping: Fields = PrivateAttr(default_factory=Fields)
    _left_out: tuple[str, ...] = PrivateAttr(default=())
    _system_configs: Mapping[str, SystemConfig] = PrivateAttr(default_factory=dict)
    _place: Place = PrivateAttr(default_factory=lambda: Place("karat.yaml"))

    @property
    def digest(self) -> str:
        """The sha256 of what the file means: its order, comments and spacing do not count."""
        return self._digest

    @property
    def mapping(self) -> Fields:
        """``fields`` for whoever reads the files: one for all of them."""
        return self._mapping

    @property
    def for_queries(self) -> Fields:
        """Return the same for the queries, whose file may hold the gold too."""
        alone = self.queries is not None and self.gold is not None and self.queries != self.gold
        return self._mapping if alone else self._mapping.together()

    def with_fields(self, given: Fields) -> Config:
        """Return the config with fields of the command line in place of its own."""
        changed = self.model_copy()
        changed._mapping = self._mapping.updated(given)
        return changed

    @property
    def left_out(self) -> tuple[str, ...]:
        """Return the gates that are not about retrieval."""
        return self._left_out

    @property
    def system_configs(self) -> Mapping[str, SystemConfig]:
        """The systems, ready to be built; whatever in them cannot be meant has been refused."""
        return self._system_configs

    @property
    def place(self) -> Place:
        """Return the file, for messages about what it holds."""
        return self._place

    @property
    def conventions(self) -> Conventions:
        """Return the profile's conventions with the settings and the seed put in."""
        seed = {} if self.seed is None else {"seed": self.seed}
        return conventions_of(self.profile, self.settings | seed)

    def path(self, name: str) -> str:
        """Return a file's name as seen from here: names in the file are relative to its folder."""
        return name if name == "-" else str(self._folder / name)

    def output(self, text: str) -> str:
        """Return an output as seen from here, behind its prefix if it has one."""
        match = _PREFIX.fullmatch(text)
        form, path = ("", text) if match is None else (match["form"] or "", match["path"])
        return f"{form}{self.path(path)}" if path else text


def read_config(path: str | Path) -> Config:
    """Read a karat.yaml; whatever in it cannot be meant is refused with file and line."""
    file = read_yaml(path)
    if not isinstance(file.data, dict):
        raise file.place.error(
            f"a mapping with keys such as gold and measures is expected, not {preview(file.data)}"
        )
    given = {key: value for key, value in file.data.items() if value is not None}
    config = _validated({key: given[key] for key in given if key != "gates"}, file.place)
    _check(config, file.place)
    gates, left_out = parse_gates(
        given.get("gates", []), file.place.at("gates"), conventions=config.conventions
    )
    config = config.model_copy(update={"gates": tuple(gates)})
    config._folder = Path(path).parent
    config._digest = _digest(file.data)
    config._left_out = left_out
    config._mapping = Fields(config.fields)
    config._place = file.place
    config._system_configs = parse_systems(config.systems, file.place.at("systems"))
    return config


def _validated(data: dict[str, Any], place: Place) -> Config:
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        key, what = explain_error(error, data, CONFIG_KEYS)
        raise place.at(key).error(what) from None


def _check(config: Config, place: Place) -> None:
    """Read every name in it once, so that none is refused later."""
    if config.seed is not None and "seed" in config.settings:
        raise place.at("seed").error("seed is given twice, here and in settings; keep one")

    def check(key: str, read: Callable[[], object]) -> None:
        try:
            read()
        except KaratError as error:
            raise place.at(key).error(f"{key}: {error}") from None

    check("profile", lambda: conventions_of(config.profile))
    check("settings", lambda: config.conventions)
    conventions = config.conventions
    measures, primary = config.measures, config.primary
    if measures is not None:
        check("measures", lambda: parse_measures(measures, conventions=conventions))
    if primary is not None:
        check("primary", lambda: parse_measure(primary, conventions=conventions))
    check("fields", lambda: Fields(config.fields))
    check("by", lambda: [By.parse(column) for column in config.by])


def _digest(data: object) -> str:
    meaning = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(meaning.encode()).hexdigest()
