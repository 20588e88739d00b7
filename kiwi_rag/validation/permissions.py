"""Step 4: the permissions of a directive, and the capabilities that a script uses by its syntax tree.

Every *mention* of a name counts, not only a call: ``run = os.system`` leads to a call. Names are resolved through
imports, ``as``, plain assignments, ``getattr``, ``vars``, ``__dict__``, ``sys.modules`` and ``__import__`` with
literal names. A name that is computed at run time counts as ``eval``.

Skills are written for many tools and seldom declare anything, so the use of processes or of the network by a Python
file in a skill is a warning, which the reader of the skill sees. Reading credentials is an error unless it is declared.

A permission is a declaration for whoever reads or runs the script, checked against plain use. It is no sandbox: nothing
restricts the script when it runs, and an author who wants to can hide a use from a look at the syntax. The signature
makes its author accountable.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kiwi_rag.formats.outcome import MalformedSource
from kiwi_rag.formats.script import dunder_assignments, parse_module
from kiwi_rag.model import Finding, Item, ItemType, Severity
from kiwi_rag.validation.checks import MAX_FINDINGS, line_of

# Modules by the capability that everything in them uses.
_MODULES = {
    "subprocess": "subprocess pty pexpect sh plumbum invoke fabric multiprocessing commands popen2",
    "network": "socket ssl http.client http.server urllib.request urllib3 requests httpx aiohttp ftplib smtplib poplib "
    "imaplib nntplib telnetlib xmlrpc socketserver websockets websocket paramiko asyncssh boto3 botocore grpc pycurl "
    "psycopg psycopg2 asyncpg pymongo redis pymysql zmq pika kafka twisted tornado scapy supabase openai "
    "webbrowser",
    "eval": "code codeop runpy imp pickle cPickle _pickle dill cloudpickle marshal shelve zipimport "
    "importlib.util importlib.machinery",
    "write": "shutil tempfile",
    "native": "ctypes cffi _ctypes _imp mmap",
    "environment": "dotenv environs",
}
# Single names by capability and module; those without a module are builtins.
_NAMES = {
    ("subprocess", "os"): "system popen execl execle execlp execlpe execv execve execvp execvpe spawnl spawnle spawnlp "
    "spawnlpe spawnv spawnve spawnvp spawnvpe posix_spawn posix_spawnp fork forkpty startfile kill killpg",
    ("subprocess", "asyncio"): "create_subprocess_exec create_subprocess_shell",
    ("network", "asyncio"): "open_connection start_server open_unix_connection start_unix_server",
    ("eval", ""): "eval exec compile",
    ("eval", "types"): "CodeType FunctionType",
    ("eval", "sys"): "settrace setprofile",
    ("eval", "timeit"): "timeit repeat Timer main",
    ("environment", "os"): "environ environb getenv getenvb putenv unsetenv",
    ("write", "os"): "remove unlink rename renames replace rmdir removedirs mkdir makedirs mkfifo mknod link symlink "
    "truncate ftruncate chmod chown lchown lchmod write pwrite open utime fdopen",
}
# Attributes that mean the same on every object: the methods of pathlib that write, known sandbox escapes, and the
# loading of an extension into a database.
_ATTRIBUTES = {
    "write": "write_text write_bytes unlink rmdir mkdir touch symlink_to hardlink_to",
    "eval": "__subclasses__ __globals__ __builtins__ __code__ __loader__ exec_module load_module",
    "native": "load_extension enable_load_extension",
}
_BY_MODULE = {module: capability for capability, names in _MODULES.items() for module in names.split()}
_BY_NAME = {
    f"{module}.{name}".removeprefix("."): capability
    for (capability, module), names in _NAMES.items()
    for name in names.split()
}
_BY_ATTRIBUTE = {name: capability for capability, names in _ATTRIBUTES.items() for name in names.split()}
_IMPORTERS = frozenset({"__import__", "importlib.import_module", "importlib.__import__"})
_IMPORT_FUNCTIONS = frozenset({"__import__", "import_module"})
# Functions that read an attribute by its name later. Of a name that is plain elsewhere, such as "replace", none counts.
_GETTERS = frozenset({"operator.attrgetter", "operator.methodcaller"})
_BY_TAIL = {name.rpartition(".")[2]: each for name, each in _BY_NAME.items() if each not in {"write", "environment"}}
# Builtins keep their meaning here even if the script rebinds the name.
_BUILTINS = frozenset({"eval", "exec", "open", "__import__", "getattr", "vars", "globals", "locals", "__builtins__"})
_SENSITIVE = frozenset({"operator", "os", "posix", "nt", "builtins", "sys", "importlib", "asyncio", "types"})
_OPENERS = frozenset({"open", "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open"})
_WRITE_MODES = frozenset("wax+")

VERBS = "* execute run call spawn fetch load search read list sign verify write create update edit delete publish copy"
RESOURCES = (
    "* tool directive script knowledge skill item registry filesystem file directory folder process shell subprocess "
    "command network http url web git database env environment secret mcp server thread agent model kiwi kiwi-mcp"
)
# The permissions that grant each capability. Reading needs none.
_PERMISSIONS = {
    "subprocess": "subprocess shell process *",
    "network": "network http socket *",
    "eval": "eval exec *",
    "write": "write filesystem *",
    "native": "native *",
    "credentials": "credentials *",
    "environment": "environment env *",
    "": "read",
}
PERMISSIONS = frozenset(" ".join(_PERMISSIONS.values()).split())

# Capabilities that a skill declares by the tools that it needs (``allowed-tools``).
_TOOL_GRANTS = {"Bash": "subprocess", "Shell": "subprocess", "WebFetch": "network", "WebSearch": "network"}
# Undeclared, these are warnings in a skill; most skills write files.
_WARNED_IN_SKILL = frozenset({"subprocess", "network", "eval", "native"})
_FILE = (
    r"(?:^|[/\\~])(?:\.(?:ssh|aws|gnupg|netrc|git-credentials|npmrc|pypirc|kube|azure|vault-token|env)(?:$|[/\\.])"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)$|etc/g?shadow$)|\.docker/config\.json|\.config/(?:gh|gcloud)\b|Login Data$"
)
_VARIABLE = r"^(?=[A-Z])(?:[A-Z0-9_]*_)?(?:KEY|APIKEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PAT$)(?:_|$)"
_CREDENTIAL_MODULES = frozenset({"keyring", "netrc", "secretstorage", "browser_cookie3", "spwd"})
# What analysing a script may raise; the last two for code that is nested too deep.
_UNREADABLE = (MalformedSource, RecursionError, MemoryError)


def check_permissions(item: Item, path: str = "") -> list[Finding]:
    """Return permissions that are unknown, too wide, or missing."""
    declared = item.metadata.get("permissions", [])
    if item.ref.item_type is ItemType.DIRECTIVE:
        return [finding for each in declared for finding in _check_permission(item, each, path)][:MAX_FINDINGS]
    findings = list(_check_grants(item, declared, path))
    if item.ref.item_type is ItemType.SCRIPT:
        try:
            missing = _without(uses(parse_module(item.content)), _granted_by(declared))
        except _UNREADABLE as error:
            return [*findings, _unreadable(error, path)]
        findings += [_undeclared(use, path) for use in missing[:MAX_FINDINGS]]
    return findings


def check_skill_script(skill: Item, text: str, path: str = "") -> list[Finding]:
    """Return what a Python file in `skill` uses undeclared: reading of credentials is an error, the rest a warning.

    ``__permissions__`` of the file declares it, ``metadata.permissions`` of the skill, or its ``allowed-tools``.
    """
    try:
        tree = parse_module(text)
        found = [*uses(tree), *_credential_uses(tree)]
    except _UNREADABLE as error:
        return [_unreadable(error, path)]
    granted = _granted_by([*skill.metadata.get("permissions", []), *_declared_in(tree)])
    granted |= {_TOOL_GRANTS.get(tool.partition("(")[0], "") for tool in skill.metadata.get("allowed_tools", [])}
    missing = _without(found, granted)
    read = [_undeclared_reading(use, path) for use in missing if use.capability == "credentials"]
    first = {use.capability: use for use in reversed(missing)}  # whoever reads the warning reads the whole script
    used = [_undeclared(use, path, "warning") for name, use in sorted(first.items()) if name in _WARNED_IN_SKILL]
    return [*read[:MAX_FINDINGS], *used]


def _check_permission(item: Item, permission: Mapping[str, str], path: str) -> Iterator[Finding]:
    verb, resource, pattern = permission["verb"], permission["resource"], permission["pattern"]
    line = line_of(item, r"<permissions?\b")
    for code, value, known in (("permissions.verb", verb, VERBS), ("permissions.resource", resource, RESOURCES)):
        if value not in known.split():
            hint = f"use one of {', '.join(sorted(known.split()[1:]))}"
            message = f"unknown permission {code.rpartition('.')[2]} {value[:80]!r}"
            yield Finding(code, message, line, path, hint)
    if not pattern or " " in pattern:
        message = f"the permission pattern {pattern[:80]!r} is empty or has a space"
        yield Finding("permissions.pattern", message, line, path, "write one id or glob in each element", "warning")
    if verb == resource == "*" or (resource, pattern) == ("*", "*"):
        message = "the directive may do anything" if verb == "*" else f"the directive may {verb} anything"
        yield Finding("permissions.wildcard", message, line, path, "name the tools it needs", "warning")


def _check_grants(item: Item, declared: Iterable[str], path: str) -> Iterator[Finding]:
    line = line_of(item, r"^__permissions__|^[ \t]+permissions[ \t]*:")
    for name in declared:
        if name not in PERMISSIONS:
            hint = f"use those that apply of: {', '.join(sorted(PERMISSIONS))}"
            yield Finding("permissions.unknown", f"unknown permission {name[:80]!r}", line, path, hint)
        elif name == "*":
            message = f"the {item.ref.item_type} declares that it may do anything"
            yield Finding("permissions.wildcard", message, line, path, "declare what it needs", "warning")


def _granted_by(declared: Iterable[str]) -> set[str]:
    names = set(declared)
    return {capability for capability, permissions in _PERMISSIONS.items() if not names.isdisjoint(permissions.split())}


def _unreadable(error: BaseException, path: str) -> Finding:
    message, line = f"the script cannot be analysed: {error}", getattr(error, "line", 0)
    return Finding("permissions.unreadable", message, line, path, "run python -m py_compile, and simplify it")


def _undeclared(use: Use, path: str, severity: Severity = "error") -> Finding:
    message = f"{use.name[:80]} needs the permission {use.capability!r}, which is not declared"
    hint = f'add "{use.capability}" to __permissions__, or do not use {use.name[:40]}; it is a declaration, no sandbox'
    return Finding("permissions.undeclared", message, use.line, path, hint, severity)


def _undeclared_reading(use: Use, path: str) -> Finding:
    message = f"{use.name[:80]!r} names a credential, and reading credentials is not declared"
    hint = 'add "credentials" to __permissions__, or to permissions below metadata in SKILL.md'
    return Finding("permissions.credentials", message, use.line, path, hint)


class Use(NamedTuple):
    """A capability that a script uses: the line, the capability, and the name by which the script uses it."""

    line: int
    capability: str
    name: str


def _without(found: Iterable[Use], granted: set[str]) -> list[Use]:
    return [use for use in found if use.capability not in granted]


def uses(tree: ast.Module) -> list[Use]:
    """Return every use of a capability in `tree`, in line order, each name once a line."""
    finder = _UseFinder(tree)
    return sorted({use for node in finder.nodes for use in finder.find(node)})


class _UseFinder:
    def __init__(self, tree: ast.Module) -> None:
        self.nodes = list(ast.walk(tree))
        expressions = (node.value for node in self.nodes if isinstance(node, ast.Expr))
        self._discarded = {id(each.func) for each in expressions if isinstance(each, ast.Call)}
        self.aliases: dict[str, str] = {}
        for node in self.nodes:
            for name, target, _ in _imports(node):
                self._bind(name, target)
        # Twice, so that an alias of an alias is followed where the two stand in any order.
        for _ in range(2):
            for node in self.nodes:
                self._bind_assignment(node)

    def find(self, node: ast.AST) -> Iterator[Use]:
        """Yield the uses in this node, without those in its children."""
        line = getattr(node, "lineno", 0)
        names = [imported for *_, imported in _imports(node)]
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
            name = self._resolve(node)
            if name != "compile" or id(node) not in self._discarded:  # a discarded result is never run
                names.append(name)
        for name in names:
            if capability := _capability(name):
                yield Use(line, capability, name)
        if isinstance(node, ast.Attribute) and (capability := _BY_ATTRIBUTE.get(node.attr, "")):
            yield Use(line, capability, node.attr)
        if isinstance(node, ast.Call):
            yield from self._call(node)

    def _call(self, node: ast.Call) -> Iterator[Use]:
        name = self._resolve(node.func)
        if name in _IMPORTERS and _text(node.args[0] if node.args else None) is None:
            yield Use(node.lineno, "eval", f"{name} of a name that is computed at run time")
        if name == "getattr" and len(node.args) > 1 and _text(node.args[1]) is None:
            owner = self._resolve(node.args[0])
            if owner in _SENSITIVE or _capability(owner):
                yield Use(node.lineno, "eval", "getattr of a name that is computed at run time")
        for argument in node.args[: None if name == "operator.attrgetter" else 1] if name in _GETTERS else ():
            text = _text(argument)
            tail = (text or "").rpartition(".")[2]
            if capability := "eval" if text is None else _BY_TAIL.get(tail, _BY_ATTRIBUTE.get(tail, "")):
                yield Use(node.lineno, capability, f"{name}({tail!r})")
        if name in _OPENERS and _writes(node, 1, unknown=True):
            yield Use(node.lineno, "write", name)
        is_method = isinstance(node.func, ast.Attribute) and node.func.attr == "open" and name not in _OPENERS
        if is_method and _writes(node, 0, unknown=False):
            yield Use(node.lineno, "write", "open")

    def _bind(self, name: str, target: str) -> None:
        """Bind a name to what it refers to. Of two meanings in one file, the one with a capability counts."""
        bound = self.aliases.get(name, "")
        if name not in _BUILTINS and not _capability(bound) and bound.partition(".")[0] not in _SENSITIVE:
            self.aliases[name] = target

    def _bind_assignment(self, node: ast.AST) -> None:
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            return
        resolved = self._resolve(node.value)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name) and resolved and target.id != resolved:
                self._bind(target.id, resolved)

    def _resolve(self, node: ast.expr | None) -> str:
        """Return the dotted name that an expression refers to, empty if its syntax does not show it."""
        parts: list[str] = []  # what was read from `node` so far, the last attribute first
        while node is not None:
            match node:
                case ast.Name(id=name):
                    is_known = name in self.aliases or name in _BUILTINS or hasattr(builtins, name)
                    if not is_known:
                        return ""
                    parts.append(self.aliases.get(name, name))
                    node = None
                case ast.Attribute(attr="__dict__") | ast.NamedExpr():
                    node = node.value
                case ast.Attribute():
                    parts.append(node.attr)
                    node = node.value
                case ast.Subscript() if (key := _text(node.slice)) is not None:
                    parts.append(key)
                    node = _namespace(node.value)
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, *others]):
                    function = self.aliases.get(name, name).rpartition(".")[2]
                    read = _text(first if function in _IMPORT_FUNCTIONS else others[0] if others else None)
                    if not read or function not in {*_IMPORT_FUNCTIONS, "getattr"}:
                        return ""
                    parts.append(read)
                    node = first if function == "getattr" else None
                case _:
                    return ""
        return _canonical(parts)


def _namespace(node: ast.expr) -> ast.expr | None:
    """Return what a subscript reads from; None for all modules, and for the script itself."""
    match node:
        case ast.Attribute(attr="modules"):
            return None
        case ast.Call(func=ast.Name(id="globals" | "locals" | "vars"), args=arguments):
            return arguments[0] if arguments else None
    return node


def _imports(node: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Yield what an import binds: the name, what the name refers to, and what is imported."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            head = alias.name.partition(".")[0]
            yield alias.asname or head, alias.name if alias.asname else head, alias.name
    elif isinstance(node, ast.ImportFrom) and not node.level:
        for alias in node.names:
            for name in _star(node.module or "") if alias.name == "*" else [f"{node.module}.{alias.name}"]:
                yield alias.asname or name.rpartition(".")[2], name, name


def _star(module: str) -> list[str]:
    """Return the names with a capability that ``from module import *`` imports."""
    return [name for name in _BY_NAME if name.startswith(f"{module}.")] or [module]


def _canonical(parts: list[str]) -> str:
    """Return a dotted name from its parts, the last one first."""
    name = ".".join(filter(None, reversed(parts)))
    for prefix in ("builtins.", "__builtins__."):
        name = name.removeprefix(prefix) if hasattr(builtins, name.removeprefix(prefix)) else name
    head, _, rest = name.partition(".")
    return f"os.{rest}" if head in ("posix", "nt") and rest else name


def _capability(name: str) -> str:
    parts = name.split(".")[:4]
    prefixes = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
    return next((_BY_MODULE[prefix] for prefix in prefixes if prefix in _BY_MODULE), _BY_NAME.get(name, ""))


def _text(node: ast.expr | None) -> str | None:
    """Return the value of a string literal, of a sum of them or of an f-string of them, None for anything else."""
    texts: list[str] = []
    pending = [node]
    while pending:
        match pending.pop():
            case ast.Constant(value=str(text)):
                texts.append(text)
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                pending += [left, right]
            case ast.JoinedStr(values=values):
                pending += values
            case _:
                return None
    return "".join(reversed(texts))


def _writes(node: ast.Call, position: int, *, unknown: bool) -> bool:
    """Return whether the mode of an ``open`` writes; `unknown` if it is computed at run time."""
    modes = [k.value for k in node.keywords if k.arg == "mode"] or node.args[position : position + 1]
    if not modes:
        return False
    text = _text(modes[0])
    return unknown if text is None else bool(_WRITE_MODES & set(text)) and len(text) <= 4


def _declared_in(tree: ast.Module) -> list[str]:
    """Return the literal texts in ``__permissions__`` of a module."""
    values = [value for name, value in dunder_assignments(tree) if name == "permissions"]
    elements = [e for value in values if isinstance(value, ast.List | ast.Tuple | ast.Set) for e in value.elts]
    return [e.value for e in elements if isinstance(e, ast.Constant) and isinstance(e.value, str)]


def _credential_uses(tree: ast.Module) -> list[Use]:
    """Return the places where a module names files or environment variables that hold credentials.

    A variable counts in a module that mentions the environment. Bare strings, such as docstrings, do not count.
    """
    nodes = list(ast.walk(tree))
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    mentions = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    mentions |= {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    pattern = re.compile(f"{_FILE}|{_VARIABLE}" if mentions & {"environ", "environb", "getenv"} else _FILE)
    found = []
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in prose:
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            found += [Use(node.lineno, "credentials", text)] if pattern.search(text) else []
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            found += [Use(node.lineno, "credentials", n) for n in names if n.partition(".")[0] in _CREDENTIAL_MODULES]
    return sorted(found, key=lambda use: use.line)
