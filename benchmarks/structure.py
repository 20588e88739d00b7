"""Figures of the code's structure: ``make structure`` prints them, ``--json`` gives them as data.

Lines of code are counted without blanks, comments and docstrings; a module's and a function's length is counted as it
stands in the file. Imports are those of `grimp`, the graph that the import contracts are checked on, without imports
under ``TYPE_CHECKING``. Two commands are followed by ``sys.setprofile`` on a throw-away project with an embedded
registry: a search of the registry, from the searcher's first call to the last line printed (which modules have a
function called), and the publication of one file (which calls go from a layer to one above it).
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import re
import statistics
import sys
import tempfile
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kiwi_rag"
SQL = ROOT / "sql"
SEARCH = "kiwi_rag.search.searcher.Searcher.search"
RUN = 12  # lines that a pair of places shares at least
COMMON = 8  # places beyond which a run is too common to count as a copy
_SQL_COMMENT = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)
_BROAD = {"Exception", "BaseException"}
_NOTE = """---
title: How we cut the staging cluster's bill
description: Night-time scale-down of staging, what it saves and how to pause it.
version: "1.0.0"
category: acme
author: ada
---

# Night-time scale-down

Every evening at eight the staging cluster shrinks to one node.
"""


@dataclass(frozen=True)
class Module:
    """One Python file: its name below the package, its text and its tree."""

    name: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        """Lines as they stand in the file."""
        return len(self.text.splitlines())

    @property
    def docstring_lines(self) -> set[int]:
        """Numbers of the lines that docstrings, and strings that stand alone, take."""
        alone = (node.value for node in ast.walk(self.tree) if isinstance(node, ast.Expr))
        texts = [node for node in alone if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        return {line for node in texts for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}

    @property
    def code(self) -> list[tuple[int, str]]:
        """Line numbers and texts without blanks, comments and docstrings."""
        left_out = self.docstring_lines
        numbered = enumerate(self.text.splitlines(), 1)
        return [(n, t) for n, t in numbered if n not in left_out and t.strip() and not t.lstrip().startswith("#")]

    @property
    def comments(self) -> int:
        """Lines that hold a comment alone."""
        return sum(line.lstrip().startswith("#") for line in self.text.splitlines())


def modules(package: Path = PACKAGE) -> list[Module]:
    """Return every module of a package."""
    found = []
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
        found.append(Module(name, text, ast.parse(text)))
    return found


def functions(found: Sequence[Module]) -> list[tuple[int, str]]:
    """Return the length and the name of every function, longest last."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return sorted(
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{module.name}.{node.name}")
        for module in found
        for node in ast.walk(module.tree)
        if isinstance(node, kinds)
    )


