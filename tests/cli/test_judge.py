"""``karat judge`` on the command line: labels, exit codes, what is refused, and its page."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

KEY = "sk-very-secret-0123456789"
ROOT = Path(__file__).parents[2]


class Endpoint:
    """Grades every pair 1 after ``delay`` seconds, or says ``content``.

    The first ``busy`` calls are told to come back in a fifth of a second.
    """

    def __init__(self, delay=0.0, content='{"relevance": 1, "rationale": "so-so"}', busy=0):
        self.delay, self.content, self.busy, self.asked = delay, content, busy, []
        self.tokens = {"usage": {"prompt_tokens": 50, "completion_tokens": 5}}

    def __enter__(self):
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.asked.append(body)
                time.sleep(outer.delay)
                message = {"role": "assistant", "content": outer.content}
                answer = {
                    "choices": [{"message": message, "finish_reason": "stop"}],
                    **outer.tokens,
                }
                data = json.dumps(answer).encode()
                busy = len(outer.asked) <= outer.busy
                self.send_response(429 if busy else 200)
                if busy:
                    self.send_header("Retry-After", "0.2")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_): ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


@pytest.fixture
def pool(tmp_path, monkeypatch):
    """Twelve pairs in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    rows = [
        {
            "query_id": f"q{at // 4}",
            "item_id": f"d{at}",
            "query": f"red door {at // 4}",
            "text": ["a red door", "the red sea", "nothing", f"door {at // 4} is red"][at % 4],
        }
        for at in range(12)
    ]
    Path("pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def rows(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_the_stand_in_makes_labels_that_every_command_reads_as_gold(pool, run):
    done = run("judge", "pool.jsonl", "--judge", "overlap", "-o", "labels.jsonl")
    assert (done.code, done.err) == (0, "")
    # Of "red door 0": two of three words, one, none, all three.
    assert [row["grade"] for row in rows("labels.jsonl")] == [2, 1, 0, 2] * 3
    assert "12 pairs: 6 of grade 2, 3 of grade 1, 3 of grade 0 → labels.jsonl" in done.out
    assert done.out.startswith("overlap@")
    Path("run.jsonl").write_text(
        "".join(
            json.dumps({"query_id": f"q{at}", "topk": [f"d{at * 4 + 2}", f"d{at * 4}"]}) + "\n"
            for at in range(3)
        )
    )
    scored = run("eval", "run.jsonl", "--gold", "labels.jsonl", "-m", "P@2", "--json")
    assert scored.code == 0
    [system] = json.loads(scored.out)["systems"]
    # d0, d4 and d8 are relevant, d2, d6 and d10 are not.
    assert system["measures"]["P@2"]["mean"] == 0.5
    assert run("convert", "labels.jsonl", "qrels.txt", "--kind", "gold").code == 0
    assert "q0 0 d1 1" in Path("qrels.txt").read_text()


def test_answers_of_models_that_think_and_use_markdown_are_read(pool, run):
    content = '<think>2? {No}.</think>\n```json\n{"relevance": "1", "rationale": "so-so"}\n```'
    with Endpoint(content=content) as endpoint:
        done = run("judge", "pool.jsonl", "--url", endpoint.url, "--model", "m", "-o", "a.jsonl")
    assert done.code == 0
    assert {(row["grade"], row["rationale"]) for row in rows("a.jsonl")} == {(1, "so-so")}


def test_an_endpoint_that_is_down_is_named_and_no_labels_are_written(pool, run):
    with Endpoint() as endpoint:
        url = endpoint.url
    done = run("judge", "pool.jsonl", "--url", url, "--model", "m", "-o", "a.jsonl", "--retries=0")
    assert (done.code, done.out) == (2, "")
    assert url in done.err
    assert "refused" in done.err
    assert not list(pool.glob("a.jsonl*"))


def test_a_model_is_asked_once_and_then_the_cache_answers(pool, run):
    with Endpoint() as endpoint:
        call = ("judge", "pool.jsonl", "--url", endpoint.url, "--model", "m")
        prices = ("--price-in", "2", "--price-out", "10")
        done = run(*call, "-o", "a.jsonl", *prices)
        assert done.code == 0
        # 12 x 50 tokens at 2 and 12 x 5 at 10, each a million.
        spent = "12 pairs asked, 600 prompt tokens, 60 completion tokens, cost 0.0018"
        assert spent in done.out
        again = run(*call, "-o", "b.jsonl", "--json")
        told = json.loads(again.out)
        assert (told["cached"], told["asked"], told["cost"]) == (12, 0, None)
        assert len(endpoint.asked) == 12
        run(*call, "-o", "c.jsonl", "--cache", "elsewhere", "--limit", "2")
        assert len(endpoint.asked) == 14
    assert Path("a.jsonl").read_bytes() == Path("b.jsonl").read_bytes()
    assert len(rows("c.jsonl")) == 2
    assert sorted(path.name for path in Path(".karat").iterdir()) == ["judgments.jsonl"]


def test_too_many_failures_leave_with_3_and_no_grade(pool, run):
    with Endpoint(content="It is quite relevant.") as endpoint:
        call = ("judge", "pool.jsonl", "--url", endpoint.url, "--model", "m", "-o", "l.jsonl")
        done = run(*call)
        assert done.code == 3
        assert "12 × the answer is not JSON" in done.out
        told = "karat: partial: 12 of 12 pairs could not be judged; retry them with --resume"
        assert told in done.err
        assert all("grade" not in row and row["error"] for row in rows("l.jsonl"))
        assert run(*call, "--max-failures", "1", "--quiet").code == 0
    refused = run("eval", "l.jsonl", "--gold", "l.jsonl")
    assert refused.code == 2
    assert "holds no grade: 12 labels failed; judge its pairs again" in refused.err


def test_that_it_waits_is_said_unless_it_shall_be_quiet(pool, run, monkeypatch):
    monkeypatch.setattr("karat.label.judge._REPORTED_WAIT", 0.1)
    # Half a second is longer than what is asked for, and both are waited out.
    told = "karat: the endpoint answered 429: waiting 0 s\n"
    for more, err in (((), told), (("--quiet",), "")):
        with Endpoint(busy=1) as endpoint:
            call = ("judge", "pool.jsonl", "--url", endpoint.url, "--model", "m", "--limit", "1")
            done = run(*call, "-o", f"l{len(more)}.jsonl", "--cache", f"c{len(more)}", *more)
        assert (done.code, done.err) == (0, err)


def test_progress_of_one_call_is_of_one_call(pool, run, monkeypatch):
    for name in ("_LINE_SECONDS", "_RATE_SECONDS"):
        monkeypatch.setattr(f"karat.cli.progress.{name}", 0.0)
    for many, words in ((1, " 1 of 1 call, "), (2, " 2 of 2 calls, ")):
        call = ("judge", "pool.jsonl", "--judge", "overlap", "--limit", str(many))
        assert words in run(*call, "-o", f"{many}.jsonl").err


def test_one_answer_that_does_not_say_what_it_took_is_one(pool, run):
    with Endpoint() as endpoint:
        endpoint.tokens = {}
        call = ("judge", "pool.jsonl", "--url", endpoint.url, "--model", "m")
        one = run(*call, "--limit", "1", "-o", "one.jsonl", "--cache", "one").out
        two = run(*call, "--limit", "2", "-o", "two.jsonl", "--cache", "two").out
    assert "1 without a count of tokens" in one
    assert "2 without a count of tokens" in two


def test_ctrl_c_keeps_what_was_judged_and_resume_gives_the_same_bytes(pool, run):
    with Endpoint() as endpoint:
        call = ["judge", "pool.jsonl", "--url", endpoint.url, "--model", "m"]
        run(*call, "-o", "whole.jsonl", "--cache", "one")
        endpoint.delay = 0.2
        command = [sys.executable, "-m", "karat", *call, "-o", "cut.jsonl", "--cache", "two"]
        going = subprocess.Popen(
            [*command, "--concurrency", "1"], stderr=subprocess.PIPE, text=True
        )
        part, end = pool / "cut.jsonl.part", time.monotonic() + 60
        while time.monotonic() < end and (not part.exists() or not part.stat().st_size):
            time.sleep(0.02)
        going.send_signal(signal.SIGINT)
        _, told = going.communicate(timeout=30)
        assert going.returncode == 130
        assert re.search(r"interrupted; \d+ of 12 pairs are kept in .*--resume", told)
        endpoint.delay = 0.0
        assert run(*call, "-o", "cut.jsonl", "--cache", "two").code == 2
        done = run(*call, "-o", "cut.jsonl", "--cache", "two", "--resume")
        assert done.code == 0
        assert "from before" in done.out
    assert Path("cut.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()
    assert not part.exists()


def test_the_key_of_the_environment_is_used_and_never_shown(pool, run, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    with Endpoint(content=f"my key is {KEY}") as endpoint:
        call = ("judge", "pool.jsonl", "--url", endpoint.url, "--model", "m", "-o", "l.jsonl")
        done = run(*call, "--key-env", "MY_KEY", "--json")
    assert done.code == 3
    written = "".join(path.read_text() for path in pool.rglob("*") if path.is_file())
    assert "secret" not in done.out + done.err + written
    assert "${MY_KEY}" in written


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "--url is missing; a model needs --url URL --model NAME"),
        (("--url", "http://127.0.0.1:1/v1"), "--model is missing"),
        (("--judge", "overlop"), "unknown judge 'overlop'; did you mean overlap?"),
        (("--judge", "overlap", "--model", "m"), "--model is for a model; leave it out"),
        (("--judge", "overlap", "--cache", "x"), "--cache is for a model"),
        (("--judge", "overlap", "--price-in", "1", "--price-out", "1"), "--price-in is for a"),
        (("--judge", "overlap", "--resume", "--restart"), "give one of them"),
        (("--judge", "overlap", "--max-failures", "2"), "--max-failures is '2'; a number from 0"),
        (("--judge", "overlap", "--limit", "0"), "--limit is '0'"),
        (("--url", "nowhere", "--model", "m"), "--url must be the base of an endpoint"),
        (("--url", "http://127.0.0.1:1", "--model", "m", "--rate", "0"), "--rate is '0'"),
        (("--url", "http://127.0.0.1:1", "--model", "m", "--timeout", "-1"), "--timeout is '-1'"),
        (("--url", "http://127.0.0.1:1", "--model", "m", "--retries", "x"), "--retries is 'x'"),
        (("--url", "http://127.0.0.1:1", "--model", "m", "--concurrency", "0"), "--concurrency"),
        (("--url", "http://127.0.0.1:1", "--model", "m", "--price-in", "1"), "go together"),
        (
            ("--url", "http://127.0.0.1:1", "--model", "m", "--body", "[1]"),
            "--body is not a JSON obj",
        ),
        (("--url", "http://127.0.0.1:1", "--model", "m", "--body", "{x"), "--body is not valid J"),
        (("--url", "http://127.0.0.1:1", "--model", "m", "--key-env", "NOPE"), "names NOPE, which"),
        (("--url", "http://127.0.0.1:1", "--model", "m", "--key-env="), "--key-env is empty; name"),
        (("--url", "http://127.0.0.1:1", "--model", "m", "--prompt", "p.md"), "has no {query}"),
        (("--url", "http://127.0.0.1:1", "--model", "m", "--cache", ""), "--cache is empty"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_any_call(pool, run, arguments, told):
    Path("p.md").write_text("judge this: {text}")
    done = run("judge", "pool.jsonl", "-o", "labels.jsonl", *arguments)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1
    assert not Path("labels.jsonl").exists()
    assert not Path(".karat").exists()


def test_a_pool_that_cannot_be_judged_is_refused(pool, run):
    call = ("--judge", "overlap", "-o", "labels.jsonl")
    assert "nowhere.jsonl: no such file" in run("judge", "nowhere.jsonl", *call).err
    Path("ids.jsonl").write_text('{"query_id": "q", "item_id": "d"}\n')
    assert "ids.jsonl:1: no query; a judge reads" in run("judge", "ids.jsonl", *call).err
    two = {"query_id": "q", "item_id": "d", "chunk_id": "e", "query": "why", "text": "so"}
    Path("two.jsonl").write_text(json.dumps(two) + "\n")
    told = "two.jsonl:1: item_id is 'd' and chunk_id is 'e'; a pair is of one item: keep one"
    assert told in run("judge", "two.jsonl", *call).err
    assert "is also an input" in run("judge", "pool.jsonl", *call[:2], "-o", "pool.jsonl").err
    assert "ends in .jsonl" in run("judge", "pool.jsonl", *call[:2], "-o", "labels.csv").err


@pytest.mark.parametrize("text", ["", "\n"])
def test_a_pool_with_nothing_left_makes_no_label_and_no_fuss(pool, run, text):
    Path("empty.jsonl").write_text(text)
    call = ("judge", "empty.jsonl", "--judge", "overlap", "-o", "labels.jsonl")
    done = run(*call)
    assert (done.code, done.err) == (0, "")
    told = r"overlap@\w+: nothing is left to judge in the pool: 0 labels → labels\.jsonl\s*"
    assert re.fullmatch(told, done.out)
    assert Path("labels.jsonl").read_bytes() == b""
    document = json.loads(run(*call, "--json").out)
    assert (document["pairs"], document["failed"], document["partial"]) == (0, 0, False)
    assert document["grades"] == {"2": 0, "1": 0, "0": 0}
    Path("run.jsonl").write_text('{"query_id": "q", "topk": ["d"]}\n')
    refused = run("eval", "run.jsonl", "--gold", "labels.jsonl", "-m", "P@1")
    assert refused.code == 2
    assert "labels.jsonl" in refused.err


def test_a_pipe_that_brings_nothing_is_no_empty_pool(pool, spawn):
    done = spawn("judge", "-", "--judge", "overlap", "-o", "labels.jsonl", stdin=b"")
    assert done.code == 2
    assert not Path("labels.jsonl").exists()


def test_from_a_pool_that_is_all_judged_to_its_labels(files, run):
    Path("run.trec").write_text("q01 Q0 refunds#1 1 1 x\n")
    texts = ("--queries", "queries.jsonl", "--corpus", "corpus.jsonl")
    assert run("pool", "run.trec", "--gold", "qrels.txt", *texts, "-o", "p.jsonl").code == 0
    done = run("judge", "p.jsonl", "--judge", "overlap", "-o", "labels.jsonl")
    assert (done.code, done.err) == (0, "")
    assert "nothing is left to judge in the pool: 0 labels" in done.out
    assert Path("labels.jsonl").read_bytes() == b""


def test_labels_of_another_run_are_replaced_only_when_told_so(pool, run):
    call = ("judge", "pool.jsonl", "--judge", "overlap", "-o", "labels.jsonl")
    assert run(*call).code == 0
    before = Path("labels.jsonl").read_bytes()
    refused = run(*call, "--limit", "3")
    assert refused.code == 2
    assert refused.err == (
        "karat: labels.jsonl holds labels of another run; choose another name, resume "
        "it with --resume, or replace them with --restart\n"
    )
    assert Path("labels.jsonl").read_bytes() == before
    assert run(*call, "--limit", "3", "--restart").code == 0
    assert len(rows("labels.jsonl")) == 3
    done = run(*call, "--resume")
    assert (done.code, Path("labels.jsonl").read_bytes()) == (0, before)
    assert "9 pairs asked, 3 from before" in done.out


def test_a_pool_may_come_through_a_pipe(pool, spawn):
    data = Path("pool.jsonl").read_bytes()
    done = spawn("judge", "-", "--judge", "overlap", "-o", "labels.jsonl", stdin=data)
    assert done.code == 0
    assert len(rows("labels.jsonl")) == 12


def test_the_stand_in_needs_no_library_and_a_model_says_which(pool):
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('openai', 'httpcore')));"
        "from karat.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    call = [sys.executable, "-c", code, "judge", "pool.jsonl", "-o", "labels.jsonl"]
    done = subprocess.run([*call, "--judge", "overlap"], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    model = ("--url", "http://127.0.0.1:1/v1", "--model", "m")
    done = subprocess.run([*call, *model], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "karat judge needs the openai client; install it with: pip install 'karat[judge]'" in (
        done.stderr
    )


def test_the_page_shows_what_the_command_prints(monkeypatch):
    spec = importlib.util.spec_from_file_location("examples", ROOT / "docs" / "examples.py")
    examples = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(examples)
    for name in [name for name in os.environ if name.startswith("OPENAI_")]:
        monkeypatch.delenv(name)
    page = (ROOT / "docs" / "judge-with-a-model.md").read_text(encoding="utf-8")
    assert page.count("```console") >= 3
    assert examples.refreshed(page) == page
