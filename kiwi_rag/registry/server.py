"""The embedded Postgres server: started on first use, shared by processes, stopped by the last of them.

Every process that uses it holds a shared lock on ``users``, which the kernel releases when the process ends, even when
it is killed. A process that stops using the server, and gets the exclusive lock because no other holds it, stops the
server, unless the file ``keep`` exists. All state is below one folder::

    lock    exclusive lock while starting or stopping    users   shared lock of every process that uses the server
    keep    exists: only `stop` stops the server         data    the cluster         log    the server's own log
    pgpass  the password for its TCP port, if it ever had one; libpq's format

The server listens on a Unix socket that only its owner can reach. It listens on loopback too only where a port is asked
for, and then with a password, because other users of the machine can connect to a port.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from kiwi_rag.errors import RegistryUnreachable
from kiwi_rag.registry.postgres_binaries import binaries, give_to_system_user, identity, is_root, run, system_user
from kiwi_rag.retry import polls
from kiwi_rag.storage.atomic import atomic_write, create_file
from kiwi_rag.storage.locks import try_lock

# sun_path holds 104 bytes on macOS and 108 on Linux; Postgres appends "/.s.PGSQL.<port>".
_MAX_SOCKET_FOLDER = 103 - len("/.s.PGSQL.65535")
_DEFAULT_PORT = 5432
_HBA = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
_START_SECONDS = 30.0
_ORPHAN_SECONDS = 5.0
# Folder → the open descriptor of ``users``: the lock lasts until it is closed, also by the end of the process.
_user_locks: dict[Path, int] = {}


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state of a registry folder: whether a server runs, whether it outlives its users, where it listens.

    `uri` connects through the socket; `port` is that on loopback, None without one.
    """

    directory: Path
    running: bool
    kept: bool
    pid: int | None
    uri: str
    port: int | None

    @property
    def tcp_uri(self) -> str:
        """The connection string for the port, which names the file with the password; empty without a port."""
        file = quote(str(self.directory / "pgpass"), safe="")
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres?passfile={file}" if self.port else ""


def start(directory: Path, *, keep: bool = False, port: int | None = None) -> str:
    """Start the server of `directory` unless it runs; return its connection string.

    With `keep` it outlives this process, until `stop`. With `port` it listens on 127.0.0.1 too, where it requires the
    password in ``pgpass``. Blocks for 0.1 s, or about 1.5 s the first time.

    Raises
    ------
    RegistryUnreachable
        When it cannot be created or started, or runs already without that port.
    """
    root = _prepare(directory)
    with _locked(root):
        _initialise(root)
        _ensure_running(root, port)
        _lock_as_user(root)
        if keep:
            (root / "keep").touch()
        if port is not None:
            _set_password(root, port)
    return server_state(root).uri


def password(directory: Path) -> str:
    """Return the password for the port.

    Raises
    ------
    RegistryUnreachable
        When the server never had a port.
    """
    try:
        return (directory / "pgpass").read_text(encoding="ascii").strip().rpartition(":")[2]
    except OSError as error:
        raise RegistryUnreachable("this registry has no port", hint="kiwi registry start --port 54329") from error


def stop(directory: Path) -> bool:
    """Stop the server, even while other processes use it; return whether one was running."""
    root = directory.expanduser().resolve()
    if not root.is_dir():
        return False
    with _locked(root):
        (root / "keep").unlink(missing_ok=True)
        return _shut_down(root)


def release(directory: Path) -> None:
    """End this process's use; stop the server if no other process uses it and ``keep`` does not exist."""
    root = directory.expanduser().resolve()
    descriptor = _user_locks.pop(root, None)
    if descriptor is None or not root.is_dir():
        return
    with _locked(root):
        os.close(descriptor)
        if not (root / "keep").exists() and _is_unused(root):
            _shut_down(root, wait=False)


def server_state(directory: Path) -> ServerState:
    """Return the state of `directory`; starts nothing."""
    root = directory.expanduser().resolve()
    pid = _pid(root)
    port, on_loopback = _listening(root)
    uri = f"postgresql://postgres@/postgres?host={quote(str(_socket_folder(root)), safe='')}&port={port}" if pid else ""
    return ServerState(root, pid is not None, (root / "keep").exists(), pid, uri, port if on_loopback else None)


