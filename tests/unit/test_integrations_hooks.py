"""Kiwi's hooks in Claude Code's settings: merged into what is there, renewed, taken out, and shown before."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kiwi_rag.cli.memory import HOOK_SECONDS
from kiwi_rag.cli.session import Session
from kiwi_rag.cli.setup import setup
from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.integrations.client_files import MalformedClientFile
from kiwi_rag.integrations.client_hooks import HookEntries
from kiwi_rag.integrations.config_edit import Malformed

HOOKS, RECALLING = HookEntries(["kiwi"]), HookEntries(["kiwi"], recall=True)
LINT = {"type": "command", "command": "make lint", "timeout": 30}
OTHERS = {
    "empty": "",
    "no hooks": '{\n  "model": "opus"\n}\n',
    "no events": '{\n  "hooks": {},\n  "model": "opus"\n}\n',
    "another event": json.dumps({"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [LINT]}]}}),
    "the same event": json.dumps({"hooks": {"Stop": [{"hooks": [LINT]}]}, "env": {"A": "1"}}, indent=4),
    "on one line": '{"hooks": {"SessionEnd": [{"hooks": [{"type": "command", "command": "date"}]}]}}',
    "an almost equal one": json.dumps({"hooks": {"Stop": [{"hooks": [{"command": "kiwi memory list"}]}]}}),
    "hooks of wrong types": '{"hooks": {"Stop": [1, null, {"hooks": 2}, {"hooks": [3, {"command": "\\""}, {}]}]}}',
}


def commands(text: str) -> dict[str, list[str]]:
    events = json.loads(text).get("hooks", {})
    return {event: [hook["command"] for group in groups for hook in group["hooks"]] for event, groups in events.items()}


def ours(text: str) -> list[tuple[str, str]]:
    found = re.finditer(r'"command": "([^"]*kiwi[^"]* memory hook[^"]*)"', text)
    return sorted(match[1] for match in found)


@pytest.mark.parametrize("hooks", [HOOKS, RECALLING], ids=["import", "recall"])
@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_hooks_go_in_and_out_and_nothing_else_changes(text: str, hooks: HookEntries) -> None:
    edited = hooks.put(text)
    assert len(ours(edited)) == (3 if hooks.recall else 2)
    assert hooks.put(edited) == edited, "the second time changes something"
    left = hooks.take(edited)
    before = json.loads(text or "{}")
    assert {"hooks": {}, **json.loads(left)} == {"hooks": {}, **before}
    assert hooks.take(left) == left


def test_the_hooks_are_those_after_an_answer_and_after_a_session_and_recall_is_an_option() -> None:
    assert commands(HOOKS.put("")) == {"Stop": ["kiwi memory hook"], "SessionEnd": ["kiwi memory hook"]}
    recalling = RECALLING.put(HOOKS.put(""))
    assert commands(recalling)["UserPromptSubmit"] == ["kiwi memory hook --recall"]
    assert json.loads(recalling)["hooks"]["Stop"][0]["hooks"][0]["async"] is True, "Claude Code would wait for it"
    assert HOOKS.put(recalling) == HOOKS.put(""), "recall is on without being asked for"


def test_a_hook_ends_itself_before_claude_code_ends_it() -> None:
    events = json.loads(RECALLING.put(""))["hooks"]
    timeouts = {event: groups[0]["hooks"][0]["timeout"] for event, groups in events.items()}
    assert timeouts.keys() == HOOK_SECONDS.keys()
    assert all(HOOK_SECONDS[event] + 2 <= timeout for event, timeout in timeouts.items())


def test_comments_and_lines_of_others_stay_where_they_were() -> None:
    text = '{\n  // mine\n  "hooks": {\n    "Stop": [\n      {"hooks": [{"command": "date"}]} // first\n    ]\n  }\n}\n'
    edited = HOOKS.put(text)
    assert edited.splitlines()[:4] == text.splitlines()[:4]
    assert "// first" in edited
    assert HOOKS.take(edited) == text


def test_the_command_is_renewed_and_what_the_user_set_beside_it_stays() -> None:
    old = HOOKS.put("").replace('"kiwi memory hook"', '"/old/bin/kiwi memory hook"').replace("60", "7")
    renewed = json.loads(HookEntries(["/new path/kiwi"]).put(old))["hooks"]["Stop"]
    assert renewed == [
        {"hooks": [{"type": "command", "command": "'/new path/kiwi' memory hook", "async": True, "timeout": 7}]}
    ]
    for command in ("python -P -m kiwi_rag.cli memory hook", r"'C:\\Tools\\Kiwi.exe' memory hook"):
        there = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}})
        assert HOOKS.take(there) == "{}"


def test_a_hook_of_kiwis_in_a_group_of_others_goes_alone() -> None:
    mine = {"type": "command", "command": "kiwi memory hook"}
    text = json.dumps({"hooks": {"Stop": [{"matcher": "", "hooks": [LINT, mine, mine]}, {"hooks": [mine]}]}}, indent=2)
    assert json.loads(HOOKS.take(text)) == {"hooks": {"Stop": [{"matcher": "", "hooks": [LINT]}]}}


@pytest.mark.parametrize(
    "text", ["[]", '{"hooks": []}', '{"hooks": {"Stop": {}}}', '{"hooks": {', '{"hooks": {"Stop": 1}}']
)
def test_what_claude_code_would_not_read_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        HOOKS.put(text)


class Sandbox:
    """A user in a project, who runs `kiwi setup`."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.user_file, self.project_file = (at / ".claude/settings.json" for at in (folder / "home", self.project))
        (self.project / ".ai").mkdir(parents=True)

    def run(self, *arguments: str, client: str = "claude") -> str:
        result = CliRunner().invoke(setup, [client, *arguments], obj=Session(project=self.project))
        if isinstance(result.exception, KiwiError):
            raise result.exception
        assert result.exception is None, result.output
        return result.output


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KIWI_HOME", str(tmp_path / "home/.ai"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    return Sandbox(tmp_path)


