"""When a stored evaluation can be compared with, and when it is stale."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from karat.data.columns import Source
from karat.data.revision import Revision
from karat.data.tables import Gold, Run
from karat.errors import UsageError
from karat.evaluation.api import compare, evaluate
from karat.evaluation.systems import differences
from karat.measure.scores import Scores
from karat.store import RestoredEvaluation, Store
from karat.store.differences import find_same_run, staleness_warnings, with_common_measures

from .conftest import made, small


def stored(scores: Scores, report: dict, **saved) -> RestoredEvaluation:
    with Store.open("sqlite://") as store:
        store.save([scores], report, **saved)
        return store.baseline("1")


def test_what_was_saved_can_be_compared_with_as_if_it_were_new():
    gold = Gold.from_dict({f"q{i}": {"a": 1} for i in range(8)})
    old = Run.from_dict({f"q{i}": ["x", "a"] for i in range(8)}, name="old")
    new = Run.from_dict({f"q{i}": ["a", "x"] for i in range(8)}, name="new")
    (before, after), report = made(gold, old, new, measures="RR, nDCG@5")
    baseline = stored(before, report)
    assert differences(baseline.scores, after) == []
    found, expected = compare([baseline.scores, after]), compare([before, after])
    assert [row.to_dict() for row in found.rows] == [row.to_dict() for row in expected.rows]


def test_other_gold_queries_and_conventions_are_named():
    (scores,), report = small()
    baseline = stored(scores, report).scores
    assert differences(baseline, small(grade=2)[0][0]) == ["their gold differs"]
    run = Run.from_dict({"q0": ["a"]})
    judged = {f"q{i}": {"a": 1} for i in range(5)}
    (message,) = differences(baseline, evaluate(run, Gold.from_dict(judged), "nDCG@5, RR"))
    assert "only one of them, such as 'q4'" in message
    conventions = replace(scores.conventions, rel=2.0, versions=("v1", "v2"), seed=7, order="rank")
    messages = differences(baseline, replace(scores, conventions=conventions))
    assert [message.split()[0] for message in messages] == ["rel", "versions"]


def test_a_comparison_takes_the_measures_that_both_have():
    gold = Gold.from_dict({"q0": {"a": 1}, "q1": {"b": 1}})
    run = Run.from_dict({"q0": ["a"], "q1": ["a", "b"]})
    (old,), report = made(gold, run, measures="RR, P@5, AP")
    (new,), _ = made(gold, run, measures="AP, nDCG@5, RR")
    baseline = stored(old, report)
    for one in with_common_measures(baseline.scores, [new]):
        assert [str(measure) for measure in one.measures] == ["AP", "RR"]
        assert one.table.columns == ["query_id", "AP", "RR"]
        assert list(one.summaries) == ["AP", "RR"]
    (other,), _ = made(gold, run, measures="nDCG@5")
    with pytest.raises(UsageError, match="no measure in common: run was scored by RR, P@5, AP"):
        with_common_measures(baseline.scores, [other])


def file(path: Path, text: str) -> Source:
    path.write_text(text)
    return Source.of(path)


def inputs(**sources: Source) -> dict:
    told = {kind: {"name": one.name, "sha256": one.digest()} for kind, one in sources.items()}
    return {"inputs": told}


def test_a_fresh_baseline_has_nothing_against_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    now = {kind: file(tmp_path / kind, kind) for kind in ("gold", "queries", "corpus")}
    (scores,), _ = small()
    run = replace(scores, source=file(tmp_path / "old.trec", "old"))
    new = replace(scores, source=file(tmp_path / "new.trec", "new"))
    baseline = stored(run, inputs(**now), revision=Revision("abc", dirty=False))
    assert staleness_warnings(baseline, **now, runs=[new]) == []
    # A new run under the old one's name is what the comparison is about.
    again = replace(scores, source=file(tmp_path / "old.trec", "newer"))
    assert staleness_warnings(baseline, **now, runs=[again]) == []


def test_inputs_that_changed_since_are_named(tmp_path):
    before = {kind: file(tmp_path / f"{kind}.txt", kind) for kind in ("gold", "queries", "corpus")}
    baseline = stored(small()[0][0], inputs(**before))
    after = {kind: file(tmp_path / f"{kind}.txt", "other") for kind in ("gold", "queries")}
    after["corpus"] = file(tmp_path / "new.jsonl", "other")

    def sha(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    other = sha("other")
    renamed = "corpus.txt then, new.jsonl now"
    assert staleness_warnings(baseline, **after) == [
        f"other gold than when it was saved (gold.txt: {sha('gold')} then, {other} now)",
        f"other queries than when it was saved (queries.txt: {sha('queries')} then, {other} now)",
        f"other corpus than when it was saved ({renamed}: {sha('corpus')} then, {other} now)",
    ]


def test_what_never_was_a_file_is_told_apart_by_its_judgments(tmp_path):
    (scores,), _ = small()
    baseline = stored(scores, {"inputs": {"gold": {"name": "in memory", "sha256": None}}})
    gold = file(tmp_path / "gold.txt", "")
    assert staleness_warnings(baseline, gold=gold, runs=[scores]) == []
    assert staleness_warnings(baseline, gold=gold) == [
        "whether its gold is that of today cannot be told: there is no digest of both"
    ]


def test_the_run_of_a_baseline_may_have_changed_or_be_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gold = file(tmp_path / "gold", "")
    (scores,), _ = small()
    run = replace(scores, source=file(tmp_path / "old.trec", "old"))
    baseline = stored(run, inputs(gold=gold))
    assert staleness_warnings(baseline, gold=gold, runs=[run]) == [
        "old.trec is the run that it was made of: nothing to compare"
    ]
    new = replace(scores, source=file(tmp_path / "new.trec", "new"))
    (tmp_path / "old.trec").write_text("changed")
    told = "its run old.trec has changed since; the stored values are of the old one"
    assert staleness_warnings(baseline, gold=gold, runs=[new]) == [told]
    monkeypatch.chdir("/")
    assert staleness_warnings(baseline, gold=gold, runs=[new]) == [told]
    assert staleness_warnings(baseline, gold=gold) == []


def test_a_gold_file_written_anew_with_the_same_judgments_is_not_stale(tmp_path):
    (scores,), _ = small()
    baseline = stored(scores, inputs(gold=file(tmp_path / "gold", "a\nb")))
    gold = file(tmp_path / "gold", "b\na")
    assert staleness_warnings(baseline, gold=gold, runs=[scores]) == []
    assert len(staleness_warnings(baseline, gold=gold, runs=[small(grade=2)[0][0]])) == 1


def test_a_run_is_the_stored_one_if_its_bytes_are(tmp_path):
    (scores,), report = small()
    old = replace(scores, source=file(tmp_path / "old.trec", "old"))
    new = replace(scores, source=file(tmp_path / "new.trec", "new"))
    copy = replace(scores, source=file(tmp_path / "copy.trec", "old"))
    assert find_same_run(stored(old, report), [new, copy]) is copy
    assert find_same_run(stored(old, report), [new]) is None
    assert find_same_run(stored(scores, report), [scores, new]) is None


def test_versions_commits_and_karat_itself_may_be_other_ones(tmp_path):
    gold = file(tmp_path / "gold", "")
    (scores,), _ = small()
    old = replace(scores, meta={"index_version": "v1", "dataset_version": 3})
    new = replace(scores, meta={"index_version": "v2", "dataset_version": "3"})
    report = {"tool": {"name": "karat", "version": "1.2"}, **inputs(gold=gold)}
    baseline = stored(old, report, revision=Revision("0123456789abcdef", dirty=True))
    assert staleness_warnings(baseline, gold=gold, runs=[new, new], version="9.9") == [
        "its index_version was v1, that of bm25 is v2",
        "it was saved with uncommitted changes (after 0123456789ab)",
        "it was made by karat 1.2, this is 9.9",
    ]
