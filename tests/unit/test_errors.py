"""The error tree: one drawing, one stable code a class, and every default message its own."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re

import pytest

import kiwi_rag
from kiwi_rag import errors
from kiwi_rag.errors import KiwiError, Rejected
from kiwi_rag.model import Finding

_LINE = re.compile(r"^    (?P<branches>[│├└─ ]*)(?P<name>[A-Z]\w+) +(?P<code>[a-z-]+) ", re.MULTILINE)


def tree() -> dict[str, type[KiwiError]]:
    found = {"KiwiError": KiwiError}
    queue = [KiwiError]
    while queue:
        for child in queue.pop().__subclasses__():
            if child.__module__.startswith("kiwi_rag."):
                found[child.__name__] = child
                queue.append(child)
    return found


def drawn() -> list[tuple[int, str, str]]:
    return [(len(m["branches"]) // 4, m["name"], m["code"]) for m in _LINE.finditer(errors.__doc__ or "")]


def test_the_drawing_shows_every_class_of_the_module_with_its_code() -> None:
    own = {name: kind.code for name, kind in vars(errors).items() if inspect.isclass(kind) and kind is not KiwiError
           and issubclass(kind, KiwiError)}  # fmt: skip
    assert {name: code for _, name, code in drawn() if name != "KiwiError"} == own


def test_the_drawing_shows_who_is_whose_child() -> None:
    above: dict[int, str] = {0: "KiwiError"}
    for depth, name, _ in drawn():
        if name == "KiwiError":
            continue
        assert getattr(errors, name).__bases__ == (getattr(errors, above[depth - 1]),), name
        above[depth] = name


def test_codes_are_unique_across_all_modules() -> None:
    for module in pkgutil.walk_packages(kiwi_rag.__path__, "kiwi_rag."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    codes = {name: kind.code for name, kind in tree().items()}
    assert len(set(codes.values())) == len(codes), codes
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes.values())


@pytest.mark.parametrize("kind", [k for k in tree().values() if k is not Rejected], ids=lambda kind: kind.__name__)
def test_the_docstring_is_the_default_message(kind: type[KiwiError]) -> None:
    error = kind()
    assert error.message == str(error) == (kind.__doc__ or "").strip().splitlines()[0]
    assert error.as_dict() == {"code": kind.code, "message": error.message, "hint": ""}
    assert kind("other", hint="do this").as_dict() == {"code": kind.code, "message": "other", "hint": "do this"}


def test_a_rejection_carries_every_finding_and_counts_the_errors() -> None:
    findings = [
        Finding("a.b", "soft", severity="warning", hint="never mind"),
        Finding("c.d", "hard", 3, "x.md", "fix it"),
        Finding("e.f", "hard too"),
    ]
    rejection = Rejected("directive:acme/x", findings)
    assert rejection.message == "directive:acme/x: refused, 2 findings"
    assert rejection.hint == "fix it"
    listed = rejection.as_dict()["findings"]
    assert [f["code"] for f in listed] == ["a.b", "c.d", "e.f"]  # type: ignore[attr-defined]
    assert Rejected("x", findings[1:2]).message == "x: refused, 1 finding"
