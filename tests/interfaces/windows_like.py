"""Runs `kiwi` in a Python that has, for Kiwi's own modules, only what Python has on Windows.

    python -X warn_default_encoding windows_like.py search "undo a bad release"

As a module, with the number of a socket, it is a server of `forked` whose commands run in such a Python.

For Kiwi's modules the modules of POSIX cannot be imported, and `os`, `socket` and `signal` lack what Windows lacks. For
all code files have no owner and every permission, an open file can be neither renamed nor removed, and event loops have
no signal handlers. A text file that Kiwi opens without an encoding is an error, since Windows' default is another one.

What is not imitated: backslashes in paths, the libraries' own code for Windows, and Windows' file system itself.
"""

from __future__ import annotations

import asyncio
import builtins
import ctypes
import os
import signal
import socket
import stat
import sys
import types
import warnings
from pathlib import Path

BLOCKED = {"fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog", "posix", "curses"}
MISSING = {
    os: """
        O_CLOEXEC O_DIRECTORY O_DSYNC O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_SYNC O_TMPFILE
        chown chroot confstr ctermid fchdir fchmod fchown fdatasync fork forkpty fpathconf getegid geteuid getgid
        getgrouplist getgroups getloadavg getpgid getpgrp getpriority getresgid getresuid getsid getuid getxattr
        initgroups killpg lchown listxattr lockf major makedev mkfifo mknod minor nice openpty pathconf pipe2
        posix_fadvise posix_fallocate posix_spawn posix_spawnp pread preadv pwrite pwritev readv register_at_fork
        sched_getaffinity sched_setaffinity sched_yield sendfile setegid seteuid setgid setgroups setpgid setpriority
        setregid setresgid setresuid setreuid setsid setuid splice statvfs sync sysconf tcgetpgrp tcsetpgrp ttyname
        uname wait wait3 wait4 waitid writev WNOHANG""",
    socket: "AF_UNIX SO_PEERCRED SO_REUSEPORT",
    signal: "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 pthread_sigmask",
}
_TAKEN_BY_DESCRIPTOR = ("dir_fd", "src_dir_fd", "dst_dir_fd")


def install() -> None:
    """Make this process such a Python; before the first import of Kiwi."""
    assert not any(name.partition(".")[0] == "kiwi_rag" for name in sys.modules)
    _change_file_system()
    reduced = {real.__name__: _reduced(real, set(names.split())) for real, names in MISSING.items()}
    reduced["os"].supports_dir_fd = set()
    reduced["os"].open = _open
    for name in ("stat", "replace", "rename", "unlink", "mkdir", "link", "symlink"):
        setattr(reduced["os"], name, _without_descriptors(getattr(os, name)))
    original = builtins.__import__

    def import_(name, globals=None, locals=None, fromlist=(), level=0):
        importer = (globals or {}).get("__name__", "")
        if importer.partition(".")[0] == "kiwi_rag" and level == 0:
            if name.partition(".")[0] in BLOCKED:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            if name in reduced:
                return reduced[name]
        return original(name, globals, locals, fromlist, level)

    builtins.__import__ = import_
    asyncio.SelectorEventLoop.add_signal_handler = asyncio.AbstractEventLoop.add_signal_handler
    library = ctypes.CDLL.__init__
    ctypes.CDLL.__init__ = lambda self, name, *given, **more: library(self, _not_none(name), *given, **more)
    warnings.filterwarnings("error", category=EncodingWarning, module="kiwi_rag")


def _reduced(real: types.ModuleType, missing: set[str]) -> types.ModuleType:
    module = types.ModuleType(real.__name__)
    vars(module).update({name: value for name, value in vars(real).items() if name not in missing})
    return module


def _not_none(name):
    if name is None:
        raise TypeError("bad argument type for built-in operation")  # what Windows' CDLL says
    return name


def _without_descriptors(call):
    def checked(*given, **more):
        if any(more.get(name) is not None for name in _TAKEN_BY_DESCRIPTOR):
            raise NotImplementedError("dir_fd unavailable on this platform")
        return call(*given, **more)

    return checked


def _open(path, flags, mode=0o777, *, dir_fd=None):
    if dir_fd is not None:
        raise NotImplementedError("dir_fd unavailable on this platform")
    if Path(path).is_dir():
        raise PermissionError(13, "Permission denied", str(path))
    return os.open(path, flags, mode)


def _change_file_system() -> None:
    os.umask(0)
    os.chmod = lambda *_given, **_more: None
    for name in ("stat", "lstat", "fstat"):
        setattr(os, name, _ownerless(getattr(os, name)))
    for name in ("replace", "rename", "unlink", "remove", "rmdir"):
        setattr(os, name, _refusing_open_files(getattr(os, name)))


def _ownerless(call):
    def found(*given, **more):
        entry = call(*given, **more)
        named = {name: getattr(entry, name) for name in dir(entry) if name.startswith("st_")}
        anyone = 0o777 if stat.S_ISDIR(entry.st_mode) else 0o666
        mode = stat.S_IFMT(entry.st_mode) | anyone
        return os.stat_result((mode, *entry[1:4], 0, 0, *entry[6:]), named | {"st_mode": mode, "st_uid": 0})

    return found


def _refusing_open_files(call):
    def checked(*paths, **more):
        names = {os.path.realpath(path) for path in paths if isinstance(path, (str, os.PathLike)) and not more}
        for descriptor in Path("/proc/self/fd").iterdir():
            target = os.path.realpath(descriptor)
            if target in names:
                raise PermissionError(13, "Permission denied: the file is open in this process", target)
        return call(*paths, **more)

    return checked


if __name__ == "__main__":
    install()
    if __package__:
        from tests.interfaces import forked

        forked.main((), ("qdrant", "weaviate", "mcp.http"))
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from kiwi_rag.entry import main

    main()
