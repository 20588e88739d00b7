"""What PostgREST does for RPC, over a real Postgres: roles by key or token, JSON arguments, its errors and statuses.

PostgREST itself cannot be had on every machine. This follows its documentation and the statements it is seen to send:
https://docs.postgrest.org/en/stable/references/transactions.html, …/errors.html, …/api/functions.html. Before it stands
a gateway as Supabase's projects have one, which lets in nobody without one of its keys; `gateway=False` leaves
it out, as some who run PostgREST themselves do.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.loopback import serving

PUBLISHABLE = "sb_publishable_of-the-tests"
SECRET_KEY = "sb_secret_of-the-tests"
JWT_SECRET = "a secret of the tests, of forty characters."
LEGACY_ANON = jwt.encode({"iss": "supabase", "role": "anon", "exp": 4102444800}, JWT_SECRET, algorithm="HS256")
_PASSWORD = "authenticator-of-the-tests"
_ROLES = """
do $$
begin
    create role authenticator login noinherit password 'authenticator-of-the-tests';
exception when duplicate_object then null;
end
$$;
grant anon, authenticated, service_role to authenticator;
alter role service_role bypassrls;
alter role anon set statement_timeout = '3s';
alter role authenticated set statement_timeout = '8s';
"""
_FUNCTIONS = """
select p.oid, p.proretset, p.prorettype = 'void'::regtype, p.prorettype = 'record'::regtype, p.provolatile <> 'v',
    coalesce(p.proargnames, '{}'), array(select format_type(t, null) from unnest(p.proargtypes) as t), p.pronargdefaults
