"""Limits of ``ulimit``: respected like a container's, and told of where nothing can be done."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from karat.cli.main import main

resource = pytest.importorskip("resource")


def limited(folder, kind: int, most: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Call karat with a limit of so many bytes."""
    return subprocess.run(
        [sys.executable, "-m", "karat", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        preexec_fn=lambda: resource.setrlimit(kind, (most, most)),
        timeout=120,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of 20 MB, which takes several times as much to rank at once."""
    place = tmp_path_factory.mktemp("limits")
    chance = random.Random(1)
    with (place / "run.trec").open("w") as run, (place / "gold.txt").open("w") as gold:
        for query in range(7_000):
            gold.write(f"q{query} 0 d{chance.randint(0, 99)} 1\n")
            run.writelines(
                f"q{query} Q0 d{item} 0 {chance.random()} a-tag\n" for item in range(0, 200, 2)
            )
    return place


EVAL = ("eval", "run.trec", "--gold", "gold.txt", "-m", "RR,nDCG@10", "--json", "--no-bounds")


@pytest.mark.parametrize(
    ("kind", "most", "option"),
    [
        (resource.RLIMIT_AS, 600_000_000, "-v"),
        (resource.RLIMIT_AS, 1_900_000_000, "-v"),
        (resource.RLIMIT_DATA, 500_000_000, "-d"),
    ],
)
def test_too_little_is_refused_in_one_line(folder, kind, most, option):
    done = limited(folder, kind, most, *EVAL)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"karat: ulimit {option} allows {most // 10**6:,} MB")
    assert done.stderr.count("\n") == 1
    assert limited(folder, kind, most, "--version").returncode == 0


@pytest.mark.parametrize(
    ("kind", "most"), [(resource.RLIMIT_AS, 2_000_000_000), (resource.RLIMIT_DATA, 600_000_000)]
)
def test_a_run_larger_than_the_room_is_scored_within_the_limit(folder, kind, most):
    done = limited(folder, kind, most, *EVAL)
    assert done.returncode == 0, done.stderr
    assert done.stdout == limited(folder, kind, resource.RLIM_INFINITY, *EVAL).stdout


@pytest.mark.parametrize(
    ("kind", "most", "option"),
    [(resource.RLIMIT_AS, 4_000_000_000, "-v"), (resource.RLIMIT_DATA, 700_000_000, "-d")],
)
def test_a_chart_that_cannot_be_drawn_within_the_limit_is_refused(folder, kind, most, option):
    words = ("sweep", "run.trec", "--gold", "gold.txt", "-m", "R", "-o", "sweep.png")
    done = limited(folder, kind, most, *words)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"karat: ulimit {option} allows {most // 10**6:,} MB")
    assert not (folder / "sweep.png").exists()


@pytest.mark.parametrize(
    ("kind", "most"), [(resource.RLIMIT_AS, 2_000_000_000), (resource.RLIMIT_DATA, 600_000_000)]
)
def test_a_whole_tour_fits_into_the_least_that_is_accepted(tmp_path, kind, most):
    done = limited(tmp_path, kind, most, "demo", "--quiet")
    assert done.returncode == 0, done.stderr


def test_a_library_that_finds_no_room_is_no_bug(monkeypatch, capsys):
    def loads(arguments):
        raise ImportError("libx.so: failed to map segment from shared object")

    monkeypatch.setattr("karat.cli.main._invoke", loads)
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("karat: out of memory: a library cannot be loaded")
