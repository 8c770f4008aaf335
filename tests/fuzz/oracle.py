"""What may come of any bytes at all: something that holds together, or one line of refusal."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

from karat.data.tables import InterleavedError
from karat.errors import KaratError

# Of processor time, so that a busy machine makes no findings.
SLOWEST = 5.0
# Beyond what the process has taken before, in KiB.
MOST_MEMORY = 1_000_000
LONGEST = 3_000


class FindingError(AssertionError):
    """Something that must not happen whatever the input is."""


def held(check: Callable[[bytes], None], data: bytes) -> str | None:
    """Run a check; the refusal if there was one, and an error if anything else went wrong."""
    start, before = time.process_time(), _peak()
    try:
        check(data)
        refusal = None
    except InterleavedError:
        refusal = None
    except KaratError as error:
        refusal = _one_line(str(error))
    spent = time.process_time() - start
    if spent > SLOWEST:
        raise FindingError(f"took {spent:.1f} s")
    if _peak() - before > MOST_MEMORY:
        raise FindingError("took more than 1 GB")
    return refusal


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _one_line(message: str) -> str:
    if not message.strip() or "\n" in message or len(message) > LONGEST:
        raise FindingError(f"not one line: {message[:200]!r}")
    if "Traceback" in message or "PanicException" in message:
        raise FindingError(f"tells of the inside: {message[:200]!r}")
    return message


def same(one: object, other: object, what: str) -> None:
    """Refuse two that should be equal and are not."""
    if one != other:
        raise FindingError(f"{what}: {str(one)[:300]!r} became {str(other)[:300]!r}")
