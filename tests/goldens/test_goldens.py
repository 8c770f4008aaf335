"""Every documented command on fixed inputs: numbers, keys and exit codes stay as they are.

Prose is masked, so wording may change. After a change that is meant to change a number, run
``python tests/goldens/write.py`` and read the diff before you commit it.
"""

from __future__ import annotations

import json

import pytest

from .cases import CASES, EXPECTED, Workspace


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace.prepare(tmp_path_factory.mktemp("goldens"))


@pytest.mark.parametrize("name", CASES)
def test_numbers_keys_and_exit_codes_stay(name: str, workspace: Workspace):
    expected = json.loads((EXPECTED / f"{name}.json").read_text(encoding="utf-8"))
    found = json.loads(json.dumps(workspace.run(name)))
    assert found.keys() == expected.keys()
    for part, value in expected.items():
        assert found[part] == value, f"{name}: {part}"


def test_every_expected_file_has_a_case():
    assert {path.stem for path in EXPECTED.glob("*.json")} == set(CASES)
