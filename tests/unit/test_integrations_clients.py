"""Setting clients up in real folders: where each keeps its files, what is kept, and what is refused untouched."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import tomllib
from pathlib import Path

import pytest

from kiwi_rag.integrations import client_files
from kiwi_rag.integrations.ai_clients import CLIENTS, TOOLSETS, ClientEnvironment, agent_instructions, plan_setup
from kiwi_rag.integrations.client_files import Backups, ClientFile, FileChange, MalformedClientFile
from kiwi_rag.integrations.config_edit import ClientFileError, NameTaken
from kiwi_rag.mcp.toolsets import DEFAULT
from tests.shared import ROOT

INSTRUCTIONS = agent_instructions()
BEGIN = "<!-- kiwi: begin. -->"


class Sandbox:
    """A user with a home and a project, whose clients are set up."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.home, self.project = folder / "home", folder / "project"
        self.bin = folder / "bin"
        for made in (self.home, self.project, self.bin):
            made.mkdir()
        (self.bin / "kiwi").write_text("#!/bin/sh\n")
        (self.bin / "kiwi").chmod(0o755)
        self.environment = ClientEnvironment(self.home, self.project, "linux", {"PATH": str(self.bin), **environ})
        self.backups = Backups(self.home / ".ai/clients")

    def plan(
        self, client: str, *, project: bool = True, remove: bool = False, toolsets: str = TOOLSETS
    ) -> list[FileChange]:
        options = {"project": project, "remove": remove, "toolsets": toolsets}
        return list(plan_setup(CLIENTS[client], self.environment, self.backups, **options))

    def run(self, client: str, *, project: bool = True, remove: bool = False, toolsets: str = TOOLSETS) -> list[Path]:
        with self.backups.locked():
            plan = self.plan(client, project=project, remove=remove, toolsets=toolsets)
            for change in plan:
                change.apply(0o644 if project else 0o600)
        return [change.file.path for change in plan]

    def write(self, path: str, data: str | bytes, mode: int = 0o644) -> Path:
        file = self.project / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data.encode() if isinstance(data, str) else data)
        file.chmod(mode)
        return file

    def snapshot(self) -> dict[str, bytes]:
        folders = (self.home, self.project)
        found = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in found if ".ai/clients" not in str(path)}


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


PROJECT_FILES = {
    "claude": (".mcp.json", "CLAUDE.md"),
    "cursor": (".cursor/mcp.json", ".cursor/rules/kiwi.mdc"),
    "vscode": (".vscode/mcp.json", ".github/copilot-instructions.md"),
    "roo": (".roo/mcp.json", ".roo/rules/kiwi.md"),
    "continue": (".continue/mcpServers/kiwi.json", ".continue/rules/kiwi.md"),
    "codex": (".codex/config.toml", "AGENTS.md"),
}
USER_FILES = {
    "claude": (".claude.json", ".claude/CLAUDE.md"),
    "claude-desktop": (".config/Claude/claude_desktop_config.json",),
    "cursor": (".cursor/mcp.json",),
    "vscode": (".config/Code/User/mcp.json", ".copilot/instructions/kiwi.instructions.md"),
    "roo": (
        ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
        ".roo/rules/kiwi.md",
    ),
    "continue": (".continue/mcpServers/kiwi.json", ".continue/rules/kiwi.md"),
    "codex": (".codex/config.toml", ".codex/AGENTS.md"),
}
ARGS = ["mcp", "--toolsets", "items,skills,workspace"]
EXPECTED = {
    "cursor": {"type": "stdio", "command": "kiwi", "args": ["--project", "${workspaceFolder}", *ARGS]},
    "vscode": {"type": "stdio", "cwd": "${workspaceFolder}", "command": "kiwi", "args": ARGS},
    "codex": {"command": "kiwi", "args": ARGS},
}


def entry(file: Path) -> dict:
    root = tomllib.loads(file.read_text()) if file.suffix == ".toml" else json.loads(file.read_text())
    return next(servers["kiwi"] for key, servers in root.items() if key in ("mcpServers", "servers", "mcp_servers"))


