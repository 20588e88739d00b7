"""Editing clients' files as text: what is not Kiwi's stays byte for byte, and each result is what its parser reads."""

from __future__ import annotations

import json
import random
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from kiwi_rag.integrations import config_edit
from kiwi_rag.integrations.ai_clients import (
    CLIENTS,
    VERB,
    agent_instructions,
    instructions_block,
    server_entry,
    starting_command,
)
from kiwi_rag.integrations.config_edit import ConfigEntries, Malformed, NameTaken, starts_kiwi

ARGS = ["mcp", "--toolsets", "items,skills,workspace"]
ENTRY = {"type": "stdio", "command": "kiwi", "args": ARGS}
JSON = ConfigEntries(config_edit.JSON, "mcpServers", [server_entry(["kiwi", "mcp"], {"type": "stdio"})])
TOML = ConfigEntries(config_edit.TOML, "mcp_servers", [server_entry(["kiwi", "mcp"], {})])
INSTRUCTIONS = agent_instructions()
BEGIN, _, END = instructions_block().lines.splitlines()

COMMENTED = """{
    // Ours, see the wiki.
    "inputs": [1, 2,], /* kept */
    "mcpServers": {
        // the forge
        "github": {"command": "npx", "args": ["-y", "gh // not a comment"]}, // needs a token
        /* the
           browser */
        "browser": {"command": "b"} // last
    },
    "other": {"a,b": "}"}
}
"""


def plain(text: str) -> dict:
    """Read JSON with comments by another way than the module's: a YAML parser, which takes trailing commas."""
    kept = re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', lambda m: m[1] or "", text, flags=re.DOTALL)
    return yaml.safe_load(re.sub(r"\s", " ", kept))


JSONC_TEXTS = {
    "commented": COMMENTED,
    "empty object": "{}\n",
    "no servers yet": '{\n\t"theme": "dark"\n}\n',
    "on one line": '{"a": 1, "mcpServers": {"x": {"command": "x"}}}',
    "empty servers": '{\n  "mcpServers": {}\n}\n',
    "empty servers with a comment": '{\n  "mcpServers": { // none yet\n  }\n}\n',
    "a block comment only": '{"mcpServers": { /* none */ }}',
    "trailing commas": '{\n  "mcpServers": {\n    "x": {"command": "x",},\n  },\n}',
    "comma on the next line": '{\n  "mcpServers": {\n    "x": {"command": "x"}\n    , "y": {"command": "y"}\n  }\n}',
    "a comment before the comma": '{\n  "mcpServers": {\n    "x": {"command": "x"} /* why */ ,\n  }\n}',
    "a comment ends it": '{\n  "mcpServers": {\n    "x": {"command": "x"}\n    // more to come\n  }\n}\n// end',
    "other alphabets": '{\n  "mcpServers": {"日本": {"command": "é\\u00e9 \\" // {"}}\n}\n',
    "null in place of an entry": '{\n  "mcpServers": {\n    "kiwi": null // off\n  }\n}\n',
    "twice the same key": '{"mcpServers": {"x": {"command": "1"}}, "mcpServers": {"x": {"command": "2"}}}',
}


@pytest.mark.parametrize("text", JSONC_TEXTS.values(), ids=JSONC_TEXTS)
def test_the_server_goes_in_and_out_of_json_and_nothing_else_moves(text: str) -> None:
    edited = JSON.put(text)
    expected = plain(text)
    expected.setdefault("mcpServers", {})["kiwi"] = ENTRY
    assert plain(edited) == expected
    assert JSON.put(edited) == edited, "the second time changes something"
    left = JSON.take(edited)
    del expected["mcpServers"]["kiwi"]
    assert plain(left) == expected
    assert JSON.take(left) == left


def test_every_line_of_a_commented_file_stays_and_comments_stay_where_they_were() -> None:
    edited = JSON.put(COMMENTED).splitlines()
    assert edited[:8] == COMMENTED.splitlines()[:8]
    assert edited[8] == '        "browser": {"command": "b"}, // last'
    assert edited[9] == '        "kiwi": {', "the new entry has the file's own indent"
    assert edited[-4:] == ["        }", *COMMENTED.splitlines()[-3:]]
    assert JSON.take(JSON.put(COMMENTED)) == COMMENTED


