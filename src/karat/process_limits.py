"""The limits of ``ulimit`` on this process's memory; imports nothing that takes memory."""

from __future__ import annotations

import sys

from karat.errors import UsageError

# What libraries map before the first row is read: address space, and writable memory.
_MAPPED = {"-v": 1_600_000_000, "-d": 200_000_000}
# With less than this beside it for the data, they fail or hang.
_LEAST = 400_000_000
# The chart engine reserves this at its start, and ends the process if it cannot.
_FOR_CHARTS = {"-v": 72_000_000_000, "-d": 1_000_000_000}
# Messages of the loader when memory is limited.
_OUT_OF_MEMORY = ("failed to map segment", "cannot allocate memory")


def _read_limits() -> dict[str, int]:
    """Return the bytes of each limit that is set, by the option of ulimit."""
    if sys.platform == "win32":
        return {}
    import resource

    kinds = {"-v": resource.RLIMIT_AS, "-d": resource.RLIMIT_DATA}
    soft = {option: resource.getrlimit(kind)[0] for option, kind in kinds.items()}
    return {option: most for option, most in soft.items() if most != resource.RLIM_INFINITY}


LIMITS = _read_limits()
# The bytes that each limit leaves for data.
ROOMS = [most - _MAPPED[option] for option, most in LIMITS.items()]


def check_limits(*, charts: bool = False) -> None:
    """Refuse to start if the libraries, or the chart engine, could not be loaded."""
    for option, most in LIMITS.items():
        needed = _FOR_CHARTS[option] if charts else _MAPPED[option] + _LEAST
        if most < needed:
            remedy = "write csv or json" if charts else "limit the memory of a container instead"
            raise UsageError(
                f"ulimit {option} allows {most / 1e6:,.0f} MB, and"
                f" {'to draw a chart takes' if charts else 'karat needs'} {needed / 1e6:,.0f} MB,"
                f" most of it reserved and never used; raise the limit, or {remedy}"
            )


def no_room(error: Exception) -> bool:
    """Return whether a library could not be loaded because memory is limited."""
    return isinstance(error, ImportError) and any(
        message in str(error).lower() for message in _OUT_OF_MEMORY
    )
