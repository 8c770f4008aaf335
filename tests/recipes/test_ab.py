"""The recipe ``ab``: what the A/B harness's documentation says, held against what is written."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
from importlib.metadata import requires
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from karat.cli.main import main
from karat.project.recipes import init

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "seed-ab.md"
RECIPE = ROOT / "src" / "karat" / "recipes" / "ab"
METRICS = ("recall", "mrr", "ndcg")
A = "examples/quality/lexical_fusion.yaml"
B = "tests/examples/quality/normalizer_aliases.yaml"
BASE = "examples/quality/base.yaml"
FILES = {
    "--corpus": "tests/fixtures/rq/corpus.jsonl",
    "--queries": "tests/fixtures/rq/queries.tsv",
    "--truth": "tests/fixtures/rq/qrels.tsv",
}
DATA = " ".join(word for pair in FILES.items() for word in pair)
# As the document has it, but for the line that installs the package.
QUICKSTART = r"""
python scripts/rq_eval.py \
  --corpus  tests/fixtures/rq/corpus.jsonl \
  --queries tests/fixtures/rq/queries.tsv \
  --truth   tests/fixtures/rq/qrels.tsv \
  --configA examples/quality/lexical_fusion.yaml \
  --configB tests/examples/quality/normalizer_aliases.yaml \
  --k 10 \
  --out out/rq_eval.json \
  --csv out/rq_eval.csv \
  --emit-traces
"""


def shell(command: str, folder: Path | None = None, **environment: str):
    """A command as a reader types it, with karat's Python first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {key: value for key, value in os.environ.items() if key != "CLEMATIS_GIT_SHA"}
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**kept, "PATH": path, **environment},
        capture_output=True,
        check=False,
    )


def compared(a: str, b: str, *more: str) -> dict:
    """The JSON of ``karat ab`` on the recipe's data."""
    arguments = [*DATA.split(), "--configA", a, "--configB", b, "--out", "x.json", "--quiet", *more]
    assert main(["ab", *arguments]) == 0
    return json.loads(Path("x.json").read_bytes())


def table(name: str) -> list[list[str]]:
    return [line.split("\t") for line in Path(FILES[name]).read_text(encoding="utf-8").splitlines()]


def grades() -> dict[str, dict[str, float]]:
    judged: dict[str, dict[str, float]] = {query_id: {} for query_id, _ in table("--queries")}
    for query_id, item_id, grade in table("--truth"):
        judged[query_id][item_id] = float(grade)
    return judged


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """The recipe after the document's Quickstart; to be read, and left as it is."""
    folder = init("ab", str(tmp_path_factory.mktemp("recipes") / "ab")).folder
    return folder, shell(QUICKSTART, folder)


@pytest.fixture
def quickstart(started, monkeypatch):
    """The same, from within its folder."""
    monkeypatch.chdir(started[0])
    return started


@pytest.fixture
def document(quickstart) -> dict:
    return json.loads((quickstart[0] / "out" / "rq_eval.json").read_bytes())


# Quickstart


def test_the_quickstart_runs_as_written(quickstart):
    folder, done = quickstart
    assert done.returncode == 0, done.stderr
    out = done.stdout.decode().splitlines()
    assert out[0] == "Wrote JSON to out/rq_eval.json and CSV to out/rq_eval.csv"
    assert done.stderr.decode().splitlines() == [
        "karat: config A: no traces: tracing is off; set perf.enabled to true"
    ]
    assert {one.name for one in (folder / "out").iterdir()} == {"rq_eval.json", "rq_eval.csv"}


def test_the_page_shows_the_quickstart_of_the_document():
    assert QUICKSTART.strip() in PAGE.read_text(encoding="utf-8").replace("$ python", "python")


def test_traces_are_written_of_the_config_whose_gate_is_open(quickstart):
    folder, _ = quickstart
    lines = (folder / "logs" / "quality" / "rq_traces.jsonl").read_text().splitlines()
    traces = [json.loads(line) for line in lines]
    asked = [text for _, text in table("--queries")]
    assert [trace["query_id"] for trace in traces] == [
        hashlib.sha1(" ".join(text.lower().split()).encode()).hexdigest() for text in asked
    ]
    assert {trace["meta"]["reason"] for trace in traces} == {"enabled"}
    assert {trace["query"] for trace in traces} == {"[REDACTED]"}


