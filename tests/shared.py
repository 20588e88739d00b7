"""Paths of the tests: the checkout, published test vectors, and the data in a folder beside the checkout."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("KIWI_SHARED", ROOT.parent / "shared"))
CORPUS = SHARED / "corpus/rye/.ai"
QUERIES = SHARED / "corpus/queries.jsonl"
NEEDS_SHARED = "needs ../shared (real items and judged queries; KIWI_SHARED names the folder)"
"""Why a test or a benchmark was skipped."""

needs_shared = pytest.mark.skipif(not (CORPUS.is_dir() and QUERIES.is_file()), reason=NEEDS_SHARED)
"""Skip a test that reads `CORPUS` or `QUERIES` where they are not there."""


class SignatureCase(NamedTuple):
    """One of Wycheproof's cases."""

    id: int
    key: bytes
    message: bytes
    signature: bytes
    valid: bool


def extract(archive: Path, folder: Path) -> None:
    """Unpack one of the archives below tests/data; Python 3.11.3 and older have no filters."""
    with tarfile.open(archive) as opened:
        opened.extractall(folder)


def wycheproof_ed25519() -> list[SignatureCase]:
    """Return all of Wycheproof's cases for Ed25519."""
    groups = json.loads((ROOT / "tests/data/vectors/wycheproof_ed25519_test.json").read_text())["testGroups"]
    rows = [(group["publicKey"]["pk"], test) for group in groups for test in group["tests"]]
    return [
        SignatureCase(
            test["tcId"], *map(bytes.fromhex, (key, test["msg"], test["sig"])), valid=test["result"] == "valid"
        )
        for key, test in rows
    ]
