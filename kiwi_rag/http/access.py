"""Who may call: roles, tokens, the browser's cookie, and the checks that no other site and no rebound name passes.

A request is checked in this order:

1. From the Unix socket it is the user's own: role *admin*.
2. Its ``Host`` must be one of the server's names. A name that was rebound to this address sends no ``Sec-Fetch``
   headers and an Origin equal to its Host, so no later check finds it.
3. Its role is that of its bearer token, or of its cookie.
4. With a cookie, which a browser sends by itself, a method that changes something must come from the same origin, and
   another origin may read nothing: it may only open a page in a tab of its own. A page on another port of this machine
   is the same site to a browser, so the cookie's SameSite does not stop it.
5. The role must be that of the path and method.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kiwi_rag.consent import is_loopback
from kiwi_rag.errors import ConfigError, NotFound, StoreBusy, UsageError
from kiwi_rag.local_service import COMMAND, SESSION, SIGN_IN
from kiwi_rag.storage.atomic import acquire_lock, write_json

COOKIE = "kiwi"
LOGIN = "/login"
LOGIN_SECONDS = 120.0
SESSION_SECONDS = 30 * 24 * 3600.0
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_SIGN_IN_PAGE = Path(__file__).with_name("sign_in.html").read_text(encoding="utf-8")
FORWARD_PAGE = '<!doctype html><meta http-equiv="refresh" content="0;url={0}"><a href="{0}">Open Kiwi</a>\n'
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer browsers send a form's own Origin as null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Role(IntEnum):
    """What a caller may do: a reader searches and reads, an admin also indexes, publishes and changes settings."""

    NONE = 0
    READER = 1
    ADMIN = 2


@dataclass(frozen=True, slots=True)
class Token:
    """A token of this user's service; only its digest is stored."""

    name: str
    role: str
    sha256: str
    created_at: str


class TokenFile:
    """The tokens of this user's service, in a file that only the user can read.

    Parameters
    ----------
    path
        The file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> Sequence[Token]:
        """Return all tokens.

        Raises
        ------
        ConfigError
            When the file cannot be read.
        """
        try:
            return TypeAdapter(list[Token]).validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return ()
        except (OSError, ValidationError) as error:
            message = f"{self._path} cannot be read: {getattr(error, 'strerror', '') or 'it is not a list of tokens'}"
            raise ConfigError(message, hint=f"rm {self._path}, then make the tokens anew") from error

    def add(self, name: str, role: Role) -> str:
        """Make a token and return it; it cannot be read again.

        Raises
        ------
        UsageError
            When there is one of this name.
        """
        value = f"kiwi_{secrets.token_urlsafe(32)}"
        with self._locked():
            tokens = self.all()
            if any(one.name == name for one in tokens):
                raise UsageError(f"there is a token {name!r} already", hint=f"kiwi serve token remove {name}")
            added = Token(name, role.name.lower(), _digest(value), datetime.now(UTC).isoformat(timespec="seconds"))
            write_json(self._path, [asdict(token) for token in (*tokens, added)])
        return value

    def remove(self, name: str) -> None:
        """Remove the tokens of this name.

        Raises
        ------
        NotFound
            When there is none.
        """
        with self._locked():
            tokens = self.all()
            kept = [token for token in tokens if token.name != name]
            if len(kept) == len(tokens):
                raise NotFound(f"there is no token {name!r}", hint="kiwi serve token list")
            write_json(self._path, [asdict(token) for token in kept])

    def role_of(self, value: str) -> tuple[Role, str]:
        """Return the role of a token and its name; no role where it is none of these."""
        digest = _digest(value)
        found = (token for token in self.all() if hmac.compare_digest(token.sha256, digest))
        return next(((Role[token.role.upper()], token.name) for token in found), (Role.NONE, ""))

    def _locked(self) -> AbstractContextManager[object]:
        busy = StoreBusy("the tokens are in use", hint="run it again when the other command has ended")
        return acquire_lock(self._path.with_suffix(".lock"), 10.0, lambda: busy)


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


@dataclass(slots=True)
class Logins:
    """One-time tokens and the cookies that they became, of one run of the service; in memory alone."""

    now: Callable[[], float] = time.monotonic
    _waiting: dict[str, float] = field(default_factory=dict)
    _sessions: dict[str, float] = field(default_factory=dict)

    def begin(self) -> str:
        """Return a token that signs a browser in once, as admin, within `LOGIN_SECONDS`."""
        value = secrets.token_urlsafe(32)
        waiting = {key: end for key, end in self._waiting.items() if end > self.now()}
        self._waiting = {**waiting, _digest(value): self.now() + LOGIN_SECONDS}
        return value

    def complete(self, value: str) -> str | None:
        """Return a cookie's value for a token; None if it was used, is too old or never was one."""
        if self._waiting.pop(_digest(value), 0.0) <= self.now():
            return None
        cookie = secrets.token_urlsafe(32)
        self._sessions[_digest(cookie)] = self.now() + SESSION_SECONDS
        return cookie

    def is_signed_in(self, cookie: str) -> bool:
        """Whether a cookie's value is one of these."""
        return self._sessions.get(_digest(cookie), 0.0) > self.now()


