"""karat eval, killed: every output is the old one whole, the new one whole, or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from .killing import FULL, contents, killing, state, usual
from .worlds import lay_runs

# A page takes long to make, and is killed among the other writers.
FILES = ("report.json", "per-query.csv", "report.md", "values.parquet")
OUTPUTS = [word for name in FILES for word in ("-o", f"out/{name}")]
MOMENTS = ["while writing", *(["at any moment"] if FULL else [])]
INPUTS = ("--gold", "qrels.txt", "--queries", "queries.jsonl", "--corpus", "corpus.jsonl")
EVAL = ("eval", "old.trec", "new.trec", *INPUTS, "--by", "kind", "--quiet")


class Evaluations:
    """One command again and again in one folder, over what the last one left there."""

    def __init__(self, start, folder: Path) -> None:
        self._start, self.folder = start, lay_runs(folder, queries=30)
        self.place = self.folder / "out"

    def begin(self, measure: str = "nDCG@5"):
        self._before = state(self.place)
        return self._start(*EVAL, "-m", measure, *OUTPUTS, cwd=self.folder)

    def outputs(self) -> dict[str, bytes]:
        return contents(self.place)

    def lay(self, outputs: dict[str, bytes]) -> None:
        """Have these outputs from before, and nothing else."""
        for path in self.place.iterdir():
            path.unlink()
        for name, data in outputs.items():
            (self.place / name).write_bytes(data)

    def writing(self) -> bool:
        """Whether the command that was begun has begun to write; a file makes a folder newer."""
        return state(self.place) != self._before


@pytest.mark.parametrize("when", MOMENTS)
def test_outputs_are_replaced_whole_or_not_at_all(start, tmp_path, when, times, told):
    evals, number = Evaluations(start, tmp_path / "files"), times(2, 50)
    evals.begin("RR").wait()
    old = evals.outputs()
    after = evals.writing if when == "while writing" else None
    seconds = usual(evals.begin(), after)
    new = evals.outputs()
    assert sorted(old) == sorted(new) == sorted(FILES)
    assert all(old[name] != new[name] for name in FILES)
    evals.lay(old)
    before = old
    for _ in killing(evals.begin, times=number, within=seconds, seed=3, after=after):
        left = evals.outputs()
        assert all(left.get(name) in (before.get(name), new[name]) for name in FILES)
        assert set(left) <= set(FILES)
        # Over outputs of before, then where there are none.
        before = {} if before else old
        evals.lay(before)
    evals.begin().wait()
    assert evals.outputs() == new
    outcome = "each output the old one whole, the new one whole or absent; again: the same bytes"
    told(f"kill -9 {when}", "karat eval, four outputs", number, outcome)
