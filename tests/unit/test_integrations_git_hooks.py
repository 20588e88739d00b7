"""Git hooks, with the real git: what triggers them, that nothing of the user's is lost, that removal undoes it all."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from kiwi_rag.cli.session import Session
from kiwi_rag.cli.workspace import hooks
from kiwi_rag.errors import KiwiError
from kiwi_rag.integrations.config_edit import ClientFileError
from kiwi_rag.integrations.git_hooks import (
    HEAD,
    SAFE,
    HooksRefused,
    Repository,
    hook_block,
    plan_install,
    plan_removal,
    safe_environment,
)
from tests.shared import ROOT

HOOKS = ("post-checkout", "post-merge", "post-rewrite")
# Indexes as long as the file `hold` is there, so that runs can overlap; logs its arguments, and whether one overlapped.
STAND_IN = """#!/bin/sh
here=$(dirname "$0")
if [ "$3" = stats ]; then
  cat "$here/stats.json"
  : >"$here/asked"
  exit
fi
mkdir "$here/running" 2>/dev/null || echo overlap >>"$here/calls"
tries=0
while [ -e "$here/hold" ] && [ $((tries += 1)) -lt 6000 ]; do sleep 0.02; done
printf '%s|%s|%s\\n' "$(pwd)" "$*" "${GIT_DIR-}" >>"$here/calls"
rmdir "$here/running"
exit "$(cat "$here/status")"
"""


class Sandbox:
    """A repository with one commit, and a `kiwi` on the PATH that writes down how it is called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin, self.home = folder, folder / "bin", folder / "home"
        for made in (self.bin, self.home):
            made.mkdir()
        self.install_kiwi()
        self.repo = self.new("repo")

    def install_kiwi(self) -> None:
        (self.bin / "kiwi").write_text(STAND_IN)
        (self.bin / "kiwi").chmod(0o755)
        self.says(documents=4)
        (self.bin / "status").write_text("0\n")

    def says(self, documents: int) -> None:
        (self.bin / "stats.json").write_text(json.dumps({"documents": documents, "passages": 9}, indent=2))

    def new(self, name: str) -> Path:
        repo = self.folder / name
        self.git("init", "-q", "-b", "main", str(repo), at=self.folder)
        self.commit("a.md", repo)
        self.commit(".ai/workspace.yaml", repo)
        return repo

    def environment(self) -> dict[str, str]:
        names = {f"GIT_{who}_{what}": "ada" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        return {"PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1", **names}

    def git(self, *arguments: str, at: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=at or self.repo,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def commit(self, name: str, at: Path | None = None) -> None:
        repo = at or self.repo
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(f"# {name}\n")
        self.git("add", name, at=repo)
        self.git("commit", "-q", "-m", name, at=repo)

    def branch_with_commit(self) -> None:
        """Leave a branch `side` that is one commit ahead of main, and stand on main."""
        self.git("checkout", "-q", "-b", "side")
        self.commit("b.md")
        self.git("checkout", "-q", "main")

    def install(self, root: Path | None = None, **options: bool) -> None:
        plan_install(root or self.repo, **options).apply()

    def remove(self) -> None:
        plan_removal(self.repo).apply()

    def write(self, path: str, text: str, mode: int = 0o755) -> Path:
        file = self.repo / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
        return file

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no run of `kiwi` end before the block does."""
        (self.bin / "hold").touch()
        try:
            yield
        finally:
            (self.bin / "hold").unlink()

    def calls(self, count: int) -> list[str]:
        """Wait for so many calls of `kiwi`, and a little longer, for calls that should not come."""
        wait_until(lambda: len(self.called()) >= count and not (self.bin / "running").exists())
        time.sleep(0.15)
        return self.called()

    def called(self) -> list[str]:
        calls = self.bin / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def settled(self, repo: Path | None = None) -> None:
        """Wait until no hook's run is under way, and forget the calls so far."""
        lock = (repo or self.repo) / ".git/kiwi/lock"
        time.sleep(0.15)
        wait_until(lambda: not lock.exists())
        (self.bin / "calls").unlink(missing_ok=True)

    def snapshot(self) -> dict[str, tuple[bytes, int]]:
        found = [path for path in self.repo.rglob("*") if path.is_file() and not {"objects", "kiwi"} & {*path.parts}]
        return {str(path): (path.read_bytes(), path.stat().st_mode) for path in found if path.name != "index"}


def wait_until(is_so) -> None:
    for _ in range(3000):  # a minute
        if is_so():
            return
        time.sleep(0.02)


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    made = Sandbox(tmp_path)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return made


def test_merges_and_branch_checkouts_index_and_other_commands_do_not(sandbox: Sandbox) -> None:
    sandbox.branch_with_commit()
    sandbox.install()
    called = f"{sandbox.repo}|--quiet workspace index .|"
    assert sandbox.git("merge", "-q", "side") == "", "the hook says something"
    assert sandbox.calls(1) == [called]
    sandbox.git("checkout", "-q", "side")
    assert sandbox.calls(2) == [called, called]
    sandbox.git("checkout", "--", "a.md")
    sandbox.git("status")
    sandbox.commit("c.md")
    sandbox.git("commit", "-q", "--amend", "-m", "again")
    assert sandbox.calls(2) == [called, called]


def test_a_rebase_indexes_when_it_is_done(sandbox: Sandbox) -> None:
    sandbox.branch_with_commit()
    sandbox.commit("d.md")
    sandbox.install()
    (sandbox.repo / ".githooks/post-checkout").unlink()  # it runs as well, when the rebase begins
    sandbox.git("rebase", "-q", "side")
    assert len(sandbox.calls(1)) == 1


def test_git_waits_for_nothing_and_fails_by_nothing(sandbox: Sandbox) -> None:
    sandbox.branch_with_commit()
    sandbox.install()
    (sandbox.bin / "status").write_text("1\n")
    with sandbox.held():
        sandbox.git("merge", "-q", "side")
        wait_until(lambda: (sandbox.bin / "running").exists())
        assert sandbox.called() == [], "git waited for the index"
    assert len(sandbox.calls(1)) == 1


def test_nothing_happens_without_kiwi_or_without_an_index(sandbox: Sandbox) -> None:
    sandbox.install()
    sandbox.says(documents=0)
    sandbox.git("checkout", "-q", "-b", "one")
    wait_until((sandbox.bin / "asked").exists)
    assert sandbox.calls(0) == []
    assert not (sandbox.repo / ".git/kiwi").exists()
    sandbox.says(documents=4)
    sandbox.git("rm", "-q", "-r", ".ai")
    sandbox.git("checkout", "-q", "-b", "three")
    assert sandbox.calls(0) == []
    (sandbox.bin / "kiwi").unlink()
    assert sandbox.git("checkout", "-q", "-b", "two") == ""
    assert not (sandbox.repo / ".git/kiwi").exists()


def test_of_many_checkouts_one_runs_at_a_time_and_the_last_is_seen(sandbox: Sandbox) -> None:
    sandbox.install()
    with sandbox.held():
        for number in range(6):
            sandbox.git("checkout", "-q", "-b", f"b{number}")
        wait_until(lambda: (sandbox.bin / "running").exists() and (sandbox.repo / ".git/kiwi/again").exists())
        assert sandbox.called() == []
        after = time.time()
    wait_until(
        lambda: not list((sandbox.repo / ".git/kiwi").glob("lock")) and not (sandbox.repo / ".git/kiwi/again").exists()
    )
    calls = sandbox.calls(2)
    assert "overlap" not in calls
    assert 2 <= len(calls) < 6, "checkouts during a run are one more run"
    assert (sandbox.bin / "calls").stat().st_mtime >= after, "the last checkout was not looked at"


def test_a_run_that_was_killed_does_not_hold_the_next_one_up(sandbox: Sandbox) -> None:
    sandbox.install()
    state = sandbox.repo / ".git/kiwi"
    state.mkdir()
    for holder in ("", "999999999\n"):
        (state / "lock").write_text(holder)
        sandbox.git("checkout", "-q", "-b", f"after-{len(holder)}")
        assert len(sandbox.calls(1)) == 1
        sandbox.settled()
    (state / "lock").write_text(f"{os.getpid()}\n")
    sandbox.git("checkout", "-q", "-b", "held")
    assert sandbox.calls(0) == []
    assert (state / "again").exists(), "whoever holds the lock does not learn of it"


def test_a_run_outlives_the_terminal(sandbox: Sandbox) -> None:
    sandbox.install()
    with (
        sandbox.held(),
        subprocess.Popen(
            ["git", "checkout", "-q", "-b", "x"], cwd=sandbox.repo, env=sandbox.environment(), start_new_session=True
        ) as git,
    ):
        git.wait(120)
        wait_until(lambda: (sandbox.bin / "running").exists())
        os.killpg(git.pid, 1)
    assert len(sandbox.calls(1)) == 1


def test_a_folder_of_the_repository_can_be_the_workspace(sandbox: Sandbox) -> None:
    sandbox.commit("it's $HOME/.ai/workspace.yaml")
    sandbox.install(sandbox.repo / "it's $HOME")
    sandbox.git("checkout", "-q", "-b", "x")
    assert sandbox.calls(1) == [f"{sandbox.repo}/it's $HOME|--quiet workspace index .|"]


def test_every_work_tree_is_indexed_where_it_is(sandbox: Sandbox) -> None:
    sandbox.install()
    sandbox.git("add", ".githooks")
    sandbox.git("commit", "-q", "-m", "hooks")
    sandbox.git("worktree", "add", "-q", str(sandbox.folder / "tree"), "-b", "other")
    assert sandbox.calls(1) == [f"{sandbox.folder}/tree|--quiet workspace index .|"]
    assert (sandbox.repo / ".git/worktrees/tree/kiwi/log").exists()
    assert plan_install(sandbox.folder / "tree").is_empty


def test_a_bare_repository_is_refused_and_its_work_trees_are_not(sandbox: Sandbox) -> None:
    sandbox.git("clone", "-q", "--bare", str(sandbox.repo), str(sandbox.folder / "bare.git"))
    with pytest.raises(HooksRefused, match="bare repository"):
        plan_install(sandbox.folder / "bare.git")
    sandbox.git("worktree", "add", "-q", str(sandbox.folder / "tree"), "main", at=sandbox.folder / "bare.git")
    sandbox.install(sandbox.folder / "tree")
    sandbox.git("checkout", "-q", "-b", "x", at=sandbox.folder / "tree")
    assert sandbox.calls(1) == [f"{sandbox.folder}/tree|--quiet workspace index .|"]


def test_a_new_setup_is_undone_exactly_and_done_twice_changes_nothing(sandbox: Sandbox) -> None:
    before = sandbox.snapshot()
    sandbox.install()
    assert sorted(path.name for path in (sandbox.repo / ".githooks").iterdir()) == sorted(HOOKS)
    assert sandbox.git("config", "--local", "core.hooksPath") == ".githooks\n"
    done = sandbox.snapshot()
    assert plan_install(sandbox.repo).is_empty
    assert sandbox.snapshot() == done
    sandbox.remove()
    assert sandbox.snapshot() == before
    assert not (sandbox.repo / ".githooks").exists()
    assert plan_removal(sandbox.repo).is_empty


@pytest.mark.parametrize(
    ("hook", "text"),
    [
        (".git/hooks/pre-commit", "#!/bin/sh\nexit 0\n"),
        (".git/hooks/post-merge", "#!/usr/bin/env bash\nset -eu\necho mine >>seen\nexit 7\n"),
        (".git/hooks/post-merge", "#!/bin/sh\nexec sh -c 'echo mine >>seen'"),
        (".git/hooks/post-merge", "#!/bin/sh"),
        (".git/hooks/post-merge", "echo mine >>seen  # caf\udce9, without a first line that names a shell\n"),
    ],
)
def test_hooks_that_are_there_stay_and_run_as_before(sandbox: Sandbox, hook: str, text: str) -> None:
    sandbox.branch_with_commit()
    file = sandbox.repo / hook
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    file.chmod(0o750)
    before = sandbox.snapshot()
    sandbox.install()
    assert not (sandbox.repo / ".githooks").exists(), "core.hooksPath would have silenced the hooks that are there"
    assert plan_install(sandbox.repo).is_empty
    subprocess.run(
        ["git", "merge", "-q", "side"], cwd=sandbox.repo, env=sandbox.environment(), check=False, timeout=120
    )
    assert len(sandbox.calls(1)) == 1
    assert (sandbox.repo / "seen").exists() == ("mine" in text)
    sandbox.git("reset", "-q", "--hard", "HEAD~1")
    (sandbox.repo / "seen").unlink(missing_ok=True)
    sandbox.remove()
    assert (
        sandbox.snapshot().items()
        >= {k: v for k, v in before.items() if "/hooks/" in k or k.endswith("config")}.items()
    )
    assert file.stat().st_mode & 0o777 == 0o750
    assert not (file.parent / "post-checkout").exists()


def test_the_folder_that_is_configured_is_used_and_stays_configured(sandbox: Sandbox) -> None:
    sandbox.git("config", "core.hooksPath", "tools/hooks")
    mine = sandbox.write("tools/hooks/post-checkout", "#!/bin/sh\necho mine >>seen\n")
    before = sandbox.snapshot()
    sandbox.install()
    sandbox.git("checkout", "-q", "-b", "x")
    assert len(sandbox.calls(1)) == 1
    assert (sandbox.repo / "seen").exists()
    (sandbox.repo / "seen").unlink()
    sandbox.remove()
    assert mine.read_text() == "#!/bin/sh\necho mine >>seen\n"
    assert sandbox.git("config", "core.hooksPath") == "tools/hooks\n"
    assert {path for path in sandbox.snapshot() if "/tools/" in path} == {path for path in before if "/tools/" in path}


def test_huskys_scripts_are_those_that_it_does_not_write_itself(sandbox: Sandbox) -> None:
    sandbox.git("config", "core.hooksPath", ".husky/_")
    sandbox.write(".husky/_/post-merge", '#!/usr/bin/env sh\n. "$(dirname "$0")/h"\n')
    sandbox.write(".husky/_/h", '#!/usr/bin/env sh\ns=$(dirname "$(dirname "$0")")/$(basename "$0")\nsh -e "$s" "$@"\n')
    mine = sandbox.write(".husky/post-merge", "false || echo mine >>seen\n", 0o644)
    sandbox.branch_with_commit()
    sandbox.install()
    sandbox.git("merge", "-q", "side")
    assert len(sandbox.calls(1)) == 1
    assert (sandbox.repo / "seen").exists()
    sandbox.remove()
    assert mine.read_text() == "false || echo mine >>seen\n"


def refused(sandbox: Sandbox, **options: bool) -> HooksRefused:
    before = sandbox.snapshot()
    with pytest.raises(HooksRefused) as error:
        plan_install(sandbox.repo, **options)
    assert sandbox.snapshot() == before
    assert error.value.hint
    return error.value


def test_hooks_that_kiwi_cannot_add_to_are_named_and_left(sandbox: Sandbox) -> None:
    mine = sandbox.write(".git/hooks/post-merge", "#!/usr/bin/env python3\nprint('mine')\n")
    assert f"{mine}:1: it is not a shell script" in refused(sandbox).message
    mine.write_text("#!/bin/sh\n# kiwi: begin\n")
    assert "not one pair" in refused(sandbox).message
    mine.chmod(0o644)
    sandbox.write(".git/hooks/pre-push", "#!/bin/sh\n")
    assert f"chmod +x {mine}" in refused(sandbox).hint
    mine.unlink()
    sandbox.write(".git/hooks/all", "#!/bin/sh\n")
    for name in ("post-merge", "post-checkout"):
        (sandbox.repo / ".git/hooks" / name).symlink_to("all")
    assert "several hooks at once" in refused(sandbox).message


def test_a_pipe_in_a_hooks_place_is_refused_and_not_waited_for(sandbox: Sandbox) -> None:
    sandbox.write(".git/hooks/pre-push", "#!/bin/sh\n")
    os.mkfifo(sandbox.repo / ".git/hooks/post-merge")
    with pytest.raises(ClientFileError, match="post-merge is not a file"):
        plan_install(sandbox.repo)


def test_hooks_of_other_repositories_are_not_touched(sandbox: Sandbox) -> None:
    (sandbox.home / "hooks").mkdir()
    sandbox.git("config", "--global", "core.hooksPath", "~/hooks")
    assert "not this one's alone" in refused(sandbox).message
    assert "git config core.hooksPath .githooks" in refused(sandbox).hint
    sandbox.git("config", "core.hooksPath", "")
    refused(sandbox)
    sandbox.git("config", "core.hooksPath", "linked")
    (sandbox.repo / "linked").symlink_to(sandbox.home / "hooks")
    refused(sandbox)
    assert list((sandbox.home / "hooks").iterdir()) == []


def test_committed_hooks_that_never_ran_here_are_not_set_going(sandbox: Sandbox) -> None:
    theirs = sandbox.write(".githooks/pre-commit", "#!/bin/sh\necho theirs\n")
    error = refused(sandbox)
    assert "pre-commit" in error.message
    assert "read them" in error.hint
    theirs.chmod(0o644)
    sandbox.install()


def test_whoever_clones_the_repository_sets_the_path_alone_and_unsets_it_alone(sandbox: Sandbox) -> None:
    sandbox.install()
    sandbox.git("add", ".githooks")
    sandbox.git("commit", "-q", "-m", "hooks")
    sandbox.git("clone", "-q", str(sandbox.repo), str(sandbox.folder / "clone"))
    sandbox.repo = sandbox.folder / "clone"
    plan = plan_install(sandbox.repo)
    assert (list(plan.changes), plan.hooks_path) == ([], True)
    plan.apply()
    sandbox.git("checkout", "-q", "-b", "x")
    assert len(sandbox.calls(1)) == 1
    removal = plan_removal(sandbox.repo)
    assert (list(removal.changes), removal.hooks_path) == ([], False)
    assert [path.name for path in removal.left] == sorted(HOOKS)
    removal.apply()
    assert sandbox.git("status", "--porcelain") == ""
    assert "hooksPath" not in sandbox.git("config", "--list", "--local")


def test_hooks_that_came_to_kiwis_folder_later_go_on_running(sandbox: Sandbox) -> None:
    sandbox.install()
    mine = sandbox.write(".githooks/pre-commit", "#!/bin/sh\necho mine >>seen\n")
    added = sandbox.repo / ".githooks/post-merge"
    added.write_text(added.read_text() + "echo mine >>seen\n")
    sandbox.remove()
    assert added.read_text() == HEAD + "echo mine >>seen\n"
    assert mine.exists()
    assert sandbox.git("config", "core.hooksPath") == ".githooks\n"


def test_local_hooks_are_where_no_commit_can_change_them(sandbox: Sandbox) -> None:
    before = sandbox.snapshot()
    sandbox.install(local=True)
    assert sorted(p.name for p in (sandbox.repo / ".git/hooks").iterdir() if p.suffix != ".sample") == sorted(HOOKS)
    sandbox.git("checkout", "-q", "-b", "x")
    assert len(sandbox.calls(1)) == 1
    sandbox.git("checkout", "-q", "main")
    sandbox.git("branch", "-q", "-D", "x")
    sandbox.remove()
    assert {path for path in sandbox.snapshot() if "/hooks/" in path} == {path for path in before if "/hooks/" in path}
    sandbox.git("config", "core.hooksPath", ".githooks")
    assert "without --local" in refused(sandbox, local=True).hint


def test_lines_are_renewed_when_another_folder_is_to_be_indexed(sandbox: Sandbox) -> None:
    sandbox.commit("docs/a.md")
    sandbox.install()
    sandbox.install(sandbox.repo / "docs")
    text = (sandbox.repo / ".githooks/post-merge").read_text()
    assert text.count("# kiwi: begin") == 1
    assert "kiwi docs </dev/null" in text


def test_every_hook_is_plain_sh(sandbox: Sandbox) -> None:
    for hook in HOOKS:
        text = f"{HEAD}{hook_block(hook).lines}\n"
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)
        inner = re.search(r"sh -c '(.*?)'", text, re.DOTALL)
        assert inner
        subprocess.run(["sh", "-n"], input=inner[1], text=True, check=True)


def test_the_hooks_of_this_repository_are_those_that_the_command_writes() -> None:
    for hook in HOOKS:
        file = ROOT / ".githooks" / hook
        assert file.read_text() == f"{HEAD}{hook_block(hook).lines}\n"
        assert os.access(file, os.X_OK)


def run(sandbox: Sandbox, *arguments: str, as_json: bool = False) -> str:
    result = CliRunner().invoke(
        hooks, [str(sandbox.repo), *arguments], obj=Session(as_json=as_json), catch_exceptions=False
    )
    return result.output


def test_the_command_says_what_it_did_and_what_is_next(sandbox: Sandbox) -> None:
    said = run(sandbox)
    assert f"wrote {sandbox.repo}/.githooks/post-merge\n" in said
    assert "set core.hooksPath to .githooks\n" in said
    assert "next: git add .githooks" in said
    assert "there is no index" not in said
    assert run(sandbox) == "nothing to change\n"
    sandbox.commit("docs/a.md")
    said = CliRunner().invoke(hooks, [str(sandbox.repo / "docs")], obj=Session()).output
    assert f"kiwi workspace index {sandbox.repo}/docs" in said
    run(sandbox)
    sandbox.git("checkout", "-q", "-b", "x")
    sandbox.calls(1)
    sandbox.settled()
    removed = run(sandbox, "--remove")
    assert f"removed {sandbox.repo}/.githooks/post-merge\n" in removed
    assert "unset core.hooksPath\n" in removed
    assert not (sandbox.repo / ".git/kiwi").exists()


def test_json_says_what_changed(sandbox: Sandbox) -> None:
    told = json.loads(run(sandbox, as_json=True).partition("\nwrote")[0])
    assert told["sets_hooks_path"] is True
    assert {Path(change["path"]).name: change["action"] for change in told["changes"]} == dict.fromkeys(HOOKS, "write")


def test_outside_of_a_repository_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KiwiError, match="in no git work tree") as error:
        plan_install(tmp_path)
    assert error.value.hint == "git init makes one"