def test_a_comma_at_the_end_stays_at_the_end() -> None:
    edited = JSON.put('{\n  "mcpServers": {\n    "x": {}, // x\n  },\n}')
    assert edited.startswith('{\n  "mcpServers": {\n    "x": {}, // x\n    "kiwi": {')
    assert edited.endswith("\n    },\n  },\n}")


def test_json_without_servers_gets_them_at_its_end_with_its_own_indent() -> None:
    edited = JSON.put('{\n\t"theme": "dark"\n}\n')
    assert edited.startswith('{\n\t"theme": "dark",\n\t"mcpServers": {\n\t\t"kiwi": {\n\t\t\t"type": "stdio",')
    assert edited.endswith("\n\t\t}\n\t}\n}\n")


class Scribbler:
    """Writes JSON with comments as nobody would: the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def space(self) -> str:
        choices = [" ", "\n", "\n    ", '// } " ,\n', "/* { ,\n */", ""]
        return "".join(self.random.choices(choices, k=self.random.randint(0, 3)))

    def value(self, depth: int) -> str:
        plain = ["7", '"//x"', '"/* y */"', '"q\\"{,}"', "true", "[]", f"[{self.space()}1{self.space()},]"]
        return self.object(depth - 1) if depth and self.random.random() < 0.5 else self.random.choice(plain)

    def object(self, depth: int, *more: str) -> str:
        keys = self.random.sample(['"a"', '"b,"', '"//c"', '"d\\""'], self.random.randint(0, 3))
        members = [f"{key}{self.space()}:{self.space()}{self.value(depth)}" for key in keys] + [*more]
        self.random.shuffle(members)
        inner = ",".join(self.space() + member + self.space() for member in members)
        comma = "," if members and self.random.random() < 0.3 else ""
        return "{" + inner + comma + self.space() + "}"

    def text(self) -> str:
        own = ['"kiwi": {"command": "/old/kiwi", "args": ["mcp"]}'] if self.random.random() < 0.5 else []
        servers = [f'"mcpServers":{self.space()}{self.object(2, *own)}'] if self.random.random() < 0.7 else []
        return self.space() + self.object(2, *servers) + self.space()


@pytest.mark.parametrize("seed", range(200))
def test_whatever_the_layout_only_the_entry_changes(seed: int) -> None:
    text = Scribbler(seed).text()
    wanted = plain(text)
    wanted.setdefault("mcpServers", {})["kiwi"] = ENTRY
    edited = JSON.put(text)
    assert plain(edited) == wanted
    assert JSON.put(edited) == edited
    del wanted["mcpServers"]["kiwi"]
    assert plain(JSON.take(edited)) == wanted
    assert {"mcpServers": {}, **plain(JSON.take(text))} == wanted


@pytest.mark.parametrize("place", ["first", "middle", "last"])
@pytest.mark.parametrize("trailing", ["", ","])
def test_an_entry_is_taken_out_wherever_the_client_has_put_it(place: str, trailing: str) -> None:
    own = '"kiwi": {"command": "/opt/kiwi", "args": ["mcp"]}'
    others = ['// a\n    "a": {"command": "a"}', '"b": {"command": "b"} ']
    others.insert({"first": 0, "middle": 1, "last": 2}[place], own)
    text = '{\n  "mcpServers": {\n    ' + ",\n    ".join(others) + trailing + "\n  }\n}\n"
    left = JSON.take(text)
    assert plain(left) == {"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}}
    assert "kiwi" not in left
    assert '// a\n    "a"' in left


def test_a_comment_above_the_entry_does_not_swallow_the_brace_behind_it() -> None:
    text = '{"mcpServers": {"a": {},\n// ours\n"kiwi": {"command": "kiwi", "args": ["mcp"]}}}'
    assert plain(JSON.take(text)) == {"mcpServers": {"a": {}}}


def test_a_renewed_entry_keeps_what_somebody_added_to_it() -> None:
    text = (
        '{"mcpServers": {\n  "kiwi": {"command": "/old/venv/bin/kiwi", // mine\n'
        '    "args": ["mcp", "--allow-write"], "env": {"KIWI_QUIET": "1"}},\n  "x": {}\n}}'
    )
    edited = JSON.put(text)
    wanted = {**ENTRY, "args": [*ARGS, "--allow-write"], "env": {"KIWI_QUIET": "1"}}
    assert plain(edited) == {"mcpServers": {"kiwi": wanted, "x": {}}}
    assert "// mine" in edited
    assert JSON.put(edited) == edited


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ('{\n  "mcpServers": {\n', "property name", 3),
        ('{\n  "a": 1\n  "b": 2\n}', "',' delimiter", 3),
        ('{"a": NaN}', "NaN is not JSON", 1),
        ("[1, 2]", "not an object", 1),
        ('{"mcpServers": []}', "mcpServers is not an object", 1),
        ("{ /* no end", "property name", 1),
        ('{"a": "\n"}', "control character", 1),
        ("{'a': 1}", "property name", 1),
        ('{"a": 1} {"b": 2}', "Extra data", 1),
        ("[" * 100_000, "", 1),
    ],
)
def test_malformed_json_is_refused_with_its_line(text: str, what: str, line: int) -> None:
    for edit in (JSON.put, JSON.take):
        with pytest.raises(Malformed) as refused:
            edit(text)
        assert what in refused.value.what
        assert refused.value.line == line


def test_a_megabyte_of_opened_comments_is_refused_at_once() -> None:
    with pytest.raises(Malformed):
        JSON.put("{" + "/* " * 300_000)


@pytest.mark.parametrize(
    ("editor", "text"),
    [
        (JSON, '{"mcpServers": {"kiwi": {"command": "fruit", "args": ["kiwi"]}}}'),
        (TOML, '[mcp_servers.kiwi]\ncommand = "fruit"\nargs = ["kiwi"]\n'),
    ],
    ids=["json", "toml"],
)
def test_another_server_of_the_same_name_is_neither_overwritten_nor_taken_out(editor, text: str) -> None:
    with pytest.raises(NameTaken):
        editor.put(text)
    assert editor.take(text) == text


CONFIG = """# my settings
model = "o5"   # the big one

