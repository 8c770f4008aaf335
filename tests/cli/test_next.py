from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

RUNS = ("bm25.trec", "dense.jsonl")
TEXTS = ("--queries", "queries.jsonl", "--corpus", "corpus.jsonl")
GOLD = ("--gold", "qrels.txt")
DOCS = Path(__file__).parents[2] / "docs"


def lines(path: str) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def body(run, *arguments) -> dict:
    done = run("next", *arguments, "--json")
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def judged() -> set[tuple[str, str]]:
    return {tuple(line.split()[::2][:2]) for line in Path("qrels.txt").read_text().splitlines()}


def ranks_in_files() -> list[dict[tuple[str, str], int]]:
    """Where each run has what, read without karat."""
    bm25: dict[tuple[str, str], int] = {}
    for line in Path("bm25.trec").read_text().splitlines():
        query, _, item, rank, *_ = line.split()
        bm25[query, item] = int(rank)
    dense = {
        (call["query_id"], hit["chunk_id"]): place
        for call in lines("dense.jsonl")
        for place, hit in enumerate(call.get("topk", []), 1)
    }
    return [bm25, dense]


def test_it_says_what_to_judge_and_whether_the_verdict_can_change(run, files):
    done = run("next", *RUNS, *GOLD, *TEXTS, "--count", "6")
    assert (done.code, done.err) == (0, "")
    told = done.out.splitlines()
    assert told[1].startswith("judge 6 pairs next, of 57 unjudged: the verdict could still be")
    assert any(line.startswith("at worst") for line in told)


def test_what_did_not_answer_is_counted_as_compare_counts_it(run, files):
    """dense lost one call, bm25 lacks queries: both count as 0, and nobody is left to guess."""
    document = body(run, *RUNS, *GOLD, "-o", "page.md")
    compared = json.loads(run("compare", *RUNS, *GOLD, "--json").out)
    ours = {one["name"]: one["counts"] for one in document["systems"]}
    assert ours == {one["name"]: one["counts"] for one in compared["systems"]}
    asked = {line.split()[0] for line in Path("qrels.txt").read_text().splitlines()}
    missing = asked - {line.split()[0] for line in Path("bm25.trec").read_text().splitlines()}
    failed = [one for one in lines("dense.jsonl") if one.get("error")]
    shown = run("next", *RUNS, *GOLD).out
    for page in (shown, Path("page.md").read_text()):
        assert f"{len(missing)} missing from the run (worst value)" in page
        assert f"{len(failed)} failed call (worst value)" in page


def test_a_run_that_did_not_answer_settles_nothing(run, files):
    """As compare does, it tells what it counted and leaves with 3 rather than say stop."""
    Path("dead.jsonl").write_text('{"query_id": "q01", "system": "dead", "error": "time-out"}\n')
    assert run("next", "dead.jsonl", *GOLD).code == 2
    allowed = (*GOLD, "--set", "missing_ids=allow")
    for runs in (("dead.jsonl", "bm25.trec"), ("dead.jsonl",)):
        done = run("next", *runs, *allowed, "-o", "page.md", "-o", "out.json")
        told = "cannot tell: no query of dead could be scored"
        assert (done.code, done.err) == (3, f"karat: {told}\n")
        for page in (done.out, Path("page.md").read_text()):
            assert told in page
            assert "10 missing from the run (worst value) · 1 failed call (worst value)" in page
            assert "stop:" not in page
            assert "nothing is left to judge" not in page
        document = json.loads(Path("out.json").read_text())
        assert told.endswith(document["cannot_tell"])
        assert document["systems"][0]["counts"]["failed_calls"] == 1
    assert run("compare", "dead.jsonl", "bm25.trec", *allowed, "--quiet").code == 3


def test_a_log_with_more_failures_than_it_allows_settles_nothing(run, files):
    calls = [one | {"max_failures": 0.05} for one in lines("dense.jsonl")]
    Path("partial.jsonl").write_text("".join(json.dumps(one) + "\n" for one in calls))
    done = run("next", "bm25.trec", "partial.jsonl", *GOLD)
    assert done.code == 3
    assert done.err.startswith("karat: cannot tell: too many calls of ")
    assert "PARTIAL: too many calls failed" in done.out
    assert run("compare", "bm25.trec", "partial.jsonl", *GOLD, "--quiet").code == 3


