"""The workflow that re-indexes a shared index in CI: who may start it, what it may do, and what its steps do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from kiwi_rag.config import Settings
from tests.shared import ROOT

TEXT = (ROOT / "examples/ci/workspace-index.yml").read_text()
# YAML 1.1 reads the key `on` as true; GitHub does not.
WORKFLOW = yaml.safe_load(re.sub(r"^on:", '"on":', TEXT, flags=re.MULTILINE))
JOB = WORKFLOW["jobs"]["index"]
STEPS = {step.get("name") or step["uses"].partition("@")[0]: step for step in JOB["steps"]}
REPORT = {"indexed": ["a.md"], "unchanged": 3, "removed": [], "failed": []}
FAILED = {"path": "b.yaml", "code": "yaml", "message": "line 3", "hint": "mend it"}


def test_only_what_is_on_main_is_indexed_and_the_job_may_only_read() -> None:
    assert set(WORKFLOW["on"]) == {"push", "workflow_dispatch"}
    assert WORKFLOW["on"]["push"]["branches"] == ["main"]
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert "permissions" not in JOB
    assert STEPS["actions/checkout"]["with"]["persist-credentials"] is False


def test_a_run_is_never_cut_off_and_secrets_belong_to_an_environment() -> None:
    assert WORKFLOW["concurrency"] == {"group": "workspace-index", "cancel-in-progress": False}
    assert JOB["environment"] == "workspace-index"
    assert JOB["timeout-minutes"] <= 60


def test_only_the_step_that_indexes_sees_the_key() -> None:
    seeing = [name for name, step in STEPS.items() if "secrets." in json.dumps(step)]
    assert seeing == ["Index"]
    assert "env" not in WORKFLOW
    assert "env" not in JOB


def test_nothing_from_outside_becomes_part_of_a_script() -> None:
    assert not [name for name, step in STEPS.items() if "${{" in step.get("run", "")]


def test_every_variable_is_a_setting_of_kiwis() -> None:
    known = {f"KIWI_{field.name.upper()}" for field in fields(Settings)}
    assert set(STEPS["Index"]["env"]) - known == set()


def run(folder: Path, step: str, exit_code: int = 0, report: object = REPORT) -> subprocess.CompletedProcess[str]:
    """Run a step's script as GitHub does, with a `kiwi` that answers as told."""
    program = folder / "bin/kiwi"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\necho \"$*\" >>'{folder}/calls'\ncat '{folder}/answer'\nexit {exit_code}\n")
    program.chmod(0o755)
    (folder / "answer").write_text(json.dumps(report))
    environment = {"PATH": f"{program.parent}:/usr/local/bin:/usr/bin:/bin", "GITHUB_STEP_SUMMARY": f"{folder}/summary"}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[step]["run"]]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("exit_code", "ends", "warns"), [(0, 0, False), (3, 0, True), (1, 1, False), (4, 4, False)])
def test_files_that_failed_are_a_warning_and_anything_else_fails(
    tmp_path: Path, exit_code: int, ends: int, warns: bool
) -> None:
    done = run(tmp_path, "Index", exit_code)
    assert done.returncode == ends
    assert ("::warning::" in done.stdout) == warns
    assert (tmp_path / "calls").read_text() == "--json workspace index . --prune\n"
    assert json.loads((tmp_path / "report.json").read_text()) == REPORT


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed; GitHub's runners have it")
def test_the_summary_names_what_failed(tmp_path: Path) -> None:
    run(tmp_path, "Index", 3, {**REPORT, "failed": [FAILED]})
    assert run(tmp_path, "Write the summary").returncode == 0
    assert (tmp_path / "summary").read_text().splitlines() == [
        "1 indexed, 3 unchanged, 0 removed, 1 failed",
        "- `b.yaml`: line 3 mend it",
    ]
