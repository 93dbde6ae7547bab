"""A request of the OpenAI API, read and checked: what an engine needs to know of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tonnage.serve.dialect import Refused
from tonnage.serve.rules import (
    CONFIGURES,
    ENABLES_EMBEDS,
    PARSES,
    check_before,
    check_choices,
    check_sampling,
    checked,
    refusal,
)
from tonnage.serve.tokens import Message, Prompt, Reader
from tonnage.simulator.router import session_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the tokens of an answer are chosen, with the defaults of OpenAI's API and vLLM's further
    fields.
    """

    temperature: float = 1.0  # 0 for the most likely token always
    top_p: float = 1.0  # and top_k, min_p: what the choice is among; 1, 0 and 0 for all tokens
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0  # and frequency_penalty, repetition_penalty: 0, 0 and 1 for none
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None  # None for any
    min_tokens: int = 0  # before these an answer does not end by itself
    ignore_eos: bool = False  # it does not end by itself at all
    stop_token_ids: tuple[int, ...] = ()  # tokens at which it ends


_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
)
_ENDING = ("min_tokens", "ignore_eos")

PARTS = (
    *(
        "audio_embeds",
        "audio_url",
        "image_embeds",
        "image_pil",
        "image_url",
        "input_audio",
        "input_image",
        "input_text",
        "output_text",
    ),
    *(
        "prompt_embeds",
        "refusal",
        "text",
        "thinking",
        "tool_reference",
        "video_embeds",
        "video_url",
    ),
)
"""Kinds of parts that vLLM knows in the content of a message."""

_NEVER = -100  # The bias of a token that is never taken

Kind = Literal["chat", "completions"]
PATHS: Mapping[Kind, str] = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as it was read."""

    kind: Kind
    model: str  # as the client names it
    prompts: tuple[Prompt, ...]  # one, or the several of a completion
    osl: int  # output tokens at most, of each answer
    sampling: Sampling  # how tokens are chosen
    choices: int = 1  # answers to the same prompt (``n``)
    # and usage: whether tokens are streamed, and whether the stream ends with the usage
    stream: bool = False
    usage: bool = False
    # whether every event of it has the current usage (vLLM's ``continuous_usage_stats``)
    usage_each: bool = False
    stop: tuple[str, ...] = ()  # texts at which an answer ends
    keeps_stop: bool = False  # whether such a text is given out
    session: int = -1  # a number for session affinity, made of ``user``; -1 without
    # alternatives to each token with their log probabilities; None for no log probabilities
    logprobs: int | None = None
    prompt_logprobs: int | None = None  # the same for the prompt
    echo: bool = False  # whether an answer begins with its prompt
    token_ids: bool = False  # whether an answer has its tokens as numbers
    tokens_as_ids: bool = False  # whether log probabilities name tokens by number
    # names of tools that may be called, with the schemas of their arguments
    tools: Mapping[str, Any] = field(default_factory=dict)
    # and named_tool: "none", "auto", "required" or "named"; and the tool that has to be called
    tool_choice: Literal["none", "auto", "required", "named"] = "none"
    named_tool: str = ""
    parallel_calls: bool = True  # whether several may be called at once
    grammar: str = ""  # what the answer has to fit (``structure``); "" for nothing
    # and shows_reasoning: whether the model thinks first, and whether the client sees it
    reasons: bool = False
    shows_reasoning: bool = True
    # and banned: tokens that it may be made of, all where empty, and tokens that it has never
    allowed: frozenset[int] = frozenset()
    banned: frozenset[int] = frozenset()
    bad_words: tuple[str, ...] = ()  # texts that it does not have
    adapter: str = ""  # by whose weights it is answered; "" for the model's own
    salt: str = ""  # keeps its blocks apart in the prefix cache
    # ``kv_transfer_params``, for prefill and decode apart
    transfer: Mapping[str, Any] | None = None
    came_at: float | None = None  # when it came, in seconds of ``time.monotonic``; None for now
    # whether the KV cache of its prompt comes from another engine, at ``came_at``
    received: bool = False
    rank: int | None = None  # the engine that the client chose; None for the router's choice
    offered_as: str = ""  # by which name another engine fetches its KV cache; "" where none does
    role: str = "assistant"  # of a chat's answer
    said: str = ""  # what an answer of a chat that is echoed begins with

    @property
    def isl(self) -> int:
        """Tokens of all prompts."""
        return sum(prompt.tokens for prompt in self.prompts)

    @property
    def prompt_alone(self) -> bool:
        """Whether an answer is its prompt and nothing else."""
        return self.echo and self.kind == "completions" and self.osl == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A LoRA adapter that is loaded."""

    name: str  # by which requests ask for it
    path: str  # it was loaded from
    number: int  # of the adapter, from 1 on
    blocks: int  # KV blocks that its weights take, in each engine

    @property
    def salt(self) -> str:
        """The salt that keeps its blocks in the prefix cache apart from those of others."""
        return f"\0{self.name}\0{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of every request to a server."""

    models: tuple[str, ...]  # names that requests may have; an empty one means the first
    max_context: int = 0  # longest prompt plus output; 0 for no limit
    # output tokens of a chat that sets no limit; 0 for as many as the context leaves
    default_osl: int = 0
    vocabulary: int = 0  # tokens that there are; 0 where nobody knows
    # whether a model answers, so that what would change its answers and is not heeded is refused
    real: bool = False
    reasons: bool = False  # whether it thinks before it answers
    # further names that they may have, of adapters that are loaded
    adapters: dict[str, Adapter] = field(default_factory=dict)


