"""`kiwi serve`: the command line and agents' sessions through the service are what they are without it."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kiwi_rag import __version__
from kiwi_rag.local_service import client
from kiwi_rag.render.layout import columns
from tests.interfaces.conftest import PASSPHRASE, PATIENCE, Kiwi, note, wait_until

QUERY = "undo a bad release"


def at(user: Kiwi, run: Path, **extra: str) -> Kiwi:
    """The same user, whose service listens in `run`."""
    return replace(user, extra={**user.extra, "XDG_RUNTIME_DIR": str(run), **extra})


def alone(user: Kiwi) -> Kiwi:
    """The same user, who does not want the service."""
    return replace(user, extra={**user.extra, "KIWI_SERVICE": "off"})


@contextmanager
def serving(user: Kiwi, *arguments: str) -> Iterator[subprocess.Popen]:
    """A service, warm, that must end in order."""
    process = user.start("serve", *arguments)
    try:
        line = process.stderr.readline()
        assert "serving at" in line, line + process.stderr.read()
        user.run("search", QUERY, expect=None)
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.communicate(timeout=PATIENCE)


def served(user: Kiwi) -> int:
    """How many requests the service has had."""
    return user.json("status")["service"]["requests"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture(scope="module")
def warm(acme: Kiwi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kiwi]:
    """A user with the example items and a service."""
    folder = tmp_path_factory.mktemp("run")
    user = at(acme, folder)
    with serving(user) as process:
        yield user
        assert process.poll() is None


def told(user: Kiwi, *arguments: str) -> tuple[int, str, str]:
    done = user.run(*arguments, expect=None)
    times = re.compile(r'"(seconds": [0-9.e-]+|timings": \{[^}]*\})')
    return done.returncode, times.sub("…", done.stdout), re.sub(r"\(\d+\.\d s\)", "(… s)", done.stderr)


@pytest.mark.parametrize(
    ("arguments", "by_the_service"),
    [
        (["search", QUERY], True),
        (["search", QUERY, "--format", "json"], True),
        (["search", QUERY, "--format", "md", "-n", "2"], True),
        (["search", QUERY, "--format", "paths", "--type", "script"], True),
        (["--json", "search", QUERY], True),
        (["--quiet", "search", QUERY], True),
        (["search", QUERY, "--json"], True),
        (["search", "-q", QUERY], True),
        (["search", QUERY, "--project", "."], False),
        (["show", "acme/deploy/rollback", "--json", "--verbose"], True),
        (["-qv", "search", "zzzz", "--namespace", "nobody"], True),
        (["search", "zzzz", "--namespace", "nobody"], True),
        (["search", QUERY, "--source", "user"], True),
        (["search", QUERY, "--source", "all"], True),
        (["show", "acme/deploy/rollback"], True),
        (["--json", "show", "acme/deploy/rollback"], True),
        (["list", "--source", "local"], True),
        # What follows is told by the command line itself.
        (["show", "acme/no/such"], True),
        (["search", QUERY, "--limit", "-1"], True),
        (["search", QUERY, "--no-such-option"], True),
        (["--json", "search", QUERY, "--type", "poem"], True),
        (["search"], True),
        (["search", "--help"], False),
        (["search", QUERY, "--weights", "alpha=0.5"], False),
        (["--project", "/no/such", "search", QUERY], False),
        (["--no-such", "search", QUERY], False),
        (["config"], False),
        (["verify"], False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_output_and_exit_code_are_the_same(warm: Kiwi, arguments: list[str], by_the_service: bool):
    before = served(warm)
    assert told(warm, *arguments) == told(alone(warm), *arguments)
    assert served(warm) - before == by_the_service


@pytest.fixture(scope="module")
def documented(warm: Kiwi) -> Kiwi:
    """The same user, below the folder of two indexed documents."""
    folder = warm.cwd / "docs/releases"
    folder.mkdir(parents=True)
    (folder / "undo.md").write_text("# Undoing a release\n\nRun the rollback of the last deploy.\n")
    (warm.cwd / "docs/other.md").write_text("# Releases\n\nA release goes out on Mondays, the rollback too.\n")
    warm.run("workspace", "index", ".")
    return replace(warm, cwd=folder)


@pytest.mark.parametrize(
    ("options", "by_the_service"),
    [
        ([], True),
        (["--format", "json", "-n", "1"], True),
        (["--path", "undo.md"], True),
        (["--path", "docs/other.md", "--explain"], True),
        (["--file-type", "python"], True),
        (["--root", "../.."], False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_documents_are_searched_through_it_too(documented: Kiwi, options: list[str], by_the_service: bool):
    before = served(documented)
    assert told(documented, "workspace", "search", "rollback", *options) == told(
        alone(documented), "workspace", "search", "rollback", *options
    )
    assert served(documented) - before == by_the_service


def test_a_document_indexed_meanwhile_is_found(documented: Kiwi):
    assert "hotfix.md" not in documented.run("workspace", "search", "hotfix").stdout
    (documented.cwd / "hotfix.md").write_text("# Hotfix\n\nHow to ship a hotfix.\n")
    before = served(documented)
    documented.run("workspace", "index", "../..")
    assert served(documented) == before
    assert "hotfix.md" in documented.run("workspace", "search", "hotfix").stdout
    assert served(documented) == before + 1


@pytest.mark.parametrize(
    "extra",
    [
        {"KIWI_LIMIT": "1"}, {"KIWI_SOURCE": "user"}, {"NO_COLOR": "1"}, {"KIWI_ALPHA": "0"},
        {"KIWI_LIMIT": "many"}, {"KIWI_HOME": "relative"}, {"PYTHONIOENCODING": "latin-1"}, {"KIWI_DEADLINE": "0.5"},
        {"COLUMNS": "60"},
    ],
    ids=lambda extra: next(iter(extra)) + "=" + next(iter(extra.values())),
)  # fmt: skip
def test_the_callers_environment_counts(warm: Kiwi, extra: dict[str, str]):
    here, before = replace(warm, extra={**warm.extra, **extra}), served(warm)
    assert told(here, "search", QUERY) == told(alone(here), "search", QUERY)
    by_itself = extra.keys() & {"KIWI_HOME", "PYTHONIOENCODING"}
    assert served(warm) - before == (not by_itself)


def test_the_callers_folder_counts(warm: Kiwi, tmp_path: Path):
    before = served(warm)
    for folder in (warm.cwd / ".ai/knowledge", tmp_path):
        here = replace(warm, cwd=folder)
        assert told(here, "search", QUERY) == told(alone(here), "search", QUERY)
    assert served(warm) == before + 2
    before = served(warm)
    outside = replace(warm, cwd=warm.cwd.parent)
    found = told(outside, "--project", warm.cwd.name, "search", QUERY, "--format", "paths")
    assert found == told(alone(warm), "search", QUERY, "--format", "paths")
    assert served(warm) == before + 1


def shown(user: Kiwi, *arguments: str, **extra: str) -> bytes:
    """What a command writes on a terminal."""
    master, slave = pty.openpty()
    here = replace(user, extra={**user.extra, **extra})
    process = here.start(*arguments, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    written = b""
    try:
        while chunk := os.read(master, 65536):
            written += chunk
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(master)
    assert process.wait() == 0
    return written


def test_lines_fit_the_callers_terminal(warm: Kiwi):
    before = served(warm)
    narrow = replace(warm, extra={**warm.extra, "COLUMNS": "60"})
    lines = narrow.run("search", QUERY).stdout.splitlines()
    assert all(columns(line) <= 60 or len(line.split()) == 1 for line in lines)
    assert any(columns(line) > 60 for line in warm.run("search", QUERY).stdout.splitlines())
    assert served(warm) == before + 2


def test_colours_are_those_of_the_callers_terminal(warm: Kiwi):
    before = served(warm)
    coloured = shown(warm, "search", QUERY)
    assert b"\x1b[1m" in coloured
    assert coloured == shown(alone(warm), "search", QUERY)
    plain = shown(warm, "search", QUERY, NO_COLOR="1")
    assert b"\x1b" not in plain
    assert plain == shown(alone(warm), "search", QUERY, NO_COLOR="1")
    assert served(warm) == before + 2


def test_a_reader_that_goes_away_ends_it_alike(warm: Kiwi):
    ends = []
    for user in (warm, alone(warm)):
        reading, writing = os.pipe()
        os.close(reading)
        command = [sys.executable, "-m", "kiwi_rag.cli", "search", QUERY]
        process = subprocess.run(
            command, cwd=user.cwd, env=user.environment(), stdout=writing, stderr=subprocess.PIPE, check=False
        )
        os.close(writing)
        ends.append((process.returncode, process.stderr))
    assert ends[0] == ends[1]


def test_another_home_is_not_served(warm: Kiwi, tmp_path: Path):
    stranger = replace(warm, home=tmp_path, cwd=tmp_path)
    done = stranger.run("--verbose", "list", expect=None)
    assert "not used: it was started with another HOME" in done.stderr
    assert "no items" in done.stderr


def test_without_the_same_variables_no_connection_is_made_for_the_caller(warm: Kiwi):
    here = replace(warm, extra={**warm.extra, "PGSSLMODE": "disable"})
    refused = here.run("--verbose", "search", QUERY, "--source", "all", expect=None)
    assert "not used: it was started with other variables" in refused.stderr
    assert "not used" not in here.run("--verbose", "search", QUERY).stderr


def test_many_at_once_get_what_one_gets(warm: Kiwi):
    expected, before = warm.run("search", QUERY).stdout, served(warm)
    processes = [warm.start("search", QUERY) for _ in range(16)]
    assert [process.communicate(timeout=PATIENCE)[0] for process in processes] == [expected] * 16
    assert served(warm) == before + 16


def test_status_tells_of_the_service(warm: Kiwi):
    service = warm.json("status")["service"]
    assert (service["state"], service["version"]) == ("running", __version__)
    assert Path(f"/proc/{service['pid']}").exists()
    told_of = rf"service  running  process \d+  {re.escape(__version__)}  for \d+ min  \d+ requests?"
    assert re.search(told_of, warm.run("status").stdout)


def test_a_second_service_says_that_one_runs(warm: Kiwi):
    pid = warm.json("status")["service"]["pid"]
    refused = warm.run_forked("serve", expect=1)
    assert f"a service is running already (process {pid})" in refused.stderr
    assert "kiwi serve --stop" in refused.stderr
    assert served(warm)


def test_what_others_change_is_seen(ready: Kiwi, run: Path):
    user = at(ready, run)
    path = user.write("knowledge/acme/note.md", note())
    user.run("add", str(path))
    with serving(user):
        before = served(user)
        assert "acme/note@1.0.0" in user.run("search", "scale-down").stdout
        user.run("add", str(user.write("knowledge/acme/note.md", note("1.1.0"))))
        assert "acme/note@1.1.0" in user.run("search", "scale-down").stdout
        (user.cwd / ".ai/config.yaml").write_text("limit: many\n")
        assert "limit" in user.run("search", "scale-down", expect=2).stderr
        (user.cwd / ".ai/config.yaml").unlink()

        shutil.rmtree(user.cwd / ".ai/vectors")
        assert "acme/note" not in user.run("search", "scale-down").stdout
        user.run("index")
        assert "acme/note@1.1.0" in user.run("search", "scale-down").stdout

        (user.home / ".ai/trust.toml").rename(user.home / "trust.toml")
        assert "acme/note" not in user.run("search", "scale-down", expect=None).stdout
        (user.home / "trust.toml").rename(user.home / ".ai/trust.toml")
        assert "acme/note@1.1.0" in user.run("search", "scale-down").stdout
        assert served(user) - before == 7


def test_a_registry_that_comes_and_goes_is_followed(ready: Kiwi, run: Path):
    user = at(ready, run)
    user.run("add", str(user.write("knowledge/acme/note.md", note())))
    user.run("publish", "--all")
    search = ("search", "scale-down", "--source", "registry")
    with serving(user):
        before = served(user)
        assert "acme/note@1.0.0" in user.run(*search).stdout
        user.run("registry", "stop")
        assert "acme/note@1.0.0" in user.run(*search).stdout
        user.run("yank", "acme/note@1.0.0", "--yes", "--reason", "wrong")
        assert "acme/note" not in user.run(*search).stdout
        assert served(user) == before + 3


def test_one_that_was_killed_is_no_hindrance(acme: Kiwi, run: Path):
    user = at(acme, run)
    with serving(user) as process:
        process.kill()
        process.wait()
        assert (run / "kiwi/kiwi.sock").is_socket()
        done = user.run("--verbose", "search", QUERY)
        assert "kiwi: the local service was not used: Connection refused\n" in done.stderr
        assert told(user, "search", QUERY) == told(alone(user), "search", QUERY)
        assert user.json("status")["service"] == {"state": "not answering", "problem": "Connection refused"}
    with serving(user):
        assert served(user) == 1
        assert user.run("serve", "--stop").returncode == 0
    assert not (run / "kiwi/kiwi.sock").exists()
    assert "the service is not running" in user.run("serve", "--stop").stderr


def test_one_that_hangs_is_no_hindrance(acme: Kiwi, run: Path, monkeypatch: pytest.MonkeyPatch):
    user = at(acme, run)
    with serving(user) as process:
        process.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(client, "FIRST_SIGN_SECONDS", 0.2)
        assert "not used: it does not answer" in user.run("--verbose", "search", QUERY).stderr
        assert f"kill {process.pid}" in user.run("serve", "--stop", expect=1).stderr


def test_searches_that_were_begun_are_finished_when_it_is_terminated(acme: Kiwi, run: Path):
    user = at(acme, run)
    expected = user.run("search", QUERY).stdout
    with serving(user) as process:
        before = served(user)
        searches = [user.start("search", QUERY) for _ in range(6)]
        wait_until(lambda: served(user) > before)
        process.terminate()
        assert [search.communicate(timeout=PATIENCE)[0] for search in searches] == [expected] * 6
        assert process.wait(PATIENCE) == 0
        assert "the service has stopped" in process.stderr.read()


def test_the_service_runs_no_command_that_changes_something_whoever_asks(warm: Kiwi):
    program = (
        "from kiwi_rag import local_service; local_service.SERVED |= {'trust', 'index', 'init', 'mcp'};"
        "from kiwi_rag import entry; entry.main(['--verbose', 'trust', 'list'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=warm.environment(),
        cwd=warm.cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert "it is not a command for the service" in done.stderr
    assert "ada@acme.example" in done.stdout


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n "


def answer_of(value: object) -> bytes:
    return HEAD + json.dumps(value).encode()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "the connection ended within its answer"),
        (b"HTTP/1.1 200", "the connection ended within its answer"),
        (HEAD, "the connection ended within its answer"),
        (HEAD + b'{"exit"', "its answer is not readable"),
        (HEAD + b"\xff\xff\xff\xff\n", "its answer is not readable"),
        (HEAD + b"{]}\n", "its answer is not readable"),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\nService Unavailable", "its answer is not readable"),
        (answer_of([1]), "its answer is not readable"),
        (answer_of({"exit": 0}), "its answer is not readable"),
        (answer_of({"exit": 0, "output": [[1]]}), "its answer is not readable"),
        (answer_of({"exit": 0, "output": [[1, "\ud800"]]}), "its answer cannot be written here"),
        (answer_of({"declined": "it is tired"}), "it is tired"),
        (None, "it does not answer"),
    ],
)
def test_whatever_a_service_answers_the_search_is_done(acme: Kiwi, run: Path, answer: bytes | None, why: str):
    user = at(acme, run, KIWI_SIGNING_KEY="no key at all", KIWI_SECRETLY="yes")
    (run / "kiwi").mkdir(mode=0o700)
    heard: list[bytes] = []

    def answering(listening: socket.socket) -> None:
        line, _ = listening.accept()
        with line:
            heard.append(line.recv(1 << 20))
            if answer is None:
                line.recv(1)  # until the caller has had enough
            else:
                line.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(run / "kiwi/kiwi.sock"))
        listening.listen()
        thread = threading.Thread(target=answering, args=(listening,))
        thread.start()
        done = user.run("--verbose", "search", QUERY)
        thread.join(10)
    notice = f"kiwi: the local service was not used: {why}"
    first, _, rest = done.stderr.partition("\n")
    assert first == notice
    without = alone(user).run("--verbose", "search", QUERY)
    assert (done.stdout, rest) == (without.stdout, without.stderr)
    assert PASSPHRASE.encode() not in heard[0]
    assert b"no key at all" not in heard[0]
    assert b"KIWI_SECRETLY" in heard[0]


def test_install_without_systemd_says_what_to_do(kiwi: Kiwi, run: Path):
    user = at(kiwi, run, PATH=str(run))
    refused = user.run("serve", "--install", expect=1)
    assert "systemctl" in refused.stderr
    assert "kiwi serve starts the service without systemd" in refused.stderr
    assert "exclude each other" in user.run("serve", "--install", "--stop", expect=2).stderr
    assert "the service is not installed" in kiwi.run("serve", "--uninstall").stderr


def session(user: Kiwi) -> tuple[subprocess.Popen, Callable[..., dict]]:
    """An agent's session, and what asks it."""
    process = user.start("--verbose", "mcp", stdin=subprocess.PIPE)
    number = 0

    def ask(method: str, **params) -> dict:
        nonlocal number
        number += 1
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
        process.stdin.flush()
        while (answer := json.loads(process.stdout.readline())).get("id") != number:
            pass
        return answer["result"]

    return process, ask


