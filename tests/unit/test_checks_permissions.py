"""Step 4: what a directive may ask for, and what a script must declare."""

from __future__ import annotations

import pytest

from kiwi_rag.formats import parse_item
from kiwi_rag.model import Finding
from kiwi_rag.model.refs import ItemType
from kiwi_rag.validation import permissions


def script(code: str, declared: str = "[]") -> list[Finding]:
    outcome = parse_item(ItemType.SCRIPT, "a", f'"""d"""\n__permissions__ = {declared}\n{code}\n')
    assert outcome.item is not None, outcome.findings
    return permissions.check_permissions(outcome.item, "a.py")


def directive(inner: str) -> list[tuple[str, str]]:
    content = f"```xml\n<directive name='a' version='1.0.0'><permissions>{inner}</permissions></directive>\n```\n"
    outcome = parse_item(ItemType.DIRECTIVE, "a", content)
    assert outcome.item is not None, outcome.findings
    return [(f.code, f.severity) for f in permissions.check_permissions(outcome.item)]


def needs(code: str) -> set[str]:
    return {f.message.partition("permission '")[2].partition("'")[0] for f in script(code)}


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess",
        "import subprocess as s\ns.run(['x'])",
        "from subprocess import run as r\nr('x')",
        "from subprocess import *",
        "import os\nos.system('x')",
        "import os as o\no.system('x')",
        "from os import system\nsystem('x')",
        "from os import system as s",
        "from os import *\nsystem('x')",
        "import os\nrun = os.popen\nrun('x')",
        "import os\no = os\np = o\np.system('x')",
        "import os\ngetattr(os, 'system')('x')",
        "import os\ngetattr(os, 'sys' + 'tem')('x')",
        "import os\nvars(os)['system']('x')",
        "import os\nos.__dict__['system']('x')",
        "import sys\nsys.modules['os'].system('x')",
        "__import__('os').system('x')",
        "__import__('subprocess').run('x')",
        "import importlib\nimportlib.import_module('subprocess').run('x')",
        "from importlib import import_module as load\nload('subprocess')",
        "import importlib as i\ni.import_module('sub' + 'process')",
        "import posix\nposix.system('x')",
        "def f():\n    import os\n    os.execv('/bin/sh', [])",
        "import asyncio\nasyncio.create_subprocess_shell('x')",
        "(o := __import__('os')).system('x')",
        "import os as x\nimport json as x\nx.system('x')",
        "import operator, os\noperator.attrgetter('path', 'system')(os)",
        "from operator import attrgetter as a\nlist(map(a('os.system'), [1]))",
    ],
)
def test_starting_a_process_must_be_declared(code: str) -> None:
    assert "subprocess" in needs(code)


@pytest.mark.parametrize(
    "code",
    [
        "eval('1')",
        "e = eval\ne('1')",
        "if False:\n    eval = len\neval('1')",
        "exec('x = 1')",
        "code = compile('1', '', 'eval')",
        "map(compile('1', '', 'eval').replace, ['1'])",
        "c = compile\nc('1', '', 'eval').co_code",
        "from builtins import exec as compile\ncompile('1')",
        "import builtins\ncompile = builtins.exec\ncompile('1')",
        "import builtins\nbuiltins.eval('1')",
        "__builtins__.eval('1')",
        "__builtins__['eval']('1')",
        "globals()['__builtins__']['eval']('1')",
        "import builtins\ngetattr(builtins, 'ev' + 'al')('1')",
        "import builtins, sys\ngetattr(builtins, sys.argv[1])",
        "import sys\n__import__(sys.argv[1])",
        "import importlib, sys\nimportlib.import_module(sys.argv[1])",
        "().__class__.__base__.__subclasses__()",
        "(lambda: 0).__globals__",
        "import pickle\npickle.loads(b'')",
        "map(eval, ['1'])",
        "import timeit\ntimeit.timeit('1')",
        "from timeit import Timer",
        "import operator\noperator.attrgetter('ev' + 'al')(__builtins__)",
        "import operator, sys\noperator.attrgetter(sys.argv[1])(sys)",
        "from operator import methodcaller as m, attrgetter\nm('exec', '1')(__builtins__)",
    ],
)
def test_running_what_is_made_at_run_time_must_be_declared(code: str) -> None:
    assert "eval" in needs(code)