def test_a_shadow_config_is_traced_too_and_changes_nothing(laid):
    laid("ab")
    document = compared(BASE, A, "--emit-traces")
    lines = Path("logs/quality/rq_traces.jsonl").read_text().splitlines()
    assert {json.loads(line)["meta"]["reason"] for line in lines} == {"shadow"}
    assert len(lines) == len(document["per_query"])


def test_nothing_is_asked_of_a_network(laid, monkeypatch):
    laid("ab")

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refused)
    monkeypatch.setattr(socket, "create_connection", refused)
    assert compared(A, B)["k"] == 10


def test_the_script_is_the_same_in_the_recipe_and_in_the_repository():
    recipe = (RECIPE / "scripts" / "rq_eval.py").read_bytes()
    assert recipe == (ROOT / "scripts" / "rq_eval.py").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "--queries"),
        ("--k ten", "--k"),
        (f"--queries {FILES['--truth']} --truth x --configA {A} --configB {B} --out x.json", "--c"),
        (
            DATA.replace("queries.tsv", "qrels.tsv") + f" --configA {A} --configB {B} --out x.json",
            "Expected 2 tab-separated columns on line 1 of tests/fixtures/rq/qrels.tsv, got 3",
        ),
    ],
)
def test_the_script_refuses_what_karat_ab_refuses(laid, run, arguments, said):
    folder = laid("ab")
    script = shell(f"python scripts/rq_eval.py {arguments}", folder)
    command = run("ab", *shlex.split(arguments))
    assert (script.returncode, script.stderr.decode()) == (command.code, command.err)
    assert script.returncode == 2
    assert said in script.stderr.decode()
    assert script.stderr.count(b"\n") == 1
    assert not (folder / "x.json").exists()


def test_what_the_script_needs_comes_with_karat():
    script = (RECIPE / "scripts" / "rq_eval.py").read_text()
    imported = [line for line in script.splitlines() if line.startswith(("import", "from"))]
    assert imported == ["import sys", "from karat.cli.main import main"]
    needed = [one.lower() for one in requires("karat") or () if "extra" not in one]
    assert any(one.startswith("pyyaml") for one in needed)


# Inputs


def test_the_data_is_large_enough_to_show_something_and_fits_together(laid):
    laid("ab")
    lines = Path(FILES["--corpus"]).read_text(encoding="utf-8").splitlines()
    items = [json.loads(line) for line in lines]
    assert len(items) >= 40
    assert all(item.keys() == {"id", "text"} for item in items)
    assert len(table("--queries")) >= 24
    judged = {item_id for _, item_id, _ in table("--truth")}
    assert judged <= {item["id"] for item in items}
    assert {grade for _, _, grade in table("--truth")} == {"0", "1", "2"}


def test_configs_are_not_changed(laid):
    laid("ab")
    names = [A, B, BASE, "examples/quality/aliases.yaml", *FILES.values()]
    before = {name: (Path(name).read_bytes(), Path(name).stat().st_mtime_ns) for name in names}
    compared(A, B, "--emit-traces")
    assert main(["run", "--quiet"]) == 0
    after = {name: (Path(name).read_bytes(), Path(name).stat().st_mtime_ns) for name in names}
    assert after == before


def test_every_part_of_the_candidate_changes_something(laid):
    laid("ab")
    whole = yaml.safe_load(Path(B).read_text(encoding="utf-8"))
    steps = {}
    for name in ("mmr", "aliasing"):
        whole["t2"]["quality"].pop(name)
        Path(f"without_{name}.yaml").write_text(json.dumps(whole))
    order = [BASE, A, "without_aliasing.yaml", "without_mmr.yaml", B]
    for one, other in pairwise(order):
        steps[other] = compared(one, other)
    for name in (A, "without_aliasing.yaml", "without_mmr.yaml"):
        assert steps[name]["delta"]["macro"]["ndcg"] > 0.05, name
    changed = [row for row in steps[B]["per_query"] if row["A"] != row["B"]]
    assert changed


