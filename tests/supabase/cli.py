"""The real Supabase CLI against a real Postgres on loopback, with roles as a hosted project has them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from kiwi_rag.registry.server import binaries
from tests.shared import ROOT

PROGRAM = ROOT / "node_modules/.bin/supabase"
# What a project looks like before anything is pushed: its operator is no superuser, owns the database and the schema
# extensions, and may use the schema auth without passing that on.
HOSTED = """
create role supabase_admin superuser;
create role operator login password 'operator' createrole createdb replication bypassrls;
create role anon nologin;
create role authenticated nologin;
create role service_role nologin bypassrls;
create role authenticator login noinherit password 'authenticator-of-the-tests';
grant anon, authenticated, service_role to authenticator;
grant anon, authenticated, service_role to operator with admin option;
"""
_PROJECT = """
revoke all on schema public from public;
grant usage on schema public to anon, authenticated, service_role, operator;
create schema extensions authorization operator;
create extension vector schema extensions;
create schema auth authorization supabase_admin;
grant usage on schema auth to anon, authenticated, service_role, operator;
create function auth.uid() returns uuid language sql stable as
    'select (nullif(current_setting(''request.jwt.claims'', true), '''')::jsonb ->> ''sub'')::uuid';
alter function auth.uid() owner to supabase_admin;
alter default privileges for role operator in schema public grant all on tables to anon, authenticated, service_role;
alter default privileges for role operator in schema public grant all on functions to anon, authenticated, service_role;
"""


@dataclass(frozen=True)
class Cluster:
    """A server on loopback. `socket` is the superuser's way in."""

    directory: Path
    socket: str
    port: int

    def database(self, name: str, *, hosted: bool = True) -> str:
        """Make an empty database, or an empty project; return its operator's URL over TCP."""
        with psycopg.connect(self.socket, autocommit=True) as connection:
            connection.execute(f"create database {name} owner {'operator' if hosted else 'postgres'}".encode())
        if hosted:
            with psycopg.connect(self.admin(name)) as connection:
                connection.execute(_PROJECT)
            return self.url(name, "operator", "operator")
        return self.url(name, "postgres", (self.directory / "pgpass").read_text().strip().rpartition(":")[2])

    def clone(self, name: str, like: str) -> str:
        """Make a copy of the project `like`, to which nobody is connected; return its operator's URL."""
        with psycopg.connect(self.socket, autocommit=True) as connection:
            connection.execute(f"create database {name} template {like} strategy file_copy owner operator".encode())
        return self.url(name, "operator", "operator")

    def url(self, name: str, user: str, password: str) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{name}"

    def admin(self, name: str) -> str:
        """The superuser's URL."""
        return self.socket.replace("@/postgres?", f"@/{name}?")

    def schema(self, name: str) -> str:
        """The database's schema as text, the CLI's own migration table aside."""
        options = ["--schema-only", "--restrict-key=kiwi", "--exclude-schema=supabase_migrations"]
        done = subprocess.run(
            [binaries() / "pg_dump", *options, self.admin(name)], check=True, capture_output=True, text=True
        )
        return done.stdout


class Supabase:
    """The CLI in a copy of the project folder, in an empty home."""

    def __init__(self, folder: Path) -> None:
        if not PROGRAM.exists():
            pytest.skip("the Supabase CLI is not installed here (it wants Node): make .venv/supabase")
        self.folder, self.home = folder / "supabase", folder / "home"
        self.home.mkdir()
        shutil.copytree(ROOT / "supabase", self.folder, ignore=shutil.ignore_patterns(".temp", "__pycache__"))

    def run(self, *arguments: str, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "DO_NOT_TRACK": "1"}
        environment |= {"SUPABASE_TELEMETRY_DISABLED": "1", "SUPABASE_NO_UPDATE_NOTIFIER": "1"}
        done = subprocess.run(
            [PROGRAM, *arguments, "--yes", "--workdir", self.folder.parent],
            env=environment, cwd=self.folder.parent, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120,
        )  # fmt: skip
        if expect is not None:
            assert done.returncode == expect, done.stdout + done.stderr
        return done

    def push(self, url: str, *more: str, expect: int | None = 0) -> str:
        done = self.run("db", "push", f"--remote={url}", *more, expect=expect)
        return done.stdout + done.stderr

    def advisors(self, url: str, *more: str, expect: int | None = 0) -> list[dict[str, str]]:
        """What the advisors find at warn or worse."""
        options = ["--level=warn", "--fail-on=warn", "--output-format=json", *more]
        done = self.run("db", "advisors", f"--remote={url}", *options, expect=expect)
        return _findings(done.stdout)


def _findings(printed: str) -> list[dict[str, str]]:
    start = min((at for at in (printed.find("["), printed.find("{")) if at >= 0), default=-1)
    told = json.loads(printed[start:]) if start >= 0 else []
    return told if isinstance(told, list) else list(told.get("results", told.get("lints", [])))
