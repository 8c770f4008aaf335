"""Systems of which every call failed: nothing was measured, and the reason is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

REFUSE = ("karat", "trec", "rag", "memory")
ALLOW = ("story", "ab", "minimal")
CALLS = ("q1", "q2")


def log(name: str, *calls: dict) -> str:
    path = Path(f"{name}.jsonl")
    path.write_text("".join(json.dumps({"system": name, **call}) + "\n" for call in calls))
    return str(path)


@pytest.fixture
def dead(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("qrels.txt").write_text("q1 0 a 1\nq2 0 b 1\n")
    return log("dead", *({"query_id": name, "error": "connection refused"} for name in CALLS))


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
@pytest.mark.parametrize("profile", REFUSE)
def test_a_dead_system_is_refused_with_the_reason(dead, run, profile, quiet):
    call = ("eval", dead, "--gold", "qrels.txt", "--profile", profile, "-m", "RR@5", *quiet)
    done = run(*call)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "karat: 2 of 2 calls of dead.jsonl failed: connection refused.\n  Nothing was measured."
    )
    assert run(*call, "--set", "missing_ids=allow").code == 3


@pytest.mark.parametrize("profile", ALLOW)
def test_a_dead_system_that_is_allowed_is_reported_and_leaves_with_3(dead, run, profile):
    call = ("eval", dead, "--gold", "qrels.txt", "--profile", profile, "-m", "RR@5")
    done = run(*call)
    assert done.code == 3
    assert "0 of 2 queries scored · 2 failed calls" in done.out
    assert done.err == "karat: cannot tell: no query could be scored\n"
    [system] = json.loads(run(*call, "--json").out)["systems"]
    assert system["counts"]["failed_calls"] == 2


@pytest.mark.parametrize("profile", [*REFUSE, *ALLOW])
def test_a_dead_system_beside_a_healthy_one_is_named(dead, run, profile):
    lists = (["x", "a"], ["b", "y"])
    hits = [
        [{"chunk_id": item, "rank": at + 1, "score": 1.0 - at} for at, item in enumerate(one)]
        for one in lists
    ]
    calls = ({"query_id": name, "topk": own} for name, own in zip(CALLS, hits, strict=True))
    well = log("well", *calls)
    call = ("eval", dead, well, "--gold", "qrels.txt", "--profile", profile, "-m", "RR@5", "--json")
    done = run(*call)
    if profile in REFUSE:
        assert (done.code, done.out) == (2, "")
        assert "2 of 2 calls of dead.jsonl failed" in done.err
        done = run(*call, "--set", "missing_ids=allow")
    systems = {one["name"]: one for one in json.loads(done.out)["systems"]}
    assert list(systems) == ["dead", "well"]
    assert systems["dead"]["counts"]["failed_calls"] == 2
    # The first relevant item stands second for one query and first for the other.
    assert systems["well"]["measures"]["RR@5"]["mean"] == 0.75


def test_ranks_alone_are_still_no_scores(dead, run):
    ranked = log("ranked", {"query_id": "q1", "topk": ["a"]}, {"query_id": "q2", "error": "down"})
    done = run("eval", ranked, "--gold", "qrels.txt", "--profile", "memory", "-m", "RR@5")
    assert done.code == 2
    assert "this run has ranks only and cannot be ordered by score; use --set order=rank" in (
        done.err
    )


def test_queries_without_an_answer_do_not_bring_a_dead_system_to_life(dead, run):
    asked = [{"query_id": name, "text": name} for name in CALLS]
    asked += [{"query_id": "q3", "text": "q3", "no_answer": True}]
    Path("queries.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    calls = ({"query_id": one["query_id"], "error": "connection refused"} for one in asked)
    call = ("eval", log("dead", *calls), "--gold", "qrels.txt", "--queries", "queries.jsonl")
    done = run(*call, "-m", "RR@5")
    assert done.code == 2
    assert "2 of 2 calls of dead.jsonl failed" in done.err