def settings(sandbox: Sandbox, marker: Path) -> dict[str, str]:
    """Settings of a repository that each name a command for git to run; it leaves a file."""
    (sandbox.repo / "evil.sh").write_text(f"#!/bin/sh\ntouch {marker}\n")
    (sandbox.repo / "evil.sh").chmod(0o755)
    evil = str(sandbox.repo / "evil.sh")
    return {
        "core.fsmonitor": evil, "core.pager": evil, "core.sshCommand": evil, "core.askPass": evil,
        "pager.ls-files": evil, "pager.rev-parse": evil, "alias.rev-parse": f"!{evil}", "alias.ls-files": f"!{evil}",
        "diff.external": evil, "credential.helper": f"!{evil}", "extensions.partialClone": "origin",
        "remote.origin.url": str(sandbox.repo / ".git"), "remote.origin.promisor": "true",
        "remote.origin.partialclonefilter": "blob:none", "remote.origin.uploadpack": f"{evil}; false",
        "protocol.allow": "always", "protocol.file.allow": "always", "protocol.ext.allow": "always",
        "protocol.ssh.allow": "always",
    }  # fmt: skip


def lacking_its_commit(sandbox: Sandbox, marker: Path) -> None:
    """Make the repository one that names commands, and whose newest commit has to be fetched to be seen."""
    commit = sandbox.git("rev-parse", "HEAD").strip()
    for name, value in settings(sandbox, marker).items():
        sandbox.git("config", "--local", name, value)
    (sandbox.repo / ".git/objects" / commit[:2] / commit[2:]).unlink()


