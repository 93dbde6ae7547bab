"""A request of the OpenAI API, read and checked: what an engine needs to know of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from tonnage.serve.dialect import Refused

# What a client sent, as an engine gets it: its number of tokens, and, for a real engine, the tokens.


Count = Callable[[str], int]
"""Tokens of a text."""

PER_MESSAGE = 4
"""Tokens that a chat template adds to each message, roughly those of ChatML (role, two markers, a line break)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of a chat: who says it, and its text."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt.

    Attributes:
        tokens: how many there are, 1 or more.
        ids: the tokens; empty for an engine that is simulated and needs their number alone.
    """

    tokens: int
    ids: tuple[int, ...] = ()


class Reader(Protocol):
    """Makes prompts of what clients send."""

    def text(self, text: str) -> Prompt:
        """Of a text."""

    def chat(self, messages: Sequence[Message]) -> Prompt:
        """Of a chat, with the model's template."""

    def ids(self, ids: Sequence[int]) -> Prompt:
        """Of token ids.

        Raises:
            Refused: ids that the model does not have.
        """


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts prompts for a simulated engine.

    Attributes:
        count: tokens of a text.
    """

    count: Count

    def text(self, text: str) -> Prompt:
        """A text has one token at least."""
        return Prompt(tokens=max(self.count(text), 1))

    def chat(self, messages: Sequence[Message]) -> Prompt:
        """The texts, and what a template adds to each of them."""
        return Prompt(tokens=sum(PER_MESSAGE + self.count(message.text) for message in messages))

    def ids(self, ids: Sequence[int]) -> Prompt:
        """As many tokens as ids."""
        return Prompt(tokens=len(ids))


# How the tokens of an answer are chosen, as a request of the OpenAI API says it, with vLLM's further fields and defaults.


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling parameters.

    Attributes:
        temperature: 0 for the most likely token always.
        top_p, top_k, min_p: what the choice is among; 1, 0 and 0 for all tokens.
        presence_penalty, frequency_penalty, repetition_penalty: 0, 0 and 1 for none.
        seed: None for any.
        min_tokens: before these an answer does not end by itself.
        ignore_eos: it does not end by itself at all.
        stop_token_ids: tokens at which it ends.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()


BOUNDS: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 2.0),
    "top_p": (1e-6, 1.0),
    "min_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "repetition_penalty": (1e-6, 10.0),
}
WHOLE: Mapping[str, tuple[int, int]] = {"top_k": (-1, 2**31 - 1), "seed": (-(2**63), 2**63 - 1), "min_tokens": (0, 2**31 - 1)}
MOST_STOP_IDS = 4_096


def sampling_of(body: Mapping[str, Any], osl: int) -> Sampling:
    """Read the sampling parameters of a request.

    Args:
        body: of the request.
        osl: output tokens at most.

    Raises:
        Refused: a value that is none, or out of range.
    """
    said: dict[str, Any] = {name: _number(name, body[name], *bounds) for name, bounds in BOUNDS.items() if body.get(name) is not None}
    said |= {name: _whole(name, body[name], *bounds) for name, bounds in WHOLE.items() if body.get(name) is not None}
    said["top_k"] = max(said.get("top_k", 0), 0)  # vLLM's −1 is no limit, too
    if body.get("ignore_eos") is not None:
        if not isinstance(body["ignore_eos"], bool):
            raise Refused(f"ignore_eos: true or false is needed, not {body['ignore_eos']!r}", param="ignore_eos")
        said["ignore_eos"] = body["ignore_eos"]
    if said.get("min_tokens", 0) > osl:
        raise Refused(f"min_tokens must be less than or equal to max_tokens={osl}, got {said['min_tokens']}.", param="min_tokens")
    ids = body.get("stop_token_ids") or []
    if not isinstance(ids, list) or len(ids) > MOST_STOP_IDS:
        raise Refused(f"stop_token_ids: a list of at most {MOST_STOP_IDS} token ids is needed", param="stop_token_ids")
    said["stop_token_ids"] = tuple(_whole("stop_token_ids", one, 0, 2**31 - 1) for one in ids)
    return Sampling(**said)


def _number(name: str, value: Any, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not least <= value <= most:
        raise Refused(f"{name}: a number from {max(least, 0) if least > -1 else least:g} to {most:g} is needed, not {value!r}", param=name)
    return float(value)


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Refused(f"{name}: a whole number from {least} to {most} is needed, not {value!r}", param=name)
    return value


Kind = Literal["chat", "completions"]

MOST_CHOICES = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked.

    Attributes:
        kind: which endpoint.
        model: as the client names it.
        prompts: one, or the several of a completion.
        osl: output tokens at most, of each answer.
        sampling: how tokens are chosen.
        choices: answers to the same prompt (``n``).
        stream, usage: whether tokens are streamed, and whether the stream ends with the usage.
        usage_each: whether every event of it has the usage so far (vLLM's ``continuous_usage_stats``).
        stop: texts at which an answer ends.
        session: a number for session affinity, made of ``user``; -1 without.
    """

    kind: Kind
    model: str
    prompts: tuple[Prompt, ...]
    osl: int
    sampling: Sampling
    choices: int
    stream: bool
    usage: bool
    usage_each: bool
    stop: tuple[str, ...]
    session: int

    @property
    def isl(self) -> int:
        """Tokens of all prompts."""
        return sum(prompt.tokens for prompt in self.prompts)