def begun(ask: Callable[..., dict]) -> dict:
    return ask(
        "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "a test", "version": "1"}
    )


def test_an_agents_session_goes_through_the_service(warm: Kiwi):
    pytest.importorskip("mcp")
    process, ask = session(warm)
    direct, ask_directly = session(alone(warm))
    assert begun(ask) == begun(ask_directly)
    assert warm.json("status")["service"]["sessions"] == 1
    assert ask("tools/list") == ask_directly("tools/list")
    found = ask("tools/call", name="kiwi_search", arguments={"query": QUERY})
    assert found["structuredContent"]["hits"][0]["item_id"].startswith("acme/")
    for one in (process, direct):
        _, err = one.communicate(timeout=PATIENCE)
        assert (one.returncode, err) == (0, "")
    assert warm.json("status")["service"]["sessions"] == 0


def test_a_session_that_may_write_is_the_agents_own(warm: Kiwi):
    pytest.importorskip("mcp")
    process = warm.start("--verbose", "mcp", "--allow-write")
    _, err = process.communicate(timeout=PATIENCE)
    assert "not used: it does not handle kiwi mcp --allow-write" in err
    assert process.returncode == 0


def test_an_agent_is_told_when_the_service_ends(acme: Kiwi, run: Path):
    pytest.importorskip("mcp")
    user = at(acme, run)
    with serving(user) as service:
        process, ask = session(user)
        begun(ask)
        service.terminate()
        assert process.wait(PATIENCE) == 1
        assert "the session in the local service has ended" in process.stderr.read()
        process.stdin.close()
    process, ask = session(user)
    assert begun(ask)["serverInfo"]["name"] == "kiwi"
    process.communicate(timeout=PATIENCE)
