"""Chunkers: every chunk is a slice of its document, nothing is lost, and the cuts are as told."""

from __future__ import annotations

import csv
import json
import time
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from karat.data.tables import Corpus, Gold, Queries
from karat.errors import InputError, KaratError, UsageError
from karat.evaluation.api import evaluate
from karat.formats.settings import Place
from karat.retrieve.build_context import BuildContext
from karat.retrieve.chunking import Chunker, chunk_corpus, sentences
from karat.retrieve.system import build_system
from karat.retrieve.system_config import parse_systems

DATA = Path(__file__).parents[2] / "../shared/data/chroma-chunking"

FRAGMENTS = st.sampled_from(
    [
        *("word", "Word", "x", " ", " ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u2028"),
        *(
            ". ",
            "! ",
            "? ",
            "…",
            ".",
            "e.g. ",
            "Dr. ",
            "3.5",
            "U.S. ",
            "。",
            "！",
            "」",
            "你好",
            "ñandú",
        ),
        *(
            "# ",
            "\n# Head\n",
            "\nTitle\n=====\n",
            "\n---\n",
            "```\n",
            "\n- item",
            "\n1. one",
            "👩‍🚀",
        ),
        *("a\u0301", "\u0600", "|", "> ", "'", '"', "averyverylongwordindeed"),
    ]
)
TEXTS = st.lists(FRAGMENTS | st.text(max_size=5), max_size=60).map("".join)
CHUNKERS = st.builds(
    lambda algo, unit, size, share: Chunker(
        algo=algo, size=size, overlap=int(share * (size - 1)), unit=unit
    ),
    st.sampled_from(["fixed", "sentence", "heading"]),
    st.sampled_from(["chars", "words"]),
    st.integers(1, 40),
    st.floats(0, 1),
)


def cut(text, spec):
    return [text[chunk.start : chunk.end] for chunk in Chunker.parse(spec).cut(text)]


def length(text, chunker):
    return len(text) if chunker.unit == "chars" else len(text.split())


@given(TEXTS, CHUNKERS)
def test_chunks_are_slices_in_order_within_the_size_that_lose_no_character(text, chunker):
    corpus = chunk_corpus(Corpus.from_dict({"d": text}), chunker)
    rows = corpus.frame.rows(named=True)
    covered = set()
    for number, row in enumerate(rows):
        assert row["text"] == text[row["start"] : row["end"]]
        assert row["item_id"] == f"d#{number:05d}"
        assert row["doc_id"] == "d"
        assert 0 < length(row["text"], chunker) <= chunker.size
        covered.update(range(row["start"], row["end"]))
    assert not [at for at, one in enumerate(text) if at not in covered and not one.isspace()]
    for before, after in pairwise(rows):
        assert before["start"] < after["start"]
        assert before["end"] < after["end"]


@given(TEXTS, CHUNKERS)
def test_what_two_chunks_share_is_no_longer_than_the_overlap(text, chunker):
    chunks = list(chunker.cut(text))
    for before, after in pairwise(chunks):
        shared = text[after.start : before.end]
        assert length(shared, chunker) <= chunker.overlap


@given(TEXTS, CHUNKERS)
def test_sentences_are_cut_between_words_unless_one_word_is_too_long(text, chunker):
    if chunker.algo == "fixed" or chunker.unit == "words":
        return
    for chunk in chunker.cut(text):
        before = text[: chunk.start]
        if before and not before[-1].isspace() and before[-1] not in "。！」'\"":
            word = text[before.rfind(before.split()[-1]) :].split()[0]
            assert len(word) > chunker.size


