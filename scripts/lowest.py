"""Print the lowest versions of dependencies that pyproject.toml allows, one per line:
constraints for an environment that shows whether the bounds are true.

    python scripts/lowest.py > lowest.txt

A version counts if this Python can install it from a wheel (from source where there are only
sources), and if it is neither yanked nor a release ahead of its time. Only what pyproject.toml
names for the core and for extras of users is held down: test tools, and what libraries bring along,
are free. Exits with 1 when a dependency has no lower bound or the index does not have it.
"""

from __future__ import annotations

import sys

import audit_index
import declared
from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

TAGS = frozenset(sys_tags())


def lowest(one: Requirement, index: str) -> Version | str:
    """The lowest version that a requirement allows and the index has, or why there is none."""
    if not any(spec.operator in (">=", "==", "~=") for spec in one.specifier):
        return f"{one.name} has no lower bound"
    answer = audit_index.files(canonicalize_name(one.name), index)
    if isinstance(answer, str):
        return f"{one.name}: {answer}"
    there = [file for file, yanked in answer if yanked is None]
    wheels = any(file.endswith(".whl") for file in there)
    fit = [version for file in there if (version := _fitting(file, one, wheels)) is not None]
    return min(fit, default=f"{one}: the index has nothing that fits this Python")


def _fitting(file: str, one: Requirement, wheels: bool) -> Version | None:
    version = audit_index.version_of(file)
    if version is None or version.is_prerelease or not one.specifier.contains(version):
        return None
    if not wheels:
        return version
    usable = file.endswith(".whl") and not TAGS.isdisjoint(parse_wheel_filename(file)[3])
    return version if usable else None


def main() -> int:
    index = audit_index.index_url()
    found = {name: lowest(one, index) for name, one in sorted(declared.direct().items())}
    for name, version in found.items():
        if isinstance(version, Version):
            print(f"{name}=={version}")
        else:
            print(version, file=sys.stderr)
    return any(isinstance(version, str) for version in found.values())


if __name__ == "__main__":
    sys.exit(main())
