"""Kiwi's tasks in .vscode/tasks.json: merged into what is there, renewed, taken out, and shown before."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kiwi_rag.cli.session import Session
from kiwi_rag.cli.setup import setup
from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.integrations.ai_clients import TASKS
from kiwi_rag.integrations.client_files import MalformedClientFile
from kiwi_rag.integrations.config_edit import Malformed, NameTaken

WATCH, INDEX = "Kiwi: watch the workspace", "Kiwi: index the workspace"
OTHERS = {
    "commented": """{
    // See https://go.microsoft.com/fwlink/?LinkId=733558
    "version": "2.0.0",
    "tasks": [
        // the build
        {
            "label": "build", // ours
            "type": "shell",
            "command": "make // not a comment",
            "args": ["a]", "}"],
        }, /* last */
    ],
    "inputs": []
}
""",
    "no tasks yet": '{\n\t"version": "2.0.0"\n}\n',
    "an empty array": '{\n  "version": "2.0.0",\n  "tasks": []\n}\n',
    "an empty array with a comment": '{"tasks": [ // none\n]}',
    "on one line": '{"version": "2.0.0", "tasks": [{"label": "a"}, {"label": "b"}]}',
    "closing and opening on a line": '{\n  "tasks": [{\n    "label": "a"\n  }, {\n    "label": "b"\n  }]\n}\n',
    "a comment ends it": '{\n  "tasks": [\n    {"label": "a"} // why\n    // more to come\n  ]\n}\n// end',
    "tasks that are no objects": '{"tasks": [1, null, "Kiwi: watch the workspace", {"label": 7}]}',
}


def plain(text: str) -> dict:
    """Read JSON with comments by another way than the module's: a YAML parser, which takes trailing commas."""
    kept = re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', lambda m: m[1] or "", text, flags=re.DOTALL)
    return yaml.safe_load(re.sub(r"\s", " ", kept))


def kiwis(text: str) -> dict[str, dict]:
    labelled = [task for task in plain(text)["tasks"] if isinstance(task, dict)]
    return {task["label"]: task for task in labelled if str(task["label"]).startswith("Kiwi: ")}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_tasks_go_in_and_out_and_nothing_else_moves(text: str) -> None:
    edited = TASKS.put(text)
    before = plain(text).get("tasks", [])
    assert plain(edited)["tasks"][2:] == before
    assert set(kiwis(edited)) == {WATCH, INDEX}
    assert TASKS.put(edited) == edited, "the second time changes something"
    left = TASKS.take(edited)
    assert plain(left) == {**plain(text), "tasks": before}
    assert TASKS.take(left) == left


def test_comments_and_lines_of_others_stay_where_they_were() -> None:
    text = OTHERS["commented"]
    edited = TASKS.put(text).splitlines()
    assert edited[:6] == [*text.splitlines()[:4], "        {", f'            "label": "{INDEX}",']
    assert edited[4 - len(text.splitlines()) :] == text.splitlines()[4:]
    assert TASKS.take(TASKS.put(text)) == text


def test_what_is_started_goes_through_no_shell_and_begins_with_the_folder() -> None:
    tasks = kiwis(TASKS.put(""))
    assert {task["type"] for task in tasks.values()} == {"process"}
    assert [tasks[WATCH]["command"], *tasks[WATCH]["args"]] == ["kiwi", "workspace", "watch"]
    assert [tasks[INDEX]["command"], *tasks[INDEX]["args"]] == ["kiwi", "workspace", "index"]
    assert tasks[WATCH]["isBackground"] is True
    assert tasks[WATCH]["runOptions"]["runOn"] == "folderOpen"
    assert "runOn" not in tasks[INDEX]["runOptions"]
    assert plain(TASKS.put(""))["version"] == "2.0.0"


def test_what_the_user_changed_in_kiwis_tasks_stays_and_what_is_started_is_renewed() -> None:
    changed = TASKS.put("").replace('"folderOpen"', '"default"').replace('"watch"', '"watch", "--slowly"')
    renewed = kiwis(TASKS.put(changed))[WATCH]
    assert renewed["runOptions"]["runOn"] == "default"
    assert renewed["args"] == ["workspace", "watch"]
    windows = TASKS.put("").replace('"kiwi"', r'"C:\\Tools\\Kiwi.exe"')
    assert {task["command"] for task in kiwis(TASKS.put(windows)).values()} == {"kiwi"}