@given(st.text(max_size=200), st.integers(1, 30), st.data())
def test_fixed_windows_begin_so_much_before_the_end_of_the_last(text, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    expected, start = [], 0
    while text.strip():
        end = min(start + size, len(text))
        expected.append((start, end))
        if end == len(text):
            break
        start = end - overlap
    chunks = Chunker(algo="fixed", size=size, overlap=overlap, unit="chars").cut(text)
    assert [(one.start, one.end) for one in chunks] == expected


def test_fixed_windows_by_hand():
    def places(n):
        return [(one.start, one.end) for one in Chunker.parse("fixed").cut("x" * n)]

    assert places(2600) == [(0, 1200), (1000, 2200), (2000, 2600)]
    assert places(1200) == [(0, 1200)]
    assert places(1201) == [(0, 1200), (1000, 1201)]


def test_windows_of_words_begin_and_end_with_words():
    text = "  one two\nthree  four five "
    assert cut(text, "fixed:3/1,unit=words") == ["one two\nthree", "three  four five"]
    assert cut(text, "fixed:2/0,unit=words") == ["one two", "three  four", "five"]


@pytest.mark.parametrize(
    "sentence_list",
    [
        ["It rained.", "We stayed in!", "Why not?", "Well…", "No reason."],
        ["Dr. Silva met Mrs. Jones at St. Mary's.", "They talked."],
        ["See Fig. 3 and pp. 12-14, cf. Smith et al. 1999.", "It holds."],
        ["State of the art.", "He said no.", "Then he left."],
        ["The U.S. Army, e.g. the cavalry, was there.", "J. R. R. Tolkien wrote it."],
        ["Version 3.5 costs 1.200,50 euros.", "Get it at www.example.org today."],
        ['"Really?" she asked.', "“Yes.”", "(He nodded.)", "So did I.", "Fine."],
        ["¿Qué pasa?", "¡Nada!", "La Sra. López llegó a las 3.", "Él también."],
        ["Das gilt z.B. für Abb. 2 und ca. 40 Fälle.", "Ärger gab es nicht."],
        ["Wait... What?!", "Never mind!!!"],
    ],
)
def test_sentences_are_told_from_abbreviations(sentence_list):
    text = " ".join(sentence_list)
    found = [text[start:end] for start, end in sentences(text, 0, len(text))]
    # An ellipsis may or may not end a sentence; here it does where a capital follows.
    expected = [part for one in sentence_list for part in one.replace("... ", "...|").split("|")]
    assert found == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("你好。再见！「走吧。」好的？", ["你好。", "再见！", "「走吧。」", "好的？"]),
        ("मैं हूँ। तुम हो।", ["मैं हूँ।", "तुम हो।"]),
        ("كيف حالك؟ بخير.", ["كيف حالك؟", "بخير."]),
        ("No stop here\n\nnor here", ["No stop here", "nor here"]),
        ("One line\nwrapped on", ["One line\nwrapped on"]),
        ("Buy:\n- milk\n- bread", ["Buy:", "- milk", "- bread"]),
        ("1. First thing\n2. Second. Third", ["1. First thing", "2. Second.", "Third"]),
        ("it was 1999. then 2000. Later", ["it was 1999. then 2000.", "Later"]),
        ("so small. really? yes! ok.", ["so small. really?", "yes!", "ok."]),
        (" . ", ["."]),
        ("", []),
    ],
)
def test_sentences_of_other_scripts_and_of_lists(text, expected):
    assert [text[start:end] for start, end in sentences(text, 0, len(text))] == expected


def test_sentences_are_packed_and_repeated_whole():
    text = "Aaaa aaa. Bbbb bbb. Cccc ccc. Dddd ddd."
    assert cut(text, "sentence:19/0") == ["Aaaa aaa. Bbbb bbb.", "Cccc ccc. Dddd ddd."]
    assert cut(text, "sentence:29/9") == ["Aaaa aaa. Bbbb bbb. Cccc ccc.", "Cccc ccc. Dddd ddd."]
    assert cut(text, "sentence:29/8") == ["Aaaa aaa. Bbbb bbb. Cccc ccc.", "Dddd ddd."]
    assert cut(text, "sentence:6/2,unit=words") == [
        "Aaaa aaa. Bbbb bbb. Cccc ccc.",
        "Cccc ccc. Dddd ddd.",
    ]


def test_a_sentence_that_is_too_long_is_cut_between_words_and_a_word_anywhere():
    assert cut("one two three four", "sentence:9/0") == ["one two", "three", "four"]
    assert cut("abcdefghij klm", "sentence:4/0") == ["abcd", "efgh", "ij", "klm"]


PAGE = """\
Front words.

# Guide #

## Install

Run it.

### Linux
Use the package.
```
# no heading
```

Second part
-----------

Text below
a rule over two lines
---

Title
=====
Body.
#hashtag
####### seven
"""


def test_sections_carry_the_path_of_their_headings():
    chunks = [
        (PAGE[one.start : one.end].splitlines()[0], one.section)
        for one in Chunker.parse("heading").cut(PAGE)
    ]
    assert chunks == [
        ("Front words.", None),
        ("# Guide #", "Guide > Install"),
        ("### Linux", "Guide > Install > Linux"),
        ("Second part", "Guide > Second part"),
        ("Title", "Title"),
    ]


