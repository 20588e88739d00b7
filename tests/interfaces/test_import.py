"""What a team has in other tools' files becomes items by one command, and follows those files afterwards."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.interfaces.conftest import Kiwi

# Thirty subjects, each with a sentence that no other note has.
SUBJECTS = [
    *("backups", "certificates", "databases", "deployments", "dns", "email", "encryption", "feature-flags"),
    *("firewalls", "incidents", "invoices", "kubernetes", "load-balancers", "logging", "metrics", "migrations"),
    *("onboarding", "passwords", "payments", "postmortems", "queues", "rate-limits", "releases", "retries"),
    *("runbooks", "sessions", "storage", "tracing", "vendors", "webhooks"),
]
RULES = ["react", "python", "sql", "css", "testing", "naming", "errors", "imports", "comments", "api"]
COMMANDS = ["review", "changelog", "triage", "refactor", "standup"]
SKILL = {
    "SKILL.md": "---\nname: invoice-check\ndescription: Check an invoice before it is paid.\n---\n# Invoice check\n",
    "references/limits.md": "# Limits\n\nAbove nine thousand euros the bursar signs, too.\n",
}


def sentence(subject: str, kind: str) -> str:
    return f"The {kind} about {subject} is owned by the {subject} guild of building {len(subject)}"


@pytest.fixture
def team(ready: Kiwi) -> Kiwi:
    """A project with 30 plain notes, 10 Cursor rules, 5 Claude commands and a skill, and no front matter in a note."""
    for number, subject in enumerate(SUBJECTS):
        name = subject if number % 2 else f"Our {subject.title()}"
        write(ready, f"docs/{name}.md", f"# On {subject}\n\n{sentence(subject, 'note')}.\n")
    for number, rule in enumerate(RULES):
        globs = f"**/*.{rule}" if number % 2 else f"src/{rule}/**"  # the first is no YAML
        top = f"---\ndescription: How we write {rule}\nglobs: {globs}\nalwaysApply: false\n---\n"
        write(ready, f".cursor/rules/{rule}.mdc", f"{top}\n- {sentence(rule, 'rule')}.\n")
    for name in COMMANDS:
        write(ready, f".claude/commands/{name}.md", f"{sentence(name, 'command')}: $ARGUMENTS\n")
    for name, text in SKILL.items():
        write(ready, f"skills/invoice-check/{name}", text)
    return ready


def write(user: Kiwi, path: str, text: str | bytes) -> Path:
    file = user.cwd / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def printed_commands(text: str) -> list[list[str]]:
    """The commands that a notice names."""
    return [shlex.split(line.split(": kiwi ")[1]) for line in text.splitlines() if ": kiwi " in line]


def test_a_team_imports_edits_signs_and_publishes_with_the_commands_that_kiwi_prints(team: Kiwi):
    before = {p: p.read_bytes() for p in team.cwd.rglob("*") if p.is_file() and ".ai" not in p.parts}
    done = team.run("import", "docs", ".cursor/rules", ".claude/commands", "skills", "--namespace", "acme")
    assert len(done.stdout.splitlines()) == 46, done.stdout
    assert all(line.startswith("new ") for line in done.stdout.splitlines()), done.stdout
    assert {p: p.read_bytes() for p in team.cwd.rglob("*") if p.is_file() and ".ai" not in p.parts} == before
    wanted = [(f"acme/{s}" if n % 2 else f"acme/our-{s}", sentence(s, "note")) for n, s in enumerate(SUBJECTS)]
    wanted += [(f"acme/{rule}", sentence(rule, "rule")) for rule in RULES]
    wanted += [(f"acme/{name}", sentence(name, "command")) for name in COMMANDS]
    wanted.append(("acme/invoice-check", "from which sum on does the bursar sign"))
    for item_id, question in wanted:
        hits = team.json("search", question, "--limit", "1")["hits"]
        assert [hit["item_id"] for hit in hits] == [item_id], question
    note = team.cwd / ".ai/knowledge/acme/email.md"
    assert note.read_bytes() == (team.cwd / "docs/email.md").read_bytes()
    note.write_text(note.read_text() + "\nThe zone file is generated, never edited.\n")
    add, publish = printed_commands(done.stderr)
    assert "added  knowledge:acme/email@1.0.1" in team.run(*add).stdout
    published = team.json(*publish)["published"]
    assert len(published) == 46
    assert "knowledge:acme/email@1.0.1" in {row["ref"] for row in published}
    assert team.json("search", "zone file is generated", "--source", "registry")["hits"][0]["item_id"] == "acme/email"
