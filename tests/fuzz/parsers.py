"""Parsers of what users write by hand: measures, settings, gates, stories, and logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fuzz.oracle import same
from karat.analysis.sweep.curves import parse_ks
from karat.cli.options import parse_settings
from karat.data.columns import is_date
from karat.errors import KaratError
from karat.evaluation.gate_files import parse_gates, read_gate_file
from karat.evaluation.segments import By
from karat.evaluation.stages import thresholds_from
from karat.formats.blocks import parse_size
from karat.formats.runlog_schema import check_log
from karat.formats.story import parse_story
from karat.label.label_sets import read_judgments
from karat.label.labels import read_pairs, read_people
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measure, parse_measures
from karat.project.config import read_config
from karat.reports.outputs import parse_output

Folder = Callable[[], Path]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _file(folder: Folder, name: str, data: bytes) -> Path:
    path = folder() / name
    path.write_bytes(data)
    return path


def measures(_: Folder, data: bytes) -> None:
    """A measure's string reads as the same measure."""
    for measure in parse_measures(_text(data)):
        same(parse_measure(str(measure)), measure, "a measure and its name")


def settings(_: Folder, data: bytes) -> None:
    conventions_of("karat", parse_settings(_text(data).split("\n")))


def gate_lines(_: Folder, data: bytes) -> None:
    parse_gates([_text(data)], "gates")


def gates(folder: Folder, data: bytes) -> None:
    read_gate_file(_file(folder, "gates.yaml", data))


def config(folder: Folder, data: bytes) -> None:
    """A config that is read can say what each part of it is."""
    read = read_config(_file(folder, "karat.yaml", data))
    same(read.digest, read_config(folder() / "karat.yaml").digest, "the digest of a config")
    [read.output(one) for one in read.outputs]


def story(_: Folder, data: bytes) -> None:
    """The same text gives the same scenes with other line ends."""
    text = _text(data).replace("\r", "")
    told = parse_story(text)
    same(
        parse_story(text.replace("\n", "\r\n")).scenes, told.scenes, "a story with other line ends"
    )


def log(folder: Folder, data: bytes) -> None:
    check_log(_file(folder, "log.jsonl", data)).to_dict()


def judgments(folder: Folder, data: bytes) -> None:
    path = _file(folder, "labels.jsonl", data)
    for read in (lambda: read_judgments(path, rater="eva"), lambda: read_people([path])):
        try:
            read()
        except KaratError as error:
            refusal = error
        else:
            continue
        if not str(refusal):
            raise refusal
    read_pairs(path)


def words(_: Folder, data: bytes) -> None:
    """The small ones: each refuses with one line or reads."""
    text = _text(data)
    is_date(text)
    for read in (
        By.parse,
        parse_ks,
        parse_output,
        lambda one: thresholds_from([one]),
        lambda one: parse_size(one, "KARAT_MAX_LINE"),
    ):
        try:
            read(text)
        except KaratError as error:
            refusal = str(error)
            same(refusal.count("\n"), 0, "line ends in a refusal")


