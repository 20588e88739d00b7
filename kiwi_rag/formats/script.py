"""Scripts: Python files, read by ``ast.parse`` and never imported or run.

The module docstring and the dunder assignments (``__version__``, ``__description__``, ``__category__``,
``__author__``, ``__tags__``, ``__permissions__``) describe a script; their values must be literals.
"""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any

from kiwi_rag.formats import markdown
from kiwi_rag.formats.outcome import FindingList, ItemParts, MalformedSource, Stretch, flat, labels
from kiwi_rag.model import Section

MAX_COMMENTS = 400
# CPython up to 3.11 takes time in the square of a line's length for f-strings.
MAX_LINE = 8_192
_NAMES = frozenset(f"__{name}__" for name in ("version", "description", "category", "author", "tags", "permissions"))
_LISTS = ("tags", "permissions")
_QUIET = Lock()  # what is done about warnings is done to the whole process
Function = ast.FunctionDef | ast.AsyncFunctionDef


def parse(item_id: str, content: str, found: FindingList) -> ItemParts:
    """Parse a script."""
    try:
        return _parts(item_id, content, parse_module(content), found)
    except (RecursionError, MemoryError) as error:
        raise _too_nested() from error


def parse_module(content: str) -> ast.Module:
    """Return the syntax tree of a script.

    Raises
    ------
    MalformedSource
        If it is not Python, has a line that is too long, or is nested too deeply for the parser.
    """
    lines = markdown.split_lines(content)
    if long := next((number for number, line in enumerate(lines, start=1) if len(line) > MAX_LINE), 0):
        message = f"the line has over {MAX_LINE} characters"
        raise MalformedSource("form.python-line", message, long, "break the line, or keep data in a file")
    try:
        return syntax_tree("\n".join(lines))
    except (SyntaxError, ValueError) as error:
        reason, line = getattr(error, "msg", error), getattr(error, "lineno", 1) or 1
        raise MalformedSource("form.python", f"not Python: {reason}", line, "run python -m py_compile on it") from error
    except (RecursionError, MemoryError) as error:
        raise _too_nested() from error


def _too_nested() -> MalformedSource:
    message = "the script is nested too deeply to be read"
    return MalformedSource("form.python-nesting", message, 1, "split long expressions")


def syntax_tree(text: str) -> ast.Module:
    """Return the syntax tree of Python; an invalid escape sequence in it writes no warning to stderr."""
    with _QUIET, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def dunder_assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield name and value of each module-level metadata assignment, in order."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (target.id for target in targets if isinstance(target, ast.Name))
            yield from ((name.strip("_"), node.value) for name in names if name in _NAMES)


def version_span(content: str) -> tuple[int, int] | None:
    """Return where the text of ``__version__``'s value stands in `content`, quotes left out, or ``None``."""
    nodes = [value for name, value in dunder_assignments(parse_module(content)) if name == "version"]
    if not nodes or not isinstance(node := nodes[-1], ast.Constant) or node.lineno != node.end_lineno:
        return None
    # The tree counts columns in UTF-8 bytes.
    line = markdown.split_lines(content)[node.lineno - 1].encode()
    literal = line[node.col_offset : node.end_col_offset].decode()
    inner = literal.find(str(node.value))
    start = markdown.line_offset(content, node.lineno) + len(line[: node.col_offset].decode()) + inner
    return (start, start + len(str(node.value))) if inner >= 0 else None


def _parts(item_id: str, content: str, tree: ast.Module, found: FindingList) -> ItemParts:
    declared = _declared(tree, found)
    docstring = ast.get_docstring(tree) or ""
    metadata = _metadata(declared, docstring, tree, item_id)
    lines = markdown.split_lines(content)
    first, last = (tree.body[0].lineno, tree.body[0].end_lineno or 0) if docstring else (0, 0)
    summary = Section("summary", _summary(metadata, docstring, tree, content), max(first, 1), max(last, 1))
    body = flat(lines, _body(tree, lines, first, last))
    return ItemParts(declared.get("version") or None, metadata, (summary, *body))


def _declared(tree: ast.Module, found: FindingList) -> dict[str, Any]:
    declared: dict[str, Any] = {}
    for name, node in dunder_assignments(tree):
        value = _literal(node, name in _LISTS)
        if value is None:
            wanted = "a list of strings" if name in _LISTS else "a string"
            message = f"__{name}__ is not a literal: {wanted} is wanted"
            hint = "write the value as a literal, because scripts are never run"
            found.add("metadata.type", message, node.lineno, hint)
        elif name in declared:
            found.add("metadata.duplicate-key", f"__{name}__ is assigned twice", node.lineno, "keep one")
        else:
            declared[name] = value
    return declared


def _literal(node: ast.expr, is_list: bool) -> str | list[str] | None:
    if not is_list:
        return node.value.strip() if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
    if not isinstance(node, ast.List | ast.Tuple | ast.Set):
        return None
    values = [e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
    return [v.strip() for v in values] if len(values) == len(node.elts) else None


def _metadata(declared: dict[str, Any], docstring: str, tree: ast.Module, item_id: str) -> dict[str, Any]:
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    return {
        "name": item_id.rpartition("/")[2],
        "description": " ".join(declared.get("description", "").split()) or paragraph,
        **{key: declared.get(key, "") for key in ("category", "author")},
        **{key: declared.get(key, []) for key in _LISTS},
        "imports": sorted(set(_imports(tree))),
    }


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def _summary(metadata: dict[str, Any], docstring: str, tree: ast.Module, content: str) -> str:
    """Compose the text that a script is found by: docstring, function names, comments."""
    parts = [f"Script: {metadata['name']}", docstring.strip() or metadata["description"]]
    if metadata["description"] and metadata["description"] not in " ".join(docstring.split()):
        parts.append(metadata["description"])
    parts += [*labels(metadata), *map(_signature, _functions(tree)), _comments(content)]
    return "\n".join(filter(None, parts))


def _functions(tree: ast.Module) -> Iterator[Function]:
    """Yield top-level functions and the methods of top-level classes."""
    for node in tree.body:
        if isinstance(node, Function):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from (member for member in node.body if isinstance(member, Function))


def _signature(node: Function) -> str:
    docstring = (ast.get_docstring(node) or "").strip().split("\n", maxsplit=1)[0]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    signature = f"{node.name}({ast.unparse(node.args)}){returns}"
    return f"{signature}: {docstring}" if docstring else signature


def _comments(content: str) -> str:
    """Return the first comments of the file in one line, tool marks left out."""
    words: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(content.removeprefix("\ufeff")).readline):
            text = token.string.lstrip("#! ").rstrip()
            if token.type == tokenize.COMMENT and text and not text.startswith(("noqa", "type:", "/", "-*-", "pragma")):
                words.append(text)
            if sum(map(len, words)) > MAX_COMMENTS:
                break
    except (tokenize.TokenError, SyntaxError):
        pass  # `ast` read the file; comments are only a help to the searcher
    return " ".join(words)[:MAX_COMMENTS]


def _body(tree: ast.Module, lines: Sequence[str], first: int, last: int) -> Iterator[Stretch]:
    """Yield each top-level function or class, and what stands between them; the docstring is in the summary."""
    yield Stretch("body", 1, first - 1)
    begin = last + 1
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef):
            start, end = first_line(node), node.end_lineno or node.lineno
            yield Stretch("body", begin, start - 1)
            yield Stretch("body", max(start, begin), end, (node.name,))
            begin = end + 1
    yield Stretch("body", begin, len(lines))


def first_line(node: ast.stmt) -> int:
    """Return the line of a statement or of its first decorator."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])