def test_a_mode_that_is_not_score_interp_leaves_the_base_ranking_and_says_so(laid, capsys):
    laid("ab")
    document = compared(BASE, "examples/quality/rank_mode.yaml")
    assert set(document["delta"]["macro"].values()) == {0.0}
    assert "fusion.mode 'rank' does nothing; score_interp is what fuses" in capsys.readouterr().err
    assert yaml.safe_load(Path(B).read_text())["t2"]["quality"]["fusion"]["mode"] == "score_interp"


# Metrics


def test_recall_is_that_of_the_document_s_own_hits(document):
    judged = grades()
    for row in document["per_query"]:
        relevant = {item for item, grade in judged[row["qid"]].items() if grade > 0}
        for side in "AB":
            assert set(row[side]["hits"]) <= judged[row["qid"]].keys()
            found = len(relevant & set(row[side]["hits"]))
            assert row[side]["recall"] == (found / len(relevant) if relevant else 0)


def test_numbers_are_those_of_the_lists_that_were_returned(laid):
    laid("ab")
    assert main(["run", "--quiet"]) == 0
    document = json.loads(Path("out/rq_eval.json").read_bytes())
    rows = {row["qid"]: row for row in document["per_query"]}
    for side in "AB":
        log = [json.loads(line) for line in Path(f"runs/{side}.jsonl").read_text().splitlines()]
        for record in log:
            gain = grades()[record["query_id"]]
            top = [hit["chunk_id"] for hit in record["topk"]][:10]
            places = [at for at, item in enumerate(top, 1) if gain.get(item, 0) > 0]
            dcg = sum((2 ** gain[top[at - 1]] - 1) / math.log2(at + 1) for at in places)
            best = sorted((grade for grade in gain.values() if grade > 0), reverse=True)[:10]
            ideal = sum((2**grade - 1) / math.log2(at + 1) for at, grade in enumerate(best, 1))
            found = rows[record["query_id"]][side]
            assert found["hits"] == [item for item in top if item in gain]
            assert found["mrr"] == pytest.approx(1 / places[0] if places else 0)
            assert found["recall"] == pytest.approx(len(places) / len(best) if best else 0)
            assert found["ndcg"] == pytest.approx(dcg / ideal if ideal else 0)
        for metric in METRICS:
            mean = statistics.fmean(row[side][metric] for row in rows.values())
            assert document["systems"][side]["metrics"]["macro"][metric] == pytest.approx(mean)


def test_a_query_without_a_relevant_item_counts_0_in_the_mean(document):
    (empty,) = (query_id for query_id, judged in grades().items() if not any(judged.values()))
    row = next(row for row in document["per_query"] if row["qid"] == empty)
    for side in "AB":
        assert {row[side][metric] for metric in METRICS} == {0.0}
        assert row[side]["hits"]
    assert len(document["per_query"]) == len(table("--queries"))


def test_the_page_s_worked_example_at_rank_1(laid):
    laid("ab")
    Path("q.tsv").write_text("q1\tlighthouse\n")
    Path("t.tsv").write_text("q1\td1\t2\nq1\td2\t1\n")
    Path("a.trec").write_text("q1 Q0 d3 1 3 x\nq1 Q0 d2 2 2 x\nq1 Q0 d1 3 1 x\n")
    given = ["--queries", "q.tsv", "--truth", "t.tsv", "--runA", "a.trec", "--runB", "a.trec"]
    configs = ["--configA", BASE, "--configB", BASE, "--out", "x.json", "--quiet"]
    for k, expected in (("1", [0.0, 0.0, 0.0]), ("3", [1.0, 0.5, 0.58688])):
        assert main(["ab", *given, *configs, "--k", k]) == 0
        macro = json.loads(Path("x.json").read_bytes())["systems"]["A"]["metrics"]["macro"]
        assert [round(macro[metric], 5) for metric in METRICS] == expected


# Output files


def test_the_json_has_the_document_s_keys(document):
    assert document["schema_version"] == 1
    assert document["k"] == 10
    for name, file in FILES.items():
        key = {"--truth": "qrels"}.get(name, name.strip("-"))
        digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        assert document[f"{key}_digest"] == digest
    for side, config in (("A", A), ("B", B)):
        system = document["systems"][side]
        said = json.dumps(
            yaml.safe_load(Path(config).read_text()), sort_keys=True, separators=(",", ":")
        )
        assert system["config_path"] == config
        assert system["config_digest"] == hashlib.sha256(said.encode()).hexdigest()
    macros = [document["systems"][side]["metrics"]["macro"] for side in "AB"]
    assert document["delta"] == {
        "macro": {metric: macros[1][metric] - macros[0][metric] for metric in METRICS}
    }
    for row in document["per_query"]:
        assert row.keys() == {"qid", "A", "B", "delta"}
        for metric in METRICS:
            assert row["delta"][metric] == row["B"][metric] - row["A"][metric]


