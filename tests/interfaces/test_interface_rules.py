"""What the command line says and accepts: global options, suggestions, settings without effect, the audit log."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest

import kiwi_rag.cli
from tests.interfaces.conftest import Kiwi, note


def test_global_options_may_stand_after_the_command(ready: Kiwi):
    ready.run("add", str(ready.write("knowledge/acme/note.md", note())))
    before = ready.json("search", "staging")["hits"]
    after = json.loads(ready.run("search", "staging", "--json").stdout)["hits"]
    assert [hit["item_id"] for hit in before] == [hit["item_id"] for hit in after] == ["acme/note"]
    for command in (["list"], ["status"], ["verify"], ["keys", "list"], ["trust", "list"], ["audit", "show"]):
        assert json.loads(ready.run(*command, "--json").stdout) is not None
        between = [command[0], "--json", *command[1:]]
        assert json.loads(ready.run(*between).stdout) is not None
    assert ready.run("verify").stderr
    assert ready.run("verify", "--quiet").stderr == ready.run("verify", "-q").stderr == ""
    assert ready.run("search", "--", "--json", "staging").stdout.startswith(" 1. acme/note")


def test_an_item_that_the_index_has_already_is_called_unchanged(ready: Kiwi):
    path = str(ready.write("knowledge/acme/note.md", note()))
    assert ready.run("add", path).stdout == "added  knowledge:acme/note@1.0.0\n"
    assert ready.run("add", path).stdout == "unchanged  knowledge:acme/note@1.0.0\n"
    (row,) = ready.json("add", path)["added"]
    assert row["unchanged"] is True
    ready.write("knowledge/acme/note.md", note("1.1.0"))
    assert ready.run("add", path).stdout == "added  knowledge:acme/note@1.1.0\n"


def test_a_signer_that_is_not_trusted_gets_the_command_that_trusts_it(ready: Kiwi):
    stderr = ready.run("registry", "enrol", "eve@acme.example", expect=2).stderr
    assert "→ kiwi trust add PUBLIC_KEY --principal eve@acme.example" in stderr


def test_every_command_takes_the_global_options():
    def below(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
        yield path, command
        for name, one in getattr(command, "commands", {}).items():
            yield from below(one, f"{path} {name}")

    context = click.Context(kiwi_rag.cli.kiwi)
    roots = {name: kiwi_rag.cli.kiwi.get_command(context, name) for name in kiwi_rag.cli.kiwi.list_commands(context)}
    found = [one for name, root in roots.items() if root for one in below(root, name)]
    assert len(found) > 50
    for path, command in found:
        # click keeps the help option of the first context, and the commands are those of this process.
        own_context = click.Context(command, **kiwi_rag.cli.kiwi.context_settings)
        options = [name for parameter in command.get_params(own_context) for name in parameter.opts]
        assert {"--json", "--quiet", "-q", "--verbose", "-v", "--project"} <= set(options), path
        assert len(options) == len(set(options)), path
        assert "data and errors as JSON" not in command.get_help(own_context), path


def test_errors_follow_a_json_option_after_the_command(ready: Kiwi):
    error = json.loads(ready.run("show", "acme/none@project", "--json", expect=1).stderr)["error"]
    assert error["code"] == "not-found"
    error = json.loads(ready.run("search", "x", "--json", "--limt", "3", expect=2).stderr)["error"]
    assert (error["code"], error["message"]) == ("usage", "no such option '--limt'; did you mean '--limit'?")


def test_a_project_may_be_named_after_the_command(ready: Kiwi):
    ready.run("add", str(ready.write("knowledge/acme/note.md", note())))
    elsewhere = ready.at(ready.home / "elsewhere")
    assert elsewhere.json("list") == []
    assert len(elsewhere.json("list", "--project", str(ready.cwd))) == 1
    assert "notthere" in elsewhere.run("list", "--project", "notthere", expect=2).stderr


@pytest.mark.parametrize(
    ("mistyped", "meant"),
    [
        (["serach", "x"], "no such command 'serach'; did you mean 'search'?"),
        (["keys", "lst"], "no such command 'lst'; did you mean 'list'?"),
        (["registry", "stats"], "no such command 'stats'; did you mean 'status'?"),
        (["--jsn", "list"], "no such option '--jsn'; did you mean '--json'?"),
        (["search", "x", "--limt", "3"], "no such option '--limt'; did you mean '--limit'?"),
        (["list", "--jsno"], "no such option '--jsno'; did you mean '--json'?"),
        (["qqqqqq"], "no such command 'qqqqqq'"),
    ],
)
def test_what_is_mistyped_gets_a_suggestion(kiwi: Kiwi, mistyped: list[str], meant: str):
    stderr = kiwi.run(*mistyped, expect=2).stderr
    assert stderr.startswith(f"kiwi: {meant}\n")
    assert "--help" in stderr


SEED_003 = """\
vector_store:
  enabled: true
  backend: "chromadb"
  path: "~/.local/share/cato/vectordb"
  collection_name: "cato_memory"
  context_results: 5
  search_context_window: 3
  similarity_threshold: 0.7
  dynamic_threshold: true
  retrieval_strategy: "default"
  embedding_provider: "openai"
  embedding_model: "text-embedding-3-small"
  embedding_dimensions: 1536
  chunking_strategy: "semantic"
  chunk_size: 1000
  chunk_overlap: 200
  max_chunk_size: 1500
  preserve_sentence_boundaries: true
