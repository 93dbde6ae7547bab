"""What all kinds of endpoint have in common: a request's body out, and what one document of the reply says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypedDict, TypeGuard

from tonnage.errors import InputError, option


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What one document says: an event of a stream, or a whole reply.

    Attributes:
        text: output that it carries: content, reasoning, a refusal, or the name and arguments of a tool call.
        tokens: output tokens of the reply so far, as the server counts them; -1 where it does not say.
        prompt: prompt tokens, likewise.
        cached: prompt tokens that the server found in its cache; -1 where it does not say.
        finished: whether it ends the output.
        error: the server's message, where the document is an error; "" otherwise.
    """

    text: str = ""
    tokens: int = -1
    prompt: int = -1
    cached: int = -1
    finished: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One kind of endpoint of one model.

    Attributes:
        model: the name that the server knows the model by.
        streaming: whether the reply is asked for as a stream.
        pinned: whether the output is held at its length by ``min_tokens`` and ``ignore_eos``, which engines know
            and hosted services refuse.
        extra: further fields of every request's body.
    """

    kind: ClassVar[str] = ""
    """Its name on the command line."""

    model: str
    streaming: bool = True
    pinned: bool = True
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The path below the server's URL."""
        raise NotImplementedError

    def body(self, prompt: str, osl: int) -> dict[str, Any]:
        """The body of a request for ``osl`` output tokens, before ``extra``."""
        raise NotImplementedError

    def talk(self, said: Sequence[tuple[str, str]], prompt: str, osl: int) -> dict[str, Any]:
        """The body of one turn of a conversation, before ``extra``.

        Args:
            said: the questions so far, each with its answer.
            prompt: the next question.
            osl: output tokens.

        Raises:
            InputError: an endpoint without conversations.
        """
        raise InputError(f"{option('endpoint_type')}: {self.kind} holds no conversations; use chat, responses or completions")

    def event(self, document: dict[str, Any]) -> Delta:
        """What one event of a stream says."""
        raise NotImplementedError

    def whole(self, document: dict[str, Any]) -> Delta:
        """What a reply says that is not a stream."""
        raise NotImplementedError


def messages(said: Sequence[tuple[str, str]], prompt: str) -> list[dict[str, str]]:
    """A conversation as OpenAI's messages."""
    turns = [{"role": role, "content": text} for pair in said for role, text in zip(("user", "assistant"), pair, strict=True)]
    return [*turns, {"role": "user", "content": prompt}]


class Usage(TypedDict, total=False):
    """The counts of a ``Delta``, as far as a document says them."""

    tokens: int
    prompt: int
    cached: int


def usage_of(document: dict[str, Any]) -> Usage:
    """The counts of a document's "usage"; empty where it has none."""
    found = Usage()
    usage = document.get("usage")
    if not isinstance(usage, dict):
        return found
    prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
    output = usage.get("completion_tokens", usage.get("output_tokens"))
    details = usage.get("prompt_tokens_details", usage.get("input_tokens_details"))
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    if _is_count(prompt):
        found["prompt"] = prompt
    if _is_count(output):
        found["tokens"] = output
    if _is_count(cached):
        found["cached"] = cached
    return found


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and 0 <= value < 2**40


def error_of(document: dict[str, Any]) -> str:
    """The message of a document that is an error; "" where it is none."""
    error = document.get("error")
    if error is None and document.get("object") != "error":
        return ""
    message = error.get("message", error) if isinstance(error, dict) else error or document.get("message")
    return " ".join(str(message or "an error without a message").split())[:200]


def joined(*parts: Any) -> str:
    """The parts that are text, one behind the other."""
    return "".join(part for part in parts if isinstance(part, str))
