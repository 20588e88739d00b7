"""A git hook's text: the lines of Kiwi's between two marks, put below the first line of whatever script is there.

They stand above the user's own lines, because a hook may end early (``exec``, ``exit``), and they change nothing for
those: no variable, no option of the shell, no exit status.
"""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath

from kiwi_rag.clients.refusals import Malformed

BEGIN = "# kiwi: begin. `kiwi workspace hooks` wrote these lines and renews them; write yours outside of them."
END = "# kiwi: end"
HEAD = "#!/bin/sh\n# Made by `kiwi workspace hooks`; lines of yours may follow the marked ones.\n"

# When each hook has something to index. Git names a checkout's kind (1: of a branch) and what rewrote commits.
CONDITIONS = {"post-checkout": '[ "${3-}" = 1 ] && ', "post-merge": "", "post-rewrite": '[ "${1-}" = rebase ] && '}
HOOKS = tuple(CONDITIONS)

# A hook that finds a run under way leaves a wish (`again`) and goes: whoever runs looks for wishes after each run, once
# the lock is free, so none is lost. The lock names its holder, so that one that was killed does not hold it for ever.
_RUN = """\
  sh -c '
    trap "" HUP
    dir=$(git rev-parse --absolute-git-dir)/kiwi && cd -- "$1" || exit
    [ -d .ai ] && unset $(git rev-parse --local-env-vars) || exit
    case $(kiwi --json workspace stats .) in *"\\"documents\\": "[1-9]*) ;; *) exit ;; esac
    mkdir -p "$dir" && : >"$dir/again" || exit
    [ ! -e "$dir/lock" ] || kill -0 "$(cat "$dir/lock")" || rm -f "$dir/lock"
    while [ -e "$dir/again" ] && (set -C && echo $$ >"$dir/lock"); do
      rm -f "$dir/again"
      kiwi --quiet workspace index . >"$dir/log" 2>&1
      rm -f "$dir/lock"
    done
  ' kiwi {root} </dev/null >/dev/null 2>&1 &
"""
_MARK = re.compile(r"^# kiwi: (begin|end)\b.*$", re.MULTILINE)
_SHELLS = {"sh", "ash", "bash", "busybox", "dash", "ksh", "mksh", "zsh"}


def block(hook: str, root: str) -> str:
    """Return the lines of a hook that index `root`, a path below the work tree's folder, in the background."""
    run = _RUN.replace("{root}", shlex.quote(root))
    return f"{BEGIN}\nif {CONDITIONS[hook]}command -v kiwi >/dev/null 2>&1; then\n{run}fi\n{END}\n"


def put(text: str | None, lines: str) -> str:
    """Return a hook's text, None where there is no hook yet, with Kiwi's lines in it, new or renewed.

    Raises
    ------
    Malformed
        When it is no script for a shell, or its marks are not one pair.
    """
    if text is None:
        return HEAD + lines
    bare = lines.removesuffix("\n")
    if span := _span(text):
        return text[: span[0]] + bare + text[span[1] :]
    first, ends, rest = text.partition("\n")
    if not first.startswith("#!"):  # git, as a shell, hands such a file to sh
        return lines + text
    if not _is_shell(first):
        raise Malformed(f"it is no shell script: {first[:80]}")
    return f"{first}\n{lines}{rest}" if ends else f"{first}\n{bare}"


def take(text: str) -> str:
    """Return a hook's text without Kiwi's lines; `text` itself where there are none.

    Raises
    ------
    Malformed
        When its marks are not one pair.
    """
    if not (span := _span(text)):
        return text
    above, below = text[: span[0]], text[span[1] :]
    return above + below[1:] if below else above.removesuffix("\n")


def _span(text: str) -> tuple[int, int] | None:
    marks = list(_MARK.finditer(text))
    if not marks:
        return None
    if [mark[1] for mark in marks] != ["begin", "end"]:
        line = text.count("\n", 0, marks[-1].start()) + 1
        raise Malformed("its lines marked by kiwi are not one pair of begin and end", line)
    return marks[0].start(), marks[1].end()


def _is_shell(first: str) -> bool:
    words = [PurePath(word).name.removesuffix(".exe") for word in first[2:].split()]
    if words[:1] == ["env"]:
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return bool(words) and words[0] in _SHELLS
