"""The first steps on Home, from an empty machine: a key, trust in it, a folder, its index, the first search."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.interfaces.conftest import Kiwi
from tests.interfaces.test_serve import at, serving

PASSPHRASE = "correct horse battery"
KEY = {"principal": "ada@acme.example", "passphrase": PASSPHRASE, "passphrase_again": PASSPHRASE}


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kiwi]:
    """A user with an empty home, whose service runs in an empty folder."""
    folder = tmp_path_factory.mktemp("first")
    folder.chmod(0o755)
    for name in ("home", "folder"):
        (folder / name).mkdir()
    user = at(Kiwi(folder / "home", folder / "folder"), tmp_path_factory.mktemp("run"), KIWI_PORT="0")
    with serving(user):
        yield user


@pytest.fixture(autouse=True)
def empty(user: Kiwi) -> Iterator[None]:
    """Every test begins without a key, a choice or a workspace."""
    yield
    for path in [*(user.home / ".ai/keys").glob("*"), *(user.home / ".ai/first-steps").glob("*")]:
        path.unlink()
    for name in ("keys", "trust.toml", "workspaces.json"):
        with suppress(FileNotFoundError, IsADirectoryError):
            (user.home / ".ai" / name).unlink()


def steps(page: httpx.Response) -> dict[str, str]:
    """Title of each step → what was done, or which one is current."""
    shown = re.findall(r'<li( aria-current="step")?>\s*<h3>(.*?)</h3>', page.text, re.S)
    done = (re.search(r"✓ (.*?)</small>", title, re.S) for _, title in shown)
    return {
        title.split(" <small")[0].strip(): found[1] if found else "now" if current else ""
        for (current, title), found in zip(shown, done, strict=True)
    }


def test_an_empty_machine_begins_with_a_key(browser: httpx.Client) -> None:
    page = browser.get("/")
    assert list(steps(page).values()) == ["now", "", "", "", ""]
    assert 'type="password"' in page.text and "cannot recover" in page.text


def test_a_key_is_made_and_trusted(browser: httpx.Client, user: Kiwi) -> None:
    page = browser.post("/first-steps/key", data=KEY)
    assert "Made the key default of ada@acme.example" in page.text
    assert list(steps(page).values()) == ["default", "ada@acme.example", "now", "", ""]
    assert user.json("keys", "list")[0]["principal"] == "ada@acme.example"
    assert (user.home / ".ai/keys/default.pem").stat().st_mode & 0o777 == 0o600
    again = browser.post("/first-steps/key", data=KEY)
    assert again.status_code == 409
    assert "exists already" in again.text


def test_the_passphrase_is_in_no_file(browser: httpx.Client, user: Kiwi) -> None:
    browser.post("/first-steps/key", data=KEY)
    browser.post("/first-steps/key", data=KEY | {"passphrase_again": f"{PASSPHRASE}!"})
    files = [path for path in user.home.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if PASSPHRASE.encode() in path.read_bytes()]
    records = [row["details"] for row in user.json("audit", "show", "--tier", "user") if row["event"] == "admin"]
    assert {"caller": "a browser", "outcome": "ok", "principal": "ada@acme.example"} in records


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"passphrase": "short", "passphrase_again": "short"}, "fewer than 8 characters"),
        ({"passphrase": "", "passphrase_again": ""}, "fewer than 8 characters"),
        ({"passphrase_again": "another one"}, "the two passphrases differ"),
        ({"principal": "ada\u200b@acme.example"}, "no valid principal"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_weak_input_makes_no_key(browser: httpx.Client, user: Kiwi, changed: dict[str, str], why: str) -> None:
    page = browser.post("/first-steps/key", data=KEY | changed)
    assert page.status_code == 400
    assert why in page.text
    assert not list((user.home / ".ai").glob("keys/*"))


def test_a_folder_that_cannot_be_written_is_named(browser: httpx.Client, user: Kiwi) -> None:
    with suppress(FileNotFoundError):
        (user.home / ".ai/keys").rmdir()
    (user.home / ".ai/keys").write_text("")
    page = browser.post("/first-steps/key", data=KEY)
    assert page.status_code == 500
    assert "cannot write" in page.text and "keys/default.pem" in page.text


def test_a_key_that_is_not_trusted_can_be(browser: httpx.Client, user: Kiwi) -> None:
    user.run("keys", "new")
    (user.home / ".ai/trust.toml").unlink()
    assert list(steps(browser.get("/")).values())[:2] == ["default", "now"]
    page = browser.post("/first-steps/trust", data={"principal": "ada@acme.example"})
    assert list(steps(page).values())[:3] == ["default", "ada@acme.example", "now"]


def test_without_a_key_the_folder_is_next(browser: httpx.Client) -> None:
    page = browser.post("/first-steps/without-key")
    assert "kiwi keys new" in page.text and "Make a key after all" in page.text and 'type="password"' in page.text
    assert list(steps(page).values()) == ["continued without a key", "continued without a key", "now", "", ""]


def test_the_list_is_gone_when_all_is_done(browser: httpx.Client, user: Kiwi, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "pump.md").write_text("# The pump\n\nIt is primed by hand.\n")
    browser.post("/first-steps/key", data=KEY)
    (user.home / ".ai/workspaces.json").write_text(f'["{docs}"]')
    assert list(steps(browser.get("/")).values())[2:] == [str(docs), "now", ""]
    user.run("workspace", "index", str(docs))
    assert list(steps(browser.get("/")).values())[3:] == [str(docs), "now"]
    assert browser.get("/search", params={"q": "how is the pump primed"}).status_code == 200
    assert not steps(browser.get("/"))
    browser.post("/sources/remove", data={"root": str(docs)})
    page = browser.get("/")
    assert not steps(page) and "No folder is searched yet." in page.text


def test_the_list_can_be_hidden(browser: httpx.Client) -> None:
    assert not steps(browser.post("/first-steps/hide"))
    assert not steps(browser.get("/"))
