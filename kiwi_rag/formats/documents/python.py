"""Python: functions and classes with their decorators, docstrings and the comments right above them.

A class that fits into one passage stays whole; of a larger one, each method is a section of its own. Lines are those of
the standard library's parser. What it cannot parse is plain text, with a warning.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from kiwi_rag.formats.outcome import MalformedSource, ParsedDocument, Stretch, sections
from kiwi_rag.formats.script import first_line, syntax_tree

_WHOLE = 1_500
LARGEST = 1 << 20
"""Characters; the parser takes several hundred times the memory of what it reads."""
_NESTING = 50
_TITLE_AT_MOST = 80
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Block = ast.If | ast.Try | ast.TryStar | ast.With | ast.For | ast.While


def parse(text: str, form: str) -> ParsedDocument:
    """Return Python as sections of the kinds ``module``, ``class`` and ``function``.

    The title is the first sentence of the module's docstring where that is short.

    Raises
    ------
    MalformedSource
        If the text is larger than `LARGEST`, or not Python.
    """
    if len(text) > LARGEST:
        raise MalformedSource("document.large", f"{LARGEST >> 20} MiB", 0)
    try:
        tree = syntax_tree(text.replace("\r", " ").replace("\f", " "))  # neither ends a line here
    except SyntaxError as error:
        raise MalformedSource("document.malformed", error.msg, error.lineno or 0) from error
    except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes; expressions nested beyond the parser
        raise MalformedSource("document.malformed", str(error) or "it nests too deeply", 0) from error
    lines = text.split("\n")
    inner = tuple(_stretches(tree.body, lines, (), _NESTING))
    return ParsedDocument(form, _title(tree), sections(lines, Stretch("module", 1, len(lines), (), inner)))


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
    first = first_line(node)
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
