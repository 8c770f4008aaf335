from __future__ import annotations

import pytest
from staged_runs import (
    cuts_of,
    made_up,
    mean_of,
    ndcg,
    precision,
    recall,
    reciprocal_rank,
    staged_of,
)

import karat
from karat.analysis.stages import parts_of
from karat.analysis.stages.effects import (
    cut_at,
    cuts_to,
    effect_of,
    fair_cut,
    raw_of,
    steps_of,
    used_depth,
)
from karat.data.tables import Gold, Queries, Run
from karat.evaluation.segments import By
from karat.measure.names import parse_measure


def lists_of(records, key):
    return {record["query_id"]: record[key] for record in records}


def overall(effect, measure):
    rows = effect["comparisons"]
    return next(row for row in rows if row["measure"] == measure and not row["segment"])


def test_the_raw_retriever_is_measured_fifty_deep():
    gold, records = made_up()
    raw = raw_of(staged_of(records, gold), cuts_of())
    lists = lists_of(records, "raw")
    assert list(raw) == ["R@50", "RR@50"]
    assert raw["R@50"]["mean"] == pytest.approx(mean_of(recall, lists, gold, 50), abs=1e-12)
    assert raw["RR@50"]["mean"] == pytest.approx(
        mean_of(reciprocal_rank, lists, gold, 50), abs=1e-12
    )
    for cell in raw.values():
        low, high = cell["ci"]
        assert low < cell["mean"] < high
        assert cell["n"] == 40
        assert "beyond_log" not in cell


def test_raw_and_final_values_are_those_of_their_lists():
    gold, records = made_up(seed=1)
    effect = effect_of(staged_of(records, gold), cuts_of())
    for measure, function in {
        "nDCG@5": ndcg,
        "P@5": precision,
        "R@5": recall,
        "RR@5": reciprocal_rank,
    }.items():
        row = overall(effect, measure)
        for key, mean in (("raw", row["baseline_mean"]), ("topk", row["system_mean"])):
            assert mean == pytest.approx(mean_of(function, lists_of(records, key), gold, 5))


def test_gains_are_exponential_where_that_is_asked_for():
    gold, records = made_up(seed=2)
    cuts = cuts_of(measures="nDCG(gain='exp')@5")
    row = overall(effect_of(staged_of(records, gold, cuts=cuts), cuts), str(cuts.chosen[0]))
    expected = mean_of(ndcg, lists_of(records, "topk"), gold, 5, worth=lambda g: 2**g - 1)
    assert row["system_mean"] == pytest.approx(expected)


def test_the_change_is_that_of_comparing_two_runs():
    """The same lists as two runs of their own, compared by karat.compare."""
    gold, records = made_up(n=50, seed=3)
    languages = {name: "pt" if int(name[1:]) % 3 else "en" for name in gold}
    queries = Queries.from_dict({name: {"text": "", "language": languages[name]} for name in gold})
    staged = staged_of(records, gold, queries=queries)
    effect = effect_of(staged, cuts_of(), queries=queries, by=[By.parse("language")])
    runs = [
        Run.from_dict(lists_of(records, key), name=name)
        for key, name in (("raw", "raw"), ("topk", "final"))
    ]
    expected = karat.compare(
        runs,
        Gold.from_dict(gold),
        ["nDCG@5", "P@5", "R@5", "RR@5"],
        queries=queries,
        by=["language"],
    )
    assert len(expected.rows) == 12
    assert effect["comparisons"] == [row.to_dict() for row in expected.rows]
    assert effect["verdict"] == expected.verdict


def test_a_raw_list_that_ends_above_the_depth_is_measured_where_it_ends():
    gold, records = made_up(raw=20)
    raw = raw_of(staged_of(records, gold), cuts_of())
    assert list(raw) == ["R@20", "RR@20"]
    assert raw["R@20"]["asked"] == 50
    assert raw["R@20"]["beyond_log"] is True
    assert raw["R@20"]["mean"] == pytest.approx(mean_of(recall, lists_of(records, "raw"), gold, 20))


