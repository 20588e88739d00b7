"""The embedding cache: what it saves, and that trouble with it is never the caller's trouble."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kiwi_rag.embedding import Fingerprint
from kiwi_rag.embedding.cache import CachedEmbeddingProvider, VectorFile
from kiwi_rag.errors import EmbeddingError
from tests.examples import KILLS
from tests.shared import ROOT
from tests.unit.test_embedding_base import Hashing

Vector = NDArray[np.float32]


class OtherModel(Hashing):
    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint("other", "1" * 64, 32, "none", 0)


class FailsLate(Hashing):
    """Fails at a text that says so."""

    def encode(self, texts: Sequence[str]) -> Sequence[Vector]:
        if "fail" in texts:
            raise EmbeddingError("told to fail")
        return super().encode(texts)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "embeddings.sqlite"


def same(one: Sequence[Vector], other: Sequence[Vector]) -> bool:
    return [v.tobytes() for v in one] == [v.tobytes() for v in other]


@pytest.mark.parametrize("was_there", [False, True])
async def test_the_file_is_its_owners_alone(path: Path, was_there: bool) -> None:
    """Whoever reads it learns whether a text that he guesses was encoded."""
    if was_there:
        path.parent.mkdir()
        path.touch()
        path.chmod(0o644)
    before = os.umask(0o000)
    try:
        provider = CachedEmbeddingProvider(Hashing(), path)
        await provider.documents(["text"])
        rights = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.glob("embeddings.sqlite*")}
    finally:
        os.umask(before)
    assert set(rights) == {path.name, f"{path.name}-wal", f"{path.name}-shm"}
    assert set(rights.values()) == {0o600}


async def test_what_was_encoded_once_is_not_encoded_again_by_a_later_process(path: Path) -> None:
    first, later = CachedEmbeddingProvider(Hashing(), path), CachedEmbeddingProvider(Hashing(), path)
    texts = [f"text {n}" for n in range(100)]
    vectors = await first.documents(texts)
    assert same(await later.documents([*texts, "new"]), [*vectors, Hashing().encode(["new"])[0]])
    assert (first.hits, first.encoded) == (0, 100)
    assert (later.hits, later.encoded) == (100, 1)


async def test_duplicates_are_encoded_once(path: Path) -> None:
    cached = CachedEmbeddingProvider(Hashing(), path)
    vectors = await cached.documents(["a", "b", "a"])
    assert same([vectors[0]], [vectors[2]])
    assert (cached.encoded, cached.hits) == (2, 0)


async def test_encode_documents_and_query_share_the_cache(path: Path) -> None:
    cached = CachedEmbeddingProvider(Hashing(), path)
    direct = cached.encode(["a", "a"])
    assert same([await cached.query("a"), (await cached.documents(["a"]))[0]], direct)
    assert cached.encoded == 1


async def test_models_do_not_share_vectors(path: Path) -> None:
    await CachedEmbeddingProvider(Hashing(), path).documents(["a"])
    other = CachedEmbeddingProvider(OtherModel(), path)
    await other.documents(["a"])
    assert (other.hits, other.encoded) == (0, 1)


async def test_of_texts_that_are_cached_in_part_only_the_others_are_encoded_each_once(path: Path) -> None:
    inner = Hashing()
    cached = CachedEmbeddingProvider(inner, path)
    await cached.documents(["a", "b"])
    await cached.documents(["a", "b", "b", "c", "d", "d"])
    assert [sorted(call) for call in inner.calls] == [["a", "b"], ["c", "d"]]


async def test_what_was_encoded_before_a_failure_is_kept(path: Path) -> None:
    texts = ["fail", *(f"longer text {n}" for n in range(40))]
    with pytest.raises(EmbeddingError):
        await CachedEmbeddingProvider(FailsLate(), path).documents(texts)
    again = CachedEmbeddingProvider(Hashing(), path)
    await again.documents(texts)
    assert again.hits == 32


async def test_a_file_that_is_no_database_is_moved_aside(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is not SQLite at all" * 100)
    cached = CachedEmbeddingProvider(Hashing(), path)
    await cached.documents(["a"])
    await cached.documents(["a"])
    assert (cached.encoded, cached.hits) == (1, 1)
    assert [p.read_bytes()[:7] for p in path.parent.glob("*.damaged-*")] == [b"this is"]


async def test_a_file_damaged_inside_is_replaced_and_no_wrong_vector_comes_out(path: Path) -> None:
    texts = [f"text {n}" for n in range(300)]
    cached = CachedEmbeddingProvider(Hashing(), path)
    right = await cached.documents(texts)
    cached.close()
    data = bytearray(path.read_bytes())
    for place in range(4096, len(data), 512):
        data[place : place + 64] = b"\xff" * 64
    path.write_bytes(data)
    again = CachedEmbeddingProvider(Hashing(), path)
    assert same(await again.documents(texts), right)
    assert same(await again.documents(texts), right)
    assert again.encoded == 300


async def test_a_truncated_file_is_replaced(path: Path) -> None:
    cached = CachedEmbeddingProvider(Hashing(), path)
    await cached.documents([f"text {n}" for n in range(300)])
    cached.close()
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size // 2 + 100)
    again = CachedEmbeddingProvider(Hashing(), path)
    assert len(await again.documents([f"text {n}" for n in range(300)])) == 300
    await again.documents(["text 1"])
    assert again.hits >= 1


async def test_a_vector_with_a_wrong_norm_or_length_is_encoded_again(path: Path) -> None:
    cached = CachedEmbeddingProvider(Hashing(), path)
    right = await cached.documents(["a", "b"])
    with sqlite3.connect(path) as connection:
        ids = [row[0] for row in connection.execute("SELECT id FROM vectors ORDER BY id")]
        blobs = [np.full(32, 9, "<f4").tobytes(), b"short"]
        connection.executemany("UPDATE vectors SET vector = ? WHERE id = ?", zip(blobs, ids, strict=True))
    connection.close()
    assert same(await cached.documents(["a", "b"]), right)
    assert cached.encoded == 4


async def test_a_table_of_another_make_is_moved_aside(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE vectors (something TEXT)")
    connection.close()
    cached = CachedEmbeddingProvider(Hashing(), path)
    await cached.documents(["a"])
    assert (await cached.documents(["a"]), cached.hits)[1] == 1


async def test_a_place_that_cannot_be_written_means_no_caching(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    cached = CachedEmbeddingProvider(Hashing(), tmp_path / "file" / "cache.sqlite")
    for _ in range(3):
        assert len(await cached.documents(["a", "b"])) == 2
    assert cached.encoded == 6
    assert len([r for r in caplog.records if "cannot be used" in r.message]) == 1


async def test_a_full_disk_means_no_caching_and_what_is_there_is_still_read(path: Path) -> None:
    cached = CachedEmbeddingProvider(Hashing(), path)
    await cached.documents(["a"])
    connection = cached._file._database._opened()
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")  # SQLite then says SQLITE_FULL, as a full disk does
    assert len(await cached.documents([f"text {n}" for n in range(300)])) == 300
    await cached.documents(["a"])
    assert cached.hits == 1


async def test_the_oldest_go_when_it_grows_too_large(path: Path) -> None:
    cached = CachedEmbeddingProvider(Hashing(), path, max_bytes=200_000)
    for start in range(0, 3000, 200):
        await cached.documents([f"text {n}" for n in range(start, start + 200)])
    cached.close()
    assert path.stat().st_size < 300_000
    newest = CachedEmbeddingProvider(Hashing(), path)
    await newest.documents(["text 0", "text 2999"])
    assert (newest.hits, newest.encoded) == (1, 1)


async def test_threads_share_one_cache(path: Path) -> None:
    cached = CachedEmbeddingProvider(Hashing(), path)
    texts = [f"text {n}" for n in range(64)]
    answers = await asyncio.gather(*(cached.documents(texts) for _ in range(8)))
    assert all(same(answer, answers[0]) for answer in answers)


PROGRAM = """
import asyncio, sys
from pathlib import Path
from kiwi_rag.embedding.cache import CachedEmbeddingProvider
from tests.unit.test_embedding_base import Hashing
cached = CachedEmbeddingProvider(Hashing(), Path(sys.argv[1]))
for start in range(0, int(sys.argv[3]), 32):
    asyncio.run(cached.documents([f"{sys.argv[2]} {n}" for n in range(start, start + 32)]))
    print(start + 32, flush=True)