_MEASURES = (
    b"nDCG@10, R@{1,3,5}",
    b"nDCG(gain='exp')@10 P(rel=2)@5",
    b"nDCG(gain={1: 1, 2: 5.5})@3",
    b"latency.retrieve.p95 rbp.95 ndcg_cut_10 iprec_at_recall_0.10",
    b"AUC(of='RR') R@2000tok IPrec@0.5 FPR@k",
)
_MEASURE_WORDS = (
    *b"nDCG @10 @k @2000tok (rel=2) (gain='exp') {1:1} RR RBP(p=.8) AP".split(b" "),
    *b"( ) { } , = ' @ @{1,2}".split(b" "),
    *b"latency. cost. .p50 _cut_5 1e999 -1 9999999999999 \\ \" f'x' lambda __import__ **".split(
        b" "
    ),
)
_YAML_WORDS = (
    *b"&a *a <<: ! !!python/object | > - : ? {} [] # % @ ` \\ ~ null .nan .inf 1e400 0o7".split(
        b" "
    ),
    *b"gates: measures: settings: systems: by: outputs: --- ... \xef\xbb\xbf \xc2\x85 \t".split(
        b" "
    ),
    b"\n  ",
    b"\n- ",
    b": ",
)
_CONFIG = (
    (
        b"gold: gold.jsonl\nmeasures: [R@5, 'nDCG@10']\nprofile: trec\nseed: 7\n"
        b"settings: {ties: given, boot: 200}\nby: [language, 'a*b']\noutputs: out.html\n"
        b"primary: R@5\nmargin: 0.02\ncompare: true\n"
        b"systems:\n  bm25: {retriever: bm25, k1: 1.2}\n"
        b"  both:\n    retriever: fuse\n    of: [bm25]\n"
        b"gates:\n- R@5 >= 0.9\n- {measure: RR, min: 0.5, by: language, values: [pt-BR, 1]}\n"
    ),
)
_GATES = (
    b"- R@5 >= 0.90\n- mean RR > 0.6\n- R@5 [language=pt-BR] >= 0.85\n",
    (
        b"retrieval:\n  recall_at_5: {overall: 0.9, ptbr: 0.8}\nlatency:\n  retrieve_p50_ms: 20\n"
        b"generation:\n  faithfulness: 0.9\n"
    ),
    b"a: &a [1, 2]\ngates: [{measure: R@5, min: 0.1}]\n",
)
_STORY = (
    (
        b'Ch1 group begin\nSc1 group begin\n  Anna enters house with "a lamp" at night\n'
        b'  "Sc1" describes "rain\\"s end"\nSc1 group end\nCh1 group end\n'
    ),
    (
        b"#hint: begin\nx\n#hint: end\n/* a\n b */\n// c\nbeat b1 mapped to Sc1\n"
        b'A has type scene\nA meets "B"'
    ),
)
_STORY_WORDS = (
    *b'group begin end describes has type scene Sc1 Scene with at " \\" \\ /* */ // # #hint:'.split(
        b" "
    ),
    b"\n",
)
_LOG = (
    (
        b'{"query_id": "q1", "system": "s", "topk": [{"rank": 1, "chunk_id": "a"}], '
        b'"latency_ms": 3}\n'
        b'{"query_id": "q2", "error": "timeout", "k_raw": 50, '
        b'"as_of_range": ["2025-01-01","2025-02-01"]}\n'
    ),
)
_LABELS = (
    (
        b'{"query_id": "q1", "item_id": "a", "grade": 2, "rater": "eva", '
        b'"given_at": "2025-01-31T10:00:00Z"}\n'
        b'{"query_id": "q1", "item_id": "b", "grade": null, "cannot_tell": true, "rater": "bo"}\n'
    ),
    b"q1 0 a 1\nq1 0 b 0\n",
    (
        b'{"query_id": "q1", "item_id": "a", "query": "who", "text": "Anna", '
        b'"source": "adjudication"}\n'
    ),
)
_WORDS = (b"language*topic", b"1,2,5,10", b"html:out.html", b"R@5=0.9", b"64MB", b"2025-01-31")

PARSERS = (
    ("measures", measures, _MEASURES, _MEASURE_WORDS),
    ("settings", settings, (b"ties=given\nboot=200\nversions=v1<v2",), _MEASURE_WORDS),
    ("gate-lines", gate_lines, _GATES[0][2:].split(b"\n- "), _MEASURE_WORDS),
    ("gates", gates, _GATES, _YAML_WORDS),
    ("config", config, _CONFIG, _YAML_WORDS),
    ("story", story, _STORY, _STORY_WORDS),
    ("log", log, _LOG, ()),
    ("judgments", judgments, _LABELS, ()),
    ("words", words, _WORDS, _MEASURE_WORDS),
)
