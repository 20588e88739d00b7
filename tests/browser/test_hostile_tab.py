"""A hostile page in another tab of the same browser, on another port of this machine: it can do nothing."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.chromium import REBOUND, new_context
from tests.interfaces.conftest import Kiwi
from tests.loopback import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FORM = "application/x-www-form-urlencoded"
PAGE = b"""<!doctype html><title>Hostile</title>
<iframe name="target"></iframe>
<form method="post" target="target"><input name="confirmed" value="yes"></form>"""
POSTED = "/api/v1/workspace/reindex"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def hostile() -> Iterator[str]:
    """The address of the other site."""
    with serving(_Handler) as address:
        yield f"{address}/"


@pytest.fixture(scope="module")
def tab(browser: Browser, cookies: Any, url: str, hostile: str) -> Iterator[Page]:
    """The hostile page, in a browser that is signed in to Kiwi and has it open."""
    context = new_context(browser, cookies)
    context.new_page().goto(url)
    page = context.new_page()
    page.goto(hostile)
    yield page
    context.close()


def changes(user: Kiwi) -> list[Any]:
    """What admins did, by the audit log."""
    return [row for row in user.json("audit", "show") if row["event"] == "admin"]


@pytest.mark.parametrize("path", [POSTED, "/first-steps/hide"])
def test_a_form_changes_nothing(tab: Page, url: str, user: Kiwi, path: str) -> None:
    before = changes(user)
    with tab.expect_response(f"{url}{path}") as answer:
        tab.evaluate("address => { document.forms[0].action = address; document.forms[0].submit(); }", f"{url}{path}")
    assert answer.value.status == 403
    assert changes(user) == before


@pytest.mark.parametrize("options", [
    {"method": "POST", "mode": "no-cors", "credentials": "include", "body": "confirmed=yes"},
    {"method": "POST", "mode": "cors", "credentials": "include", "headers": {"Content-Type": FORM}},
    {"method": "POST", "mode": "cors", "credentials": "include", "headers": {"Content-Type": "application/json"}},
    {"method": "DELETE", "mode": "cors", "credentials": "include"},
    {"mode": "cors", "credentials": "include"},
    {"mode": "no-cors", "credentials": "include"},
], ids=str)  # fmt: skip
def test_a_fetch_reads_and_changes_nothing(tab: Page, url: str, user: Kiwi, options: dict[str, Any]) -> None:
    before = changes(user)
    script = """async ([address, options]) => {
      const answer = await fetch(address, options).catch(error => error);
      return answer instanceof Error ? 'refused' : `${answer.type} ${(await answer.text()).length}`;
    }"""
    for path in ("/api/v1/status", POSTED, "/", "/mcp"):
        assert tab.evaluate(script, [f"{url}{path}", options]) in ("refused", "opaque 0")
    assert changes(user) == before


def test_an_image_a_script_and_a_style_are_not_loaded(tab: Page, url: str) -> None:
    script = """async ([tag, attribute, address]) => {
      const element = document.createElement(tag);
      const loaded = new Promise(ended => {
        element.onload = () => ended('loaded');
        element.onerror = () => ended('refused');
      });
      element.rel = 'stylesheet';
      element[attribute] = address;
      document.body.append(element);
      return await loaded;
    }"""
    for tag, attribute, path in (
        ("img", "src", "/static/icon.svg"), ("script", "src", "/static/kiwi.js"), ("link", "href", "/static/kiwi.css"),
        ("script", "src", "/api/v1/status"), ("img", "src", "/search?q=x"),
    ):  # fmt: skip
        assert tab.evaluate(script, [tag, attribute, f"{url}{path}"]) == "refused", path


def test_a_frame_shows_nothing(tab: Page, url: str) -> None:
    with tab.expect_response(f"{url}/") as answer:
        tab.evaluate("address => { document.querySelector('iframe').src = address; }", f"{url}/")
    assert answer.value.status == 403
    assert tab.evaluate("document.querySelector('iframe').contentDocument") is None
    assert "What do you want to know" not in "".join(frame.content() for frame in tab.frames)


def test_a_window_that_it_opens_is_out_of_its_reach(tab: Page, url: str) -> None:
    with tab.context.expect_page() as opened:
        tab.evaluate("address => { window.other = window.open(address); }", f"{url}/settings")
    other = opened.value
    other.wait_for_load_state()
    assert "Settings" in other.title()
    assert other.evaluate("window.opener") is None
    assert tab.evaluate("window.other.closed")  # COOP has put it into a group of its own
    tab.evaluate("address => { window.other.location = address; }", "about:blank")
    assert other.url == f"{url}/settings"


def test_a_name_that_was_rebound_to_this_machine_reaches_nothing(tab: Page, url: str) -> None:
    page = tab.context.new_page()
    for path in ("/", "/health", "/api/v1/status", "/static/kiwi.js"):
        answer = page.goto(f"{url.replace('127.0.0.1', REBOUND)}{path}")
        assert answer is not None and answer.status == 421, path
