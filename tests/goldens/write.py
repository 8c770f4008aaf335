"""Write the expected outputs anew: ``python tests/goldens/write.py [CASE ...]``."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.goldens.cases import CASES, EXPECTED, Workspace


def main(names: list[str]) -> None:
    EXPECTED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.prepare(Path(folder))
        for name in CASES:
            found = workspace.run(name)
            if not names or name in names:
                text = json.dumps(found, indent=0, ensure_ascii=False)
                (EXPECTED / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
