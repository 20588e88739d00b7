"""What a server says of itself names the tools that are there, and no others."""

from __future__ import annotations

import json
import re

import pytest
from mcp import types

from kiwi_rag.errors import UsageError
from kiwi_rag.integrations.ai_clients import agent_instructions, default_toolsets
from kiwi_rag.mcp.server import listed_tool
from kiwi_rag.mcp.stdio import initialize_response
from kiwi_rag.mcp.toolsets import DEFAULT, IN_PROJECT, INSTRUCTIONS, TOOLSETS, instructions, load, parse_names
from tests.interfaces.mcp_schemas import WHOLE

OFFERED = [
    "items",
    "workspace",
    "documents",
    "items,workspace",
    "workspace,documents",
    "items,workspace,documents",
    "items,skills",
    "skills",
    "items,library",
    "items,memory",
    "memory",
]
EVERY_TOOL = {tool.name for tool in load(",".join(TOOLSETS), allow_write=True).tools}


@pytest.mark.parametrize("text", OFFERED)
def test_instructions_and_agents_files_name_tools_that_are_offered(text: str) -> None:
    offered = load(text)
    there = {tool.name for tool in offered.tools}
    for told in (instructions(offered.names), agent_instructions(text)):
        spoken = set(re.findall(r"[a-z]+(?:_[a-z]+)+", told))
        assert spoken <= there, spoken - there
        assert all(
            spoken & {tool.name for tool in load(name).tools}
            for name in offered.names
            if name not in ("library", "skills")
        )


@pytest.mark.parametrize(("text", "marked"), [("skills", False), ("items,skills", True), ("memory", True)])
def test_marks_are_announced_where_text_stands_between_them(text: str, marked: bool) -> None:
    assert ("stands between marks" in instructions(parse_names(text))) == marked


def test_every_toolset_is_told_of() -> None:
    assert set(INSTRUCTIONS) == set(TOOLSETS)
    assert parse_names(DEFAULT) == ["items", "skills", "workspace"]
    assert parse_names(IN_PROJECT) == ["items", "skills", "workspace", "documents"]
    assert (default_toolsets(project=False), default_toolsets(project=True)) == (DEFAULT, IN_PROJECT)


@pytest.mark.parametrize("text", OFFERED)
def test_the_early_answer_tells_what_the_server_does(text: str) -> None:
    asked = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": asked}).encode()
    answer = initialize_response(line, parse_names(text))
    assert answer is not None
    assert answer["result"]["instructions"] == instructions(load(text).names)


@pytest.mark.parametrize("text", ["", " , ", "items,nothing"])
def test_a_toolset_that_there_is_not_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_names(text)
    assert refused.value.hint == "choose from items, skills, workspace, documents, library, answers, memory"


def test_the_default_list_of_tools_takes_at_most_8_kb() -> None:
    tools = types.ListToolsResult(tools=[listed_tool(tool) for tool in load(IN_PROJECT).tools])
    listed = tools.model_dump(by_alias=True, exclude_none=True, mode="json")["tools"]
    assert len(listed) == 9
    assert len(json.dumps({"tools": listed}, separators=(",", ":"))) <= 8_000


def test_a_listed_schema_requires_every_member_of_the_whole_one() -> None:
    assert set(WHOLE) == EVERY_TOOL
    for tool in load(",".join(TOOLSETS), allow_write=True).tools:
        listed = listed_tool(tool).output_schema
        assert listed and (listed.keys(), listed["type"]) == ({"type", "required"}, "object")
        assert sorted(listed["required"]) == sorted(WHOLE[tool.name]["properties"])
        assert len(listed["required"]) == len(set(listed["required"]))


@pytest.mark.parametrize("text", OFFERED)
def test_no_listed_tool_names_one_that_is_not_offered(text: str) -> None:
    offered = load(text).tools
    listed = json.dumps([listed_tool(tool).model_dump(mode="json") for tool in offered])
    assert {name for name in EVERY_TOOL if re.search(rf"\b{name}\b", listed)} <= {tool.name for tool in offered}


def test_limits_that_are_not_listed_hold_all_the_same() -> None:
    (search,) = (tool for tool in load("workspace").tools if tool.name == "workspace_search")
    listed = search.listed_schema["properties"]
    assert (listed["limit"], "enum" in listed["file_type"]) == ({"type": "integer", "maximum": 50, "default": 5}, False)
    assert (listed["alpha"]["maximum"], "minimum" in listed["alpha"], "maxLength" in listed["query"]) == (
        1,
        False,
        False,
    )
    for wrong in ({"limit": 0}, {"max_tokens": 10**6}, {"alpha": -1}, {"file_type": "docx"}, {"path": "x" * 2_000}):
        with pytest.raises(UsageError):
            search.parse_arguments({"query": "x", **wrong})
    assert search.parse_arguments({"query": "x"})["continuation"] == ""


def test_every_search_takes_the_arguments_of_a_search() -> None:
    common = {"query", "limit", "max_tokens", "continuation", "alpha", "explain", "since"}
    tools = {tool.name: tool for tool in load(IN_PROJECT).tools}
    for name, own in (("kiwi_search", set()), ("workspace_search", {"per_file"}), ("search_markdown", {"per_file"})):
        assert tools[name].inputs.keys() >= common | own


@pytest.mark.parametrize(
    ("name", "given", "read"),
    [
        ("kiwi_search", {"q": "x", "type": "script", "k": 2}, {"query": "x", "item_type": "script", "limit": 2}),
        ("workspace_search", {"text": "x", "type": "adr"}, {"query": "x", "file_type": "adr"}),
        ("kiwi_get", {"item_id": "a/b", "tier": "user"}, {"ref": "a/b", "source": "user"}),
        ("kiwi_validate", {"type": "script", "id": "a", "text": "x"}, {"item_type": "script", "content": "x"}),
        ("update_files", {"file_paths": ["a"]}, {"paths": ["a"]}),
    ],
)
def test_an_alias_stands_for_the_argument_that_the_tool_has(name: str, given: dict, read: dict) -> None:
    (tool,) = (one for one in load(",".join(TOOLSETS)).tools if one.name == name)
    assert tool.parse_arguments(given).items() >= read.items()