def repeated_classes(found: Sequence[Module]) -> dict[str, list[str]]:
    """Return public class names that stand in several modules, with these."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for module in found:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module.name)
    return {name: where for name, where in homes.items() if len(where) > 1}


def broad_excepts(found: Sequence[Module]) -> list[str]:
    """Return the places that catch every exception."""

    def is_broad(handler: ast.ExceptHandler) -> bool:
        return handler.type is None or getattr(handler.type, "id", "") in _BROAD

    return [
        f"{module.name}:{node.lineno}"
        for module in found
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler) and is_broad(node)
    ]


def circles(name: str = "kiwi_rag") -> list[str]:
    """Return the modules that lie on a circle of imports, or between two."""
    import grimp

    graph = grimp.build_graph(name, exclude_type_checking_imports=True)
    left = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    while True:
        wanted = set().union(*left.values()) if left else set()
        ends = {module for module, imported in left.items() if not imported & left.keys() or module not in wanted}
        if not ends:
            return sorted(left)
        left = {module: imported - ends for module, imported in left.items() if module not in ends}


def sql_lines(folder: Path = SQL) -> int:
    """Return the lines of SQL without blanks and comments."""
    texts = (path.read_text(encoding="utf-8") for path in folder.rglob("*.sql"))
    return sum(bool(line.strip()) for text in texts for line in _SQL_COMMENT.sub("", text).splitlines())


def python_shape(module: Module) -> list[tuple[int, str]]:
    """Return each line of code with names, strings and numbers made alike.

    Imports, lists of bare names and lone brackets are left out.
    """
    words: defaultdict[int, list[str]] = defaultdict(list)
    code = {number for number, _ in module.code}
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.start[0] in code and token.string.strip():
            words[token.start[0]].append(_shape_of(token))
    lines = ((number, " ".join(tokens)) for number, tokens in sorted(words.items()))
    return [(number, line) for number, line in lines if not _is_thin(line)]


def _shape_of(token: tokenize.TokenInfo) -> str:
    import keyword

    if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
        return "name"
    return {tokenize.STRING: "text", tokenize.NUMBER: "number"}.get(token.type, token.string)


def _is_thin(line: str) -> bool:
    return line.startswith(("import ", "from ")) or line in {"name ,", "text ,"} or not re.search(r"\w", line)


def sql_shape(text: str) -> list[tuple[int, str]]:
    """Return each line of SQL, in lower case and with spaces folded."""
    blanked = _SQL_COMMENT.sub(lambda match: "\n" * match.group().count("\n"), text)
    folded = ((number, " ".join(line.lower().split())) for number, line in enumerate(blanked.splitlines(), 1))
    return [(number, line) for number, line in folded if re.search(r"\w", line)]


def copies(shapes: dict[str, list[tuple[int, str]]], run: int = RUN) -> list[str]:
    """Return the pairs of places that share at least `run` lines of one shape, each pair of files once a run."""
    places: defaultdict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, lines in shapes.items():
        for index in range(len(lines) - run + 1):
            places[tuple(line for _, line in lines[index : index + run])].append((name, index))
    pairs = {
        (one, other)
        for where in places.values()
        if 1 < len(where) <= COMMON
        for position, one in enumerate(where)
        for other in where[position + 1 :]
        if one[0] != other[0] or other[1] - one[1] >= run
    }
    begins = sorted((a, b) for a, b in pairs if ((a[0], a[1] - 1), (b[0], b[1] - 1)) not in pairs)
    listed: dict[
        tuple[str, str, int], str
    ] = {}  # a run that repeats within itself begins at several lines: once is enough
    for (one, i), (other, j) in begins:
        listed.setdefault((one, other, i // run), f"{one}:{shapes[one][i][0]} ~ {other}:{shapes[other][j][0]}")
    return sorted(listed.values())


def all_copies(found: Sequence[Module]) -> list[str]:
    """Return what stands twice in the package and in the SQL."""
    sql = {str(path.relative_to(ROOT)): sql_shape(path.read_text(encoding="utf-8")) for path in SQL.rglob("*.sql")}
    return copies({module.name: python_shape(module) for module in found}) + copies(sql)


def static_figures() -> dict[str, Any]:
    """Return what can be told from the files alone."""
    found = modules()
    lengths = [module.lines for module in found]
    longest = functions(found)
    code = sum(len(module.code) for module in found)
    return {
        "code_lines": code,
        "modules": len(found),
        "module_median": statistics.median(lengths),
        "module_longest": max(lengths),
        "sql_lines": sql_lines(),
        "function_median": statistics.median(length for length, _ in longest),
        "function_p90": longest[int(len(longest) * 0.9)][0],
        "function_longest": longest[-1][0],
        "functions_above_50": [name for length, name in longest if length > 50],
        "comment_share": round(sum(module.comments for module in found) / code, 4),
        "import_circles": circles(),
        "repeated_classes": repeated_classes(found),
        "broad_excepts": broad_excepts(found),
        "copies": all_copies(found),
    }


class CallTrace:
    """Calls of Kiwi's own functions on the main thread, from the first call of the function `begin`, or all of them."""

    def __init__(self, begin: str = "") -> None:
        self._begin = begin
        self._begun = not begin
        self.modules: Counter[str] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or frame.f_code.co_name == "<module>":
            return
        called = frame.f_globals.get("__name__", "")
        if not called.startswith("kiwi_rag"):
            return
        name = f"{called}.{frame.f_code.co_qualname}"
        self._begun = self._begun or name == self._begin
        if not self._begun:
            return
        self.modules[called] += 1
        caller = frame.f_back.f_globals.get("__name__", "") if frame.f_back else ""
        if caller.startswith("kiwi_rag"):
            self.calls[caller, name] += 1

    def of(self, work: Callable[[], object]) -> CallTrace:
        """Run `work` with this trace as the profiler."""
        sys.setprofile(self)
        try:
            work()
        finally:
            sys.setprofile(None)
        return self


