"""The service's parts that need no process of their own: who may call, what is sent, when it ends, what stays open."""

from __future__ import annotations

import asyncio
import json
import math
import os
import plistlib
import socket
import subprocess
import sys
import threading
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from kiwi_rag import local_service as protocol
from kiwi_rag.errors import ConsentRequired, KiwiError
from kiwi_rag.http.access import TokenFile
from kiwi_rag.http.apps import Apps
from kiwi_rag.http.lock import is_running, listening
from kiwi_rag.http.server import ACCEPTED, CallerRequest, Service
from kiwi_rag.local_service import Declined, autostart, client
from kiwi_rag.services import Services


class Echo:
    """Does nothing but tell what it was asked."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()

    async def command(self, request: CallerRequest):
        await asyncio.to_thread(self.free.wait, 10)
        return {"exit": 0, "output": [[1, " ".join(request.arguments)]]}

    async def session(self, request: CallerRequest, lines, write):
        await write(ACCEPTED)
        async for line in lines:
            await write(line.decode().upper())


class NoApi:
    """Has no routes."""

    reader_posts = ()
    is_working = False

    def routes(self):
        return []

    @asynccontextmanager
    async def running(self):
        yield


@contextmanager
def running(folder: Path, idle_seconds: float = math.inf, work: Echo | None = None, api: NoApi | None = None):
    """A service in a thread, which is told to stop at the end."""
    with listening(folder) as line:
        service = Service(work or Echo(), idle_seconds, api or NoApi(), TokenFile(folder / "tokens.json"))
        thread = threading.Thread(target=lambda: asyncio.run(service.serve([line])))
        thread.start()
        try:
            yield thread
        finally:
            with suppress(Declined):  # it is ending, or has ended
                client.call(str(folder), protocol.STOP, {})
            thread.join(15)
            assert not thread.is_alive()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Signals are the main thread's alone, and these services run in others.
    monkeypatch.setattr(asyncio.unix_events._UnixSelectorEventLoop, "add_signal_handler", lambda *_: None)
    return tmp_path / "kiwi"


def message(**changes) -> dict:
    return {
        "code": protocol.code_fingerprint(), "project": "", "cwd": "/",
        "environment": protocol.sent_environment(os.environ), "network": protocol.network_fingerprint(os.environ),
        "arguments": ["search", "x"], "terminals": [False, False], **changes,
    }  # fmt: skip


def test_the_socket_is_closed_to_others(folder: Path):
    with running(folder):
        assert folder.stat().st_mode & 0o777 == 0o700
        assert Path(protocol.socket_in(str(folder))).stat().st_mode & 0o777 == 0o600
        assert client.call(str(folder), protocol.COMMAND, message())["output"] == [[1, "search x"]]
    assert not Path(protocol.socket_in(str(folder))).exists()
    assert not is_running(folder)


def test_a_folder_that_others_reach_is_used_by_neither_side(folder: Path, tmp_path: Path):
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(KiwiError, match="accessible to other users"), listening(folder):
        pass
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(KiwiError, match="is a link"), listening(tmp_path / "link"):
        pass
    folder.chmod(0o700)
    with running(folder):
        folder.chmod(0o750)
        with pytest.raises(Declined, match="accessible to other users"):
            client.call(str(folder), protocol.COMMAND, message())
        folder.chmod(0o700)


def test_the_peer_must_be_this_user(monkeypatch: pytest.MonkeyPatch):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert protocol.is_own(ours)
        uid = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
        assert not protocol.is_own(ours)


def test_a_second_service_is_refused(folder: Path):
    with (
        running(folder),
        pytest.raises(KiwiError, match=f"is running already \\(process {os.getpid()}\\)"),
        listening(folder),
    ):
        pass


def test_a_path_too_long_for_a_socket_is_an_error_with_a_hint(tmp_path: Path):
    with pytest.raises(KiwiError, match="too long") as told, listening(tmp_path / ("x" * 100)):
        pass
    assert "XDG_RUNTIME_DIR" in told.value.hint


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"code": "0.0.1"}, "another version"),
        ({"cwd": "here"}, "relative"),
        ({"project": "here"}, "relative"),
        ({"cwd": "/a\0b"}, "not readable"),
        ({"environment": {"HOME": "/another"}}, "another HOME"),
        ({"environment": [1]}, "not readable"),
        ({"arguments": 5}, "not readable"),
        ({"arguments": [5]}, "not readable"),
        ({"terminals": []}, "not readable"),
        ({"network": "x"}, "not readable"),
    ],
)
def test_what_it_would_do_otherwise_than_the_caller_it_declines(folder: Path, changes: dict, why: str):
    with running(folder):
        with pytest.raises(Declined, match=why):
            client.call(str(folder), protocol.COMMAND, message(**changes))
        assert client.call(str(folder), protocol.COMMAND, message())["exit"] == 0


def posted(body: bytes) -> bytes:
    return b"POST /api/v1/command HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def session(body: bytes) -> bytes:
    head = b"POST /api/v1/session HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%b\r\n" % (len(body), body)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n", b"x" * 10_000_000, b"\0", *map(
            posted, [b"{", b"{}", b"null", b"\xff\xff\xff", b"[" * 100_000, b'{"x": "' + b"x" * 2_000_000 + b'"}']
        ),
        posted(b"{}")[:-1], session(b"{}\n"), session(b"x" * 17_000_000),
    ],
    ids=[
        "no-host", "10-mb", "one-byte", "half", "empty", "null", "bytes", "nested", "2-mb", "cut", "session", "17-mb",
    ],
)  # fmt: skip
def test_garbage_harms_nobody(folder: Path, sent: bytes):
    with running(folder):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(protocol.socket_in(str(folder)))
            line.settimeout(10)
            try:
                line.sendall(sent)
                line.shutdown(socket.SHUT_WR)
                answer = line.recv(1000)
            except OSError:  # it hung up before all was sent
                answer = b""
            assert b" 5" not in answer[:12]  # no error of the server
        assert client.call(str(folder), protocol.COMMAND, message())["exit"] == 0


def test_requests_and_answers_over_the_limit_are_declined(folder: Path, monkeypatch: pytest.MonkeyPatch):
    with running(folder):
        with monkeypatch.context() as patched, pytest.raises(Declined, match="its answer is over"):
            patched.setattr(protocol, "MAX_ANSWER", 20)
            client.call(str(folder), protocol.SERVICE)
        with pytest.raises(Declined, match="the request is over 1 MB"):
            client.call(str(folder), protocol.COMMAND, message(arguments=["x" * protocol.MAX_REQUEST]))
        assert client.call(str(folder), protocol.COMMAND, message())["exit"] == 0


def test_callers_that_hang_up_or_say_nothing_harm_nobody(folder: Path):
    lines = []
    with running(folder):
        request = posted(json.dumps(message()).encode())
        for number in range(100):
            line = socket.socket(socket.AF_UNIX)
            line.connect(protocol.socket_in(str(folder)))
            if number % 2:
                line.sendall(request)
                line.close()
            else:
                lines.append(line)
        assert client.call(str(folder), protocol.COMMAND, message())["exit"] == 0
        for line in lines:
            line.close()


def test_what_was_begun_is_finished_when_it_is_told_to_stop(folder: Path):
    work, answers = Echo(), []
    work.free.clear()
    with running(folder, work=work) as thread:
        callers = [
            threading.Thread(target=lambda: answers.append(client.call(str(folder), protocol.COMMAND, message())))
            for _ in range(5)
        ]
        for caller in callers:
            caller.start()
        while client.state(str(folder))["requests"] < 5:
            pass
        client.call(str(folder), protocol.STOP, {})
        work.free.set()
        for caller in callers:
            caller.join()
        thread.join(10)
        assert [answer["exit"] for answer in answers] == [0] * 5
        assert not thread.is_alive()


def test_a_session_carries_lines_until_the_service_ends(folder: Path):
    with running(folder), client.connected(str(folder)) as line, line.makefile("rb") as answer:
        line.settimeout(10)
        line.sendall(session(json.dumps(message(toolsets="")).encode() + b"\n"))
        while answer.readline().strip():
            pass
        assert client._read_chunk(answer) == b'{"accepted": true}'
        line.sendall(client._chunked(b"one\ntw"))
        assert client._read_chunk(answer) == b"ONE\n"
        line.sendall(client._chunked(b"o\n"))
        assert client._read_chunk(answer) == b"TWO\n"
        assert client.state(str(folder))["sessions"] == 1
        client.call(str(folder), protocol.STOP, {})
        assert client._read_chunk(answer) == b""


def test_it_ends_when_nobody_came_for_long(folder: Path):
    work = Echo()
    work.free.clear()
    with running(folder, idle_seconds=0.4, work=work) as thread:
        caller = threading.Thread(target=client.call, args=(str(folder), protocol.COMMAND, message()))
        caller.start()
        while not client.state(str(folder))["requests"]:
            pass
        thread.join(0.8)
        assert thread.is_alive()
        work.free.set()
        caller.join()
        thread.join(10)
        assert not thread.is_alive()


def test_it_does_not_end_during_a_job(folder: Path):
    api = NoApi()
    api.is_working = True
    with running(folder, idle_seconds=0.1, api=api) as thread:
        thread.join(0.6)
        assert thread.is_alive()
        api.is_working = False
        thread.join(10)
        assert not thread.is_alive()


def test_what_signs_or_unlocks_is_not_sent():
    secret = {
        "KIWI_SIGNING_KEY": "k",
        "KIWI_KEY_PASSPHRASE": "p",
        "KIWI_MCP_TOKEN": "t",
        "AWS_SECRET": "a",
        "PGPASSWORD": "w",
    }
    assert protocol.sent_environment({**secret, "HOME": "/h", "KIWI_LIMIT": "3"}) == {"HOME": "/h", "KIWI_LIMIT": "3"}


def test_other_variables_for_connections_are_told_apart():
    usual = protocol.network_fingerprint({"HOME": "/h", "https_proxy": "http://a"})
    assert usual == protocol.network_fingerprint({"https_proxy": "http://a", "PATH": "/bin"})
    for other in ({"https_proxy": "http://b"}, {}, {"https_proxy": "http://a", "PGSSLMODE": "require"}):
        assert usual != protocol.network_fingerprint(other)


def opened(home: Path, project: Path, **flags) -> Services:
    environment = {"KIWI_HOME": str(home), "KIWI_CACHE_DIR": str(home / "cache"), "HOME": str(home)}
    (project / ".ai").mkdir(parents=True, exist_ok=True)
    return Services.open(environment, project, None, flags)


async def test_stores_are_shared_by_those_whose_settings_are_the_same(tmp_path: Path):
    apps, home = Apps(), tmp_path / "home"
    async with apps.lend(opened(home, tmp_path / "a", limit=3)) as one, apps.lend(opened(home, tmp_path / "a")) as two:
        assert one.local("project").store is two.local("project").store
        assert (one.settings.limit, two.settings.limit) == (3, 10)
        assert one.trust is not two.trust
    async with apps.lend(opened(home, tmp_path / "b")) as three:
        assert three.local("project").store is not one.local("project").store
        assert three.embed is one.embed
    assert len(apps._opened) == 2
    await apps.close()


async def test_a_remote_model_is_shared_only_by_those_with_the_same_consent(tmp_path: Path):
    apps, remote = Apps(), {"embedding_provider": "ollama", "embedding_base_url": "http://far.example.invalid"}
    calls = [
        opened(tmp_path / home, tmp_path / "a", **remote, consent=consent)
        for home, consent in (("home", ""), ("home", "far.example.invalid"), ("other", ""), ("home", ""))
    ]
    models = []
    for call in calls:
        async with apps.lend(call) as lent:
            models.append(lent.embed)
    assert len({id(model) for model in models}) == 3
    assert models[0] is models[3]
    with pytest.raises(ConsentRequired):
        await models[0].query("x")
    await apps.close()


async def test_the_one_used_longest_ago_is_closed_once_nobody_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from kiwi_rag.http.apps import OpenServices

    closed: list[str] = []

    async def close(self) -> None:
        closed.append(self.project_dir.parent.name)

    monkeypatch.setattr(OpenServices, "close", close)
    apps, home = Apps(limit=1), tmp_path / "home"
    async with apps.lend(opened(home, tmp_path / "a")):
        async with apps.lend(opened(home, tmp_path / "b")):
            assert closed == []
        assert closed == []
    assert closed == ["a"]
    assert len(apps._opened) == 1
    await apps.close()
    assert closed == ["a", "b"]


async def test_what_a_request_uses_when_everything_is_closed_is_closed_at_its_end(tmp_path: Path):
    apps = Apps()
    async with apps.lend(opened(tmp_path / "home", tmp_path / "a")) as app:
        await apps.close()
        assert app.local("user").name == "user"
        assert len(apps._opened) == 1
    assert len(apps._opened) == 0


async def test_without_the_callers_variables_no_registry_is_asked(tmp_path: Path):
    apps = Apps()
    async with apps.lend(opened(tmp_path / "home", tmp_path / "a"), may_connect=False) as app:
        assert app.local("user").name == "user"
        with pytest.raises(Declined, match="variables for connections"):
            app.tier("registry")
    await apps.close()


def test_asking_imports_nothing_heavy(tmp_path: Path):
    code = (
        "import sys\nfrom kiwi_rag.entry import _run_in_service\n"
        "assert _run_in_service(['--verbose', 'search', 'x']) is None\nprint(' '.join(sys.modules))"
    )
    (tmp_path / "kiwi").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(protocol.socket_in(str(tmp_path / "kiwi")))
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert "not used: Connection refused" in done.stderr
    loaded = set(done.stdout.split())
    assert "kiwi_rag.local_service.client" in loaded
    assert not loaded & {
        "click",
        "numpy",
        "pathlib",
        "asyncio",
        "yaml",
        "dataclasses",
        "kiwi_rag.services",
        "kiwi_rag.errors",
    }


def systemctl(folder: Path, code: int = 0) -> dict[str, str]:
    """An environment whose systemctl only writes down what it was called with."""
    (folder / "bin").mkdir(exist_ok=True)
    program = folder / "bin/systemctl"
    program.write_text(f'#!/bin/sh\necho "$*" >> {folder}/called\necho "no bus" >&2\nexit {code}\n')
    program.chmod(0o755)
    return {"PATH": f"{folder}/bin:/bin:/usr/bin", "XDG_CONFIG_HOME": str(folder / "config")}


def test_the_unit_is_installed_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    environment = systemctl(tmp_path)
    monkeypatch.setenv("PATH", environment["PATH"])
    path = autostart.install(["serve", "--idle-exit", "0"], environment)
    assert path == tmp_path / "config/systemd/user/kiwi.service"
    assert f'ExecStart="{sys.executable}" "-P" "-m" "kiwi_rag.cli" "serve" "--idle-exit" "0"\n' in path.read_text()
    assert autostart.install(["serve"], environment) == path
    assert autostart.uninstall(environment) == path
    assert not path.exists()
    assert autostart.uninstall(environment) is None
    start = ["--user daemon-reload", "--user enable kiwi.service", "--user restart kiwi.service"]
    stop = "--user disable --now kiwi.service"
    assert (tmp_path / "called").read_text().splitlines() == [*start, stop, *start, stop, "--user daemon-reload"]


def test_what_systemd_says_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    environment = systemctl(tmp_path, code=1)
    monkeypatch.setenv("PATH", environment["PATH"])
    with pytest.raises(KiwiError, match="no bus") as told:
        autostart.install(["serve"], environment)
    assert told.value.hint == "kiwi serve starts the service without systemd"
    assert not autostart.manager_of(environment).path.exists()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KiwiError, match="systemctl"):
        autostart.install(["serve"], environment)


def test_a_units_command_is_quoted():
    assert autostart._quoted('a "b" 100% $HOME \\') == '"a \\"b\\" 100%% $$HOME \\\\"'


def launchctl(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int = 0) -> None:
    """Let the launchctl of this test only write down what it was called with."""
    (folder / "bin").mkdir(exist_ok=True)
    program = folder / "bin/launchctl"
    program.write_text(f'#!/bin/sh\necho "$*" >> {folder}/called\necho "Bootstrap failed" >&2\nexit {code}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:/bin:/usr/bin")
    monkeypatch.setenv("HOME", str(folder))


def test_on_macos_an_agent_is_installed_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    launchctl(tmp_path, monkeypatch)
    path = autostart.install(["serve", "--idle-exit", "0"], {}, "darwin")
    assert path == tmp_path / "Library/LaunchAgents/kiwi-rag.kiwi.plist"
    agent = plistlib.loads(path.read_bytes())
    assert agent["ProgramArguments"] == [sys.executable, "-P", "-m", "kiwi_rag.cli", "serve", "--idle-exit", "0"]
    assert agent["RunAtLoad"] and agent["KeepAlive"] == {"SuccessfulExit": False}
    assert autostart.install(["serve", "a & <b>"], {}, "darwin") == path
    assert plistlib.loads(path.read_bytes())["ProgramArguments"][-1] == "a & <b>"
    assert autostart.uninstall({}, "darwin") == path
    assert not path.exists()
    assert autostart.uninstall({}, "darwin") is None
    start, leave = f"bootstrap gui/{os.getuid()} {path}", f"bootout gui/{os.getuid()}/kiwi-rag.kiwi"
    assert (tmp_path / "called").read_text().splitlines() == [start, leave, start, leave]


def test_what_launchd_says_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    launchctl(tmp_path, monkeypatch, code=5)
    with pytest.raises(KiwiError, match="Bootstrap failed") as told:
        autostart.install(["serve"], {}, "darwin")
    assert told.value.hint == "kiwi serve starts the service without launchd"
    assert not autostart.manager_of({}, "darwin").path.exists()
