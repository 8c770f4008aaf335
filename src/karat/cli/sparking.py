"""``--engine``: scoring on this machine, or by Spark; what only whole lists can tell stays here."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from karat.cli.scored import Scored
from karat.errors import UsageError
from karat.measures.scores import Scores
from karat.tables import Gold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from karat.cli.scoring import Ready, Request
    from karat.columns import Duplicates
    from karat.engines.spark.scoring import SparkGold

_LEFT_OUT = "bounds are told by the local engine, which sees every list"


def sparking_of(request: Request) -> Sparking | None:
    """Spark, if it was asked for; what it cannot do is refused before it is started."""
    name, equals, master = request.engine.partition("=")
    if name == "local" and not equals:
        return None
    if name != "spark" or (equals and not master.strip()):
        raise UsageError(
            f"--engine {request.engine!r} is not known; it is local, spark or spark=MASTER, such "
            "as spark=local[4] or spark=spark://host:7077"
        )
    _refuse_what_needs_lists(request)
    if request.fields:
        raise UsageError("--field is not known to Spark; rename the columns, or use --engine local")
    from karat.engines.spark.session import check_libraries, session

    check_libraries()
    from pyspark.sql import SparkSession

    ours = SparkSession.getActiveSession() is None
    spark = session(master or None, progress=not request.quiet and sys.stderr.isatty())
    return Sparking(spark, ours)


def _refuse_what_needs_lists(request: Request) -> None:
    """What compares whole lists with other labels is for one machine."""
    asked = {
        "--judged": request.judged is not None,
        "--human": bool(request.human),
        "--bounds": bool(request.bounds),
        "--strict-bounds": request.strict_bounds,
        "--profile story": request.profile == "story",
    }
    for name, given in asked.items():
        if given:
            raise UsageError(f"{name} needs every list in one place; use --engine local")


@dataclass(eq=False)
class Sparking:
    """A session of Spark and the gold that it reads; a session of ours ends with the work."""

    spark: SparkSession
    ours: bool
    judged: SparkGold | None = None

    def gold(self, path: str, *, duplicates: Duplicates, format: str | None) -> Gold:
        """The queries of the gold, without its judgments, which stay with Spark."""
        from karat.engines.spark.scoring import open_gold

        self.judged = open_gold(self.spark, path, format=format, duplicates=duplicates)
        return self.judged.header

    def scored(self, request: Request, given: Ready, keep: int) -> Scored:
        """Every run, one after the other: each takes all of Spark."""
        try:
            scores = [self._score(name, request, given, keep) for name in request.runs]
        finally:
            if self.ours:
                self.spark.stop()
        return Scored(scores, given, left_out=None if request.bounds is False else _LEFT_OUT)

    def _score(self, name: str, request: Request, given: Ready, keep: int) -> Scores:
        from karat.engines.spark.inputs import open_rows
        from karat.engines.spark.scoring import score

        if self.judged is None:
            raise UsageError("Spark scores runs against gold that it read")
        return score(
            open_rows(self.spark, name, "run", request.run_format),
            self.judged,
            given.prepared,
            given.measures,
            lenient=given.lenient,
            queries=given.queries,
            corpus=given.corpus,
            keep=keep,
            strict=request.strict,
        )
