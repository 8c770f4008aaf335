"""``karat story``: the result object, its rules, and the same numbers as ``karat eval``."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import karat
from eval_sets import read_eval_set
from karat.cli.main import main
from karat.formats.readers import read_corpus
from karat.formats.settings import Place
from karat.retrieve.build_context import BuildContext
from karat.retrieve.system import build_system
from karat.retrieve.system_config import parse_systems

# Given: three scenes Sc1, Sc2 and Finale; what happens in Sc1 and in Finale, word by word; that
# Sc2 has two lines of description; the queries, their gold and k; and the results.
# Chosen: the two lines of Sc2. The results fix what they must do. Under basic, q1 must come to
# rank 2, so that Sc2 shares less with it than Sc1 (3/√50) and more than Finale (1/5), and it may
# hold none of silver, key and discovery. Under vsa the value 2/3 and the recall 5/6 leave only
# rank 2 for q1 and q2, and rank 1 for q3.
STORY = """\
Sc1 group begin
  Sc1 includes character Anna
  Anna discovers SilverKey in Village
  Anna meets Marcus
Sc1 group end
Sc2 group begin
  Sc2 describes "Anna is trapped in the storm."
  Sc2 describes "Danger is near."
Sc2 group end
Finale group begin
  Finale has type scene
  Marcus saves Anna because storm
