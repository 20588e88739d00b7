"""What a search of local tiers does not import: libraries that only servers need."""

from __future__ import annotations

import json
import subprocess
import sys
from uuid import uuid4

from tests.interfaces.conftest import Kiwi, note
from tests.shared import ROOT

# A text that no cache of vectors knows, so that the model is loaded.
_SEARCH = """
import json, sys
from kiwi_rag.cli import main
try:
    main(["--json", "search", sys.argv[1], "--source", "project"])
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_a_search_of_the_project_imports_nothing_for_servers(ready: Kiwi) -> None:
    ready.write("knowledge/acme/staging.md", note())
    ready.run("sign", ".ai")
    ready.run("index")
    done = subprocess.run(
        [sys.executable, "-c", _SEARCH, f"staging {uuid4()}"],
        cwd=ready.cwd, env=ready.environment() | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = set(json.loads(done.stdout.splitlines()[-1]))
    assert {"kiwi_rag", "onnxruntime"} <= found, "it went as far as the model"
    assert found & {"httpx", "psycopg", "pydantic", "qdrant_client", "supabase"} == set()
