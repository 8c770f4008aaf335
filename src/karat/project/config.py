"""karat.yaml: what to evaluate, with which measures and gates, and where the reports go."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, InstanceOf

from karat.data.columns import Source
from karat.errors import InputError, KaratError
from karat.evaluation.evaluation import Evaluation
from karat.evaluation.gate_files import parse_gates
from karat.evaluation.gates import Gate
from karat.evaluation.segments import By
from karat.formats.field_mapping import Fields
from karat.formats.settings import ConfigModel, Place, preview, read_yaml, validate
from karat.measure.conventions import Conventions, conventions_of
from karat.measure.names import parse_measure, parse_measures
from karat.retrieve.system_config import SystemConfig, parse_systems

_PREFIX = re.compile(r"(?P<form>[a-z0-9]{2,}:)?(?P<path>.*)", re.DOTALL)


Text = Annotated[str, Field(pattern=r"\S")]
OneOrMany = Annotated[
    list[Text], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
]
_FILE, _FLAG = "a file name", "true or false"


class ConfigEntries(ConfigModel):
    """What a karat.yaml says, one field per key, with paths as they are written there.

    ``settings`` are the conventions that ``--set`` takes. A description says in messages what a
    value must be.
    """

    queries: Text | None = Field(default=None, description=_FILE)
    gold: Text | None = Field(default=None, description=_FILE)
    corpus: Text | None = Field(default=None, description=_FILE)
    fields: dict[str, Text] = Field(
        default_factory=dict,
        description="a mapping of fields to your columns, such as {gold: gold_ids}",
    )
    judged: Text | None = Field(default=None, description=_FILE)
    human: OneOrMany = Field(
        default_factory=list, description="a file name, or a list of file names"
    )
    systems: dict[str, Any] = Field(
        default_factory=dict,
        description="a mapping of names to systems, such as bm25: {retriever: bm25}",
    )
    measures: OneOrMany | None = Field(
        default=None, description="a measure or a list of measures, such as [R@5, nDCG@10]"
    )
    profile: str = Field(default="karat", description="the name of a profile")
    settings: dict[str, Any] = Field(
        default_factory=dict, description="a mapping of conventions, such as {ties: given}"
    )
    by: OneOrMany = Field(
        default_factory=list, description="a column of the queries, or a list of columns"
    )
    gates: tuple[InstanceOf[Gate], ...] = Field(default=(), description="a list of gates")
    outputs: OneOrMany = Field(
        default_factory=list, description="a file name, or a list of file names"
    )
    primary: str | None = Field(default=None, description="a measure")
    margin: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="a share from 0 to 1, such as 0.02"
    )
    margin_on: Literal["interval", "mean"] = Field(
        default="interval", description="interval or mean: what must lie beyond the margin"
    )
    no_regression: Literal["primary", "all"] | None = Field(
        default=None, description="primary or all: the measures that may not get worse"
    )
    compare: bool = Field(
        default=True,
        description="false to compare each system with the gates only, without a baseline",
    )
    bounds: bool | None = Field(
        default=None, description=f"{_FLAG}: whether to report what unjudged items could change"
    )
    strict_bounds: bool = Field(
        default=False,
        description=f"{_FLAG}: whether to decide only what unjudged items cannot change",
    )
    seed: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="a whole number, 0 or more"
    )
    runs: Text = Field(default="runs", description="the folder for the run logs, such as runs")
    dataset_version: Text | None = Field(
        default=None, description="the version of the eval set, as text"
    )
    code_version: Text | None = Field(
        default=None, description="the version of the code that is evaluated, as text"
    )


class Config(ConfigEntries):
    """A karat.yaml as it was read, with its names resolved and its systems ready to be built.

    ``digest`` is the sha256 of what the file means: its order, comments and spacing do not
    count. ``mapping`` is ``fields`` for whoever reads the files, ``left_out`` the gates that are
    not about retrieval, ``place`` the file for messages about what it holds.
    """

    folder: Path = Path()
    place: InstanceOf[Place] = Place("karat.yaml")
    digest: str = ""
    mapping: InstanceOf[Fields] = Fields()
    left_out: tuple[str, ...] = ()
    system_configs: Mapping[str, InstanceOf[SystemConfig]] = {}

    @property
    def for_queries(self) -> Fields:
        """Return the mapping for the queries, whose file may hold the gold too."""
        alone = self.queries is not None and self.gold is not None and self.queries != self.gold
        return self.mapping if alone else self.mapping.together()

    @property
    def conventions(self) -> Conventions:
        """Return the profile's conventions with the settings and the seed put in."""
        seed = {} if self.seed is None else {"seed": self.seed}
        return conventions_of(self.profile, self.settings | seed)

    def path(self, name: str) -> str:
        """Return a file's name as seen from here: names in the file are relative to its folder."""
        return name if name == "-" else str(self.folder / name)

    def file(self, name: str | None) -> str | None:
        """Return the same for a file that may not be named."""
        return None if name is None else self.path(name)

    @property
    def files(self) -> list[str]:
        """The karat.yaml and the inputs that it names."""
        named = (self.place.file, self.queries, self.gold, self.corpus, self.judged, *self.human)
        return [self.path(name) for name in named if name is not None]

    @property
    def inputs(self) -> dict[str, Any]:
        """The karat.yaml, as a document lists it among its inputs."""
        return {
            "config": Source.of(Path(self.path(self.place.file))),
            "config_digest": self.digest,
        }

    def evaluation(
        self,
        *,
        settings: Mapping[str, Any],
        seed: int | str | None = None,
        **options: Any,
    ) -> Evaluation:
        """Return the evaluation of what the file names; settings and options go before its own."""
        gold = self.gold or self.queries
        if gold is None:
            raise InputError("has no gold; name its file: gold: qrels.txt", where=self.place.file)
        file_settings = dict(self.settings)
        if seed is not None:
            file_settings.pop("seed", None)
        elif "seed" not in settings:
            seed = self.seed
        inputs = {
            "queries": self.file(self.queries),
            "corpus": self.file(self.corpus),
            "profile": self.profile,
            "fields": self.mapping.without_runs(),
        }
        return Evaluation(
            self.path(gold),
            settings=file_settings | dict(settings),
            seed=seed,
            **{**inputs, **options},
        )

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
    data = {key: value for key, value in file.data.items() if value is not None}
    entries = data.pop("gates", [])
    form = validate(ConfigEntries, data, file.place)
    meaning = json.dumps(file.data, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(meaning.encode()).hexdigest()
    config = Config(**dict(form), folder=Path(path).parent, place=file.place, digest=digest)
    _check(config, file.place)
    gates, left_out = parse_gates(entries, file.place.at("gates"), config.conventions)
    systems = parse_systems(config.systems, file.place.at("systems"))
    resolved = {
        "gates": tuple(gates),
        "left_out": left_out,
        "mapping": Fields(config.fields),
        "system_configs": systems,
    }
    return config.model_copy(update=resolved)


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
    check("fields", lambda: Fields.of(config.fields))
    check("by", lambda: [By.parse(column) for column in config.by])