@pytest.mark.parametrize("client", PROJECT_FILES)
def test_a_project_gets_the_files_that_its_client_reads_and_loses_them_again(sandbox: Sandbox, client: str) -> None:
    written = sandbox.run(client)
    assert written == [sandbox.project / path for path in PROJECT_FILES[client]]
    assert entry(written[0]) == EXPECTED.get(client, {"type": "stdio", "command": "kiwi", "args": ARGS})
    assert INSTRUCTIONS in written[1].read_text()
    assert {path.stat().st_mode & 0o777 for path in written} == {0o644}
    assert sandbox.plan(client) == []
    assert sandbox.run(client, remove=True) == written
    assert sandbox.snapshot() == {}
    assert sandbox.plan(client, remove=True) == []


@pytest.mark.parametrize("client", ["claude", "codex"])
@pytest.mark.parametrize("project", [True, False])
def test_without_toolsets_the_server_chooses_where_it_starts(sandbox: Sandbox, client: str, project: bool) -> None:
    sandbox.run(client)
    config, rules = sandbox.run(client, project=project, toolsets="")
    assert entry(config)["args"] == ["mcp"]
    assert ("`update_files`" in rules.read_text()) is project
    assert "`workspace_search`" in rules.read_text()
    sandbox.run(client)
    sandbox.run(client, remove=True)
    sandbox.run(client, project=project, remove=True)
    assert sandbox.snapshot() == {}


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_other_toolsets_are_written_told_of_and_renewed_and_taken_out_to_the_byte(
    sandbox: Sandbox, client: str
) -> None:
    config, rules = (sandbox.project / path for path in PROJECT_FILES[client])
    sandbox.write(PROJECT_FILES[client][0], '{ "x":1 }' if client == "claude" else "x  =  1")
    before = sandbox.snapshot()
    sandbox.run(client, toolsets="workspace,documents")
    assert entry(config)["args"] == ["mcp", "--toolsets", "workspace,documents"]
    assert "`update_files`" in rules.read_text()
    assert "kiwi_search" not in rules.read_text()
    sandbox.run(client)
    assert entry(config)["args"] == ARGS
    assert {"`kiwi_search`", "`workspace_search`"} <= set(re.findall("`[a-z_]+`", rules.read_text()))
    assert "update_files" not in rules.read_text()
    sandbox.run(client, toolsets="documents")
    sandbox.run(client, remove=True)
    assert sandbox.snapshot() == before


def test_what_is_written_is_what_a_server_offers_by_itself() -> None:
    assert TOOLSETS == DEFAULT


def test_what_a_project_says_does_not_depend_on_who_set_it_up(sandbox: Sandbox) -> None:
    (sandbox.bin / "kiwi").unlink()
    assert entry(sandbox.run("claude")[0])["command"] == "kiwi"
    assert entry(sandbox.run("claude", project=False)[0])["command"] == sys.executable


@pytest.mark.parametrize("client", USER_FILES)
def test_a_user_gets_the_files_that_the_client_reads_and_loses_them_again(sandbox: Sandbox, client: str) -> None:
    written = sandbox.run(client, project=False)
    assert written == [sandbox.home / path for path in USER_FILES[client]]
    assert entry(written[0])["args"] == ARGS
    assert entry(written[0])["command"] == (str(sandbox.bin / "kiwi") if client == "claude-desktop" else "kiwi")
    assert {path.stat().st_mode & 0o777 for path in written} == {0o600}
    assert sandbox.plan(client, project=False) == []
    sandbox.run(client, project=False, remove=True)
    assert sandbox.snapshot() == {}


