"""The tree of errors; each message says what is wrong, where, and what to do.

::

    KaratError                  everything that karat raises on purpose
    ├── UsageError              a name, option or combination that does not exist
    ├── InputError              a file or table that cannot be used; carries file and line
    │   ├── NoColumnError       a table lacks a column that it needs
    │   ├── NoGoldError         a file of queries has no gold under any name that is known
    │   └── MisfitError         inputs that do not fit each other: every score would be 0
    ├── MissingInputError       a measure needs texts, versions or entities that were not given
    ├── CallError               a call to a retriever failed; it is logged as failed and counted
    └── MissingExtraError       a part of karat needs a library that is not installed

The command line turns each of them into one line and exit code 2; a MisfitError also shows
ids of both sides, each side on a line of its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice

# A message may quote from a file, and so be as long as the file.
_LONGEST = 2_000
# Of more known names, the first are listed.
_MOST_NAMED = 100


class KaratError(Exception):
    """Base of every error that karat raises on purpose; its message is one line.

    >>> try:
    ...     karat.read_run("missing.trec")
    ... except karat.KaratError as error:
    ...     print(error)
    missing.trec: no such file; check the path
    """

    def __init__(self, what: str = "", *more: object) -> None:
        super().__init__(_one_line(what), *more)


def _one_line(what: str) -> str:
    """Return a message without line ends, shortened in the middle if it is very long."""
    line = " ".join(what.splitlines()) if isinstance(what, str) else what
    if not isinstance(line, str) or len(line) <= _LONGEST:
        return line
    half = _LONGEST // 2
    return f"{line[:half]} … {line[-half:]}"


class UsageError(KaratError):
    """A name, option or combination that does not exist.

    >>> karat.parse_measure("ndgc@10")
    Traceback (most recent call last):
    karat.errors.UsageError: unknown measure 'ndgc' in 'ndgc@10'; did you mean nDCG?
    """


class InputError(KaratError):
    """A file or table that cannot be used, with its place and what is expected.

    >>> print(InputError("score is 'nan'; a run needs finite scores", where="run.trec", line=1842))
    run.trec:1842: score is 'nan'; a run needs finite scores
    """

    def __init__(self, what: str, *, where: str | None = None, line: int | None = None) -> None:
        place = "" if where is None else f"{where}: " if line is None else f"{where}:{line}: "
        super().__init__(place + what)
        self.what = what
        self.where = where
        self.line = line


class NoColumnError(InputError):
    """A table lacks a column that it needs; ``among`` are those that it has.

    >>> print(NoColumnError("no column score", ["a", "b"], "a run needs one", where="run.csv"))
    run.csv: no column score among a, b; a run needs one
    """

    def __init__(
        self, lacks: str, among: Sequence[str], todo: str, *, where: str | None = None
    ) -> None:
        super().__init__(f"{lacks} among {', '.join(among) or 'none at all'}; {todo}", where=where)
        self.lacks, self.among, self.todo = lacks, tuple(among), todo

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what the error is made of: errors cross process borders."""
        arguments = (self.lacks, self.among, self.todo)
        return partial(type(self), where=self.where), arguments


class NoGoldError(InputError):
    """A file of queries has no gold under any known name."""


class MisfitError(InputError):
    """Inputs that do not fit each other; ``details`` are sentences and examples, line by line.

    >>> print(MisfitError("no relevant item occurs in run.trec", ["gold has  a", "run has  b"]))
    no relevant item occurs in run.trec. gold has a. run has b
    """

    def __init__(self, what: str, details: Sequence[str] = (), *, where: str | None = None) -> None:
        words = (" ".join(part.split()) for part in (what, *details))
        super().__init__(". ".join(words))
        self.summary, self.details, self.where = what, tuple(details), where


class MissingInputError(KaratError):
    """A measure needs an input that was not given.

    >>> karat.evaluate("bm25.trec", "qrels.txt", ["Novelty@5"])
    Traceback (most recent call last):
    karat.errors.MissingInputError: Novelty needs the items' texts: give --corpus
    """


class CallError(KaratError):
    """A call to a retriever failed; ``may_pass`` means that a retry may succeed.

    ``wait`` is how many seconds the service asked to wait.

    >>> error = CallError("the index is being rebuilt", may_pass=True, wait=2.0)
    >>> error.may_pass, error.wait
    (True, 2.0)
    """

    def __init__(self, what: str, *, may_pass: bool = False, wait: float | None = None) -> None:
        super().__init__(what)
        self.may_pass = may_pass
        self.wait = wait

    def saying(self, text: str) -> CallError:
        """Return the same failure with another message."""
        return CallError(text, may_pass=self.may_pass, wait=self.wait)


class MissingExtraError(KaratError, ImportError):
    """A part of karat needs a library that is not installed."""


def missing_extra(what: str, needs: str, extra: str) -> MissingExtraError:
    """Return the error for a library that is not installed, with the command that installs it.

    >>> print(missing_extra("history", "SQLAlchemy", "store"))
    history needs SQLAlchemy; install it with: pip install 'karat[store]'
    """
    return MissingExtraError(f"{what} needs {needs}; install it with: pip install 'karat[{extra}]'")


def unknown(kind: str, name: str, known: Iterable[str], *, inside: str | None = None) -> UsageError:
    """Return the error for an unknown name, with the nearest known one.

    >>> print(unknown("measure", "ndgc", ["nDCG", "RR"], inside="ndgc@10"))
    unknown measure 'ndgc' in 'ndgc@10'; did you mean nDCG?
    """
    folded = {candidate.casefold(): candidate for candidate in known}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
    place = "" if inside is None or inside == name else f" in {inside!r}"
    names = [*islice(folded.values(), _MOST_NAMED), *(["…"] if len(folded) > _MOST_NAMED else [])]
    hint = f"did you mean {folded[near[0]]}?" if near else f"known: {', '.join(names)}"
    return UsageError(f"unknown {kind} {name!r}{place}; {hint}")
