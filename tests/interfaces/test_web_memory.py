"""The pages of the conversation memory, over real HTTP: what they show and forget, and what reaches them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from kiwi_rag.http import web
from kiwi_rag.http.apps import Apps
from kiwi_rag.http.web import memory as pages
from kiwi_rag.http.web.workspaces import Workspaces
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.model import Exchange
from kiwi_rag.services import Services
from kiwi_rag.sources.memory.exchanges import ExchangeTable, Selection
from tests.interfaces.conftest import Kiwi
from tests.interfaces.test_serve import at, serving
from tests.interfaces.test_web_attacks import SCRIPT, Executable
from tests.memories import exchange, files_with

SESSION = "a&b=c#d/e <i>"
LONG = "The tide tables say: " + "high water, " * 3_000 + "and then the end."
HOSTILE = f"{SCRIPT} [go](https://x.example) **bold** <img src=x onerror=alert(2)>"
SPOKEN = [
    exchange(1, "When was the quay built?", "In 1907, of granite."),
    exchange(2, "Who built the quay?", "The harbour board.", thread_id="masonry"),
    exchange(3, "Why did the herons leave?", "Because of the cranes.", "s2", thread_id="masonry"),
    exchange(4, HOSTILE, f"\n  as it was said: {HOSTILE}", "hostile", metadata={"user_name": "<b onclick=alert(4)>"}),
    exchange(5, "What do the tide tables say?", LONG, SESSION, id="long"),
]
"""Each test that forgets has sessions of its own."""


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kiwi]:
    """A user in a project with a memory, who has an own one and another project with one, too; and a service."""
    base, run = tmp_path_factory.mktemp("memory"), tmp_path_factory.mktemp("run")
    base.chmod(0o755)
    (base / "home").mkdir()
    for name in ("Project", "other"):
        (base / name / ".ai").mkdir(parents=True)
    user = at(Kiwi(base / "home", base / "Project"), run, KIWI_PORT="0")
    said = user.home / "said.jsonl"
    for cwd, words, spoken in (
        ("Project", (), SPOKEN),
        ("Project", ("--user",), [exchange(1, "What is my shoe size?", "It is 43.", "own", id="u1")]),
        ("other", (), [exchange(1, "Where is the treasure?", "Below the pier.", "pirates", id="o1")]),
    ):
        said.write_text("".join(f"{json.dumps(one.as_dict())}\n" for one in spoken))
        replace(user, cwd=base / cwd).run("memory", "import", *words, str(said))
    said.unlink()
    with serving(user):
        yield user


def add(admin: httpx.Client, *spoken: Exchange) -> None:
    for one in spoken:
        assert admin.post("/api/v1/memory/exchanges", json=one.as_dict()).status_code == 200


def ids(admin: httpx.Client, **selection: str) -> list[str]:
    rows = admin.get("/api/v1/memory/exchanges", params=selection).json()["exchanges"]
    return [row["id"] for row in rows]


def records(user: Kiwi) -> list[dict[str, Any]]:
    """The audit records of this page's forms."""
    return [row for row in user.json("audit", "show") if row["ref"] == "/memory/forget"]


def test_both_memories_are_shown_with_the_sessions_of_one(browser: httpx.Client, user: Kiwi) -> None:
    page = browser.get("/memory")
    assert page.status_code == 200 and '<a href="/memory" aria-current="page">Memory</a>' in page.text
    assert f"<h3>The memory of {user.cwd}</h3>" in page.text and "<p>5 exchanges in 4 sessions, " in page.text
    assert 'href="/memory?of=user"' in page.text and "shoe" not in page.text and "pirates" not in page.text
    shown = [page.text.index(f'session_id={one}"') for one in ("a%26b%3Dc%23d%2Fe+%3Ci%3E", "hostile", "s2", "s1")]
    assert shown == sorted(shown)
    own = browser.get("/memory?of=user").text
    assert 'session_id=own"' in own and 'session_id=s1"' not in own and "<p>1 exchange in 1 session, " in own


