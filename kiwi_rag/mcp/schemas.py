"""The words of JSON Schema that toolsets share."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
INTEGER: Schema = {"type": "integer"}
BOOLEAN: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
STRINGS: Schema = {"type": "array", "items": STRING}
OBJECTS: Schema = {"type": "array", "items": OBJECT}


def text(description: str, **more: Any) -> Schema:
    """Return the schema of a text argument."""
    return {"type": "string", "description": description, **more}


def texts(description: str, length: int = 200, many: int = 50) -> Schema:
    """Return the schema of an argument that is a list of texts of up to `length` characters, up to `many`."""
    items = {"type": "string", "maxLength": length}
    return {"type": "array", "items": items, "maxItems": many, "description": description}


def record(**properties: Schema) -> Schema:
    """Return the schema of an object that has all these members."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def maybe(schema: Schema) -> Schema:
    """Return the schema of a value that may be null."""
    return {"anyOf": [schema, {"type": "null"}]}