def asked_of(kind: Kind, body: Any, *, reader: Reader, max_context: int, default_osl: int, real: bool = False) -> Asked:
    """Read the body of a request.

    Args:
        kind: the endpoint.
        body: as JSON gave it.
        reader: makes prompts of texts.
        max_context: longest prompt plus output; 0 for no such limit.
        default_osl: output tokens where the client sets no limit; 0 for as many as the context leaves.
        real: whether a model answers, so that fields that would change its answers are refused where they are not heeded.

    Raises:
        Refused: with the error that the client gets.
    """
    if not isinstance(body, Mapping):
        raise Refused("the body is not a JSON object", kind="Bad Request", param="body")
    if real:
        _refuse_unheeded(body)
    prompts = (reader.chat(_messages(body)),) if kind == "chat" else _prompts(body.get("prompt"), reader)
    longest = max(prompt.tokens for prompt in prompts)
    named = "max_completion_tokens" if kind == "chat" and body.get("max_completion_tokens") is not None else "max_tokens"
    osl = _whole_number(body, named, default_osl or max(max_context - longest, 1), least=1)
    choices, options = _whole_number(body, "n", 1, least=1, most=MOST_CHOICES), _object(body, "stream_options")
    if max_context:
        osl = _within(max_context, longest, osl, named)
    return Asked(
        kind=kind,
        model=str(body.get("model") or ""),
        prompts=prompts,
        osl=osl,
        sampling=sampling_of(body, osl),
        choices=choices,
        stream=_flag(body, "stream"),
        usage=_flag(options, "include_usage"),
        usage_each=_flag(options, "include_usage") and _flag(options, "continuous_usage_stats"),
        stop=_stop(body.get("stop")),
        session=-1 if not body.get("user") else sum((i + 1) * b for i, b in enumerate(str(body["user"]).encode())),
    )


def _within(max_context: int, isl: int, osl: int, named: str) -> int:
    """The output tokens that the context leaves, of those requested; as vLLM 0.32 does it.

    Raises:
        Refused: the prompt leaves none, or more are requested than the context has.
    """
    if isl >= max_context:
        raise Refused(
            f"This model's maximum context length is {max_context} tokens. However, your prompt contains {isl} input tokens, which leaves "
            "none for the output. Please shorten the prompt.",
            param="input_tokens",
        )
    if osl > max_context:
        raise Refused(
            f"{named}={osl} is more than this model's maximum context length of {max_context} tokens. Please ask for fewer output tokens.",
            param=named,
        )
    return min(osl, max_context - isl)


def _refuse_unheeded(body: Mapping[str, Any]) -> None:
    """Fields that would change an answer are refused rather than passed over."""
    for name in ("logprobs", "top_logprobs", "prompt_logprobs", "best_of", "suffix", "tools", "functions"):
        value = body.get(name)
        if value not in (None, False, 0, 1, "", []) or (name.endswith("logprobs") and value is True):
            raise Refused(f"{name}: this server does not do that; leave it out", param=name)
    form = body.get("response_format")
    if form is not None and form != {"type": "text"}:
        raise Refused("response_format: this server answers in plain text only", param="response_format")


def _messages(body: Mapping[str, Any]) -> list[Message]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused("messages: a list of one message or more is needed", param="messages")
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise Refused(f"messages[{i}]: an object with a role is needed", param="messages")
    return [Message(role=message["role"], text=_text_of(message.get("content"), i)) for i, message in enumerate(messages)]


def _text_of(content: Any, place: int) -> str:
    """The text of a message, whose content may be a list of parts; other parts than text are refused."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in content):
        return "".join(part["text"] for part in content)
    raise Refused(f"messages[{place}].content: a text, or a list of parts with a text each, is needed", param="messages")


def _prompts(prompt: Any, reader: Reader) -> tuple[Prompt, ...]:
    """A text, token ids, or a list of either."""
    several = prompt if isinstance(prompt, list) and prompt and not _are_ids(prompt) else [prompt]
    if len(several) > MOST_CHOICES:
        raise Refused(f"prompt: a list of at most {MOST_CHOICES} is needed", param="prompt")
    found = []
    for one in several:
        if isinstance(one, str) and (one or len(several) == 1):
            found.append(reader.text(one))
        elif _are_ids(one):
            found.append(reader.ids(one))
        else:
            raise Refused("prompt: a text, token ids, or a list of either is needed", param="prompt")
    return tuple(found)


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in value)


def _whole_number(body: Mapping[str, Any], name: str, default: int, *, least: int, most: int | None = None) -> int:
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
