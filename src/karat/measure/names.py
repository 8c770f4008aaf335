"""The measure language: ``Name(param=value)@k`` read into a value and printed again."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from typing import Any

from karat.errors import MissingInputError, UsageError, unknown
from karat.measure import kernels
from karat.measure.conventions import (
    GAIN_ALIASES,
    Conventions,
    gain_map,
    gain_of_setting,
    show_map,
    show_number,
)
from karat.measure.kernels.lists import check_path
from karat.measure.ranked import Cut, nobody
from karat.measure.registry import MEASURES, Definition

_SHAPE = re.compile(r"(?P<name>[A-Za-z_][\w-]*)\s*(?:\((?P<params>.*)\))?\s*(?:@\s*(?P<k>\S+))?")
# measures are separated by commas and blanks outside brackets
_PART = re.compile(r"(?:[^\s,({]|\((?:[^()'\"]|'[^']*'|\"[^\"]*\")*\)|\{[^}]*\}|[({])+")
_PATH = re.compile(r"(?P<family>latency|cost)\.(?P<path>[\w.-]+)", re.IGNORECASE)
# trec_eval's own spelling: P_5, ndcg_cut_10, iprec_at_recall_0.10, also with a dot (map_cut.10)
_TREC = re.compile(r"(?P<name>[A-Za-z][A-Za-z_]*?)(?:_cut)?[_.](?P<k>\d+(?:\.\d+)?)")
# ranx writes the persistence of RBP into its name: rbp.95
_RANX_RBP = re.compile(r"rbp(?P<p>\.\d+)(?:@(?P<k>\d+))?", re.IGNORECASE)
# the names of parameters in ir_measures
_PARAMETER_ALIASES = {"dcg": "gain", "gains": "gain", "cutoff": "k", "recall": "k"}
# names in ranx for a measure with a parameter
_WITH_PARAMETERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "ndcg_burges": ("nDCG", {"gain": "exp"}),
    "dcg_burges": ("DCG", {"gain": "exp"}),
}
# ranx computes these on whole lists where they have no cut-off
_OF_SETS = {"precision": "SetP", "recall": "SetR", "f1": "SetF"}


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure with its parameters and cut-off; its string is its name everywhere.

    >>> str(parse_measure("ndcg@10")), str(parse_measure("P(rel=1)@5")), str(parse_measure("mrr"))
    ('nDCG@10', 'P@5', 'RR')
    """

    name: str
    k: Cut = None
    params: tuple[tuple[str, Any], ...] = ()

    @property
    def definition(self) -> Definition:
        """The definition registered under the name."""
        return MEASURES[self.name]

    @property
    def arguments(self) -> dict[str, Any]:
        """The parameters that differ from their defaults."""
        return {key: dict(value) if _is_map(value) else value for key, value in self.params}

    def __str__(self) -> str:
        if self.definition.cutoff == "path":
            return f"{self.name}.{self.arguments['path']}"
        inside = ", ".join(
            f"{key}={show_map(value) if _is_map(value) else show_number(value)}"
            for key, value in self.params
        )
        cut = (
            ""
            if self.k is None
            else f"@{show_number(self.k) if isinstance(self.k, float) else self.k}"
        )
        return f"{self.name}({inside}){cut}" if inside else f"{self.name}{cut}"


def parse_measure(text: str | Measure, *, conventions: Conventions | None = None) -> Measure:
    """Read one measure, in karat's spelling or that of trec_eval, ir_measures or ranx.

    ``conventions`` decide what a measure means that names no threshold or gain: a gain equal
    to theirs is left out, and where their ``rel`` is not 1, ``P(rel=1)@5`` is kept. Without them
    an unwritten gain stays open, and a written one is kept.

    >>> parse_measure("nDCG(gain='exp')@10")
    Measure(name='nDCG', k=10, params=(('gain', 'exp'),))
    >>> parse_measure("ndgc@10")
    Traceback (most recent call last):
    karat.errors.UsageError: unknown measure 'ndgc' in 'ndgc@10'; did you mean nDCG?
    """
    if isinstance(text, Measure):
        return _without_usual_gain(text, conventions)
    if not isinstance(text, str):
        raise UsageError(f"a measure is written as text, such as 'nDCG@10', not {text!r}")
    text = text.strip()
    if path := _PATH.fullmatch(text):
        family = path["family"].lower()
        check_path(family, path["path"])
        return Measure(family, None, (("path", path["path"]),))
    if rbp := _RANX_RBP.fullmatch(text):
        return _build_measure("RBP", {"p": float(rbp["p"])}, rbp["k"], text, conventions)
    match = _SHAPE.fullmatch(text)
    if match is None or match["name"].casefold() not in _spellings():
        trec = _TREC.fullmatch(text)
        if trec is not None and trec["name"].casefold() in _spellings():
            return _build_measure(trec["name"], {}, trec["k"], text, conventions)
    if match is None:
        raise UsageError(
            f"cannot read the measure {text!r}; write Name(param=value)@k, as in nDCG@10"
        )
    params = _read_params(match["params"], text) if match["params"] else {}
    return _build_measure(match["name"], params, match["k"], text, conventions)


