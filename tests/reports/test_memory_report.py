"""The reporting format of a memory system: its keys, its numbers, its time."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import karat
from karat.cli.main import main
from karat.cli.options import OutputOptions
from karat.compat.report_outputs import memory_document, to_memory
from karat.errors import UsageError
from karat.formats.memory import category_of
from karat.reports.document import Report
from karat.reports.outputs import parse_output


def stamp(given, outputs, environ):
    return OutputOptions(timestamp=given).time(outputs, environ)


TOP = [
    "timestamp",
    "configuration",
    "total_queries",
    "total_memories",
    "metrics",
    "failures_by_category",
    "query_category_breakdown",
]
TWELVE = [
    "recall_at_1",
    "recall_at_3",
    "recall_at_5",
    "recall_at_10",
    "mrr",
    "ndcg_at_10",
    "precision_at_5",
    "mean_similarity",
    "fpr_at_1",
    "latency_p50_ms",
    "latency_p95_ms",
    "coverage",
]
SIX = ["direct", "paraphrased", "technical", "casual", "implicit", "edge_cases"]
LONG = "we noted it, I think, " + "and I keep looking " * 4 + "but I do not find it"

# Each class of failure, and the rank of the gold in the retriever's list, None for none.
PLANTED = {
    "found": [1, 1, 1, 1, 2, 3, 5, 10],
    "low_rank": [11, 12, 20, 100],
    "complete_miss": [101, None, None],
    "false_positive_dominance": [12, 13, 14, 15, 16],
    "threshold_exclusion": [1, 2, 3, 4, 5, 6],
    "embedding_mismatch": [11, 12, 13, 14, 15, 16, 17],
}
DEPTH = 110
# Not what the file is called.
SYSTEM = "words only, v1"
HUBS = [f"hub{at}" for at in range(6)]
CATEGORIES = ["direct", "paraphrase", "technical", "edge_short", "zebra", "apes", None]


def ranked(query: int, rank: int | None, kind: str) -> list[str]:
    """The gold at its rank among items that no other query has, but for the hubs."""
    items = [f"other{query}-{at}" for at in range(DEPTH)]
    if kind == "false_positive_dominance":
        items[1:7] = HUBS
    if rank is not None:
        items[rank - 1] = f"gold{query}"
    return items


def planted(folder: Path) -> list[tuple[str, int | None, str | None]]:
    """Write a suite and a log; the class, the rank returned and the category of each query."""
    cases, records, known = [], [], []
    query = 0
    for kind, ranks in PLANTED.items():
        for rank in ranks:
            category = CATEGORIES[query % len(CATEGORIES)]
            asked = {"query": f"what do we know of number {query}", "category": category}
            cases.append(
                {"memory_id": f"gold{query}", "content": "x", "generated_queries": [asked]}
            )
            alike = 0.1 if kind == "embedding_mismatch" else 0.5 + query / 100
            raw = [
                {"chunk_id": item, "score": 1 - at / 1000, "similarity": alike}
                for at, item in enumerate(ranked(query, rank, kind))
            ]
            gone = kind == "threshold_exclusion"
            kept = [hit for hit in raw if not (gone and hit["chunk_id"] == f"gold{query}")]
            record: dict[str, Any] = {"query_id": f"gold{query}/1", "system": SYSTEM}
            record |= {"k": DEPTH, "k_raw": DEPTH, "raw": raw, "topk": kept}
            record |= {"stages": {"threshold": kept}, "latency_ms": {"total": 10.0 + query**2}}
            records.append(record)
            known.append((kind, None if gone else rank, category))
            query += 1
    (folder / "suite.json").write_text(json.dumps({"test_cases": cases}))
    (folder / "planted.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    return known


def reported(capfd, *more: str, run: str = "planted.jsonl") -> dict[str, Any]:
    capfd.readouterr()
    code = main(
        ["eval", run, "--gold", "suite.json", "--profile", "memory", *more, "-o", "memory:-"]
    )
    out, err = capfd.readouterr()
    assert code == 0, err
    return json.loads(out)


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    return planted(tmp_path)


def test_the_keys_are_those_of_the_document_in_its_order(world, capfd):
    report = reported(capfd)
    assert list(report) == TOP
    assert list(report["metrics"]) == TWELVE
    assert list(report["failures_by_category"]) == [
        "complete_miss",
        "low_rank",
        "false_positive_dominance",
        "threshold_exclusion",
        "embedding_mismatch",
    ]
    assert list(report["query_category_breakdown"])[:6] == SIX
    assert all(
        list(one) == ["recall_at_1", "mrr"] for one in report["query_category_breakdown"].values()
    )


def test_each_failure_is_counted_as_often_as_it_was_planted(world, capfd):
    counts = reported(capfd)["failures_by_category"]
    assert counts == {kind: len(ranks) for kind, ranks in PLANTED.items() if kind != "found"}


def test_the_metrics_follow_from_the_ranks(world, capfd):
    report = reported(capfd, "--corpus", "suite.json")
    ranks = [rank for _, rank, _ in world]
    n = len(ranks)
    within = {k: sum(rank is not None and rank <= k for rank in ranks) for k in (1, 3, 5, 10)}
    metrics = report["metrics"]
    for k, hits in within.items():
        assert metrics[f"recall_at_{k}"] == pytest.approx(hits / n, abs=1e-15)
    assert metrics["mrr"] == pytest.approx(float(sum(Fraction(1, r) for r in ranks if r)) / n)
    gains = [1 / math.log2(rank + 1) for rank in ranks if rank is not None and rank <= 10]
    assert metrics["ndcg_at_10"] == pytest.approx(sum(gains) / n)
    assert metrics["precision_at_5"] == pytest.approx(within[5] / 5 / n)
    assert metrics["fpr_at_1"] == pytest.approx(1 - within[1] / n)
    assert metrics["coverage"] == pytest.approx(within[10] / n)
    # Of the true positives: the queries whose gold is among the first ten.
    alike = [0.5 + at / 100 for at, rank in enumerate(ranks) if rank is not None and rank <= 10]
    assert metrics["mean_similarity"] == pytest.approx(sum(alike) / len(alike))
    times = sorted(10.0 + at**2 for at in range(n))
    for share in (50, 95):
        place = (n - 1) * share / 100
        low = int(place)
        value = times[low] + (place - low) * (times[low + 1] - times[low])
        assert metrics[f"latency_p{share}_ms"] == pytest.approx(value)
    assert (report["configuration"], report["total_queries"]) == (SYSTEM, n)


def test_categories_are_spelled_as_in_the_document_and_others_follow_by_name(world, capfd):
    found = reported(capfd)["query_category_breakdown"]
    assert list(found) == [*SIX, "apes", "zebra"]
    spelled = {"paraphrase": "paraphrased", "edge_short": "edge_cases"}
    for name in ("direct", "paraphrase", "technical", "edge_short", "zebra", "apes"):
        ranks = [rank for _, rank, category in world if category == name]
        inverse = [0.0 if rank is None else 1 / rank for rank in ranks]
        own = found[spelled.get(name, name)]
        assert own["recall_at_1"] == pytest.approx(ranks.count(1) / len(ranks))
        assert own["mrr"] == pytest.approx(sum(inverse) / len(ranks))
    assert found["casual"] == found["implicit"] == {"recall_at_1": None, "mrr": None}


def test_what_was_not_logged_is_null_and_not_0(world, capfd, tmp_path):
    (tmp_path / "plain.trec").write_text("gold0/1 Q0 gold0 1 0.9 plain\n")
    metrics = reported(capfd, run="plain.trec")["metrics"]
    nothing = {name for name, value in metrics.items() if value is None}
    # Coverage is of all memories, which only a corpus tells.
    assert nothing == {"coverage", "mean_similarity", "latency_p50_ms", "latency_p95_ms"}
    assert metrics["recall_at_1"] == pytest.approx(1 / len(world))


def test_a_category_that_nobody_could_check_is_null_and_not_0(world, capfd, tmp_path):
    ranks = {"gold0/1": 1, "gold1/1": 12}
    lines = [
        f"{query} Q0 {query[:5] if at == rank else f'x{at}'} {at} {1 / at} plain\n"
        for query, rank in ranks.items()
        for at in range(1, 13)
    ]
    (tmp_path / "plain.trec").write_text("".join(lines))
    counts = reported(capfd, run="plain.trec")["failures_by_category"]
    # A list of ids and scores tells ranks; not what a threshold took, nor what is alike.
    assert counts == {
        "complete_miss": 0,
        "low_rank": 1,
        "false_positive_dominance": 0,
        "threshold_exclusion": None,
        "embedding_mismatch": None,
    }
    # A list before the filters tells one of the classes behind threshold_exclusion.
    hits = [{"chunk_id": "gold0", "score": 1.0}]
    bare = [{"query_id": f"gold{n}/1", "topk": hits, "raw": hits} for n in range(len(world))]
    (tmp_path / "raw.jsonl").write_text("".join(json.dumps(one) + "\n" for one in bare))
    assert reported(capfd, run="raw.jsonl")["failures_by_category"]["threshold_exclusion"] == 0


def test_a_log_of_ids_alone_says_how_it_can_be_ordered(world, capfd, tmp_path):
    calls = [{"query_id": f"gold{n}/1", "topk": [f"gold{n}"]} for n in range(len(world))]
    (tmp_path / "ids.jsonl").write_text("".join(json.dumps(one) + "\n" for one in calls))
    told = ["--gold", "suite.json", "--profile", "memory", "-o", "memory:-"]
    assert main(["eval", "ids.jsonl", *told]) == 2
    assert "use --set order=rank" in capfd.readouterr().err
    report = reported(capfd, "--set", "order=rank", run="ids.jsonl")
    assert report["metrics"]["recall_at_1"] == 1.0


def test_the_memories_are_those_of_the_corpus_else_of_the_gold(world, capfd, tmp_path):
    suite = json.loads((tmp_path / "suite.json").read_text())
    suite["test_cases"].append({"memory_id": "never asked", "content": "x"})
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    assert reported(capfd)["total_memories"] == len(world)
    assert reported(capfd, "--corpus", "suite.json")["total_memories"] == len(world) + 1


def test_same_inputs_give_the_same_bytes_and_end_with_a_newline(world, tmp_path, capfd):
    for name in ("a.json", "b.json"):
        told = ["eval", "planted.jsonl", "--gold", "suite.json", "--profile", "memory", "--quiet"]
        assert main([*told, "-o", f"memory:{name}"]) == 0
    first, second = ((tmp_path / name).read_bytes() for name in ("a.json", "b.json"))
    assert first == second
    text = first.decode()
    assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n"


def test_a_system_each_has_a_file_of_its_own(world, tmp_path, capfd):
    lines = (tmp_path / "planted.jsonl").read_text()
    (tmp_path / "again.jsonl").write_text(lines.replace(SYSTEM, "words and more"))
    told = ["planted.jsonl", "again.jsonl", "--gold", "suite.json", "--profile", "memory"]
    assert main(["compare", *told, "--quiet", "-o", "memory:out/{system}.json"]) == 0
    names = [
        json.loads((tmp_path / "out" / f"{name}.json").read_text())["configuration"]
        for name in ("planted", "again")
    ]
    assert names == [SYSTEM, "words and more"]
    capfd.readouterr()
    assert main(["compare", *told, "--quiet", "-o", "memory:out.json"]) == 2
    assert "holds one system, not 2; write memory:out.{system}.json" in capfd.readouterr().err


def test_the_configuration_is_the_file_where_the_log_names_none_or_two_name_the_same(
    world, tmp_path, capfd
):
    (tmp_path / "plain.trec").write_text("gold0/1 Q0 gold0 1 0.9 tag\n")
    assert reported(capfd, run="plain.trec")["configuration"] == "plain"
    lines = (tmp_path / "planted.jsonl").read_text()
    (tmp_path / "moved.jsonl").write_text(lines)
    told = ["planted.jsonl", "moved.jsonl", "plain.trec", "--gold", "suite.json"]
    files = ["--profile", "memory", "--quiet", "-o", "memory:out/{system}.json"]
    assert main(["eval", *told, *files]) == 0
    written = [json.loads(file.read_text()) for file in sorted((tmp_path / "out").iterdir())]
    assert [one["configuration"] for one in written] == ["moved", "plain", "planted"]


def test_another_reading_is_refused(world, capfd):
    assert main(["eval", "planted.jsonl", "--gold", "suite.json", "-o", "memory:-"]) == 2
    assert "under the profile memory" in capfd.readouterr().err


# Queries of other formats


def of_queries(queries: dict[str, Any]) -> dict[str, Any]:
    """A report on queries: the first is found at rank 1, the second at rank 2, and so on."""
    asked = karat.Queries.from_dict(queries)
    gold = karat.Gold.from_dict({query: ["m"] for query in queries})
    places = [{f"x{at}": 2.0 for at in range(above)} | {"m": 1.0} for above in range(len(queries))]
    run = karat.Run.from_dict(dict(zip(queries, places, strict=True)))
    scores = karat.evaluate(run, gold, profile="memory", queries=asked)
    return memory_document(Report.of([scores], gold=gold, queries=asked))


def test_very_short_and_very_long_queries_of_any_format_are_edge_cases():
    report = of_queries({"a": "retry", "b": LONG, "c": "how do we retry a call"})
    asked = {name: own for name, own in report["query_category_breakdown"].items() if own["mrr"]}
    assert asked == {"edge_cases": {"recall_at_1": 1 / 2, "mrr": (1 + 1 / 2) / 2}}
    # The third is in the totals and in no category.
    assert report["total_queries"] == 3
    assert report["metrics"]["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)


def test_a_query_may_be_in_several_categories_or_a_numbered_one():
    both = {"text": "how do we retry a call", "category": ["direct", "edge"]}
    report = of_queries({"a": both, "b": {"text": "how do we stop", "category": []}})
    asked = [name for name, own in report["query_category_breakdown"].items() if own["mrr"]]
    assert asked == ["direct", "edge_cases"]
    numbered = of_queries({"a": {"text": "how do we stop", "category": 0}})
    assert numbered["query_category_breakdown"]["0"] == {"recall_at_1": 1.0, "mrr": 1.0}


def test_what_nobody_looked_into_has_no_failures_and_what_was_not_scored_is_named():
    assert set(of_queries({"a": "retry"})["failures_by_category"].values()) == {None}
    gold = karat.Gold.from_dict({"q": ["m"]})
    scores = karat.evaluate(karat.Run.from_dict({"q": {"m": 1.0}}), gold, "Hit@1")
    with pytest.raises(UsageError, match="needs Hit@3, which was not scored"):
        to_memory(Report.of([scores], gold=gold))


@pytest.mark.parametrize(
    ("text", "given", "category"),
    [
        ("retry", None, "edge_cases"),
        ("retry  policy\n", None, "edge_cases"),
        ("our retry policy", None, None),
        (" ".join(["word"] * 20), None, None),
        (" ".join(["word"] * 21), None, "edge_cases"),
        ("retry", "technical", "technical"),
        (LONG, "casual", "casual"),
        ("retry", "", "edge_cases"),
        ("", None, None),
        ("  ", None, None),
    ],
)
def test_a_category_that_is_given_wins_and_the_number_of_words_decides_the_rest(
    text, given, category
):
    assert category_of(text, given) == category


# The time


MEMORY, PLAIN = parse_output("memory:out.json"), parse_output("out.json")


def test_the_time_is_the_one_given_else_that_of_the_environment_else_none():
    epoch = {"SOURCE_DATE_EPOCH": "1765497600"}
    assert stamp("2026-01-31T12:00:00Z", [MEMORY], epoch) == "2026-01-31T12:00:00Z"
    assert stamp(None, [PLAIN, MEMORY], epoch) == "2025-12-12T00:00:00Z"
    assert datetime(2025, 12, 12, tzinfo=UTC).timestamp() == 1765497600
    assert stamp(None, [MEMORY], {}) is None
    assert stamp(None, [MEMORY], {"SOURCE_DATE_EPOCH": ""}) is None


def test_an_output_without_a_time_heeds_no_environment_and_takes_none():
    assert stamp(None, [PLAIN], {"SOURCE_DATE_EPOCH": "no number"}) is None
    with pytest.raises(UsageError, match="no other output holds a time"):
        stamp("2026-01-31T12:00:00Z", [PLAIN], {})


@pytest.mark.parametrize(
    "given", ["yesterday", "2026-13-01", "1765497600.5", "", "0001-01-01T00:00:00+01:00"]
)
def test_a_time_that_is_none_is_refused(given):
    with pytest.raises(UsageError, match="--timestamp is"):
        stamp(given, [MEMORY], {})


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ("2026-01-31 12:00", "2026-01-31T12:00:00Z"),
        ("2026-01-31T12:00:59.9", "2026-01-31T12:00:59Z"),
        ("2026-01-31T00:30:00+02:00", "2026-01-30T22:30:00Z"),
        ("2026-01-31", "2026-01-31T00:00:00Z"),
        ("20260131", "2026-01-31T00:00:00Z"),
        # The Monday of the week that holds the 29th of January, a Thursday.
        ("2026-W05-1", "2026-01-26T00:00:00Z"),
    ],
)
def test_a_time_is_written_in_one_way_however_it_is_given(given, written):
    assert stamp(given, [MEMORY], {}) == written


@pytest.mark.parametrize("epoch", ["now", "1.5", "9" * 30])
def test_an_environment_that_is_no_time_is_refused(epoch):
    with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH is"):
        stamp(None, [MEMORY], {"SOURCE_DATE_EPOCH": epoch})


def test_the_time_stands_in_the_report(world, capfd, monkeypatch):
    assert reported(capfd)["timestamp"] is None
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert reported(capfd)["timestamp"] == "1970-01-01T00:00:00Z"
    given = reported(capfd, "--timestamp", "2025-12-12T00:00:00Z")
    assert given["timestamp"] == "2025-12-12T00:00:00Z"
