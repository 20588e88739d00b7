"""The entry point of ``kiwi``: let the local service answer if one runs, else run the command line here.

Only the client of the local service is imported before that is decided, because with a service most of a search's time
is the start of Python.
"""

from __future__ import annotations

import os
import sys

from kiwi_rag.local_service import Declined, client


def main(arguments: list[str] | None = None) -> None:
    """Run a command line, in the local service if possible, and exit with the command's code."""
    code = _run_in_service(sys.argv[1:] if arguments is None else arguments)
    if code is not None:
        raise SystemExit(code)
    from kiwi_rag.cli import main as run

    run(arguments)


def _run_in_service(arguments: list[str]) -> int | None:
    """Return the exit code of the service's answer, or None if this process has to run the command."""
    try:
        return client.answer(arguments)
    except Declined as reason:
        if client.is_verbose(arguments) and sys.stderr is not None:
            sys.stderr.write(f"kiwi: the local service was not used: {reason}\n")
        return None
    except KeyboardInterrupt:
        from kiwi_rag.cli.session import Session

        sys.stderr.write("\n")  # after the ^C that the terminal prints
        return Session().report_interrupt()
    except BrokenPipeError:  # the reader of stdout has closed it; when Python flushes at exit it would fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    main()