def test_front_matter_is_no_heading():
    chunks = list(Chunker.parse("heading").cut("---\ntitle: x\n---\n\n# Real\ntext"))
    assert [one.section for one in chunks] == [None, "Real"]


def test_a_section_that_is_too_long_is_cut_into_sentences_under_the_same_heading():
    text = "# Head\n\nFirst one here. Second one here.\n\n## Short\n\nEnd."
    chunks = list(Chunker.parse("heading:24/0").cut(text))
    assert [(text[one.start : one.end], one.section) for one in chunks] == [
        ("# Head\n\nFirst one here.", "Head"),
        ("Second one here.", "Head"),
        ("## Short\n\nEnd.", "Head > Short"),
    ]


BLOCKS = st.sampled_from(
    [
        *("# One", "## Two ##", "###### Six", "   ### Three #", "#", "#no", "####### seven"),
        *("Alpha\n===", "Beta gamma\n---", "   Delta\n   =", "two\nlines", "A line.", "***", "---"),
        *("```\n# code\n```", "~~~~\n~~~\nx\n===\n~~~~", "- item\n\nend", "> quote", "    # code"),
        *("```inline``` code", "1. item\n\nend", "|a|b|\n|-|-|"),
    ]
)


def sections_by_a_parser(text):
    """Where sections start and their paths, by the headings that a Markdown parser finds."""
    lines = text.split("\n")
    starts = [sum(len(line) + 1 for line in lines[:at]) for at in range(len(lines) + 1)]
    tokens = MarkdownIt("commonmark").parse(text)
    opens = [at for at, one in enumerate(tokens) if one.type == "heading_open"]
    ends = [*(starts[tokens[at].map[0]] for at in opens), len(text)]
    sections = [(0, None)] if text[: ends[0]].strip() else []
    path, begun = [], ends[0]
    for at, end in zip(opens, ends[1:], strict=True):
        level = int(tokens[at].tag[1])
        path = [*(above for above in path if above[0] < level), (level, tokens[at + 1].content)]
        deeper = [one for one in opens if one > at][:1]
        alone = not text[starts[tokens[at].map[1]] : end].strip()
        if alone and deeper and int(tokens[deeper[0]].tag[1]) > level:
            continue
        sections.append((begun, " > ".join(title for _, title in path if title) or None))
        begun = end
    return [(len(text) - len(text[start:].lstrip()), section) for start, section in sections]


@given(st.lists(BLOCKS, max_size=12))
def test_headings_are_those_that_a_markdown_parser_finds(blocks):
    text = "\n\n".join(blocks)
    chunks = Chunker.parse("heading:9999/0").cut(text)
    assert [(one.start, one.section) for one in chunks] == sections_by_a_parser(text)


def test_attributes_are_carried_over_and_places_are_added():
    docs = Corpus.from_dict(
        {
            "a": {"text": "One. Two.", "version": "v2", "tags": ["x", "y"], "tokens": 4},
            "b": {"text": "Three.", "version": "v3", "tags": None, "tokens": 2},
        }
    )
    chunks = chunk_corpus(docs, {"algo": "sentence", "size": 5, "overlap": 0}).frame
    assert chunks.columns == ["item_id", "doc_id", "text", "start", "end", "version", "tags"]
    assert chunks.rows() == [
        ("a#00000", "a", "One.", 0, 4, "v2", ["x", "y"]),
        ("a#00001", "a", "Two.", 5, 9, "v2", ["x", "y"]),
        ("b#00000", "b", "Three", 0, 5, "v3", None),
        ("b#00001", "b", ".", 5, 6, "v3", None),
    ]


def test_an_id_with_a_hash_is_a_document_of_its_own():
    docs = Corpus.from_dict({"c#1": "One.", "c#2": "Two."})
    chunks = chunk_corpus(docs, {"algo": "fixed"}).frame
    assert chunks["item_id"].to_list() == ["c#1#00000", "c#2#00000"]
    assert chunks["doc_id"].to_list() == ["c#1", "c#2"]


