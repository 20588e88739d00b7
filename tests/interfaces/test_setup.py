"""`kiwi setup` as a user runs it: files, diffs, messages and exit codes."""

from __future__ import annotations

import json

import pytest

from tests.interfaces.conftest import PATIENCE, Kiwi

EVERY_CLIENT = ["claude", "claude-desktop", "cursor", "vscode", "roo", "continue", "codex"]


def contents(kiwi: Kiwi) -> dict[str, bytes]:
    folders = (kiwi.home, kiwi.cwd)
    return {str(path): path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def project(kiwi: Kiwi) -> Kiwi:
    (kiwi.cwd / ".ai").mkdir()
    return kiwi


def test_a_project_is_set_up_from_a_folder_below_it_and_a_second_time_nothing_changes(project: Kiwi) -> None:
    root = project.cwd
    (root / ".mcp.json").write_text('{\n  "mcpServers": {\n    "gh": {"command": "gh"}\n  }\n}\n')
    first = project.at(root / "src/deep").run("setup", "claude", "--project")
    assert first.stdout == ""
    assert f"wrote {root}/.mcp.json; backup: {project.home}/.ai/clients/" in first.stderr
    assert f"wrote {root}/CLAUDE.md\n" in first.stderr
    assert "next: restart claude" in first.stderr
    servers = json.loads((root / ".mcp.json").read_text())["mcpServers"]
    assert list(servers) == ["gh", "kiwi"]
    assert servers["kiwi"] == {"type": "stdio", "command": "kiwi", "args": ["mcp"]}
    assert "`update_files`" in (root / "CLAUDE.md").read_text()  # where a project is set up, documents are offered
    before = contents(project)
    assert "nothing to change" in project.run("setup", "claude", "--project").stderr
    assert contents(project) == before


def test_a_dry_run_prints_a_diff_that_patch_would_take_and_writes_nothing(project: Kiwi) -> None:
    (project.home / ".codex").mkdir()
    (project.home / ".codex/config.toml").write_text('model = "o5"\n')
    before = contents(project)
    shown = project.run("setup", "codex", "--dry-run")
    assert f"--- {project.home}/.codex/config.toml\n+++ " in shown.stdout
    assert "\n+[mcp_servers.kiwi]\n" in shown.stdout
    assert contents(project) == before
    assert not (project.home / ".ai").exists()


@pytest.mark.parametrize("client", EVERY_CLIENT)
def test_every_client_can_be_set_up_for_the_user_and_taken_out_again(project: Kiwi, client: str) -> None:
    project.run("setup", client)
    written = {path for path in contents(project) if ".ai/clients" not in path}
    assert written
    removed = project.run("setup", client, "--remove")
    assert all(f"removed {path}" in removed.stderr for path in written)
    assert not written & contents(project).keys()


def test_the_command_that_is_written_starts_this_kiwi(project: Kiwi) -> None:
    import subprocess

    project.run("setup", "claude-desktop")
    config = json.loads((project.home / ".config/Claude/claude_desktop_config.json").read_text())
    entry = config["mcpServers"]["kiwi"]
    asked = [entry["command"], *entry["args"], "--help"]
    done = subprocess.run(
        asked, capture_output=True, text=True, env=project.environment(), timeout=PATIENCE, check=True
    )
    assert "Model Context Protocol" in done.stdout


def test_toolsets_are_chosen_and_an_agent_is_told_of_those_alone(project: Kiwi) -> None:
    project.run("setup", "claude", "--project", "--toolsets", "workspace, documents")
    entry = json.loads((project.cwd / ".mcp.json").read_text())["mcpServers"]["kiwi"]
    assert entry["args"] == ["mcp", "--toolsets", "workspace,documents"]
    told = (project.cwd / "CLAUDE.md").read_text()
    assert "`workspace_search`" in told
    assert "kiwi_search" not in told
    refused = project.run("setup", "claude", "--project", "--toolsets", "everything", expect=2)
    assert "items, skills, workspace, documents" in refused.stderr


def test_a_malformed_file_is_named_with_its_line_and_left_as_it_is(project: Kiwi) -> None:
    broken = project.cwd / ".vscode/mcp.json"
    broken.parent.mkdir()
    broken.write_text('{\n  "servers": {\n')
    before = contents(project)
    refused = project.run("setup", "vscode", "--project", expect=1)
    assert f"{broken}:3: " in refused.stderr
    assert "→ repair the file" in refused.stderr
    told = project.run("--json", "setup", "vscode", "--project", expect=1)
    assert json.loads(told.stderr)["error"]["code"] == "client-malformed"
    assert {path: data for path, data in contents(project).items() if ".ai/" not in path} == before


def test_json_says_what_changed(project: Kiwi) -> None:
    told = project.json("setup", "cursor", "--project", "--dry-run")
    assert told["dry_run"] is True
    assert [change["action"] for change in told["changes"]] == ["write", "write"]
    assert told["changes"][1]["path"] == str(project.cwd / ".cursor/rules/kiwi.mdc")
    assert "+alwaysApply: true" in told["changes"][1]["diff"]


def test_what_makes_no_sense_is_refused_with_a_hint(kiwi: Kiwi) -> None:
    assert "without --project" in kiwi.run("setup", "claude-desktop", "--project", expect=2).stderr
    assert "kiwi init" in kiwi.run("setup", "claude", "--project", expect=2).stderr
    assert "claude-desktop" in kiwi.run("setup", "emacs", expect=2).stderr
    assert not (kiwi.cwd / ".mcp.json").exists()


def test_setups_at_once_do_not_get_in_each_others_way(project: Kiwi) -> None:
    (project.cwd / "AGENTS.md").write_text("# Ours\n")
    (project.cwd / "CLAUDE.md").symlink_to("AGENTS.md")
    running = [project.start("setup", client, "--project") for client in ("claude", "codex", "claude", "codex")]
    for process in running:
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
    text = (project.cwd / "AGENTS.md").read_text()
    assert text.startswith("# Ours\n\n<!-- kiwi: begin")
    assert text.count("<!-- kiwi: begin") == text.count("<!-- kiwi: end") == 1


def test_control_characters_of_a_file_do_not_reach_the_terminal(project: Kiwi) -> None:
    (project.cwd / "CLAUDE.md").write_text("# Ours \x1b]0;mine\x07\n")
    shown = project.run("setup", "claude", "--project", "--dry-run").stdout
    assert "\x1b" not in shown
    assert "# Ours" in shown
