"""The embedded Postgres server: started on first use, shared by processes, stopped by the last of them.

Every process that uses it holds a shared lock on ``users``; the kernel frees it when the process ends, however
it ends. Whoever leaves and finds itself alone stops the server, unless ``keep`` stands there. All state below
one folder::

    lock    held while starting or stopping        users   shared lock of every user
    keep    present: only `stop` stops the server   data    the cluster       log    the server's own log
    pgpass  the password of its TCP port, if it was ever given one; libpq's format

It listens on a Unix socket that its owner alone can reach, and only where a port is asked for on loopback too, with a
password: other users of the machine reach a port.
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
from kiwi_rag.retry import wait_until
from kiwi_rag.storage.atomic import atomic_write, create_file
from kiwi_rag.storage.locks import try_lock

# sun_path holds 104 bytes on macOS and 108 on Linux; Postgres appends "/.s.PGSQL.<port>".
_LONGEST_SOCKET_FOLDER = 103 - len("/.s.PGSQL.65535")
_USUAL_PORT = 5432
_HBA = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
_START_SECONDS = 30.0
_ORPHAN_SECONDS = 5.0
_held: dict[Path, int] = {}


@dataclass(frozen=True, slots=True)
class ServerState:
    """What stands in a registry folder: whether a server runs, whether it was told to stay, where it listens.

    `uri` leads to its socket; `port` is that on loopback, None without one.
    """

    directory: Path
    running: bool
    kept: bool
    pid: int | None
    uri: str
    port: int | None

    @property
    def tcp_uri(self) -> str:
        """The connection string for the port, with the file of its password; empty without a port."""
        file = quote(str(self.directory / "pgpass"), safe="")
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres?passfile={file}" if self.port else ""


def start(directory: Path, *, keep: bool = False, port: int | None = None) -> str:
    """Make sure that a server runs for `directory`; return its connection string.

    With `keep` it outlives this process, until `stop`. With `port` it listens on 127.0.0.1 too, where the password in
    ``pgpass`` is asked for. Blocks: 0.1 s, or about 1.5 s the first time.

    Raises
    ------
    RegistryUnreachable
        When it cannot be created or started, or runs without that port; the hint says what to do.
    """
    root = _prepare(directory)
    with _locked(root):
        _initialise(root)
        if _pid(root) is None:
            _launch_after_crash(root, port) if _status_lines(root) else _launch(root, port)
        _hold(root)
        if keep:
            (root / "keep").touch()
        if port is not None:
            _guard_port(root, port)
    return server_state(root).uri


def password(directory: Path) -> str:
    """Return the password of the port.

    Raises
    ------
    RegistryUnreachable
        When the server was never given a port.
    """
    try:
        return (directory / "pgpass").read_text(encoding="ascii").strip().rpartition(":")[2]
    except OSError as error:
        raise RegistryUnreachable("this registry has no port", hint="kiwi registry start --port 54329") from error


def stop(directory: Path) -> bool:
    """Stop the server, even where others use it; return whether one was running."""
    root = directory.expanduser().resolve()
    if not root.is_dir():
        return False
    with _locked(root):
        (root / "keep").unlink(missing_ok=True)
        return _shut_down(root)


def release(directory: Path) -> None:
    """Give up this process's use; stop the server if nobody else uses it and nobody asked to keep it."""
    root = directory.expanduser().resolve()
    held = _held.pop(root, None)
    if held is None or not root.is_dir():
        return
    with _locked(root):
        os.close(held)
        if not (root / "keep").exists() and _is_unused(root):
            _shut_down(root, wait=False)


def server_state(directory: Path) -> ServerState:
    """Return what stands in `directory`, starting nothing."""
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
        raise RegistryUnreachable(
            f"the registry folder cannot be used: {error}", hint=f"make {root} a folder that you can write to"
        ) from error
    return root


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the folder's lock: one process starts or stops at a time."""
    descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not wait_until(lambda: try_lock(descriptor), 2 * _START_SECONDS, pause=0.01):
            raise RegistryUnreachable("another process has been starting the registry for a minute")
        yield
    finally:
        os.close(descriptor)


