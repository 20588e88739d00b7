"""What the docs refer to exists: commands with their options, linked files and headings, modules, and make targets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kiwi_rag.cli import kiwi
from tests.shared import ROOT

DECISIONS = ROOT / "docs" / "decisions"
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
_CODE_LINE = re.compile(r"^\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(kiwi [a-z-].*)$")
_IN_TEXT = re.compile(r"`(kiwi [a-z-][^`]*)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_MODULE = re.compile(r"`((?:kiwi_rag/)?[a-z_]+(?:/[a-z_]+)*\.py)`")
_SHELL = frozenset({"|", ">", ">>", "&", "&&", ";", "2>&1"})


def lines(page: Path) -> Iterator[tuple[bool, str]]:
    """Yield each line with whether it is code; a paragraph is one line, because a quoted command may be wrapped."""
    is_code = False
    for block in re.split(r"(^\s*```.*$)", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
        if block.lstrip().startswith("```"):
            is_code = not is_code
        elif is_code:
            yield from ((True, line) for line in block.splitlines())
        else:
            yield from ((False, " ".join(paragraph.split())) for paragraph in block.split("\n\n"))


def commands(page: Path) -> Iterator[str]:
    for is_code, line in lines(page):
        if is_code:
            yield from _CODE_LINE.findall(line)
        else:
            yield from _IN_TEXT.findall(line)


def unknown_words(command: str) -> list[str]:
    """Return the subcommands and options in a command line that do not exist."""
    current: click.Command = kiwi
    context = click.Context(kiwi, info_name="kiwi", **kiwi.context_settings)  # click keeps the first help option made
    options, unknown = option_names(kiwi, context), []
    for word in shlex.split(command.replace("'", "").replace('"', ""), comments=True)[1:]:
        if word in _SHELL:
            break
        if word.startswith("-"):
            unknown += [word] if word.split("=")[0] not in options else []
        elif isinstance(current, click.Group):
            found = current.get_command(context, word) or current.get_command(context, "run")  # `eval FILE`
            if found is None:
                return [*unknown, word]
            current, context = found, click.Context(found, parent=context, info_name=word)
            options |= option_names(found, context)
    return unknown


def option_names(command: click.Command, context: click.Context) -> set[str]:
    names = {name for p in command.get_params(context) for name in (*p.opts, *p.secondary_opts)}
    return {*names, *context.help_option_names}


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_quoted_commands_and_their_options_exist(page: Path) -> None:
    assert {command: words for command in commands(page) if (words := unknown_words(command))} == {}


def test_the_check_of_commands_finds_what_does_not_exist() -> None:
    assert unknown_words("kiwi serch x --json") == ["serch"]
    assert unknown_words("kiwi search x --colour --limit 3") == ["--colour"]
    assert unknown_words("kiwi registry look") == ["look"]
    assert sum(1 for page in PAGES for _ in commands(page)) > 150


@pytest.mark.parametrize("page", [*PAGES, DECISIONS / "README.md"], ids=lambda page: page.stem)
def test_linked_files_and_headings_exist(page: Path) -> None:
    missing = []
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" in link:
            continue
        is_page = target.is_file() and target.suffix != ".png"
        headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M) if is_page else []
        if not target.exists() or (anchor and anchor not in map(slug, headings)):
            missing.append(link)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_named_modules_exist(page: Path) -> None:
    known = {
        path.relative_to(ROOT).as_posix()
        for top in ("kiwi_rag", "benchmarks", "tests")
        for path in (ROOT / top).rglob("*.py")
    }
    named = set(_MODULE.findall(page.read_text(encoding="utf-8")))
    assert {name for name in named if not any(path == name or path.endswith(f"/{name}") for path in known)} == set()


def test_each_decision_has_the_next_number_and_is_in_the_index() -> None:
    pages = sorted(DECISIONS.glob("0*.md"))
    titles = [page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ") for page in pages]
    entries = [
        line for line in (DECISIONS / "README.md").read_text(encoding="utf-8").splitlines() if line[:1].isdigit()
    ]
    assert [title.partition(".")[0] for title in titles] == [str(number) for number in range(1, len(pages) + 1)]
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    assert entries == [
        f"{number}. [{title}]({page.name})"
        for (number, _, title), page in zip((title.partition(". ") for title in titles), pages, strict=True)
    ]
