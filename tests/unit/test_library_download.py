"""Archives from the indexes of npm and PyPI, against a stand-in that speaks both protocols."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag.errors import ArchiveRefused, ConfigError, DownloadFailed, NotFound
from kiwi_rag.sources.library import archive as downloads
from kiwi_rag.sources.library.archive import download
from kiwi_rag.sources.library.package import Package, parse_origin
from tests.loopback import serving
from tests.unit.test_library_packages import archive

INFO = (
    "Metadata-Version: 2.1\nName: Fast-API\nVersion: {}\nProject-URL: Repository, https://github.com/fast/api\n\nText"
)


def ignored(_total: int) -> Callable[[int], None]:
    return lambda _count: None


class Index:
    """What a stand-in answers: path → status, headers, body. ``asked`` are the consents, ``calls`` the requests."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.address = folder, ""
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[tuple[str, str, int]] = []
        self.calls: list[str] = []

    def put(self, path: str, body: object, status: int = 200, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers[path] = status, headers, data

    def npm(self, version: str = "7.0.0", **changes: Any) -> None:
        data = archive(self.folder / "a", ("package/README.md", "# Vite")).read_bytes()
        self.put("/files/vite.tgz", data)
        digest = base64.b64encode(hashlib.sha512(data).digest()).decode()
        dist = {"tarball": f"{self.address}/files/vite.tgz", "integrity": f"sha1-AAAA sha512-{digest}"} | changes
        manifest = {"name": "vite", "version": version, "repository": "vitejs/vite", "dist": dist}
        for asked in {version, "latest"}:
            self.put(f"/npm/vite/{asked}", manifest)

    def pypi(self, *names: str, inside: str = "", **changes: Any) -> None:
        files = []
        for name in names:
            version = inside or name.removesuffix(".tar.gz").rpartition("-")[2]
            data = archive(self.folder / "a", ("x/PKG-INFO", INFO.format(version)), ("x/docs/a.md", "# A")).read_bytes()
            self.put(f"/files/{name}", data)
            digest = {"sha256": hashlib.sha256(data).hexdigest()}
            files.append(
                {"filename": name, "url": f"../../files/{name}", "hashes": digest, "size": len(data)} | changes
            )
        self.put("/simple/fast-api/", {"meta": {"api-version": "1.1"}, "name": "fast-api", "files": files})

    def allow(self, host: str, purpose: str, size: int, _cost: float | None) -> None:
        self.asked.append((host, purpose, size))

    @contextmanager
    def download(self, origin: str, **others: Any) -> Iterator[tuple[Package, Path]]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("npm_config_registry", f"{self.address}/npm/")
            patched.setenv("PIP_INDEX_URL", f"{self.address}/simple")
            with download(*parse_origin(origin), **({"allow": self.allow, "progress": ignored} | others)) as found:
                yield found


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with serving_index(tmp_path) as shown:
        yield shown


@contextmanager
def serving_index(folder: Path) -> Iterator[Index]:
    """Serve a stand-in of both indexes on a port of this machine."""
    shown = Index(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown.calls.append(f"{self.path} {self.headers['Accept']}")
            status, headers, body = shown.answers.get(self.path, (404, {}, b"none"))
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with serving(Handler) as shown.address:
        yield shown


def test_an_npm_archive_is_found_checked_and_removed_again(index: Index) -> None:
    index.npm()
    totals, parts = list[int](), list[int]()

    def begin(total: int) -> Callable[[int], None]:
        totals.append(total)
        return parts.append

    with index.download("npm:vite", progress=begin) as (package, path):
        assert (package.origin, package.version, package.id) == ("npm:vite", "7.0.0", "/vitejs/vite")
        assert (totals, sum(parts)) == ([0], path.stat().st_size)
    assert not path.exists()
    assert index.asked == [("127.0.0.1", "download", 0)] * 2


def test_the_newest_release_of_a_python_package_is_taken(index: Index) -> None:
    index.pypi("fast_api-0.9.tar.gz", "fast_api-0.10.0.tar.gz", "fast-api-0.11rc1.tar.gz", "odd.tar.gz")
    with index.download("pypi:Fast.API") as (package, path):
        assert (package.origin, package.version, package.id) == ("pypi:fast-api", "0.10.0", "/fast/api")
        assert package.texts == {"README.rst": "Text"}
        assert index.asked[1] == ("127.0.0.1", "download", path.stat().st_size)
    assert index.calls[0] == "/simple/fast-api/ application/vnd.pypi.simple.v1+json"
    with index.download("pypi:fast-api@0.9.0") as (package, _):
        assert package.version == "0.9"


def test_a_scoped_name_is_one_step_of_the_path(index: Index) -> None:
    with pytest.raises(NotFound), index.download("npm:@a/b@1.0.0"):
        pass
    assert index.calls[0].startswith("/npm/@a%2Fb/1.0.0 ")


def test_another_version_is_never_taken_instead(index: Index) -> None:
    index.npm()
    index.pypi("fast_api-1.0.tar.gz", "fast_api-2.0-py3-none-any.whl")
    with (
        pytest.raises(NotFound, match=r"127\.0\.0\.1 does not have it: look up npm:vite@6\.0\.0"),
        index.download("npm:vite@6.0.0"),
    ):
        pass
    for origin in ("pypi:fast-api", "pypi:fast-api@2.0"):
        with (
            pytest.raises(NotFound, match=r"no source archive of 2\.0; its newest versions are 2\.0, 1\.0"),
            index.download(origin),
        ):
            pass
    index.pypi("fast_api-1.0.tar.gz", inside="1.1")
    with pytest.raises(ArchiveRefused, match=r"is of version 1\.1, and not 1\.0"), index.download("pypi:fast-api"):
        pass
    index.put("/npm/vite/6.0.0", json.loads(index.answers["/npm/vite/latest"][2]))
    with pytest.raises(DownloadFailed, match=r"answers with npm:vite@7\.0\.0"), index.download("npm:vite@6.0.0"):
        pass


def test_a_yanked_release_has_to_be_named(index: Index) -> None:
    index.pypi("fast_api-1.0.tar.gz", yanked="broken")
    with pytest.raises(DownloadFailed), index.download("pypi:fast-api"):
        pass
    with index.download("pypi:fast-api@1.0") as (package, _):
        assert package.version == "1.0"


_LIES: dict[str, Callable[[Index], None]] = {
    "npm digest": lambda index: index.npm(integrity="sha512-" + base64.b64encode(b"x" * 64).decode()),
    "npm bytes": lambda index: (index.npm(), index.put("/files/vite.tgz", b"other"))[0],
    "pypi digest": lambda index: index.pypi("fast_api-1.0.tar.gz", hashes={"sha256": "0" * 64}),
}


@pytest.mark.parametrize("lie", _LIES.values(), ids=_LIES)
def test_an_archive_that_differs_from_its_digest_is_refused(index: Index, lie: Callable[[Index], None]) -> None:
    lie(index)
    origin = "npm:vite" if "/npm/vite/latest" in index.answers else "pypi:fast-api"
    with pytest.raises(ArchiveRefused, match="digest"), index.download(origin):
        pass


@pytest.mark.parametrize(
    "answer", [b"<html>", b"[]", b"{}", b'{"files": 5}', b'{"files": [{"filename": 5}]}', b'{"files": []}', b"null",
               b'{"files": [{"filename": "fast_api-1.0.tar.gz", "url": "x", "hashes": {}}]}', b"[" * 100_000]
)  # fmt: skip
def test_an_answer_that_is_no_description_fails(index: Index, answer: bytes) -> None:
    index.put("/simple/fast-api/", answer)
    index.put("/npm/vite/latest", answer)
    for origin in ("pypi:fast-api", "npm:vite"):
        with pytest.raises((DownloadFailed, NotFound)), index.download(origin):
            pass


@pytest.mark.parametrize("integrity", ["", "sha1-AAAA", "md5-x", "sha512-%%%"])
def test_an_archive_without_a_strong_digest_is_not_downloaded(index: Index, integrity: str) -> None:
    index.npm(integrity=integrity)
    with pytest.raises(DownloadFailed), index.download("npm:vite"):
        pass
    assert len(index.calls) == 1


def test_without_consent_nothing_is_requested(index: Index) -> None:
    def refuse(host: str, purpose: str, size: int, _cost: float | None) -> None:
        raise ConfigError("no consent")

    index.npm()
    with pytest.raises(ConfigError, match="no consent"), index.download("npm:vite", allow=refuse):
        pass
    assert index.calls == []


def test_a_redirect_to_another_host_needs_consent_too(index: Index) -> None:
    index.npm()
    elsewhere = index.address.replace("127.0.0.1", "localhost")
    index.put("/npm/vite/latest", b"", 302, Location=f"{elsewhere}/npm/vite/7.0.0")
    with index.download("npm:vite"):
        pass
    assert [host for host, _, _ in index.asked] == ["127.0.0.1", "localhost", "127.0.0.1"]


def test_a_server_that_fails_is_not_an_empty_one(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index.put("/npm/vite/latest", b"", 503)
    with pytest.raises(DownloadFailed, match="answers 503"), index.download("npm:vite"):
        pass
    index.address = "http://user:secret@127.0.0.1:9"
    with (
        pytest.raises(DownloadFailed, match=r"cannot be reached \(ConnectError\)") as error,
        index.download("npm:vite"),
    ):
        pass
    assert "secret" not in error.value.message


def test_too_large_answers_are_not_read_to_their_end(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index.npm()
    monkeypatch.setattr(downloads, "MAX_ARCHIVE", 50)
    with pytest.raises(ArchiveRefused, match="is over"), index.download("npm:vite"):
        pass
    monkeypatch.setattr(downloads, "_MAX_ANSWER", 50)
    with pytest.raises(DownloadFailed, match="over"), index.download("npm:vite"):
        pass


def test_an_index_with_encryption_does_not_lead_to_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    asked: list[str] = []
    client = downloads._client(lambda host, *_: asked.append(host), "https://index.example")
    answer = httpx.Response(302, headers={"Location": "http://plain.example/"})
    monkeypatch.setattr(client, "_transport", httpx.MockTransport(lambda request: answer))
    monkeypatch.setattr(client, "_mounts", {})
    with pytest.raises(DownloadFailed, match=r"plain\.example is not to be reached without encryption"):
        list(downloads._receive(client, "https://index.example/", "look up x"))
    assert asked == ["index.example"]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://plain.example/a.tgz", "without encryption"),
        ("http://127.0.0.1:9/a.tgz", "without encryption"),
        ("https://127.0.0.1:9/a.tgz", "leads to this machine"),
        ("https://LOCALHOST.:9/a.tgz", "leads to this machine"),
        ("https://[::1]:9/a.tgz", "leads to this machine"),
        ("file:///etc/passwd", "without encryption"),
    ],
)
def test_an_index_elsewhere_cannot_name_an_archive_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, url: str, reason: str
) -> None:
    import httpx

    calls: list[str] = []
    integrity = "sha512-" + base64.b64encode(b"0" * 64).decode()
    manifest = {"name": "vite", "version": "7.0.0", "dist": {"tarball": url, "integrity": integrity}}

    def answer(request: httpx.Request) -> httpx.Response:
        calls.append(str(request.url))
        return httpx.Response(200, stream=httpx.ByteStream(json.dumps(manifest).encode()))

    def client(*arguments: Any) -> httpx.Client:
        made = original(*arguments)
        monkeypatch.setattr(made, "_transport", httpx.MockTransport(answer))
        monkeypatch.setattr(made, "_mounts", {})
        return made

    original = downloads._client
    monkeypatch.setattr(downloads, "_client", client)
    monkeypatch.setenv("npm_config_registry", "https://index.example")
    with (
        pytest.raises(DownloadFailed, match=reason),
        download("npm", "vite", "", allow=lambda *_: None, progress=ignored),
    ):
        pass
    assert calls == ["https://index.example/vite/latest"]


def test_a_digest_that_is_no_text_is_no_digest(index: Index) -> None:
    index.pypi("fast-api-1.0.tar.gz", hashes={"sha256": 5})
    with pytest.raises(ArchiveRefused, match="digest"), index.download("pypi:fast-api"):
        pass
