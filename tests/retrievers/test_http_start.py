"""Services that karat starts itself: real processes, and none of them is left behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from servers import asked, free_port, karat, logged

from karat.errors import CallError, KaratError
from karat.formats.settings import parse_yaml
from karat.project.systems import read_systems
from karat.retrieve import http as starting
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Query
from karat.retrieve.system import build_system
from karat.retrieve.system_config import parse_systems, run_digest

# Answers every call with its own name, and writes down its number so that tests can look for it.
SERVICE = """
import json, os, signal, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

port, name, *how = sys.argv[1:]
Path(f"{name}.pid").write_text(str(os.getpid()))
Path(f"{name}.port").write_text(port)
if "deaf" in how:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "parent" in how:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path("child.pid").write_text(str(child.pid))
if "chatty" in how:
    sys.stdout.write(("y" * 79 + "\\n") * 50_000)
if "forks" in how or "leaves" in how:
    ready, tell = os.pipe()
    if os.fork():
        os.read(ready, 1)
        os._exit(0)
    if "leaves" in how:
        os.setsid()
    os.write(tell, b".")
    time.sleep(0.3)
    Path(f"{name}.pid").write_text(str(os.getpid()))
if "dies" in how:
    print("reading the corpus")
    sys.exit("no corpus here, " + os.environ.get("KEY", "and no key"))