@pytest.mark.parametrize("where", [[], ["--project"]], ids=["user", "project"])
def test_setup_writes_the_hooks_alone_and_removes_them_to_the_byte(sandbox: Sandbox, where: list[str]) -> None:
    file = sandbox.project_file if where else sandbox.user_file
    said = sandbox.run("--memory", *where)
    assert f"wrote {file}" in said
    assert "next: restart claude" in said
    assert "all others go into your own memory together" in said and "kiwi init gives a project its own" in said
    written = commands(file.read_text())
    assert list(written) == ["Stop", "SessionEnd"]
    assert all(command.endswith("memory hook") for found in written.values() for command in found)
    assert [path.name for path in file.parent.iterdir()] == ["settings.json"]
    assert sandbox.run("--memory", *where) == "nothing to change\n"
    assert f"removed {file}" in sandbox.run("--memory", "--remove", *where)
    assert not file.exists()
    mine = '{ "model":"opus",\r\n "hooks":{"Stop":[ ]} }'.encode("utf-8-sig")
    file.write_bytes(mine)
    sandbox.run("--memory", "--recall", *where)
    assert b"memory hook --recall" in file.read_bytes()
    sandbox.run("--memory", "--remove", *where)
    assert file.read_bytes() == mine


def test_the_shared_file_of_a_project_names_the_program_and_no_path(sandbox: Sandbox) -> None:
    sandbox.run("--memory", "--project")
    assert commands(sandbox.project_file.read_text())["Stop"] == ["kiwi memory hook"]


def test_a_dry_run_shows_the_change_and_writes_nothing(sandbox: Sandbox) -> None:
    shown = sandbox.run("--memory", "--dry-run")
    assert "memory hook" in shown
    assert "+" in shown
    assert not sandbox.user_file.exists()


def test_what_cannot_be_edited_is_named_with_its_line(sandbox: Sandbox) -> None:
    sandbox.user_file.parent.mkdir(parents=True)
    sandbox.user_file.write_text('{\n  "hooks": {]\n}\n')
    with pytest.raises(MalformedClientFile, match=re.escape(f"{sandbox.user_file}:2: ")):
        sandbox.run("--memory")
    assert sandbox.user_file.read_text() == '{\n  "hooks": {]\n}\n'


@pytest.mark.parametrize(
    ("client", "options"), [("codex", ["--memory"]), ("claude", ["--recall"]), ("vscode", ["--memory", "--tasks"])]
)
def test_options_that_do_not_fit_are_refused(sandbox: Sandbox, client: str, options: list[Any]) -> None:
    with pytest.raises(UsageError):
        sandbox.run(*options, client=client)
    assert not sandbox.user_file.exists()
