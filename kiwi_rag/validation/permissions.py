"""Step 4: the permissions of a directive, and the capabilities that a script uses by its syntax tree.

Every *mention* of a name counts, not only a call: ``run = os.system`` leads to a call. Names are resolved through
imports, ``as``, plain assignments, ``getattr``, ``vars``, ``__dict__``, ``sys.modules`` and ``__import__`` with
literal names. A name that is computed at run time counts as ``eval``.

This is static analysis, which an author can evade. The signature of the script makes its author accountable.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kiwi_rag.formats.outcome import MalformedSource
from kiwi_rag.formats.script import parse_module
from kiwi_rag.model import Finding, Item, Severity
from kiwi_rag.model.refs import ItemType
from kiwi_rag.validation.checks import line_of

CAPABILITIES = ("subprocess", "network", "eval", "write", "native")

_MODULES = {
    "subprocess": "subprocess pty pexpect sh plumbum invoke fabric multiprocessing commands popen2",
    "network": "socket ssl http.client http.server urllib.request urllib3 requests httpx aiohttp ftplib smtplib poplib "
    "imaplib nntplib telnetlib xmlrpc socketserver websockets websocket paramiko asyncssh boto3 botocore grpc pycurl "
    "psycopg psycopg2 asyncpg pymongo redis pymysql zmq pika kafka twisted tornado scapy supabase openai",
    "eval": "code codeop runpy imp pickle cPickle _pickle dill cloudpickle marshal shelve "
    "importlib.util importlib.machinery",
    "write": "shutil tempfile",
    "native": "ctypes cffi _ctypes mmap",
}
_OS_PROCESS = (
    "system popen execl execle execlp execlpe execv execve execvp execvpe spawnl spawnle spawnlp spawnlpe spawnv "
    "spawnve spawnvp spawnvpe posix_spawn posix_spawnp fork forkpty startfile kill killpg"
)
_OS_WRITE = (
    "remove unlink rename renames replace rmdir removedirs mkdir makedirs mkfifo mknod link symlink truncate ftruncate "
    "chmod chown lchown lchmod write pwrite open utime"
)
_NAMES = {
    "subprocess": [
        *(f"os.{n}" for n in _OS_PROCESS.split()),
        "asyncio.create_subprocess_exec",
        "asyncio.create_subprocess_shell",
    ],
    "network": [
        "asyncio.open_connection",
        "asyncio.start_server",
        "asyncio.open_unix_connection",
        "asyncio.start_unix_server",
    ],
    "eval": ["eval", "exec", "compile", "types.CodeType", "types.FunctionType", "sys.settrace", "sys.setprofile"],
    "write": [*(f"os.{n}" for n in _OS_WRITE.split()), "os.fdopen"],
    "native": [],
}
# Attributes that mean the same on every object: the methods of pathlib that write, and known sandbox escapes.
_ATTRIBUTES = {
    "write": "write_text write_bytes unlink rmdir mkdir touch symlink_to hardlink_to",
    "eval": "__subclasses__ __globals__ __builtins__ __code__ __loader__ exec_module load_module",
}
_IMPORTERS = frozenset({"__import__", "importlib.import_module", "importlib.__import__", "builtins.__import__"})
# Builtins keep their meaning here even if the script rebinds the name.
_BUILTINS = frozenset({"eval", "exec", "open", "__import__", "getattr", "vars", "globals", "locals", "__builtins__"})
_SENSITIVE = frozenset({"os", "posix", "nt", "builtins", "sys", "importlib", "asyncio", "types"})
_OPENERS = frozenset({"open", "io.open", "codecs.open", "builtins.open", "gzip.open", "bz2.open", "lzma.open"})
_WRITE_MODES = frozenset("wax+")


@dataclass(frozen=True, slots=True)
class Use:
    """A capability that a script uses, the name by which it uses it, and the line."""

    capability: str
    name: str
    line: int


def uses(tree: ast.Module) -> list[Use]:
    """Return every use of a capability in `tree`, in line order, each name once a line."""
    finder = _UseFinder(tree)
    return sorted(
        {use for node in finder.nodes for use in finder.find(node)}, key=lambda u: (u.line, u.capability, u.name)
    )


class _UseFinder:
    def __init__(self, tree: ast.Module) -> None:
        self.nodes = list(ast.walk(tree))
        self.aliases: dict[str, str] = {}
        for node in self.nodes:
            self._bind_import(node)
        # Twice, so that an alias of an alias is followed where the two stand in any order.
        for _ in range(2):
            for node in self.nodes:
                self._bind_assignment(node)

    def find(self, node: ast.AST) -> Iterator[Use]:
        """Yield the uses in this node, without those in its children."""
        line = getattr(node, "lineno", 0)
        for name in self._mentions(node):
            capability = _capability(name)
            if capability:
                yield Use(capability, name, line)
        if isinstance(node, ast.Attribute) and (capability := _attribute_capability(node.attr)):
            yield Use(capability, node.attr, line)
        if isinstance(node, ast.Call):
            yield from self._call(node)

    def _mentions(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                yield from _star(node.module or "") if alias.name == "*" else [f"{node.module}.{alias.name}"]
        elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call) and (name := self._resolve(node)):
            yield name

    def _call(self, node: ast.Call) -> Iterator[Use]:
        name = self._resolve(node.func) or ""
        first = node.args[0] if node.args else None
        if name in _IMPORTERS and _text(first) is None:
            yield Use("eval", f"{name} of a name that is computed at run time", node.lineno)
        if name in ("getattr", "builtins.getattr") and self._gets_computed_name(node):
            yield Use("eval", "getattr of a name that is computed at run time", node.lineno)
        if name in _OPENERS and _writes(_mode(node, 1)):
            yield Use("write", name, node.lineno)
        is_method = isinstance(node.func, ast.Attribute) and node.func.attr == "open" and name not in _OPENERS
        if is_method and _writes(_mode(node, 0), unknown=False):
            yield Use("write", "open", node.lineno)

    def _gets_computed_name(self, node: ast.Call) -> bool:
        owner = self._resolve(node.args[0]) if node.args else None
        return (
            bool(owner in _SENSITIVE or (owner and _capability(owner)))
            and len(node.args) > 1
            and _text(node.args[1]) is None
        )

    def _bind_import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                head = alias.name.partition(".")[0]
                self._bind(alias.asname or head, alias.name if alias.asname else head)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                names = _star(node.module or "") if alias.name == "*" else [f"{node.module}.{alias.name}"]
                for name in names:
                    self._bind(alias.asname or name.rpartition(".")[2], name)

    def _bind(self, name: str, target: str) -> None:
        """Bind a name to what it refers to. Of two meanings in one file, the one with a capability counts."""
        bound = self.aliases.get(name, "")
        if name not in _BUILTINS and not _capability(bound) and bound.partition(".")[0] not in _SENSITIVE:
            self.aliases[name] = target

    def _bind_assignment(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            return
        resolved = self._resolve(value)
        for target in targets:
            if isinstance(target, ast.Name) and resolved and target.id != resolved:
                self._bind(target.id, resolved)

    def _resolve(self, node: ast.expr | None) -> str | None:
        """Return the dotted name that an expression refers to, None if its syntax does not show it."""
        parts: list[str] = []
        while node is not None:
            if isinstance(node, ast.Name):
                name = self.aliases.get(node.id, node.id if hasattr(builtins, node.id) or node.id in _BUILTINS else "")
                return _canonical(".".join([name, *reversed(parts)])) if name else None
            step = self._step(node)
            if step is None:
                return None
            node, name = step
            if node is None:
                return _canonical(".".join([name, *reversed(parts)]))
            parts += [name] if name else []
        return None

    def _step(self, node: ast.expr) -> tuple[ast.expr | None, str] | None:
        """Return the expression that `node` reads from and the name it reads; no expression if the name is a module."""
        if isinstance(node, ast.Attribute):
            return node.value, "" if node.attr == "__dict__" else node.attr
        if isinstance(node, ast.Subscript) and (key := _text(node.slice)) is not None:
            return self._subscript(node.value, key)
        if isinstance(node, ast.NamedExpr):
            return node.value, ""
        return self._called(node) if isinstance(node, ast.Call) else None

    def _subscript(self, owner: ast.expr, key: str) -> tuple[ast.expr | None, str]:
        if isinstance(owner, ast.Attribute) and owner.attr == "modules":
            return None, key
        if (
            isinstance(owner, ast.Call)
            and isinstance(owner.func, ast.Name)
            and owner.func.id in ("globals", "locals", "vars")
        ):
            return (owner.args[0], key) if owner.args else (None, key)
        return owner, key

    def _called(self, node: ast.Call) -> tuple[ast.expr | None, str] | None:
        if not isinstance(node.func, ast.Name | ast.Attribute):
            return None
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        name = self.aliases.get(name, name).rpartition(".")[2]
        first = node.args[0] if node.args else None
        if name in ("__import__", "import_module") and (module := _text(first)):
            return None, module
        if name == "getattr" and len(node.args) > 1 and (key := _text(node.args[1])):
            return node.args[0], key
        return None


def _canonical(name: str) -> str:
    for prefix in ("builtins.", "__builtins__."):
        name = name.removeprefix(prefix) if hasattr(builtins, name.removeprefix(prefix)) else name
    head, _, rest = name.partition(".")
    return f"os.{rest}" if head in ("posix", "nt") and rest else name


def _capability(name: str) -> str:
    for prefix in _prefixes(name):
        if prefix in _BY_MODULE:
            return _BY_MODULE[prefix]
    return _BY_NAME.get(name, "")


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")[:4]
    return (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _attribute_capability(name: str) -> str:
    return _BY_ATTRIBUTE.get(name, "")


def _star(module: str) -> list[str]:
    """Return the names with a capability that ``from module import *`` imports."""
    return [name for name in _BY_NAME if name.startswith(f"{module}.")] or [module]


def _text(node: ast.expr | None) -> str | None:
    """Return the value of a string literal or a sum of literals, None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        parts = [_text(v) for v in node.values]
        return None if None in parts else "".join(p for p in parts if p)
    return _sum(node) if isinstance(node, ast.BinOp) else None


