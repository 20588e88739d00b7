"""What a server says of itself names the tools that are there, and no others."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kiwi_rag.errors import UsageError
from kiwi_rag.integrations.ai_clients import agent_instructions
from kiwi_rag.mcp.server import listed_tool
from kiwi_rag.mcp.stdio import initialize_response
from kiwi_rag.mcp.toolsets import DEFAULT, INSTRUCTIONS, TOOLSETS, instructions, load, parse_names
from tests.interfaces.mcp_schemas import WHOLE

OFFERED = ["items", "workspace", "documents", "items,workspace", "workspace,documents", "items,workspace,documents"]
EVERY_TOOL = {tool.name for tool in load(",".join(TOOLSETS), allow_write=True).tools}


@pytest.mark.parametrize("text", OFFERED)
def test_instructions_and_agents_files_name_tools_that_are_offered(text: str) -> None:
    offered = load(text)
    there = {tool.name for tool in offered.tools}
    for told in (instructions(offered.names), agent_instructions(text)):
        spoken = set(re.findall(r"[a-z]+(?:_[a-z]+)+", told))
        assert spoken <= there, spoken - there
        assert spoken & EVERY_TOOL


def test_every_toolset_is_told_of() -> None:
    assert set(INSTRUCTIONS) == set(TOOLSETS)
    assert parse_names(DEFAULT) == ["items", "workspace"]


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
    assert refused.value.hint == "choose from items, workspace, documents"


def test_the_default_list_of_tools_takes_at_most_8_kb() -> None:
    listed = [
        listed_tool(tool).model_dump(by_alias=True, exclude_none=True, mode="json") for tool in load(DEFAULT).tools
    ]
    assert len(json.dumps(listed, separators=(",", ":"))) <= 8_000


def type_of(schema: dict[str, Any]) -> Any:
    return [one["type"] for one in schema["anyOf"]] if "anyOf" in schema else schema["type"]


def test_a_listed_schema_has_every_member_of_the_whole_one_with_its_type() -> None:
    assert set(WHOLE) == EVERY_TOOL
    for tool in load(",".join(TOOLSETS), allow_write=True).tools:
        whole = {name: {"type": type_of(schema)} for name, schema in WHOLE[tool.name]["properties"].items()}
        assert listed_tool(tool).output_schema == {"type": "object", "properties": whole}
    members = load("items").tools[2].output_schema["properties"]
    assert (members["version"], members["permissions"]) == ({"type": ["string", "null"]}, {"type": "array"})


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