REMOTES = {"path": "{repo}/.git", "ext": "ext::{repo}/evil.sh", "ssh": "ssh://localhost/x"}


@pytest.mark.parametrize("remote", REMOTES.values(), ids=REMOTES)
def test_git_runs_no_command_that_a_repository_names(sandbox: Sandbox, remote: str) -> None:
    marker = sandbox.folder / "ran"
    lacking_its_commit(sandbox, marker)
    sandbox.git("config", "--local", "remote.origin.url", remote.format(repo=sandbox.repo))
    looking = ["-C", str(sandbox.repo), "rev-parse", "--verify", "--quiet", "HEAD^{commit}"]
    subprocess.run(["git", *SAFE, *looking], env=safe_environment(), capture_output=True, timeout=120)
    assert not marker.exists()
    repository = Repository.at(sandbox.repo)
    repository.tracks(sandbox.repo / "a.md")
    sandbox.install()
    sandbox.remove()
    assert not marker.exists()
    subprocess.run(["git", *looking], env=sandbox.environment(), capture_output=True, timeout=120)
    assert marker.exists(), "git alone runs it: the settings do name commands"


def test_a_file_monitor_that_a_repository_names_does_not_run(sandbox: Sandbox) -> None:
    marker = sandbox.folder / "ran"
    sandbox.git("config", "--local", "core.fsmonitor", settings(sandbox, marker)["core.fsmonitor"])
    assert Repository.at(sandbox.repo).tracks(sandbox.repo / "a.md")
    sandbox.install()
    sandbox.remove()
    assert not marker.exists()
    sandbox.git("ls-files", "--error-unmatch", "--", "a.md")
    assert marker.exists(), "git alone runs it"


