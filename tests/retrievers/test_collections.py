"""Cranfield, CACM and Vaswani end to end: from the files as they are handed out to a figure."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest
import pytrec_eval

import karat
from karat.data.tables import Corpus, Gold, Queries
from karat.formats.settings import Place
from karat.retrieve.build_context import BuildContext
from karat.retrieve.system import build_system
from karat.retrieve.system_config import parse_systems

DATA = Path(__file__).parents[2] / "../shared/data"
BM25 = {"retriever": "bm25", "stemmer": "english", "stopwords": "english"}

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="needs the collections")


def searched(corpus: dict, queries: dict[str, str], **options: float):
    system_config = parse_systems({"bm25": BM25 | options}, Place("karat.yaml"))["bm25"]
    table = Corpus.from_dict(corpus)
    system = build_system(system_config, BuildContext(corpus=lambda: table))
    return system.search(Queries.from_dict(queries), 1000)


def by_trec_eval(run, grades: dict[str, dict[str, int]], measures: set[str]) -> dict[str, float]:
    """The means that trec_eval's own code gives for the same lists."""
    lists: dict[str, dict[str, float]] = {}
    for query, item, rank in run.hits.select("query_id", "item_id", "rank").iter_rows():
        lists.setdefault(query, {})[item] = -float(rank)
    scored = pytrec_eval.RelevanceEvaluator(grades, measures).evaluate(lists)
    return {
        measure: sum(one[measure] for one in scored.values()) / len(grades)
        for measure in next(iter(scored.values()))
    }


def _cranfield_records(text: str) -> list[dict[str, str]]:
    records = []
    for record in re.split(r"^\.I ", text, flags=re.MULTILINE)[1:]:
        number, *fields = re.split(r"^\.([TABW])$", record, flags=re.MULTILINE)
        pairs = zip(fields[::2], fields[1::2], strict=True)
        records.append({"I": number.strip()} | {key: " ".join(to.split()) for key, to in pairs})
    return records


def cranfield() -> tuple[dict, dict[str, str], dict[str, dict[str, int]]]:
    """Corpus, queries and grades; 1 is their best grade, and queries go by their place."""
    folder = DATA / "cranfield"
    documents = _cranfield_records((folder / "cran.all.1400").read_text())
    corpus = {one["I"]: {"title": one["T"], "text": one["W"]} for one in documents}
    asked = _cranfield_records((folder / "cran.qry").read_text())
    queries = {str(place): one["W"] for place, one in enumerate(asked, 1)}
    grades: dict[str, dict[str, int]] = {}
    for line in (folder / "cranqrel").read_text().splitlines():
        query, item, code = line.split()
        grades.setdefault(query, {})[item] = max(0, 5 - int(code)) if int(code) > 0 else 0
    return corpus, queries, grades


def test_cranfield_with_its_grades_the_right_way_round():
    corpus, queries, grades = cranfield()
    assert (len(corpus), len(queries)) == (1400, 225)
    run = searched(corpus, queries)
    means = karat.evaluate(run, Gold.from_dict(grades), ["AP", "nDCG@10"]).means()
    told = by_trec_eval(run, grades, {"map", "ndcg_cut.10"})
    assert means["AP"] == pytest.approx(told["map"], abs=1e-6)
    assert means["nDCG@10"] == pytest.approx(told["ndcg_cut_10"], abs=1e-6)
    assert 0.25 < means["AP"] < 0.40
    upside_down = {
        query: {item: 5 - grade if grade else 0 for item, grade in items.items()}
        for query, items in grades.items()
    }
    wrong = karat.evaluate(run, Gold.from_dict(upside_down), ["nDCG@10"]).means()
    assert wrong["nDCG@10"] < means["nDCG@10"]


def cacm() -> tuple[dict[str, str], dict[str, str], dict[str, dict[str, int]]]:
    """Pages as they are, without their tags; some queries have no judgments."""
    folder = DATA / "cacm"
    corpus = {}
    with tarfile.open(folder / "cacm.tar.gz") as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(".html"):
                page = archive.extractfile(member).read().decode("latin-1")
                corpus[Path(member.name).stem] = re.sub(r"<[^>]*>", " ", page)
    topics = re.findall(
        r"<DOCNO>\s*(\d+)\s*</DOCNO>(.*?)</DOC>", (folder / "topics.cacm.txt").read_text(), re.S
    )
    grades: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels.cacm.txt").read_text().splitlines():
        query, _, item, grade = line.split()
        grades.setdefault(query, {})[item] = int(grade)
    return corpus, {query: text for query, text in topics if query in grades}, grades


def test_cacm_is_as_good_as_anserinis():
    corpus, queries, grades = cacm()
    assert len(corpus) == 3204
    run = searched(corpus, queries, k1=0.9, b=0.4)
    means = karat.evaluate(run, Gold.from_dict(grades), ["AP", "P@30"]).means()
    told = by_trec_eval(run, grades, {"map", "P.30"})
    assert means["AP"] == pytest.approx(told["map"], abs=1e-6)
    assert means["P@30"] == pytest.approx(told["P_30"], abs=1e-6)
    assert means["AP"] == pytest.approx(0.3123, abs=0.02)
    assert means["P@30"] == pytest.approx(0.1942, abs=0.01)


def vaswani() -> tuple[dict[str, str], dict[str, str], dict[str, dict[str, int]]]:
    folder = DATA / "vaswani"
    documents = re.findall(
        r"<DOCNO>(\d+)</DOCNO>\n(.*?)</DOC>", (folder / "corpus/doc-text.trec").read_text(), re.S
    )
    topics = re.findall(
        r"<num>(\d+)</num>\s*<title>\n(.*?)</title>", (folder / "query-text.trec").read_text(), re.S
    )
    grades: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels").read_text().splitlines():
        query, _, item, grade = line.split()
        grades.setdefault(query, {})[item] = int(grade)
    return dict(documents), dict(topics), grades


def test_vaswani_with_stems_and_stop_words():
    corpus, queries, grades = vaswani()
    assert (len(corpus), len(queries)) == (11_429, 93)
    run = searched(corpus, queries)
    means = karat.evaluate(run, Gold.from_dict(grades), ["AP", "nDCG@10"]).means()
    told = by_trec_eval(run, grades, {"map", "ndcg_cut.10"})
    assert means["AP"] == pytest.approx(told["map"], abs=1e-6)
    assert means["nDCG@10"] == pytest.approx(told["ndcg_cut_10"], abs=1e-6)
    assert 0.27 < means["AP"] < 0.32