def test_the_json_s_bytes_are_sorted_and_end_without_a_line_end(quickstart):
    data = (quickstart[0] / "out" / "rq_eval.json").read_bytes()
    again = json.dumps(json.loads(data), sort_keys=True, indent=2, ensure_ascii=False)
    assert data == again.encode()


def test_the_csv_is_the_json_by_row(quickstart, document):
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(["qid", "system", *METRICS, "hits"])
    for row in document["per_query"]:
        for side in "AB":
            values = [f"{row[side][metric]:.6f}" for metric in METRICS]
            writer.writerow([row["qid"], side, *values, ",".join(row[side]["hits"])])
    data = (quickstart[0] / "out" / "rq_eval.csv").read_bytes()
    assert data == buffer.getvalue().encode()
    assert data.count(b"\r\n") == data.count(b"\n") == 1 + 2 * len(table("--queries"))


def test_karat_run_writes_the_same_bytes_and_a_verdict(quickstart, laid, capsys):
    names = ("rq_eval.json", "rq_eval.csv")
    before = [(quickstart[0] / "out" / name).read_bytes() for name in names]
    folder = laid("ab")
    assert main(["run"]) == 0
    assert [(folder / "out" / name).read_bytes() for name in names] == before
    assert "BETTER" in capsys.readouterr().out
    assert (folder / "out" / "report.md").is_file()


# Determinism


@pytest.mark.parametrize("seed", ["0", "77"])
def test_another_folder_and_other_hashes_give_the_same_bytes(quickstart, tmp_path, seed):
    folder, _ = quickstart
    other = tmp_path / "some" / "where else"
    shutil.copytree(folder, other, ignore=shutil.ignore_patterns("out", "logs"))
    assert shell(QUICKSTART, other, PYTHONHASHSEED=seed).returncode == 0
    for name in ("out/rq_eval.json", "out/rq_eval.csv", "logs/quality/rq_traces.jsonl"):
        assert (other / name).read_bytes() == (folder / name).read_bytes()


def test_no_output_holds_the_folder_it_was_made_in(quickstart):
    folder, _ = quickstart
    names = ("out/rq_eval.json", "out/rq_eval.csv", "logs/quality/rq_traces.jsonl")
    data = {name: (folder / name).read_bytes() for name in names}
    # Paths are told as they were given, and there is a row or a trace for every query.
    assert A.encode() in data[names[0]]
    asked = len((folder / FILES["--queries"]).read_text().splitlines())
    assert all(data[name].count(b"\n") >= asked >= 24 for name in names)
    for name in names:
        assert str(folder).encode() not in data[name], name


# Troubleshooting


def test_zero_metrics_are_no_error_and_explained(laid, capsys):
    laid("ab")
    Path("strict.yaml").write_text("t2: {sim_threshold: 0.9}\n")
    document = compared("strict.yaml", A)
    assert set(document["systems"]["A"]["metrics"]["macro"].values()) == {0.0}
    assert "config A: queries without a candidate above sim_threshold 0.9: 29" in (
        capsys.readouterr().err
    )


def test_the_page_s_examples_print_what_it_says(examples):
    page = PAGE.read_text(encoding="utf-8")
    assert page == examples.refreshed(page), f"run: python docs/examples.py docs/{PAGE.name}"


def test_the_page_has_the_document_s_headings():
    page = PAGE.read_text(encoding="utf-8")
    for heading in (
        "## Quickstart",
        "## Inputs",
        "### Queries (TSV)",
        "### Qrels / Truth (TSV)",
        "### Corpus (JSONL, optional)",
        "### Configs (YAML)",
        "## Metrics (definitions)",
        "## Output files",
        "### JSON (stable keys)",
        "### CSV",
        "## Determinism & reproducibility",
        "## Exit codes",
        "## Troubleshooting (CLI-specific)",
    ):
        assert f"\n{heading}\n" in page