def layers() -> dict[str, int]:
    """Return each package's place in the contract of layers, 0 at the bottom."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    ordered = next(contract for contract in contracts if contract["containers"] == ["kiwi_rag"])["layers"]
    return {name.strip(" ()"): rank for rank, row in enumerate(reversed(ordered)) for name in row.split("|")}


def upward(trace: CallTrace) -> list[str]:
    """Return the functions of a higher layer that a lower one called, with who called them."""
    rank = layers()

    def layer(module: str) -> int:
        return rank.get(f"{module}.".split(".")[1], -1)

    calls = {(caller, called) for caller, called in trace.calls if layer(called) > layer(caller) >= 0}
    return sorted(f"{caller} → {called}" for caller, called in calls)


def followed() -> dict[str, Any]:
    """Run a search of a registry and a publication in a throw-away project, and return what they called."""
    with tempfile.TemporaryDirectory() as folder, _project(Path(folder)):
        note = Path(".ai/knowledge/acme/night.md")
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(_NOTE, encoding="utf-8")
        _kiwi("sign", ".ai")
        _kiwi("index")
        _kiwi("registry", "start")
        try:
            publication = CallTrace().of(lambda: _kiwi("publish", str(note)))
            search = CallTrace(SEARCH).of(lambda: _kiwi("search", "what does staging cost", "--source", "registry"))
        finally:
            _kiwi("registry", "stop")
    return {
        "search_modules": sorted(search.modules),
        "publish_modules": sorted(publication.modules),
        "publish_calls_upward": upward(publication),
    }


@contextmanager
def _project(folder: Path) -> Iterator[None]:
    """Enter a project in a folder, with a home and a key of its own: as environment and as current folder."""
    before, where = dict(os.environ), Path.cwd()
    folder.chmod(0o755)
    for name in ("home", "project"):
        (folder / name).mkdir()
    os.environ.setdefault("KIWI_CACHE_DIR", str(ROOT / ".cache/kiwi"))
    os.environ.update(HOME=str(folder / "home"), KIWI_KEY_PASSPHRASE="structure")
    os.chdir(folder / "project")
    try:
        _kiwi("init")
        _kiwi("keys", "new")
        yield
    finally:
        os.chdir(where)
        os.environ.clear()
        os.environ.update(before)


def _kiwi(*arguments: str) -> None:
    from kiwi_rag.cli import main

    said = io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            main(list(arguments))
    except SystemExit as end:
        if end.code:
            raise SystemExit(f"kiwi {' '.join(arguments)}: exit code {end.code}: {said.getvalue()}") from end


def rows(figures: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield name, figure and aim of each row of the table."""
    yield "lines of code in kiwi_rag", f"{figures['code_lines']:,}", "≤ 20,000"
    yield "modules", str(figures["modules"]), "≤ 170"
    yield "module length: median, longest", f"{figures['module_median']:g}, {figures['module_longest']}", "≥ 130, ≤ 400"
    yield "lines of SQL", f"{figures['sql_lines']:,}", "≤ 3,600"
    lengths = (figures["function_median"], figures["function_p90"], figures["function_longest"])
    yield "function length: median, p90, longest", "{:g}, {}, {}".format(*lengths), "p90 ≤ 16, ≤ 50"
    yield "lines of comment ÷ lines of code", f"{figures['comment_share']:.1%}", ""
    for name, key, aim in (
        ("modules on import circles", "import_circles", "0"),
        ("public class names used twice", "repeated_classes", "0"),
        ("broad excepts", "broad_excepts", "≤ 21"),
        ("pairs of places with 12 or more lines alike", "copies", "≤ 10"),
        ("modules that a search of the registry calls", "search_modules", "≤ 25"),
        ("calls into a higher layer when one file is published", "publish_calls_upward", "≤ 2"),
    ):
        if key in figures:
            yield name, str(len(figures[key])), aim


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Figures of the code's structure.")
    parser.add_argument("--json", action="store_true", help="everything, with names")
    parser.add_argument("--static", action="store_true", help="without following commands")
    given = parser.parse_args()
    figures = static_figures() | ({} if given.static else followed())
    if given.json:
        print(json.dumps(figures, indent=2, ensure_ascii=False))
        return
    for name, figure, aim in rows(figures):
        print(f"{name:<56}{figure:>16}   {aim}")


if __name__ == "__main__":
    main()