def test_a_folder_of_files_that_looks_like_a_repository_is_none(sandbox: Sandbox) -> None:
    """A clone may bring one along, with its configuration."""
    brought = sandbox.repo / "docs"
    sandbox.git("clone", "-q", "--bare", str(sandbox.repo), str(brought))
    sandbox.git("config", "core.worktree", str(brought), at=brought)
    sandbox.git("config", "core.bare", "false", at=brought)
    assert sandbox.git("rev-parse", "--show-toplevel", at=brought) == f"{brought}\n", "git alone takes it"
    with pytest.raises(HooksRefused, match="bare repository"):
        Repository.at(brought)


@pytest.mark.parametrize("sign", ["\n", "\r", "\x1b", "\x85", "\u2028"])
def test_a_path_with_a_line_break_is_refused(sandbox: Sandbox, sign: str) -> None:
    """What follows it would stand in a line of the hook by itself."""
    folder = sandbox.repo / f"docs{sign}# kiwi: end"
    folder.mkdir()
    before = sandbox.snapshot()
    for root in (folder, sandbox.new(f"other{sign}name")):
        with pytest.raises(HooksRefused, match="control character") as refused:
            sandbox.install(root)
        assert refused.value.message.isprintable()
    sandbox.git("config", "--local", "core.worktree", str(folder))
    with pytest.raises(HooksRefused):
        sandbox.install()
    sandbox.git("config", "--local", "--unset", "core.worktree", at=sandbox.repo / ".git")
    assert sandbox.snapshot() == before