def test_a_doc_id_of_its_own_names_the_document():
    docs = Corpus.from_dict({"1": {"text": "One.", "doc_id": "report"}})
    assert chunk_corpus(docs, {"algo": "fixed"}).frame["item_id"].to_list() == ["report#00000"]
    pages = Corpus.from_dict({n: {"text": "One.", "doc_id": "report"} for n in ("p1", "p2")})
    with pytest.raises(InputError, match="items 'p1' and 'p2' are both of document 'report'"):
        chunk_corpus(pages, {"algo": "fixed"})


def test_chunks_are_not_cut_again():
    chunks = chunk_corpus(Corpus.from_dict({"d": "One. Two."}), {"algo": "fixed"})
    with pytest.raises(InputError, match="they are chunks already"):
        chunk_corpus(chunks, {"algo": "fixed"})


@pytest.mark.parametrize("algo", ["fixed", "sentence", "heading"])
@pytest.mark.parametrize("blank", ["", "  \n\t\u00a0"])
def test_a_blank_document_has_no_chunk(algo, blank):
    docs = Corpus.from_dict({"a": {"text": blank, "language": "en"}})
    chunks = chunk_corpus(docs, {"algo": algo}).frame
    assert chunks.height == 0
    assert {"item_id", "doc_id", "text", "start", "end", "language"} <= set(chunks.columns)


def test_numbers_go_on_past_five_digits():
    chunks = chunk_corpus(Corpus.from_dict({"d": "x" * 100_001}), {"algo": "fixed", "size": 1})
    assert chunks.frame["item_id"][12] == "d#00012"
    assert chunks.frame["item_id"][-1] == "d#100000"


@pytest.mark.parametrize(
    ("given_", "told"),
    [
        ({"algo": "fixd"}, "algo is 'fixd'; it must be fixed, sentence or heading"),
        ({"size": 100}, "algo is missing; give fixed, sentence or heading"),
        ({"algo": "fixed", "sise": 1}, "unknown key 'sise'; did you mean size?"),
        ({"algo": "fixed", "size": 0}, "size is 0; it must be a whole number from 1"),
        ({"algo": "fixed", "size": True}, "size is True"),
        ({"algo": "fixed", "size": 2.5}, "size is 2.5"),
        ({"algo": "fixed", "overlap": -1}, "overlap is -1; it must be a whole number from 0"),
        ({"algo": "fixed", "size": 5, "overlap": 5}, "overlap is 5 and size is 5"),
        ({"algo": "fixed", "overlap": 1200}, "overlap is 1200 and size is 1200"),
        ({"algo": "fixed", "unit": "tokens"}, "unit is 'tokens'; it must be chars or words"),
    ],
)
def test_what_cannot_be_meant_is_refused(given_, told):
    with pytest.raises(UsageError) as refused:
        chunk_corpus(Corpus.from_dict({"d": "x"}), given_)
    assert told in str(refused.value)
    with pytest.raises(KaratError, match=r"karat\.yaml: "):
        Chunker.of(given_, Place("karat.yaml"))


def test_a_chunker_is_written_as_it_is_called():
    for text in ("fixed:1200/200", "sentence:240/40,unit=words", "heading:1/0"):
        assert Chunker.parse(text).name == text
    assert Chunker.parse("fixed") == Chunker.of({"algo": "fixed"}) == Chunker.parse("fixed:")
    assert Chunker.parse("fixed").name == "fixed:1200/200"
    assert Chunker.parse("fixed: size = 90 ").name == "fixed:90/15"
    assert Chunker.parse("sentence:unit=words").name == "sentence:240/40,unit=words"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fixd:3", "unknown chunker 'fixd' in 'fixd:3'; did you mean fixed?"),
        ("fixed:a", "'a' is not understood"),
        ("fixed:1/2/3", "'1/2/3' is not understood"),
        ("fixed:10,,", "'' is not understood"),
        ("fixed:size=a", "size is 'a'; it must be"),
        ("fixed:size=10,size=20", "size is given twice"),
        ("fixed:10,size=20", "size is given twice"),
        ("fixed:algo=heading", "algo is given twice"),
        ("fixed:10/20", "overlap is 20 and size is 10"),
        ("fixed:" + "9" * 5000, "is not understood"),
    ],
)
def test_a_misspelled_chunker_is_answered(text, told):
    with pytest.raises(UsageError) as refused:
        Chunker.parse(text)
    assert told in str(refused.value)