def asked_of(kind: Kind, body: Any, *, reader: Reader, limits: Limits) -> Asked:
    """Read the body of a request, as JSON gave it. Raises Refused: with the error that the client
    gets.
    """
    if isinstance(body, Mapping):
        check_before(kind, body)
        if body.get("tools") and "tool_choice" not in body:
            body = {**body, "tool_choice": "auto"}
        if kind == "completions" and body.get("prompt_embeds"):
            raise refusal(
                f"You must set `{ENABLES_EMBEDS}` to input `prompt_embeds`.", "prompt_embeds"
            )
    fields = checked(PATHS[kind], body)
    check_model(fields.get("model"), limits)
    check_choices(1 if fields["n"] is None else fields["n"])
    if limits.real:
        _refuse_unheeded(
            fields,
            (
                "use_beam_search",
                "logprobs",
                "top_logprobs",
                "prompt_logprobs",
                "echo",
                "suffix",
                "tools",
                "structured_outputs",
            ),
        )
        if (fields.get("response_format") or {}).get("type", "text") != "text":
            raise Refused(
                "response_format: this server answers in plain text only", param="response_format"
            )
    prompts = (prompt_of_chat(fields, reader),) if kind == "chat" else _prompts(fields, reader)
    prompts = tuple(_truncated(fields, prompt, limits.max_context) for prompt in prompts)
    osl = _osl(kind, fields, prompts, limits)
    sampling = _sampling(fields)
    alone = kind == "completions" and fields["echo"] and fields["max_tokens"] == 0
    _check_by_limits(fields, prompts[0].tokens if alone else 0, limits)
    logprobs = (
        (fields["top_logprobs"] or 0 if fields["logprobs"] else None)
        if kind == "chat"
        else fields["logprobs"]
    )
    greedy = sampling.temperature == 0
    check_sampling(
        fields,
        osl=1 if alone else osl,
        logprobs=logprobs,
        greedy=greedy,
        vocabulary=limits.vocabulary,
    )
    options = fields.get("stream_options") or {}
    echoed, echoed_logprobs = (
        fields["echo"] and logprobs is not None,
        fields["top_logprobs"] if kind == "chat" else fields["logprobs"],
    )
    adapter = limits.adapters.get(fields.get("model") or "")
    return Asked(
        kind=kind,
        model=fields.get("model") or limits.models[0],
        prompts=prompts,
        osl=0 if alone else osl,
        sampling=sampling,
        choices=fields["n"] or 1,
        stream=bool(fields["stream"]),
        usage=bool(options.get("include_usage")),
        usage_each=bool(options.get("include_usage") and options.get("continuous_usage_stats")),
        stop=_stop(fields.get("stop")),
        keeps_stop=fields["include_stop_str_in_output"],
        session=session_number(fields["user"].encode()) if fields.get("user") else -1,
        logprobs=logprobs,
        prompt_logprobs=(
            fields["prompt_logprobs"]
            if fields["prompt_logprobs"] is not None or not fields["echo"]
            else echoed_logprobs
        ),
        echo=fields["echo"],
        token_ids=bool(fields["return_token_ids"]),
        tokens_as_ids=(
            bool(fields["return_tokens_as_token_ids"]) if logprobs is not None or echoed else False
        ),
        grammar=_grammar(fields),
        reasons=limits.reasons,
        shows_reasoning=fields.get("include_reasoning", True),
        allowed=frozenset(fields.get("allowed_token_ids") or ()),
        banned=frozenset(
            int(token) for token, bias in (fields.get("logit_bias") or {}).items() if bias <= _NEVER
        ),
        bad_words=tuple(fields.get("bad_words") or ()),
        adapter="" if adapter is None else adapter.name,
        salt=(fields.get("cache_salt") or "") + ("" if adapter is None else adapter.salt),
        transfer=fields.get("kv_transfer_params"),
        **({**_tools(fields), **_speaks(fields)} if kind == "chat" else {}),
    )