def test_a_query_without_gold_is_one_and_two_are_two(run, files):
    single = "1 query without relevant gold counts as having none, since"
    for many, words in ((1, single), (2, "2 queries")):
        Path("some.txt").write_text("".join(f"q0{at} 0 nothing 0\n" for at in range(1, many + 1)))
        assert words in run("next", "dense.jsonl", "--gold", "some.txt").out


def test_the_pairs_are_unjudged_and_stand_where_the_files_have_them(run, files):
    document = body(run, *RUNS, *GOLD, *TEXTS, "--count", "40")
    first, second = ranks_in_files()
    pairs = [(row["query_id"], row["item_id"]) for row in document["next"]]
    assert len(set(pairs)) == 40
    assert not judged().intersection(pairs)
    for row, pair in zip(document["next"], pairs, strict=True):
        assert row["first_rank"] == first.get(pair)
        assert row["second_rank"] == second.get(pair)
        assert row["expected"] == pytest.approx(row["chance"] * abs(row["effect"]))
        assert 0 < row["chance"] < 1
    assert document["unjudged"] >= document["can_matter"] >= len(pairs)


def test_the_verdict_now_is_that_of_compare(run, files):
    document = body(run, *RUNS, *GOLD, *TEXTS, "-m", "R@5")
    done = run("compare", *RUNS, *GOLD, *TEXTS, "-m", "R@5", "--json")
    (compared,) = json.loads(done.out)["comparisons"]
    assert document["now"] == compared["verdict"]
    for name in ("delta", "p", "ci", "n", "baseline_mean", "system_mean", "because"):
        assert document["comparison"][name] == compared[name]
    low, high = document["delta"]
    assert low <= compared["delta"] <= high


def test_a_judgment_changes_the_mean_by_what_was_said(run, files):
    """The first pair of the list is put into the gold, and both systems are scored anew."""
    document = body(run, *RUNS, *GOLD, *TEXTS, "-m", "nDCG@5", "--count", "1")
    (row,) = document["next"]
    text = Path("qrels.txt").read_text()
    grades = {int(line.split()[-1]) for line in text.splitlines()}
    before = json.loads(run("eval", *RUNS, *GOLD, *TEXTS, "-m", "nDCG@5", "--json").out)
    for key, grade in (("effect_top", max(grades)), ("effect_least", 1)):
        Path("more.txt").write_text(f"{text}{row['query_id']} 0 {row['item_id']} {grade}\n")
        after = json.loads(
            run("eval", *RUNS, "--gold", "more.txt", *TEXTS, "-m", "nDCG@5", "--json").out
        )
        deltas = [
            one["systems"][1]["measures"]["nDCG@5"]["mean"]
            - one["systems"][0]["measures"]["nDCG@5"]["mean"]
            for one in (before, after)
        ]
        assert row[key] == pytest.approx(deltas[1] - deltas[0])


def test_next_judge_next_ends_with_stop(run, files):
    gold = list(GOLD)
    for number in range(10):
        name = f"next-{number}.jsonl"
        done = run("next", *RUNS, *gold, *TEXTS, "--count", "20", "-o", name)
        if "stop: " in done.out:
            assert Path(name).read_text() == ""
            break
        pairs = lines(name)
        assert len(pairs) == 20
        assert all(pair["query"] and pair["text"] for pair in pairs)
        labels = f"labels-{number}.jsonl"
        assert run("judge", name, "--judge", "overlap", "-o", labels, "--quiet").code == 0
        gold += ["--gold", labels]
    assert number >= 1
    assert "stop: the verdict is unclear however " in done.out
    # What was said to be settled is: judge all that is left, and the verdict is the same.
    stopped = body(run, *RUNS, *gold, *TEXTS)
    assert (stopped["settled"], stopped["next"]) == (True, [])
    pool = run("pool", *RUNS, *gold, *TEXTS, "--depth", "1000", "-o", "rest.jsonl", "--quiet")
    assert pool.code == 0
    rest = lines("rest.jsonl")
    assert rest
    for grade in (0, 2):
        text = "".join(
            json.dumps({"query_id": one["query_id"], "item_id": one["item_id"], "grade": grade})
            + "\n"
            for one in rest
        )
        Path("rest-labels.jsonl").write_text(text)
        everything = body(run, *RUNS, *gold, "--gold", "rest-labels.jsonl", *TEXTS)
        assert everything["unjudged"] == 0
        assert everything["now"] == stopped["now"]


