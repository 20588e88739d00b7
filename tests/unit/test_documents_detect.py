"""What a file is: its content decides, and its name where the content leaves it open."""

from __future__ import annotations

import pytest

from kiwi_rag.formats.documents import detect, service_of

MADR = "# Use queues\n\n## Context and Problem Statement\n\nWhy?\n\n## Decision Outcome\n\nBecause.\n"
NYGARD = "# 7. Use queues\n\n## Status\n\nAccepted\n\n## Context\n\nx\n\n## Decision\n\ny\n\n## Consequences\n\nz\n"
UNDERLINED = "Use queues\n==========\n\nContext\n-------\nx\n\nDecision\n--------\ny\n\nConsequences\n------------\nz\n"
JAVA = "/* licence */\npackage a.b;\n\npublic final class Thing {\n}\n"


@pytest.mark.parametrize(
    ("path", "text", "form"),
    [
        ("docs/use-queues.md", MADR, "adr"),
        ("docs/use-queues.md", NYGARD, "adr"),
        ("docs/use-queues.md", UNDERLINED, "adr"),
        ("docs/x.md", "---\nstatus: accepted\n---\n# T\n\n## Decision\n\nx\n", "adr"),
        ("docs/x.md", "---\ndeciders: [ann]\n---\n# T\n\n## Considered Options\n\nx\n", "adr"),
        ("docs/x.md", "# T\n\n* Status: accepted\n\n## Decision\n\nx\n", "adr"),
        ("docs/x.md", "# T\n\n- **Deciders:** ann\n\n## Decision\n\nx\n", "adr"),
        ("docs/x.md", "# T\n\n## Decision\n\nx\n", "markdown"),
        ("docs/x.md", "# T\n\n## Context\n\nx\n\n## Decision\n\nx\n", "markdown"),
        ("docs/adr/0007-x.md", "# T\n\n## Decision\n\nx\n", "adr"),
        ("docs/decisions/0007-x.md", "---\nstatus: proposed\n---\n# T\n\nx\n", "adr"),
        ("docs/adr/README.md", "# Our decisions\n\nHow to write one.\n", "markdown"),
        ("docs/how-to.md", f"# How to write one\n\n```markdown\n{MADR}```\n", "markdown"),
        ("docs/page.md", "---\nstatus: draft\n---\n# A page\n\n## Context\n\nx\n", "markdown"),
        ("docs/page.md", "# Context\n\n## Status\n\nx\n", "markdown"),
        ("DOCS/PAGE.MD", "# A page\n", "markdown"),
        ("README", "# A page\n\n## A part\n", "markdown"),
        ("notes.txt", "# A page\n\n## A part\n", "markdown"),
        ("notes.txt", "Nothing but words: and a colon.\n", "text"),
        ("Dockerfile", "# comment\nFROM x\n# more\n", "text"),
        ("Pipfile", '[[source]]\nurl = "x"\n', "text"),
        ("spec.txt", "openapi: 3.0.0\npaths: {}\n", "yaml"),
        ("meta", "---\nname: x\n", "yaml"),
        ("data", '\n {"a": [1]}\n', "json"),
        ("data.bak", '[{"a": 1}]', "json"),
        ("x.json", '{"a": 1}', "json"),
        ("x.json", '"word"', "json"),
        ("x.json", "# comment\nname: x\n", "yaml"),
        ("x.yml", "name: x\n", "yaml"),
        ("Thing.java", JAVA, "java"),
        ("Thing.java", "@interface Mark {}\n", "java"),
        ("module-info.java", "open module a.b {}\n", "java"),
        ("Thing.java", "This is no Java at all.\n", "text"),
        ("x.py", "x = 1\n", "python"),
        ("run", "#!/usr/bin/env python3\nx = 1\n", "python"),
        ("run", "#!/bin/sh\necho x\n", "shell"),
        ("x.puml", "@startuml\nA -> B\n@enduml\n", "plantuml"),
        ("x.puml", "!define X y\n", "plantuml"),
        ("x.txt", "' drawn by hand\n\n@startmindmap\n* a\n@endmindmap\n", "plantuml"),
        ("x.ts", "class A {}\n", "typescript"),
        ("notes-1.2", "# A page\n\n## A part\n", "markdown"),
        ("x", "", "text"),
        ("x.md", "", "markdown"),
    ],
)
def test_content_decides(path: str, text: str, form: str) -> None:
    assert detect(path, text) == form


@pytest.mark.parametrize(
    ("path", "service"),
    [
        ("specs/svc-check-in.yaml", "svc-check-in"),
        ("specs/svc-check-in.openapi.yaml", "svc-check-in"),
        ("services/svc-check-in/docs/a.md", "svc-check-in"),
        ("services/svc-a/clients/svc-b.yaml", "svc-b"),
        ("services/SVC-A/readme.md", "SVC-A"),
        ("notes/about-svc-a.md", ""),
        ("svc-/a.md", ""),
        ("a.md", ""),
        ("", ""),
    ],
)
def test_a_path_names_a_service(path: str, service: str) -> None:
    assert service_of(path) == service


@pytest.mark.parametrize("unit", ["# ", "\n", "---\n", "'\n", "{ ", "import ", "```\n", "<!--\n", "a\n-\n", "public "])
@pytest.mark.parametrize("name", ["x", "x.md", "X.java", "x.json"])
def test_long_repetitions_are_looked_at_once(name: str, unit: str) -> None:
    assert detect(name, unit * 200_000)