[mcp_servers.github]
command = "npx"
args = [
  "-y", # yes
  "gh",
]

# how it looks
[tui]
theme = "dark"
"""

TOML_TEXTS = {
    "empty": "",
    "commented": CONFIG,
    "no end of line": 'model = "o5"',
    "inline servers": 'mcp_servers = { github = { command = "npx" } }\nmodel = "o5"\n',
    "empty inline servers": "mcp_servers = {}\n",
    "dotted keys": 'mcp_servers.github.command = "npx"\nmodel = "o5"\n',
    "a table of servers": '[mcp_servers]\ngithub = { command = "npx" } # x\n[tui]\na = 1\n',
    "a text of several lines": 'text = """\n[mcp_servers.kiwi]\n"""\n',
}


@pytest.mark.parametrize("text", TOML_TEXTS.values(), ids=TOML_TEXTS)
def test_the_server_goes_in_and_out_of_toml_and_nothing_else_moves(text: str) -> None:
    edited = TOML.put(text)
    expected = tomllib.loads(text)
    expected.setdefault("mcp_servers", {})["kiwi"] = {"command": "kiwi", "args": ARGS}
    assert tomllib.loads(edited) == expected
    assert TOML.put(edited) == edited
    left = TOML.take(edited)
    del expected["mcp_servers"]["kiwi"]
    assert {"mcp_servers": {}, **tomllib.loads(left)} == expected
    assert TOML.take(left) == left


def test_a_new_table_stands_at_the_end_and_goes_out_without_a_trace() -> None:
    assert (
        TOML.put(CONFIG)
        == CONFIG + '\n[mcp_servers.kiwi]\ncommand = "kiwi"\nargs = ["mcp", "--toolsets", "items,skills,workspace"]\n'
    )
    assert TOML.take(TOML.put(CONFIG)) == CONFIG


def test_a_table_in_the_middle_goes_out_and_comments_of_the_next_one_stay() -> None:
    own = (
        '[mcp_servers."kiwi"]\ncommand = "/opt/kiwi"\n# only these\nargs = [\n  "mcp",\n]\n'
        '[mcp_servers.kiwi.env]\nA = "[b]"\n'
    )
    assert TOML.take(CONFIG.replace("# how it looks", f"{own}\n# how it looks")) == CONFIG


def test_a_renewed_table_keeps_comments_and_added_keys() -> None:
    text = (
        '[mcp_servers.kiwi] # the team\'s\ncommand = "/old/kiwi" # moved\nargs = ["mcp", "--toolsets", '
        '"items,skills,workspace", "--allow-write"]\n'
        "startup_timeout_sec = 20\n\n# next\n[tui]\n"
    )
    assert TOML.put(text) == text.replace("/old/kiwi", "kiwi")


@pytest.mark.parametrize(
    ("text", "line"),
    [("a = 1\nb = = 2\n", 2), ("[a\n", 1), ("a = 1\na = 2\n", 2), ("mcp_servers = 1\n", 1), ('x = "\n', 1)],
)
def test_malformed_toml_is_refused_with_its_line(text: str, line: int) -> None:
    for edit in (TOML.put, TOML.take):
        with pytest.raises(Malformed) as refused:
            edit(text)
        assert refused.value.line == line


RULES = ["", "# Rules\n\nBe kind.\n", "# Rules", "\n\n", "a\n\n\n"]


@pytest.mark.parametrize("text", RULES)
def test_the_paragraph_goes_in_once_and_out_again(text: str) -> None:
    block = instructions_block()
    edited = block.put(text)
    assert edited.count(BEGIN) == edited.count(END) == edited.count(INSTRUCTIONS) == 1
    assert edited.startswith(text.rstrip("\n"))
    assert block.put(edited) == edited
    assert block.take(edited).rstrip("\n") == text.rstrip("\n")
    assert block.take(text) == text


def test_an_old_paragraph_is_renewed_where_it_stands_and_the_lines_around_it_stay() -> None:
    old = "# Rules\n\n<!-- kiwi: begin. Older words. -->\nAsk it.\n<!-- kiwi: end -->\nBe kind.\n"
    assert instructions_block().put(old) == f"# Rules\n\n{BEGIN}\n{INSTRUCTIONS}\n{END}\nBe kind.\n"
    assert instructions_block().take(old) == "# Rules\nBe kind.\n"


@pytest.mark.parametrize("text", [f"a\n{BEGIN}\nb\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n"])
def test_marks_that_are_no_pair_are_refused(text: str) -> None:
    for edit in (instructions_block().put, instructions_block().take):
        with pytest.raises(Malformed, match="one pair"):
            edit(text)


@pytest.mark.parametrize("name", CLIENTS)
def test_a_new_file_of_rules_has_a_head_that_its_client_can_read(name: str) -> None:
    for level in (CLIENTS[name].user, CLIENTS[name].project):
        if level and level.head:
            _, head, body = instructions_block(head=level.head).put("").split("---\n", 2)
            assert yaml.safe_load(head) in (
                {"description": "Ask Kiwi before reading files", "alwaysApply": True},
                {"description": "Ask Kiwi before reading files", "applyTo": "**"},
                {"name": "Kiwi", "alwaysApply": True},
            )
            assert body.startswith(f"\n{BEGIN}\n")


def test_only_what_starts_kiwi_counts_as_kiwi() -> None:
    assert starts_kiwi({"command": r"C:\Tools\Kiwi.exe", "args": ["--project", "x", "mcp"]}, VERB)
    assert starts_kiwi({"command": "/usr/bin/python3", "args": ["-m", "kiwi_rag.cli", "mcp"]}, VERB)
    others = [None, [], "kiwi mcp", {"command": "kiwi"}, {"command": "kiwi", "args": ["serve"]}, {"args": ["mcp"]}]
    assert not any(starts_kiwi(other, VERB) for other in others)


def test_the_command_is_a_bare_name_only_for_clients_that_see_the_path(tmp_path: Path, monkeypatch) -> None:
    program = tmp_path / "kiwi"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert starting_command(str(tmp_path), by_name=True) == ["kiwi"]
    assert starting_command(str(tmp_path), by_name=False) == [str(program)]
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert starting_command(str(tmp_path), by_name=True) == [str(program)], "a virtual environment is not for all"
    assert starting_command(str(tmp_path / "nothing"), by_name=True) == [sys.executable, "-P", "-m", "kiwi_rag.cli"]


def test_strict_json_stays_strict() -> None:
    assert json.loads(JSON.put('{"a": 1}')) == {"a": 1, "mcpServers": {"kiwi": ENTRY}}
    assert json.loads(JSON.put("")) == {"mcpServers": {"kiwi": ENTRY}}