def test_where_all_is_judged_it_says_so(run, files):
    run("pool", *RUNS, *GOLD, *TEXTS, "--depth", "1000", "-o", "pool.jsonl", "--quiet")
    run("judge", "pool.jsonl", "--judge", "overlap", "-o", "labels.jsonl", "--quiet")
    done = run("next", *RUNS, *GOLD, "--gold", "labels.jsonl", *TEXTS, "-o", "next.jsonl")
    assert (done.code, done.err) == (0, "")
    assert "nothing is left to judge: the verdict is " in done.out
    assert Path("next.jsonl").read_text() == ""


def test_the_file_tells_neither_system_nor_rank_nor_effect(run, files):
    done = run("next", *RUNS, *GOLD, *TEXTS, "-o", "next.jsonl", "-o", "next.json", "--quiet")
    assert (done.code, done.out) == (0, "")
    pairs, ranked = lines("next.jsonl"), json.loads(Path("next.json").read_text())["next"]
    known = {"query_id", "item_id", "query", "text", "doc_id", "version", "as_of", "title"}
    assert all(set(pair) <= known for pair in pairs)
    order = [(pair["query_id"], pair["item_id"]) for pair in pairs]
    by_effect = [(row["query_id"], row["item_id"]) for row in ranked]
    assert sorted(order) == sorted(by_effect)
    assert order != by_effect


def test_the_same_files_give_the_same_bytes(run, files):
    for name in ("one", "two"):
        wanted = ("-o", f"{name}.jsonl", "-o", f"{name}.json", "-o", f"{name}.md", "--quiet")
        assert run("next", *RUNS, *GOLD, *TEXTS, *wanted).code == 0
    for suffix in ("jsonl", "json", "md"):
        assert Path(f"one.{suffix}").read_bytes() == Path(f"two.{suffix}").read_bytes()
    assert "# What to judge next" in Path("one.md").read_text()


def test_nothing_may_be_judged_yet(run, files):
    document = body(run, *RUNS, *TEXTS, "--count", "10")
    assert document["now"] == "unclear"
    assert not document["settled"]
    assert document["without_gold"] > 5
    assert document["comparison"]["delta"] == 0
    # Without a single judgment the effect is that of the ranks: nothing else is known.
    assert all(row["effect"] for row in document["next"])
    sides = {row["effect"] > 0 for row in document["next"]}
    assert sides == {True, False}
    done = run("next", *RUNS, *TEXTS)
    assert "without relevant gold count as having none" in done.out


