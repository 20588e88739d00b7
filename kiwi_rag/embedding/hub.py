"""The Hugging Face hub as a source of the model's files, at one pinned revision.

Files are fetched from ``{base}/{repository}/resolve/{revision}/{file}``, the address that the hub documents for
downloads, hashed while they arrive, and put in place only when their digest is the pinned one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

from kiwi_rag.embedding.digests import digest_mismatch
from kiwi_rag.errors import ModelUnavailable
from kiwi_rag.storage.atomic import atomic_file

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
