"""A machine of a cluster that is lost in the middle of the work.

Three JVMs take most of a minute to start, so in the short form only a worker dies: see
tests/engines/test_survives.py.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from .killing import FULL

# A worker's parent is Spark's daemon, and the daemon's is the executor.
LOST = """
import os, signal, sys
import karat
from karat.spark.session import session
spark = session("local-cluster[2,1,1024]")
flag = sys.argv[1]
def lose_once(batches):
    for batch in batches:
        if not os.path.exists(flag):
            open(flag, "w").close()
            with open(f"/proc/{os.getppid()}/stat") as stat:
                executor = int(stat.read().rpartition(")")[2].split()[1])
            os.kill(executor, signal.SIGKILL)
        yield batch
rows = [(f"q{q}", f"d{i}", float(-i)) for q in range(6) for i in range(20)]
hits = spark.createDataFrame(rows, "query_id string, item_id string, score double")
gold = karat.Gold.from_dict({f"q{q}": {f"d{q}": 1, "d50": 1} for q in range(6)})
lossy = hits.repartition(4, "query_id").mapInArrow(lose_once, hits.schema)
scores = karat.evaluate(lossy, gold, ["RR", "R@10"])
print([value.hex() for value in scores.values("RR").tolist()], scores.means()["R@10"])
spark.stop()
"""


@pytest.mark.skipif(not FULL, reason="in full: make faults")
def test_an_executor_that_is_lost_is_survived(tmp_path, told):
    flag = tmp_path / "lost"
    done = subprocess.run(
        [sys.executable, "-c", LOST, str(flag)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert flag.exists()
    ranks = [(1 / (query + 1)).hex() for query in range(6)]
    assert done.stdout.strip() == f"{ranks} 0.5"
    told("kill -9", "eval --engine spark: an executor", 1, "another takes over, the same bits")