def parse_measures(
    texts: str | Measure | Sequence[str | Measure], *, conventions: Conventions | None = None
) -> list[Measure]:
    """Read several measures: ``"nDCG@10, R@{1,3,5}"`` or a list of such; each is kept once.

    >>> [str(m) for m in parse_measures("nDCG@10, R@{1,3}")]
    ['nDCG@10', 'R@1', 'R@3']
    """
    if isinstance(texts, str | Measure):
        texts = [texts]
    if not isinstance(texts, Sequence):
        raise UsageError(f"measures are a list such as ['nDCG@10'], not {texts!r}")
    measures: dict[Measure, None] = {}
    for text in texts:
        if not isinstance(text, str):
            measures[parse_measure(text, conventions=conventions)] = None
            continue
        for part in _PART.findall(text):
            head, brace, cuts = part.partition("@{")
            names = [f"{head}@{cut.strip()}" for cut in cuts.rstrip("} ").split(",")]
            parts = names if brace else [part]
            measures.update({parse_measure(name, conventions=conventions): None for name in parts})
    if not measures:
        raise UsageError("no measure named; give at least one, such as nDCG@10")
    return list(measures)


@cache
def _spellings() -> Mapping[str, str]:
    """Return every accepted spelling, casefolded, with its canonical name."""
    names = {name.casefold(): name for name in MEASURES}
    for name, definition in MEASURES.items():
        names |= {alias.casefold(): name for alias in definition.aliases}
    return names


def _build_measure(
    name: str, params: dict[str, Any], k: str | None, text: str, conventions: Conventions | None
) -> Measure:
    name, implied = _WITH_PARAMETERS.get(name.casefold(), (name, {}))
    params = implied | params
    definition = _definition_of(name, params, k, text)
    if definition.cutoff == "path":
        ends = {"latency": "latency.retrieve.p50", "cost": "cost.tokens"}[definition.name]
        raise UsageError(f"{text!r} lacks of=; write it as in {ends}")
    if "k" in params:
        k = str(params.pop("k"))
    known = [key for key in definition.parameters if key not in _INTERNAL]
    for key, value in list(params.items()):
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(known) or 'none'}"
            raise UsageError(f"{definition.name} has no parameter {key!r} in {text!r}; {hint}")
        params[key] = _checked(definition, key, value, text)
    defaults = {**definition.parameters}
    if conventions is not None and conventions.rel != 1:
        defaults["rel"] = None
    if defaults.get("gain") == "linear":
        defaults["gain"] = None
    kept = {key: params[key] for key in known if key in params and params[key] != defaults[key]}
    made = Measure(
        definition.name,
        _cut(definition, k, text),
        tuple((key, kept[key]) for key in known if key in kept),
    )
    if made.name == "AUC" and "gain" in made.arguments and not follows_gain(made):
        of = made.arguments.get("of", "R")
        raise UsageError(f"{of} takes no gain (in {text!r}); write AUC(of={of!r})@k")
    # The function itself refuses parameters and cut-offs, before any file is read.
    with suppress(MissingInputError):
        ranked = nobody(listed=bool(definition.needs))
        definition.function(ranked, made.k, **made.arguments)
    return _without_usual_gain(made, conventions) if "gain" in kept else made


def _definition_of(name: str, params: Mapping[str, Any], k: str | None, text: str) -> Definition:
    """Return the measure of a name; parameters and cut-off may decide which."""
    spelled = name.casefold()
    if spelled == "numret" and "rel" in params:
        spelled = "numrelret"
    if k is None and "k" not in params:
        spelled = _OF_SETS.get(spelled, spelled).casefold()
        if spelled == "ndcg_cut":
            raise UsageError(f"{text!r} needs a cut-off; write nDCG@10, or nDCG for whole lists")
    if spelled not in _spellings():
        # The nearest other spelling, such as Recall; else the names of all measures.
        near = get_close_matches(name.casefold(), _spellings(), n=1, cutoff=0.5)
        suggestions = list(MEASURES)
        if near and near[0] not in map(str.casefold, MEASURES):
            suggestions = [near[0].capitalize() if name[:1].isupper() else near[0]]
        raise unknown("measure", name, suggestions, inside=text)
    return MEASURES[_spellings()[spelled]]


def follows_gain(measure: Measure) -> bool:
    """Return whether a measure takes the gain of the conventions unless it names one."""
    # An area takes the gain of the measure under which it lies.
    of = measure.arguments.get("of", "R") if measure.name == "AUC" else measure.name
    definition = MEASURES.get(of, measure.definition)
    return definition.parameters.get("gain") == "linear"


def _without_usual_gain(measure: Measure, conventions: Conventions | None) -> Measure:
    """Return the measure without a gain that is the one of the conventions anyway."""
    gain = dict(measure.params).get("gain")
    if conventions is None or gain is None or not follows_gain(measure):
        return measure
    if (show_map(gain) if _is_map(gain) else gain) != conventions.gain:
        return measure
    return replace(measure, params=tuple(p for p in measure.params if p[0] != "gain"))