"""
ACTING = (
    "context_results", "search_context_window", "similarity_threshold", "dynamic_threshold", "retrieval_strategy",
    "embedding_provider", "embedding_model", "embedding_dimensions",
)  # fmt: skip


def test_settings_that_would_have_no_effect_are_refused_by_name(kiwi: Kiwi):
    (kiwi.home / ".ai").mkdir()
    path = kiwi.home / ".ai/config.yaml"
    path.write_text(SEED_003)
    stderr = kiwi.run("search", "x", expect=2).stderr
    lines = SEED_003.splitlines(keepends=True)
    names = [line.split(":")[0].strip() for line in lines[1:]]
    message, hint = stderr.split("→")
    assert str(path) in message
    assert {name for name in names if f"vector_store.{name}" in message} == set(names) - set(ACTING)
    assert all(name in hint for name in ACTING)
    path.write_text("".join([lines[0], *(line for line in lines if line.strip().startswith(ACTING))]))
    settings = kiwi.json("config", "--resolved")
    names = ("memory_results", "memory_floor", "embedding_provider", "embedding_dimension")
    assert [settings[name]["value"] for name in names] == ["5", "0.7", "openai", "1536"]


def test_a_projects_settings_are_held_to_the_same(ready: Kiwi):
    path = ready.write("config.yaml", "limit: 3\nvector_store:\n  chunk_size: 500\n")
    assert f"{path}: vector_store.chunk_size has no effect" in ready.run("search", "x", expect=2).stderr
    path.write_text("limt: 3\n")
    stderr = ready.run("search", "x", expect=2).stderr
    assert f"{path}: unknown key 'limt'" in stderr
    assert "did you mean 'limit'?" in stderr


def test_the_newest_audit_records_are_shown_and_read_like_text(ready: Kiwi):
    for number in range(7):
        ready.write(f"knowledge/acme/note{number}.md", note(extra=f"Node {number} stays."))
    ready.write("knowledge/acme/bad.md", note() + "\0")
    ready.run("sign", ".ai", expect=4)
    ready.run("index", expect=4)
    whole = ready.json("audit", "show")
    assert len(whole) > 5
    assert ready.json("audit", "show", "--limit", "5") == whole[-5:]
    assert ready.json("audit", "show", "--since", "2", "--limit", "3") == whole[-3:]
    assert ready.json("audit", "show", "--since", str(len(whole) - 1), "--limit", "3") == whole[-1:]
    lines = ready.run("audit", "show", "--limit", "5").stdout.splitlines()
    assert [int(line.split()[0]) for line in lines] == [record["seq"] for record in whole[-5:]]
    text = ready.run("audit", "show").stdout
    assert "policy: project" in text
    assert "findings: bounds." in text
    assert not set("[]{}'\"=") & set(text)


def test_the_registrys_newest_records_are_shown_and_read_like_text(ready: Kiwi):
    ready.run("registry", "start")
    for number in range(3):
        ready.run("add", str(ready.write(f"knowledge/acme/note{number}.md", note(extra=f"Node {number} stays."))))
    ready.run("publish", "--all")
    whole = ready.json("audit", "show", "--tier", "registry")
    assert len(whole) > 2
    assert ready.json("audit", "show", "--tier", "registry", "--limit", "2") == whole[-2:]
    text = ready.run("audit", "show", "--tier", "registry").stdout
    assert "by: " in text
    assert not set("[]{}'\"") & set(text)


EDITED = "The cluster never sleeps."


def edited(user: Kiwi) -> str:
    """Add a note, and edit its file; return the path."""
    path = user.write("knowledge/acme/note.md", note())
    user.run("add", str(path))
    assert "✓ ada@acme.example" in user.run("search", "staging shrinks to one node").stdout
    path.write_text("# Another heading\n\n" * 4 + note(extra=EDITED))
    return str(path)


def test_a_hit_whose_file_was_edited_says_changed_and_shows_what_was_signed(ready: Kiwi):
    path = edited(ready)
    search = ("search", "staging shrinks to one node")
    (hit,) = ready.json(*search)["hits"]
    assert (hit["verified"], hit["changed"], hit["yanked"]) == (False, True, False)
    assert "It wakes at seven." in hit["text"]
    (line,) = ready.run(*search, "--format", "jsonl").stdout.splitlines()
    assert json.loads(line)["changed"] is True
    text = ready.run(*search).stdout
    assert "✓" not in text
    assert "changed ada@acme.example" in text
    assert f"changed: {path} was edited since it was indexed: kiwi add {path} --bump patch" in text
    assert f"{path}:" not in text.replace(f"{path} was", "")
    assert "changed" in ready.run(*search, "--format", "md").stdout
    address = ready.run(*search, "--format", "paths").stdout.strip()
    shown = ready.run("show", address)
    assert "It wakes at seven." in shown.stdout
    for output in (text, shown.stdout):
        assert EDITED not in output


def test_show_get_and_verify_say_changed_as_well(ready: Kiwi):
    path = edited(ready)
    shown = ready.run("show", "acme/note")
    assert "✓" not in shown.stderr
    assert "ada@acme.example, changed" in shown.stderr
    assert f"warning: {path} was edited since" in shown.stderr
    row = ready.json("show", "acme/note")
    assert (row["verified"], row["changed"], EDITED in row["content"]) == (False, True, False)
    (row,) = ready.json("verify", expect=3)
    assert (row["state"], "was edited since" in row["reason"]) == ("changed", True)
    assert "✗ project  knowledge:acme/note@1.0.0  changed" in ready.run("verify", expect=3).stdout
    ready.run("get", "acme/note@project", "--to", "user")
    assert EDITED not in (ready.home / ".ai/knowledge/acme/note.md").read_text()
    other = ready.at(ready.home / "other")
    other.run("init")
    (ready.home / ".ai/knowledge/acme/note.md").write_text(note(extra=EDITED))
    got = json.loads(other.run("get", "acme/note@user", "--json").stdout)
    assert (got["verified"], got["changed"]) == (False, True)
    assert "It wakes at seven." in (other.cwd / ".ai/knowledge/acme/note.md").read_text()


def test_a_file_that_is_gone_is_changed_and_one_that_is_back_is_verified(ready: Kiwi):
    path = ready.write("knowledge/acme/note.md", note())
    ready.run("add", str(path))
    path.unlink()
    text = ready.run("search", "staging").stdout
    assert f"changed: {path} cannot be read" in text
    assert "✓" not in text
    path.write_text(note())
    (hit,) = ready.json("search", "staging")["hits"]
    assert (hit["verified"], hit["changed"], hit["path"]) == (True, False, str(path))


def assert_yanked(user: Kiwi) -> None:
    """Every command says that the local copy's version was yanked."""
    search = ("search", "staging shrinks to one node", "--source", "local")
    (hit,) = user.json(*search)["hits"]
    assert (hit["verified"], hit["changed"], hit["yanked"]) == (False, False, True)
    text = user.run(*search).stdout
    assert "✓" not in text
    assert "yanked ada@acme.example" in text
    assert "kiwi show knowledge:acme/note@1.0.0@registry says why" in text
    shown = user.run("show", "acme/note@project")
    assert "✓" not in shown.stderr
    assert "warning: knowledge:acme/note@1.0.0 was yanked" in shown.stderr
    assert user.json("show", "acme/note@project")["yanked"] is True
    (row,) = user.json("verify", expect=3)
    assert row["state"] == "yanked"
    assert "0 verified, 0 changed, 1 yanked, 0 refused" in user.run("verify", expect=3).stderr


