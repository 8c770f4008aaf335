"""Files that carry queries and gold together: eval sets, datasets, suites, stories, BEIR."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval_sets import read_eval_set
from karat.errors import InputError
from karat.formats.readers import queries_in_gold, read_corpus, read_gold, read_queries
from karat.formats.story import parse_story


def put(folder: Path, content: object, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_gold(path)
    return str(caught.value)


EVALSET = lines(
    {"query": "What is RAG?", "relevant_chunk_ids": ["rag_intro#02"]},
    {
        "id": "q2",
        "question": "Start?",
        "relevant_chunk_ids": ["a#1", 7],
        "notes": "easy",
        "expected_mode": "answer",
    },
    {"id": 3, "query": "Outside?", "relevant_chunk_ids": [], "expected_mode": "refuse"},
)


def test_an_eval_set_gives_queries_and_gold(tmp_path: Path) -> None:
    queries, gold = read_eval_set(put(tmp_path, EVALSET, "eval_set.jsonl"))
    hashed = queries.frame["query_id"][0]
    assert hashed.startswith("q_")
    assert len(hashed) == 14
    assert queries.frame["query_id"].to_list()[1:] == ["q2", "3"]
    assert queries.frame["expected_mode"].to_list() == [None, "answer", "refuse"]
    assert gold.frame.rows() == [
        (hashed, "rag_intro#02", 1.0),
        ("q2", "a#1", 1.0),
        ("q2", "7", 1.0),
    ]
    assert gold.query_ids == (hashed, "q2", "3")


def test_doc_ids_are_gold_where_there_are_no_chunks(tmp_path: Path) -> None:
    path = put(
        tmp_path,
        lines({"query": "a", "relevant_doc_ids": ["x"]}, {"query": "b", "doc_id": "y"}),
        "e.jsonl",
    )
    assert read_gold(path).frame["item_id"].to_list() == ["x", "y"]


def test_the_same_text_twice_without_ids_is_refused(tmp_path: Path) -> None:
    record = {"query": "same", "relevant_chunk_ids": ["a"]}
    told = refusal(put(tmp_path, lines(record, record), "e.jsonl"))
    assert told.startswith("e.jsonl:2: query id 'q_")
    assert "as in line 1; give every query an id of its own" in told


DATASET = {
    "query_id": "q_1",
    "question": "Boleto?",
    "language": "pt-BR",
    "as_of": "2025-06-01",
    "gold_evidence": ["doc_1#p5", {"chunk_id": "doc_1#p6", "grade": 1}],
    "negatives": ["doc_9#p1"],
    "multi_hop": {"requires": 2, "hops": []},
    "no_answer": False,
    "tags": ["billing"],
    "group_id": "g7",
}


def test_a_dataset_has_evidence_negatives_and_attributes(tmp_path: Path) -> None:
    queries, gold = read_eval_set(put(tmp_path, lines(DATASET), "dataset.jsonl"))
    assert gold.frame.rows() == [
        ("q_1", "doc_1#p5", 2.0, False),
        ("q_1", "doc_1#p6", 1.0, False),
        ("q_1", "doc_9#p1", 0.0, True),
    ]
    row = queries.frame.row(0, named=True)
    assert (row["group"], row["tags"], row["no_answer"]) == ("g7", ["billing"], False)
    assert row["multi_hop"] == '{"requires": 2, "hops": []}'
    assert {"language", "tags"} <= set(queries.segments)


def test_evidence_may_be_spans(tmp_path: Path) -> None:
    record = {"query_id": "q", "question": "x", "gold_evidence": ["doc:a:10-25", "b:0-3"]}
    gold = read_gold(put(tmp_path, lines(record), "d.jsonl"))
    assert gold.frame.select("item_id", "start", "end").rows() == [("doc:a", 10, 25), ("b", 0, 3)]


def test_one_id_that_is_no_span_leaves_all_ids_alone(tmp_path: Path) -> None:
    for other in ("plain", "a:9-3", "a:5-5"):
        record = {"query_id": "q", "question": "x", "gold_evidence": ["a:10-25", other]}
        gold = read_gold(put(tmp_path, lines(record), "d.jsonl"))
        assert gold.frame["item_id"].to_list() == ["a:10-25", other]
        assert "start" not in gold.frame.columns


def test_gold_that_is_also_a_negative_is_refused(tmp_path: Path) -> None:
    record = {"query_id": "q", "question": "x", "gold_evidence": ["a"], "negatives": ["a"]}
    told = refusal(put(tmp_path, lines(DATASET, record), "d.jsonl"))
    assert told.startswith("d.jsonl:2: query 'q', item 'a' is judged 0 here and 2 in line 2")


SUITE = {
    "metadata": {"format_version": "2.0"},
    "test_cases": [
        {
            "memory_id": 17,
            "content": "Always check nulls",
            "category": "quality",
            "severity": 7,
            "generated_queries": [
                {
                    "query": "best practices",
                    "category": "direct",
                    "difficulty": "easy",
                    "expected_rank": 1,
                    "min_similarity": 0.6,
                },
                {
                    "query": "null checks",
                    "category": "casual",
                    "difficulty": "hard",
                    "expected_rank": 10,
                    "min_similarity": 0.2,
                },
            ],
        },
        {
            "memory_id": 18,
            "content": "Log it",
            "generated_queries": [{"query": "best practices", "category": "direct"}],
        },
    ],
}


def test_a_memory_suite_gives_queries_gold_and_corpus(tmp_path: Path) -> None:
    path = put(tmp_path, SUITE, "suite.json")
    queries, gold = read_eval_set(path)
    assert gold.frame.rows() == [("17/1", "17", 1.0), ("17/2", "17", 1.0), ("18/1", "18", 1.0)]
    assert queries.frame["min_similarity"].to_list() == [0.6, 0.2, None]
    corpus = read_corpus(path)
    assert corpus.frame.select("item_id", "text", "severity").rows() == [
        ("17", "Always check nulls", 7),
        ("18", "Log it", None),
    ]


def test_a_very_short_or_very_long_query_of_a_suite_is_an_edge_case(tmp_path: Path) -> None:
    queries: list[object] = [
        {"query": "null checks", "category": "casual"},
        {"query": "null checks"},
        {"query": "check all nulls", "category": None},
        {"query": " ".join(["null"] * 21), "category": ""},
        " ".join(["null"] * 20),
        "nulls",
    ]
    suite = {"test_cases": [{"memory_id": 1, "content": "x", "generated_queries": queries}]}
    read = read_queries(put(tmp_path, suite, "suite.json"))
    edge = "edge_cases"
    assert read.frame["category"].to_list() == ["casual", edge, None, edge, None, edge]
    assert "category" in read.segments


def test_a_suite_without_any_category_gets_no_column_of_them(tmp_path: Path) -> None:
    queries = [{"query": "check all nulls"}]
    suite = {"test_cases": [{"memory_id": 1, "content": "x", "generated_queries": queries}]}
    assert "category" not in read_queries(put(tmp_path, suite, "suite.json")).frame.columns


STORY = """// a story
Ch1 group begin
  Ch1 has title "The Key"
  Sc1 group begin
    Sc1 includes character Anna
    Anna quickly discovers SilverKey in Village
    Anna meets Marcus
  Sc1 group end
  /* block
     comment */
  Sc2 group begin
    #hint: begin
    raw words here
    #hint: end
    Sc2 describes "Anna is trapped in the storm."
    Beat group begin
      Sc2 describes " Danger is near. "
    Beat group end
  Sc2 group end
