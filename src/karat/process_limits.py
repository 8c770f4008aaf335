"""The limits of ``ulimit`` on this process's memory; imports nothing that takes memory."""

from __future__ import annotations

import sys

from karat.errors import UsageError

# What libraries map before the first row is read: address space, and writable memory. With less
# than these and a little for the data, they fail or hang.
_MAPPED, _WRITABLE = 1_600_000_000, 200_000_000
_LEAST = 400_000_000
# The chart engine reserves this at its start, and ends the process if it cannot.
_FOR_CHARTS = {"-v": 72_000_000_000, "-d": 1_000_000_000}
# Messages of the loader when memory is limited.
_OUT_OF_MEMORY = ("failed to map segment", "cannot allocate memory")


def limits() -> list[tuple[str, int, int]]:
    """Return each limit that is set: the option of ulimit, its bytes, and the libraries' share."""
    if sys.platform == "win32":
        return []
    import resource

    kinds = (("-v", resource.RLIMIT_AS, _MAPPED), ("-d", resource.RLIMIT_DATA, _WRITABLE))
    soft = [(option, resource.getrlimit(kind)[0], taken) for option, kind, taken in kinds]
    return [limit for limit in soft if limit[1] != resource.RLIM_INFINITY]


def rooms() -> list[int]:
    """Return the bytes that each limit leaves for data."""
    return [most - taken for _, most, taken in limits()]


def check_limits() -> None:
    """Refuse to start if the libraries could not be loaded."""
    for option, most, taken in limits():
        if most - taken < _LEAST:
            raise UsageError(
                f"ulimit {option} allows {most / 1e6:,.0f} MB, and karat needs"
                f" {(taken + _LEAST) / 1e6:,.0f} MB, most of it mapped by libraries and never"
                " used; raise the limit, or limit the memory of a container instead"
            )


def check_limits_of_charts() -> None:
    """Refuse to draw if the chart engine could not start."""
    for option, most, _ in limits():
        if most < _FOR_CHARTS[option]:
            raise UsageError(
                f"ulimit {option} allows {most / 1e6:,.0f} MB, and to draw a chart takes"
                f" {_FOR_CHARTS[option] / 1e6:,.0f} MB, most of it reserved and never used; raise"
                " the limit, or write csv or json"
            )


def no_room(error: Exception) -> bool:
    """Return whether a library could not be loaded because memory is limited."""
    return isinstance(error, ImportError) and any(
        message in str(error).lower() for message in _OUT_OF_MEMORY
    )
