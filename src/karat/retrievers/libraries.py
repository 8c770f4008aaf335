"""The versions of libraries that a log names, since scores may differ from one to another."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, packages_distributions, version

ABSENT = "unknown"


def versions(*modules: str) -> dict[str, str]:
    """The version of each library, by the name that it is imported by."""
    return {module: _version(module) for module in modules}


def _version(module: str) -> str:
    try:
        return version(module)
    except PackageNotFoundError:
        # Builds for other hardware, such as onnxruntime-gpu, are installed under other names.
        names = packages_distributions().get(module)
        return version(names[0]) if names else ABSENT
