"""One browser, and one `kiwi serve` over the example project; skipped with the reason where a part is missing."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import chromium
from tests.browser.chromium import WatchedPage
from tests.interfaces.conftest import Kiwi, acme
from tests.interfaces.test_serve import at, serving
from tests.shared import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["acme"]

DOCUMENTS = ("docs/search.md", "docs/web.md")
HOSTILE = "# <img src=x onerror=alert(1)>\n\nTo prime the pump: <script>alert(2)</script> [go](javascript:alert(3))\n"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, and skip them where a part is missing."""
    here, why = Path(__file__).parent, chromium.why_missing()
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.browser)
            if why:
                item.add_marker(pytest.mark.skip(reason=why))


# Not for the whole session: while Playwright runs, no other event loop runs in its thread.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium.launched() as browser:
        yield browser


def example(acme: Kiwi, folder: Path) -> Kiwi:
    """A copy of the user with the example items, who has some documents, too."""
    folder.chmod(0o755)
    shutil.copytree(acme.home.parent, folder, dirs_exist_ok=True)
    user = Kiwi(folder / acme.home.name, folder / acme.cwd.name)
    for name in DOCUMENTS:
        (user.cwd / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, user.cwd / name)
    (user.cwd / "docs/hostile.md").write_text(HOSTILE)
    return user


def said() -> Iterator[dict[str, Any]]:
    """Exchanges of two sessions: some short, one long, one hostile."""
    for number, (user, assistant) in enumerate([
        ("How do I prime the pump?", "Open the valve, then fill it with water."), ("And then?", "Start it. " * 400),
        (HOSTILE, f"I will not: {HOSTILE}"), ("x" * 300, "A word without a break."),
    ]):  # fmt: skip
        ids = {"id": f"said-{number}", "session_id": f"session-{number // 3}", "thread_id": "pumps" if number else None}
        messages = {"user_message": user, "assistant_message": assistant}
        yield {**ids, **messages, "timestamp": f"2026-11-0{number + 1}T10:00:00Z"}


@pytest.fixture(scope="package")
def user(acme: Kiwi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kiwi]:
    """A user with the example items, a few documents, and a service."""
    mine = at(example(acme, tmp_path_factory.mktemp("shop")), tmp_path_factory.mktemp("run"), KIWI_PORT="0")
    mine.run("workspace", "index", ".")
    library = mine.home / "pump/docs"
    library.mkdir(parents=True)
    (library / "priming.md").write_text("# Priming\n\nOpen the valve, then fill the pump with water.\n")
    mine.run("library", "add", str(library.parent), "--id", "/maker/pump", "--version", "1.0.0")
    (mine.home / "said.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in said()))
    mine.run("memory", "import", str(mine.home / "said.jsonl"))
    with serving(mine):
        yield mine


@pytest.fixture(scope="package")
def url(user: Kiwi) -> str:
    return user.json("status")["service"]["url"]


def sign_in(browser: Browser, user: Kiwi) -> Any:
    """Return the cookies of a browser that `kiwi ui` has opened."""
    replace(user, extra={**user.extra, "BROWSER": "true %s"}).run_forked("ui")
    context = chromium.new_context(browser)
    page = context.new_page()
    page.goto((Path(user.extra["XDG_RUNTIME_DIR"]) / "kiwi/sign-in.html").as_uri())
    page.wait_for_url(re.compile(r"^http://[^/]*/$"))
    assert "Sign in" not in page.title()
    cookies = context.cookies()
    context.close()
    return cookies


@pytest.fixture(scope="package")
def cookies(browser: Browser, user: Kiwi) -> Any:
    return sign_in(browser, user)


@pytest.fixture
def watched(browser: Browser, cookies: Any, url: str) -> Iterator[WatchedPage]:
    """A page of a signed-in browser, on which nothing may go wrong."""
    context = chromium.new_context(browser, cookies, base_url=url, viewport={"width": 1280, "height": 800})
    watched = WatchedPage(context.new_page())
    yield watched
    watched.check()
    context.close()