def _check_by_limits(body: Mapping[str, Any], alone: int, limits: Limits) -> None:
    """Refuse what this server has no room for; ``alone`` are the tokens of a prompt after which
    nothing is generated.
    """
    if body.get("thinking_token_budget") is not None and not limits.reasons:
        words = "thinking_token_budget is set but reasoning_config is not configured. Please set"
        raise Refused(f"{words} {PARSES} and/or {CONFIGURES} to use thinking_token_budget.")
    if 0 < limits.max_context <= alone:
        words = (
            f"The decoder prompt (length {alone}) plus the number of requested output tokens (at"
            " least 1) is longer than the maximum "
        )
        words += (
            f"model length of {limits.max_context}. Make sure that `max_model_len` is no smaller"
            " than the number of text tokens (prompt "
        )
        raise Refused(f"{words}+ requested output tokens).")


def _speaks(body: Mapping[str, Any]) -> dict[str, str]:
    """The role of a chat's answer. With ``echo`` the answer begins with the last message, if that
    message has the same role.
    """
    last = body["messages"][-1]
    role = "assistant" if body["add_generation_prompt"] else last["role"]
    return {
        "role": role,
        "said": (
            _text_of({"content": last.get("content")}, "")
            if body["echo"] and last["role"] == role
            else ""
        ),
    }


def check_model(name: str | None, limits: Limits) -> None:
    """Return the name of a model that is served. Raises Refused: it is another one."""
    if name and name not in limits.models and name not in limits.adapters:
        aliases = ", ".join(limits.models)
        words = f"The model `{name}` does not exist. Valid aliases: {aliases}."
        raise Refused(words, status=404, kind="NotFoundError", param="model")


