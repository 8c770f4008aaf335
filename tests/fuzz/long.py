"""Fuzz every target for as long as you like: ``make fuzz`` (SECONDS=600 ARGS="trec-run measures").

Guided by coverage where atheris is installed, else by hypothesis. Whatever is found is written
to a file and printed with the command that does it again.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

FINDINGS = Path("out/fuzz")
ATHERIS = importlib.util.find_spec("atheris") is not None


def main() -> int:
    """Fuzz the targets that are named, else all, one after the other; 1 if anything is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help="names of targets; all if none is given")
    parser.add_argument("--seconds", type=int, default=120, help="how long for each target")
    parser.add_argument("--again", type=Path, help="a file that was found: run it once")
    parser.add_argument("--within", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.again:
        return again(given.targets[0], given.again)
    if given.within:
        return guided(given.targets[0], given.within, given.seconds)
    from fuzz.targets import TARGETS

    names = given.targets or list(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"unknown target {unknown[0]!r}; known: {', '.join(TARGETS)}")
    if not ATHERIS:
        print("atheris is not installed (pip install atheris): fuzzing with hypothesis alone")
        return by_hypothesis(names, given.seconds)
    FINDINGS.mkdir(parents=True, exist_ok=True)
    return max(one_target(name, given.seconds) for name in names)


def one_target(name: str, seconds: int) -> int:
    """Fuzz a target in a process of its own, which it may take down."""
    before = set(FINDINGS.iterdir())
    with tempfile.TemporaryDirectory() as within:
        done = subprocess.run(
            [sys.executable, __file__, name, "--within", within, "--seconds", str(seconds)],
            capture_output=True,
            env={**os.environ, "POLARS_MAX_THREADS": "1", "RUST_BACKTRACE": "0"},
        )
    told = done.stderr.decode(errors="replace").splitlines()
    count = next((line.split()[1] for line in reversed(told) if line.startswith("Done ")), "?")
    found = sorted(set(FINDINGS.iterdir()) - before)
    print(f"{name}: {len(found)} findings in {count} tries", flush=True)
    for file in found:
        print(f"  {file}; again: {sys.executable} {__file__} {name} --again {file}", flush=True)
    if done.returncode and not found:
        print("\n".join(told[-20:]), flush=True)
    return int(bool(done.returncode or found))


def guided(name: str, within: Path, seconds: int) -> int:
    """Let atheris choose the bytes; ends at the first finding, which libFuzzer writes down."""
    import atheris

    with atheris.instrument_imports(include=["karat", "yaml", "json"]):
        from fuzz.oracle import held
        from fuzz.targets import TARGETS
    target = TARGETS[name]
    for number, seed in enumerate(target.seeds()):
        (within / f"seed-{number}").write_bytes(seed)
    words = within.with_suffix(".dict")
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words if word))
    options = [
        str(within),
        # libFuzzer refuses a dictionary without a word.
        *([f"-dict={words}"] if target.words else []),
        f"-max_total_time={seconds}",
        f"-artifact_prefix={FINDINGS}/{name}-",
        "-timeout=60",
        "-rss_limit_mb=3000",
        "-max_len=4096",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *options], lambda data: _tried(held, target.check, data))
    atheris.Fuzz()
    return 0


def _tried(held, check, data: bytes) -> None:
    held(check, data)


def again(name: str, file: Path) -> int:
    """Run a finding once, with its whole traceback."""
    from fuzz.oracle import held
    from fuzz.targets import TARGETS

    print(held(TARGETS[name].check, file.read_bytes()) or "read")
    return 0


def by_hypothesis(names: list[str], seconds: int) -> int:
    """Fuzz with the test that make test runs in short."""
    picked = " or ".join(f"line[{name}]" for name in names)
    which = ["-k", "any_bytes" if len(names) > 20 else picked]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:xdist", HERE / "test_targets.py", *which],
        env={**os.environ, "KARAT_FUZZ_SECONDS": str(seconds)},
    ).returncode


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    sys.exit(main())