def test_a_query_that_has_no_answer_is_not_asked_about(run, files):
    rows = lines("queries.jsonl")
    rows[0]["no_answer"] = True
    Path("queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    document = body(run, *RUNS, *TEXTS, "--count", "1000")
    asked = {row["query_id"] for row in document["next"]}
    assert asked
    assert rows[0]["query_id"] not in asked


def test_lists_that_are_the_same_need_no_judgment(run, files):
    Path("again.trec").write_text(Path("bm25.trec").read_text())
    done = run("next", "bm25.trec", "again.trec", *GOLD, *TEXTS)
    assert (done.code, done.err) == (0, "")
    with_gold = {query for query, _ in judged()}
    unjudged = [one for one in ranks_in_files()[0] if one[0] in with_gold and one not in judged()]
    assert f"stop: the verdict is same however {len(unjudged)} other pairs are judged" in done.out


def test_a_query_that_is_skipped_is_not_asked_about(run, files):
    """bm25 lacks three queries: with missing=skip they are out of its mean."""
    first, _ = ranks_in_files()
    skipped = {query for query, _ in judged()} - {query for query, _ in first}
    assert skipped
    one = body(run, "bm25.trec", *GOLD, *TEXTS, "--set", "missing=skip", "--count", "1000")
    assert one["without_gold"] == 0
    assert not skipped.intersection(row["query_id"] for row in one["next"])


def test_one_run_is_tightened_until_it_lies_within(run, files):
    document = body(run, "dense.jsonl", *GOLD, "-m", "P@5", "--count", "5")
    told = document["range"]
    _, dense = ranks_in_files()
    asked = {query for query, _ in judged()}
    open_ones = [p for p, rank in dense.items() if rank <= 5 and p[0] in asked - {""}]
    unjudged = [pair for pair in open_ones if pair not in judged()]
    # Each unjudged item of a top 5 may add a fifth to one query.
    assert told["low"] == told["mean"]
    assert document["unjudged"] >= document["can_matter"]
    assert told["high"] - told["low"] == pytest.approx(document["can_matter"] / 5 / told["n"])
    assert document["can_matter"] <= len(unjudged)
    assert [row["effect"] for row in document["next"]] == pytest.approx([0.2 / told["n"]] * 5)
    assert "second_rank" not in document["next"][0]
    width = told["high"] - told["low"]
    assert body(run, "dense.jsonl", *GOLD, "-m", "P@5", "--within", str(width + 0.01))["settled"]
    done = run("next", "dense.jsonl", *GOLD, "-m", "P@5", "--within", "0.9")
    assert "stop: P@5 is " in done.out


def test_a_depth_limits_what_is_judged(run, files):
    document = body(run, *RUNS, *GOLD, *TEXTS, "--depth", "2", "--count", "1000")
    best = [
        min(rank for rank in (row["first_rank"], row["second_rank"]) if rank)
        for row in document["next"]
    ]
    assert set(best) <= {1, 2}
    assert document["within_depth"] == len(best) < document["can_matter"]


def test_pairs_that_are_judged_again_are_counted(run, files):
    query, _, item, grade = Path("qrels.txt").read_text().splitlines()[0].split()
    other = {"query_id": query, "item_id": item, "grade": int(grade) + 1}
    Path("labels.jsonl").write_text(json.dumps(other) + "\n")
    document = body(run, *RUNS, *GOLD, "--gold", "labels.jsonl", *TEXTS)
    assert (document["judged_again"], document["judged_differently"]) == (1, 1)
    done = run("next", *RUNS, *GOLD, "--gold", "labels.jsonl", *TEXTS)
    assert "1 pair judged again by a later file, 1 of them differently" in done.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("bm25.trec", "dense.jsonl", "dense.jsonl", *GOLD), "one run, or two"),
        ((*RUNS,), "--gold"),
        ((*RUNS, *GOLD, "-m", "P@5,R@5"), "one measure at a time"),
        ((*RUNS, *GOLD, "-m", "GMAP"), "not a mean over queries"),
        ((*RUNS, *GOLD, "-m", "Judged@5"), "counts which items are judged"),
        ((*RUNS, *GOLD, "-m", "ndgc@5"), "did you mean"),
        ((*RUNS, *GOLD, "--within", "0.1"), "--within is for one run"),
        (("bm25.trec", *GOLD, "--margin", "0.1"), "--margin is for two runs"),
        (("bm25.trec", *GOLD, "--margin-kind", "absolute"), "--margin-kind is for two runs"),
        (("bm25.trec", *GOLD, "--within", "much"), "--within is 'much'"),
        ((*RUNS, *GOLD, "--count", "0"), "--count is '0'"),
        ((*RUNS, *GOLD, "--depth", "x"), "--depth is 'x'"),
        ((*RUNS, *GOLD, "--margin", "x"), "--margin is 'x'"),
        ((*RUNS, *GOLD, "--set", "level=doc"), "level=doc"),
        ((*RUNS, *GOLD, "-o", "next.jsonl"), "have no text"),
        (("-", "-", *GOLD), "only one input"),
        ((*RUNS, *GOLD, "--gold", "./qrels.txt"), "--gold ./qrels.txt is given twice; give each"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(run, files, arguments, told):
    done = run("next", *arguments)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1
    assert not Path("next.jsonl").exists()


def test_ids_alone_do_where_that_is_said(run, files):
    done = run("next", *RUNS, *GOLD, "--without-texts", "-o", "next.jsonl", "--quiet")
    assert (done.code, done.err) == (0, "")
    assert set(lines("next.jsonl")[0]) >= {"query_id", "item_id"}


def test_the_examples_of_the_page_print_what_it_says():
    spec = importlib.util.spec_from_file_location("examples", DOCS / "examples.py")
    examples = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(examples)
    name = "choose-what-to-judge.md"
    page = (DOCS / name).read_text(encoding="utf-8")
    assert page == examples.refreshed(page), f"run: python docs/examples.py docs/{name}"


def test_it_does_not_stop_while_labels_could_move_the_margin(run, tmp_path, monkeypatch):
    """Both return the same unjudged item: the difference stays, and the margin grows with it."""
    monkeypatch.chdir(tmp_path)
    lists = {f"q{at:02}": ("u", "u") for at in range(24)}
    lists |= {"q24": ("a", "b"), "q25": ("b", "a")}
    lists |= {f"q{at}": ("a", "a") for at in range(26, 30)}
    for at, name in enumerate(("one.trec", "two.trec")):
        hits = (f"{query} Q0 {both[at]} 1 1 t\n" for query, both in lists.items())
        Path(name).write_text("".join(hits))
    gold = [f"{query} 0 a 1\n{query} 0 b 0\n" for query in lists]
    Path("qrels.txt").write_text("".join(gold))
    more = [f"{query} 0 u 1\n" for query, both in lists.items() if "u" in both]
    Path("full.txt").write_text("".join([*gold, *more]))
    words = ("-m", "P@1", "--margin", "0.3")
    full = run("compare", "one.trec", "two.trec", "--gold", "full.txt", *words)
    assert full.out.startswith("SAME")
    now = body(run, "one.trec", "two.trec", "--gold", "qrels.txt", *words)
    assert (now["now"], now["settled"]) == ("unclear", False)
    told = run("next", "one.trec", "two.trec", "--gold", "qrels.txt", *words).out
    assert "the margin is a share of" in told
    # A margin that is a number stays where it is, and so does the verdict.
    fixed = (*words[:3], "0.05", "--margin-kind", "absolute")
    assert body(run, "one.trec", "two.trec", "--gold", "qrels.txt", *fixed)["settled"]


def lists(names, items):
    return "".join(
        f"{name} Q0 {item} {rank} {9 - rank} t\n"
        for name in names
        for rank, item in enumerate(items(name), 1)
    )


def test_queries_that_may_leave_the_mean_settle_nothing_and_closed_ones_stay_out(
    run, tmp_path, monkeypatch
):
    """Half of ten queries up, half down, and forty more in which nothing is known to be right."""
    monkeypatch.chdir(tmp_path)
    scored, others = [f"s{at}" for at in range(10)], [f"o{at:02}" for at in range(40)]
    up, down = ["a", "x"], ["x", "a"]
    halves = {name: (up, down)[at % 2] for at, name in enumerate(scored)}
    first = lists(scored, lambda name: halves[name]) + lists(others, lambda name: ["u"])
    second = lists(scored, lambda name: halves[name][::-1]) + lists(others, lambda name: ["u"])
    Path("a.trec").write_text(first)
    Path("b.trec").write_text(second)
    gold = "".join(f"{name} 0 a 1\n{name} 0 x 0\n" for name in scored)
    words = ("a.trec", "b.trec", "--gold", "gold.txt", "-m", "RR", "--margin", "0.2")
    words = (*words, "--margin-kind", "absolute")

    def told(judged: int) -> dict:
        closed = "".join(f"{name} 0 u 0\n" for name in others[:judged])
        waiting = "".join(f"{name} 0 v 0\n" for name in others[judged:])
        Path("gold.txt").write_text(gold + closed + waiting)
        return body(run, *words)

    # All forty count as 0, and so does the difference; were they judged 0, it would be unclear.
    everything = told(0)
    assert (everything["now"], everything["settled"]) == ("same", False)
    assert "40 queries without relevant gold count as having none" in everything["because"]
    one_left = told(39)
    assert (one_left["without_gold"], one_left["comparison"]["n"]) == (1, 11)
    nothing_left = told(40)
    assert (nothing_left["without_gold"], nothing_left["comparison"]["n"]) == (0, 10)
    assert (nothing_left["now"], nothing_left["settled"]) == ("unclear", True)
