"""The kinds of endpoint that can be measured: a request's body out, and what one document of the
reply says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote

from tonnage.errors import InputError, UnknownName, option
from tonnage.results.outcomes import failure_of


# not frozen, which would take twice as long to make, for every event that is read as JSON
@dataclass(slots=True, kw_only=True)
class Delta:
    """The content of one document: an event of a stream, or a whole reply."""

    # output that it carries: content, reasoning, a refusal, or the name and arguments of a tool
    # call
    text: str = ""
    # current output tokens of the reply, as the server counts them; -1 where it does not say
    tokens: int = -1
    prompt: int = -1  # prompt tokens, likewise
    cached: int = -1  # prompt tokens that the server found in its cache; -1 where it does not say
    reasoning: int = 0  # those of the output tokens that it counts as reasoning
    finish: str = ""  # why the output ends, in the server's word; "" where this does not end it
    error: str = ""  # the server's message, where the document is an error; "" otherwise
    thought: bool = False  # whether the text holds the reasoning itself, and not a summary of it
    choices: int = 1  # outputs next to one another, as far as this one shows


_REFUSES = re.compile(
    r"un(recogni[sz]ed|known|supported|expected)|not"
    r" (supported|allowed|permitted|support)|(extra|additional) (input|field|propert)"
    r"|invalid (param|arg|field)",
    re.IGNORECASE,
)
_PINS = ("min_tokens", "ignore_eos", "min_length")
# Fields that no request can do without
_NEEDED = frozenset(("model", "messages", "prompt", "input", "text_input"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One kind of endpoint of one model."""

    kind: ClassVar[str] = ""  # its name on the command line
    where: ClassVar[str] = ""  # its path, where that is the same for every model
    has_output: ClassVar[bool] = True  # whether a reply holds tokens
    # whether a stream says that it is complete, by a finish reason or ``[DONE]``
    marks_end: ClassVar[bool] = True

    model: str  # the name that the server knows the model by
    streaming: bool = True  # whether the reply is requested as a stream
    # whether the output is held at its length by ``min_tokens`` and ``ignore_eos``, which engines
    # know and hosted services refuse
    pinned: bool = True
    extra: dict[str, Any] = field(default_factory=dict)  # further fields of every request's body
    omitted: tuple[str, ...] = ()  # fields that no request has

    @property
    def path(self) -> str:
        """The path below the server's URL."""
        return self.where

    def body(self, prompt: str, osl: int) -> dict[str, Any]:
        """The body of a request for ``osl`` output tokens, before ``extra``."""
        raise NotImplementedError

    def talk(self, history: Sequence[tuple[str, str]], prompt: str, osl: int) -> dict[str, Any]:
        """The body of one turn after questions with their answers, before ``extra``. Raises
        InputError: it holds no conversations.
        """
        raise InputError(
            f"{option('endpoint_type')}: {self.kind} holds no conversations; use chat, responses or"
            " completions"
        )

    def sent(self, body: dict[str, Any]) -> dict[str, Any]:
        """A body as it is sent: with the further fields last, and without the omitted ones."""
        return {
            name: value
            for name, value in {**body, **self.extra}.items()
            if name not in self.omitted
        }

    def remedy(self, refusal: str) -> str:
        """The option that leaves out what a server refuses in these words; "" where they refuse no
        field. Options are not spelled yet.
        """
        if not _REFUSES.search(refusal):
            return ""
        fields = self.sent(self.body("", 1))
        pins = [name for name in _PINS if name in fields]
        named = [name for name in fields if re.search(rf"\b{name}\b", refusal)]
        if pins and not set(named) - set(pins) - _NEEDED:
            return f"{option('no_pin_output')} leaves out {' and '.join(pins)}"
        if "max_completion_tokens" in refusal:
            return (
                f"{option('omit_inputs')} max_tokens {option('extra_inputs')}"
                " max_completion_tokens:200 sends the length under that name"
            )
        if "stream" in named:
            return f"{option('no_streaming')} asks for whole replies"
        leaves = " ".join(
            f"{option('omit_inputs')} {name}" for name in named if name not in _NEEDED
        )
        return f"{leaves} leaves out what it does not take" if leaves else ""

    def event(self, document: dict[str, Any]) -> Delta:
        """Read one event of a stream; for most endpoints it has the form of a whole reply."""
        return self.whole(document)

    def whole(self, document: dict[str, Any]) -> Delta:
        """Read a reply that is not a stream."""
        raise NotImplementedError

    def _openai_fields(self, osl: int, *, limit_name: str = "max_tokens") -> dict[str, Any]:
        """The model, the length, and whether the reply is a stream, by OpenAI's names."""
        return {
            "model": self.model,
            limit_name: osl,
            **({"min_tokens": osl, "ignore_eos": True} if self.pinned else {}),
            **({"stream": True} if self.streaming else {}),
            **(
                {"stream_options": {"include_usage": True}}
                if self.streaming and limit_name == "max_tokens"
                else {}
            ),
        }