@pytest.mark.parametrize(
    "code",
    [
        "import socket",
        "from socket import create_connection",
        "import urllib.request",
        "from urllib import request",
        "from urllib.request import urlopen",
        "import http.client as h",
        "import requests",
        "import httpx as x\nx.get('https://example.org')",
        "import asyncio\nasyncio.open_connection('h', 1)",
        "import webbrowser\nwebbrowser.open('https://example.org/?q=1')",
    ],
)
def test_the_network_must_be_declared(code: str) -> None:
    assert "network" in needs(code)


@pytest.mark.parametrize(
    "code",
    [
        "open('a', 'w')",
        "open('a', mode='r+b')",
        "import sys\nopen('a', sys.argv[1])",
        "import io\nio.open('a', 'x')",
        "from pathlib import Path\nPath('a').write_text('x')",
        "from pathlib import Path\nPath('a').open('a')",
        "from pathlib import Path\nPath('a').unlink()",
        "import os\nos.remove('a')",
        "from os import rename as r\nr('a', 'b')",
        "import shutil\nshutil.rmtree('a')",
        "from shutil import rmtree",
    ],
)
def test_writing_files_must_be_declared(code: str) -> None:
    assert "write" in needs(code)


@pytest.mark.parametrize(
    "code", ["import ctypes", "import sqlite3\nsqlite3.connect('a').load_extension('b')", "import _imp"]
)
def test_native_code_must_be_declared(code: str) -> None:
    assert needs(code) == {"native"}


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.environ.get('A')",
        "from os import environ",
        "import os as o\no.getenv('A')",
        "import os\ngetattr(os, 'environ')['A']",
        "import dotenv",
    ],
)
def test_the_environment_must_be_declared(code: str) -> None:
    assert needs(code) == {"environment"}
    assert script(code, '["env"]') == []


def test_a_finding_says_that_a_permission_is_no_sandbox() -> None:
    assert all("no sandbox" in finding.hint for finding in script("import ctypes"))


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.path.join('a', 'b')",
        "from operator import attrgetter, methodcaller\nattrgetter('name')\nmethodcaller('replace', 'a', 'b')",
        "from timeit import default_timer",
        "open('a')\nopen('a', 'rb')\nopen('a', encoding='w')",
        "import json, re, sys, datetime, urllib.parse\nre.compile('x')\nsys.argv\n'a'.replace('a', 'b')",
        "from pathlib import Path\nPath('a').read_text()\nPath('a').open()",
        "import importlib\nimportlib.import_module('json')",
        "def evaluate(): ...\nevaluate()",
        "try:\n    compile('1', 'a.py', 'exec')\nexcept SyntaxError:\n    raise",
        "import builtins\nbuiltins.compile('1', 'a.py', 'exec')",
        "getattr(object(), 'x' + str(1))",
        "from re import compile\ncompile('x')",
        "def f(code, requests, socket):\n    return code, requests.total, socket",
        "'eval subprocess os.system'",
        "import os\ngetattr(os, 'sep')",
    ],
)
def test_ordinary_code_needs_nothing(code: str) -> None:
    assert script(code) == []


def test_the_finding_names_line_use_and_remedy() -> None:
    (finding,) = script("x = 1\nimport subprocess")
    assert (finding.code, finding.line, finding.path) == ("permissions.undeclared", 4, "a.py")
    assert '"subprocess"' in finding.hint


@pytest.mark.parametrize(
    ("declared", "code"),
    [
        ('["subprocess"]', "import subprocess"),
        ('("shell", "write")', "import os\nos.system('x')\nopen('a', 'w')"),
        ('["network"]', "import requests"),
        ('["eval"]', "eval('1')"),
    ],
)
def test_what_is_declared_passes(declared: str, code: str) -> None:
    assert script(code, declared) == []


def test_a_declared_wildcard_is_a_warning_and_an_unknown_word_an_error() -> None:
    assert [(f.code, f.severity) for f in script("import socket", '["*"]')] == [("permissions.wildcard", "warning")]
    assert [(f.code, f.severity) for f in script("", '["teleport"]')] == [("permissions.unknown", "error")]


def test_directive_permissions_in_known_words_pass() -> None:
    inner = (
        "<execute><tool>acme.*</tool><directive>a/b</directive></execute><read resource='filesystem' path='src/**'/>"
    )
    assert directive(inner) == []


@pytest.mark.parametrize("inner", ["*", "<fetch>*</fetch>"])
def test_a_bare_star_is_a_warning(inner: str) -> None:
    assert directive(inner) == [("permissions.wildcard", "warning")]


def test_unknown_verbs_and_resources_are_refused() -> None:
    assert directive("<conquer><tool>x</tool></conquer>") == [("permissions.verb", "error")]
    assert directive("<execute><planet>x</planet></execute>") == [("permissions.resource", "error")]
