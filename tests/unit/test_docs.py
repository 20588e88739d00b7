"""What the docs say is so: examples pass the gate, the list of codes is the code's, the trust file can be read."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from functools import lru_cache
from pathlib import Path

import pytest

from kiwi_rag import errors
from kiwi_rag.config import Settings
from kiwi_rag.formats.source import ItemCandidate, locate
from kiwi_rag.model.refs import ITEM_TYPES
from kiwi_rag.signing import trust_file
from kiwi_rag.validation.manager import inspect_item
from tests.shared import ROOT

ITEMS = (ROOT / "docs/items.md").read_text(encoding="utf-8")
_EXAMPLE = re.compile(r"^`(\.ai/\S+)`:\n\n````\w+\n(.*?)^````$", re.MULTILINE | re.DOTALL)
EXAMPLES = dict(_EXAMPLE.findall(ITEMS))
_STEPS = "source|bounds|form|structure|metadata|permissions|secrets|hidden|signature|time|version"
_CODE = re.compile(rf"(?:{_STEPS})\.[a-z]+(?:-[a-z]+)*")
_TEMPLATE = re.compile(rf"(?:{_STEPS})\.")
_QUOTED = re.compile(rf"""["'](?:{_STEPS})\.""")


@lru_cache(maxsize=1)
def trees() -> tuple[tuple[str, ast.Module], ...]:
    """The modules in which a string begins as a code does."""
    base = ROOT / "kiwi_rag"
    texts = ((p.relative_to(base).as_posix(), p.read_text(encoding="utf-8")) for p in sorted(base.rglob("*.py")))
    return tuple((module, ast.parse(text)) for module, text in texts if _QUOTED.search(text))


def literal_codes() -> set[str]:
    nodes = (node for _, tree in trees() for node in ast.walk(tree))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {text for text in texts if _CODE.fullmatch(text)}


def templates() -> dict[str, str]:
    """Codes that are put together, as source text, and the module that does it."""
    return {
        ast.unparse(node): module
        for module, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        and isinstance(node.values[0], ast.Constant)
        and _TEMPLATE.match(str(node.values[0].value))
    }


def signature_codes(kind: type[errors.KiwiError] = errors.SignatureRefused) -> set[str]:
    return {code for sub in kind.__subclasses__() for code in (sub.code, *signature_codes(sub))}


def composed_codes() -> dict[str, set[str]]:
    return {
        "f'metadata.{key}-missing'": {"metadata.category-missing", "metadata.author-missing"},
        "f'structure.{kind}-name'": {"structure.step-name", "structure.input-name"},
        "f'structure.{kind}-duplicate'": {"structure.step-duplicate", "structure.input-duplicate"},
        "f'signature.{error.code}'": {f"signature.{code}" for code in signature_codes()},
    }


def test_there_is_one_example_of_each_type():
    assert sorted(locate(Path(".ai"), Path(path))[0] for path in EXAMPLES) == sorted(ITEM_TYPES)


@pytest.mark.parametrize("path", EXAMPLES)
def test_an_example_passes_the_gate_without_any_finding(path):
    item_type, item_id = locate(Path(".ai"), Path(path))
    item, findings = inspect_item(ItemCandidate.of_file(item_type, item_id, EXAMPLES[path].encode()))
    assert findings == ()
    assert item is not None
    assert item.ref.version == "1.0.0"


def test_codes_are_put_together_only_where_this_test_knows_of_it():
    assert set(templates()) == set(composed_codes())
    assert all(composed_codes().values())


def test_the_list_holds_every_finding_code_and_no_other():
    listed = re.findall(r"^\| `([a-z]+\.[a-z-]+)` \|", ITEMS, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == literal_codes().union(*composed_codes().values())


def test_the_table_of_settings_is_that_of_the_code():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    _, _, table = readme.partition("| variable | default | what |\n| --- | --- | --- |\n")
    listed = table.partition("\n\n")[0].splitlines()
    assert listed == [
        f"| `{f.metadata['also'] or f'KIWI_{f.name.upper()}'}`{' *' if f.metadata['project'] else ''} "
        f"| {f'`{f.default}`' if f.default != '' else '–'} | {f.metadata['what']} |"
        for f in fields(Settings)
    ]


def test_the_trust_file_of_the_docs_can_be_read(tmp_path):
    text = re.findall(r"^```toml\n(.*?)^```$", (ROOT / "docs/trust.md").read_text(encoding="utf-8"), re.M | re.S)
    path = tmp_path / "trust.toml"
    path.write_text("".join(text), encoding="utf-8")
    content = trust_file.load(path)
    assert [s.principal for s in content.signers] == ["ada@acme.example", "ci@acme.example"]
    assert content.signers[0].types == ITEM_TYPES
    assert len(content.pins or {}) == 1
