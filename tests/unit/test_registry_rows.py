"""Which columns a row has, and of which types: nothing is converted, nothing is guessed."""

from __future__ import annotations

from typing import Any

import pytest

from kiwi_rag.errors import RegistryError
from kiwi_rag.registry import rows

READ = rows.Columns({int: "line", str: "text", float: "score"}, {list[str]: "heading", str | None: "name"})
ROW: dict[str, Any] = {"line": 3, "text": "3", "score": 1, "heading": ["a"], "name": None}
WRONG = [
    {"line": True}, {"line": "3"}, {"line": 3.0}, {"line": None}, {"text": 3}, {"text": b"3"}, {"text": None},
    {"score": "1"}, {"score": True}, {"heading": "a"}, {"heading": [1]}, {"heading": ("a",)}, {"name": 3},
]  # fmt: skip


def test_a_row_of_these_columns_is_read_without_others() -> None:
    assert READ({**ROW, "added later": 4}) == ROW


@pytest.mark.parametrize("change", WRONG)
def test_a_column_of_another_type_is_an_error_of_the_registry(change: dict[str, Any]) -> None:
    with pytest.raises(RegistryError, match=r"^the registry gave an invalid test"), rows.parse_as("test"):
        READ(ROW | change)


@pytest.mark.parametrize("column", ROW)
def test_a_column_that_is_missing_is_an_error_of_the_registry(column: str) -> None:
    with pytest.raises(RegistryError, match=r"^the registry gave an invalid test"), rows.parse_as("test"):
        READ({name: value for name, value in ROW.items() if name != column})


@pytest.mark.parametrize("row", [None, 3, "line", [1], [("line", 3)]])
def test_what_is_no_row_is_an_error_of_the_registry(row: object) -> None:
    with pytest.raises(RegistryError, match=r"^the registry gave an invalid test"), rows.parse_as("test"):
        READ(row)


def test_single_values_are_of_their_types() -> None:
    assert (rows.INTEGER(3), rows.BOOLEAN(True), rows.TEXT("x"), rows.OBJECT({"a": 1})) == (3, True, "x", {"a": 1})
    for read, wrong in (
        (rows.INTEGER, True),
        (rows.INTEGER, 1.0),
        (rows.BOOLEAN, 1),
        (rows.TEXT, 3),
        (rows.OBJECT, [1]),
    ):
        with pytest.raises(RegistryError, match=r"^the registry gave an invalid test"), rows.parse_as("test"):
            read(wrong)