def test_a_task_of_the_same_label_that_is_not_kiwis_is_neither_changed_nor_taken() -> None:
    text = json.dumps({"tasks": [{"label": INDEX, "command": "make", "args": ["workspace"]}]})
    with pytest.raises(NameTaken, match=INDEX):
        TASKS.put(text)
    assert TASKS.take(text) == text


@pytest.mark.parametrize("text", ["[]", '{"tasks": {}}', '{"tasks": [}', '{"tasks": [{"label": NaN}]}'])
def test_what_vs_code_would_not_read_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        TASKS.put(text)


class Sandbox:
    """A user in a project, who runs `kiwi setup`."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.file = self.project / ".vscode/tasks.json"
        (self.project / ".ai").mkdir(parents=True)

    def run(self, *arguments: str, as_json: bool = False) -> str:
        session = Session(project=self.project, as_json=as_json)
        result = CliRunner().invoke(setup, ["vscode", *arguments], obj=session)
        if isinstance(result.exception, KiwiError):
            raise result.exception
        assert result.exception is None, result.output
        return result.output


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KIWI_HOME", str(tmp_path / "home/.ai"))
    return Sandbox(tmp_path)


def test_setup_writes_the_tasks_alone_and_removes_them_to_the_byte(sandbox: Sandbox) -> None:
    said = sandbox.run("--tasks")
    assert f"wrote {sandbox.file}" in said
    assert "next: open the folder again" in said
    assert set(kiwis(sandbox.file.read_text())) == {WATCH, INDEX}
    assert [path.name for path in sandbox.file.parent.iterdir()] == ["tasks.json"]
    assert sandbox.run("--tasks") == "nothing to change\n"
    assert f"removed {sandbox.file}" in sandbox.run("--tasks", "--remove")
    assert not sandbox.file.exists()
    mine = '{ "version":"2.0.0",\r\n // mine\r\n "tasks":[ ] }'.encode("utf-8-sig")
    sandbox.file.write_bytes(mine)
    sandbox.run("--tasks")
    assert set(kiwis(sandbox.file.read_text("utf-8-sig"))) == {WATCH, INDEX}
    sandbox.run("--tasks", "--remove")
    assert sandbox.file.read_bytes() == mine


def test_a_dry_run_shows_the_change_and_writes_nothing(sandbox: Sandbox) -> None:
    shown = sandbox.run("--tasks", "--dry-run")
    assert f'+      "label": "{WATCH}",' in shown
    assert not sandbox.file.exists()
    told = json.loads(sandbox.run("--tasks", "--dry-run", as_json=True))
    assert [change["path"] for change in told["changes"]] == [str(sandbox.file)]


def test_what_cannot_be_edited_is_named_with_its_line(sandbox: Sandbox) -> None:
    sandbox.file.parent.mkdir()
    sandbox.file.write_text('{\n  "tasks": [\n    {]\n}\n')
    with pytest.raises(MalformedClientFile, match=re.escape(f"{sandbox.file}:3: ")):
        sandbox.run("--tasks")
    assert sandbox.file.read_text() == '{\n  "tasks": [\n    {]\n}\n'


def test_only_vs_code_has_tasks(sandbox: Sandbox) -> None:
    result = CliRunner().invoke(setup, ["claude", "--tasks"], obj=Session(project=sandbox.project))
    assert isinstance(result.exception, UsageError)


@pytest.mark.parametrize("is_git", [True, False])
def test_tasks_want_no_project_they_go_into_the_work_tree_or_the_folder(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_git: bool
) -> None:
    below = tmp_path / "repository/src"
    below.mkdir(parents=True)
    if is_git:
        subprocess.run(["git", "init", "-q", below.parent], check=True)
    monkeypatch.chdir(below)
    result = CliRunner().invoke(setup, ["vscode", "--tasks"], obj=Session())
    assert result.exception is None, result.output
    file = (below.parent if is_git else below) / ".vscode/tasks.json"
    assert set(kiwis(file.read_text())) == {WATCH, INDEX}
    refused = CliRunner().invoke(setup, ["vscode", "--project"], obj=Session())
    assert "kiwi init" in refused.exception.hint
