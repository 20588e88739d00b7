"""Chromium of this machine, driven by Playwright: a page that notes every fault, and axe-core."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.shared import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response

AXE = ROOT / "node_modules/axe-core/axe.min.js"
REBOUND = "evil.example"
"""A name that this browser resolves to this machine, as if its owner had rebound it."""
_VIOLATION = (
    "addEventListener('securitypolicyviolation', e => console.error(`CSP ${e.effectiveDirective} ${e.blockedURI}`))"
)
_OVERFLOW = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const wide = [...document.body.querySelectorAll('*')].filter(one => one.getBoundingClientRect().right > width + 1);
  return ['wider than the window: ' + wide.slice(0, 5).map(one => one.outerHTML.slice(0, 120)).join(' | ')];
}"""
_RUN_AXE = """async () => {
  const rules = {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'], preload: false};
  const found = await axe.run(document, {...rules, resultTypes: ['violations']});
  return found.violations.flatMap(one => one.nodes.map(
    node => `${one.impact} ${one.id}: ${node.html.slice(0, 160)}; ${(node.failureSummary || '').slice(0, 200)}`));
}"""


def executable() -> str:
    """Return the path of Chromium, or an empty string; ``KIWI_CHROMIUM`` names another one."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("KIWI_CHROMIUM") or next(filter(None, map(shutil.which, names)), "")


def why_missing() -> str:
    """Return what is missing on this machine, or an empty string."""
    if find_spec("playwright") is None:
        return "needs Playwright: make test installs it"
    return "" if executable() else "needs Chromium: apt-get install chromium, or KIWI_CHROMIUM"


@contextmanager
def launched() -> Iterator[Browser]:
    """A browser without a window; Playwright's own download is not used."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1"]
        browser = playwright.chromium.launch(executable_path=executable(), args=options)
        yield browser
        browser.close()


@dataclass
class WatchedPage:
    """A page, and what went wrong on it: console messages, failed requests, violations of the policy, layout."""

    page: Page
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.add_init_script(_VIOLATION)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        self.page.on("requestfailed", self._on_failure)
        self.page.on("response", self._on_response)
        self.page.on("dialog", lambda dialog: (self.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.problems.append(f"console: {message.text}")

    def _on_failure(self, request: Request) -> None:
        # A live search gives up the request before; a page that is left gives up its stream of events.
        if "ERR_ABORTED" not in (request.failure or ""):
            self.problems.append(f"{request.url}: {request.failure}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self.problems.append(f"{response.url}: {response.status}")

    def check(self, *expected: str) -> None:
        """Assert that nothing went wrong but what is expected, and that the page fits its window."""
        found = [*self.problems, *self.page.evaluate(_OVERFLOW)]
        assert not [one for one in found if not any(part in one for part in expected)], found

    def check_accessibility(self) -> None:
        """Assert that axe-core finds nothing serious or critical."""
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = [one for one in self.page.evaluate(_RUN_AXE) if one.startswith(("serious", "critical"))]
        assert not found, "\n".join([f"{len(found)} findings", *found[:5]])


def new_context(browser: Browser, cookies: Any = (), **options: Any) -> BrowserContext:
    """Return a browser profile that is signed in by `cookies`."""
    context = browser.new_context(**options)
    context.add_cookies(list(cookies))
    context.set_default_timeout(1000 * float(os.environ.get("KIWI_BROWSER_SECONDS", "60")))
    return context


def keep(page: Page, folder: Path, name: str) -> Path:
    """Save a picture of what the window shows."""
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{name}.png")
    return folder / f"{name}.png"