def _sum(node: ast.BinOp) -> str | None:
    parts: list[str] = []
    left: ast.expr = node
    while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add):
        if not isinstance(left.right, ast.Constant) or not isinstance(left.right.value, str):
            return None
        parts.append(left.right.value)
        left = left.left
    if not isinstance(left, ast.Constant) or not isinstance(left.value, str):
        return None
    return left.value + "".join(reversed(parts))


def _mode(node: ast.Call, position: int) -> ast.expr | None:
    named = next((k.value for k in node.keywords if k.arg == "mode"), None)
    return named or (node.args[position] if len(node.args) > position else None)


def _writes(mode: ast.expr | None, unknown: bool = True) -> bool:
    """Return whether an open mode writes; `unknown` if it is computed at run time."""
    if mode is None:
        return False
    text = _text(mode)
    return unknown if text is None else bool(_WRITE_MODES & set(text)) and len(text) <= 4


_BY_MODULE = {module: capability for capability, names in _MODULES.items() for module in names.split()}
_BY_NAME = {name: capability for capability, names in _NAMES.items() for name in names}
_BY_ATTRIBUTE = {name: capability for capability, names in _ATTRIBUTES.items() for name in names.split()}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VERBS = _words(
    "* execute run call spawn fetch load search read list sign verify write create update edit delete publish copy"
)
RESOURCES = _words(
    "* tool directive script knowledge skill item registry filesystem file directory folder process shell subprocess "
    "command network http url web git database env environment secret mcp server thread agent model kiwi kiwi-mcp"
)
# The capabilities that each declared permission grants. Reading and the environment need none.
GRANTS: Mapping[str, frozenset[str]] = {
    "subprocess": frozenset({"subprocess"}),
    "shell": frozenset({"subprocess"}),
    "process": frozenset({"subprocess"}),
    "network": frozenset({"network"}),
    "http": frozenset({"network"}),
    "socket": frozenset({"network"}),
    "eval": frozenset({"eval"}),
    "exec": frozenset({"eval"}),
    "write": frozenset({"write"}),
    "filesystem": frozenset({"write"}),
    "native": frozenset({"native"}),
    "read": frozenset(),
    "environment": frozenset(),
    "env": frozenset(),
    "credentials": frozenset({"credentials"}),
    "*": frozenset({*CAPABILITIES, "credentials"}),
}
MAX_FINDINGS = 20


