"""The Hugging Face hub as a source of the model's files, at one pinned revision.

Files are fetched from ``{base}/{repository}/resolve/{revision}/{file}``, the address that the hub documents for
downloads, hashed while they arrive, and put in place only when their digest is the pinned one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from kiwi_rag.embedding.digests import digest_mismatch
from kiwi_rag.errors import ModelUnavailable
from kiwi_rag.storage.atomic import atomic_file

if TYPE_CHECKING:
    import http.client

HUB = "https://huggingface.co"
REPOSITORY = "sentence-transformers/all-MiniLM-L6-v2"
REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
_TIMEOUT = 20.0
_CHUNK = 1 << 18

DownloadProgress = Callable[[str, int, int], None]
"""Called with the file's name, the bytes done, and all its bytes (0 where the server does not say)."""


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
        If the hub cannot be reached, does not have the file, or sends other bytes; nothing is left behind.
    """
    url = f"{base.rstrip('/')}/{REPOSITORY}/resolve/{REVISION}/{name}"
    if not url.startswith(("https://", "http://")):
        raise ModelUnavailable(f"the hub's address {base!r} is neither http:// nor https://")
    with atomic_file(target, durable=False) as stream:
        got = _fetch(url, name, stream, progress)
        if got != expected:
            raise digest_mismatch(url, expected, got)


def _fetch(url: str, name: str, stream: IO[bytes], progress: DownloadProgress | None) -> str:
    """Copy `url` into `stream` and return the hex SHA-256 of what came."""
    import http.client  # tens of milliseconds that only a download should cost
    import urllib.error
    import urllib.request

    digest, done = hashlib.sha256(), 0
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:  # noqa: S310 - the scheme was checked
            total = int(response.headers.get("Content-Length") or 0)
            for chunk in _chunks(response):
                stream.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                if progress:
                    progress(name, done, total)
    except urllib.error.HTTPError as error:
        raise ModelUnavailable(f"{url} answered {error.code} {error.reason}") from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise ModelUnavailable(f"{url} could not be fetched: {getattr(error, 'reason', error)}") from error
    return digest.hexdigest()


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while chunk := response.read(_CHUNK):
        yield chunk
