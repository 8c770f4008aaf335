"""The page of a check: the verdict, the findings, what was fine, and what the set can detect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from karat.analysis.check.findings import LEVELS
from karat.pages.formatting import figure, label, percent, plural
from karat.pages.page import Page, Section, Sentence, Tone

_LONGEST = 60

Results = Mapping[str, Any]


def check_page(results: Results) -> Page:
    """Return the page, worst findings first."""
    findings = results["findings"]
    blocks = [
        _finding_section(finding)
        for level in LEVELS
        for finding in findings
        if finding["level"] == level
    ]
    for title, lines in (("fine", results["fine"]), ("not checked", results["unchecked"])):
        if lines:
            blocks.append(Section(title, lines=[f"  {line}" for line in lines]))
    tone: Tone = "bad" if results["verdict"] == "unsound" else "good"
    return Page(
        "Is the eval set sound?",
        [Sentence(_headline(results), tone)],
        blocks,
        [_sizes_line(results["sizes"]), *_detectable_lines(results["detectable"])],
    )


def _headline(results: Results) -> str:
    counts = [
        plural(n, level)
        for level in LEVELS
        if (n := sum(finding["level"] == level for finding in results["findings"]))
    ]
    strict = ", warnings count as errors" if results["strict"] else ""
    return f"{results['verdict'].upper()}  {', '.join(counts) or 'nothing found'}{strict}"


def _finding_section(finding: Mapping[str, Any]) -> Section:
    lines = [f"  {finding['what']}", f"  {finding['do']}"]
    lines += [f"    {' · '.join(_parts(example))}" for example in finding["examples"]]
    more = finding["count"] - len(finding["examples"])
    if more > 0 and finding["examples"]:
        lines.append(f"    and {more:,} more")
    return Section(f"{finding['level']}  {finding['kind']}", lines=lines)


def _parts(example: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values of an example after their names, without empty ones."""
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
    return " · ".join(plural(n, *words[name]) for name, n in sizes.items() if n)


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
        why = found.get("because") or f"{plural(found['n'], 'query', 'queries')}"
        yield f"detects: cannot be told: {why} ({spread})"
    else:
        chance = percent(found["power"])
        yield (
            f"detects a difference of {figure(found['difference'])} or more in {chance} of cases"
            f" ({plural(found['n'], 'query', 'queries')}; {spread})"
        )
    needed = [
        f"{difference} needs {plural(n, 'query', 'queries')}"
        for difference, n in found["needed"].items()
        if n is not None
    ]
    if needed:
        yield f"a difference of {', of '.join(needed)}"
    if found["groups"] is not None and found["basis"] == "assumed":
        yield "queries come in groups, which the assumed spread does not know: expect to need more"
