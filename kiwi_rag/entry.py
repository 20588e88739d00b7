"""The ``kiwi`` command's first step: ask the resident service where one runs, else be the command line.

Nothing but the caller's side of the service is imported before that is settled: with a service, starting Python is
most of what a search costs.
"""

from __future__ import annotations

import os
import sys

from kiwi_rag.local_service import client
from kiwi_rag.local_service.protocol import Declined


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, through the service where it runs and can; exit with the command's code."""
    given = sys.argv[1:] if arguments is None else arguments
    code = _answered(given)
    if code is not None:
        raise SystemExit(code)
    from kiwi_rag.cli import main as run

    run(arguments)


def _answered(given: list[str]) -> int | None:
    """Return the exit code of what the service answered; None where the command line has to do it itself."""
    try:
        return client.answer(given)
    except Declined as reason:
        if client.is_verbose(given) and sys.stderr is not None:
            sys.stderr.write(f"kiwi: the resident service was not used: {reason}\n")
        return None
    except KeyboardInterrupt:
        return _stopped()
    except BrokenPipeError:  # whoever read the output has gone, and may not be told so again when Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _stopped() -> int:
    """Say what the command line says at Ctrl-C."""
    from kiwi_rag.cli.session import Session

    sys.stderr.write("\n")  # behind the terminal's own ^C
    return Session().stopped()


if __name__ == "__main__":
    main()