Finale group end
"""
QUERIES = [
    {"id": "q1", "query": "scenes with Anna in danger", "relevant": ["Sc2"], "topK": 2},
    {"query": " silver key discovery ", "relevant_ids": ["Sc1"]},
    {"id": "q3", "q": "who saves anna", "answers": ["Finale", "Sc9"], "k": 1},
    "an old friend",
    {"id": "q5", "text": "the storm", "relevant": []},
]
RANKS = {"vsa": [2, 2, 1], "basic": [2, 1, 1], "bow": [2, 1, 1]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    put(STORY, QUERIES)
    return tmp_path


def put(story: str, queries: Any) -> None:
    Path("story.cnl").write_text(story, encoding="utf-8")
    text = queries if isinstance(queries, str) else json.dumps(queries, ensure_ascii=False)
    Path("q.json").write_text(text, encoding="utf-8")


def scene(name: str, *texts: str) -> str:
    lines = [f'{name} describes "{text}"' for text in texts]
    return "\n".join([f"{name} group begin", *lines, f"{name} group end", ""])


def spaced(line: str) -> str:
    return " ".join(line.split())


@pytest.fixture
def story(run):
    """The result object, and the exit code with which it came."""

    def call(*options: str) -> tuple[int, dict[str, Any]]:
        done = run("story", "story.cnl", "--queries", "q.json", "--json", *options)
        return done.code, json.loads(done.out)

    return call


@pytest.mark.parametrize(("profile", "value"), [("vsa", 2 / 3), ("basic", 5 / 6), ("bow", 5 / 6)])
def test_the_worked_story(story, profile, value):
    code, result = story("--profile", profile)
    details = result["details"]
    assert code == 0
    assert set(result) == {"value", "threshold", "pass", "details"}
    assert result["value"] == pytest.approx(value, abs=1e-15)
    assert (result["threshold"], result["pass"]) == (0.6, True)
    assert details["mrr"] == result["value"]
    assert details["recall_at_k_avg"] == pytest.approx(5 / 6, abs=1e-15)
    assert (details["labeled_queries"], details["total_queries"]) == (3, 5)
    assert [one.get("first_relevant_rank") for one in details["per_query"]] == [
        *RANKS[profile],
        None,
        None,
    ]


def test_a_query_has_exactly_these_keys(story):
    _, result = story("--profile", "basic")
    one, _, _, without_gold, _ = result["details"]["per_query"]
    assert one == {
        "id": "q1",
        "query": "scenes with Anna in danger",
        "topK": 2,
        "reciprocal_rank": 0.5,
        "first_relevant_rank": 2,
        "recall_at_k": 1.0,
        "top_results": [
            # Anna twice and in once; Anna, in and danger once, and is twice
            {"id": "Sc1", "score": pytest.approx(3 / 50**0.5)},
            {"id": "Sc2", "score": pytest.approx(3 / 55**0.5)},
        ],
    }
    assert without_gold == {
        "id": "q_4",
        "query": "an old friend",
        "status": "skipped",
        "reason": "no_ground_truth",
    }


def test_queries_are_trimmed_and_named_by_their_place(story):
    _, result = story()
    queries = result["details"]["per_query"]
    assert [one["id"] for one in queries] == ["q1", "q_2", "q3", "q_4", "q5"]
    assert queries[1]["query"] == "silver key discovery"


def test_gold_that_is_no_scene_stays_in_the_denominator(story):
    _, result = story()
    assert result["details"]["per_query"][2]["recall_at_k"] == 0.5


def test_vsa_is_the_default_with_1000_components_and_seed_42(story):
    assert story() == story("--profile", "vsa", "--dim", "1000", "--seed", "42")
    assert story() != story("--dim", "10000")
    assert story() != story("--seed", "7")


def test_scores_are_those_of_the_golden_cosines(story):
    texts = {"Sc1": "calm harbor", "Sc2": "a storm gathers at sea"}
    put("".join(scene(*pair) for pair in texts.items()), [{"q": "storm at sea", "relevant": ["x"]}])
    for dim, expected in (("1000", [0.6, -0.044]), ("10000", [0.6188, 0.0026])):
        _, result = story("--dim", dim)
        (one,) = result["details"]["per_query"]
        assert [hit["id"] for hit in one["top_results"]] == ["Sc2", "Sc1"]
        assert [hit["score"] for hit in one["top_results"]] == pytest.approx(expected)


def test_the_first_relevant_scene_is_searched_beyond_k(story):
    names = [f"Sc{number}" for number in range(1, 8)]
    put("".join(scene(name, "sea") for name in names), [{"q": "sea", "relevant": ["Sc7"]}])
    code, result = story("--profile", "bow")
    (one,) = result["details"]["per_query"]
    assert (one["first_relevant_rank"], one["recall_at_k"], one["topK"]) == (7, 0.0, 5)
    assert [hit["id"] for hit in one["top_results"]] == names[:5]
    assert result["value"] == 1 / 7
    assert code == 1


def test_ties_keep_story_order_whatever_the_ids(story):
    put(scene("Sc9", "sea") + scene("Sc1", "sea"), [{"q": "storm", "relevant": ["Sc9"]}])
    assert story("--profile", "bow")[1]["value"] == 1.0


def test_only_gold_that_does_not_exist_gives_0(story):
    put(STORY, [{"q": "anna", "relevant": ["sc1"]}])  # ids are compared as they are spelled
    code, result = story()
    (one,) = result["details"]["per_query"]
    assert (one["reciprocal_rank"], one["first_relevant_rank"]) == (0.0, None)
    assert (code, result["value"], result["pass"]) == (1, 0.0, False)


def test_a_value_of_exactly_the_threshold_does_not_pass(story):
    # ranks 1 and 5: (1 + 1/5)/2
    names = [f"Sc{number}" for number in range(1, 6)]
    queries = [{"q": "sea", "relevant": ["Sc1"]}, {"q": "sea", "relevant": ["Sc5"]}]
    put("".join(scene(name, "sea") for name in names), queries)
    code, result = story("--profile", "bow")
    assert (code, result["value"], result["pass"]) == (1, 0.6, False)


def test_top_k_is_for_queries_without_their_own(story):
    names = [f"Sc{number}" for number in range(1, 8)]
    queries = [
        {"q": "sea", "relevant": ["Sc3"], "topK": given}
        for given in (None, 2, 0, -4, "many", "4", 100)
    ]
    put("".join(scene(name, "sea") for name in names), queries)
    for options, default in (((), 5), (("-k", "1"), 1), (("--top-k", "3"), 3)):
        _, result = story("--profile", "bow", *options)
        per_query = result["details"]["per_query"]
        cuts = [default, 2, default, default, default, 4, 100]
        assert [one["topK"] for one in per_query] == cuts
        assert [one["recall_at_k"] for one in per_query] == [float(cut >= 3) for cut in cuts]
        assert [len(one["top_results"]) for one in per_query] == [min(cut, 7) for cut in cuts]


def test_blank_and_unreadable_queries_are_only_counted(story):
    put(STORY, [None, " ", 7, {"id": "x", "query": ""}, {"q": "anna", "relevant": ["Sc1"]}])
    _, result = story()
    assert [one["id"] for one in result["details"]["per_query"]] == ["q_5"]
    assert (result["details"]["labeled_queries"], result["details"]["total_queries"]) == (1, 5)


@pytest.mark.parametrize(
    "queries", [[], {"retrieval_queries": []}, {"corpora": {"retrievalQueries": []}}]
)
def test_without_queries_the_metric_is_skipped(story, queries):
    put(STORY, queries)
    assert story() == (
        0,
        {
            "value": None,
            "threshold": 0.6,
            "pass": None,
            "details": {"status": "skipped", "reason": "missing_retrieval_queries"},
        },
    )


def test_a_story_of_which_nothing_is_asked_is_skipped(run, story):
    put(STORY, [])
    done = run("story", "story.cnl", "--json", "-o", "out.json")
    assert (done.code, json.loads(done.out)) == story()
    assert json.loads(done.out)["details"]["reason"] == "missing_retrieval_queries"
    assert Path("out.json").read_text(encoding="utf-8") == done.out
    assert run("story", "story.cnl").out.startswith("SKIPPED  there are no queries\n")
    assert run("story", "story.cnl", "-o", "story.cnl").code == 2
    assert run("story", "none.cnl").code == 2


@pytest.mark.parametrize("queries", [["anna"], [" ", None], [{"q": "anna", "relevant": "Sc1"}]])
def test_without_labelled_queries_the_metric_is_skipped(story, queries):
    put(STORY, queries)
    code, result = story()
    assert (code, result["value"], result["pass"]) == (0, None, None)
    assert result["details"] == {"status": "skipped", "reason": "no_labeled_queries"}


def test_a_story_without_scenes_is_the_scene_document(story):
    put("Anna meets Marcus\n", [{"q": "anna", "relevant": ["Document"]}])
    code, result = story()
    assert (code, result["value"]) == (0, 1.0)


def test_a_scene_told_twice_is_one_scene_with_its_last_text(story):
    # twice in the list, its recall would be 2, and Sc2 would come third
    told = scene("Sc1", "harbor") + scene("Sc2", "storm") + scene("Sc1", "sea")
    put(told, [{"q": "sea", "relevant": ["Sc1"]}, {"q": "harbor", "relevant": ["Sc2"]}])
    _, result = story("--profile", "bow")
    first, second = result["details"]["per_query"]
    assert first["top_results"] == [{"id": "Sc1", "score": 1.0}, {"id": "Sc2", "score": 0.0}]
    assert (first["recall_at_k"], second["first_relevant_rank"]) == (1.0, 2)


def test_an_empty_scene_can_outrank_others_under_vsa_only(story, run):
    told = scene("Sc1") + scene("Sc2", "the calm before a storm came over them")
    put(told, [{"q": "calm harbor", "relevant": ["Sc2"]}])
    assert story()[1]["value"] == 0.5
    assert story("--profile", "bow")[1]["value"] == 1.0
    shown = run("story", "story.cnl", "--queries", "q.json").out
    assert "scenes without text, which vsa may rank above others: Sc1" in shown


def test_the_verdict_comes_first_on_a_terminal(run):
    done = run("story", "story.cnl", "--queries", "q.json")
    lines = done.out.splitlines()
    assert lines[0] == "PASS  MRR 0.6667 is above 0.6"
    assert lines[1].split(" · ") == [
        "  R@k 0.8333",
        "3 of 5 queries with gold",
        "3 scenes",
        "vsa, dim 1000, seed 42",
    ]
    assert spaced(lines[5]) == "q1 2 0.5000 1.0000 2 Sc1 scenes with Anna in danger"
    assert spaced(lines[8]) == "q_4 no gold - - - - an old friend"
    assert lines[-1] == "gold that is not a scene, so is never found: Sc9"
    assert (done.code, done.err) == (0, "")


def test_a_failure_and_a_doubt_have_their_words_and_codes(run):
    put(STORY, [{"q": "anna", "relevant": ["Sc9"]}])
    failed = run("story", "story.cnl", "--queries", "q.json")
    assert (failed.code, failed.out.splitlines()[0]) == (1, "FAIL  MRR 0.0000 is not above 0.6")
    put(STORY, ["anna"])
    skipped = run("story", "story.cnl", "--queries", "q.json")
    assert skipped.code == 0
    assert skipped.out.splitlines()[0] == "SKIPPED  no query says which scenes are relevant"
    quiet = run("story", "story.cnl", "--queries", "q.json", "--quiet")
    assert (quiet.code, quiet.out) == (0, "")
    assert quiet.err == "karat: skipped: no query says which scenes are relevant\n"


def test_of_many_queries_those_that_did_worst_are_shown(run):
    queries = [{"q": "anna", "relevant": ["Sc1"]} for _ in range(40)]
    put(STORY, [*queries, {"id": "worst", "q": "anna", "relevant": ["Sc9"]}])
    done = run("story", "story.cnl", "--queries", "q.json", "--profile", "bow")
    rows = [line for line in done.out.splitlines() if line.startswith(("q_", "worst"))]
    assert rows[0].startswith("worst")
    assert len(rows) == 30
    assert "the 30 queries with the worst results; -o out.json has all" in done.out


def test_output_is_the_same_bytes_wherever_it_goes(run):
    outputs = ["-o", "new/a.json", "-o", "story:b", "-o", "c.json.gz"]
    done = run("story", "story.cnl", "--queries", "q.json", *outputs)
    data = Path("new/a.json").read_bytes()
    assert done.out.startswith("PASS")
    assert Path("b").read_bytes() == data
    assert gzip.decompress(Path("c.json.gz").read_bytes()) == data
    assert run("story", "story.cnl", "--queries", "q.json", "--json").out.encode() == data
    assert run("story", "story.cnl", "--queries", "q.json", "-o", "-").out.encode() == data
    keys = list(json.loads(data))
    assert keys == sorted(keys)
    assert b"0.6666666666666666" in data
    assert {path.name for path in Path().iterdir()} == {
        "story.cnl",
        "q.json",
        "new",
        "b",
        "c.json.gz",
    }


@pytest.mark.parametrize("profile", ["vsa", "bow"])
def test_the_bytes_do_not_depend_on_python_s_hashes(spawn, profile):
    told = ["story", "story.cnl", "--queries", "q.json", "--profile", profile, "--json"]
    one, other = (spawn(*told, PYTHONHASHSEED=seed).out for seed in ("1", "4242"))
    assert one == other
    assert json.loads(one)["details"]["labeled_queries"] == 3


def test_the_story_may_come_from_standard_input(spawn):
    done = spawn("story", "-", "--queries", "q.json", stdin=STORY.encode())
    assert (done.code, done.out.splitlines()[0]) == (0, "PASS  MRR 0.6667 is above 0.6")


def test_broken_lines_are_refused_unless_lenient(run):
    put(STORY + "Anna\n", QUERIES)
    refused = run("story", "story.cnl", "--queries", "q.json", "-o", "out.json")
    line = STORY.count("\n") + 1
    told = f"story.cnl:{line}: a statement needs at least a subject and a verb"
    assert (refused.code, refused.out, refused.err) == (2, "", f"karat: {told}\n")
    assert not Path("out.json").exists()
    lenient = run("story", "story.cnl", "--queries", "q.json", "--lenient")
    assert lenient.code == 0
    assert told in lenient.out.splitlines()
    as_json = run("story", "story.cnl", "--queries", "q.json", "--lenient", "--json")
    assert json.loads(as_json.out)["pass"] is True
    assert f"karat: {told}" in as_json.err.splitlines()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--profile", "vas"], "unknown profile 'vas'; did you mean vsa?"),
        (["--profile", "VSA"], "unknown profile 'VSA'; did you mean vsa?"),
        (["--profile", "embeddings"], "unknown profile 'embeddings'; known: vsa, bow, basic"),
        (["--profile", "bow", "--dim", "9"], "--dim is for --profile vsa; bow counts words"),
        (["--profile", "basic", "--seed", "9"], "--seed is for --profile vsa; basic counts words"),
        (["--dim", "0"], "--dim is '0'; give a whole number from 1 to 100,000"),
        (["--dim", "1e3"], "--dim is '1e3'; give a whole number from 1 to 100,000"),
        (["--dim", ""], "--dim is ''; give a whole number from 1 to 100,000"),
        (["--seed", "x"], "--seed is 'x'; give a whole number from"),
        (["-k", "0"], "--top-k is '0'; give a whole number from 1 to 1,000,000"),
        (["-o", "out.csv"], "output 'out.csv': use out.json, story:FILE or -"),
        (["-o", "story:"], "output 'story:': use out.json, story:FILE or -"),
        (["-o", "q.json"], "output 'q.json' is also an input; choose another name"),
        (["-o", "-", "--json"], "only one report can go to standard output"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(run, options, told):
    done = run("story", "story.cnl", "--queries", "q.json", *options)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"karat: {told}")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("queries", "told"),
    [
        ("", "q.json: is empty; a file with at least one line is expected"),
        ("{", "q.json:1: not valid JSON"),
        ('{"queries": ["anna"]}', "q.json: no list of queries; expected an array or"),
        ('"anna"', "q.json: no list of queries; expected an array or"),
        ("null", "q.json: no list of queries; expected an array or"),
        ('[{"q": "x", "relevant": [null]}]', "q.json: a relevant id of query 1 is null"),
        ('[{"id": "a", "q": "x"}, {"id": "a", "q": "y"}]', "q.json: query id 'a' occurs twice"),
        ('[{"id": [1], "q": "x"}]', "q.json: the id of query 1 is [1]; ids are text"),
    ],
)
def test_queries_that_cannot_be_meant_are_refused(run, queries, told):
    put(STORY, queries)
    done = run("story", "story.cnl", "--queries", "q.json")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"karat: {told}")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "story.cnl: is empty; a file with at least one line is expected"),
        (b"// nothing yet\n", "story.cnl: has no scene to search; name groups Sc1"),
        (
            b'Ch1 group begin\nCh1 describes "A storm."\nCh1 group end\n',
            "story.cnl: has no scene to search; name groups Sc1",
        ),
        (b"Sc1 group begin\n\xff\n", "story.cnl:2: byte 0xff is not UTF-8"),
        (b"\x00\x01", "story.cnl:1: holds a NUL byte, so it is binary"),
        (b"Sc1 group begin\n", "story.cnl:1: group 'Sc1' is not closed"),
    ],
)
def test_stories_that_cannot_be_read_are_refused(run, data, told):
    Path("story.cnl").write_bytes(data)
    done = run("story", "story.cnl", "--queries", "q.json")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"karat: {told}")


def test_missing_files_are_told(run):
    assert run("story", "no.cnl", "--queries", "q.json").err == (
        "karat: no.cnl: no such file; check the path\n"
    )
    assert run("story", "story.cnl", "--queries", "no.json").err == (
        "karat: no.json: no such file; check the path\n"
    )
    assert "standard input is read once" in run("story", "-", "--queries", "-").err


def test_long_and_foreign_texts_are_measured(story):
    long = " ".join(f"word{number}" for number in range(110_000))
    assert len(long) > 1_000_000
    told = scene("Sc1", long) + scene("Sc2", "Élodie rencontre Zoë") + scene("Sc3", "嵐 123 море")
    queries = [
        {"q": long, "relevant": ["Sc1"]},
        {"q": "ZOË", "relevant": ["Sc2"]},
        {"q": "123", "relevant": ["Sc3"]},
    ]
    put(told, queries)
    for profile in ("vsa", "bow"):
        assert story("--profile", profile)[1]["value"] == 1.0


@pytest.mark.parametrize("profile", ["vsa", "bow"])
def test_search_and_eval_with_profile_story_give_the_same_numbers(run, story, profile):
    Path("karat.yaml").write_text(
        f"queries: q.json\ncorpus: story.cnl\nsystems: {{s: {{retriever: {profile}, k: 100}}}}\n",
        encoding="utf-8",
    )
    assert run("search", "-o", "run.jsonl", "--quiet").code == 0
    done = run("eval", "run.jsonl", "--gold", "q.json", "--profile", "story", "--json")
    measures = json.loads(done.out)["systems"][0]["measures"]
    _, result = story("--profile", profile)
    assert measures["RR"]["mean"] == result["value"]
    assert measures["R@k"]["mean"] == result["details"]["recall_at_k_avg"]
    assert measures["RR"]["n"] == result["details"]["labeled_queries"]


def test_the_page_for_authors_shows_what_karat_prints(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    page = (Path(__file__).parents[2] / "docs" / "measure-a-story.md").read_text(encoding="utf-8")
    for kind, name in (("cnl", "story.cnl"), ("json", "queries.json"), ("yaml", "karat.yaml")):
        (text,) = re.findall(f"```{kind}\\n(.*?)```", page, re.DOTALL)
        Path(name).write_text(text, encoding="utf-8")
    examples = re.findall(
        r"^\$ karat (.*)\n((?:(?!\$ |```).*\n)*)", "\n".join(consoles(page)), re.MULTILINE
    )
    assert len(examples) == 4
    for command, output in examples:
        printed = run(*shlex.split(command)).out.splitlines()
        assert "\n".join(line.rstrip() for line in printed).strip() == output.strip()


def consoles(page: str) -> list[str]:
    return re.findall(r"```console\n(.*?)```", page, re.DOTALL)


WORD = st.sampled_from(["anna", "sea", "storm", "key", "嵐", "Été", "_x"])
WORDS = st.lists(WORD, max_size=5).map(" ".join)
NAMES = st.sampled_from([*(f"Sc{number}" for number in range(8)), "Ch1.Scene 2", "Scene 9.1"])
ENTRIES = st.fixed_dictionaries(
    {"query": WORDS.filter(bool), "relevant": st.lists(NAMES, max_size=4)},
    optional={"topK": st.integers(-1, 12)},
)


@settings(max_examples=40)
@given(
    st.dictionaries(NAMES, st.lists(WORDS, max_size=2), min_size=1),
    st.lists(ENTRIES, min_size=1, max_size=6),
    st.sampled_from(["vsa", "bow"]),
)
def test_evaluate_gives_the_same_value_for_any_story(told, queries, profile):
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("story.cnl", "q.json", "out.json")]
        text = "".join(scene(name, *texts) for name, texts in told.items())
        Path(paths[0]).write_text(text, encoding="utf-8")
        Path(paths[1]).write_text(json.dumps(queries), encoding="utf-8")
        options = ["--queries", paths[1], "--profile", profile, "-o", paths[2], "--quiet"]
        code = main(["story", paths[0], *options])
        result = json.loads(Path(paths[2]).read_bytes())
        corpus = read_corpus(paths[0])
        asked, gold = read_eval_set(paths[1])
    system_config = parse_systems({"s": {"retriever": profile}}, Place("karat.yaml"))["s"]
    system = build_system(system_config, BuildContext(corpus=lambda: corpus))
    run = system.search(asked, corpus.frame.height)
    scores = karat.evaluate(run, gold, profile="story", queries=asked)
    assert scores.means()["RR"] == result["value"]
    assert scores.means()["R@k"] == result["details"].get("recall_at_k_avg")
    expected = {None: 0}.get(result["value"], int(not (result["value"] or 0) > 0.6))
    assert code == expected
