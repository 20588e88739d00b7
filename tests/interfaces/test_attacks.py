"""A hostile clone, a hostile index and old signed items, against the command as a user runs it."""

from __future__ import annotations

import sqlite3

import pytest

from kiwi_rag.stores.local.ownership import CATALOG_NAME
from tests.interfaces.conftest import Kiwi, note

FILE_STATES = "file-states-*.sqlite3"


def add(kiwi: Kiwi, version: str = "1.0.0", *options: str) -> None:
    path = kiwi.write("knowledge/acme/note.md", note(version))
    kiwi.run("add", str(path), *options)


def alter(kiwi: Kiwi, statement: str, *values: object, file: str = CATALOG_NAME) -> None:
    """Change the project's catalog, or another database beside it, behind Kiwi's back."""
    (path,) = kiwi.vectors.glob(file)
    connection = sqlite3.connect(path)
    with connection:
        assert connection.execute(statement, values).rowcount > 0
    connection.close()


def test_a_clone_cannot_make_kiwi_overwrite_a_file(ready: Kiwi):
    path = ready.write("knowledge/acme/note.md", note())
    ready.run("sign", str(path))
    ready.run("status")
    precious = ready.home / "precious"
    precious.write_text("precious")
    ready.vectors.mkdir(parents=True, exist_ok=True)
    (ready.vectors / "writer.json").symlink_to(precious)
    ready.run("index")
    assert precious.read_text() == "precious"


def test_a_clone_cannot_lead_kiwi_into_the_users_own_index(ready: Kiwi):
    path = ready.write("knowledge/acme/note.md", note())
    ready.run("sign", str(path))
    ready.run("list", "--source", "user")
    (ready.cwd / ".ai/vectors").symlink_to(ready.home / ".ai/vectors")
    assert "link" in ready.run("index", expect=1).stderr
    assert ready.json("list", "--source", "user") == []


def test_an_endless_trust_file_stops_nothing(ready: Kiwi):
    add(ready)
    (ready.cwd / ".ai/trust.toml").symlink_to("/dev/zero")
    assert ready.json("search", "staging scale-down")["hits"]


def test_delete_removes_the_items_own_file_only(ready: Kiwi):
    add(ready)
    precious = ready.home / "precious.md"
    precious.write_text("precious")
    alter(ready, "UPDATE stamps SET path = ?", str(precious), file=FILE_STATES)
    ready.run("delete", "acme/note", "--yes")
    assert precious.read_text() == "precious"
    assert not (ready.cwd / ".ai/knowledge/acme/note.md").exists()


@pytest.mark.parametrize("command", ["list", "verify"])
def test_an_altered_index_does_not_reach_the_terminal(ready: Kiwi, command: str):
    add(ready)
    alter(ready, "UPDATE items SET version = ?", "1.0.0\x9b2J")
    alter(ready, "UPDATE item_files SET path = ?", "/x/\x1b]0;t\x07")
    alter(ready, "UPDATE stamps SET path = ?", "/x/\x1b]0;t\x07", file=FILE_STATES)
    result = ready.run(command, expect=None)
    assert not set(result.stdout + result.stderr) & {"\x1b", "\x9b", "\x07"}


def test_a_row_that_cannot_be_read_is_an_error_in_words(ready: Kiwi):
    add(ready)
    alter(ready, "UPDATE items SET signatures = 'x'")
    for command in (["list"], ["verify"], ["show", "acme/note@project"]):
        assert "Traceback" not in ready.run(*command, expect=None).stderr


def test_getting_an_older_item_takes_nothing_away(ready: Kiwi):
    user = ready.home / ".ai/knowledge/acme/note.md"
    user.parent.mkdir(parents=True)
    user.write_text(note("1.0.0"))
    ready.run("sign", "--tier", "user", str(user))
    ready.run("index", "--tier", "user")
    add(ready, "2.0.0")
    assert "rollback" in ready.run("get", "acme/note@user", "--force", expect=4).stderr
    assert '"2.0.0"' in (ready.cwd / ".ai/knowledge/acme/note.md").read_text()
    ready.run("verify", "acme/note", "--source", "project")
    (ready.cwd / ".ai/knowledge/acme/note.md").unlink()
    ready.run("get", "acme/note@user", expect=4)
    assert not (ready.cwd / ".ai/knowledge/acme/note.md").exists()
