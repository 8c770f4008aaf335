"""Limits that ``ulimit`` sets on the memory of this process; imports nothing that takes memory."""

from __future__ import annotations

import sys

from karat.errors import UsageError

# What libraries map and hardly use, before the first row is read: of the address space, and of
# what can be written to. With less than these and a little for the data, they fail or hang.
_MAPPED, _WRITABLE = 1_600_000_000, 200_000_000
_LEAST = 400_000_000
# The engine that draws charts reserves this at its start, and ends the process where it cannot.
_FOR_CHARTS = {"-v": 72_000_000_000, "-d": 1_000_000_000}
# How the loader says that a library finds no room.
_NO_ROOM = ("failed to map segment", "cannot allocate memory")


def limits() -> list[tuple[str, int, int]]:
    """Each limit that is set: the option of ulimit, its bytes, and what libraries take of it."""
    if sys.platform == "win32":
        return []
    import resource

    kinds = (("-v", resource.RLIMIT_AS, _MAPPED), ("-d", resource.RLIMIT_DATA, _WRITABLE))
    soft = [(option, resource.getrlimit(kind)[0], taken) for option, kind, taken in kinds]
    return [one for one in soft if one[1] != resource.RLIM_INFINITY]


def rooms() -> list[int]:
    """What each limit leaves for data."""
    return [most - taken for _, most, taken in limits()]


def check_limits() -> None:
    """Refuse to begin where the libraries could not even be loaded."""
    for option, most, taken in limits():
        if most - taken < _LEAST:
            raise UsageError(
                f"ulimit {option} allows {most / 1e6:,.0f} MB, and karat needs"
                f" {(taken + _LEAST) / 1e6:,.0f} MB, most of it mapped by libraries and never"
                " used; raise the limit, or limit the memory of a container instead"
            )


def check_limits_of_charts() -> None:
    """Refuse to draw where the engine that draws could not start."""
    for option, most, _ in limits():
        if most < _FOR_CHARTS[option]:
            raise UsageError(
                f"ulimit {option} allows {most / 1e6:,.0f} MB, and to draw a chart takes"
                f" {_FOR_CHARTS[option] / 1e6:,.0f} MB, most of it reserved and never used; raise"
                " the limit, or write csv or json"
            )


def no_room(error: Exception) -> bool:
    """Whether a library could not be loaded because memory is limited."""
    return isinstance(error, ImportError) and any(told in str(error).lower() for told in _NO_ROOM)