from pg_proc as p where p.pronamespace = 'public'::regnamespace and p.proname = %s
"""
# SQLSTATE prefix → status, longest first, as PostgREST has it; what is not named is 400.
_STATUSES = {
    "25006": 405, "23503": 409, "23505": 409, "42883": 404, "42P01": 404, "42P17": 500, "53400": 500, "57P01": 503,
    "P0001": 400, "08": 503, "09": 500, "0L": 403, "0P": 403, "25": 500, "28": 403, "2D": 500, "38": 500, "39": 500,
    "3B": 500, "40": 500, "53": 503, "54": 500, "55": 500, "57": 500, "58": 500, "F0": 500, "HV": 500, "P0": 500,
    "XX": 500,
}  # fmt: skip


def token(role: str = "authenticated", sub: str = "6b1f7c1e-0000-4000-8000-000000000001", seconds: float = 3600) -> str:
    """Return a user's token as the project's own sign-in would issue it."""
    return jwt.encode({"role": role, "sub": sub, "exp": int(time.time() + seconds)}, JWT_SECRET, algorithm="HS256")


@dataclass
class Seen:
    """One request that came in: for tests that ask what was sent."""

    function: str
    headers: dict[str, str]
    arguments: Any


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str, message: str, details: Any = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"code": code, "details": details, "hint": hint, "message": message}
        if not code:  # the gateway's own
            del self.body["code"], self.body["details"]


@dataclass
class PostgRest:
    """A running project: `url` is what SUPABASE_URL takes."""

    database: str
    gateway: bool = True
    max_rows: int = 1000
    settings: dict[str, str] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    url: str = ""
    _idle: list[psycopg.Connection] = field(default_factory=list)

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, str]:
        """Return status, JSON data and Content-Range of one request."""
        parts = urlsplit(path)
        folder, _, name = parts.path.partition("/rest/v1/rpc/")
        if folder or not name:
            raise Refusal(404, "PGRST125", "Invalid path specified in request URL")
        arguments = json.loads(body)
        self.seen.append(Seen(name, headers, arguments))
        claims = self._claims(headers)
        with self._connection() as connection:
            try:
                status, data = self._call(connection, name, arguments, claims)
            except psycopg.Error as error:
                raise _refusal(error, claims["role"]) from error
        if not isinstance(data, list):
            return status, data, "0-0/*"
        first = int(parse_qs(parts.query).get("offset", ["0"])[0])
        page = data[first : first + self.max_rows]
        total = str(len(data)) if "count=exact" in headers.get("prefer", "") else "*"
        part = len(page) < len(data) and total != "*"
        return 206 if part else status, page, f"{first}-{first + len(page) - 1}/{total}"

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection]:
        """One of a pool, as PostgREST has it; what a request sets ends with its transaction."""
        try:
            connection = self._idle.pop()
        except IndexError:
            place = make_conninfo(self.database, user="authenticator", password=_PASSWORD)
            connection = psycopg.connect(place, prepare_threshold=None)
        try:
            yield connection
        finally:
            if connection.closed:
                connection.close()
            else:
                connection.rollback()
                self._idle.append(connection)

    def close(self) -> None:
        """Close what is in the pool."""
        while self._idle:
            self._idle.pop().close()

    def _claims(self, headers: dict[str, str]) -> dict[str, Any]:
        key = headers.get("apikey", "")
        if self.gateway and key not in {PUBLISHABLE, SECRET_KEY, LEGACY_ANON}:
            raise Refusal(
                401, "", "Invalid API key", hint="Double check your Supabase `anon` or `service_role` API key."
            )
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if not bearer or (self.gateway and bearer == key):
            return {"role": "service_role" if self.gateway and key == SECRET_KEY else "anon"}
        try:
            claims = jwt.decode(bearer, JWT_SECRET, algorithms=["HS256"], options={"verify_aud": False})
        except jwt.ExpiredSignatureError as error:
            raise Refusal(401, "PGRST303", "JWT expired") from error
        except jwt.PyJWTError as error:
            raise Refusal(401, "PGRST301", "No suitable key or wrong key type") from error
        return {"role": "anon", **claims}

    def _call(
        self, connection: psycopg.Connection, name: str, arguments: dict[str, Any], claims: dict[str, Any]
    ) -> tuple[int, Any]:
        _, is_set, is_void, is_record, is_read, names, types, _ = _chosen(connection, name, arguments)
        connection.rollback()
        connection.read_only = is_read
        _become(connection, claims, self.settings)
        declared = dict(zip(names, types, strict=False))
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(declared[n]))
            for n in arguments  # type: ignore[arg-type]
        )
        passed = sql.SQL(", ").join(sql.SQL("{0} := body.{0}").format(sql.Identifier(n)) for n in arguments)
        body = (
            sql.SQL("json_to_record(%s::json) as body({})").format(columns)
            if arguments
            else sql.SQL("(select) as body")
        )
        call = sql.SQL("{}({})").format(sql.Identifier("public", name), passed)
        if is_set or is_record:
            wanted = sql.SQL("coalesce(json_agg(answer), '[]')::text from {}, lateral {} as answer").format(body, call)
        else:
            wanted = sql.SQL("to_json({})::text from {}").format(call, body)
        row = connection.execute(sql.SQL("select ") + wanted, [json.dumps(arguments)] if arguments else []).fetchone()
        status = connection.execute("select current_setting('response.status', true)").fetchone()
        connection.commit()
        data = json.loads(row[0]) if row and row[0] and not is_void else None
        return int((status and status[0]) or (204 if is_void else 200)), data


def _chosen(connection: psycopg.Connection, name: str, arguments: dict[str, Any]) -> tuple[Any, ...]:
    given = set(arguments)
    for row in connection.execute(_FUNCTIONS, [name]).fetchall():
        names = row[5][: len(row[6])]
        required = set(names[: len(names) - row[7]])
        if required <= given <= set(names):
            return row
    listed = ", ".join(sorted(given))
    raise Refusal(
        404, "PGRST202", f"Could not find the function public.{name}({listed}) in the schema cache",
        details=f"Searched for the function public.{name} with parameters {listed}, but no matches were found.",
    )  # fmt: skip


def _become(connection: psycopg.Connection, claims: dict[str, Any], more: dict[str, str]) -> None:
    query = "select unnest(rolconfig) from pg_roles where rolname = %s"
    told = [row[0].partition("=") for row in connection.execute(query, [claims["role"]]).fetchall()]
    settings = {name: value for name, _, value in told} | more
    settings |= {"search_path": "public, extensions", "request.jwt.claims": json.dumps(claims), "role": claims["role"]}
    for name, value in settings.items():
        connection.execute("select set_config(%s, %s, true)", [name, value])


def _refusal(error: psycopg.Error, role: str) -> Refusal:
    state, said = error.sqlstate or "08000", error.diag
    status = next((s for prefix, s in _STATUSES.items() if state.startswith(prefix)), 400)
    if state == "42501":
        status = 401 if role == "anon" else 403
    return Refusal(status, state, said.message_primary or str(error), said.message_detail, said.message_hint)


class _Handler(BaseHTTPRequestHandler):
    api: PostgRest

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        try:
            status, data, extent = self.api.answer(self.path, headers, body)
        except Refusal as refusal:
            status, data, extent = refusal.status, refusal.body, "*/*"
        self.send_response(status, HTTPStatus(status).phrase)
        written = b"" if status == HTTPStatus.NO_CONTENT else json.dumps(data).encode()
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(written)))
        self.send_header("Content-Range", extent)
        self.end_headers()
        self.wfile.write(written)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def project(database: str, *, gateway: bool = True) -> Iterator[PostgRest]:
    """Run a project over `database`, the URL of a superuser's connection to a migrated registry."""
    with psycopg.connect(database) as connection:
        connection.execute("select pg_advisory_xact_lock(7310595114003)")  # roles belong to the server, tests share it
        connection.execute(_ROLES)
    with serving(type("Handler", (_Handler,), {"api": (api := PostgRest(database, gateway))})) as api.url:
        yield api
    api.close()
