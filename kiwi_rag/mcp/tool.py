"""A tool: its schemas, its effects, the check of its arguments, and continuations of long answers."""

from __future__ import annotations

import base64
import difflib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kiwi_rag.errors import UsageError
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.mcp.jobs import ReportProgress
from kiwi_rag.model import sha256_hex

if TYPE_CHECKING:
    from jsonschema import ValidationError

_BOUNDS = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " members"),
)
Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The answer of a tool, as text for models and people and as data for programs."""

    text: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Effects:
    """The four hints of the protocol, which a client may show its user before a call."""

    read_only: bool = True
    destructive: bool = False
    idempotent: bool = True
    open_world: bool = False


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool.

    ``inputs`` are the JSON Schemas of its arguments by name, ``required`` the names of required ones, ``aliases`` maps
    names that agents know from other servers to them. ``output`` is the whole JSON Schema of `ToolResult.data`. A
    ``rebuildable`` tool changes only what can be built from files again, so it is offered without ``--allow-write``.
    """

    name: str
    title: str
    description: str
    inputs: Mapping[str, Schema]
    output: Schema
    run: Callable[[ServerContext, Mapping[str, Any], ReportProgress], Awaitable[ToolResult]]
    required: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    effects: Effects = field(default_factory=Effects)
    rebuildable: bool = False

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments; unknown ones are refused."""
        return {
            "type": "object",
            "properties": {name: dict(schema) for name, schema in self.inputs.items()},
            "required": list(self.required),
            "additionalProperties": False,
        }

    @property
    def output_schema(self) -> dict[str, Any]:
        """The listed JSON Schema of its data: the types of its members alone, so that the list of tools stays short."""
        members = self.output["properties"].items()
        return {"type": "object", "properties": {name: {"type": _type_of(schema)} for name, schema in members}}

    def parse_arguments(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Return the checked arguments, with aliases replaced and defaults filled in.

        Raises
        ------
        UsageError
            When one is unknown, missing, given twice or does not match its schema.
        """
        arguments: dict[str, Any] = {}
        for alias, value in raw.items():
            name = self.aliases.get(alias, alias)
            if name not in self.inputs:
                raise UsageError(f"{self.name} has no argument {alias[:64]!r}", hint=self._suggestion(alias))
            if name in arguments:
                raise UsageError(f"{self.name}: {name} is given twice, once as an alias", hint=f"name it {name}")
            if value is not None:  # some clients send null for an absent argument, and 5.0 for 5
                arguments[name] = int(value) if isinstance(value, float) and value.is_integer() else value
        self._check(arguments)
        defaults = {name: schema["default"] for name, schema in self.inputs.items() if "default" in schema}
        return {**defaults, **arguments}

    def _check(self, arguments: Mapping[str, Any]) -> None:
        from jsonschema import Draft202012Validator

        missing = [name for name in self.required if name not in arguments]
        if missing:
            raise UsageError(f"{self.name} requires {', '.join(missing)}", hint=self._usage())
        errors = {
            ".".join(str(step) for step in error.absolute_path) or self.name: error
            for error in Draft202012Validator(self.input_schema).iter_errors(dict(arguments))
        }
        if errors:
            message = "; ".join(f"{path}: {_error_message(error)}" for path, error in errors.items())
            hint = "; ".join(f"{path} is {_describe(error.schema)}" for path, error in errors.items())
            raise UsageError(f"{self.name}: {message}", hint=hint)

    def _suggestion(self, name: str) -> str:
        similar = difflib.get_close_matches(name[:64], self.inputs, n=1)
        return f"did you mean {similar[0]}? {self._usage()}" if similar else self._usage()

    def _usage(self) -> str:
        return f"its arguments are {', '.join(self.inputs)}"


def _type_of(schema: Schema) -> Any:
    return [one["type"] for one in schema["anyOf"]] if "anyOf" in schema else schema["type"]


def _describe(schema: Any) -> str:
    """Return in words which values a schema accepts."""
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    article = "an" if schema.get("type", "") in {"integer", "array", "object"} else "a"
    for least, most, unit in _BOUNDS:
        if least in schema or most in schema:
            bounds = f"{schema.get(least, 0)} to {schema[most]}" if most in schema else f"at least {schema[least]}"
            return f"{article} {schema['type']}, {bounds}{unit}"
    return f"{article} {schema.get('type', 'value')}"


def _error_message(error: ValidationError) -> str:
    """Return the library's message with the value truncated, which it repeats however long it is."""
    message: str = error.message
    value = repr(error.instance)
    return message.replace(value, f"{value[:40]}…") if len(value) > 80 else message[:200]


SchemaDict = dict[str, Any]

_TYPES: dict[str, SchemaDict] = {name: {"type": name} for name in ("string", "number", "integer", "boolean", "object")}
_TYPES |= {f"{name}s": {"type": "array", "items": _TYPES[name]} for name in ("string", "object")}
STRING, OBJECT, BOOLEAN = _TYPES["string"], _TYPES["object"], _TYPES["boolean"]


def text(description: str, **more: Any) -> SchemaDict:
    """Return the schema of a text argument."""
    return {"type": "string", "description": description, **more}


def texts(description: str, length: int = 200, many: int = 50) -> SchemaDict:
    """Return the schema of an argument that is a list of texts of up to `length` characters, up to `many`."""
    items = {"type": "string", "maxLength": length}
    return {"type": "array", "items": items, "maxItems": many, "description": description}


def record(**members: SchemaDict | str) -> SchemaDict:
    """Return the schema of an object with these members, all required.

    Each argument is the schema of the member of its name; or, under the name of a type (integer, strings, …), a text
    with the names of the members of that type.
    """
    properties: dict[str, SchemaDict] = {}
    for name, schema in members.items():
        properties |= dict.fromkeys(schema.split(), _TYPES[name]) if isinstance(schema, str) else {name: schema}
    return {"type": "object", "properties": properties, "required": list(properties)}


def nullable(schema: SchemaDict) -> SchemaDict:
    """Return the schema of a value that may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


_START_AGAIN = "call again without continuation"


def make_continuation(begin: int, request: Mapping[str, Any]) -> str:
    """Return a continuation that stands for position `begin` in the answer to `request`."""
    return base64.urlsafe_b64encode(f"{begin}.{_digest(request)}".encode()).decode()


def parse_continuation(text: str, request: Mapping[str, Any]) -> int:
    """Return the position that a continuation stands for; 0 for an empty text.

    Raises
    ------
    UsageError
        When it is not a continuation, or belongs to another request.
    """
    if not text:
        return 0
    try:
        begin, _, digest = base64.urlsafe_b64decode(text.encode()).decode().partition(".")
        number = int(begin)
    except ValueError as error:
        raise UsageError("continuation is not from this server", hint=_START_AGAIN) from error
    if digest != _digest(request) or number < 0:
        raise UsageError("continuation belongs to another request, or to another version", hint=_START_AGAIN)
    return number


def _digest(request: Mapping[str, Any]) -> str:
    return sha256_hex(json.dumps(request, sort_keys=True, default=str).encode())[:16]