def check_permissions(item: Item, path: str = "") -> list[Finding]:
    """Return permissions that are unknown, too wide, or missing."""
    if item.ref.item_type is ItemType.DIRECTIVE:
        return [f for p in item.metadata.get("permissions", []) for f in _check_permission(item, p, path)][
            :MAX_FINDINGS
        ]
    if item.ref.item_type is ItemType.SCRIPT:
        return [*_script_grants(item, path), *_undeclared(item, path)]
    if item.ref.item_type is ItemType.SKILL:
        return list(_script_grants(item, path))
    return []


def _check_permission(item: Item, permission: Mapping[str, str], path: str) -> Iterator[Finding]:
    verb, resource, pattern = permission["verb"], permission["resource"], permission["pattern"]
    line = line_of(item, r"<permissions?\b")
    if verb not in VERBS:
        hint = f"use one of {', '.join(sorted(VERBS - {'*'}))}"
        yield Finding("permissions.verb", f"unknown permission verb {verb[:80]!r}", line, path, hint)
    if resource not in RESOURCES:
        hint = f"use one of {', '.join(sorted(RESOURCES - {'*'}))}"
        yield Finding("permissions.resource", f"unknown permission resource {resource[:80]!r}", line, path, hint)
    if not pattern or " " in pattern:
        message = f"the permission pattern {pattern[:80]!r} is empty or has a space"
        yield Finding("permissions.pattern", message, line, path, "write one id or glob in each element", "warning")
    if verb == resource == "*" or (resource, pattern) == ("*", "*"):
        message = "the directive may do anything" if verb == "*" else f"the directive may {verb} anything"
        yield Finding("permissions.wildcard", message, line, path, "name the tools it needs", "warning")