if "sulks" in how:
    print("warming up", end="")
    time.sleep(600)


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers["content-length"])
        query = json.loads(self.rfile.read(length))["query"]
        if "slow" in how:
            Path("asked").touch()
            time.sleep(600)
        if "crash" in how:
            print("out of memory", flush=True)
            os._exit(7)
        if "chatty" in how:
            sys.stdout.write(("z" * 79 + "\\n") * 2_000)
        body = json.dumps({"hits": [{"id": f"{name} {query}", "score": 1.0}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
"""
ASK = 'body: {query: "{query}"}\nk: 1\nretries: 0'


def system(name: str = "live", *how: str, port: str = "{port}", more: str = ASK) -> str:
    """The lines of a system whose service behaves in some way."""
    words = ["{python}", "service.py", port, name, *how]
    lines = [
        "retriever: http",
        f"start: {json.dumps(words)}",
        f'url: "http://127.0.0.1:{port}/search"',
        *more.splitlines(),
    ]
    return "\n".join(lines)


@pytest.fixture
def folder(tmp_path: Path):
    """A folder with the service and two queries; nothing of it still runs when a test ends."""
    (tmp_path / "service.py").write_text(SERVICE)
    rows = [{"query_id": "q1", "text": "pie"}, {"query_id": "q2", "text": "tart"}]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    yield tmp_path
    left = [pid for pid in pids(tmp_path) if alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "a service outlived the test"


def write(folder: Path, more: str = "", **systems: str) -> None:
    lines = ["queries: queries.jsonl", *more.splitlines(), "systems:"]
    for name, own in systems.items():
        lines += [f"  {name}:", textwrap.indent(own, "    ")]
    (folder / "karat.yaml").write_text("\n".join(lines) + "\n")


def pids(folder: Path) -> list[int]:
    return [int(path.read_text()) for path in folder.glob("*.pid") if path.read_text()]


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not fetched does not."""
    told = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return told.stdout.strip()[:1] not in ("", "Z")


def pid_of(folder: Path, name: str = "live") -> int:
    """The number of a service, once it has written it down."""
    file = folder / f"{name}.pid"
    until(lambda: file.exists() and file.read_text(), "the service was not started")
    return int(file.read_text())


def until(holds, why: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, why
        time.sleep(0.02)


@pytest.fixture
def searching(folder: Path):
    """A way to call karat search and go on; what still runs when a test ends is ended."""
    spawned: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        spawned.append(
            subprocess.Popen(
                [sys.executable, "-m", "karat", "search"],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                # Tests that run under nohup would leave it deaf to that signal.
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
            )
        )
        return spawned[0]

    yield begin
    for process in spawned:
        process.kill()
        process.communicate()


def system_config(yaml: str):
    lines = parse_yaml(f"live:\n{textwrap.indent(yaml, '  ')}", "k.yaml")
    return parse_systems(lines.data, lines.place)["live"]


def refused(yaml: str, folder: Path = Path()) -> str:
    with pytest.raises(KaratError) as error, BuildContext(folder=folder).open() as context:
        build_system(system_config(yaml), context)
    return str(error.value)


# what it does


def test_a_service_is_started_asked_and_stopped(folder):
    write(folder, live=system())
    done = karat("search", str(folder / "karat.yaml"), folder=folder.parent)
    assert (done.returncode, done.stdout) == (
        0,
        f"live: 2 calls → {folder}/runs/live.jsonl\n",
    ), done.stderr
    log = logged(folder / "runs" / "live.jsonl")
    assert [row["topk"][0]["chunk_id"] for row in log] == ["live pie", "live tart"]
    # What differs from run to run is not in the log.
    assert {row["endpoint"] for row in log} == {"http://127.0.0.1:{port}/search"}
    assert not alive(pid_of(folder))


def test_two_systems_have_a_service_each(folder):
    write(folder, one=system("one"), two=system("two"))
    done = karat("search", folder=folder)
    assert done.returncode == 0, done.stderr
    for name in ("one", "two"):
        log = logged(folder / "runs" / f"{name}.jsonl")
        assert [row["topk"][0]["chunk_id"] for row in log] == [f"{name} pie", f"{name} tart"]
    assert pid_of(folder, "one") != pid_of(folder, "two")


def test_parts_of_one_system_have_services_side_by_side(folder):
    def part(name):
        words = json.dumps(["{python}", "service.py", "{port}", name])
        return (
            f'{{retriever: http, start: {words}, url: "http://127.0.0.1:{{port}}/s", '
            'body: {query: "{query}"}}'
        )

    write(folder, both=f"retriever: fuse\nof: {{a: {part('a')}, b: {part('b')}}}")
    done = karat("search", folder=folder)
    assert done.returncode == 0, done.stderr
    first = logged(folder / "runs" / "both.jsonl")[0]
    assert {hit["chunk_id"] for hit in first["topk"]} == {"a pie", "b pie"}


def test_megabytes_of_output_neither_block_it_nor_show(folder):
    write(folder, live=system("live", "chatty"))
    done = karat("search", folder=folder)
    assert (done.returncode, done.stdout) == (0, "live: 2 calls → runs/live.jsonl\n")
    assert "yyy" not in done.stderr


def test_a_fixed_port_is_waited_for(folder):
    write(folder, live=system(port=str(free_port())))
    done = karat("search", folder=folder)
    assert done.returncode == 0, done.stderr
    assert len(logged(folder / "runs" / "live.jsonl")) == 2


def test_systems_in_python_stop_what_they_started(folder):
    write(folder, live=system())
    with read_systems(folder / "karat.yaml") as systems:
        assert asked(systems["live"]).hits[0].item_id == "live pie"
        first = pid_of(folder)
        assert alive(first)
    assert not alive(first)
    with systems:
        assert asked(systems["live"]).hits[0].item_id == "live pie"
        assert pid_of(folder) != first


def test_a_script_that_does_not_stop_it_leaves_none_behind(folder):
    write(folder, live=system())
    script = (
        "from karat.project.systems import read_systems; from karat.retrieve.protocol import Query;"
        "print(read_systems('karat.yaml')['live'].find([Query('q', 'pie')], 1)[0].hits[0].item_id)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "live pie\n", done.stderr
    assert not alive(pid_of(folder))


# what goes wrong


def test_one_that_dies_at_once_is_refused_with_its_last_words(folder):
    write(folder, live=system("live", "dies"))
    done = karat("search", folder=folder)
    assert done.returncode == 2
    told, _, command = done.stderr.partition("; try it yourself: ")
    assert told == (
        "karat: karat.yaml:3: system 'live': start: the service ended with exit code 1 and "
        "printed: reading the corpus | no corpus here, and no key; it must stay in the foreground"
    )
    again = subprocess.run(shlex.split(command), cwd=folder, capture_output=True, text=True)
    assert (again.returncode, again.stderr) == (1, "no corpus here, and no key\n")
    assert not (folder / "runs" / "live.jsonl").exists()


@pytest.mark.parametrize("how", ["forks", "leaves"])
def test_one_that_goes_to_the_background_is_told_to_stay(folder, how):
    port = free_port()
    told = refused(system("live", how, port=str(port)), folder)
    assert "the service ended with exit code 0" in told
    assert "must stay in the foreground" in told
    if how == "leaves":
        until(lambda: alive(pid_of(folder)), "what left is not alive")
        os.kill(pid_of(folder), signal.SIGKILL)
    left = pid_of(folder)
    until(lambda: not alive(left), "what it left behind lives on", 5)


def test_one_that_fails_is_not_said_to_be_in_the_background(folder):
    assert "background" not in refused(system("live", "dies"), folder)


def test_secrets_in_last_words_are_hidden(folder):
    told = "body: {key: '${KEY}'}"
    write(folder, live=system("live", "dies", more=told))
    done = karat("search", folder=folder, KEY="s3cr3t-and-long")
    assert "no corpus here, ${KEY}" in done.stderr
    assert "s3cr3t" not in done.stderr + done.stdout


def test_a_secret_reaches_the_command_and_not_the_log(folder):
    yaml = system("live").replace('"live"]', '"live", "${KEY}"]')
    write(folder, live=yaml)
    done = karat("search", folder=folder, KEY="s3cr3t")
    assert done.returncode == 0, done.stderr
    assert "s3cr3t" not in (folder / "runs" / "live.jsonl").read_text()
    assert "${KEY}" in (folder / "runs" / "live.jsonl").read_text()


def test_one_that_never_listens_is_stopped_in_time(folder):
    write(folder, live=system("live", "sulks", more=f"start_timeout: 1.5\n{ASK}"))
    start = time.monotonic()
    done = karat("search", folder=folder)
    assert time.monotonic() - start < 20
    assert done.returncode == 2
    assert "does not listen at 127.0.0.1:" in done.stderr
    assert "after 1.5 s and printed: warming up; check its host and port" in done.stderr
    assert "start_timeout" in done.stderr


def test_one_that_ignores_being_asked_to_end_is_made_to(folder, monkeypatch):
    monkeypatch.setattr(starting, "_GRACE", 0.3)
    with BuildContext(folder=folder).open() as context:
        built = build_system(system_config(system("live", "deaf")), context)
        pid = pid_of(folder)
        assert alive(pid)
    assert not alive(pid)
    assert built.name == "live"


def test_one_that_nobody_can_ask_any_more_is_stopped(folder):
    built = build_system(system_config(system()), BuildContext(folder=folder))
    assert alive(pid_of(folder))
    del built
    assert not alive(pid_of(folder))


def test_what_a_service_starts_ends_with_it(folder):
    with BuildContext(folder=folder).open() as context:
        built = build_system(system_config(system("live", "parent")), context)
        child = pid_of(folder, "child")
        assert alive(child)
    assert built.name == "live"
    until(lambda: not alive(child), "the child of the service lives on", 5)


def test_a_service_is_stopped_when_another_part_cannot_be_built(folder):
    first = textwrap.indent(system(more='body: {query: "{query}"}'), "    ")
    second = "  b: {retriever: http, url: 'http://127.0.0.1:1/${NO_SUCH_KEY}'}"
    write(folder, both=f"retriever: fuse\nof:\n  a:\n{first}\n{second}")
    done = karat("search", folder=folder)
    assert done.returncode == 2
    assert "NO_SUCH_KEY is not set" in done.stderr
    assert not alive(pid_of(folder))


def test_one_that_dies_under_the_calls_fails_them_with_its_last_words(folder):
    patient = ASK.replace("retries: 0", "retries: 2\nconcurrency: 1")
    write(folder, live=system("live", "crash", more=patient))
    done = karat("search", folder=folder)
    assert done.returncode == 2
    reasons = {row["error"] for row in logged(folder / "runs" / "live.jsonl")}
    assert reasons == {"the service ended with exit code 7 and printed: out of memory"}


def test_a_port_that_is_taken_is_not_asked(folder):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        told = refused(system(port=str(port)), folder)
    assert f"something listens at 127.0.0.1:{port} already" in told
    assert '"{port}" in start and in url' in told
    assert not pids(folder)


def test_a_command_that_is_not_there_is_told(folder):
    yaml = 'retriever: http\nstart: [no-such-program, "{port}"]\nurl: "http://localhost:{port}/s"'
    assert "cannot be run: No such file or directory" in refused(yaml, folder)


def test_a_connection_that_meets_itself_is_no_service(monkeypatch):
    port = free_port()

    def to_itself(address, timeout):
        connection = socket.socket()
        connection.bind(address)
        connection.connect(address)
        return connection

    monkeypatch.setattr(socket, "create_connection", to_itself)
    assert not starting._listens(starting.Address("http", "127.0.0.1", port))


# signals


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_to_karat_ends_the_service_too(folder, searching, number, code):
    write(folder, live=system("live", "slow", "parent"))
    process = searching()
    service, child = pid_of(folder), pid_of(folder, "child")
    until((folder / "asked").exists, "nothing was asked")
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == code, (out, err)
    assert not alive(service)
    until(lambda: not alive(child), "the child of the service lives on", 5)
    assert err.count("karat: interrupted before the first call; no file was written\n") == 1
    assert "Traceback" not in err


def test_ctrl_c_while_it_starts_ends_it_too(folder, searching):
    write(folder, live=system("live", "sulks"))
    process = searching()
    service = pid_of(folder)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted before the first call" in err
    assert not alive(service)


def test_a_second_ctrl_c_does_not_wait_for_a_deaf_service(folder, searching):
    write(folder, live=system("live", "slow", "deaf"))
    process = searching()
    service = pid_of(folder)
    until((folder / "asked").exists, "nothing was asked")
    process.send_signal(signal.SIGINT)
    time.sleep(0.7)
    assert process.poll() is None
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert time.monotonic() - start < 3
    assert process.returncode == 130
    assert not alive(service)


# what a run depends on


def digest(yaml: str, folder: Path) -> str:
    return run_digest(system_config(yaml), BuildContext(folder=folder), [Query("q1", "pie")], k=5)


def test_the_digest_knows_the_service_and_not_the_port(folder):
    write(folder, live=system())
    ports, digests = set(), set()
    for _ in range(2):
        assert karat("search", "--restart", folder=folder).returncode == 0
        ports.add((folder / "live.port").read_text())
        digests |= {row["run_digest"] for row in logged(folder / "runs" / "live.jsonl")}
    assert (len(ports), len(digests)) == (2, 1)
    before = digest(system(), folder)
    assert digest(system("live", "deaf"), folder) != before
    (folder / "service.py").write_text(SERVICE + "# changed\n")
    assert digest(system(), folder) != before


def test_a_log_that_is_used_again_needs_no_service(folder):
    (folder / "qrels.txt").write_text("q1 0 x 1\nq2 0 y 1\n")
    gold = "gold: qrels.txt\nmeasures: [Hit@1]"
    write(folder, gold, live=system(more=f"{ASK}\nindex_version: '1'"))
    assert karat("run", folder=folder).returncode == 0
    (folder / "live.pid").unlink()
    again = karat("run", folder=folder)
    assert "log reused" in again.stderr
    assert not pids(folder)
    with (folder / "service.py").open("a") as file:
        file.write("# changed\n")
    assert "log reused" not in karat("run", folder=folder).stderr
    assert pids(folder)


# what cannot be meant


@pytest.mark.parametrize(
    ("yaml", "told"),
    [
        ('url: "http://127.0.0.1:{port}/s"', "that karat starts"),
        ("url: http://x/s\nstart_timeout: 5", "start_timeout is for a service that karat starts"),
        ('url: "http://h:{port}/s"\nstart: [serve]', "not in start"),
        ("url: http://x/s\nstart: serve --port 80", "k.yaml:4: start is 'serve --port 80'; it "),
        ("url: http://x/s\nstart: []", "k.yaml:4: start is []; it must be the command"),
        ("url: http://x/s\nstart: [serve, {port}]", "{port} lacks quotation marks"),
        ("url: http://x/s\nstart: [{python}, a.py]", "{python} lacks quotation marks"),
        ("url: http://x/s\nstart: [a, --api-key, s3cr3t]", "start: api-key holds a credential"),
        ("url: http://x/s\nstart: [a, --password=s3cr3t]", "start: password holds a credential"),
        ("url: http://x/s\nstart: [a]\nstart_timeout: 0", "start_timeout is 0; it must be seconds"),
        ('url: "http://{port}.org/s"\nstart: [a, "{port}"]', "has a placeholder in its host"),
        ("url: http://example.org/s\nstart: [a]", "a service at example.org is not on this mach"),
    ],
)
def test_what_cannot_be_meant_is_refused(yaml, told):
    said = refused(f"retriever: http\n{yaml}")
    assert told in said
    assert "s3cr3t" not in said


def test_numbers_and_flags_are_words_too():
    yaml = "url: http://127.0.0.1:80/s\nstart: [serve, --port, 8000, --secret-file, a.txt, --token]"
    options = system_config(f"retriever: http\n{yaml}").options
    assert options.start == ["serve", "--port", "8000", "--secret-file", "a.txt", "--token"]


def test_a_query_may_have_a_port_of_its_own(folder):
    yaml = system().replace("/search", "/search?of={port}")
    with BuildContext(folder=folder).open() as context:
        built = build_system(system_config(yaml), context)
        assert asked(built, port=21).hits[0].item_id == "live pie"
        with pytest.raises(CallError, match="neither query, k nor an attribute"):
            asked(built)
