"""What an admin does in the browser, from the first click to the result; `make test-browser` and `make soak` run it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.chromium import WatchedPage, new_context
from tests.browser.conftest import sign_in
from tests.examples import size
from tests.interfaces.conftest import Kiwi
from tests.interfaces.test_serve import at, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.skipif(size(4) < 4, reason="takes half a minute of processor time: make test-browser")

FILES = 1200
ITEM = "directive:acme/deploy/rollback"


def said(page: Page) -> str:
    """The note of the form that was just sent."""
    return page.locator("p.notice[role=status]").first.inner_text()


def press(page: Page, name: str | re.Pattern[str]) -> None:
    page.get_by_role("main").get_by_role("button", name=name).first.click()


def fill_folder(folder: Path, files: int) -> Path:
    """Make a folder of many short documents, which no cache has."""
    folder.mkdir(parents=True)
    for number in range(files):
        strokes = f"Pump {number} is primed by hand in {number + 3} strokes, before valve {number * 7}"
        text = f"# Pump {number}\n\n{strokes}. Its serial number is {secrets.token_hex(8)}.\n"
        (folder / f"pump-{number}.md").write_text(text)
    return folder


def watch(page: Page, shown: Callable[[str], bool]) -> None:
    """Wait until what the run shows changes to this, without a new page."""
    page.evaluate("window.marked = true")
    page.wait_for_function("() => document.querySelector('#indexing')")
    page.wait_for_timeout(0)
    for _ in range(600):
        if shown(page.locator("#indexing").inner_text()):
            assert page.evaluate("window.marked")
            return
        page.wait_for_timeout(100)
    raise AssertionError(page.locator("#indexing").inner_text())


def has_ended(text: str) -> bool:
    return "The run has ended" in text


def choose(page: Page, folder: Path, home: Path) -> None:
    """Choose a folder on the page Add."""
    page.goto("/add")
    page.get_by_role("link", name=str(home), exact=True).click()
    for part in folder.relative_to(home).parts:
        page.get_by_role("link", name=part, exact=True).click()
    press(page, "Choose this folder")
    assert "Step 2 of 2" in page.get_by_role("main").inner_text()


def test_a_folder_is_added_watched_live_stopped_resumed_and_searched(watched: WatchedPage, user: Kiwi) -> None:
    page = watched.page
    folder = fill_folder(user.home / "manual", FILES)
    choose(page, folder, user.home)
    assert f"{FILES}" in page.get_by_role("main").inner_text()
    page.get_by_label("Name").fill("pumps")
    press(page, "Index")
    page.wait_for_url(re.compile("/indexing"))
    watch(page, lambda text: bool(re.search(r"[1-9]\d* of \d+ (files|passages)", text)))
    press(page, "Stop")
    watch(page, lambda text: "was stopped" in text)
    card = page.get_by_role("article").filter(has_text=str(folder)).first
    card.get_by_role("button", name="Resume").click()
    watch(page, has_ended)
    assert "complete" in page.get_by_role("article").filter(has_text=str(folder)).first.inner_text()
    page.goto(f"/search?q=how+many+strokes+prime+pump+17&scope={folder}")
    assert "pump-17" in page.locator(".hit").first.inner_text()


def test_a_folder_is_added_as_a_library_searched_and_deleted(watched: WatchedPage, user: Kiwi) -> None:
    page, folder = watched.page, user.home / "valves"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs/seat.md").write_text("# Seat\n\nGrind the seat of the valve until it shines.\n")
    page.goto(f"/add?folder={folder}")
    press(page, "As a library")
    page.get_by_label("Version").fill("2.0")
    press(page, "Index")
    watch(page, has_ended)
    page.goto("/search?q=grind+the+seat")
    page.get_by_text("Only some libraries").click()
    page.get_by_role("checkbox", name="/local/valves@2.0").check()
    page.wait_for_url(re.compile("library="))
    page.locator(".hit").filter(has_text="/local/valves@2.0").first.wait_for()
    page.goto("/sources")
    press(page, "Remove /local/valves@2.0")
    assert "1 document with 1 passage" in page.locator("h1").inner_text()
    press(page, "Delete it")
    assert "was deleted" in said(page) and (folder / "docs/seat.md").is_file()


def test_a_workspace_is_rebuilt_and_its_index_deleted_after_a_question(watched: WatchedPage, user: Kiwi) -> None:
    page = watched.page
    folder = fill_folder(user.home / "small", 3)
    choose(page, folder, user.home)
    press(page, "Index")
    watch(page, has_ended)
    page.get_by_role("article").filter(has_text=str(folder)).first.get_by_role(
        "button", name=re.compile("Rebuild")
    ).click()
    assert "3 documents" in page.locator("h1").inner_text()
    press(page, "Rebuild")
    watch(page, has_ended)
    page.goto("/sources")
    card = page.locator("article").filter(has_text=str(folder))
    card.get_by_role("button", name=re.compile("Delete")).click()
    assert "are lost" in page.locator("h1").inner_text()
    assert (folder / ".ai").exists()
    press(page, "Delete")
    assert "was deleted" in said(page)
    assert (folder / "pump-1.md").exists()
    assert not page.locator("article").filter(has_text=str(folder)).count()


@pytest.fixture(scope="module")
def registry(user: Kiwi) -> Iterator[None]:
    """The items are published to an embedded registry, and a second signer is trusted."""
    user.run("publish", "--all")
    user.run("registry", "start")
    user.run("keys", "new", "second", "--principal", "bob@acme.example")
    yield
    user.run("registry", "stop", expect=None)


@pytest.mark.database
@pytest.mark.usefixtures("registry")
def test_a_signer_is_enrolled_and_revoked(watched: WatchedPage) -> None:
    page = watched.page
    page.goto("/registry")
    page.get_by_label("Trusted on this machine, but not enrolled").select_option("bob@acme.example")
    press(page, "Enrol")
    assert "may publish now" in said(page)
    card = page.locator("article[id]").filter(has_text="bob@acme.example")
    card.get_by_label(re.compile("reason", re.IGNORECASE)).fill("the laptop was lost")
    card.get_by_role("button", name=re.compile("^Revoke")).click()
    assert "bob@acme.example" in page.locator("h1").inner_text()
    press(page, "Revoke it")
    assert "was revoked" in said(page)
    assert "compromised" in page.locator("article[id]").filter(has_text="bob@acme.example").inner_text()


@pytest.mark.database
@pytest.mark.usefixtures("registry")
def test_an_item_is_yanked(watched: WatchedPage, user: Kiwi) -> None:
    page = watched.page
    page.goto(f"/item?ref={ITEM}@registry")
    page.get_by_label(re.compile("reason", re.IGNORECASE)).fill("step 3 is wrong")
    press(page, re.compile("^Yank version"))
    assert "acme/deploy/rollback" in page.locator("h1").inner_text()
    press(page, "Yank it")
    assert "was yanked" in said(page)
    assert "yanked" in page.locator("p.state").first.inner_text().lower()


@pytest.mark.database
@pytest.mark.usefixtures("registry")
def test_the_audit_chain_is_verified(watched: WatchedPage) -> None:
    page = watched.page
    page.goto("/registry/audit")
    press(page, "Verify the chain")
    assert "The chain holds" in page.get_by_role("main").inner_text()
    page.get_by_role("main").get_by_role("link", name=re.compile("project")).click()
    press(page, "Verify the chain")
    assert "The chain holds" in page.get_by_role("main").inner_text()
    assert "/registry/enrol" in page.get_by_role("main").inner_text()


def test_the_model_is_tested(watched: WatchedPage) -> None:
    page = watched.page
    page.goto("/stores")
    press(page, "Test the model")
    assert "ms" in said(page)


@pytest.fixture
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kiwi]:
    """A user with an empty home, and a folder of documents in it."""
    folder = tmp_path_factory.mktemp("newcomer")
    folder.chmod(0o755)
    (folder / "home").mkdir()
    fill_folder(folder / "home/manual", 5)
    (folder / "elsewhere").mkdir()
    user = at(Kiwi(folder / "home", folder / "elsewhere"), tmp_path_factory.mktemp("run"), KIWI_PORT="0")
    with serving(user):
        yield user


@pytest.mark.parametrize("javascript", [True, False], ids=["with JavaScript", "without"])
def test_from_an_empty_machine_to_the_first_search(browser: Browser, newcomer: Kiwi, javascript: bool) -> None:
    url, cookies = newcomer.json("status")["service"]["url"], sign_in(browser, newcomer)
    context = new_context(browser, cookies, base_url=url, java_script_enabled=javascript)
    watched = WatchedPage(context.new_page())
    page = watched.page
    page.goto("/")
    page.get_by_label("Your name in signatures").fill("ada@acme.example")
    page.get_by_label(re.compile("^Passphrase")).fill("correct horse battery")
    page.get_by_label("The same passphrase again").fill("correct horse battery")
    press(page, "Make the key")
    assert "Made the key" in said(page)
    page.get_by_role("link", name="Choose a folder").click()
    page.get_by_role("link", name=str(newcomer.home)).click()
    page.get_by_role("link", name="manual").click()
    press(page, "Choose this folder")
    press(page, "Index")
    for _ in range(600):
        if has_ended(page.get_by_role("main").inner_text()):
            break
        page.wait_for_timeout(100)
        page.goto("/indexing")
    page.goto("/")
    assert page.locator("[aria-current=step]").inner_text().startswith("The first search")
    page.get_by_label("Question").fill("how many strokes prime pump 3")
    press(page, "Search")
    assert "pump-3" in page.locator(".hit").first.inner_text()
    page.goto("/")
    assert not page.locator("#first-steps").count()
    assert not watched.problems
    context.close()