def test_a_log_that_says_how_many_were_asked_for_can_be_judged_there():
    """A retriever asked for 50 that found 20 has been looked at 50 deep."""
    gold, records = made_up(raw=20, k_raw=50)
    raw = raw_of(staged_of(records, gold), cuts_of())
    assert list(raw) == ["R@50", "RR@50"]
    assert "beyond_log" not in raw["R@50"]


def test_a_query_without_a_raw_list_has_its_final_one():
    gold, records = made_up(n=12, seed=4)
    for record in records[:5]:
        del record["raw"], record["stages"]
    staged = staged_of(records, gold)
    row = overall(effect_of(staged, cuts_of()), "nDCG@5")
    lists = {record["query_id"]: record.get("raw", record["topk"]) for record in records}
    assert row["baseline_mean"] == pytest.approx(mean_of(ndcg, lists, gold, 5))
    assert len(staged.logged["final"] - staged.logged["raw"]) == 5


def test_lists_are_not_compared_below_the_end_of_the_final_ones():
    """Final lists of three say nothing of ranks four to ten, which raw lists have."""
    gold, records = made_up(k=3)
    cuts = cuts_of(k=10)
    effect = effect_of(staged_of(records, gold, cuts=cuts), cuts)
    assert effect["k"] == {"asked": 10, "used": 3, "beyond_log": True}
    row = overall(effect, "P@3")
    assert row["baseline_mean"] == pytest.approx(
        mean_of(precision, lists_of(records, "raw"), gold, 3)
    )
    assert row["system_mean"] == pytest.approx(
        mean_of(precision, lists_of(records, "topk"), gold, 3)
    )


def test_a_log_that_says_k_is_compared_there_though_lists_are_shorter():
    """A threshold left three of the ten that were asked for: that is the system's own doing."""
    gold, records = made_up(k=3)
    for record in records:
        record["k"] = 10
    cuts = cuts_of(k=10)
    effect = effect_of(staged_of(records, gold, cuts=cuts), cuts)
    assert effect["k"] == {"asked": 10, "used": 10, "beyond_log": False}
    assert overall(effect, "P@10")["system_mean"] == pytest.approx(
        mean_of(precision, lists_of(records, "topk"), gold, 10)
    )


def test_a_few_short_lists_are_complete():
    gold = {"q1": ["a"], "q2": ["b"]}
    records = [
        {"query_id": "q1", "raw": ["x", "a"], "topk": ["a", "x"]},
        {"query_id": "q2", "raw": ["b", "x"], "topk": ["b", "x"]},
    ]
    effect = effect_of(staged_of(records, gold), cuts_of())
    assert effect["k"] == {"asked": 5, "used": 5, "beyond_log": False}
    assert overall(effect, "P@5")["system_mean"] == pytest.approx(1 / 5)


def test_without_raw_lists_there_is_no_effect():
    gold, records = made_up()
    for record in records:
        del record["raw"]
    staged = staged_of(records, gold)
    assert effect_of(staged, cuts_of()) is None
    assert raw_of(staged, cuts_of()) is None
    assert [step["stage"] for step in steps_of(staged, cuts_of())] == ["rerank", "final"]


def test_final_lists_alone_are_one_stage():
    gold, records = made_up()
    plain = [{"query_id": one["query_id"], "topk": one["topk"]} for one in records]
    (step,) = steps_of(staged_of(plain, gold), cuts_of())
    assert (step["stage"], step["before"], step["change"]) == ("final", None, {})
    assert step["measures"]["R@5"]["mean"] == pytest.approx(
        mean_of(recall, lists_of(records, "topk"), gold, 5)
    )