@dataclass(frozen=True)
class AccessControl:
    """ASGI middleware: it lets only allowed requests pass, and sets the headers of every answer.

    Parameters
    ----------
    app
        What is protected. A request's role is in its state as ``role``, who calls as ``caller``.
    names
        Further host names of the server; loopback addresses always are.
    tokens, logins
        Bearer tokens, and browsers that signed in.
    public
        Paths that need no role; those that end in a slash stand for all below.
    reader_posts
        Paths that a reader may POST to, because that changes nothing.
    private
        Paths of the Unix socket alone.
    admin_pages
        What a reader may not open, because it shows more than what is indexed; written as `public`.
    """

    app: ASGIApp
    tokens: TokenFile
    logins: Logins
    names: Collection[str] = ()
    public: Collection[str] = ("/health", "/static/", LOGIN)
    reader_posts: Collection[str] = ()
    private: Collection[str] = (COMMAND, SESSION, SIGN_IN)
    admin_pages: Collection[str] = ("/add", "/memory", "/memory/", "/api/v1/memory/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_http = scope["type"] == "http"
        if is_http:
            scope.setdefault("state", {}).update(role=Role.ADMIN, caller="the Unix socket")
        if not is_http or (scope.get("server") or ("", 0))[1] is None:  # the Unix socket has no port
            await self.app(scope, receive, send)
            return
        answer = self._refusal(HTTPConnection(scope)) or self._login(HTTPConnection(scope), scope["method"])
        await (answer or self.app)(scope, receive, _with_headers(send))

    def identify(self, scope: Scope) -> str:
        """Return the name of a request's token, or the digest of its cookie; empty where neither is valid."""
        request = HTTPConnection(scope)
        _, caller, by_cookie = self._caller(request)
        return _digest(request.cookies[COOKIE]) if caller and by_cookie else caller

    def _refusal(self, request: HTTPConnection) -> Response | None:
        """Return the answer to a request that is not allowed, None to one that is."""
        method, path = request.scope["method"], request.scope["path"]
        if not self._is_own_name(request.headers.get("host", "")):
            return _refused(421, "this address is not a name of this service", "open the address that kiwi ui prints")
        role, caller, by_cookie = self._caller(request)
        request.scope["state"].update(role=role, caller=caller)
        may_call = _may_read if method in SAFE_METHODS else _is_same_origin
        if by_cookie and not may_call(request.headers):
            return _refused(403, "the request comes from another site", "open the page itself")
        refused = self._role_refusal(role, method, path)
        is_page = role is Role.NONE and method == "GET" and "text/html" in request.headers.get("accept", "")
        return HTMLResponse(_SIGN_IN_PAGE, refused.status_code) if refused and is_page else refused

    def _role_refusal(self, role: Role, method: str, path: str) -> Response | None:
        if path in self.private:
            return _refused(403, "only the kiwi command of this user may do this", "use the kiwi command")
        if _is_among(path, self.public):
            return None
        if role is Role.NONE:
            return _refused(401, "sign in first", "kiwi ui opens a browser that is signed in; programs send a token")
        reads = method in SAFE_METHODS or (method == "POST" and path in self.reader_posts)
        if role is Role.READER and (not reads or _is_among(path, self.admin_pages)):
            return _refused(403, "a reader may not do this", "use a token of an admin")
        return None

    def _caller(self, request: HTTPConnection) -> tuple[Role, str, bool]:
        if (token := bearer_token(request.headers)) is not None:
            return *self.tokens.role_of(token), False
        cookie = request.cookies.get(COOKIE, "")
        return (Role.ADMIN, "a browser", True) if self.logins.is_signed_in(cookie) else (Role.NONE, "", bool(cookie))

    def _login(self, request: HTTPConnection, method: str) -> Response | None:
        """Return the answer that turns a one-time token into a cookie, so that the address holds no secret."""
        if request.url.path != LOGIN or method != "GET":
            return None
        cookie = self.logins.complete(request.query_params.get("token", ""))
        if cookie is None:
            message = "The address was used already, or is older than two minutes: run kiwi ui again\n"
            return PlainTextResponse(message, 403)
        headers = {"Referrer-Policy": "no-referrer"}  # the address holds the token
        answer: Response = RedirectResponse("/", 303, headers)
        if request.headers.get("sec-fetch-site") == "cross-site":  # a browser redirects the file's page without cookie
            answer = HTMLResponse(FORWARD_PAGE.format("/"), headers=headers)
        answer.set_cookie(COOKIE, cookie, max_age=int(SESSION_SECONDS), httponly=True, samesite="strict")
        return answer

    def _is_own_name(self, host: str) -> bool:
        with suppress(ValueError):
            name = urlsplit(f"//{host}").hostname or ""
            return name in self.names or is_loopback(name)
        return False


def bearer_token(headers: Headers) -> str | None:
    """Return the token that a request sends, None if it sends none."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else None


def _is_among(path: str, paths: Collection[str]) -> bool:
    """Whether a path is one of some, or below one that ends in a slash."""
    return any(path == one or (one.endswith("/") and path.startswith(one)) for one in paths)


def _is_same_origin(headers: Headers) -> bool:
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return False
    return urlsplit(origin).netloc == headers["host"] if origin is not None else site is not None


def _may_read(headers: Headers) -> bool:
    """Whether a page of this origin loads it, or the user opens it: by its address or by a link, in no frame."""
    opened = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return headers.get("sec-fetch-site") in (None, "same-origin", "none") or opened == ("navigate", "document")


def _refused(status: int, message: str, hint: str) -> Response:
    headers = {"www-authenticate": 'Bearer realm="kiwi"'} if status == 401 else None
    return JSONResponse({"error": {"code": "access", "message": message, "hint": hint}}, status, headers)


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sent
