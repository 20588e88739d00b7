"""Libraries over REST and on the pages: two with the same files, and two versions of one, over real HTTP."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kiwi_rag.sources.library.record import collection_name
from tests.interfaces.conftest import PATIENCE, Kiwi, wait_until
from tests.interfaces.test_mcp_http import INITIALIZE
from tests.interfaces.test_serve import at, serving
from tests.unit.test_library_download import Index, serving_index

ROOT = "/api/v1/libraries"
QUAY, NEWER, DOCK = "/port/quay@1.0.0", "/port/quay@2.0.0", "/port/dock@1.0.0"
COLLECTION = collection_name(QUAY)


def make(folder: Path, name: str, version: str, mooring: str) -> Path:
    """Write the documentation of a library."""
    (folder / "docs").mkdir(parents=True)
    (folder / "package.json").write_text(json.dumps({"name": name, "version": version, "repository": f"port/{name}"}))
    (folder / "README.md").write_text(f"# {name}\n\nHow to begin with {name} {version}: install it.\n")
    (folder / "docs/mooring.md").write_text(f"# Mooring\n\n{mooring} lines hold the ship at the quay.\n")
    return folder


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    """An index of packages with one that is not installed."""
    with serving_index(tmp_path_factory.mktemp("archives")) as index:
        index.pypi("fast_api-0.10.0.tar.gz")
        yield index


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory, index: Index) -> Iterator[Kiwi]:
    """A user with /port/quay in two versions, /port/dock with the files of the first, and a service."""
    base, run = tmp_path_factory.mktemp("libraries"), tmp_path_factory.mktemp("run")
    base.chmod(0o755)
    for name in ("home", "project"):
        (base / name).mkdir()
    user = at(Kiwi(base / "home", base / "project"), run, KIWI_PORT="0", PIP_INDEX_URL=f"{index.address}/simple")
    for folder, name, version, mooring in (
        ("one", "quay", "1.0.0", "Hemp"), ("two", "quay", "2.0.0", "Nylon"), ("three", "dock", "1.0.0", "Hemp"),
    ):  # fmt: skip
        user.run("library", "add", str(make(user.home / folder, name, version, mooring)))
    with serving(user):
        yield user


def texts(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return "".join(chunk["text"] for chunk in answer.json()["chunks"])


def ended(client: httpx.Client, job: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a job after its end."""
    return client.get(f"/api/v1/jobs/{job['job']}", params={"wait_seconds": 60}).json()


def ids(client: httpx.Client) -> list[str]:
    return [row["id"] for row in client.get(ROOT).json()["projects"]]