def test_every_stage_has_the_values_of_its_lists_and_the_change_from_the_one_before():
    gold, records = made_up(seed=5)
    for record in records:
        record["k_raw"] = 50
        record["stages"]["filter"] = record["raw"][::2]
        record["stages"]["mmr"] = record["stages"]["rerank"][1:] + record["raw"][:1]
    steps = steps_of(staged_of(records, gold), cuts_of())
    assert [step["stage"] for step in steps] == ["raw", "filter", "rerank", "mmr", "final"]
    lists = {name: {} for name in ("raw", "filter", "rerank", "mmr", "final")}
    for record in records:
        own = {"raw": record["raw"], "final": record["topk"], **record["stages"]}
        for name, items in own.items():
            lists[name][record["query_id"]] = items
    for before, step in zip([None, *steps], steps, strict=False):
        assert step["measures"]["nDCG@5"]["mean"] == pytest.approx(
            mean_of(ndcg, lists[step["stage"]], gold, 5)
        )
        if before is not None:
            runs = [Run.from_dict(lists[one["stage"]], name=one["stage"]) for one in (before, step)]
            expected = karat.compare(runs, Gold.from_dict(gold), ["nDCG@5", "P@5", "R@5", "RR@5"])
            row = step["change"]["nDCG@5"]
            theirs = expected.of(step["stage"])
            assert (row["delta"], row["p"]) == (theirs.delta, theirs.p)
            assert row["ci"] == list(theirs.ci)
            assert (row["wins"], row["ties"], row["losses"]) == (
                theirs.wins,
                theirs.ties,
                theirs.losses,
            )
    assert steps[1]["measures"]["R@50"]["mean"] == pytest.approx(
        mean_of(recall, lists["filter"], gold, 50)
    )
    assert steps[-1]["measures"]["R@50"] == {
        "mean": None,
        "ci": None,
        "n": 0,
        "beyond_log": True,
    }


def test_verdicts_of_stages_allow_for_how_many_there_are():
    gold, records = made_up(seed=6)
    for record in records:
        record["stages"]["filter"] = record["raw"][1:]
    steps = steps_of(staged_of(records, gold), cuts_of())[1:]
    rows = [next(row for row in step["change"].values() if row["primary"]) for step in steps]
    ordered = sorted(row["p"] for row in rows)
    # Holm: the smallest p times 3, the next times 2, never below the one before.
    smallest = min(1.0, 3 * ordered[0])
    expected = [smallest, max(smallest, 2 * ordered[1]), max(2 * ordered[1], ordered[2])]
    assert {row["tests"] for row in rows} == {3}
    found = sorted(row["p_adjusted"] for row in rows)
    assert found == pytest.approx([min(1.0, p) for p in expected])


def test_a_stage_that_leaves_the_top_as_it_was_is_the_same():
    gold, records = made_up()
    final = steps_of(staged_of(records, gold), cuts_of())[-1]
    assert {row["verdict"] for row in final["change"].values()} == {"same"}


def test_a_reranker_that_hurts_one_language_is_found_there():
    """English gold goes up from rank 4, Portuguese gold down from rank 1."""
    gold, records, languages = {}, [], {}
    for number in range(40):
        name, helps = f"q{number:02}", number < 25
        junk = [f"x{number}-{at}" for at in range(9)]
        gold[name] = ["a"]
        languages[name] = {"text": name, "language": "en" if helps else "pt"}
        raw = [*junk[:3], "a", *junk[3:]] if helps else ["a", *junk]
        top = ["a", *junk[:4]] if helps else [*junk[:3], "a", junk[3]]
        records.append({"query_id": name, "raw": raw, "topk": top, "latency_ms": {"rerank": 5.0}})
    queries = Queries.from_dict(languages)
    staged = staged_of(records, gold, queries=queries)
    effect = effect_of(staged, cuts_of(), queries=queries, by=[By.parse("language")])
    rows = {row["segment"]["language"]: row for row in effect["comparisons"] if row["segment"]}
    worth = {"en": (0.43067655807, 1.0), "pt": (1.0, 0.43067655807)}  # 1 / log2(5) and 1
    for language, (before, after) in worth.items():
        row = next(
            row
            for row in effect["comparisons"]
            if row["segment"] == {"language": language} and row["measure"] == "nDCG@5"
        )
        assert (row["baseline_mean"], row["system_mean"]) == pytest.approx((before, after))
    assert rows["pt"]["losses"] == 15
    told = effect
    assert told["says"].startswith("the reranker takes nDCG@5 from ")
    assert told["says"].endswith("whether it helps is unclear")
    (hurt,) = told["hurts"]
    assert hurt.startswith(
        "where language is pt, the reranker takes nDCG@5 from 1.000 to 0.431 (-0.569 ["
    )
    assert hurt.endswith("; it hurts")


