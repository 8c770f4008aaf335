"""Audit karat's dependencies: imports, licences, yanked versions, known vulnerabilities.

    python scripts/audit.py [--offline]

Looks at what this environment has installed for the core and the extras. Exits with 1 when it
finds something, with 3 when it finds nothing but could not find out everything, else with 0.
--offline asks neither the index nor pip-audit, and says so.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from importlib.metadata import Distribution

import audit_imports
import audit_index
import audit_licences
import declared


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Audits what karat depends on.")
    parser.add_argument("--offline", action="store_true", help="ask nobody")
    options = parser.parse_args(arguments)
    packages = declared.everything()
    absent = [name for name, held in packages.items() if held is None]
    pins = {name: held.version for name, held in packages.items() if held is not None}
    print(f"{len(pins)} packages are installed for karat and its extras")
    found = [_imports(), _licences(packages), _absent(absent)]
    unsure = False
    if options.offline:
        print("\nnot asked: which versions are yanked, which have known vulnerabilities")
    else:
        for title, ask in ASKED.items():
            known = ask(pins)
            found.append(bool(known.faults))
            unsure |= _answered(title, pins, known)
    return 1 if any(found) else 3 if unsure else 0


ASKED = {
    "yanked versions": audit_index.yanked,
    "known vulnerabilities": audit_index.vulnerabilities,
}


def _imports() -> bool:
    faults = audit_imports.faults()
    _say("imports", faults or ["each is declared, and behind the right extra"])
    for name, parent in audit_imports.brought_along().items():
        print(f"  {name} comes with {parent}")
    return bool(faults)


def _licences(packages: dict[str, Distribution | None]) -> bool:
    every = audit_licences.licences(packages)
    counts = Counter(one.verdict for one in every)
    _say("licences", [f"{n} {verdict}" for verdict, n in sorted(counts.items())])
    for one in every:
        print(f"  {one.verdict:<10}  {one.package} {one.version}: {one.said}")
    return counts["unfit"] > 0


def _absent(names: list[str]) -> bool:
    if names:
        _say("not installed, so not audited", names)
    return bool(names)


def _answered(title: str, pins: dict[str, str], known: audit_index.Known) -> bool:
    """Print the findings and what could not be checked; return True for the latter."""
    asked = len(pins) - len(known.unknown)
    lines = list(known.faults)
    if not known.faults and asked:
        lines.append(f"none among the {asked} packages that could be looked up")
    _say(title, lines)
    for reason, names in _by_reason(known.unknown, pins).items():
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        print(f"  COULD NOT TELL for {len(names)} of {len(pins)} ({shown}): {reason}")
    return bool(known.unknown)


def _by_reason(unknown: dict[str, str], pins: dict[str, str]) -> dict[str, list[str]]:
    """Group unchecked packages by reason; reasons that differ only in the package are one."""
    reasons: dict[str, list[str]] = {}
    for name, why in unknown.items():
        same = why.replace(f"{name} ({pins[name]})", "it").replace(pins[name], "this one")
        reasons.setdefault(same, []).append(name)
    return reasons


def _say(title: str, lines: list[str]) -> None:
    print(f"\n{title}")
    for line in lines:
        print(f"  {line}")


if __name__ == "__main__":
    sys.exit(main())
