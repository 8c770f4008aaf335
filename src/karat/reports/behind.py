"""What lies behind the figures of a report, as sections: the curve over k, failures, losses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from karat.reports.failures import failure_sections, missed_sections, waterfall_sections
from karat.reports.figures import label
from karat.reports.latencies import latency_sections
from karat.reports.pages import Section
from karat.reports.sweeps import curve_section


def behind_sections(results: Mapping[str, Any]) -> Iterator[Section]:
    """The curves of all systems side by side, then the rest system by system."""
    systems = [system for system in results["systems"] if "sweep" in system]
    if not systems:
        return
    curves = [{**system["sweep"], "name": system["name"]} for system in systems]
    for name in curves[0]["measures"]:
        yield curve_section(name, {"systems": curves})
    for system in systems:
        whose = "" if len(systems) == 1 else f"{label(system['name'])}: "
        own = [*failure_sections(system["failures"]), *missed_sections(system["failures"])]
        own += [one for fall in system["waterfalls"] for one in waterfall_sections(fall)]
        own += latency_sections(system["latency"]) if "latency" in system else []
        for section in own:
            yield replace(section, title=f"{whose}{section.title}")