def _prepare(directory: Path) -> Path:
    root = directory.expanduser().resolve()
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(root, os.W_OK):
            raise PermissionError(f"{root} is not writable")
    except OSError as error:
        hint = f"make {root} a folder that you can write to"
        raise RegistryUnreachable(f"the registry folder cannot be used: {error}", hint=hint) from error
    return root


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the folder's lock, so that one process at a time starts or stops the server."""
    descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not any(try_lock(descriptor) for _ in polls(2 * _START_SECONDS, pause=0.01)):
            raise RegistryUnreachable(
                f"another process has been starting the registry in {root} for a minute",
                hint="kiwi registry status, and end that process if it hangs",
            )
        yield
    finally:
        os.close(descriptor)


def _lock_as_user(root: Path) -> None:
    if root in _user_locks:
        return
    descriptor = os.open(root / "users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    _user_locks[root] = descriptor
    atexit.register(release, root)


def _is_unused(root: Path) -> bool:
    # An exclusive lock is granted only while no other process holds a shared one. The folder's lock is held by now, so
    # no process can begin to use the server between this test and its stop.
    descriptor = os.open(root / "users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return try_lock(descriptor)
    finally:
        os.close(descriptor)


def _initialise(root: Path) -> None:
    """Create the cluster in a temporary folder and rename it, so that a killed attempt leaves no half of one."""
    data = root / "data"
    if (data / "PG_VERSION").exists():
        return
    with tempfile.TemporaryDirectory(dir=root, prefix="new-", ignore_cleanup_errors=True) as scratch:
        draft = Path(scratch) / "data"
        draft.mkdir(mode=0o700)
        give_to_system_user(draft)
        # The socket is in a folder of mode 0700, which only its owner reaches, so the server trusts every local user.
        auth = ["--auth-local=trust", "--auth-host=scram-sha-256"]
        options = [*auth, "--encoding=UTF8", "--locale=C.UTF-8", "--locale-provider=builtin", "-U", "postgres"]
        run([binaries() / "initdb", *options, "--no-instructions", "-D", draft], as_user=system_user())
        draft.rename(data)


def _ensure_running(root: Path, port: int | None) -> None:
    """Launch the server unless it runs; while Postgres finds a lock file, try again or wait for that file's server.

    Its server may be one that a process had launched before it was killed. Or it was killed itself, and its children
    still keep its shared memory, with which Postgres does not start either.
    """
    deadline = time.monotonic() + _ORPHAN_SECONDS
    while not _is_started(root):
        try:
            return _launch(root, port)
        except RegistryUnreachable:
            if not _status_lines(root) or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _is_started(root: Path) -> bool:
    """Return whether a server runs; one that is starting is waited for."""
    pid = _pid(root)
    if pid is None:
        return False
    for _ in polls(_START_SECONDS):
        if _state(root) == "ready" or not _is_alive(pid, root):
            break
    return _is_alive(pid, root)


def _launch(root: Path, port: int | None) -> None:
    data, sockets = root / "data", _socket_folder(root)
    give_to_system_user(data)
    # Mode 0644, because the server of root runs as another user; the folder itself is closed to all others.
    atomic_write(data / "kiwi_hba.conf", _HBA.encode(), mode=0o644, durable=False)
    if sockets != data:
        _make_socket_folder(sockets)
    listen = ["-h", "127.0.0.1" if port else "", "-p", str(port or _DEFAULT_PORT), "-k", str(sockets)]
    settings = ["-c", "max_connections=200", "-c", f"hba_file={data / 'kiwi_hba.conf'}"]
    command = [str(binaries() / "postgres"), "-D", str(data), *listen, *settings]
    with os.fdopen(os.open(root / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
        logged = os.fstat(log.fileno()).st_size
        try:
            # In a new session, so that Ctrl-C in the terminal of this process does not stop the server for the others.
            process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd="/", start_new_session=True, **identity(system_user())
            )
        except OSError as error:
            raise RegistryUnreachable(f"Postgres could not be started: {error}") from error
    _await_ready(root, process, logged)


def _await_ready(root: Path, process: subprocess.Popen[bytes], logged: int) -> None:
    """Wait for the start; raise with what the server wrote after the first `logged` bytes of its log."""

    def is_ready() -> bool:
        lines = _status_lines(root)
        return lines[:1] == [str(process.pid)] and lines[7:8] == ["ready"]

    if any(is_ready() or process.poll() is not None for _ in polls(_START_SECONDS)) and process.poll() is None:
        return
    lines = (root / "log").read_bytes()[logged:].decode(errors="replace").splitlines()
    fatal = [line for line in lines[-40:] if "FATAL" in line or "PANIC" in line]
    hint = f"see {root / 'log'}"
    raise RegistryUnreachable(f"Postgres did not start: {(fatal or lines or ['its log is empty'])[-1]}", hint=hint)


def _set_password(root: Path, port: int) -> None:
    """Set the password in ``pgpass``, which is made once; raise when the server runs without that port."""
    state = server_state(root)
    if state.port != port:
        where = f"on port {state.port}" if state.port else "without a port"
        raise RegistryUnreachable(f"the registry already runs {where}", hint="kiwi registry stop, then start it again")
    import psycopg
    from psycopg import sql

    file = root / "pgpass"
    create_file(file, f"127.0.0.1:*:*:postgres:{secrets.token_urlsafe(24)}\n".encode())
    with psycopg.connect(state.uri) as connection:
        hashed = connection.pgconn.encrypt_password(password(root).encode(), b"postgres", b"scram-sha-256")
        connection.execute(sql.SQL("alter role postgres password {}").format(hashed.decode()))


def _make_socket_folder(folder: Path) -> None:
    """Create the folder for sockets in the shared temporary folder; raise when another user has made it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    give_to_system_user(folder)
    if not is_root() and folder.stat().st_uid != os.geteuid():
        raise RegistryUnreachable(f"{folder} belongs to another user", hint="remove it, or use a shorter folder")
    folder.chmod(0o700)


def _socket_folder(root: Path) -> Path:
    """Return the data folder, or one in the temporary folder where the socket's path would be too long."""
    data = root / "data"
    if len(os.fsencode(data)) <= _MAX_SOCKET_FOLDER:
        return data
    name = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"kiwi-{os.geteuid()}-{name}"


def _status_lines(root: Path) -> list[str]:
    """Return the lines of postmaster.pid: the first is the process id, the eighth the state; none without the file."""
    try:
        return [line.strip() for line in (root / "data" / "postmaster.pid").read_text().splitlines()]
    except OSError:
        return []


def _state(root: Path) -> str:
    """Return ``starting``, ``ready`` or ``stopping``; empty for a server that has no state yet or has ended."""
    return next(iter(_status_lines(root)[7:8]), "")


def _listening(root: Path) -> tuple[int, bool]:
    """Return the server's port, and whether it listens there on loopback; a socket's name has a port too."""
    lines = _status_lines(root)
    return (int(lines[3]), bool(lines[5])) if len(lines) > 5 else (_DEFAULT_PORT, False)


def _pid(root: Path) -> int | None:
    """Return the running server's process id, None without one; a server that is stopping is waited for."""
    lines: list[str] = []
    for _ in polls(_START_SECONDS):
        lines = _status_lines(root)
        if not lines or not _is_alive(int(lines[0]), root):
            return None
        if lines[7:8] != ["stopping"]:
            return int(lines[0])
    raise _does_not_stop(int(lines[0]), root)


def _is_alive(pid: int, root: Path) -> bool:
    """Whether `pid` is this cluster's server, and not a later process with the same number."""
    try:
        os.kill(pid, 0)
        command = Path(f"/proc/{pid}/cmdline")
        # The command line names the data folder. Without /proc (macOS) the number alone has to do.
        return not Path("/proc/self").exists() or os.fsencode(root) in command.read_bytes()
    except PermissionError:  # it is another user's, as the server of root is
        return True
    except OSError:
        return False


def _shut_down(root: Path, *, wait: bool = True) -> bool:
    pid = _pid(root)
    if pid is None:
        return False
    os.kill(pid, signal.SIGINT)  # Postgres' "fast shutdown": roll back open transactions, write a checkpoint, exit
    # Until the server says that it is stopping, the next process would take it for one that runs.
    if all(_is_alive(pid, root) and (wait or _state(root) == "ready") for _ in polls(_START_SECONDS)):
        raise _does_not_stop(pid, root)
    if _socket_folder(root) != root / "data":
        with suppress(OSError):  # not empty while the server is still stopping: the next start uses it again
            _socket_folder(root).rmdir()
    return True


def _does_not_stop(pid: int, root: Path) -> RegistryUnreachable:
    return RegistryUnreachable(f"the registry's server (process {pid}) does not stop", hint=f"see {root / 'log'}")