def messages(history: Sequence[tuple[str, str]], prompt: str) -> list[dict[str, str]]:
    """A conversation as OpenAI's messages."""
    turns = [
        {"role": role, "content": text}
        for pair in history
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
    return [*turns, {"role": "user", "content": prompt}]


def usage_of(document: dict[str, Any]) -> dict[str, Any]:
    """The counts of a document's "usage" by the names of a ``Delta``, as far as it has them.

    Output tokens include those of reasoning. Services that count these apart (xAI's) show it in
    their total.
    """
    usage = document.get("usage")
    if not isinstance(usage, dict):
        return {}
    details = usage.get("prompt_tokens_details", usage.get("input_tokens_details"))
    counts: dict[str, Any] = {}
    # a comprehension would be half as slow again, and there may be one for every event
    for name, count in (
        ("prompt", usage.get("prompt_tokens", usage.get("input_tokens"))),
        ("tokens", usage.get("completion_tokens", usage.get("output_tokens"))),
        ("cached", details.get("cached_tokens") if isinstance(details, dict) else None),
    ):
        if isinstance(count, int) and 0 <= count < 2**40:
            counts[name] = count
    parts = usage.get("completion_tokens_details", usage.get("output_tokens_details"))
    reasoning = (
        parts.get("reasoning_tokens") if isinstance(parts, dict) else usage.get("reasoning_tokens")
    )
    if reasoning and isinstance(reasoning, int) and 0 < reasoning < 2**40:
        tokens, counts["reasoning"] = counts.get("tokens", 0), reasoning
        if (
            reasoning > tokens
            or usage.get("total_tokens") == counts.get("prompt", 0) + tokens + reasoning
        ):
            counts["tokens"] = tokens + reasoning
    return counts


def error_of(document: dict[str, Any]) -> str:
    """The message of a document that is an error; "" where it is none."""
    error = document.get("error")
    if not error and "error" not in (document.get("object"), document.get("type")):
        if "choices" in document or "type" in document or "usage" in document:
            return ""
        # proxies and frameworks send these alone
        error = document.get("message") or document.get("detail")
        if not isinstance(error, str | list):
            return ""
    message = (
        error.get("message", error) if isinstance(error, dict) else error or document.get("message")
    )
    return " ".join(str(message or "an error without a message").split())[:200]


def joined(*parts: Any) -> str:
    """The parts that are text, one behind the other."""
    return "".join(part for part in parts if isinstance(part, str))


def text_of(value: Any) -> str:
    """The text of a content: a text itself, the parts of a list one behind the other, what a part
    such as ``{"type": "text", …}`` holds.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(text_of, value))
    if isinstance(value, dict):
        return next(
            filter(None, map(text_of, map(value.get, ("text", "thinking", "summary", "refusal")))),
            "",
        )
    return ""


def end_of(choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The number of choices and how they ended, by the names of a ``Delta``; a failed choice's
    reason counts for all.
    """
    end: dict[str, Any] = {}
    for choice in choices:
        if (reason := choice.get("finish_reason")) and not failure_of(end.get("finish")):
            end["finish"] = str(reason)
            if error := error_of(choice):
                end["error"] = error
        index = choice.get("index")
        if isinstance(index, int) and index > 0:
            end["choices"] = max(end.get("choices", 0), index + 1)
    if len(choices) > 1:
        end["choices"] = max(end.get("choices", 0), len(choices))
    return end


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat(Endpoint):
    """``POST /v1/chat/completions``: the prompt is one message of the user."""

    kind, where = "chat", "/v1/chat/completions"

    def body(self, prompt: str, osl: int) -> dict[str, Any]:
        """One user message, the length, and usage in the last event of a stream."""
        return {"messages": messages((), prompt), **self._openai_fields(osl)}

    def talk(self, history: Sequence[tuple[str, str]], prompt: str, osl: int) -> dict[str, Any]:
        """The conversation so far as messages, and the next question."""
        return {**self.body(prompt, osl), "messages": messages(history, prompt)}

    def whole(self, document: dict[str, Any]) -> Delta:
        """Content, reasoning, refusals and tool calls of every choice's delta or message; a role
        alone is no output.
        """
        text, thought, choices = "", False, document.get("choices") or ()
        for choice in choices:
            part = choice.get("delta" if "delta" in choice else "message") or {}
            details = part.get("reasoning_details")
            if reasoning := part.get("reasoning_content") or part.get("reasoning") or details:
                text += text_of(reasoning)
                thought = thought or (bool(text) and not _summaries(details))
            content = part.get("content")
            if isinstance(content, str):
                text += content
            elif content:
                text += text_of(content)
                thought = thought or _thinks(content)
            text += joined(part.get("refusal"))
            for function in (
                *map(_function, part.get("tool_calls") or ()),
                part.get("function_call"),
            ):
                text += joined(function.get("name"), function.get("arguments")) if function else ""
        return Delta(
            text=text,
            thought=thought,
            **{"error": error_of(document), **end_of(choices), **usage_of(document)},
        )


def _function(call: dict[str, Any]) -> Any:
    return call.get("function")


def _summaries(details: Any) -> bool:
    """Whether OpenRouter's details of a reasoning are a summary."""
    return isinstance(details, list) and any(
        part.get("type") == "reasoning.summary" for part in details
    )


def _thinks(content: Any) -> bool:
    """Whether a content in parts holds reasoning, as Mistral's does."""
    return isinstance(content, list) and any(
        part.get("type") == "thinking" for part in content if isinstance(part, dict)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Completions(Endpoint):
    """``POST /v1/completions``: the prompt is plain text, and no template is added to it."""

    kind, where = "completions", "/v1/completions"

    def body(self, prompt: str, osl: int) -> dict[str, Any]:
        """The prompt, the length, and usage in the last event of a stream."""
        return {"prompt": prompt, **self._openai_fields(osl)}

    def talk(self, history: Sequence[tuple[str, str]], prompt: str, osl: int) -> dict[str, Any]:
        """The earlier messages, one line each, followed by the next question."""
        return self.body("\n".join([*(part for pair in history for part in pair), prompt]), osl)

    def whole(self, document: dict[str, Any]) -> Delta:
        """The text of every choice."""
        choices = document.get("choices") or ()
        text = joined(*(choice.get("text") for choice in choices))
        return Delta(
            text=text, **{"error": error_of(document), **end_of(choices), **usage_of(document)}
        )


_OUTPUT = frozenset(
    (
        "response.output_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
        "response.refusal.delta",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
        "response.mcp_call_arguments.delta",
    )
)
_ENDS = frozenset(
    ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Responses(Endpoint):
    """``POST /v1/responses``: the output comes as ``response.output_text.delta`` and its
    relatives.
    """

    kind, where = "responses", "/v1/responses"

    def body(self, prompt: str, osl: int) -> dict[str, Any]:
        """The input and the length."""
        return {"input": prompt, **self._openai_fields(osl, limit_name="max_output_tokens")}

    def talk(self, history: Sequence[tuple[str, str]], prompt: str, osl: int) -> dict[str, Any]:
        """The conversation so far as messages, and the next question."""
        return {**self.body(prompt, osl), "input": messages(history, prompt)}

    def event(self, document: dict[str, Any]) -> Delta:
        """The delta of an output event, or what the last event says of the whole."""
        kind = document.get("type")
        if kind in _OUTPUT:
            return Delta(
                text=joined(document.get("delta")), thought=kind == "response.reasoning_text.delta"
            )
        if kind in _ENDS:
            response = document.get("response") or {}
            finish = _why(response) or str(kind).removeprefix("response.")
            return Delta(
                finish=finish, error=error_of({"choices": (), **response}), **usage_of(response)
            )
        if kind == "error":
            return Delta(
                error=error_of(
                    {
                        "error": (
                            document.get("error")
                            or document.get("message")
                            or "an error without a message"
                        )
                    }
                )
            )
        return Delta(error=error_of(document))

    def whole(self, document: dict[str, Any]) -> Delta:
        """The texts of every item of the output."""
        text, thought = "", False
        for item in document.get("output") or ():
            content = text_of(item.get("content"))
            thought = thought or (bool(content) and item.get("type") == "reasoning")
            text += joined(item.get("arguments"), content or text_of(item.get("summary")))
        finish = _why(document) or "completed"
        return Delta(
            text=text,
            thought=thought,
            finish=finish,
            error=error_of(document),
            **usage_of(document),
        )


def _why(response: dict[str, Any]) -> str:
    """Why a response ended: what made it incomplete, else its status."""
    details = response.get("incomplete_details")
    return joined(details.get("reason") if isinstance(details, dict) else None) or joined(
        response.get("status")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings(Endpoint):
    """``POST /v1/embeddings``: the reply has no tokens, so that only its end-to-end latency means
    something.
    """

    kind, where, has_output = "embeddings", "/v1/embeddings", False

    def body(self, prompt: str, osl: int) -> dict[str, Any]:
        """The text to embed."""
        return {"model": self.model, "input": prompt}

    def whole(self, document: dict[str, Any]) -> Delta:
        """Whether there is a vector, and the usage; the server counts no output tokens."""
        error = error_of(document)
        if not error and not document.get("data"):
            error = "a reply without an embedding"
        return Delta(
            finish="stop", error=error, tokens=0, prompt=usage_of(document).get("prompt", -1)
        )


def model_path(model: str, verb: str = "") -> str:
    """The path of a model in the v2 protocol, or of one of its resources."""
    return f"/v2/models/{quote(model, safe='')}" + (f"/{verb}" if verb else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate(Endpoint):
    """``POST /v2/models/MODEL/generate_stream``, or ``generate`` where the reply is not streamed.

    The protocol carries no usage and no ``[DONE]``: tokens are counted from the text, and the reply
    ends with the stream.
    """

    kind, marks_end = "generate", False

    @property
    def path(self) -> str:
        """``/v2/models/MODEL/generate_stream`` or ``/v2/models/MODEL/generate``."""
        return model_path(self.model, "generate_stream" if self.streaming else "generate")

    def body(self, prompt: str, osl: int) -> dict[str, Any]:
        """Inputs by the names that both backends know; ``min_length`` is what TensorRT-LLM calls
        the least output.
        """
        return {
            "text_input": prompt,
            "max_tokens": osl,
            **({"min_length": osl} if self.pinned else {}),
            **({"stream": True} if self.streaming else {}),
        }

    def whole(self, document: dict[str, Any]) -> Delta:
        """The text of ``text_output``."""
        output = document.get("text_output")
        parts = output if isinstance(output, list) else (output,)
        return Delta(text=joined(*parts), error=error_of(document))


@dataclass(frozen=True, slots=True, kw_only=True)
class Infer(Endpoint):
    """``POST /v2/models/MODEL/infer``, or gRPC's call: one reply without tokens, so that its
    end-to-end latency is what counts.
    """

    kind, has_output = "infer", False

    @property
    def path(self) -> str:
        """``/v2/models/MODEL/infer``."""
        return model_path(self.model, "infer")

    def whole(self, document: dict[str, Any]) -> Delta:
        """Whether there are outputs."""
        error = error_of(document)
        if not error and not document.get("outputs"):
            error = "a reply without outputs"
        return Delta(finish="stop", error=error, tokens=0)


__all__ = ["KINDS", "Delta", "Endpoint", "find_endpoint"]

KINDS: dict[str, type[Endpoint]] = {
    kind.kind: kind for kind in (Chat, Completions, Responses, Embeddings, Generate, Infer)
}


def find_endpoint(
    kind: str,
    *,
    model: str,
    streaming: bool = True,
    pinned: bool = True,
    extra: dict[str, Any] | None = None,
    omitted: Sequence[str] = (),
) -> Endpoint:
    """An endpoint by the name of its kind. Raises UnknownName: no such kind; InputError: a stream
    of embeddings or of an inference.
    """
    if kind not in KINDS:
        raise UnknownName("endpoint type", kind, KINDS)
    if kind in ("embeddings", "infer") and streaming:
        raise InputError(f"{option('streaming')}: {kind} has one reply; switch streaming off")
    return KINDS[kind](
        model=model, streaming=streaming, pinned=pinned, extra=extra or {}, omitted=tuple(omitted)
    )