@pytest.fixture
def shared(ready: Kiwi) -> Kiwi:
    """A user whose note is in a project and in a registry that keeps running."""
    ready.extra["OWNER_URL"] = ready.run("registry", "start").stdout.strip()
    ready.run("add", str(ready.write("knowledge/acme/note.md", note())))
    ready.run("publish", "--all")
    return ready


def teammate(user: Kiwi, name: str) -> Kiwi:
    """Somebody with a copy of the project, who trusts the same signer and has met no registry."""
    other = Kiwi(user.home.parent / f"{name}-home", user.home.parent / f"{name}-project")
    other.home.mkdir()
    other.cwd.mkdir()
    other.run("init")
    for row in user.json("trust", "list"):
        other.run("trust", "add", row["public_key"], "--principal", row["principal"])
    for file in (user.cwd / ".ai/knowledge/acme").iterdir():
        other.write(f"knowledge/acme/{file.name}", file.read_bytes())
    other.run("index")
    return other


def test_a_yanked_version_says_so_where_only_a_local_copy_is_left(shared: Kiwi):
    early, late = teammate(shared, "early"), teammate(shared, "late")
    url = {"KIWI_REGISTRY_URL": shared.extra["OWNER_URL"]}
    at_registry = ("search", "something else entirely", "--source", "registry")
    early.extra.update(url)
    early.run("verify")  # knows the registry, and never saw the note there
    shared.run("yank", "acme/note@1.0.0", "--reason", "wrong hour", "--yes")
    assert_yanked(shared)
    for other in (early, late):
        (hit,) = other.json("search", "staging shrinks to one node", "--source", "local")["hits"]
        assert hit["yanked"] is False  # nobody has told yet
        other.extra.update(url)
        other.run(*at_registry, expect=None)
        assert_yanked(other)
        assert "wrong hour" in other.run("show", "acme/note@1.0.0@registry").stderr
        other.extra.clear()  # and it stays known without the registry
        assert other.json("search", "staging shrinks to one node", "--source", "local")["hits"][0]["yanked"] is True
    shared.run("add", str(shared.write("knowledge/acme/note.md", note("1.1.0"))))
    assert shared.json("search", "staging", "--source", "local")["hits"][0]["yanked"] is False
