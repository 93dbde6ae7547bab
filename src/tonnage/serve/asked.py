"""A request of the OpenAI API, read and checked: what a simulated engine needs to know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["chat", "completions"]

Count = Callable[[str], int]
"""Tokens of a text."""

PER_MESSAGE = 4
"""Tokens that a chat template adds to each message, roughly those of ChatML (role, two markers, a line break)."""

MOST_CHOICES = 128


class Refused(Exception):
    """A request that is answered with an error of the API.

    Attributes:
        status: of HTTP.
        kind: the error's ``type``, as vLLM names it.
        param: the field that is wrong; None where it is the whole body.
    """

    def __init__(self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None) -> None:
        """Keep the parts of the body that the client gets."""
        super().__init__(message)
        self.status, self.kind, self.param = status, kind, param

    def to_json(self) -> dict[str, Any]:
        """The body, in vLLM's form."""
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.status}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked.

    Attributes:
        kind: which endpoint.
        model: as the client names it.
        isl, osl: prompt tokens, and the output tokens at most.
        choices: answers to the same prompt (``n``, times the prompts of a completion).
        stream, usage: whether tokens are streamed, and whether the stream ends with the usage.
        stop: texts at which an answer ends.
        session: a number for session affinity, made of ``user``; -1 without.
    """

    kind: Kind
    model: str
    isl: tuple[int, ...]
    osl: int
    choices: int
    stream: bool
    usage: bool
    stop: tuple[str, ...]
    session: int


def asked_of(kind: Kind, body: Any, *, count: Count, max_context: int, default_osl: int) -> Asked:
    """Read the body of a request.

    Args:
        kind: the endpoint.
        body: as JSON gave it.
        count: tokens of a text.
        max_context: longest prompt plus output; 0 for no such limit.
        default_osl: output tokens where the client sets no limit.

    Raises:
        Refused: with the error that the client gets.
    """
    if not isinstance(body, Mapping):
        raise Refused("the body is not a JSON object")
    isl = (_chat_tokens(body, count),) if kind == "chat" else _prompt_tokens(body.get("prompt"), count)
    named = "max_completion_tokens" if kind == "chat" and body.get("max_completion_tokens") is not None else "max_tokens"
    osl = _whole(body, named, default_osl, least=1)
    choices = _whole(body, "n", 1, least=1, most=MOST_CHOICES)
    longest = max(isl)
    if max_context and longest + osl > max_context:
        raise Refused(
            f"This model's maximum context length is {max_context} tokens. However, you requested {longest + osl} tokens ({longest} in the "
            f"messages, {osl} in the completion). Please reduce the length of the messages or completion.",
            param="messages" if kind == "chat" else "prompt",
        )
    return Asked(
        kind=kind,
        model=str(body.get("model") or ""),
        isl=isl,
        osl=osl,
        choices=choices,
        stream=_flag(body, "stream"),
        usage=_flag(_object(body, "stream_options"), "include_usage"),
        stop=_stop(body.get("stop")),
        session=-1 if not body.get("user") else sum((i + 1) * b for i, b in enumerate(str(body["user"]).encode())),
    )


def _chat_tokens(body: Mapping[str, Any], count: Count) -> int:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused("messages: a list of one message or more is needed", param="messages")
    total = 0
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise Refused(f"messages[{i}]: an object with a role is needed", param="messages")
        total += PER_MESSAGE + count(_text_of(message.get("content"), i))
    return total


def _text_of(content: Any, place: int) -> str:
    """The text of a message, whose content may be a list of parts; other parts than text are refused."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in content):
        return "".join(part["text"] for part in content)
    raise Refused(f"messages[{place}].content: a text, or a list of parts with a text each, is needed", param="messages")


def _prompt_tokens(prompt: Any, count: Count) -> tuple[int, ...]:
    """Tokens of each prompt: a text, token ids, or a list of either."""
    if isinstance(prompt, str):
        return (max(count(prompt), 1),)
    if isinstance(prompt, list) and prompt:
        if all(isinstance(one, int) and not isinstance(one, bool) for one in prompt):
            return (len(prompt),)
        if all(isinstance(one, str | list) and one for one in prompt) and len(prompt) <= MOST_CHOICES:
            return tuple(_prompt_tokens(one, count)[0] for one in prompt)
    raise Refused("prompt: a text, token ids, or a list of either is needed", param="prompt")


def _whole(body: Mapping[str, Any], name: str, default: int, *, least: int, most: int | None = None) -> int:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        limit = f"{least} or more" if most is None else f"{least} to {most}"
        raise Refused(f"{name}: a whole number, {limit}, is needed, not {value!r}", param=name)
    return value


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise Refused(f"{name}: true or false is needed, not {value!r}", param=name)
    return bool(value)


def _object(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Refused(f"{name}: an object is needed", param=name)
    return value


def _stop(value: Any) -> tuple[str, ...]:
    found = () if value is None else (value,) if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(isinstance(one, str) and one for one in found) or len(found) > 16:
        raise Refused("stop: a text, or a list of at most 16 texts, is needed", param="stop")
    return tuple(found)
