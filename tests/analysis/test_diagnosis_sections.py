"""What a run returns, beyond its relevance, as a reader sees it."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

import karat
from karat.analysis.diagnose.diversity import diversity, diversity_measures, diversity_sections
from karat.analysis.diagnose.freshness import freshness, freshness_measures, freshness_sections
from karat.analysis.diagnose.hubs import hub_sections, hubs
from karat.analysis.diagnose.no_answer import no_answer, no_answer_measures, no_answer_sections
from karat.analysis.diagnose.reach import reach, reach_measures, reach_sections
from karat.evaluation.stages import score_stages
from karat.formats.runlog import run_of_records
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare
from karat.pages.page import Page
from karat.pages.terminal import show_page

K = 3


def hit(item, score, version="2025-01-01"):
    return {"chunk_id": item, "score": score, "doc_version": version}


@pytest.fixture
def world():
    """Twelve queries with a hub, twins, a newer document and two queries without an answer."""
    lists, asked, gold = {}, {}, {}
    for n in range(12):
        query, without = f"q{n:02}", n >= 10
        lists[query] = [hit(f"own{n}#1", 9.0 - n / 2), hit("home#1", 3.0), hit("home#2", 2.0)]
        asked[query] = {"text": query, "as_of": "2025-06-01", "no_answer": without}
        gold[query] = [] if without else [f"own{n}#1"]
    lists["q00"][0] = hit("own0#1", 9.0, "2025-09-01")
    gold["q01"].append("lost#1")
    texts = {"home#1": "welcome to our home page", "home#2": "Welcome to our home page!"}
    texts |= {f"own{n}#1": f"own text number {n}" for n in range(12)}
    texts |= {f"other{n}#1": f"nobody asks for number {n}" for n in range(60)}
    run = run_of_records(
        [{"query_id": query, "topk": hits} for query, hits in lists.items()], name="log"
    )
    prepared = prepare(
        karat.Gold.from_dict(gold),
        conventions_of("karat"),
        queries=karat.Queries.from_dict(asked),
        corpus=karat.Corpus.from_dict(texts),
    )
    names = [*no_answer_measures(K), *freshness_measures(K), *diversity_measures(K)]
    measures = parse_measures([*names, *reach_measures(K)])
    return score_stages(run, prepared, measures, lenient=measures, keep=K), run


def printed(sections):
    console = Console(file=io.StringIO(), width=100)
    show_page(Page("", blocks=sections), console)
    return console.file.getvalue()


def documents(staged, run):
    found = {
        "no_answer": no_answer(staged, k=K),
        "freshness": freshness(staged, run, k=K),
        "diversity": diversity(staged, k=K),
        "hubs": hubs(staged, k=K),
        "reach": reach(staged, run, k=K),
    }
    # A page is made of what was written to a file as well.
    return {name: json.loads(json.dumps(one.to_dict())) for name, one in found.items()}


def row_of(text, start):
    return next(line.split() for line in text.splitlines() if line.startswith(start))


def test_queries_without_an_answer(world):
    text = printed(no_answer_sections(documents(*world)["no_answer"]))
    # gold scores 9, 8.5 … 4.5, what has no answer 4 and 3.5
    assert row_of(text, "best")[1] == "4.2500"
    assert row_of(text, "no threshold")[3] == "1.0000"
    assert "2 queries without an answer · 10 with one, 10 of them with gold in the top 3" in text
    assert "any threshold above 4.0000 and up to 4.5000 gives the same result as the best" in text
    assert "optimistic" in text
    assert "with the choice" not in text


@pytest.mark.parametrize("points", [2, 9, 12, 13, 27, 52])
def test_a_page_shows_few_thresholds_of_a_long_sweep(world, points):
    document = documents(*world)["no_answer"]
    swept = [{**document["sweep"][0], "threshold": n / 100} for n in range(points)]
    document["sweep"] = swept
    document["best"]["threshold"] = swept[points // 2]["threshold"]
    document["keep"]["threshold"] = swept[points // 3]["threshold"]
    grid = no_answer_sections(document)[1].grid
    shown = [float(row[0]) for row in grid[1:]]
    assert min(points, 10) <= len(shown) <= 12
    assert shown == sorted(set(shown))
    named = {0.0, (points - 1) / 100, points // 2 / 100, points // 3 / 100}
    assert named <= set(shown)


def test_freshness(world):
    text = printed(freshness_sections(documents(*world)["freshness"]))
    assert "1 of 36 places hold an item newer than as_of, in 1 of 12 lists" in text
    assert row_of(text, "R@3")[:4] == ["R@3", "0.9500", "0.8500", "-0.1000"]
    assert row_of(text, "own0") == ["own0", "2025-09-01", "1", "1", "1"]
    assert "1 relevant item is newer than as_of" in text
    assert "1 list ends before the top 3 is full again" in text


def test_diversity(world):
    text = printed(diversity_sections(documents(*world)["diversity"]))
    assert "12 of 36 places repeat a higher one (overlap of words 0.8 or more), in 12 lists" in text
    assert row_of(text, "home#1")[:4] == ["home#1", "home#2", "12", "1.0000"]


def test_hubs(world):
    text = printed(hub_sections(documents(*world)["hubs"]))
    assert "2 items in the top 3 of 3 or more of 12 queries without being their gold" in text
    assert row_of(text, "home#2")[:6] == ["home#2", "12", "0", "0", "12", "12"]
    assert "they take 67 % of 36 places" in text


def test_reach(world):
    text = printed(reach_sections(documents(*world)["reach"]))
    assert row_of(text, "gold, top 3")[3:6] == ["10", "1", "0.9091"]
    assert row_of(text, "lost#1")[:4] == ["lost#1", "q01", "1", "no"]
    assert row_of(text, "corpus, any list")[3:5] == ["14", "60"]
    assert "1 relevant item is not in the corpus" in text
    assert "whose call failed" not in text


def test_gold_of_failed_calls_is_said_not_to_have_been_looked_for():
    gold = prepare(karat.Gold.from_dict({"q": ["a"], "r": ["b", "c"]}), conventions_of("karat"))
    records = [{"query_id": "q", "topk": ["a"]}, {"query_id": "r", "topk": [], "error": "timeout"}]
    measures = parse_measures(reach_measures(K))
    run = run_of_records(records, name="log")
    staged = score_stages(run, gold, measures, lenient=measures, keep=K)
    text = printed(reach_sections(reach(staged, k=K).to_dict()))
    assert "2 relevant items belong only to queries whose call failed" in text
    assert "Gold in no list" not in text


def test_where_there_is_little_to_say_little_is_said():
    gold = prepare(karat.Gold.from_dict({"q": ["a"]}), conventions_of("karat"))
    measures = parse_measures([*diversity_measures(K), *reach_measures(K)])
    run = karat.Run.from_dict({"q": ["a"]})
    staged = score_stages(run, gold, measures, lenient=measures, keep=K)
    text = printed(
        [
            *diversity_sections(diversity(staged, k=K).to_dict()),
            *hub_sections(hubs(staged, k=K).to_dict()),
            *reach_sections(reach(staged, k=K).to_dict()),
        ]
    )
    assert "Novelty needs the items' texts: give --corpus" in text
    assert "lists of only 1 query: too few to tell, since a hub is in 3 or more" in text
    assert "no item" not in text
    assert "need --corpus" in text
