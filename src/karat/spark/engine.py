"""Spark as the engine of an evaluation: its session, the gold that it read, and its scoring."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from karat.data.columns import Duplicates
from karat.data.tables import Corpus, Gold, Queries
from karat.errors import KaratError, UsageError, missing_extra
from karat.measures.names import Measure
from karat.measures.prepare import Prepared
from karat.measures.scores import Scores
from karat.process_limits import limits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from karat.spark.scoring import SparkGold


def start(master: str | None, *, progress: bool = False) -> SparkEngine:
    """Return an engine on the active session, or on a new one that ends with the engine."""
    check_libraries()
    from pyspark.sql import SparkSession

    ours = SparkSession.getActiveSession() is None
    return SparkEngine(session(master, progress=progress and sys.stderr.isatty()), ours)


@dataclass(eq=False)
class SparkEngine:
    """A session of Spark and the gold that it read; a session of ours ends with the engine."""

    spark: SparkSession
    ours: bool
    judged: SparkGold | None = None

    def read_gold(self, gold: Any, *, duplicates: Duplicates, format: str | None) -> Gold:
        """Return the queries of the gold, without its judgments, which stay with Spark."""
        from karat.spark.inputs import of_frame
        from karat.spark.scoring import of_gold, of_rows, open_gold

        if isinstance(gold, Gold):
            self.judged = of_gold(self.spark, gold)
        elif isinstance(gold, str):
            self.judged = open_gold(self.spark, gold, format=format, duplicates=duplicates)
        else:
            self.judged = of_rows(of_frame(gold), duplicates)
        return self.judged.header

    def score(
        self,
        run: Any,
        gold: Prepared,
        measures: Sequence[Measure],
        *,
        lenient: Collection[Measure],
        queries: Queries | None,
        corpus: Corpus | None,
        keep: int,
        format: str | None,
        strict: bool,
    ) -> Scores:
        """Score a run: a file, a folder, a pattern or a URL that Spark reads, or a DataFrame."""
        from karat.spark.inputs import of_frame, open_rows
        from karat.spark.scoring import score

        if self.judged is None:
            raise UsageError("Spark scores runs against gold that it read")
        rows = open_rows(self.spark, run, "run", format) if isinstance(run, str) else of_frame(run)
        return score(
            rows,
            self.judged,
            gold,
            measures,
            lenient=lenient,
            queries=queries,
            corpus=corpus,
            keep=keep,
            strict=strict,
        )

    def close(self) -> None:
        """Stop the session, if it is ours."""
        if self.ours:
            self.spark.stop()


# What pyspark[sql] installs; pyspark itself needs the last two for tables only.
_LIBRARIES = ("pyspark", "py4j", "pandas", "pyarrow")
# A task that fails, as one whose worker was lost, is tried so many times.
ATTEMPTS = 4
LOCAL = f"local[*,{ATTEMPTS}]"
# What a session on this machine gets unless spark-defaults.conf or SPARK_CONF_DIR says more.
_OWN = {
    "spark.driver.memory": "2g",
    "spark.driver.maxResultSize": "0",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.task.maxFailures": str(ATTEMPTS),
    "spark.ui.enabled": "false",
    # Every task is one thread of the machine already.
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    "spark.executorEnv.PYTHONWARNINGS": "ignore",
}
# On one machine pieces pass through its own memory, where packing them only takes time.
_LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.shuffle.compress": "false",
}


# Throughput counts here, and pauses do not.
_GC = "-XX:+UseParallelGC"
_LOGGING = Path(__file__).with_name("log4j2.properties")
_MASTER = re.compile(
    r"local(\[(\*|[1-9][0-9]*)(,\s*[1-9][0-9]*)?\])?|local-cluster\[[0-9, ]+\]|yarn"
    r"|(spark|k8s)://.+"
)
# What Spark puts around a sentence that an expression of ours raised.
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE: \w+)?$")
# How a worker's traceback begins, and what its last line looks like.
_TRACEBACK = "Traceback (most recent call last):"
_OF_PYTHON = re.compile(r"[A-Za-z_.]+(Error|Exception): (?!Traceback)\S")


class SparkError(KaratError):
    """Spark could not do what it was asked; says what Spark said."""


def check_libraries() -> None:
    """Refuse to start where a library is not installed that Spark needs sooner or later."""
    for library in _LIBRARIES:
        if not _is_installed(library):
            raise missing_extra("--engine spark", library, "spark")


def _is_installed(library: str) -> bool:
    """Whether a library is there; pyspark is imported, as a broken one is no better than none."""
    try:
        if library == "pyspark":
            import_module(library)
        return find_spec(library) is not None
    except ImportError:
        return False


def session(master: str | None = None, *, progress: bool = False) -> SparkSession:
    """The active session, or a new one on ``master`` (by default all cores of this machine)."""
    check_libraries()
    from pyspark.sql import SparkSession

    if master is not None and not _MASTER.fullmatch(master):
        raise UsageError(
            f"{master!r} is no master of Spark; it is local[4], local[*], spark://host:7077, yarn "
            "or k8s://…"
        )
    active = SparkSession.getActiveSession()
    if active is not None:
        _refuse_other(active, master)
        return active
    wanted = master or LOCAL
    builder: Any = SparkSession.builder.appName("karat").master(wanted)
    own = _OWN | (_LOOPBACK if wanted.startswith("local") else {})
    own["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} {_GC}"
    own["spark.ui.showConsoleProgress"] = str(progress).lower()
    for key, value in own.items():
        builder = builder.config(key, value)
    # Workers run the Python that has karat, and the libraries that it has.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if wanted.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with quietly(f"Spark cannot be started on {wanted!r}"):
        made: SparkSession = builder.getOrCreate()
    return made


def _refuse_other(active: SparkSession, master: str | None) -> None:
    there = active.conf.get("spark.master", None)
    if master is not None and there != master:
        raise UsageError(f"a Spark session on {there!r} is active already; leave {master!r} out")


@contextmanager
def quietly(doing: str) -> Iterator[None]:
    """What Spark raises as one sentence; what its libraries warn about each other, unsaid."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (Py4JError, PySparkException, OSError) as error:
        raise SparkError(f"{doing}: {said(error)}") from None


def said(error: BaseException) -> str:
    """What Spark says went wrong, without its stack; the last cause says it best."""
    if "JAVA_GATEWAY_EXITED" in str(error):
        if limits():
            options = " and ".join(f"ulimit {option}" for option, _, _ in limits())
            return f"Java did not start; it may need more memory than {options} allows: raise it"
        return "Java did not start; install Java 17 or newer, or set JAVA_HOME to where it is"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [found[1] for line in lines if (found := _RAISED.search(line))]
    if raised:
        return raised[0]
    traced = [at for at, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    in_python = [
        line for line in lines[max(traced, default=len(lines)) :] if _OF_PYTHON.match(line)
    ]
    if in_python:
        return in_python[-1][:500]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    told = causes[-1].removeprefix("Caused by: ") if causes else (lines or [repr(error)])[0]
    return told[:500]
