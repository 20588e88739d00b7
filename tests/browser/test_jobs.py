"""What a person does on each page, from the first click to the result."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.browser.chromium import WatchedPage, new_context

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

QUESTION = "undo a bad release"


def hits(page: Page) -> list[str]:
    return page.locator(".hit h3").all_inner_texts()


def scores(page: Page) -> list[str]:
    return page.locator(".hit summary").all_inner_texts()


def focused(page: Page) -> str:
    return page.evaluate("document.activeElement.id || document.activeElement.className")


def test_search_by_keyboard_alone(watched: WatchedPage) -> None:
    page = watched.page
    page.goto("/search")
    page.keyboard.press("/")
    assert focused(page) == "q"
    page.keyboard.type(QUESTION)
    page.wait_for_url(re.compile("q=" + QUESTION.replace(" ", r"(\+|%20)") + "(&|$)"))
    page.wait_for_function("() => document.querySelector('.hit') && !document.querySelector('.htmx-request')")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    assert focused(page) == "hit"
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("e")
    assert page.locator(".hit details").first.get_attribute("open") is not None
    title = hits(page)[0]
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/item"))
    assert title in page.content()
    page.keyboard.press("/")
    page.keyboard.type("roll back")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/search\?q=roll"))


def test_the_first_tab_stop_leads_to_the_content(watched: WatchedPage) -> None:
    page = watched.page
    page.goto("/settings")
    page.keyboard.press("Tab")
    assert focused(page) == "skip"
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("#main$"))


def test_the_slider_ranks_again_without_a_new_page(watched: WatchedPage) -> None:
    page = watched.page
    page.goto(f"/search?q={QUESTION.replace(' ', '+')}&scope=local&explain=on")
    before, page_id = scores(page), page.evaluate("window.marked = Math.random()")
    chart = page.locator(".hit .bar").first.get_attribute("aria-label")
    slider = page.locator("input[name=alpha]")
    slider.focus()
    with page.expect_response(re.compile("alpha=0(&|$)")):
        slider.press("Home")
    page.wait_for_function("before => document.querySelector('.hit summary').innerText !== before", arg=before[0])
    assert scores(page) != before
    assert page.locator(".hit .bar").first.get_attribute("aria-label") != chart
    assert page.evaluate("window.marked") == page_id


def test_hostile_text_is_shown_and_does_nothing(watched: WatchedPage) -> None:
    page = watched.page
    page.goto("/search?q=how+do+I+prime+the+pump&scope=workspace&explain=on")
    assert "<script>alert(2)</script>" in page.locator("#hits").inner_text()
    assert not page.locator("#hits img, #hits script, #hits a[href^=javascript]").count()


def test_a_copy_button_is_reached_and_pressed_by_keyboard(watched: WatchedPage, url: str) -> None:
    page = watched.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    page.goto(f"/search?q={QUESTION.replace(' ', '+')}")
    button = page.get_by_role("button", name=re.compile("^Copy ")).first
    place = page.locator(".hit code.copy").first.inner_text()
    page.evaluate("""() => {
      window.heard = [];
      const said = document.querySelector("body > [role=status]");
      new MutationObserver(() => window.heard.push(said.textContent)).observe(said, {childList: true});
    }""")
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("place => navigator.clipboard.readText().then(text => text === place)", arg=place)
    page.wait_for_function("() => window.heard.includes('copied')")


def test_times_are_shown_in_the_viewers_zone(browser: Browser, cookies: Any, url: str) -> None:
    def shown(zone: str) -> str:
        context = new_context(browser, cookies, base_url=url, timezone_id=zone, locale="en-GB")
        page = context.new_page()
        page.goto("/settings")
        time = "const time = document.createElement('time'); time.dateTime = '2026-01-02T03:04:05Z'; "
        page.evaluate(f"{time}document.getElementById('main').append(time)")
        page.wait_for_function("() => document.querySelector('main time').title !== ''")
        text = page.locator("main time").inner_text()
        context.close()
        return text

    assert (shown("UTC"), shown("Asia/Tokyo")) == ("2 Jan 2026, 03:04", "2 Jan 2026, 12:04")


def test_the_theme_is_switched_and_kept(watched: WatchedPage) -> None:
    page = watched.page
    page.goto("/")
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.get_by_role("button", name="Dark or light").click()
    after = page.evaluate(ground)
    page.goto("/settings")
    assert page.evaluate(ground) == after != before


def test_without_javascript_one_searches_reads_and_sees_the_settings(browser: Browser, cookies: Any, url: str) -> None:
    context = new_context(browser, cookies, base_url=url, java_script_enabled=False)
    page = context.new_page()
    page.goto("/")
    page.get_by_label("Question").fill(QUESTION)
    page.get_by_role("main").get_by_role("button", name="Search").click()
    found = hits(page)
    assert found
    page.locator(".hit h3 a").first.click()
    assert "verified just now" in page.get_by_role("main").inner_text()
    page.get_by_role("link", name="Settings").click()
    assert "embedding_model" in page.get_by_role("main").inner_text()
    context.close()


def test_the_memory_is_searched_read_and_forgotten_by_keyboard(watched: WatchedPage) -> None:
    page = watched.page
    page.goto("/memory")
    assert page.evaluate("[...document.querySelectorAll('.card')].every(c => c.scrollWidth <= c.clientWidth)")
    page.keyboard.press("/")
    page.keyboard.type("when is the pump started")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/memory/search\?"))
    page.keyboard.press("j")
    page.keyboard.press("e")
    assert page.locator(".hit details").first.get_attribute("open") is not None
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/memory/session.*id=said-"))
    page.goto("/memory/session?session_id=session-1")
    assert page.locator("pre").first.inner_text() == "x" * 300
    page.get_by_role("button", name="Forget said-3").press("Enter")
    page.wait_for_selector("h1:has-text('Forget 1 exchange')")
    page.get_by_role("link", name="Cancel").press("Enter")
    page.wait_for_url(re.compile("session_id=session-1"))


def test_hits_of_the_memory_change_while_a_question_is_typed(watched: WatchedPage) -> None:
    page = watched.page
    page.goto("/memory/search?q=valve")
    page_id = page.evaluate("window.marked = Math.random()")
    page.fill("#q", "")
    with page.expect_response(re.compile("q=pump")):
        page.locator("#q").press_sequentially("pump")
    page.wait_for_function("() => document.getElementById('found').innerText.includes('found')")
    assert page.evaluate("window.marked") == page_id and "q=pump" in page.url


def test_hostile_exchanges_do_nothing(watched: WatchedPage) -> None:
    watched.page.goto("/memory/session?session_id=session-0")
    watched.page.locator("summary").first.click()
    assert "<script>alert(2)</script>" in watched.page.locator("#main").inner_text()