@pytest.mark.parametrize(
    ("platform", "environ", "client", "file"),
    [
        ("darwin", {}, "claude-desktop", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", {"APPDATA": "{home}/Roaming"}, "claude-desktop", "Roaming/Claude/claude_desktop_config.json"),
        ("linux", {"XDG_CONFIG_HOME": "{home}/cfg"}, "vscode", "cfg/Code/User/mcp.json"),
        ("linux", {"CLAUDE_CONFIG_DIR": "{home}/cc"}, "claude", "cc/.claude.json"),
        ("linux", {"CODEX_HOME": "{home}/cx"}, "codex", "cx/config.toml"),
        ("linux", {"CONTINUE_GLOBAL_DIR": "{home}/ct"}, "continue", "ct/mcpServers/kiwi.json"),
    ],
)
def test_systems_and_variables_move_the_files(
    sandbox: Sandbox, platform: str, environ: dict, client: str, file: str
) -> None:
    environ = {name: value.format(home=sandbox.home) for name, value in environ.items()}
    sandbox.environment = ClientEnvironment(sandbox.home, None, platform, environ)
    assert sandbox.plan(client, project=False)[0].file.path == sandbox.home / file


def test_a_clients_own_folder_may_lie_outside_of_the_home(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, CODEX_HOME=str(tmp_path / "elsewhere"))
    assert sandbox.run("codex", project=False)[0] == tmp_path / "elsewhere/config.toml"


def test_of_several_places_the_one_that_the_client_looks_at_is_taken(sandbox: Sandbox) -> None:
    sandbox.write("AGENTS.override.md", "# Now\n")
    sandbox.write(".zoo/rules/style.md", "# Style\n")
    sandbox.write(".roo/mcp.json", '{"mcpServers": {"x": {"command": "x"}}}\n')
    assert sandbox.run("codex")[1] == sandbox.project / "AGENTS.override.md"
    assert sandbox.run("roo") == [sandbox.project / ".roo/mcp.json", sandbox.project / ".zoo/rules/kiwi.md"]


EXISTING = {
    "plain": b'{\n  "mcpServers": {\n    "x": {\n      "command": "x"\n    }\n  }\n}\n',
    "no end of line": b'{"mcpServers": {"x": {"command": "x"}}}',
    "crlf": b'{\r\n  "mcpServers": {\r\n    "x": {"command": "x"}\r\n  }\r\n}\r\n',
    "bom": b'\xef\xbb\xbf{\n  "theme": "dark"\n}\n',
    "mixed ends of lines": b'{\r\n  "a": 1,\n  "b": 2\r\n}\n',
    "empty": b"",
    "empty servers": b'{ "mcpServers": {} }',
}


@pytest.mark.parametrize("data", EXISTING.values(), ids=EXISTING)
def test_remove_gives_back_every_byte_and_the_rights_of_what_was_there(sandbox: Sandbox, data: bytes) -> None:
    file = sandbox.write(".mcp.json", data, mode=0o640)
    rules = sandbox.write("CLAUDE.md", data)
    sandbox.run("claude")
    after = file.read_bytes()
    assert after.startswith(b"\xef\xbb\xbf") == data.startswith(b"\xef\xbb\xbf")
    if b"\r\n" in data and data.count(b"\n") == data.count(b"\r\n"):
        assert after.count(b"\n") == after.count(b"\r\n")
    assert json.loads(after.decode("utf-8-sig"))["mcpServers"]["kiwi"]["command"] == "kiwi"
    assert file.stat().st_mode & 0o777 == 0o640
    assert sandbox.plan("claude") == []
    sandbox.run("claude", remove=True)
    assert file.read_bytes() == data
    assert rules.read_bytes() == data
    assert file.stat().st_mode & 0o777 == 0o640


def test_what_came_later_stays_when_kiwi_goes(sandbox: Sandbox) -> None:
    file = sandbox.write(".vscode/mcp.json", '{\n  // ours\n  "servers": {}\n}\n')
    sandbox.run("vscode")
    file.write_text(file.read_text().replace("// ours", "// ours, all of them"))
    rules = sandbox.project / ".github/copilot-instructions.md"
    rules.write_text("# Be kind\n\n" + rules.read_text())
    sandbox.run("vscode", remove=True)
    assert file.read_text() == '{\n  // ours, all of them\n  "servers": {\n  }\n}\n'
    assert rules.read_text() == "# Be kind\n"


def test_the_backup_is_what_was_there_before_the_first_change_and_is_the_users_alone(sandbox: Sandbox) -> None:
    file = sandbox.write(".mcp.json", '{"token": "secret"}')
    sandbox.run("claude")
    backup = sandbox.backups.place(file)
    assert backup.read_text() == '{"token": "secret"}'
    assert backup.stat().st_mode & 0o777 == 0o600
    assert backup.parent.stat().st_mode & 0o777 == 0o700
    file.write_text(file.read_text().replace('"command": "kiwi"', '"command": "/old/kiwi"'))
    sandbox.run("claude")
    assert backup.read_text() == '{"token": "secret"}', "renewing an entry is not the first change"


def test_a_backup_of_long_ago_does_not_come_back(sandbox: Sandbox) -> None:
    file = sandbox.write(".mcp.json", '{"old": 1}')
    sandbox.run("claude")
    file.unlink()
    sandbox.run("claude")
    sandbox.run("claude", remove=True)
    assert not file.exists()


@pytest.mark.parametrize(
    ("path", "data", "what"),
    [
        (".mcp.json", b'{"mcpServers": {', ".mcp.json:1: "),
        (".mcp.json", b'{\n"a": "\xe9"}', ".mcp.json:2: it is not UTF-8 text"),
        (".mcp.json", '{"a": 1}'.encode("utf-16"), ".mcp.json:1: it is not UTF-8 text"),
        ("CLAUDE.md", b"# caf\xe9\n", "CLAUDE.md:1: it is not UTF-8 text"),
        ("CLAUDE.md", f"{BEGIN}\n".encode(), "CLAUDE.md:1: its lines marked by kiwi"),
    ],
)
@pytest.mark.parametrize("remove", [False, True])
def test_one_malformed_file_and_none_is_written(
    sandbox: Sandbox, path: str, data: bytes, what: str, remove: bool
) -> None:
    sandbox.write(path, data)
    before = sandbox.snapshot()
    with pytest.raises(MalformedClientFile) as refused:
        sandbox.run("claude", remove=remove)
    assert what in refused.value.message
    assert "nothing was written" in refused.value.hint
    assert sandbox.snapshot() == before


def test_another_server_named_kiwi_is_refused_with_its_file(sandbox: Sandbox) -> None:
    file = sandbox.write(".mcp.json", '{"mcpServers": {"kiwi": {"command": "fruit", "args": []}}}')
    with pytest.raises(NameTaken) as refused:
        sandbox.run("claude")
    assert str(file) in refused.value.message
    assert "mcpServers already has an entry 'kiwi'" in refused.value.message
    assert "rename" in refused.value.hint


def test_links_within_a_project_are_followed_and_stay_links(sandbox: Sandbox) -> None:
    sandbox.write("AGENTS.md", "# Ours\n")
    (sandbox.project / "CLAUDE.md").symlink_to("AGENTS.md")
    sandbox.run("claude")
    sandbox.run("codex")
    assert (sandbox.project / "CLAUDE.md").is_symlink()
    assert (sandbox.project / "AGENTS.md").read_text().count(INSTRUCTIONS) == 1


def test_links_out_of_a_project_are_refused_even_into_the_home(sandbox: Sandbox) -> None:
    for link, target in ((".cursor", sandbox.home / ".cursor"), ("CLAUDE.md", sandbox.home / ".bashrc")):
        target.parent.mkdir(exist_ok=True)
        (sandbox.project / link).symlink_to(target)
    (sandbox.home / ".cursor").mkdir()
    (sandbox.home / ".bashrc").write_text("alias x=y\n")
    before = sandbox.snapshot()
    for client in ("cursor", "claude"):
        with pytest.raises(ClientFileError, match="leads out of"):
            sandbox.run(client)
    assert sandbox.snapshot() == before


def test_a_link_into_the_data_of_git_is_refused(sandbox: Sandbox) -> None:
    sandbox.write(".git/config", "[core]\n")
    (sandbox.project / "CLAUDE.md").symlink_to(".git/config")
    before = sandbox.snapshot()
    with pytest.raises(ClientFileError, match="git repository's data") as refused:
        sandbox.run("claude")
    assert refused.value.hint == "remove the link"
    assert sandbox.snapshot() == before


def test_a_users_file_may_be_a_link_into_the_home_and_no_further(sandbox: Sandbox, tmp_path: Path) -> None:
    dotfile = sandbox.home / "dotfiles/codex.toml"
    dotfile.parent.mkdir()
    dotfile.write_text("a = 1\n")
    (sandbox.home / ".codex").mkdir()
    (sandbox.home / ".codex/config.toml").symlink_to(dotfile)
    sandbox.run("codex", project=False)
    assert "[mcp_servers.kiwi]" in dotfile.read_text()
    (sandbox.home / ".claude.json").symlink_to(tmp_path / "claude.json")
    with pytest.raises(ClientFileError, match="leads out of"):
        sandbox.run("claude", project=False)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, loop])