Ch1 group end
Finale group begin
  Finale has type scene
  Marcus saves Anna because storm
Finale group end
"""


def test_the_scenes_of_a_story_are_its_corpus(tmp_path: Path) -> None:
    corpus = read_corpus(put(tmp_path, STORY, "story.cnl"))
    assert dict(corpus.frame.select("item_id", "text").iter_rows()) == {
        "Sc1": "Anna discovers SilverKey in Village. Anna meets Marcus.",
        "Sc2": "Anna is trapped in the storm.\nDanger is near.",
        "Finale": "Marcus saves Anna because storm.",
    }
    assert corpus.frame["item_id"].to_list() == ["Sc1", "Sc2", "Finale"]


@pytest.mark.parametrize(
    ("name", "is_scene"),
    [
        ("Scene1", True),
        ("Scene 1.1", True),
        ("Ch1.Sc2", True),
        ("Book1.Ch2.Scene3", True),
        ("Scene_3", False),
        ("Mysc2", False),
    ],
)
def test_scene_names_are_known_by_their_form(name: str, is_scene: bool) -> None:
    story = parse_story(f'"{name}" group begin\nA describes "x"\n"{name}" group end\n')
    assert [name for name, _ in story.scenes] == ([name] if is_scene else ["Document"])


def test_a_story_without_scenes_is_one_document() -> None:
    assert parse_story("Anna meets Marcus\n").scenes[0][1] == "Anna meets Marcus."


def test_a_scene_told_twice_has_its_last_text() -> None:
    told = "Sc1 group begin\nA describes {}\nSc1 group end\n"
    story = parse_story(told.format("first") + told.format("second"))
    assert list(story.scenes) == [("Sc1", "second")] * 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            'Sc1 group begin\nSc1 describes "open\nSc1 group end\n',
            "s.cnl:2: a quoted string is not closed",
        ),
        (
            "Sc1 group begin\nAnna\nSc1 group end\n",
            "s.cnl:2: a statement needs at least a subject and a verb",
        ),
        ("Sc1 group begin\nA meets B\n", "s.cnl:1: group 'Sc1' is not closed"),
        (
            "Sc1 group begin\nSc2 group end\nSc1 group end\n",
            "s.cnl:2: group 'Sc2' ends here but is not the open group",
        ),
    ],
)
def test_broken_stories_are_refused_with_their_line(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_corpus(put(tmp_path, text, "s.cnl"))
    assert str(caught.value) == told


@pytest.mark.parametrize(
    "wrap",
    [
        lambda q: q,
        lambda q: {"retrieval_queries": q},
        lambda q: {"corpora": {"retrievalQueries": q}},
    ],
)
def test_story_queries_know_their_aliases(wrap: object, tmp_path: Path) -> None:
    entries = [
        {"id": "q1", "query": " danger ", "relevant": ["Sc2"], "topK": 2},
        {"q": "key", "relevant_ids": ["Sc1"]},
        {"text": "who", "answers": ["Finale", "Sc9"], "k": 1},
        "unlabelled",
        {"query": "odd", "ground_truth": "Sc1", "topK": 0},
    ]
    queries, gold = read_eval_set(put(tmp_path, wrap(entries), "q.json"))  # type: ignore[operator]
    assert queries.frame["query_id"].to_list() == ["q1", "q_2", "q_3", "q_4", "q_5"]
    assert queries.frame["text"].to_list() == ["danger", "key", "who", "unlabelled", "odd"]
    assert queries.frame["k"].to_list() == [2, None, 1, None, None]
    assert gold.frame.rows()[1:] == [
        ("q_2", "Sc1", 1.0),
        ("q_3", "Finale", 1.0),
        ("q_3", "Sc9", 1.0),
    ]
    assert len(gold.query_ids) == 5


def beir(folder: Path, *splits: str) -> Path:
    put(
        folder,
        lines({"_id": "d1", "title": "T", "text": "body", "metadata": {"year": 1999}}),
        "beir/corpus.jsonl",
    )
    put(folder, lines({"_id": "1", "text": "claim", "metadata": {}}), "beir/queries.jsonl")
    for split in splits:
        put(folder, "query-id\tcorpus-id\tscore\n1\td1\t1\n", f"beir/qrels/{split}.tsv")
    return folder / "beir"


def test_a_beir_folder_is_read(tmp_path: Path) -> None:
    folder = beir(tmp_path, "test", "train")
    queries, gold = read_eval_set(folder)
    assert gold.frame.rows() == [("1", "d1", 1.0)]
    assert queries.frame.rows() == [("1", "claim")]
    assert read_corpus(folder).frame.rows() == [("d1", "d1", "body", "T", 1999)]
    assert read_gold(folder / "qrels" / "train.tsv").frame.height == 1


def test_several_splits_without_test_must_be_chosen(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"several qrels \(dev.tsv, train.tsv\); give the file"):
        read_gold(beir(tmp_path, "train", "dev"))
    with pytest.raises(InputError, match="holds no qrels"):
        read_gold(beir(tmp_path / "none"))


def test_queries_beside_gold_are_found_where_there_are_any(tmp_path: Path) -> None:
    found = queries_in_gold(put(tmp_path, EVALSET, "e.jsonl"))
    assert found is not None
    assert found.frame.height == 3
    assert queries_in_gold(put(tmp_path, "q 0 d 1\n", "qrels.txt")) is None
    assert queries_in_gold(put(tmp_path, {"q": {"d": 1}}, "qrels.json")) is None


def test_chunk_objects_are_laid_flat(tmp_path: Path) -> None:
    chunk = {
        "chunk_id": "doc_1#p5",
        "doc_id": "doc_1",
        "start": 0,
        "end": 9,
        "text": "x",
        "meta": {"section": "s"},
    }
    frame = read_corpus(put(tmp_path, "\n" + lines(chunk), "c.jsonl")).frame
    assert frame.row(0, named=True) == {
        "item_id": "doc_1#p5",
        "doc_id": "doc_1",
        "text": "x",
        "start": 0,
        "end": 9,
        "section": "s",
    }


def test_queries_in_jsonl_take_any_usual_names(tmp_path: Path) -> None:
    path = put(
        tmp_path,
        lines({"_id": 4, "query": "a"}, {"_id": "5", "query": "b", "lang": "en"}),
        "q.jsonl",
    )
    assert read_queries(path).frame.rows() == [("4", "a", None), ("5", "b", "en")]
