"""What a server says of itself names the tools that are there, and no others."""

from __future__ import annotations

import json
import re

import pytest

from kiwi_rag.errors import UsageError
from kiwi_rag.integrations.ai_clients import agent_instructions
from kiwi_rag.mcp.stdio import initialize_response
from kiwi_rag.mcp.toolsets import DEFAULT, INSTRUCTIONS, TOOLSETS, instructions, load, parse_names

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
