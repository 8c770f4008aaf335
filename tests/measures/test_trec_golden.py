"""NIST's own outputs of trec_eval 9 and 10, and figures that were published."""

from __future__ import annotations

import nist
import pytest

import karat

pytestmark = pytest.mark.skipif(
    not nist.TREC_EVAL.is_dir(), reason="the public test collections are not here"
)

PLAIN = ("qrels.test", "results.test", {})
CASES = {
    "out.test": PLAIN,
    "out.test.a": PLAIN,
    "out.test.aq": PLAIN,
    "out.test.aqc": ("qrels.test", "results.trunc", {"missing": "zero"}),
    "out.test.aqcM": ("qrels.test", "results.trunc", {"missing": "zero", "depth": 100}),
    "out.test.aql": ("qrels.rel_level", "results.test", {"rel": 2}),
    "out.test.meas_params": PLAIN,
    "out.comment.test": ("qrels.comment.test", "results.comment.test", {}),
}
# How many values each file holds that karat offers: counted in the files, not by karat.
COMPARED = {
    ("v9", "out.test"): 28,
    ("v9", "out.test.a"): 63,
    ("v9", "out.test.aq"): 249,
    ("v9", "out.test.aqc"): 187,
    ("v9", "out.test.aqcM"): 187,
    ("v9", "out.test.aql"): 249,
    ("v9", "out.test.meas_params"): 68,
    ("v10", "out.test"): 28,
    ("v10", "out.test.a"): 68,
    ("v10", "out.test.aq"): 269,
    ("v10", "out.test.aqc"): 269,
    ("v10", "out.test.aqcM"): 269,
    ("v10", "out.test.aql"): 269,
    ("v10", "out.test.meas_params"): 68,
    ("v10", "out.comment.test"): 28,
}
PROFILE = {"v9": "trec", "v10": "trec10"}


def explained(version: str, out: str, name: str, query: str) -> bool:
    """Where karat differs from the printed value on purpose.

    Version 10 gives the query that -c adds no unjudged share and no residual, the best there
    is; karat gives a query without an answer the worst. Version 10 also weighs RBP by grade,
    read from memory that it never set, so that on graded gold it is no oracle.
    """
    of_gaps = nist.family(name) in {"unj", "rbp_resid"} and query in {"302", "all"}
    on_graded = name == "rbp" and query in {"301", "all"}
    return version == "v10" and (
        (of_gaps and out in {"out.test.aqc", "out.test.aqcM"})
        or (on_graded and out == "out.test.aql")
    )


def scored(version: str, out: str, measures: list[str]) -> karat.Scores:
    qrels, results, settings = CASES[out]
    folder = nist.TREC_EVAL / version
    gold = karat.read_gold(folder / qrels, duplicates="last" if version == "v9" else "refuse")
    run = karat.read_run(folder / results)
    return karat.evaluate(run, gold, measures, profile=PROFILE[version], settings=settings)


def values_of(scores: karat.Scores) -> dict[tuple[str, str], float | None]:
    """Every value by measure and query; trec_eval adds up what it counts, averages the rest."""
    values = {(name, "all"): mean for name, mean in scores.means().items()}
    for name in values.copy():
        column = scores.table[name[0]]
        if name[0].startswith("Num"):
            values[name] = column.sum()
        of_query = zip(scores.table["query_id"], column, strict=True)
        values |= {(name[0], query): value for query, value in of_query}
    return values


@pytest.mark.parametrize(("version", "out"), COMPARED, ids=lambda part: part)
def test_nist_golden_output_is_reproduced(version, out):
    golden = nist.printed(nist.TREC_EVAL / version / out)
    offered = {key: nist.karat_name(key[0]) for key in golden if nist.karat_name(key[0])}
    scores = scored(version, out, list(dict.fromkeys(offered.values())))
    values = values_of(scores)
    wrong, compared = {}, 0
    for (name, query), measure in offered.items():
        value = values[str(karat.parse_measure(measure)), query]
        printed = float(golden[name, query])
        agrees = value is not None and abs(value - printed) <= 5e-5 + 1e-9
        compared += 1
        if agrees == explained(version, out, name, query):
            wrong[name, query] = (value, printed)
    assert wrong == {}
    assert compared == COMPARED[version, out]


@pytest.mark.parametrize(("version", "out"), COMPARED, ids=lambda part: part)
def test_what_is_not_compared_is_not_offered(version, out):
    golden = nist.printed(nist.TREC_EVAL / version / out)
    left_out = {nist.family(name) for name, _ in golden if nist.karat_name(name) is None}
    assert left_out <= nist.NOT_OFFERED


def test_the_run_with_comments_keeps_the_hash_in_its_ids():
    run = karat.read_run(nist.TREC_EVAL / "v10" / "results.comment.test")
    assert run.hits["item_id"].str.contains("#", literal=True).all()


def test_an_interleaved_run_with_trailing_text_is_read_whole():
    run = karat.read_run(nist.TREC_EVAL / "v9" / "results.trunc")
    lines = (nist.TREC_EVAL / "v9" / "results.trunc").read_text().splitlines()
    assert run.hits.height == len([line for line in lines if line.strip()])


DL = nist.DATA / "trec-dl"
CACM = nist.DATA / "cacm"
SCIFACT = nist.DATA / "scifact"
PUBLISHED = [
    *(
        (
            f"DL{year} {system}",
            DL / "qrels" / f"qrels.dl{year}-passage.txt",
            DL / "runs" / system / f"trec_results_dl{year}_top100.txt",
            "nDCG@10",
            figure,
        )
        for year, system, figure in (
            (19, "BM25", 0.5058),
            (20, "BM25", 0.4796),
            (19, "BM25_RM3", 0.5216),
            (20, "BM25_RM3", 0.4896),
        )
    ),
    *(
        (
            f"CACM BM25 {measure}",
            CACM / "qrels.cacm.txt",
            CACM / "runs_made_here" / "anserini-0.22.1.bm25.run.gz",
            measure,
            figure,
        )
        for measure, figure in (("AP", 0.3123), ("P@30", 0.1942))
    ),
    *(
        (
            f"SciFact {system} {measure}",
            SCIFACT / "qrels.beir-v1.0.0-scifact.test.txt",
            SCIFACT / "runs_made_here" / file,
            measure,
            figure,
        )
        for system, file, measure, figure in (
            ("BM25", "anserini-0.22.1.bm25-flat.top1000.run.gz", "nDCG@10", 0.6789),
            ("BM25", "anserini-0.22.1.bm25-flat.top1000.run.gz", "R@100", 0.9253),
            ("MiniLM", "all-MiniLM-L6-v2.cosine.top100.run.gz", "nDCG@10", 0.6451),
        )
    ),
]


@pytest.mark.parametrize(
    ("qrels", "run", "measure", "figure"),
    [case[1:] for case in PUBLISHED],
    ids=[case[0] for case in PUBLISHED],
)
def test_published_figure_is_reproduced(qrels, run, measure, figure):
    scores = karat.evaluate(karat.read_run(run), karat.read_gold(qrels), measure, profile="trec")
    assert scores.means()[measure] == pytest.approx(figure, abs=5e-5)
