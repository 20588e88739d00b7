"""The judged workspace of tests/data is what its judgements say, and its neighbour holds what readers stumble over."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pathspec
import pytest
import yaml

from tests.shared import ROOT

WORKSPACE = ROOT / "tests/data/workspace"
NASTY = ROOT / "tests/data/workspace-nasty"
QUERIES = [
    json.loads(line) for line in (ROOT / "tests/data/workspace-queries.jsonl").read_text(encoding="utf-8").splitlines()
]
KINDS = {
    "endpoint", "callers", "decision", "event", "schema", "code", "identifier", "diagram", "runbook", "concept",
    "ownership",
}  # fmt: skip
METHODS = {"get", "put", "post", "delete", "patch"}


def files() -> list[str]:
    """Return every path below the workspace."""
    return sorted(path.relative_to(WORKSPACE).as_posix() for path in WORKSPACE.rglob("*") if path.is_file())


def config(name: str) -> Any:
    """Read a file of metadata."""
    return yaml.safe_load((WORKSPACE / "config" / name).read_text(encoding="utf-8"))


@cache
def specs() -> dict[str, Any]:
    """Return the specification of each service; JSON is YAML, too."""
    folder = WORKSPACE / "architecture/specs"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return {path.stem: yaml.load(path.read_text(encoding="utf-8"), loader) for path in folder.iterdir()}


def operations(spec: Any) -> Iterator[dict[str, Any]]:
    """Yield the operations of a specification."""
    for item in spec["paths"].values():
        yield from (operation for method, operation in item.items() if method in METHODS)


def judged(query: str) -> set[str]:
    """Return the judgement of a query."""
    return set(next(row for row in QUERIES if row["query"] == query)["relevant"])


def test_every_judgement_names_files_that_are_there_and_not_ignored() -> None:
    ignored = pathspec.PathSpec.from_lines("gitignore", (WORKSPACE / ".kiwiignore").read_text().splitlines())
    findable = {path for path in files() if not ignored.match_file(path)}
    for row in QUERIES:
        assert row["relevant"], row["query"]
        assert set(row["relevant"]) <= findable, row["query"]


def test_queries_are_told_apart_and_split() -> None:
    assert {row["kind"] for row in QUERIES} == KINDS
    for member in ("id", "query"):
        assert max(Counter(row[member] for row in QUERIES).values()) == 1
    splits = Counter(row["split"] for row in QUERIES)
    assert set(splits) == {"test", "tune"}
    assert splits["test"] >= 30
    assert splits["tune"] >= 10


def test_most_queries_cannot_be_answered_by_listing_many_files() -> None:
    """A judgement with many files makes the first three places easy; half of the queries have one or two."""
    assert sum(len(row["relevant"]) <= 2 for row in QUERIES) > len(QUERIES) / 2


def test_the_workspace_is_small_and_of_many_kinds() -> None:
    paths = files()
    assert 90 <= len(paths) <= 140
    assert sum((WORKSPACE / path).stat().st_size for path in paths) < 1_000_000
    counts = Counter(Path(path).suffix for path in paths)
    assert counts[".java"] >= 20
    assert counts[".puml"] >= 10
    assert {".py", ".md", ".txt", ".json", ".yaml"} <= set(counts)


def test_specifications_are_of_every_version_and_their_references_lead_somewhere() -> None:
    versions = {str(spec.get("swagger", spec.get("openapi")))[:3] for spec in specs().values()}
    assert versions == {"2.0", "3.0", "3.1"}
    for name, spec in specs().items():
        for reference in re.findall(r"#/(?:components/schemas|definitions)/(\w+)", json.dumps(spec, default=str)):
            known = spec.get("definitions") or spec["components"]["schemas"]
            assert reference in known, f"{name}: {reference}"


def test_owners_dependencies_and_specifications_name_the_same_services() -> None:
    assert set(config("services.yaml")) == set(specs())
    for service, entry in config("services.yaml").items():
        assert (WORKSPACE / entry["spec"]).stem == service
        assert entry["team"] in config("teams.yaml")
    for service, entry in config("dependencies.yaml").items():
        assert {service, *(call["service"] for call in entry["calls"])} <= set(specs())


def test_the_settings_say_the_domains_that_the_owners_say() -> None:
    settings = yaml.safe_load((WORKSPACE / ".ai/workspace.yaml").read_text(encoding="utf-8"))
    said = {service: domain for domain, services in settings["domains"].items() for service in services}
    assert said == {service: entry["domain"] for service, entry in config("services.yaml").items()}
    for service, spec in specs().items():
        assert spec["info"].get("x-domain", said[service]) == said[service]


def test_every_call_is_of_an_operation_that_the_called_service_offers() -> None:
    offered = {name: {operation["operationId"] for operation in operations(spec)} for name, spec in specs().items()}
    for service, entry in config("dependencies.yaml").items():
        for call in entry["calls"]:
            if "status" not in call:
                assert set(call["operations"]) <= offered[call["service"]], f"{service} calls {call['service']}"


@pytest.mark.parametrize(
    ("query", "service"),
    [
        ("which services call svc-passenger-profiles", "svc-passenger-profiles"),
        ("who calls svc-manifests", "svc-manifests"),
    ],
)
def test_every_client_in_java_of_a_called_service_is_judged_to_show_a_caller(query: str, service: str) -> None:
    clients = {
        path
        for path in files()
        if path.endswith(".java") and f'"http://{service}"' in (WORKSPACE / path).read_text(encoding="utf-8")
    }
    assert clients
    assert clients <= judged(query)
    assert "config/dependencies.yaml" in judged(query)


def test_a_service_is_mentioned_in_many_files_and_called_by_three() -> None:
    """So that counting mentions does not answer who calls it."""
    name = "svc-passenger-profiles"
    callers = {
        service
        for service, entry in config("dependencies.yaml").items()
        if any(call["service"] == name for call in entry["calls"])
    }
    mentions = {path for path in files() if name in (WORKSPACE / path).read_text(encoding="utf-8")}
    assert callers == {"svc-bookings", "svc-loyalty", "svc-manifests"}
    assert len(mentions - judged(f"which services call {name}")) >= 8


def test_every_event_has_one_producer_and_a_channel() -> None:
    folder = WORKSPACE / "architecture/events"
    channels: set[str] = set()
    for path in folder.iterdir():
        for name, channel in yaml.safe_load(path.read_text(encoding="utf-8"))["channels"].items():
            channels.add(channel.get("address", name))
    assert channels >= set(config("events.yaml"))
    assert {event["producer"] for event in config("events.yaml").values()} <= set(specs())


def test_a_path_is_offered_by_several_services_so_that_it_alone_decides_nothing() -> None:
    offering = {name for name, spec in specs().items() if any("bookings" in path for path in spec["paths"])}
    assert len(offering) >= 4


def test_nasty_files_kept_their_bytes() -> None:
    """An editor or git that normalises them would take the point out of every test that reads them."""
    marked = (NASTY / "crlf-and-bom.md").read_bytes()
    assert marked.startswith(b"\xef\xbb\xbf")
    assert marked.count(b"\r\n") == marked.count(b"\n") > 5
    assert b"\n" not in (NASTY / "lone-cr.txt").read_bytes()
    assert b"\x00" in (NASTY / "nul-in-text.md").read_bytes()
    assert (NASTY / "utf-16.txt").read_bytes()[:2] == b"\xff\xfe"
    assert (NASTY / "empty.md").read_bytes() == b""
    assert (NASTY / "line-separators.md").read_text(encoding="utf-8").count("\u2028") == 1
    with pytest.raises(UnicodeDecodeError):
        (NASTY / "latin-1.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["malformed.yaml", "duplicate-keys.yaml", "open-front-matter.md"])
def test_yaml_that_the_safe_loader_refuses(name: str) -> None:
    text = (NASTY / name).read_text(encoding="utf-8")
    with pytest.raises(yaml.YAMLError):
        yaml.safe_load(text.removeprefix("---\n"))


def test_deep_files_are_deep() -> None:
    assert (NASTY / "deep-list.md").read_text().count("- ") >= 2_000
    assert (NASTY / "deep-quote.md").read_text().count(">") == 2_000
    with pytest.raises(RecursionError):
        json.loads((NASTY / "deep.json").read_text())
    assert "\n" not in (NASTY / "minified-spec.json").read_text()
