"""The findings of the playbook as the sections of a page: what to fix next, one sentence each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from karat.reports.figures import label
from karat.reports.pages import Section


def findings_sections(found: Mapping[str, Any]) -> list[Section]:
    """The document of ``Findings``: the findings, what was fine, and what was not checked."""
    lines = [
        f"{place}. {label(one['sentence'])} ({one['rule']})"
        for place, one in enumerate(found["findings"], 1)
    ]
    nothing = "None of the rules that could be checked found anything."
    sections = [Section("What to fix next", lines=lines or [nothing])]
    if found["quiet"]:
        sections.append(Section("Checked, nothing found", lines=[", ".join(found["quiet"])]))
    if found["unchecked"]:
        rows = [[rule, label(reason)] for rule, reason in found["unchecked"].items()]
        sections.append(Section("Not checked", [["rule", "because"], *rows]))
    return sections