def _hold(root: Path) -> None:
    if root in _held:
        return
    descriptor = os.open(root / "users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    _held[root] = descriptor
    atexit.register(release, root)


def _is_unused(root: Path) -> bool:
    descriptor = os.open(root / "users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return try_lock(descriptor)
    finally:
        os.close(descriptor)


def _initialise(root: Path) -> None:
    """Create the cluster beside its place and move it there whole, so that a killed attempt leaves nothing half."""
    data = root / "data"
    if (data / "PG_VERSION").exists():
        return
    with tempfile.TemporaryDirectory(dir=root, prefix="new-", ignore_cleanup_errors=True) as scratch:
        fresh = Path(scratch) / "data"
        fresh.mkdir(mode=0o700)
        give_to_system_user(fresh)
        # Only the owner of the 0700 folder reaches the socket, so the server itself need not ask who it is.
        auth = ["--auth-local=trust", "--auth-host=scram-sha-256"]
        options = [*auth, "--encoding=UTF8", "--locale=C.UTF-8", "--locale-provider=builtin", "-U", "postgres"]
        run([binaries() / "initdb", *options, "--no-instructions", "-D", fresh], as_user=system_user())
        fresh.rename(data)


def _launch_after_crash(root: Path, port: int | None) -> None:
    """Launch where a killed server left its pid file: its last children may hold on to its memory for a moment."""
    deadline = time.monotonic() + _ORPHAN_SECONDS
    while True:
        try:
            return _launch(root, port)
        except RegistryUnreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _launch(root: Path, port: int | None) -> None:
    data, sockets = root / "data", _socket_folder(root)
    give_to_system_user(data)
    # Readable by all in a folder that is closed to others: as root, the server is another user.
    atomic_write(data / "kiwi_hba.conf", _HBA.encode(), mode=0o644, durable=False)
    if sockets != data:
        _make_socket_folder(sockets)
    listen = ["-h", "127.0.0.1" if port else "", "-p", str(port or _USUAL_PORT), "-k", str(sockets)]
    settings = ["-c", "max_connections=200", "-c", f"hba_file={data / 'kiwi_hba.conf'}"]
    command = [str(binaries() / "postgres"), "-D", str(data), *listen, *settings]
    with os.fdopen(os.open(root / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
        try:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd="/", start_new_session=True, **identity(system_user())
            )
        except OSError as error:
            raise RegistryUnreachable(f"Postgres could not be started: {error}") from error
    _await_ready(root, process)


def _await_ready(root: Path, process: subprocess.Popen[bytes]) -> None:
    def is_ready() -> bool:
        lines = _status_lines(root)
        return lines[:1] == [str(process.pid)] and lines[7:8] == ["ready"]

    if wait_until(lambda: is_ready() or process.poll() is not None, _START_SECONDS) and process.poll() is None:
        return
    lines = (root / "log").read_text(errors="replace").splitlines()
    told = [line for line in lines[-40:] if "FATAL" in line or "PANIC" in line]
    hint = f"see {root / 'log'}"
    raise RegistryUnreachable(f"Postgres did not start: {(told or lines or ['it said nothing'])[-1]}", hint=hint)


def _guard_port(root: Path, port: int) -> None:
    """Give the port's user the password in ``pgpass``, made once; refuse where the server runs without that port."""
    state = server_state(root)
    if state.port != port:
        where = f"on port {state.port}" if state.port else "without a port"
        raise RegistryUnreachable(f"the registry runs {where} already", hint="kiwi registry stop, then start it again")
    import psycopg
    from psycopg import sql

    file = root / "pgpass"
    create_file(file, f"127.0.0.1:*:*:postgres:{secrets.token_urlsafe(24)}\n".encode())
    with psycopg.connect(state.uri) as connection:
        hashed = connection.pgconn.encrypt_password(password(root).encode(), b"postgres", b"scram-sha-256")
        connection.execute(sql.SQL("alter role postgres password {}").format(hashed.decode()))


def _make_socket_folder(folder: Path) -> None:
    """Create the short folder for sockets; refuse one that somebody else put there."""
    folder.mkdir(mode=0o700, exist_ok=True)
    give_to_system_user(folder)
    if not is_root() and folder.stat().st_uid != os.geteuid():
        raise RegistryUnreachable(f"{folder} belongs to somebody else", hint="remove it, or use a shorter folder")
    folder.chmod(0o700)


def _socket_folder(root: Path) -> Path:
    data = root / "data"
    if len(os.fsencode(data)) <= _LONGEST_SOCKET_FOLDER:
        return data
    name = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"kiwi-{os.geteuid()}-{name}"


def _status_lines(root: Path) -> list[str]:
    try:
        return [line.strip() for line in (root / "data" / "postmaster.pid").read_text().splitlines()]
    except OSError:
        return []


def _listening(root: Path) -> tuple[int, bool]:
    """Return the running server's port, and whether it is one on loopback or names a socket only."""
    lines = _status_lines(root)
    return (int(lines[3]), bool(lines[5])) if len(lines) > 5 else (_USUAL_PORT, False)


def _pid(root: Path) -> int | None:
    """Return the running server's process id; wait for one that is stopping until it has gone."""
    found: list[str] = []

    def is_settled() -> bool:
        found[:] = _status_lines(root)
        return not found or found[7:8] != ["stopping"] or not _is_alive(int(found[0]), root)

    if not wait_until(is_settled, _START_SECONDS):
        raise RegistryUnreachable(f"the registry's server (process {found[0]}) does not stop")
    return int(found[0]) if found and _is_alive(int(found[0]), root) else None


def _is_alive(pid: int, root: Path) -> bool:
    """Whether `pid` is this cluster's server and not another process that was given its number later."""
    try:
        os.kill(pid, 0)
        command = Path(f"/proc/{pid}/cmdline")
        return not Path("/proc/self").exists() or os.fsencode(root) in command.read_bytes()
    except PermissionError:
        return True
    except OSError:
        return False


def _shut_down(root: Path, *, wait: bool = True) -> bool:
    pid = _pid(root)
    if pid is None:
        return False
    os.kill(pid, signal.SIGINT)  # "fast": roll back open transactions, write a checkpoint, leave
    if wait and not wait_until(lambda: not _is_alive(pid, root), _START_SECONDS):
        raise RegistryUnreachable(f"the registry's server (process {pid}) does not stop")
    if _socket_folder(root) != root / "data":
        with suppress(OSError):  # not empty yet where nobody waited: the next start uses it again
            _socket_folder(root).rmdir()
    return True