def test_what_is_no_file_is_refused_and_not_waited_for(sandbox: Sandbox, make) -> None:
    make(sandbox.project / ".mcp.json")
    with pytest.raises(ClientFileError, match=r"\.mcp\.json"):
        sandbox.run("claude")


def test_a_file_in_a_folders_place_is_refused(sandbox: Sandbox) -> None:
    sandbox.write(".cursor", "not a folder")
    with pytest.raises(ClientFileError, match="cannot write"):
        sandbox.run("cursor")


def test_a_read_only_file_is_left_alone_by_root_too(sandbox: Sandbox) -> None:
    file = sandbox.write(".mcp.json", "{}", mode=0o444)
    with pytest.raises(ClientFileError, match="read-only") as refused:
        sandbox.run("claude")
    assert f"chmod u+w {file}" in refused.value.hint
    assert file.read_bytes() == b"{}"
    assert not [path for path in sandbox.project.iterdir() if path.name != ".mcp.json"], "something was left lying"


def test_a_file_that_its_client_changed_meanwhile_is_not_overwritten(sandbox: Sandbox) -> None:
    file = sandbox.write(".mcp.json", "{}")
    plan = sandbox.plan("claude")
    file.write_text('{"new": 1}')
    with pytest.raises(ClientFileError, match="changed just now"):
        plan[0].apply(0o644)
    assert file.read_text() == '{"new": 1}'


