"""Every page, light and dark, from 360 to 1,920 pixels: no fault, no scrolling sideways, nothing axe objects to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.chromium import AXE, WatchedPage, new_context
from tests.examples import size
from tests.interfaces.conftest import Kiwi

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGES = {
    "home": "/",
    "search-empty": "/search",
    "search": "/search?q=undo+a+bad+release&explain=on",
    "search-documents": "/search?q=how+do+I+prime+the+pump&scope=workspaces",
    "item": "/item?ref=directive:acme/deploy/rollback",
    "add": "/add",
    "add-found": "/add?chosen={project}",
    "add-library": "/add?library={home}/pump",
    "add-package": "/add?library=pypi:fastapi",
    "search-library": "/search?q=how+do+I+prime+the+pump&library=/maker/pump@1.0.0",
    "indexing": "/indexing",
    "sources": "/sources",
    "memory": "/memory",
    "memory-empty": "/memory?of=user",
    "memory-session": "/memory/session?session_id=session-0",
    "memory-exchange": "/memory/session?id=said-1",
    "memory-search": "/memory/search?q=how+do+I+prime+the+pump",
    "registry": "/registry",
    "audit": "/registry/audit?log=project&verify=on",
    "stores": "/stores",
    "settings": "/settings",
}
_BEYOND = "all => all.filter(one => one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML)"
ERRORS = {"/item?ref=none": "404", "/no-such-page": "404"}
_VIEWS = [(scheme, width) for scheme in ("light", "dark") for width in (360, 768, 1280, 1920)]
VIEWS = _VIEWS if size(4) == 4 else [("light", 360)]
"""All of them in `make soak` and `make test-browser`."""


@pytest.fixture(scope="module", params=VIEWS, ids=lambda view: f"{view[0]}-{view[1]}")
def view(request: pytest.FixtureRequest, browser: Browser, cookies: Any, url: str) -> Iterator[WatchedPage]:
    """A page in a window of this width and these colours."""
    scheme, width = request.param
    context = new_context(browser, cookies, base_url=url, color_scheme=scheme, viewport={"width": width, "height": 800})
    yield WatchedPage(context.new_page())
    context.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_fault(view: WatchedPage, name: str, user: Kiwi) -> None:
    view.problems.clear()
    view.page.goto(PAGES[name].format(project=user.cwd, home=user.home), wait_until="load")
    assert view.page.locator("h1").count() == 1
    assert not view.page.locator("main form button").evaluate_all(_BEYOND)  # a table could be scrolled to them
    view.check()
    if AXE.exists():
        view.check_accessibility()


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: npm install was not possible here")
def test_axe_would_find_what_is_wrong(view: WatchedPage) -> None:
    view.page.goto("/settings")
    view.page.evaluate("document.getElementById('main').append(document.createElement('button'))")
    with pytest.raises(AssertionError, match="button-name"):
        view.check_accessibility()


@pytest.mark.parametrize("address", ERRORS)
def test_an_error_is_a_page_too(view: WatchedPage, address: str) -> None:
    view.problems.clear()
    view.page.goto(address)
    view.check(ERRORS[address])
    assert view.page.locator("h1").inner_text()


def test_every_page_of_the_navigation_is_tested(watched: WatchedPage) -> None:
    watched.page.goto("/")
    links = watched.page.locator("header nav a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    assert set(links) <= {address.partition("?")[0] for address in PAGES.values()}