"""


def writer(path: Path, name: str, texts: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(path), name, str(texts)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_several_processes_write_at_once_and_nothing_is_lost(path: Path) -> None:
    running = [writer(path, name, 640) for name in ("left", "right")]
    for process in running:
        process.communicate(timeout=120)
    assert [process.returncode for process in running] == [0, 0]
    cached = CachedEmbeddingProvider(Hashing(), path)
    cached.encode([f"{name} {n}" for name in ("left", "right") for n in range(640)])
    assert (cached.hits, cached.encoded) == (1280, 0)


def test_after_kill_9_everything_that_was_reported_is_there(path: Path) -> None:
    for round_ in range(KILLS):
        process = writer(path, f"round {round_}", 1_000_000)
        assert process.stdout is not None
        reported = int(process.stdout.readline())
        time.sleep(0.05 * (round_ % 3))
        process.send_signal(signal.SIGKILL)
        rest = process.communicate(timeout=30)[0].split()
        reported = int(rest[-1]) if rest else reported
        cached = CachedEmbeddingProvider(Hashing(), path)
        cached.encode([f"round {round_} {n}" for n in range(reported)])
        assert (cached.hits, cached.encoded) == (reported, 0)
    assert not list(path.parent.glob("*.damaged-*"))


def test_an_empty_question_is_answered(path: Path) -> None:
    assert VectorFile(path).get("f", [], 3) == {}
