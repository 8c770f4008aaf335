"""The wheel and the sdist: whole, the same bytes twice, at work without the sources; audits."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import audit  # noqa: E402
import audit_imports  # noqa: E402
import audit_index  # noqa: E402
import audit_licences  # noqa: E402
import contents  # noqa: E402
import declared  # noqa: E402
import first_steps  # noqa: E402
import lowest  # noqa: E402
from packaging.requirements import Requirement  # noqa: E402

# Every process of that environment starts with this: who reaches for the sources ends.
GUARD = """\
import sys

SOURCES = {sources!r}

def refuse(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str):
        if arguments[0].startswith(SOURCES):
            raise RuntimeError(f"read from the source tree: {{arguments[0]}}")

sys.addaudithook(refuse)
"""


def build(into: Path, source: Path = ROOT, target: str = "wheel") -> Path:
    words = [sys.executable, "-m", "hatchling", "build", "--target", target, "-d", str(into)]
    variables = {**os.environ, "SOURCE_DATE_EPOCH": "1600000000"}
    subprocess.run(words, cwd=source, env=variables, check=True, capture_output=True)
    return next(into.iterdir())


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("built")


@pytest.fixture(scope="module")
def wheel(place):
    return build(place / "wheel")


@pytest.fixture(scope="module")
def sdist(place):
    return build(place / "sdist", target="sdist")


@pytest.fixture(scope="module")
def steps(place, wheel):
    """karat from the wheel in an environment of its own, with the libraries of this one."""
    environment, empty = place / "environment", place / "empty"
    words = [sys.executable, "-m", "venv", "--without-pip", str(environment)]
    subprocess.run(words, check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python")]
    options = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *options, str(wheel)], check=True)
    packages = next(environment.glob("lib/python*/site-packages"))
    # A path in a .pth is searched, but the .pth files there, karat's own among them, are not read.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    sources = tuple(f"{ROOT / name}{os.sep}" for name in ("src", "tests", "docs", "examples"))
    (packages / "sitecustomize.py").write_text(GUARD.format(sources=sources))
    empty.mkdir()
    return first_steps.Steps(environment, empty, {"HOME": str(place)})


def test_the_wheel_holds_all_of_the_package_and_nothing_else(wheel):
    assert contents.wheel_faults(wheel) == []


def test_the_sdist_holds_what_building_and_testing_take_and_nothing_else(sdist):
    assert contents.sdist_faults(sdist) == []


def test_building_twice_gives_the_same_bytes(wheel, sdist, tmp_path):
    assert build(tmp_path / "wheel").read_bytes() == wheel.read_bytes()
    assert build(tmp_path / "sdist", target="sdist").read_bytes() == sdist.read_bytes()


def test_the_sdist_builds_the_same_wheel_as_the_tree(wheel, sdist, tmp_path):
    with tarfile.open(sdist) as packed:
        packed.extractall(tmp_path, filter="data")
    (unpacked,) = (one for one in tmp_path.iterdir() if one.is_dir())
    assert build(tmp_path / "again", source=unpacked).read_bytes() == wheel.read_bytes()


def test_a_wheel_that_lacks_a_template_or_brings_a_test_is_refused(wheel, tmp_path):
    changed = tmp_path / wheel.name
    lost = "karat/reports/html/templates/base.html"
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            if name != lost:
                new.writestr(name, old.read(name).replace(b"Version: 0.1.0", b"Version: 9.9"))
        new.writestr("tests/test_packaging.py", "")
    faults = contents.wheel_faults(changed)
    assert f"the wheel lacks {lost}" in faults
    assert "the wheel has tests/test_packaging.py, which is not in src" in faults
    assert "Version is '9.9', not '0.1.0'" in faults


def test_the_first_steps_work_from_the_wheel_without_the_sources(steps):
    first_steps.take(steps)
    where = steps.python("import karat; print(karat.__file__)").strip()
    assert Path(where).is_relative_to(steps.bin.parent)
    first_steps.serve(steps)


def test_who_reads_the_sources_is_caught(steps):
    with pytest.raises(RuntimeError, match="read from the source tree"):
        steps.python(f"open({str(ROOT / 'src/karat/py.typed')!r})")


def test_every_library_that_is_imported_is_declared_behind_the_right_extra():
    assert audit_imports.faults() == []


@pytest.mark.parametrize(
    ("place", "text", "fault"),
    [
        ("tables.py", "import sklearn", "imports sklearn, which pyproject.toml does not declare"),
        ("tables.py", "import sqlalchemy", "of the extra store or postgres or web"),
        ("retrieve/qdrant.py", "import qdrant_client", "at the top"),
        ("errors.py", "missing_extra('x', 'y', 'z')", "offers karat[z]"),
        ("retrieve/qdrant.py", "def f():\n    import qdrant_client", "'karat[qdrant]'"),
        ("retrieve/pgvector.py", "def f():\n    import openai", "of the extra judge"),
    ],
)
def test_an_import_in_the_wrong_place_is_found(tmp_path, place, text, fault):
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    assert any(fault in one for one in audit_imports.faults(tmp_path))


# Each retriever that needs a library of an extra, as karat.yaml asks for it.
SYSTEMS = {
    "bm25": "{retriever: bm25, stemmer: english}",
    "chroma": "{retriever: chroma, path: kept, collection: c, embed: 'here:make'}",
    "dense": "{retriever: dense, model: sentence-transformers/all-MiniLM-L6-v2}",
    "http": "{retriever: http, url: 'http://127.0.0.1:9/', hits: hits, doc_id: id}",
    "langchain": "{retriever: langchain, call: 'here:make'}",
    "pgvector": "{retriever: pgvector, dsn: 'host=127.0.0.1', sql: 'select %(query)s'}",
    "qdrant": "{retriever: qdrant, path: kept, collection: c, embed: 'here:make'}",
}
WITHOUT = """\
import importlib.abc, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {libraries!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
from karat.cli.main import main
for system in {systems!r}:
    print(system, main(["search", system + ".yaml", "-o", "out.jsonl"]), file=sys.stderr)
"""


def test_a_retriever_without_its_library_says_which_extra_to_install(tmp_path):
    for name, system in SYSTEMS.items():
        text = f"queries: queries.jsonl\ncorpus: corpus.jsonl\nsystems:\n  {name}: {system}\n"
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "here.py").write_text("def make(): ...")
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "a word"}\n')
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d", "text": "a word"}\n')
    program = WITHOUT.format(libraries=audit_imports.optional(), systems=list(SYSTEMS))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    for name in SYSTEMS:
        assert f"install it with: pip install 'karat[{name}]'\n{name} 2\n" in done.stderr


def test_every_dependency_of_a_user_has_a_lower_bound():
    for name, one in declared.direct().items():
        assert any(spec.operator == ">=" for spec in one.specifier), name


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("MIT", "free"),
        ("Apache License, Version 2.0", "free"),
        ("Apache-1.1", "unfit"),
        ("BSD-3-Clause AND 0BSD AND MIT", "free"),
        ("LGPL-3.0-or-later", "kept apart"),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", "kept apart"),
        ("GPL-3.0-only OR MIT", "free"),
        ("MIT AND GPL-2.0-or-later", "unfit"),
        ("GNU Affero General Public License v3", "unfit"),
        ("GNU General Public License v3 (GPLv3)", "unfit"),
        ("Proprietary", "unfit"),
        ("", "unfit"),
    ],
)
def test_a_licence_is_judged_by_all_that_it_demands(said, verdict):
    assert audit_licences.judge(said) == verdict


def test_what_pip_audit_could_not_look_up_is_not_taken_for_safe(capsys):
    out = (
        '{"dependencies": [{"name": "a", "version": "1", "vulns": []},'
        ' {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]},'
        ' {"name": "c", "skip_reason": "Dependency not found: c (3)"}], "fixes": []}'
    )
    pins = {"a": "1", "b": "2", "c": "3", "d": "4"}
    known = audit_index.read_audit(pins, out, "")
    assert known.faults == ["b 2: CVE-1, fixed in 3"]
    assert known.unknown.keys() == {"c", "d"}
    nothing = audit_index.read_audit(pins, "", "Traceback\nConnectionError: no route")
    assert nothing.unknown == dict.fromkeys(pins, "pip-audit said: ConnectionError: no route")


@pytest.mark.parametrize(
    ("yanked", "unsafe", "code"),
    [
        (audit_index.Known([], {}), audit_index.Known([], {}), 0),
        (audit_index.Known([], {}), audit_index.Known([], {"numpy": "no route"}), 3),
        (audit_index.Known([], {"numpy": "no route"}), audit_index.Known([], {}), 3),
        (audit_index.Known(["x is yanked"], {}), audit_index.Known([], {"numpy": "no route"}), 1),
        (audit_index.Known([], {}), audit_index.Known(["CVE-1"], {}), 1),
    ],
)
def test_an_audit_ends_with_1_for_a_finding_and_with_3_for_ignorance(
    yanked, unsafe, code, monkeypatch, capsys
):
    asked = {"yanked versions": lambda _: yanked, "known vulnerabilities": lambda _: unsafe}
    monkeypatch.setattr(audit, "ASKED", asked)
    monkeypatch.setattr(audit_imports, "faults", list)
    assert audit.main([]) == code
    said = capsys.readouterr().out
    assert ("COULD NOT TELL" in said) == bool(yanked.unknown or unsafe.unknown)


def test_an_audit_that_asks_nobody_says_so(monkeypatch, capsys):
    monkeypatch.setattr(audit_imports, "faults", list)
    assert audit.main(["--offline"]) == 0
    said = capsys.readouterr().out
    assert "not asked: which versions are yanked, which have known vulnerabilities" in said
    assert "kept apart  psycopg" in said


PAGE = """<!doctype html><a href="one-1.0-py3-none-any.whl#sha256=0">one</a>
<a href="one-1.1-py3-none-any.whl" data-yanked="it &amp; more">one</a>
<a href="../one-1.1.tar.gz" data-yanked>one</a>
<a href="one-1.2rc1-py3-none-any.whl">one</a>
<a href="one-1.3-cp27-cp27m-win32.whl">one</a>
<a href="one-1.4-py3-none-any.whl" data-yanked="half">one</a>
<a href="one-1.4.tar.gz">one</a>
<a href="one-1.5-py3-none-any.whl">one</a>
"""


def test_yanked_versions_are_found_with_their_reason(monkeypatch):
    monkeypatch.setattr(audit_index, "files", lambda *_: audit_index._from_page(PAGE))
    assert audit_index.yanked({"one": "1.0"}, "-") == ([], {})
    assert audit_index.yanked({"one": "1.1"}, "-").faults == ["one 1.1 is yanked: it & more"]
    assert audit_index.yanked({"one": "1.4"}, "-") == ([], {})
    assert audit_index.yanked({"one": "7"}, "-").unknown.keys() == {"one"}


def test_an_index_that_does_not_answer_leaves_it_open():
    closed = "http://127.0.0.1:9"
    known = audit_index.yanked({"one": "1.0"}, closed)
    assert known.faults == []
    assert known.unknown["one"].startswith("the index does not answer")


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (">=0.9", "1.0"),
        (">=1.1", "1.5"),
        (">=1.5", "1.5"),
        (">=2", "nothing that fits"),
        ("", "no lower bound"),
    ],
)
def test_the_lowest_version_is_one_that_can_be_installed(monkeypatch, bound, expected):
    monkeypatch.setattr(audit_index, "files", lambda *_: audit_index._from_page(PAGE))
    assert expected in str(lowest.lowest(Requirement(f"one{bound}"), "-"))