def error(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["hint"]
    return "{message}: {hint}".format(**answer.json()["error"])


def test_each_library_is_listed_and_read_alone(reader: httpx.Client) -> None:
    assert {QUAY, NEWER, DOCK} <= set(ids(reader))
    for one, word, other in ((QUAY, "Hemp", "Nylon"), (NEWER, "Nylon", "Hemp"), (DOCK, "Hemp", "Nylon")):
        asked = {"libraryId": one, "topic": "lines that hold the ship"}
        for answer in (reader.get(f"{ROOT}/docs", params=asked), reader.post(f"{ROOT}/docs", json=asked)):
            assert word in texts(answer) and other not in texts(answer)
            assert answer.json()["library"] == one
        for path in (f"{ROOT}{one}", f"{ROOT}/{one.replace('/', '%2F')}"):
            state = reader.get(path).json()
            assert (state["id"], state["status"], state["stats"]["documents"]) == (one, "Completed", 2)
    assert reader.get(f"{ROOT}/port/quay").json()["id"] == NEWER
    found = reader.get(f"{ROOT}/resolve", params={"libraryName": "quay"}).json()
    assert [row["id"] for row in found["libraries"]][:2] == [NEWER, QUAY]


def test_what_is_no_library_of_this_user_is_not_found(reader: httpx.Client, admin: httpx.Client) -> None:
    names = [COLLECTION, "KiwiDocument_port", "../../home", "/other/quay", "/port/quay/../dock", "docs", "%", "*"]
    for name in [*names, "/port/" + "x" * 300]:
        for answer in (
            reader.get(f"{ROOT}/docs", params={"libraryId": name}),
            admin.post(f"{ROOT}/reindex", json={"libraryId": name}),
            admin.delete(f"{ROOT}/%2F{name.replace('/', '%2F').replace('.', '%2E')}"),
        ):
            assert "no such library" in error(answer, 404)
    assert "is not indexed in the version 3.0.0; there are 2.0.0, 1.0.0" in error(
        reader.get(f"{ROOT}/docs", params={"libraryId": "/port/quay@3.0.0"}), 404
    )
    assert len(ids(reader)) >= 3


def test_half_a_character_is_refused(admin: httpx.Client) -> None:
    for path, name in ((f"{ROOT}/docs", "libraryId"), (ROOT, "origin")):
        answer = admin.post(path, content=json.dumps({name: "\ud800"}), headers={"Content-Type": "application/json"})
        assert "not a JSON object" in error(answer, 400)


def test_a_reader_changes_no_library(reader: httpx.Client) -> None:
    for method, path in (
        ("POST", ROOT), ("PUT", f"{ROOT}{QUAY}"), ("DELETE", f"{ROOT}{QUAY}"), ("DELETE", f"{ROOT}/docs"),
        ("POST", f"{ROOT}/reindex"), ("DELETE", f"{ROOT}/resolve"), ("GET", "/add?library=npm:x"),
        ("POST", "/add/library"), ("POST", "/sources/delete"),
    ):  # fmt: skip
        assert reader.request(method, path).status_code == 403, (method, path)
    assert error(reader.get("/api/v1/jobs/unknown"), 404)


def test_a_folder_is_added_read_and_removed_without_the_others(
    admin: httpx.Client, reader: httpx.Client, user: Kiwi
) -> None:
    folder = make(user.home / "four", "quay", "3.0.0", "Steel")
    begun = admin.post(ROOT, json={"origin": str(folder), "include": ["docs"], "wait_seconds": 0}).json()
    done = ended(reader, begun)
    assert (done["state"], done["report"]["library"], len(done["report"]["indexed"])) == ("done", "/port/quay@3.0.0", 1)
    assert "Steel" in texts(reader.get(f"{ROOT}/docs", params={"libraryId": "/port/quay", "topic": "lines"}))
    put = admin.put(f"{ROOT}/harbour/rope@3.0.0", json={"origin": str(folder)})
    assert put.json()["report"]["library"] == "/harbour/rope@3.0.0"
    assert len(admin.put(f"{ROOT}/harbour/rope@3.0.0", json={"origin": str(folder)}).json()["report"]["indexed"]) == 0

    assert "/port/quay@3.0.0" in error(admin.delete(f"{ROOT}/port/quay"), 400)
    for name in ("/port/quay@3.0.0", "/harbour/rope@3.0.0"):
        assert admin.delete(f"{ROOT}{name}").json() == {"removed": name}
        assert error(admin.delete(f"{ROOT}{name}"), 404)
    assert set(ids(reader)) == {QUAY, NEWER, DOCK} and (folder / "README.md").is_file()
    for one in (QUAY, NEWER, DOCK):
        assert reader.get(f"{ROOT}{one}").json()["stats"]["documents"] == 2
    records = [row for row in user.json("audit", "show", "--tier", "user") if row["event"] == "admin"]
    assert [row["ref"] for row in records][-6:] == [
        f"{ROOT}/harbour/rope@3.0.0", f"{ROOT}/port/quay", *[f"{ROOT}/port/quay@3.0.0"] * 2,
        *[f"{ROOT}/harbour/rope@3.0.0"] * 2,
    ]  # fmt: skip
    assert [row["details"]["outcome"] for row in records][-2:] == ["ok", "no-library"]


def test_only_the_named_library_is_indexed_again(admin: httpx.Client, user: Kiwi) -> None:
    for name in ("one", "three"):
        (user.home / name / "docs/more.md").write_text("# More\n\nA tug stands by.\n")
    done = ended(admin, admin.post(f"{ROOT}/reindex", json={"libraryId": QUAY, "wait_seconds": 0}).json())
    assert done["report"]["indexed"] == ["docs/more.md"]
    assert [admin.get(f"{ROOT}{one}").json()["stats"]["documents"] for one in (QUAY, NEWER, DOCK)] == [3, 2, 2]
    for name in ("one", "three"):
        (user.home / name / "docs/more.md").unlink()
    assert admin.post(f"{ROOT}/reindex", json={"libraryId": QUAY}).json()["report"]["removed"] == ["docs/more.md"]


def test_what_cannot_be_added_is_refused_before_a_job_begins(admin: httpx.Client, user: Kiwi) -> None:
    (user.home / ".secret").mkdir()
    for origin in ("/etc", str(user.home / ".secret"), str(user.home / "none"), f"{user.home}/..", "\0"):
        assert "is no folder that can be added" in error(admin.post(ROOT, json={"origin": origin}), 403)
    folder = str(user.home / "one")
    for wrong in (
        {"origin": "npm:../x"}, {"origin": "pypi:a b"}, {"origin": folder, "id": "quay"}, {},
        {"origin": folder, "version": "1/2"}, {"origin": folder, "include": ["../two"]}, {"origin": folder, "x": 1},
    ):  # fmt: skip
        assert error(admin.post(ROOT, json=wrong), 400)
    assert error(admin.put(f"{ROOT}/port/quay", json={"origin": folder}), 400)
    unversioned = make(user.home / "five", "buoy", "", "No")
    failed = admin.post(ROOT, json={"origin": str(unversioned)}).json()
    assert failed["state"] == "failed" and "does not say which version" in failed["error"]["message"]
    assert set(ids(admin)) == {QUAY, NEWER, DOCK}


def test_one_job_runs_at_a_time(admin: httpx.Client, browser: httpx.Client, user: Kiwi, index: Index) -> None:
    held = threading.Event()

    class Held(dict[str, tuple[int, dict[str, str], bytes]]):
        def get(self, path: str, default: Any = None) -> Any:
            assert "slow" not in path or held.wait(PATIENCE)
            return super().get(path, default)

    index.answers = Held(index.answers)
    job = admin.post(ROOT, json={"origin": "pypi:slow", "wait_seconds": 0}).json()
    assert job["state"] == "running"
    folder = str(user.home / "one")
    for answer in (
        admin.delete(f"{ROOT}{QUAY}"), admin.post(ROOT, json={"origin": folder}),
        admin.post(f"{ROOT}/reindex", json={"projectId": QUAY}),
    ):  # fmt: skip
        assert "add pypi:slow" in error(answer, 409)
    for path, form in (
        ("/sources/delete", {"root": QUAY, "confirmed": "yes"}), ("/indexing/run", {"root": QUAY}),
        ("/add/library", {"origin": folder}),
    ):  # fmt: skip
        answer = browser.post(path, data=form)
        assert answer.status_code == 409 and "a job is running: add pypi:slow" in answer.text
    held.set()
    assert ended(admin, job)["error"]["code"] == "not-found"
    assert ids(admin) == [DOCK, QUAY, NEWER]


def test_agents_are_offered_libraries_where_there_are_some(reader: httpx.Client) -> None:
    headers = {"Accept": "application/json, text/event-stream"}
    begun = reader.post("/mcp", json=INITIALIZE, headers=headers)
    session = {"mcp-session-id": begun.headers.get("mcp-session-id", "")}
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    tools = reader.post("/mcp", json=listing, headers=headers | session).text
    assert "query-docs" in tools and "reindex_project" not in tools


def test_openapi_describes_a_library_as_a_resource(reader: httpx.Client) -> None:
    paths = reader.get("/api/v1/openapi.json").json()["paths"]
    one = paths[f"{ROOT}/{{projectId}}"]
    assert set(one) == {"get", "put", "delete"}
    for operation in one.values():
        assert operation["parameters"][0] | {"schema": None} == {
            "name": "projectId", "in": "path", "required": True, "schema": None,
        }  # fmt: skip
    assert "origin" in one["put"]["requestBody"]["content"]["application/json"]["schema"]["required"]
    assert set(paths[ROOT]) == {"get", "post"}


def titles(page: str) -> list[str]:
    """Return the sources that a search page shows hits of."""
    return re.findall(r"<h2>([^<]+) <small>[1-9]\d* in", page)


def idle(browser: httpx.Client) -> str:
    """Return the page Indexing after the end of the run."""
    wait_until(lambda: "Last run" in browser.get("/indexing").text)
    return browser.get("/indexing").text


def test_a_search_is_in_the_libraries_that_were_chosen(browser: httpx.Client, user: Kiwi) -> None:
    asked = {"q": "lines that hold the ship"}
    every = browser.get("/search", params=asked).text
    assert set(titles(every)) == {QUAY, NEWER, DOCK} and f'name="library" value="{QUAY}"' in every
    assert set(titles(browser.get("/search", params=asked | {"scope": "libraries"}).text)) == {QUAY, NEWER, DOCK}
    assert not titles(browser.get("/search", params=asked | {"scope": "workspaces"}).text)
    one = browser.get("/search", params=asked | {"library": QUAY, "explain": "on", "alpha": "0.9"}).text
    assert titles(one) == [QUAY] and f"<span>{QUAY} · markdown</span>" in one and "Nylon" not in one
    assert "✓ unchanged since this user indexed it" in one and "docs/mooring.md:" in one
    assert f"vscode://file{user.home}/one/docs/mooring.md" in one
    two = browser.get("/search", params=asked | {"library": [QUAY, NEWER]}).text
    assert set(titles(two)) == {QUAY, NEWER} and f"{QUAY} <small>" in two
    assert "library=%2Fport%2Fquay%401.0.0" in two
    for name in (COLLECTION, "../home", "/port/quay@9.0.0"):
        page = browser.get("/search", params=asked | {"library": name}).text
        assert not titles(page) and f"no such library or workspace: {name}" in page


def test_an_answer_is_from_the_libraries_that_were_searched(browser: httpx.Client) -> None:
    asked = {"question": "which lines hold the ship", "library": QUAY}
    page = browser.post("/answer", data=asked).text
    assert "Hemp lines" in page and "Nylon" not in page
    page = browser.post("/answer", data=asked | {"library": "", "scope": "libraries"}).text
    assert "Hemp lines" in page and "Nylon lines" in page
    assert browser.post("/answer", data=asked | {"library": COLLECTION}).status_code == 404


def test_pages_show_each_library_with_its_state(browser: httpx.Client, reader: httpx.Client, user: Kiwi) -> None:
    for path in ("/", "/sources", "/indexing"):
        page = reader.get(path).text
        assert all(one in page for one in (QUAY, NEWER, DOCK)), path
    away = user.home / "three"
    away.rename(user.home / "elsewhere")
    broken = user.home / ".ai/libraries/broken.json"
    broken.write_text("{}")
    page = browser.get("/sources").text
    assert f"{away} is no folder" in page and f"kiwi library remove {DOCK}" in page
    assert f"{broken} is not a valid record" in page
    broken.unlink()
    (user.home / "elsewhere").rename(away)
    assert "is no folder" not in browser.get("/sources").text


def test_what_was_found_for_a_library_is_shown_before_it_is_added(browser: httpx.Client, user: Kiwi) -> None:
    page = browser.get("/add", params={"library": str(user.home / "one")}).text
    assert 'value="/port/quay"' in page and 'value="1.0.0"' in page and "2 .md" in page
    assert "has the most pages: 1" in page and "Nothing leaves this machine" in page
    assert re.search(r"about \d+ passages?, [\d.]+ s on this machine", page)
    page = browser.get("/add", params={"library": "npm:no-such-package"}).text
    assert "Kiwi downloads documentation from registry.npmjs.org." in page and 'name="consent"' in page
    page = browser.get("/add", params={"library": "pypi:no-such-package@1.0"}).text
    assert "the archive of the version is downloaded" in page and 'name="consent"' not in page
    for origin, status in (("/etc", 403), ("npm:../x", 400), (f"{user.home}/none", 403)):
        assert browser.get("/add", params={"library": origin}).status_code == status
        assert browser.post("/add/library", data={"origin": origin}).status_code == status
    empty = user.home / "empty"
    empty.mkdir()
    assert "There is no documentation in it" in browser.get("/add", params={"library": str(empty)}).text


def test_a_download_needs_consent_and_says_why_it_failed(
    browser: httpx.Client, admin: httpx.Client, user: Kiwi
) -> None:
    refused = browser.post("/add/library", data={"origin": "npm:no-such-package"})
    assert refused.status_code == 400 and "the consent was not given" in refused.text
    failed = admin.post(ROOT, json={"origin": "npm:no-such-package"}).json()
    assert (failed["state"], failed["error"]["code"]) == ("failed", "consent")
    browser.post("/add/library", data={"origin": "npm:no-such-package", "consent": "yes"})
    page = idle(browser)
    assert "Last run: add npm:no-such-package" in page and "you have not allowed that" not in page
    assert "registry.npmjs.org" in user.run("consent", "list").stdout
    failed = admin.post(ROOT, json={"origin": "pypi:no-such-package"}).json()
    assert failed["error"]["code"] == "not-found"


def test_a_package_is_downloaded_indexed_and_deleted(browser: httpx.Client, reader: httpx.Client, user: Kiwi) -> None:
    browser.post("/add/library", data={"origin": "pypi:fast-api"})
    assert "Last run: index /fast/api@0.10.0" in (page := idle(browser)) and "2 indexed, 0 unchanged" in page
    found = reader.get(f"{ROOT}/docs", params={"libraryId": "fast-api", "topic": "a"}).json()
    assert {chunk["source"]["file"] for chunk in found["chunks"]} == {"docs/a.md", "README.rst"}
    (unpacked,) = (user.home / ".ai/libraries").glob("*/docs/a.md")
    asked = browser.post("/sources/delete", data={"root": "/fast/api@0.10.0"}).text
    assert "Delete the library /fast/api@0.10.0?" in asked and "Its files can be added again." in asked
    browser.post("/sources/delete", data={"root": "/fast/api@0.10.0", "confirmed": "yes"})
    assert not unpacked.exists() and reader.get(f"{ROOT}/fast/api@0.10.0").status_code == 404


def test_a_library_is_added_indexed_and_removed_on_the_pages(browser: httpx.Client, user: Kiwi) -> None:
    folder = make(user.home / "rope", "quay", "4.0.0", "Steel")
    given = {"origin": str(folder), "id": "/port/rope", "version": "4.0.0", "include": "docs/"}
    page = browser.post("/add/library", data=given)
    assert page.url.path == "/indexing" and f"{folder} is being added as a library and indexed." in page.text
    assert "Last run: index /port/rope@4.0.0" in (page := idle(browser)) and "1 indexed, 0 unchanged" in page
    assert "Steel" in browser.get("/search", params={"q": "lines", "library": "/port/rope@4.0.0"}).text
    browser.post("/indexing/run", data={"root": "/port/rope@4.0.0"})
    assert "0 indexed, 1 unchanged" in idle(browser)
    asked = browser.post("/indexing/run", data={"root": "/port/rope@4.0.0", "rebuild": "yes"}).text
    assert "1 document with 1 passage" in asked
    for name in (COLLECTION, "/port/rope@5.0.0", "/etc"):
        assert browser.post("/indexing/run", data={"root": name}).status_code == 404
        assert browser.post("/sources/delete", data={"root": name, "confirmed": "yes"}).status_code == 404
    assert browser.post("/sources/delete", data={"root": "/port/rope", "confirmed": "yes"}).status_code == 404
    asked = browser.post("/sources/delete", data={"root": "/port/rope@4.0.0"}).text
    assert (
        "Delete the library /port/rope@4.0.0? 1 document with 1 passage and its audit log are lost. The files stay."
        in asked
    )
    assert "/port/rope@4.0.0" in browser.get("/sources").text
    browser.post("/sources/delete", data={"root": "/port/rope@4.0.0", "confirmed": "yes"})
    page = browser.get("/sources").text
    assert "/port/rope@4.0.0" not in page and all(one in page for one in (QUAY, NEWER, DOCK))
    assert (folder / "docs/mooring.md").is_file()
    browser.post("/add/library", data=given)
    assert "1 indexed, 0 unchanged" in idle(browser)
    browser.post("/sources/delete", data={"root": "/port/rope@4.0.0", "confirmed": "yes"})
