"""What a tool is: its schemas, what a client may know of its effects, and how its arguments are read."""

from __future__ import annotations

import base64
import difflib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kiwi_rag.errors import UsageError
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.model import sha256_hex

if TYPE_CHECKING:
    from jsonschema import ValidationError

_BOUNDS = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " members"),
)
Schema = Mapping[str, Any]
Tell = Callable[[str], Awaitable[None]]
"""Called with what is being done, in words; reaches a client that asked to be told."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gives back: the same for people and models (``text``) and for programs (``data``)."""

    text: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Effects:
    """The four hints of the protocol: what a client may tell its user before a call."""

    read_only: bool = True
    destructive: bool = False
    idempotent: bool = True
    open_world: bool = False


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool.

    ``inputs`` are the JSON Schemas of its arguments by name, ``required`` those that must be there, ``aliases`` names
    that other servers have taught agents. ``output`` is the JSON Schema of `Answer.data`. A ``rebuildable`` one changes
    only what can be made again from files at any time, and so is offered without leave to write.
    """

    name: str
    title: str
    description: str
    inputs: Mapping[str, Schema]
    output: Schema
    run: Callable[[ServerContext, Mapping[str, Any], Tell], Awaitable[ToolResult]]
    required: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    effects: Effects = field(default_factory=Effects)
    rebuildable: bool = False

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments: what it does not name is refused."""
        return {
            "type": "object",
            "properties": {name: dict(schema) for name, schema in self.inputs.items()},
            "required": list(self.required),
            "additionalProperties": False,
        }

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by their own names, defaults filled in.

        Raises
        ------
        UsageError
            When one is unknown, missing, given twice or not what its schema says, with a hint that names what is meant.
        """
        named: dict[str, Any] = {}
        for name, value in given.items():
            own = self.aliases.get(name, name)
            if own not in self.inputs:
                raise UsageError(f"{self.name} has no argument {name[:64]!r}", hint=self._meant(name))
            if own in named:
                raise UsageError(f"{self.name}: {own} is given twice, once as an alias", hint=f"name it {own}")
            if value is not None:  # absent, as some clients write it
                named[own] = int(value) if isinstance(value, float) and value.is_integer() else value
        self._check(named)
        defaults = {name: schema["default"] for name, schema in self.inputs.items() if "default" in schema}
        return {**defaults, **named}

    def _check(self, named: Mapping[str, Any]) -> None:
        from jsonschema import Draft202012Validator

        missing = [name for name in self.required if name not in named]
        if missing:
            raise UsageError(f"{self.name} wants {', '.join(missing)}", hint=self._usage())
        wrong = {
            ".".join(str(step) for step in error.absolute_path) or self.name: error
            for error in Draft202012Validator(self.input_schema).iter_errors(dict(named))
        }
        if wrong:
            what = "; ".join(f"{where}: {_said(error)}" for where, error in wrong.items())
            hint = "; ".join(f"{where} is {_wanted(error.schema)}" for where, error in wrong.items())
            raise UsageError(f"{self.name}: {what}", hint=hint)

    def _meant(self, name: str) -> str:
        near = difflib.get_close_matches(name[:64], self.inputs, n=1)
        return f"did you mean {near[0]}? {self._usage()}" if near else self._usage()

    def _usage(self) -> str:
        return f"its arguments are {', '.join(self.inputs)}"


def _wanted(schema: Any) -> str:
    """Return in words what a schema takes."""
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    article = "an" if schema.get("type", "") in {"integer", "array", "object"} else "a"
    for least, most, unit in _BOUNDS:
        if least in schema or most in schema:
            bounds = f"{schema.get(least, 0)} to {schema[most]}" if most in schema else f"at least {schema[least]}"
            return f"{article} {schema['type']}, {bounds}{unit}"
    return f"{article} {schema.get('type', 'value')}"


def _said(error: ValidationError) -> str:
    """Return what is wrong; the library repeats the value first, however long it is."""
    told: str = error.message
    shown = repr(error.instance)
    return told.replace(shown, f"{shown[:40]}…") if len(shown) > 80 else told[:200]


SchemaDict = dict[str, Any]

STRING: SchemaDict = {"type": "string"}
NUMBER: SchemaDict = {"type": "number"}
INTEGER: SchemaDict = {"type": "integer"}
BOOLEAN: SchemaDict = {"type": "boolean"}
OBJECT: SchemaDict = {"type": "object"}
STRINGS: SchemaDict = {"type": "array", "items": STRING}
OBJECTS: SchemaDict = {"type": "array", "items": OBJECT}


def text(description: str, **more: Any) -> SchemaDict:
    """Return the schema of a text argument."""
    return {"type": "string", "description": description, **more}


def texts(description: str, length: int = 200, many: int = 50) -> SchemaDict:
    """Return the schema of an argument that is a list of texts of up to `length` characters, up to `many`."""
    items = {"type": "string", "maxLength": length}
    return {"type": "array", "items": items, "maxItems": many, "description": description}


def record(**properties: SchemaDict) -> SchemaDict:
    """Return the schema of an object that has all these members."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def maybe(schema: SchemaDict) -> SchemaDict:
    """Return the schema of a value that may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


_STALE = "call again without continuation"


def continuation(begin: int, of: Mapping[str, Any]) -> str:
    """Return a continuation from position `begin` of the answer to `of`."""
    return base64.urlsafe_b64encode(f"{begin}.{_name(of)}".encode()).decode()


def position(given: str, of: Mapping[str, Any]) -> int:
    """Return where to go on; 0 for no continuation.

    Raises
    ------
    UsageError
        When it is none, or one of another question.
    """
    if not given:
        return 0
    try:
        begin, _, name = base64.urlsafe_b64decode(given.encode()).decode().partition(".")
        number = int(begin)
    except ValueError as error:
        raise UsageError("continuation is not one that this server gave", hint=_STALE) from error
    if name != _name(of) or number < 0:
        raise UsageError("continuation is one of another question, or of a version that is gone", hint=_STALE)
    return number


def _name(of: Mapping[str, Any]) -> str:
    return sha256_hex(json.dumps(of, sort_keys=True, default=str).encode())[:16]