def test_sessions_and_exchanges_have_pages(browser: httpx.Client) -> None:
    assert "no more sessions" in browser.get("/memory?page=7").text
    assert browser.get("/memory/session?session_id=s1&page=7").status_code == 404
    for number in ("-1", "x", "9" * 30, SCRIPT):
        assert browser.get("/memory", params={"page": number}).status_code == 200


def test_rows_of_a_page_say_whether_there_are_more() -> None:
    assert pages._rows(range(51), 2) == {"rows": range(50), "number": 2, "first": 101, "is_last": False}
    assert pages._rows(range(50), 0)["is_last"] and pages._address("user", "/session", session_id="", id="a b&c") == (
        "/memory/session?of=user&id=a+b%26c"
    )


def test_what_has_many_lines_or_characters_is_folded() -> None:
    for text, is_folded in (("x" * 1_500, False), ("x" * 1_501, True), ("\n" * 29 + "x", False), ("x\n" * 30, True)):
        (shown, _) = pages.ShownExchange.of(exchange(1, text)).messages
        assert bool(shown.beginning) is is_folded and (shown.text, shown.left_out) == (text, 0)
        assert not pages.ShownExchange.of(exchange(1, text), whole=True).messages[0].beginning


def test_a_session_is_read_in_order_and_a_thread_across_sessions(browser: httpx.Client) -> None:
    page = browser.get("/memory/session?session_id=s1").text
    places = [page.index(text) for text in ("When was the quay", "In 1907, of granite.", "Who built", "harbour board")]
    assert places == sorted(places) and "herons" not in page and "<strong>Assistant</strong>" in page
    assert "2026-11-01 09:01 UTC" in page and "Exchanges 1 to 2" in page
    thread = browser.get("/memory/session?thread_id=masonry").text
    assert "Who built" in thread and "herons" in thread and "In 1907" not in thread and "session s2" in thread
    both = browser.get("/memory/session?session_id=s2&thread_id=masonry").text
    assert "herons" in both and "Who built" not in both and "Only the thread masonry." in both


def test_a_long_message_is_folded_and_read_whole_on_its_own_page(browser: httpx.Client) -> None:
    page = browser.get("/memory/session", params={"session_id": SESSION}).text
    assert f"<summary>{len(LONG)} characters: The tide tables say: high" in page and "and then the end." not in page
    assert f"{len(LONG) - pages.MAX_SHOWN} more characters" in page
    one = browser.get("/memory/session?id=long").text
    assert "and then the end." in one and "<summary>" not in one and 'id="exchange"' in one


def test_one_exchange_is_shown_with_those_beside_it(browser: httpx.Client) -> None:
    page = browser.get("/memory/session?id=e2").text
    assert page.index("When was the quay") < page.index("the one that was opened") < page.index("Who built")


def test_a_search_says_why_and_is_narrowed(browser: httpx.Client) -> None:
    asked = {"q": "who built the quay"}
    page = browser.get("/memory/search", params=asked).text
    assert "The <mark>" in page or "<mark>quay</mark>" in page
    assert "/memory/session?of=project&amp;id=e2#exchange" in page and "Score " in page and "why this" in page
    assert ">Meaning</th>" in page and "Cosine of" in page and '<code class="copy">e2</code>' in page
    for more, found in (
        ({"session_id": "s2"}, {"e3"}), ({"thread_id": "masonry"}, {"e2"}), ({"since": "2030-01-01"}, set()),
        ({"session_id": "S1"}, set()), ({"session_id": "*"}, set()), ({"of": "user"}, {"u1"}),
    ):  # fmt: skip
        page = browser.get("/memory/search", params=asked | more).text
        assert {one for one in ("e1", "e2", "e3", "e4", "u1", "o1") if f'"copy">{one}<' in page} == found, more
    part = browser.get("/memory/search", params=asked, headers={"HX-Request-Type": "partial"}).text
    assert "<h1>" not in part and " found</p>" in part
    wrong = browser.get("/memory/search", params=asked | {"since": "soon"})
    assert wrong.status_code == 200 and "since is not a date" in wrong.text
    assert "Type a question" in browser.get("/memory/search?k=99999999999").text