def with_gain(measure: Measure, conventions: Conventions) -> Measure:
    """Return the measure as it reads without conventions: its gain written out unless linear."""
    plain = Conventions()
    if not follows_gain(measure):
        return measure
    if "gain" in dict(measure.params):
        return _without_usual_gain(measure, plain)
    if conventions.gain == plain.gain:
        return measure
    gain = gain_of_setting(conventions.gain)
    written = gain if isinstance(gain, str) else tuple(gain.items())
    known = list(measure.definition.parameters)
    params = sorted((*measure.params, ("gain", written)), key=lambda one: known.index(one[0]))
    return replace(measure, params=tuple(params))


# Set by conventions, not in a measure's name.
_INTERNAL = {"recall_point", "versions", "path"}


def _checked(definition: Definition, key: str, value: Any, text: str) -> Any:
    default = definition.parameters[key]
    value = GAIN_ALIASES.get(value, value) if isinstance(value, str) else value
    if definition.name == "AUC" and key == "of" and isinstance(value, str):
        value = _spellings().get(value.casefold(), value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, Mapping):
        if key != "gain":
            raise UsageError(f"{key} in {text!r} cannot be a map")
        return gain_map(value, f"{text!r}")
    if isinstance(default, str) != isinstance(value, str) or (
        not number and not isinstance(value, str)
    ):
        kind = "text" if isinstance(default, str) else "a number"
        raise UsageError(f"{key} is {value!r} in {text!r}; it must be {kind}")
    if number and not abs(value) < float("inf"):
        raise UsageError(f"{key} is {value!r} in {text!r}; it must be finite")
    if number and key in {"rel", "beta", "max"} and not 0 < value < 1e100:
        raise UsageError(f"{key} is {value!r} in {text!r}; it must be above 0, below 1e100")
    return value


def _cut(definition: Definition, k: str | None, text: str) -> Cut:
    name = definition.name
    if k is None:
        if definition.cutoff in {"must", "recall"}:
            example = (
                f"{name}@0.5"
                if definition.cutoff == "recall"
                else f"{name}@{1 if name == 'FPR' else 5}"
            )
            raise UsageError(f"{name} needs a cut-off; write {example}")
        return None
    if definition.cutoff == "none":
        raise UsageError(f"{name} takes no cut-off; write {name} (in {text!r})")
    if definition.cutoff == "recall":
        with suppress(ValueError):
            if 0 <= float(k) <= 1:
                return float(k)
        raise UsageError(f"{k!r} in {text!r} is not a point of recall; it lies between 0 and 1")
    if k.casefold() == "k":
        return "k"
    number = re.fullmatch(r"([0-9]{1,12})(tok)?", k.casefold())
    if number is None or int(number[1]) < 1:
        raise UsageError(
            f"cut-off {k!r} in {text!r} is not known; use a whole number above 0, the letter k,"
            " or a budget such as 2000tok"
        )
    return f"{int(number[1])}tok" if number[2] else int(number[1])


def _read_params(inside: str, text: str) -> dict[str, Any]:
    try:
        call = ast.parse(f"f({inside})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(not a.arg for a in call.keywords):
            raise ValueError("not name=value")
        pairs = {str(a.arg): ast.literal_eval(a.value) for a in call.keywords}
        if len(pairs) < len(call.keywords):
            raise ValueError("a name twice")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError(
            f"cannot read the parameters of {text!r}; write name=value, text in quotes"
        ) from None
    return {_PARAMETER_ALIASES.get(key, key): value for key, value in pairs.items()}


def _is_map(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], tuple)


# How the cut-off of a measure is written.
_CUTOFFS = {"must": "@k", "may": "[@k]", "none": "", "recall": "@x", "path": ".<what>"}


def measures(name: str | None = None) -> list[dict[str, Any]]:
    """Return the registered measures as plain data, in alphabetical order; or one, by any name.

    >>> [entry["written"] for entry in measures("mrr")]
    ['RR[@k]']
    """
    if name is not None:
        return [_entry(definition_named(name))]
    return [_entry(MEASURES[key]) for key in sorted(MEASURES, key=str.casefold)]


def definition_named(text: str) -> Definition:
    """Return the measure of that name or alias, with or without parameters and cut-off."""
    if text.casefold() in _spellings():
        return MEASURES[_spellings()[text.casefold()]]
    try:
        return parse_measure(text).definition
    except UsageError:
        if any(character in text for character in "@(."):
            raise
    raise unknown("measure", text, MEASURES)


def _entry(definition: Definition) -> dict[str, Any]:
    """Return how a measure is written, what it means, and which direction is better."""
    parameters = {
        key: value for key, value in definition.parameters.items() if key not in _INTERNAL
    }
    return {
        "name": definition.name,
        "written": definition.name + _CUTOFFS[definition.cutoff],
        "about": definition.about,
        "better": definition.better,
        "parameters": parameters,
        "aliases": list(definition.aliases),
        "needs": list(definition.needs),
    }


__all__ = ["Measure", "kernels", "measures", "parse_measure", "parse_measures"]