def _script_grants(item: Item, path: str) -> Iterator[Finding]:
    line = line_of(item, r"^__permissions__|^[ \t]+permissions[ \t]*:")
    for name in item.metadata.get("permissions", []):
        if name not in GRANTS:
            hint = f"use those that apply of: {', '.join(sorted(GRANTS))}"
            yield Finding("permissions.unknown", f"unknown permission {name[:80]!r}", line, path, hint)
        elif name == "*":
            message = f"the {item.ref.item_type} declares that it may do anything"
            yield Finding("permissions.wildcard", message, line, path, "declare what it needs", "warning")


def _undeclared(item: Item, path: str) -> Iterator[Finding]:
    granted = granted_by(item.metadata.get("permissions", []))
    try:
        found = uses(parse_module(item.content))
    except (MalformedSource, RecursionError, MemoryError) as error:
        yield Finding("permissions.unreadable", f"the script cannot be analysed: {error}", 0, path, "simplify it")
        return
    missing = [use for use in found if use.capability not in granted]
    for use in missing[:MAX_FINDINGS]:
        yield undeclared_use(use, path)


def undeclared_use(use: Use, path: str, severity: Severity = "error") -> Finding:
    """Return the finding about a use that is not declared."""
    message = f"{use.name[:80]} needs the permission {use.capability!r}, which is not declared"
    hint = f'add "{use.capability}" to __permissions__, or do not use {use.name[:40]}'
    return Finding("permissions.undeclared", message, use.line, path, hint, severity)


def granted_by(names: Iterable[str]) -> set[str]:
    """Return the capabilities that declared permissions grant."""
    return {capability for name in names for capability in GRANTS.get(name, ())}
