"""``karat search`` with the http retriever: logs, failures, and going on after a stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

from servers import Raw, free_port, hits, karat, logged, reply, write_queries


def set_up(folder, url, n, more=""):
    (folder / "karat.yaml").write_text(
        "queries: queries.jsonl\nsystems:\n  live:\n    retriever: http\n"
        f'    url: {url}/s\n    body: {{q: "{{query}}", id: "{{query_id}}"}}\n{more}'
    )
    write_queries(folder, n)


def sometimes(connection, got):
    """Every tenth query fails, each third of them in another way; the rest succeed."""
    number = int(got.json["id"][1:])
    time.sleep(0.001 * (number * 7 % 5))
    bad = [reply("no", status="400 Bad Request"), reply("<p>", kind="text/html"), reply({"x": 1})]
    connection.sendall(bad[number // 10 % 3] if number % 10 == 0 else reply(hits(number, "z")))
    return True


def test_failed_calls_are_logged_with_their_reasons_and_counted(tmp_path):
    with Raw(sometimes) as server:
        set_up(tmp_path, server.url, 40)
        done = karat("search", "--concurrency", "16", folder=tmp_path)
        fine = karat("search", "--max-failures", "0.1", "--json", folder=tmp_path)
    assert done.returncode == 3
    assert "live: 40 calls, 4 failed" in done.stdout
    assert "2 × answered 400 Bad Request: no" in done.stdout
    assert "karat: partial: too many calls of live failed" in done.stderr
    log = logged(tmp_path / "runs" / "live.jsonl")
    assert [line["query_id"] for line in log] == [f"q{i:03}" for i in range(40)]
    errors = {line["query_id"]: line["error"] for line in log if "error" in line}
    assert errors == {
        "q000": "answered 400 Bad Request: no",
        "q010": "returned text/html that begins '<p>'; JSON is expected",
        "q020": "hits: hits[] finds no list; the answer is {x: number}",
        "q030": "answered 400 Bad Request: no",
    }
    assert all(line["topk"] == [] for line in log if "error" in line)
    assert fine.returncode == 0, fine.stderr
    assert json.loads(fine.stdout)[0]["failed"] == 4


def test_a_service_that_is_down_costs_no_earlier_log_or_report(tmp_path):
    def fine(connection, got):
        connection.sendall(reply(hits(int(got.json["id"][1:]), "z")))
        return True

    with Raw(fine) as server:
        more = "    retries: 0\nmeasures: [R@1, RR]\noutputs: [report.json, report.html]\n"
        set_up(tmp_path, server.url, 12, more)
        gold = [f"q{i:03} 0 {i} 1" for i in range(12)]
        (tmp_path / "gold.txt").write_text("\n".join(gold) + "\n")
        config = (tmp_path / "karat.yaml").read_text()
        (tmp_path / "karat.yaml").write_text(config + "gold: gold.txt\n")
        up = karat("run", folder=tmp_path)
    assert up.returncode == 0, up.stderr
    names = ["runs/live.jsonl", "report.json", "report.html"]
    before = {name: (tmp_path / name).read_bytes() for name in names}
    for options in (["run"], ["run", "--quiet"], ["run", "--fresh"], ["search", "--restart"]):
        down = karat(*options, folder=tmp_path)
        assert down.returncode == 2, options
        assert "live.failed.jsonl" in down.stderr
        assert {name: (tmp_path / name).read_bytes() for name in names} == before
        failed = logged(tmp_path / "runs" / "live.failed.jsonl")
        assert [bool(line["error"]) for line in failed] == [True] * 12
        (tmp_path / "runs" / "live.failed.jsonl").unlink()


def test_a_first_log_of_failed_calls_is_under_its_own_name(tmp_path):
    set_up(tmp_path, f"http://127.0.0.1:{free_port()}", 3)
    for _ in range(2):
        done = karat("search", "--retries", "0", "--quiet", folder=tmp_path)
        assert done.returncode == 2
        assert "all 3 calls failed" in done.stderr
        assert [path.name for path in (tmp_path / "runs").iterdir()] == ["live.jsonl"]
    assert all(line["error"] for line in logged(tmp_path / "runs" / "live.jsonl"))


def test_the_log_is_the_same_at_any_concurrency(tmp_path):
    with Raw(sometimes) as server:
        set_up(tmp_path, server.url, 60)
        logs = []
        for concurrency in ("1", "16"):
            log = tmp_path / f"at{concurrency}.jsonl"
            options = ["--concurrency", concurrency, "--no-latency", "-o", str(log)]
            assert karat("search", *options, folder=tmp_path).returncode == 3
            logs.append(log.read_bytes())
    assert logs[0] == logs[1]


def test_a_run_that_is_killed_goes_on_to_the_same_log(tmp_path):
    def act(connection, got):
        time.sleep(0.02)
        return sometimes(connection, got)

    with Raw(act) as server:
        set_up(tmp_path, server.url, 80, "    max_failures: 0.2\n")
        options = ["search", "--concurrency", "4", "--no-latency", "-o"]
        command = [sys.executable, "-m", "karat", *options, "killed.jsonl"]
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        part = tmp_path / "killed.jsonl.part"
        deadline = time.monotonic() + 60
        while not (part.is_file() and part.read_bytes().count(b"\n") >= 10):
            assert process.poll() is None, process.stdout.read()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        # What was on its way to the server has arrived by then.
        time.sleep(0.5)
        kept = part.read_bytes().count(b"\n")
        assert 10 <= kept < 80
        before = len(server.requests)
        resumed = karat(*options, "killed.jsonl", "--resume", folder=tmp_path)
        assert resumed.returncode == 0, resumed.stderr
        assert len(server.requests) - before == 80 - kept
        whole = karat(*options, "whole.jsonl", folder=tmp_path)
        assert whole.returncode == 0, whole.stderr
    assert (tmp_path / "killed.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert not part.exists()


def test_a_service_that_is_down_fails_every_call_and_does_not_take_forever(tmp_path):
    port = free_port()
    set_up(tmp_path, f"http://127.0.0.1:{port}", 30, "    retries: 0\n")
    done = karat("search", folder=tmp_path)
    assert done.returncode == 2
    assert f"30 × cannot connect to 127.0.0.1:{port}: Connection refused" in done.stdout
    assert len(logged(tmp_path / "runs" / "live.jsonl")) == 30


def test_the_time_limit_of_the_command_line_reaches_the_call(tmp_path):
    stop = threading.Event()
    with Raw(lambda connection, got: stop.wait(20)) as server:
        set_up(tmp_path, server.url, 1, "    retries: 0\n")
        done = karat("search", "--timeout", "0.2", folder=tmp_path)
        stop.set()
    assert f"127.0.0.1:{server.port} took longer than 0.2 s" in done.stdout
    assert done.returncode == 2


def test_a_credential_in_the_file_is_one_line_and_exit_code_2(tmp_path):
    set_up(tmp_path, "http://127.0.0.1:1", 1, "    headers: {Authorization: Bearer s3cr3t}\n")
    done = karat("search", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("karat: karat.yaml:7: header Authorization holds a credential")
    assert done.stderr.count("\n") == 1
    assert "s3cr3t" not in done.stdout + done.stderr