def test_hostile_text_is_shown_and_does_nothing(browser: httpx.Client) -> None:
    for path in (
        "/memory",
        "/memory/session?session_id=hostile",
        "/memory/session?id=e4",
        "/memory/search?q=alert+bold",
    ):
        page = browser.get(path)
        assert page.status_code == 200 and not Executable(page.text).found, path
        assert "default-src 'none'" in page.headers["content-security-policy"]
    page = browser.get("/memory/session?session_id=hostile").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; [go](https://x.example) **bold**" in page
    assert "&lt;b onclick=alert(4)&gt;" in page and '<pre dir="auto">\n\n  as it was said' in page
    for field in ("of", "session_id", "thread_id", "id", "q", "since", "k", "page"):
        for value in (SCRIPT, "../../other", "\x00", "x" * 5_000, "\u202e\x1b[2J"):
            for path in ("/memory", "/memory/session", "/memory/search"):
                page = browser.get(path, params={"q": "quay", field: value})
                assert page.status_code in (200, 400, 404), (path, field, value)
                assert not Executable(page.text).found, (path, field, value)


def test_control_and_direction_marks_of_a_table_from_elsewhere_are_inert(
    browser: httpx.Client, user: Kiwi, admin: httpx.Client
) -> None:
    """The gate takes them out; a table that was restored from elsewhere may have them all the same."""
    (path,) = (user.cwd / ".ai").glob("**/exchanges.sqlite3")
    table = ExchangeTable(path)
    table.add([exchange(9, "hidden \x1b[2J \u202egnp.exe\u202c \x00 \x9b31m", "ok", "marks", id="m1")])
    page = browser.get("/memory/session?session_id=marks").text
    assert "hidden �[2J �gnp.exe� � �31m" in page and not {"\x1b", "\u202e", "\x00", "\x9b"} & {*page}
    table.begin_forgetting(Selection(("m1",)), keep=False)
    table.close()


def test_no_address_reaches_another_projects_memory(browser: httpx.Client, user: Kiwi) -> None:
    other = user.cwd.with_name("other")
    for name in (str(other), "../other", "other", "memory", f"{other}/.ai"):
        for path in ("/memory", "/memory/session", "/memory/search"):
            answer = browser.get(path, params={"of": name, "session_id": "pirates", "q": "treasure"})
            assert answer.status_code == 404 and "pier" not in answer.text, (path, name)
        assert browser.post("/memory/forget", data={"of": name, "id": "o1", "confirmed": "yes"}).status_code == 404
    for of in ("project", "user"):
        assert browser.get(f"/memory/session?of={of}&id=o1").status_code == 404
        assert browser.post("/memory/forget", data={"of": of, "id": "o1", "confirmed": "yes"}).status_code == 404
        assert "Below the pier" not in browser.get(f"/memory/search?of={of}&q=treasure").text
    assert browser.get("/memory/session?of=user&id=e1").status_code == 404
    shown = replace(user, cwd=other).json("memory", "show", "o1")
    assert shown["exchange"]["assistant_message"] == "Below the pier."


def test_one_exchange_is_forgotten_after_a_question(browser: httpx.Client, admin: httpx.Client, user: Kiwi) -> None:
    add(admin, *(exchange(n, f"gone {n}", "so be it", "f1", id=f"f{n}") for n in (1, 2)))
    form = {"of": "project", "session_id": "f1", "id": "f1"}
    before = records(user)
    asked = browser.post("/memory/forget", data=form)
    assert asked.status_code == 200 and f"Forget 1 exchange of the memory of {user.cwd} for good?</h1>" in asked.text
    assert "f1: User: gone 1 Assistant: so be it" in asked.text
    assert ids(admin, session_id="f1") == ["f1", "f2"] and records(user) == before
    done = browser.post("/memory/forget", data=form | {"confirmed": "yes"})
    assert done.url.path == "/memory/session" and done.url.params["session_id"] == "f1"
    assert (
        re.search("1 exchange of the memory of .* was forgotten", done.text)
        and "gone 2" in done.text
        and "gone 1" not in done.text
    )
    last = browser.post("/memory/forget", data=form | {"id": "f2", "confirmed": "yes"})
    assert last.url.path == "/memory" and "forgotten" in last.text
    assert browser.post("/memory/forget", data=form | {"confirmed": "yes"}).status_code == 404
    rows = [row["details"] for row in records(user)[len(before) :]]
    assert [(row["id"], row["outcome"]) for row in rows] == [("f1", "ok"), ("f2", "ok"), ("f1", "not-found")]


def test_a_session_with_any_name_is_forgotten(browser: httpx.Client, admin: httpx.Client) -> None:
    name = 'g&h="1"/<i> ü'
    add(admin, *(exchange(n, f"gone {n}", "yes", name, id=f"g{n}") for n in range(7)))
    asked = browser.post("/memory/forget", data={"session_id": name}).text
    assert "Forget 7 exchanges" in asked and "g4: User: gone 4" in asked and "g5" not in asked and "and 2 more" in asked
    assert not Executable(asked).found and ids(admin, session_id=name)
    assert browser.post("/memory/forget", data={"session_id": name, "confirmed": "yes"}).status_code == 200
    assert not ids(admin, session_id=name) and ids(admin, session_id="s1") == ["e1", "e2"]


def test_a_thread_is_forgotten_in_all_sessions(browser: httpx.Client, admin: httpx.Client) -> None:
    add(admin, *(exchange(n, f"gone {n}", "yes", f"j{n}", id=f"j{n}", thread_id="j/&") for n in range(2)))
    page = browser.get("/memory/session", params={"thread_id": "j/&"}).text
    assert "<h1>Thread j/&amp;</h1>" in page and "Forget this thread…" in page
    assert 'name="thread_id" value="j/&amp;"' in page and 'name="session_id" value=""' not in page
    done = browser.post("/memory/forget", data={"thread_id": "j/&", "confirmed": "yes"})
    assert done.url.path == "/memory" and not ids(admin, thread_id="j/&")


def test_what_has_a_text_is_forgotten_and_the_text_is_recorded_nowhere(
    browser: httpx.Client, admin: httpx.Client, user: Kiwi
) -> None:
    secret = "Zanzibarian Saffron"
    add(
        admin, exchange(1, f"My word is {secret}.", "Noted.", "h", id="h1"), exchange(2, "Another", "One", "h", id="h2")
    )
    asked = browser.post("/memory/forget", data={"matching": secret.lower()}).text
    assert "Forget 1 exchange" in asked and "h1: User: My word is" in asked
    browser.post("/memory/forget", data={"matching": secret.lower(), "confirmed": "yes"})
    assert browser.post("/memory/forget", data={"matching": secret, "confirmed": "yes"}).status_code == 404
    assert ids(admin, session_id="h") == ["h2"]
    browser.get("/memory/search", params={"q": secret})
    assert files_with(user.cwd.parent, secret, secret.lower()) == []
    assert all("matching" not in row["details"] for row in records(user))


def test_what_is_before_a_day_is_forgotten(browser: httpx.Client, admin: httpx.Client) -> None:
    days = {day: datetime(2020, 1, day, 12, tzinfo=UTC) for day in (1, 2)}
    add(admin, *(exchange(day, "old", "news", "i", id=f"i{day}", timestamp=at) for day, at in days.items()))
    assert "Forget 1 exchange" in browser.post("/memory/forget", data={"before": "2020-01-02"}).text
    browser.post("/memory/forget", data={"before": "2020-01-02", "confirmed": "yes"})
    assert ids(admin, session_id="i") == ["i2"]
    assert "before is not a date" in browser.post("/memory/forget", data={"before": "soon"}).text


def test_a_form_with_an_empty_field_forgets_nothing(browser: httpx.Client, admin: httpx.Client) -> None:
    for field in ("id", "session_id", "thread_id", "before", "matching"):
        sent = {"session_id": "s1", field: " \t "}
        answer = browser.post("/memory/forget", data={**sent, "confirmed": "yes"})
        assert answer.status_code == 400 and f"the field {field} is empty" in answer.text
    for fields in ({}, {"of": "project"}, {"text": "quay", "ids": "e1"}):
        answer = browser.post("/memory/forget", data={**fields, "confirmed": "yes"})
        assert answer.status_code == 400 and "nothing says which exchanges" in answer.text, fields
    assert ids(admin, session_id="s1") == ["e1", "e2"]


def test_only_the_user_on_this_origin_reaches_it(
    browser: httpx.Client, reader: httpx.Client, admin: httpx.Client, url: str, user: Kiwi
) -> None:
    form, before = {"id": "e1", "confirmed": "yes"}, records(user)
    for path in ("/memory", "/memory/session?session_id=s1", "/memory/search?q=quay"):
        assert reader.get(path).status_code == 403 and httpx.get(f"{url}{path}").status_code == 401, path
    assert reader.post("/memory/forget", data=form).status_code == 403
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://127.0.0.1:1"},
    ):
        assert browser.post("/memory/forget", data=form, headers=headers).status_code == 403
        frame = {**headers, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
        assert "Origin" in headers or browser.get("/memory", headers=frame).status_code == 403
    assert browser.get("/memory/forget").status_code == 405
    assert ids(admin, session_id="s1") == ["e1", "e2"] and records(user) == before


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[TestClient]:
    """The pages of a user without a project, who remembers nothing; without the checks of who may call."""
    context = ServerContext(Services.open({"HOME": str(tmp_path), "KIWI_HOME": str(tmp_path / ".ai")}, tmp_path))
    yield TestClient(Starlette(routes=web.routes(context, Workspaces(context, Apps()))))


def test_an_empty_memory_says_how_one_begins(empty: TestClient) -> None:
    page = empty.get("/memory").text
    assert '<code class="copy">kiwi setup claude --memory</code>' in page and "kiwi memory import --user" in page
    assert page.count("<article") == 1 and "Forget" not in page and "The memory of the user" in page
    assert "the memory of the user is empty" in empty.get("/memory/search?q=quay").text
    assert empty.get("/memory?of=project").status_code == empty.get("/memory/session?session_id=s").status_code == 404


def test_sessions_and_exchanges_are_shown_in_pages(empty: TestClient, tmp_path: Path) -> None:
    empty.get("/memory")
    (path,) = tmp_path.glob(".ai/**/exchanges.sqlite3")
    table = ExchangeTable(path)
    table.add([exchange(n, session=f"one-{n}") for n in range(51)])
    table.add([exchange(100 + n, session="many", thread_id=f"thread-{n % 7}") for n in range(51)])
    table.close()
    for address, first, last in (("/memory?of=user", ">many<", ">one-1<"), ("/memory/session?of=user&session_id=many",
                                 "question 100 ", "question 150 ")):  # fmt: skip
        page, second = empty.get(address).text, empty.get(f"{address}&page=1").text
        following = f'<a href="{address.replace("&", "&amp;")}&amp;page=1">Next page</a>'
        assert first in page and last not in page and following in page and "Previous page" not in page
        assert last in second and first not in second and "Next page" not in second
    page = empty.get("/memory").text
    assert "thread-4</a> and 2 more" in page
    assert ">many</a> <small>question 100 " in page
    assert "102 exchanges in 52 sessions" in page and "102 exchanges not indexed yet" in page


def test_a_damaged_memory_is_named_and_the_page_is_shown(empty: TestClient, tmp_path: Path) -> None:
    empty.get("/memory")
    (path,) = tmp_path.glob(".ai/**/exchanges.sqlite3")
    for one in path.parent.glob(f"{path.name}*"):
        one.write_bytes(b"no database" * 1_000)
    empty = TestClient(empty.app)
    page = empty.get("/memory")
    assert page.status_code == 200 and "is damaged" in page.text and "kiwi setup claude" not in page.text
