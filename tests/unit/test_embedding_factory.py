"""Names of providers, and that naming one costs nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kiwi_rag.embedding.cache import CachedEmbeddingProvider
from kiwi_rag.embedding.factory import PROVIDERS, load_provider
from kiwi_rag.embedding.onnx import OnnxEmbeddingProvider
from kiwi_rag.embedding.remote import RemoteEmbeddingProvider
from kiwi_rag.errors import MissingExtra, UsageError


def test_an_unknown_provider_is_a_usage_error_listing_the_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'word2vec'") as caught:
        load_provider("word2vec", cache_dir=tmp_path)
    assert all(name in caught.value.hint for name in PROVIDERS)


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_provider_is_made_without_touching_disk_or_net(tmp_path: Path, name: str) -> None:
    assert isinstance(load_provider(name, cache_dir=tmp_path / "none"), CachedEmbeddingProvider)
    assert not isinstance(load_provider(name, cache_dir=tmp_path / "none").uncached, CachedEmbeddingProvider)
    assert list(tmp_path.iterdir()) == []


def test_remote_providers_have_models_and_addresses_of_their_own(tmp_path: Path) -> None:
    made = [load_provider(name, cache_dir=tmp_path).uncached for name in ("openai", "ollama")]
    assert all(isinstance(provider, RemoteEmbeddingProvider) for provider in made)
    assert [(p.model, p.endpoint.base_url) for p in made] == [
        ("text-embedding-3-small", "https://api.openai.com/v1"),
        ("all-minilm", "http://127.0.0.1:11434"),
    ]


def test_a_local_provider_refuses_a_model_that_it_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="all-mpnet"):
        load_provider("onnx", cache_dir=tmp_path, model="all-mpnet-base-v2")
    named = load_provider("onnx", cache_dir=tmp_path, model="sentence-transformers/all-MiniLM-L6-v2").uncached
    assert isinstance(named, OnnxEmbeddingProvider)
    assert named.fingerprint.model == "all-MiniLM-L6-v2"
    assert load_provider("onnx", cache_dir=tmp_path).fingerprint.model == "all-MiniLM-L6-v2-int8"
    with pytest.raises(UsageError, match="int8"):
        load_provider("sentence-transformers", cache_dir=tmp_path, model="all-MiniLM-L6-v2-int8")


def test_the_missing_extra_is_named_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sentence_transformers", "torch"):  # the extra brings both
        monkeypatch.setitem(sys.modules, name, None)  # how Python marks what cannot be imported
    with pytest.raises(MissingExtra) as caught:
        load_provider("sentence-transformers", cache_dir=tmp_path).uncached.encode(["x"])
    assert "pip install 'kiwi-rag[sentence-transformers]' 'torch==2.13.0'" in caught.value.hint


def test_every_provider_that_a_setting_may_name_is_there(tmp_path: Path) -> None:
    kinds = {name: type(load_provider(name, cache_dir=tmp_path).uncached).__name__ for name in PROVIDERS}
    assert kinds == {
        "onnx": "OnnxEmbeddingProvider",
        "sentence-transformers": "SentenceTransformersEmbeddingProvider",
        "openai": "OpenAIEmbeddingProvider",
        "ollama": "OllamaEmbeddingProvider",
    }
    with pytest.raises(UsageError):
        load_provider("nothing-of-that-name", cache_dir=tmp_path)


def test_making_a_provider_imports_nothing_heavy(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from kiwi_rag.embedding.factory import load_provider;"
        "load_provider('onnx', cache_dir=Path(sys.argv[1])).fingerprint;"
        "print(*({'numpy', 'onnx', 'onnxruntime', 'tokenizers', 'safetensors', 'filelock', 'torch', 'urllib.request',"
        " 'httpx'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
