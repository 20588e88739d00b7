"""Python: functions and classes with their decorators, docstrings and the comments right above them.

A class that fits into one passage stays whole; of a larger one, each method is a section of its own. Lines are those of
the standard library's parser. What it cannot parse is plain text, with a warning.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from threading import Lock

from kiwi_rag.formats.documents.text import file_name, large, malformed
from kiwi_rag.formats.lines import Stretch, sections
from kiwi_rag.formats.outcome import ParsedDocument

_WHOLE = 1_500
LARGEST = 1 << 20
"""Characters; the parser takes several hundred times the memory of what it reads."""
_NESTING = 50
_TITLE_AT_MOST = 80
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")
_QUIET = Lock()  # what is done about warnings, is done to the whole process
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Block = ast.If | ast.Try | ast.TryStar | ast.With | ast.For | ast.While


def parse(path: str, text: str) -> ParsedDocument:
    """Return Python as sections of the kinds ``module``, ``class`` and ``function``.

    The title is the first sentence of the module's docstring where that is short, else the file's name.
    """
    if len(text) > LARGEST:
        return large(path, text, "Python", f"{LARGEST >> 20} MiB")
    try:
        tree = _tree(text)
    except SyntaxError as error:
        return malformed(path, text, "Python", error.msg, error.lineno or 0)
    except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes; expressions nested beyond the parser
        return malformed(path, text, "Python", str(error) or "it nests too deeply")
    lines = text.split("\n")
    inner = tuple(_stretches(tree.body, lines, (), _NESTING))
    return ParsedDocument(
        "python", _title(tree) or file_name(path), sections(lines, Stretch("module", 1, len(lines), (), inner))
    )


def _tree(text: str) -> ast.Module:
    with _QUIET, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes: the file's own matter
        return ast.parse(text.replace("\r", " ").replace("\f", " "))  # neither ends a line here


def _stretches(
    body: Sequence[ast.stmt], lines: Sequence[str], outer: tuple[str, ...], nesting: int
) -> Iterator[Stretch]:
    for node in _definitions(body, nesting):
        start, end = _first_line(node, lines), node.end_lineno or node.lineno
        if isinstance(node, ast.ClassDef):
            heading = (*outer, node.name)
            large = nesting and len("\n".join(lines[start - 1 : end])) > _WHOLE
            inner = tuple(_stretches(node.body, lines, heading, nesting - 1)) if large else ()
            yield Stretch("class", start, end, heading, inner)
        else:
            yield Stretch("function", start, end, (*outer, _signature(node)))


def _definitions(body: Sequence[ast.stmt], nesting: int) -> Iterator[_Definition]:
    """Yield the functions and classes of a body, those in its conditions, loops and the like too, in order."""
    for node in body:
        if isinstance(node, _Definition):
            yield node
        elif isinstance(node, _Block) and nesting:
            handlers = [handler.body for handler in getattr(node, "handlers", ())]
            for part in (node.body, *handlers, getattr(node, "orelse", []), getattr(node, "finalbody", [])):
                yield from _definitions(part, nesting - 1)


def _first_line(node: _Definition, lines: Sequence[str]) -> int:
    """Return the line of the first decorator, or of the comments that stand right above it."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    while first > 1 and lines[first - 2].lstrip().startswith("#"):
        first -= 1
    return first


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return a function's name and the names of its arguments."""
    given = node.args
    plain = [argument.arg for argument in (*given.posonlyargs, *given.args)]
    rest = [f"*{given.vararg.arg}"] if given.vararg else ["*"] if given.kwonlyargs else []
    named = [argument.arg for argument in given.kwonlyargs] + ([f"**{given.kwarg.arg}"] if given.kwarg else [])
    return f"{node.name}({', '.join([*plain, *rest, *named])})"


def _title(tree: ast.Module) -> str:
    first = _SENTENCE_END.split((ast.get_docstring(tree) or "").strip(), maxsplit=1)[0]
    words = " ".join(first.split())
    return words if len(words) <= _TITLE_AT_MOST else ""
