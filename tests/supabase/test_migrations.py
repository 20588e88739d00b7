"""supabase/migrations/: current, and never rewritten once released."""

from __future__ import annotations

import hashlib
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from kiwi_rag.registry import migrate
from tests.shared import ROOT
from tests.supabase.cli import Cluster, Supabase


def generator(folder: Path) -> SimpleNamespace:
    """The generator that stands in `folder`, a copy of supabase/."""
    return SimpleNamespace(**runpy.run_path(str(folder / "generate.py")))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of supabase/."""
    shutil.copytree(ROOT / "supabase", tmp_path / "supabase", ignore=shutil.ignore_patterns(".temp", "__pycache__"))
    return tmp_path / "supabase"


def migrations(folder: Path) -> list[Path]:
    return sorted((folder / "migrations").glob("*.sql"))


def write(folder: Path) -> None:
    for path, text in generator(folder).generated().items():
        path.write_text(text)


def test_what_is_committed_is_current() -> None:
    for path, text in generator(ROOT / "supabase").generated().items():
        assert path.read_text() == text, "run make supabase-migrations"


def test_what_is_released_is_as_it_was() -> None:
    for name, digest in generator(ROOT / "supabase").released().items():
        assert hashlib.sha256((ROOT / "supabase/migrations" / name).read_bytes()).hexdigest() == digest


def test_a_file_is_rewritten_until_it_is_released_and_never_after(copy: Path) -> None:
    (file,) = migrations(copy)
    file.write_text(file.read_text().replace("-- sql_digest: ", "-- sql_digest: of-an-earlier-state-"))
    write(copy)
    assert migrations(copy) == [file]
    assert migrate.digest() in file.read_text()
    generator(copy).release()
    assert generator(copy).generated() == {}
    released = file.read_text().replace("-- sql_digest: ", "-- sql_digest: of-the-release-")
    file.write_text(released)
    write(copy)
    _, further = migrations(copy)
    assert file.read_text() == released
    assert further.name > file.name
    assert f"-- revisions: {migrate.head()} to {migrate.head()}\n" in further.read_text()
    write(copy)
    assert len(migrations(copy)) == 2


MORE = """
from alembic import op

revision, down_revision, branch_labels, depends_on = "9999", "{head}", None, None


def upgrade() -> None:
    op.execute("create table kiwi.more ()")
"""


@pytest.fixture
def next_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A revision more than there are."""
    for folder in ("sql", "migrations"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "migrations/versions/9999_more.py").write_text(MORE.format(head=migrate.head()))
    monkeypatch.setattr(migrate, "locate", lambda folder: tmp_path / folder)
    migrate.head.cache_clear()
    yield
    migrate.head.cache_clear()


def test_a_further_file_holds_the_new_revisions_alone(copy: Path, next_release: None) -> None:
    before, _ = generator(copy).told(migrations(copy)[0])
    generator(copy).release()
    write(copy)
    text = migrations(copy)[1].read_text()
    assert f"-- revisions: {before} to 9999\n" in text
    assert "create table kiwi.more" in text
    assert "create table kiwi.signers" not in text
    assert "UPDATE kiwi.alembic_version" in text
    assert "create or replace function kiwi.publish_item" in text


def test_a_project_at_the_last_release_takes_the_next(cluster: Cluster, supabase: Supabase, pushed: str) -> None:
    url = cluster.clone("upgraded", pushed)
    before = cluster.schema("upgraded")
    generator(supabase.folder).release()
    (file,) = migrations(supabase.folder)
    file.write_text(file.read_text().replace("-- sql_digest: ", "-- sql_digest: of-the-release-"))
    with psycopg.connect(url) as editor:  # a function of the release that the next one has otherwise
        editor.execute("set role kiwi_owner")
        editor.execute("create or replace function kiwi.audit_head() returns text language sql stable as 'select null'")
    write(supabase.folder)
    assert migrations(supabase.folder)[1].name in supabase.push(url)
    assert cluster.schema("upgraded") == before
    assert supabase.advisors(url) == []