def _osl(kind: Kind, body: Mapping[str, Any], prompts: Sequence[Prompt], limits: Limits) -> int:
    """The output tokens that the context leaves, of those requested."""
    named = (
        "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    )
    requested, longest, max_context = (
        body.get(named),
        max(prompt.tokens for prompt in prompts),
        limits.max_context,
    )
    if kind == "completions" and requested is None:
        requested = 16
    if max_context and requested is not None and requested > max_context:
        raise refusal(
            f"{named}={requested} cannot be greater than max_model_len={max_context}. Please"
            " request fewer output tokens.",
            named,
            requested,
        )
    if max_context and longest > max_context:
        read = max(prompts, key=lambda prompt: prompt.tokens)
        raise too_long(read, max_context, text=kind == "chat" or bool(read.text))
    room = max_context - longest if max_context else 1 << 31
    return (
        int(min(room, limits.default_osl or room))
        if requested is None
        else int(min(requested, room))
    )


def too_long(prompt: Prompt, most_tokens: int, *, text: bool) -> Refused:
    """The error of a prompt beyond the context; of a text vLLM reads no more than one token beyond
    it.
    """
    length = most_tokens + 1 if text else prompt.tokens
    count = f"at least {length}" if text else f"{length}"
    words = (
        f"This model's maximum context length is {most_tokens} tokens. However, your prompt"
        f" contains {count} input tokens, which exceeds this "
    )
    words += "limit even without any output tokens. Please reduce the length of the input prompt."
    return refusal(words, "input_tokens", length)


def _sampling(body: Mapping[str, Any]) -> Sampling:
    settings = {name: body[name] for name in (*_SAMPLING, *_ENDING) if body.get(name) is not None}
    if settings.get("top_k", 0) < 0:
        del settings["top_k"]  # vLLM's −1 is no limit, too
    if settings.get("seed") == -1:
        del settings["seed"]
    return Sampling(**settings, stop_token_ids=tuple(body.get("stop_token_ids") or ()))


def _grammar(body: Mapping[str, Any]) -> str:
    """The grammar that the answer has to fit."""
    form, structured = body.get("response_format") or {}, body.get("structured_outputs") or {}
    if not structured and form.get("type", "text") == "text":
        return ""
    from tonnage.serve import structure

    if structured.get("regex") is not None:
        return structure.regex_grammar(structured["regex"])
    if structured.get("choice") is not None:
        return structure.choice_grammar(structured["choice"])
    if structured.get("grammar") is not None:
        return structure.written_grammar(structured["grammar"])
    if structured.get("structural_tag") is not None or form.get("type") == "structural_tag":
        raise Refused(
            "structural_tag: this server does not do that; leave it out", param="response_format"
        )
    schema = structured["json"] if structured.get("json") is not None else structure.schema_of(form)
    return structure.json_grammar({"type": "object"} if schema is None else schema)


def _tools(body: Mapping[str, Any]) -> dict[str, Any]:
    """Tools that may be called: with "auto" only where the last message is not a result of one, so
    that an agent comes to an end.
    """
    if not body.get("tools"):
        return {}
    tools = {tool["function"]["name"]: tool["function"].get("parameters") for tool in body["tools"]}
    choice = body["tool_choice"] or "auto"
    named = choice["function"]["name"] if isinstance(choice, Mapping) else ""
    if choice == "auto" and body["messages"][-1].get("role") == "tool":
        choice = "none"
    parallel = body["parallel_tool_calls"] is not False
    return {
        "tools": tools,
        "tool_choice": "named" if named else choice,
        "named_tool": named,
        "parallel_calls": parallel,
    }


def _refuse_unheeded(body: Mapping[str, Any], names: Sequence[str]) -> None:
    """Fields that would change an answer are refused rather than passed over."""
    for name in names:
        value = body.get(name)
        if value not in (None, False, 0, "", []) or (
            name == "logprobs" and value is not None and value is not False
        ):
            raise Refused(f"{name}: this server does not do that; leave it out", param=name)


def prompt_of_chat(body: Mapping[str, Any], reader: Reader) -> Prompt:
    """The prompt of a chat: its messages, after the tools that may be called."""
    messages = body["messages"]
    if not messages:
        raise Refused(
            "Cannot apply chat template to an empty conversation. Provide at least one message."
        )
    if body.get("continue_final_message") and body.get("add_generation_prompt"):
        raise Refused(
            "continue_final_message and add_generation_prompt are not compatible. Use"
            " continue_final_message when you want the model to continue the final message, and"
            " add_generation_prompt when you want to add a header that will prompt it to start a"
            " new assistant message instead."
        )
    chat_messages = [
        Message(
            role=message.get("role") or "", text=_text_of(message, body.get("model") or "the model")
        )
        for message in messages
    ]
    if body.get("tools") and body.get("tool_choice") != "none":
        chat_messages = [Message(role="tools", text=json.dumps(body["tools"])), *chat_messages]
    return reader.chat(chat_messages)


def _text_of(message: Mapping[str, Any], model: str) -> str:
    """The text of a message, whose content may be a list of parts; other parts than text are
    refused.
    """
    content = message.get("content")
    calls = message.get("tool_calls")
    after = json.dumps(list(calls)) if calls else ""
    if content is None or isinstance(content, str):
        return (content or "") + after
    for part in content:
        if not isinstance(part, str) and (kind := part.get("type", "text")) not in PARTS:
            words = (
                f"Unsupported chat content part type: '{kind}'. Supported types:"
                f" {', '.join(PARTS)}."
            )
            raise refusal(words, "type", kind)
    parts = [
        (
            part
            if isinstance(part, str)
            else part.get("text") or part.get("refusal") or part.get("thinking")
        )
        for part in content
    ]
    if not all(isinstance(part, str) for part in parts):
        raise Refused(f"{model} is not a multimodal model")
    return "\n".join(parts) + after


def _prompts(body: Mapping[str, Any], reader: Reader) -> tuple[Prompt, ...]:
    """Read the prompts of a completion."""
    prompt = body["prompt"]
    if body.get("suffix") is not None:
        why = (
            "is only supported for models with"
            if isinstance(prompt, str)
            else "requires text prompt input for"
        )
        raise Refused(f"suffix {why} FIM completion rendering", param="suffix")
    return prompts_of(prompt, reader, special=body["add_special_tokens"])


def prompts_of(prompt_field: Any, reader: Reader, *, special: bool) -> tuple[Prompt, ...]:
    """A text, token ids, or a list of either. Raises Refused: nothing, or an empty one."""
    if prompt_field == []:
        raise Refused("You must pass at least one prompt")
    several = (
        prompt_field
        if isinstance(prompt_field, list) and not isinstance(prompt_field[0], int)
        else [prompt_field]
    )
    if any(prompt in ("", []) for prompt in several):
        raise Refused("The decoder prompt cannot be empty")
    return tuple(
        reader.text(prompt, special=special) if isinstance(prompt, str) else reader.ids(prompt)
        for prompt in several
    )


def _truncated(body: Mapping[str, Any], prompt: Prompt, longest: int) -> Prompt:
    """The part of a prompt that ``truncate_prompt_tokens`` leaves; -1 leaves what the context has
    room for.
    """
    limit = body.get("truncate_prompt_tokens")
    if limit is not None and longest and limit > longest:
        words = (
            f"truncate_prompt_tokens={limit} cannot be greater than max_model_len = {longest}."
            " Please request a smaller truncation size."
        )
        raise refusal(words, "truncate_prompt_tokens", limit)
    limit = longest - 1 if limit == -1 and longest else limit
    if limit == 0:
        raise Refused("The decoder prompt cannot be empty")
    if limit is None or limit < 0 or prompt.tokens <= limit:
        return prompt
    return Prompt(
        ids=prompt.ids[:limit] if body.get("truncation_side") == "right" else prompt.ids[-limit:]
    )


def _stop(value: Any) -> tuple[str, ...]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)
