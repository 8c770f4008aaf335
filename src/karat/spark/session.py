"""Spark sessions: their settings, the libraries they need, and Spark's errors in one line."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from karat.errors import KaratError, UsageError, missing_extra
from karat.process_limits import LIMITS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What pyspark[sql] installs; pyspark needs the last two only for tables.
_LIBRARIES = ("pyspark", "py4j", "pandas", "pyarrow")
# How often a task is tried that fails, for example because its worker was lost.
ATTEMPTS = 4
LOCAL = f"local[*,{ATTEMPTS}]"
# Settings that spark-defaults.conf or SPARK_CONF_DIR may override.
_SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.maxResultSize": "0",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.task.maxFailures": str(ATTEMPTS),
    "spark.ui.enabled": "false",
    # Every task already has a thread of the machine.
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    "spark.executorEnv.PYTHONWARNINGS": "ignore",
}
# On one machine, compressing what passes through its memory only takes time.
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.shuffle.compress": "false",
}
# Throughput matters here, pauses do not.
_GC = "-XX:+UseParallelGC"
_LOGGING = Path(__file__).with_name("log4j2.properties")
_MASTER = re.compile(
    r"local(\[(\*|[1-9][0-9]*)(,\s*[1-9][0-9]*)?\])?|local-cluster\[[0-9, ]+\]|yarn"
    r"|(spark|k8s)://.+"
)
# A message that an expression of karat raised, as Spark reports it.
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE: \w+)?$")
# The first line of a worker's traceback, and the form of its last line.
_TRACEBACK = "Traceback (most recent call last):"
_PYTHON_ERROR = re.compile(r"[A-Za-z_.]+(Error|Exception): (?!Traceback)\S")
_LONGEST_MESSAGE = 500


class SparkError(KaratError):
    """Spark failed; the message is Spark's own, in one line."""


def check_libraries() -> None:
    """Raise MissingExtraError if a library that Spark needs is missing or broken."""
    for library in _LIBRARIES:
        try:
            import_module(library)
        except ImportError:
            raise missing_extra("--engine spark", library, "spark") from None


def session(master: str | None = None, *, progress: bool = False) -> SparkSession:
    """Return the active session, or a new one on ``master`` (default: all cores here)."""
    check_libraries()
    from pyspark.sql import SparkSession

    if master is not None and not _MASTER.fullmatch(master):
        raise UsageError(
            f"{master!r} is not a Spark master; use local[4], local[*], spark://host:7077, yarn "
            "or k8s://…"
        )
    active = SparkSession.getActiveSession()
    if active is not None:
        active_master = active.conf.get("spark.master", None)
        if master not in (None, active_master):
            raise UsageError(
                f"a Spark session on {active_master!r} is active already; leave {master!r} out"
            )
        return active
    master = master or LOCAL
    is_local = master.startswith("local")
    settings = _SETTINGS | (_LOCAL_SETTINGS if is_local else {})
    logging = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    settings["spark.driver.extraJavaOptions"] = f"{logging} {_GC}"
    settings["spark.ui.showConsoleProgress"] = str(progress).lower()
    builder: Any = SparkSession.builder.appName("karat").master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    # Workers run the Python that has karat and its libraries.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with spark_errors(f"Spark cannot be started on {master!r}"):
        started: SparkSession = builder.getOrCreate()
    return started


@contextmanager
def spark_errors(failure: str) -> Iterator[None]:
    """Raise what Spark raises as a SparkError of one line; warnings of its libraries are hidden."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (Py4JError, PySparkException, OSError) as error:
        raise SparkError(f"{failure}: {error_message(error)}") from None


def error_message(error: BaseException) -> str:
    """Return Spark's message without its stack; the last cause explains the most."""
    if "JAVA_GATEWAY_EXITED" in str(error):
        if LIMITS:
            options = " and ".join(f"ulimit {option}" for option in LIMITS)
            return f"Java did not start; it may need more memory than {options} allows: raise it"
        return "Java did not start; install Java 17 or newer, or set JAVA_HOME to where it is"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = next((match[1] for line in lines if (match := _RAISED.search(line))), None)
    if raised is not None:
        return raised
    tracebacks = [place for place, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    last_traceback = lines[max(tracebacks, default=len(lines)) :]
    errors = [line for line in last_traceback if _PYTHON_ERROR.match(line)]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    message = (errors or causes or lines[:1] or [repr(error)])[-1]
    return message.removeprefix("Caused by: ")[:_LONGEST_MESSAGE]