def test_a_reranker_that_hurts_everywhere_is_said_in_a_sentence():
    gold = {f"q{i}": ["a"] for i in range(20)}
    records = [
        {"query_id": name, "raw": ["a", "b"], "topk": ["b", "a"], "stages": {"rerank": ["b", "a"]}}
        for name in gold
    ]
    steps = steps_of(staged_of(records, gold), cuts_of())
    told = steps[1]["says"]
    # Twenty lists of two: deeper than that nothing was measured.
    assert told.startswith("the reranker takes nDCG@2 from 1.000 to 0.631 (-0.369 [")
    assert told.endswith("; it hurts")


def test_a_failed_call_counts_for_no_stage():
    gold = {f"q{i}": ["a"] for i in range(4)}
    records = [{"query_id": "q0", "topk": ["a"], "raw": ["a"], "error": "timeout"}]
    records += [{"query_id": f"q{i}", "raw": ["x", "a"], "topk": ["a", "x"]} for i in range(1, 4)]
    staged = staged_of(records, gold)
    row = overall(effect_of(staged, cuts_of()), "RR@5")
    assert (row["baseline_mean"], row["system_mean"]) == pytest.approx((3 * 0.5 / 4, 3 / 4))
    assert (row["wins"], row["ties"], row["losses"]) == (3, 1, 0)
    assert staged.final.counts.failed_calls == 1


def test_chunks_count_for_their_documents_where_documents_count():
    gold = {"q1": ["d1", "d2"], "q2": ["d3"]}
    records = [
        {"query_id": "q1", "raw": ["x#1", "d1#7", "d1#8", "d2#1"], "topk": ["d1#8", "d2#1"]},
        {"query_id": "q2", "raw": ["d3#1", "x#2", "x#3", "x#4"], "topk": ["x#2", "d3#1"]},
    ]
    cuts = cuts_of(k=2, depth=3)
    staged = staged_of(records, gold, cuts=cuts, level="doc")
    row = overall(effect_of(staged, cuts), "R@2")
    assert (row["baseline_mean"], row["system_mean"]) == (0.75, 1.0)
    assert raw_of(staged, cuts)["R@3"]["mean"] == 0.75


@pytest.mark.parametrize(
    ("profile", "settings"),
    [
        ("karat", {}),
        ("karat", {"missing": "skip"}),
        ("karat", {"depth": 2}),
        ("trec", {"order": "rank"}),
        ("rag", {}),
    ],
)
def test_scores_at_another_cut_off_are_those_of_scoring_there(profile, settings):
    gold, records = made_up(n=15, seed=7)
    gold["empty"] = {}
    gold["absent"] = {"d001": 1}
    records[3] = {"query_id": records[3]["query_id"], "error": "timeout"}
    staged = staged_of(records, gold, profile=profile, **settings)
    for name in ("nDCG@5", "P@5", "R@50", "RR@50"):
        old = parse_measure(name)
        for k in (1, 3):
            (new,) = cuts_to([old], k).values()
            cut = cut_at(staged.raw, staged.gold, {old: new})
            lists = {
                one["query_id"]: {item: -rank for rank, item in enumerate(one["raw"])}
                for one in records
                if "raw" in one
            }
            there = karat.evaluate(
                Run.from_dict(lists),
                Gold.from_dict(gold),
                [str(new)],
                profile=profile,
                settings={**settings, "order": "score"},
            )
            assert cut.table[str(new)].to_list() == pytest.approx(
                there.table[str(new)].to_list(), nan_ok=True
            )
            ours, theirs = cut.summaries[str(new)], there.summaries[str(new)]
            assert (ours.ci, ours.ceiling) == (theirs.ci, theirs.ceiling)


def test_no_measure_is_cut_that_needs_whole_lists():
    measures = [parse_measure(name) for name in ("DistinctDocs@9", "R@9", "RR", "R@k", "Sim@9")]
    assert [str(one) for one in cuts_to(measures, 4).values()] == [
        *("DistinctDocs@9", "R@4", "RR", "R@k", "Sim@9")
    ]