@pytest.mark.parametrize("spec", ["fixed", "sentence", "heading:unit=words"])
@pytest.mark.parametrize(
    "piece", ["A sentence of words. ", ".", " ", "\n", "e.g. ", "你好。", "a\n=\n"]
)
def test_a_million_characters_take_a_moment_whatever_they_are(piece, spec):
    text = "x" + piece * (1_000_000 // len(piece)) + "y"
    begun = time.process_time()
    assert sum(1 for _ in Chunker.parse(spec).cut(text))
    assert time.process_time() - begun < 10


def span_gold(spans):
    rows = [(query, *span, 1.0) for query, some in spans.items() for span in dict.fromkeys(some)]
    return Gold.from_frame(
        pl.DataFrame(rows, ["query_id", "item_id", "start", "end", "grade"], orient="row")
    )


def searched(corpus, queries, chunker, k=5):
    """The run of bm25 over chunks, through what a karat.yaml says, and the chunks."""
    spec = {"retriever": "bm25", "chunker": chunker}
    system_config = parse_systems({"s": spec}, Place("karat.yaml"))["s"]
    system = build_system(system_config, BuildContext(corpus=lambda: corpus))
    return system.search(queries, k), chunk_corpus(corpus, chunker)


def test_a_system_with_a_chunker_finds_chunks_and_logs_how_they_were_cut():
    docs = Corpus.from_dict({"a": "Apples are red. Plums are blue.", "b": "Grapes are green."})
    queries = Queries.from_dict({"q": "blue plums"})
    chunker = {"algo": "sentence", "size": 20, "overlap": 0}
    run, chunks = searched(docs, queries, chunker)
    assert run.hits["item_id"][0] == "a#00001"
    assert chunker.items() <= run.meta["chunker"].items()
    gold = span_gold({"q": [("a", 16, 31)]})
    scores = evaluate(run, gold, ["R@1"], settings={"level": "span"}, corpus=chunks)
    assert scores.means() == {"R@1": 1.0}


def chroma(*names):
    """The documents, questions and quoted places of Chroma's chunking evaluation."""
    texts = {name: (DATA / f"{name}.md").read_bytes().decode() for name in names}
    questions, spans = {}, {}
    with (DATA / "questions_df.csv").open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file)):
            if row["corpus_id"] not in names:
                continue
            questions[f"q{number}"] = row["question"]
            quotes = json.loads(row["references"])
            spans[f"q{number}"] = [
                (row["corpus_id"], one["start_index"], one["end_index"]) for one in quotes
            ]
            for one in quotes:
                text = texts[row["corpus_id"]]
                assert text[one["start_index"] : one["end_index"]] == one["content"]
    return texts, questions, spans


def found_share(spans, chunks):
    """By definition: the share of the spans half of whose characters are in the chunks."""
    seen = {(doc, at) for doc, start, end in chunks for at in range(start, end)}
    spans = set(spans)
    found = [
        sum((doc, at) in seen for at in range(start, end)) >= 0.5 * (end - start)
        for doc, start, end in spans
    ]
    return sum(found) / len(spans)


@pytest.mark.skipif(not DATA.is_dir(), reason="Chroma's chunking evaluation is not here")
@pytest.mark.parametrize("spec", ["fixed", "fixed:300/50", "sentence:400/0", "heading:600/100"])
def test_recall_of_quoted_passages_is_what_their_definition_gives(spec):
    texts, questions, spans = chroma("state_of_the_union", "chatlogs")
    docs, queries = Corpus.from_dict(texts), Queries.from_dict(questions)
    run, chunks = searched(docs, queries, Chunker.parse(spec).model_dump())
    scores = evaluate(
        run,
        span_gold(spans),
        ["R@5", "DistinctDocs@5"],
        settings={"level": "span"},
        queries=queries,
        corpus=chunks,
    )
    places = {
        row[0]: row[1:] for row in chunks.frame.select("item_id", "doc_id", "start", "end").rows()
    }
    lists = run.hits.sort("rank").group_by("query_id").agg("item_id")
    top = {query: [places[item] for item in items[:5]] for query, items in lists.rows()}
    assert len(questions) == 132
    for query, recall, docs_seen in scores.table.rows():
        assert recall == pytest.approx(found_share(spans[query], top[query]), abs=1e-12)
        assert docs_seen == len({doc for doc, _, _ in top[query]})
    assert 0.2 < scores.means()["R@5"] < 1
