"""The result of a check as one plain document, as JSON, and on a terminal, the verdict first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.text import Text

from karat.analysis.findings import LEVELS
from karat.analysis.soundness import Soundness
from karat.columns import Source
from karat.reports.document import SCHEMA_VERSION, input_of, utf8
from karat.reports.figures import figure, label, percent, several
from karat.reports.terminal import say
from karat.reports.to_json import dumps
from karat.version import __version__

_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold"}
_LONGEST = 60


@dataclass(frozen=True, eq=False)
class CheckReport:
    """What was checked and found; ``strict`` makes warnings count."""

    found: Soundness
    gold: Source
    queries: Source | None = None
    corpus: Source | None = None
    gates: Source | None = None
    runs: tuple[Source, ...] = ()
    config_digest: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False

    @property
    def verdict(self) -> str:
        """``sound`` or ``unsound``."""
        return self.found.verdict(strict=self.strict)

    def results(self) -> dict[str, Any]:
        """The document without its inputs, whose digests take a pass over every file."""
        found = self.found.document()
        found["detectable"]["runs"] = [utf8(name) for name in found["detectable"]["runs"]]
        return {
            "schema_version": SCHEMA_VERSION,
            "tool": {"name": "karat", "version": __version__},
            "strict": self.strict,
            "verdict": self.verdict,
            **found,
        }

    def document(self) -> dict[str, Any]:
        """The whole document, with the digest of every input."""
        inputs: dict[str, Any] = {
            "gold": input_of(self.gold),
            "queries": self.queries and input_of(self.queries),
            "corpus": self.corpus and input_of(self.corpus),
            "gates": self.gates and input_of(self.gates),
            "runs": [input_of(source) for source in self.runs],
        }
        if self.fields:
            inputs["fields"] = dict(self.fields)
        if self.config_digest is not None:
            inputs["config_digest"] = self.config_digest
        return {**self.results(), "inputs": inputs}


def check_to_json(report: CheckReport) -> bytes:
    """The whole document; same inputs, same bytes."""
    return dumps(report.document())


def show_check(report: CheckReport, console: Console) -> None:
    """Print the verdict, the findings, what was fine, and what the set can detect."""
    results = report.results()
    style = "bold red" if results["verdict"] == "unsound" else "bold green"
    say(_headline(results), console, style=style)
    for level in LEVELS:
        for finding in results["findings"]:
            if finding["level"] == level:
                console.print()
                _show_finding(finding, console)
    for title in ("fine", "unchecked"):
        if results[title]:
            console.print()
            console.print({"fine": "fine", "unchecked": "not checked"}[title], style="bold")
        for line in results[title]:
            say(f"  {label(line)}", console)
    console.print()
    say(_sizes_line(results["sizes"]), console)
    for line in _detectable_lines(results["detectable"]):
        say(line, console)


def _headline(results: Mapping[str, Any]) -> str:
    counts = [
        several(n, level)
        for level in LEVELS
        if (n := sum(one["level"] == level for one in results["findings"]))
    ]
    strict = ", where warnings count" if results["strict"] else ""
    return f"{results['verdict'].upper()}  {', '.join(counts) or 'nothing found'}{strict}"


def _show_finding(finding: Mapping[str, Any], console: Console) -> None:
    level = finding["level"]
    say(f"{level}  {finding['kind']}", console, style=_STYLES[level])
    say(f"  {label(finding['what'])}", console)
    say(f"  {finding['do']}", console, style="dim")
    for example in finding["examples"]:
        say(f"    {' · '.join(_parts(example))}", console)
    more = finding["count"] - len(finding["examples"])
    if more > 0 and finding["examples"]:
        say(f"    and {more:,} more", console)


def _parts(example: Mapping[str, Any]) -> Iterator[str]:
    """The example's values, each behind its name; what is empty is left out."""
    for name, value in example.items():
        if name == "because":
            yield label(value)
        elif value not in ([], {}, None, ""):
            yield f"{name.replace('_', ' ')} {_shown(name, value)}"


def _shown(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}" if value == round(value, 2) else figure(value)
    if isinstance(value, Mapping):
        return "; ".join(f"{label(str(key))}: {_shown(name, one)}" for key, one in value.items())
    if isinstance(value, list):
        return " | ".join(_shown(name, one) for one in value) or "nothing"
    if name in ("text", "texts"):
        text = Text(" ".join(label(value).split()))
        text.truncate(_LONGEST, overflow="ellipsis")
        return f"“{text.plain}”"
    return label(str(value))


def _sizes_line(sizes: Mapping[str, int]) -> str:
    words = {
        "queries": ("query", "queries"),
        "queries_with_gold": ("with gold", "with gold"),
        "no_answer": ("without an answer", "without an answer"),
        "judgments": ("judgment", "judgments"),
        "relevant": ("relevant", "relevant"),
        "items": ("item", "items"),
        "docs": ("document", "documents"),
        "groups": ("group", "groups"),
    }
    return " · ".join(several(n, *words[name]) for name, n in sizes.items() if n)


def _detectable_lines(found: Mapping[str, Any]) -> Iterator[str]:
    names = " and ".join(label(name) for name in found["runs"])
    if found["basis"] == "runs":
        spread = f"spread {figure(found['sd'])} in {found['measure']} between {names}"
    elif names:
        spread = f"spread {found['sd']:g} ASSUMED; {names} do not differ from query to query"
        spread += f" in {found['measure']}, so they tell nothing"
    else:
        spread = f"spread {found['sd']:g} ASSUMED; --run A --run B would measure it"
    if found["difference"] is None:
        why = found.get("because") or f"{several(found['n'], 'query', 'queries')}"
        yield f"detects: cannot be told: {why} ({spread})"
    else:
        chance = percent(found["power"])
        yield (
            f"detects a difference of {figure(found['difference'])} or more in {chance} of cases"
            f" ({several(found['n'], 'query', 'queries')}; {spread})"
        )
    needed = [
        f"{difference} needs {several(n, 'query', 'queries')}"
        for difference, n in found["needed"].items()
        if n is not None
    ]
    if needed:
        yield f"a difference of {', of '.join(needed)}"
    if found["groups"] is not None and found["basis"] == "assumed":
        yield "queries come in groups, which the assumed spread does not know: expect to need more"