def test_a_write_that_breaks_off_leaves_the_old_file_and_nothing_else(sandbox: Sandbox, monkeypatch) -> None:
    file = sandbox.write(".mcp.json", "{}")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    change = sandbox.plan("claude")[0]
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ClientFileError, match="No space left"):
        change.file.write(change.after, 0o644)
    assert [path.name for path in sandbox.project.iterdir()] == [".mcp.json"]
    assert file.read_bytes() == b"{}"


def test_a_second_setup_waits_for_the_first_and_then_gives_up(sandbox: Sandbox, monkeypatch) -> None:
    monkeypatch.setattr(client_files, "_WAIT_SECONDS", 0.2)
    with sandbox.backups.locked(), pytest.raises(ClientFileError, match="another kiwi setup"), sandbox.backups.locked():
        pass
    with sandbox.backups.locked():
        pass


def test_many_setups_at_once_lose_nothing(sandbox: Sandbox) -> None:
    sandbox.write("AGENTS.md", "# Ours\n")
    (sandbox.project / "CLAUDE.md").symlink_to("AGENTS.md")
    at_once = [threading.Thread(target=sandbox.run, args=[client]) for client in [*PROJECT_FILES] * 3]
    for thread in at_once:
        thread.start()
    for thread in at_once:
        thread.join()
    assert (sandbox.project / "AGENTS.md").read_text().count(INSTRUCTIONS) == 1
    for client, (config, _) in PROJECT_FILES.items():
        assert entry(sandbox.project / config)["command"] == "kiwi", client
        assert sandbox.plan(client) == []


def test_a_diff_says_what_would_change_and_changes_nothing(sandbox: Sandbox) -> None:
    sandbox.write(".codex/config.toml", "a = 1\r\n")
    before = sandbox.snapshot()
    config, rules = (change.diff() for change in sandbox.plan("codex"))
    assert config.splitlines()[2:] == [
        "@@ -1 +1,5 @@",
        " a = 1",
        "+",
        "+[mcp_servers.kiwi]",
        '+command = "kiwi"',
        '+args = ["mcp", "--toolsets", "items,skills,workspace"]',
    ]
    assert rules.startswith(f"--- /dev/null\n+++ {sandbox.project}/AGENTS.md\n")
    assert sandbox.snapshot() == before


def test_a_missing_file_reads_as_empty(tmp_path: Path) -> None:
    assert ClientFile.read(tmp_path / "none", [tmp_path]).text() == ""


def test_the_docs_name_every_file_and_quote_the_paragraph() -> None:
    docs = (ROOT / "docs/clients.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\S+)` \| (.*) \|$", docs, re.MULTILINE))
    assert rows.keys() == CLIENTS.keys()
    for client, paths in PROJECT_FILES.items():
        assert all(f"`{path}`" in rows[client].partition(" | ")[0] for path in paths), client
    for client, paths in USER_FILES.items():
        shown = rows[client].partition(" | ")[2]
        assert all(f"{path.replace('.config/', '')}`" in shown for path in paths), client
    quoted = docs.split("\n> ", 1)[1].split("\n\n", 1)[0]
    assert quoted.replace("\n> ", " ") == INSTRUCTIONS
