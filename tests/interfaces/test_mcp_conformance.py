"""The protocol's own suite against `kiwi mcp --http`, and its inspector against `kiwi mcp`."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.interfaces import node
from tests.interfaces.conftest import Kiwi
from tests.interfaces.mcp_server import serving

pytestmark = node.needs_node_modules

NOT_APPLICABLE = tomllib.loads((Path(__file__).parent / "not_applicable.toml").read_text())["group"]
REVISIONS = ("2025-11-25", "2026-07-28")
MUST_PASS = {
    "2025-11-25": {
        "server-initialize", "ping", "tools-list", "resources-list", "prompts-list", "server-session-lifecycle",
        "dns-rebinding-protection",
    },
    "2026-07-28": {
        "server-stateless", "tools-list", "resources-list", "prompts-list", "caching", "http-header-validation",
        "dns-rebinding-protection", "sep-2164-resource-not-found",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def url(acme: Kiwi):
    with serving(acme) as url:
        yield url


@pytest.mark.parametrize("revision", REVISIONS)
def test_what_a_revision_requires_of_a_server_like_ours_is_met(url: str, revision: str, tmp_path: Path) -> None:
    arguments = ["server", "--url", url, "--requirements", revision, "-o", str(tmp_path)]
    run = node.run(node.CONFORMANCE, *arguments, home=tmp_path)
    checks = read_checks(tmp_path)
    failed = {name for name, status in checks.items() if status not in {"SUCCESS", "INFO", "SKIPPED"}}
    groups = [group for group in NOT_APPLICABLE if revision in group["revisions"]]
    listed = {name for group in groups for name in group["checks"]}
    assert failed - listed == set(), run.stdout[-4000:]
    assert {name for name in listed if name in checks} == failed, "a check that is listed as not applicable passes"
    passed = {name.partition(":")[0] for name, status in checks.items() if status == "SUCCESS"}
    assert MUST_PASS[revision] <= passed
    assert not {name.partition(":")[0] for name in failed} & MUST_PASS[revision] - {"server-stateless"}


def test_what_is_not_applicable_is_listed_with_its_reason_once() -> None:
    named = [
        (revision, check) for group in NOT_APPLICABLE for revision in group["revisions"] for check in group["checks"]
    ]
    assert len(named) == len(set(named))
    assert all(len(group["reason"]) > 40 for group in NOT_APPLICABLE)


def read_checks(folder: Path) -> dict[str, str]:
    """Return the status of each check that ran, by ``scenario:check``."""
    statuses = {}
    for path in folder.glob("**/checks.json"):
        scenario = re.fullmatch(r"server-(.+?)-\d{4}-\d\d-\d\dT.*", path.parent.name)
        assert scenario, path
        for check in json.loads(path.read_text()):
            statuses[f"{scenario[1]}:{check['id']}"] = check["status"]
    return statuses


def test_the_inspector_lists_and_calls_the_tools_over_stdio(acme: Kiwi, tmp_path: Path) -> None:
    environment = acme.environment()
    set_there = [part for name, value in environment.items() if name != "PATH" for part in ("-e", f"{name}={value}")]
    command = [sys.executable, "-m", "kiwi_rag.cli", "--project", str(acme.cwd), "mcp"]
    inspect = lambda *arguments: node.run(  # noqa: E731
        node.INSPECTOR, "--cli", *set_there, *command, *arguments, home=tmp_path
    )
    run = inspect("--method", "tools/list")
    assert run.returncode == 0, run.stderr
    tools = {tool["name"]: tool for tool in json.loads(run.stdout)["tools"]}
    items = {"kiwi_search", "kiwi_get", "kiwi_validate", "kiwi_status"}
    documents = {"search_markdown", "reindex_documents", "update_files"}  # acme is a project
    assert set(tools) == items | {"workspace_search", "workspace_index_stats"} | documents
    assert tools["kiwi_search"]["outputSchema"]["type"] == "object"
    run = inspect("--method", "tools/call", "--tool-name", "kiwi_search", "--tool-arg", "query=undo a bad release")
    assert run.returncode == 0, run.stderr
    hits = json.loads(run.stdout)["structuredContent"]["hits"]
    assert "acme/deploy/rollback" in {hit["item_id"] for hit in hits}