def test_the_reach_is_that_of_the_shortest():
    gold, records = made_up(raw=20)
    staged = staged_of(records, gold)
    assert used_depth(staged, [staged.raw, staged.final], 50).used == 5
    assert used_depth(staged, [staged.raw], 7).to_dict() == {
        "asked": 7,
        "used": 7,
        "beyond_log": False,
    }
    assert fair_cut(staged, 4).used == 4


def test_parts_are_counted_by_what_they_alone_find():
    gold = {"q1": ["a", "b", "c"], "q2": ["d", "e"]}
    records = [
        {
            "query_id": "q1",
            "topk": ["a", "b"],
            "raw": ["a", "b", "x", "y"],
            "stages": {"bm25": ["a", "x", "b", "y"], "dense": ["a", "c", "z", "w"]},
        },
        {
            "query_id": "q2",
            "topk": ["d", "x"],
            "raw": ["d", "x", "y", "z"],
            "stages": {"bm25": ["y", "z", "x", "w"], "dense": ["d", "v", "w", "u"]},
        },
    ]
    cuts = cuts_of(k=2, depth=4)
    parts = parts_of(staged_of(records, gold, cuts=cuts), cuts)
    found = {name: (one["found"], one["alone"]) for name, one in parts["parts"].items()}
    # bm25 holds a and b, dense a, c and d; fused holds a, b and d, so c is lost.
    assert found == {"bm25": (2, 1), "dense": (3, 2)}
    assert (parts["gold"], parts["together"], parts["fused"]["found"], parts["lost"]) == (
        5,
        4,
        3,
        1,
    )
    assert parts["parts"]["bm25"]["measures"]["R@4"]["mean"] == pytest.approx((2 / 3 + 0) / 2)
    assert parts["parts"]["dense"]["measures"]["R@2"]["mean"] == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert parts["fused"]["measures"]["R@4"]["mean"] == pytest.approx((2 / 3 + 1 / 2) / 2)


def test_parts_are_looked_at_equally_deep():
    gold = {f"q{n}": [f"gold{n}"] for n in range(12)}
    records = [
        {
            "query_id": name,
            "topk": ["x"],
            "raw": ["x", "y", "z", item],
            "stages": {"bm25": ["x", item], "dense": [item, "x", "y"]},
        }
        for name, (item,) in gold.items()
    ]
    cuts = cuts_of()
    parts = parts_of(staged_of(records, gold), cuts)
    assert parts["depth"] == {"asked": 50, "used": 2, "beyond_log": True}
    assert parts["fused"]["measures"]["R@2"]["mean"] == 0.0
    assert parts["parts"]["bm25"]["measures"]["R@2"]["mean"] == 1.0


def test_a_part_that_a_router_did_not_ask_is_not_blamed():
    gold = {"q1": ["a"], "q2": ["b"], "q3": ["c"]}
    records = [
        {"query_id": "q1", "source": "docs", "topk": ["a"], "stages": {"docs": ["a"]}},
        {"query_id": "q2", "source": "mail", "topk": ["x"], "stages": {"mail": ["x"]}},
        {
            "query_id": "q3",
            "source": "docs+mail",
            "topk": ["c"],
            "stages": {"docs": ["x"], "mail": ["c"], "mail.raw": ["c"]},
        },
    ]
    cuts = cuts_of(k=1, depth=1)
    parts = parts_of(staged_of(records, gold, cuts=cuts), cuts)["parts"]
    assert list(parts) == ["docs", "mail", "mail.raw"]
    assert {name: one["queries"] for name, one in parts.items()} == {
        "docs": 2,
        "mail": 2,
        "mail.raw": 2,
    }
    assert parts["docs"]["measures"]["R@1"]["mean"] == 0.5
    assert parts["mail"]["measures"]["R@1"]["mean"] == 0.5
    # Only q3 was asked of both.
    assert (parts["docs"]["alone"], parts["mail"]["alone"]) == (0, 1)
    assert (parts["mail.raw"]["within"], parts["mail.raw"]["alone"]) == ("mail", None)


def test_the_original_query_s_list_is_no_part():
    gold = {"q1": ["a"]}
    records = [{"query_id": "q1", "topk": ["a"], "stages": {"original": ["x"]}}]
    assert parts_of(staged_of(records, gold), cuts_of()) is None
