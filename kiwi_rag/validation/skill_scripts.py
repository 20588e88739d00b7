"""Step 4 for Python files in a skill: what they use without declaring it, and which credentials they read.

Skills are written for many tools and seldom declare anything, so the use of processes or of the network is a warning,
which the reader of a skill sees. Reading credentials is an error unless it is declared. As in `permissions`, this is
static analysis, which an author can evade.
"""

from __future__ import annotations

import ast
import re

from kiwi_rag.formats.outcome import MalformedSource
from kiwi_rag.formats.script import dunder_assignments, parse_module
from kiwi_rag.model import Finding, Item
from kiwi_rag.validation.permissions import MAX_FINDINGS, Use, granted_by, undeclared_use, uses

# Capabilities that a skill declares by the tools that it needs (``allowed-tools``).
_TOOL_GRANTS = {"Bash": "subprocess", "Shell": "subprocess", "WebFetch": "network", "WebSearch": "network"}
# Undeclared, these are warnings in a skill; most skills write files.
_WARNED_IN_SKILL = frozenset({"subprocess", "network", "eval", "native"})
_FILE = (
    r"(?:^|[/\\~])(?:\.(?:ssh|aws|gnupg|netrc|git-credentials|npmrc|pypirc|kube|azure|vault-token|env)(?:$|[/\\.])"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)$|etc/g?shadow$)|\.docker/config\.json|\.config/(?:gh|gcloud)\b|Login Data$"
)
_VARIABLE = r"^(?=[A-Z])(?:[A-Z0-9_]*_)?(?:KEY|APIKEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PAT)(?:_|$)"
_CREDENTIAL_FILE = re.compile(_FILE)
_CREDENTIAL_OR_VARIABLE = re.compile(f"{_FILE}|{_VARIABLE}")
_CREDENTIAL_MODULES = frozenset({"keyring", "netrc", "secretstorage", "browser_cookie3", "spwd"})


def check_skill_script(skill: Item, text: str, path: str = "") -> list[Finding]:
    """Return what a Python file in `skill` uses undeclared: reading of credentials is an error, the rest a warning.

    ``__permissions__`` of the file declares it, ``metadata.permissions`` of the skill, or its ``allowed-tools``.
    """
    try:
        tree = parse_module(text)
        found = [*uses(tree), *credential_uses(tree)]
    except (MalformedSource, RecursionError, MemoryError) as error:
        message = f"the script cannot be analysed: {error}"
        return [Finding("permissions.unreadable", message, getattr(error, "line", 0), path, "run python -m py_compile")]
    granted = granted_by([*skill.metadata.get("permissions", []), *_declared_in(tree)])
    granted |= {_TOOL_GRANTS.get(tool.partition("(")[0], "") for tool in skill.metadata.get("allowed_tools", [])}
    missing = [use for use in found if use.capability not in granted]
    read = [_unread_declaration(use, path) for use in missing if use.capability == "credentials"]
    first = {use.capability: use for use in reversed(missing)}  # whoever reads the warning reads the whole script
    used = [undeclared_use(use, path, "warning") for name, use in sorted(first.items()) if name in _WARNED_IN_SKILL]
    return [*read[:MAX_FINDINGS], *used]


def _declared_in(tree: ast.Module) -> list[str]:
    values = [value for name, value in dunder_assignments(tree) if name == "permissions"]
    elements = [e for value in values if isinstance(value, ast.List | ast.Tuple | ast.Set) for e in value.elts]
    return [e.value for e in elements if isinstance(e, ast.Constant) and isinstance(e.value, str)]


def _unread_declaration(use: Use, path: str) -> Finding:
    message = f"{use.name[:80]!r} names a credential, and reading credentials is not declared"
    hint = 'add "credentials" to __permissions__, or to permissions below metadata in SKILL.md'
    return Finding("permissions.credentials", message, use.line, path, hint)


def credential_uses(tree: ast.Module) -> list[Use]:
    """Return the places where a module names files or environment variables that hold credentials.

    A variable counts in a module that mentions the environment. Bare strings, such as docstrings, do not count.
    """
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    mentions = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    mentions |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    pattern = _CREDENTIAL_OR_VARIABLE if mentions & {"environ", "environb", "getenv"} else _CREDENTIAL_FILE
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in prose:
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if pattern.search(text):
                found.append(Use("credentials", text, node.lineno))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            found += [Use("credentials", n, node.lineno) for n in names if n.partition(".")[0] in _CREDENTIAL_MODULES]
    return sorted(found, key=lambda use: use.line)
