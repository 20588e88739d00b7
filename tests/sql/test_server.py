"""The embedded server: started once, shared, kept or stopped with its last user."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from kiwi_rag.errors import RegistryUnreachable
from kiwi_rag.registry import server
from kiwi_rag.registry.server import run

USER = """
import sys, time
from pathlib import Path
from kiwi_rag.registry import server
import psycopg
with psycopg.connect(server.start(Path(sys.argv[1]))) as connection:
    print(connection.execute("select 1").fetchone()[0], flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short path that any system user can reach, which pytest's own folders are not."""
    with tempfile.TemporaryDirectory(prefix="kiwi-", ignore_cleanup_errors=True) as folder:
        yield Path(folder) / "registry"
        server.stop(Path(folder) / "registry")


@pytest.fixture(scope="module")
def stopped() -> Iterator[Path]:
    """A registry folder whose server was started once and stopped."""
    with tempfile.TemporaryDirectory(prefix="kiwi-", ignore_cleanup_errors=True) as folder:
        server.start(Path(folder) / "registry")
        server.stop(Path(folder) / "registry")
        yield Path(folder) / "registry"


@pytest.fixture
def made(directory: Path, stopped: Path) -> Path:
    """A copy of it, for tests that are not about the first start."""
    run(["cp", "-a", stopped, directory])
    return directory


def use(directory: Path) -> subprocess.Popen[str]:
    """Start a process that uses the registry until its stdin closes."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", USER, str(directory)], **pipes)


def until(condition, seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def test_processes_that_start_at_once_share_one_server(directory: Path) -> None:
    users = [use(directory) for _ in range(4)]
    assert [user.stdout.readline() for user in users] == ["1\n"] * 4
    pid = server.server_state(directory).pid
    for user in users[:3]:
        user.communicate()
        assert server.server_state(directory).pid == pid
    assert users[3].communicate()[1] == ""
    assert until(lambda: not server.server_state(directory).running)


def test_a_killed_user_does_not_keep_it_alive(made: Path) -> None:
    killed, other = use(made), use(made)
    assert killed.stdout.readline() == other.stdout.readline() == "1\n"
    killed.kill()
    killed.communicate()
    other.communicate()
    assert until(lambda: not server.server_state(made).running)


def test_kept_it_outlives_its_users_until_stopped(made: Path) -> None:
    url = server.start(made, keep=True)
    server.release(made)
    state = server.server_state(made)
    assert (state.running, state.kept, state.uri) == (True, True, url)
    assert server.stop(made)
    assert not server.stop(made)
    assert not server.server_state(made).running


def test_data_survive_a_killed_server(made: Path) -> None:
    with psycopg.connect(server.start(made), autocommit=True) as connection:
        connection.execute("create table t as select 42 as answer")
    os.kill(server.server_state(made).pid, signal.SIGKILL)
    assert until(lambda: not server.server_state(made).running)
    with psycopg.connect(server.start(made)) as connection:
        assert connection.execute("select answer from t").fetchone() == (42,)


LAUNCHES = """
import sys
from pathlib import Path
from kiwi_rag.registry import server
def tell(root, process, logged):
    print(process.pid, flush=True)
    sys.stdin.read()
server.binaries = lambda: Path(sys.argv[2])
server._await_ready = tell
server.start(Path(sys.argv[1]))
"""


def test_a_server_whose_starter_was_killed_is_used(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the lock file after the next process has looked for one: Postgres says that the file already exists."""
    gate, slow = made.parent / "gate", made.parent / "postgres"
    os.mkfifo(gate)
    gate.chmod(0o644)
    slow.write_text(f'#!/bin/sh\nread go < {gate}\nexec {server.binaries() / "postgres"} "$@"\n')
    for path in (made.parent, slow):
        path.chmod(0o755)
    command = [sys.executable, "-c", LAUNCHES, made, made.parent]
    starter = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    pid = int(starter.stdout.readline())
    starter.kill()
    starter.communicate()
    launch = server._launch

    def after_the_other(root: Path, port: int | None) -> None:
        gate.write_text("go\n")
        assert until(lambda: server.server_state(root).pid == pid)
        launch(root, port)

    monkeypatch.setattr(server, "_launch", after_the_other)
    with psycopg.connect(server.start(made)) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    assert server.server_state(made).pid == pid
    assert "already exists" in (made / "log").read_text()


def test_after_a_release_nobody_takes_the_server_for_one_that_runs(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.start(made)
    kill = os.kill

    def later(pid: int, number: int) -> None:
        """On a busy machine it is a while until the server has seen the signal."""
        kill(pid, 0) if number == 0 else threading.Timer(0.3, kill, (pid, number)).start()

    monkeypatch.setattr(server.os, "kill", later)
    server.release(made)
    now = server._read_pid_file(made)
    assert now is None or now.state != "ready"
    with psycopg.connect(server.start(made)) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_a_path_too_long_for_a_socket(directory: Path) -> None:
    deep = directory.parent / ("d" * 100) / "registry"
    with psycopg.connect(server.start(deep)) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    server.stop(deep)


def test_a_home_that_only_its_owner_may_enter(directory: Path) -> None:
    home = directory.parent / "home"
    home.mkdir(mode=0o700)
    with psycopg.connect(server.start(home / "registry")) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    server.stop(home / "registry")
    assert home.stat().st_mode & 0o066 == 0  # nobody else may list or write it
    assert (home / "registry" / "data").stat().st_mode & 0o077 == 0


def test_only_the_owner_reaches_it(directory: Path) -> None:
    server.start(directory)
    assert (directory / "data").stat().st_mode & 0o077 == 0
    with psycopg.connect(server.server_state(directory).uri) as connection:
        assert connection.execute("show listen_addresses").fetchone() == ("",)


def test_a_folder_that_cannot_be_one(directory: Path) -> None:
    directory.write_text("a file")
    with pytest.raises(RegistryUnreachable) as error:
        server.start(directory)
    assert error.value.hint
    assert not server.server_state(directory / "nowhere").running


def test_a_server_that_does_not_start_says_why(made: Path) -> None:
    server.start(made)
    server.stop(made)
    (made / "data" / "postgresql.conf").write_text("no_such_setting = 1\n")
    with pytest.raises(RegistryUnreachable, match="did not start") as error:
        server.start(made)
    assert str(made) in error.value.hint
    # Postgres writes no FATAL of this one.
    (made / "data/global/pg_control").unlink()
    (made / "data/postgresql.conf").write_text("")
    with pytest.raises(RegistryUnreachable, match=r"did not start: .*pg_control"):
        server.start(made)


def password_of(directory: Path) -> str:
    return (directory / "pgpass").read_text().strip().rpartition(":")[2]


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def test_a_port_asks_for_the_password_and_the_socket_does_not(made: Path) -> None:
    port = free_port()
    uri = server.start(made, port=port)
    state = server.server_state(made)
    assert state.port == port
    for reachable in (uri, state.tcp_uri):
        with psycopg.connect(reachable) as connection:
            assert connection.execute("select 1").fetchone() == (1,)
    assert (made / "pgpass").stat().st_mode & 0o777 == 0o600
    assert password_of(made) not in state.tcp_uri
    for wrong in ("", ":guess"):
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(f"postgresql://postgres{wrong}@127.0.0.1:{port}/postgres?passfile=/dev/null")


def test_a_port_asked_for_later_or_another_is_an_error(made: Path) -> None:
    server.start(made)
    with pytest.raises(RegistryUnreachable, match="without a port") as refused:
        server.start(made, port=free_port())
    assert "registry stop" in refused.value.hint
    server.stop(made)
    first, second = free_port(), free_port()
    server.start(made, port=first)
    assert server.start(made) == server.start(made, port=first)
    with pytest.raises(RegistryUnreachable, match=f"on port {first}"):
        server.start(made, port=second)


def test_the_port_stays_shut_unless_asked_for_and_the_password_stays(made: Path) -> None:
    port = free_port()
    server.start(made, port=port)
    password = password_of(made)
    server.stop(made)
    server.start(made)
    assert server.server_state(made).tcp_uri == ""
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres")
    server.stop(made)
    server.start(made, port=port)
    assert password_of(made) == password
    psycopg.connect(f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres").close()


def test_a_cluster_of_an_earlier_kiwi_asks_for_the_password_too(made: Path) -> None:
    """Its own rules let everybody on the machine in over a port."""
    server.start(made)
    server.stop(made)
    (made / "data/pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.1/32 trust\n")
    port = free_port()
    server.start(made, port=port)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres?passfile=/dev/null")


def test_without_a_port_there_is_no_password(made: Path) -> None:
    server.start(made)
    assert not (made / "pgpass").exists()
