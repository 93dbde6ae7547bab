"""What vLLM 0.32 answers, request by request: the requests, and answers without what may differ (words, numbers of tokens, ids, times)."""

from __future__ import annotations

import http.client
import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

CHAT, TEXT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
COUNT, TOKENIZE, DETOKENIZE = "/v1/messages/count_tokens", "/tokenize", "/detokenize"
SAYS = [{"role": "user", "content": "tell a tale"}]
PLAIN = {"model": "tiny", "max_tokens": 5, "temperature": 0, "ignore_eos": True}
IDS = [7, 8, 9, 10, 11, 12]
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
EACH = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": CITY}}
NAMED = {"type": "function", "function": {"name": "weather"}}
DIGIT = {"enum": [7]}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
ANTHROPIC_TOOL = {"name": "weather", "description": "of a city", "input_schema": CITY}
RESPONSES_TOOL = {"type": "function", "name": "weather", "description": "of a city", "parameters": CITY}
CALL = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
STREAM = {"stream": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request: without a body a GET, unless ``method`` says otherwise; bytes are sent as they stand.

    An answer that is ``free`` may have any number of tokens.
    """

    path: str
    body: Any = None
    method: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    free: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """An answer: its documents are one, or the events of a stream."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def events(self) -> list[tuple[str, Any]]:
        """Names and documents of server-sent events."""
        found = []
        for block in self.text.split("\n\n"):
            lines = dict(line.partition(": ")[::2] for line in block.splitlines())
            if "data" in lines:
                found.append((lines.get("event", ""), lines["data"] if lines["data"] == "[DONE]" else json.loads(lines["data"])))
        return found

    @property
    def json(self) -> Any:
        """The only document."""
        return json.loads(self.text)


def send(port: int, sent: Sent) -> Got:
    """The answer of the server on that port."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        data = sent.body if isinstance(sent.body, bytes | None) else json.dumps(sent.body).encode()
        headers = {"content-type": "application/json", **sent.headers}
        connection.request(sent.method or ("GET" if sent.body is None else "POST"), sent.path, data, headers)
        reply = connection.getresponse()
        return Got(status=reply.status, headers={k.lower(): v for k, v in reply.getheaders()}, text=reply.read().decode())
    finally:
        connection.close()


def chat(**more: Any) -> Sent:
    return Sent(path=CHAT, body={**PLAIN, "messages": SAYS, **more})


def text(**more: Any) -> Sent:
    return Sent(path=TEXT, body={**PLAIN, "prompt": IDS, **more})


def without(sent: Sent, *names: str) -> Sent:
    return Sent(path=sent.path, body={name: value for name, value in sent.body.items() if name not in names})


def responses(**more: Any) -> Sent:
    return Sent(path=RESPONSES, body={"model": "tiny", "input": "tell a tale", "max_output_tokens": 5, "temperature": 0, **more})


def messages(path: str = MESSAGES, **more: Any) -> Sent:
    limit = {} if path == COUNT else {"max_tokens": 5}
    return Sent(path=path, body={"model": "tiny", "messages": SAYS, **limit, **more})


def ending(sent: Sent, **more: Any) -> Sent:
    """A request whose answer ends where its grammar does."""
    return Sent(path=sent.path, body={**without(sent, "ignore_eos").body, "max_tokens": 60, **more}, free=True)


def schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}


ANSWERED: dict[str, Sent] = {
    "models": Sent(path="/v1/models"),
    "health": Sent(path="/health"),
    "ping": Sent(path="/ping"),
    "ping, posted": Sent(path="/ping", body={}),
    "load": Sent(path="/load"),
    "version": Sent(path="/version"),
    "chat": chat(),
    "chat, max_completion_tokens": without(chat(max_completion_tokens=3), "max_tokens"),
    "chat, both limits": chat(max_completion_tokens=3),
    "chat, two choices": chat(n=2, temperature=1),
    "chat, parts of a content": chat(messages=[{"role": "user", "content": [{"type": "text", "text": "a tale"}]}]),
    "chat, several roles": chat(messages=[{"role": "system", "content": "be brief"}, *SAYS, {"role": "assistant", "content": "no"}, *SAYS]),
    "chat, no model": without(chat(), "model"),
    "chat, streamed": chat(**STREAM),
    "chat, streamed with usage": chat(**USAGE),
    "chat, streamed with usage in every event": chat(**EACH),
    "chat, two choices streamed": chat(**USAGE, n=2, temperature=1, max_tokens=1),
    "chat, one token streamed": chat(**STREAM, max_tokens=1),
    "chat, logprobs": chat(logprobs=True, max_tokens=2),
    "chat, top logprobs": chat(logprobs=True, top_logprobs=2, max_tokens=2),
    "chat, top logprobs streamed": chat(logprobs=True, top_logprobs=2, max_tokens=2, stream=True),
    "chat, logprobs by token ids": chat(logprobs=True, top_logprobs=1, max_tokens=1, return_tokens_as_token_ids=True),
    "chat, token ids": chat(return_token_ids=True),
    "chat, token ids streamed": chat(return_token_ids=True, stream=True, max_tokens=2),
    "chat, prompt logprobs": chat(prompt_logprobs=1, max_tokens=1),
    "chat, seed": chat(seed=5, temperature=1),
    "chat, tools, none": chat(tools=[TOOL], tool_choice="none"),
    "chat, tools, named": ending(chat(tools=[TOOL], tool_choice=NAMED)),
    "chat, tools, named, streamed": ending(chat(tools=[TOOL], tool_choice=NAMED, stream=True)),
    "chat, tools, auto, no room": chat(tools=[TOOL], max_tokens=3),
    "chat, tools, auto, no room, streamed": chat(tools=[TOOL], max_tokens=3, stream=True),
    "chat, a tool's result": chat(
        messages=[
            *SAYS,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "rain"},
        ],
    ),
    "chat, json_schema": ending(chat(response_format=schema_format(DIGIT))),
    "chat, json_schema, streamed": ending(chat(response_format=schema_format(DIGIT), stream=True)),
    "chat, json_schema, never ending": chat(response_format=schema_format(DIGIT), max_tokens=9),
    "chat, text as a format": chat(response_format={"type": "text"}),
    "chat, choice": ending(chat(structured_outputs={"choice": ["yes", "no"]})),
    "chat, json": ending(chat(structured_outputs={"json": DIGIT})),
    "chat, unknown field": chat(nothing_like_it=1),
    "chat, nulls": chat(n=None, stop=None, stream=None, seed=None, tools=None, logit_bias=None),
    "chat, numbers as text": chat(max_tokens="3", temperature="0"),
    "chat, echo": chat(echo=True),
    "text": text(),
    "text, no limit": without(text(), "max_tokens"),
    "text, null limit": text(max_tokens=None),
    "text, a text": text(prompt="a tale"),
    "text, two prompts": text(prompt=[IDS, [7, 8]]),
    "text, two texts and two choices": text(prompt=["a", "tale"], n=2, temperature=1),
    "text, streamed": text(**STREAM),
    "text, streamed with usage": text(**USAGE),
    "text, streamed with usage in every event": text(**EACH),
    "text, two choices streamed": text(**USAGE, n=2, temperature=1, max_tokens=1),
    "text, logprobs": text(logprobs=2, max_tokens=2),
    "text, no alternatives to logprobs": text(logprobs=0, max_tokens=2),
    "text, logprobs streamed": text(logprobs=1, max_tokens=2, stream=True),
    "text, logprobs by token ids": text(logprobs=1, max_tokens=1, return_tokens_as_token_ids=True),
    "text, echo": text(echo=True, prompt="a tale"),
    "text, echo streamed": text(echo=True, prompt="a tale", stream=True),
    "text, echo alone": text(echo=True, max_tokens=0),
    "text, echo with logprobs": text(echo=True, logprobs=1, max_tokens=1),
    "text, prompt logprobs": text(prompt_logprobs=1, max_tokens=1),
    "text, token ids": text(return_token_ids=True),
    "text, token ids streamed": text(return_token_ids=True, stream=True, max_tokens=2),
    "text, min_tokens": text(min_tokens=5),
    "text, logit bias": text(logit_bias={"7": 5}),
    "text, json_schema": ending(text(response_format=schema_format(DIGIT))),
    "text, json_schema, streamed": ending(text(response_format=schema_format(DIGIT), stream=True)),
    "text, a regular expression": ending(text(structured_outputs={"regex": "[ab]{3}"})),
    "text, a grammar": ending(text(structured_outputs={"grammar": 'root ::= "yes" | "no"'})),
    "text, cut short by the context": text(prompt=[7] * 2046, max_tokens=100),
    "text, truncated prompt": text(truncate_prompt_tokens=2),
    "text, a cache salt": text(cache_salt="salt"),
    "text, best_of is passed over": text(best_of=2),
    "tokenize": Sent(path=TOKENIZE, body={"model": "tiny", "prompt": "a tale"}),
    "tokenize, tokens": Sent(path=TOKENIZE, body={"prompt": "a tale", "return_token_strs": True}),
    "tokenize, chat": Sent(path=TOKENIZE, body={"model": "tiny", "messages": SAYS}),
    "detokenize": Sent(path=DETOKENIZE, body={"model": "tiny", "tokens": IDS}),
    "responses": responses(),
    "responses, messages": responses(input=SAYS),
    "responses, instructions": responses(instructions="be brief"),
    "responses, streamed": responses(stream=True),
    "messages": messages(),
    "messages, system": messages(system="be brief"),
    "messages, parts of a content": messages(messages=[{"role": "user", "content": [{"type": "text", "text": "a tale"}]}]),
    "messages, streamed": messages(stream=True),
    "messages, a stop text": replace(messages(stop_sequences=["e", "a", "i", "o"], temperature=0), free=True),
    "messages, tool": Sent(
        path=MESSAGES,
        body={**messages(tools=[ANTHROPIC_TOOL], tool_choice={"type": "tool", "name": "weather"}).body, "max_tokens": 60, "temperature": 0},
        free=True,
    ),
    "responses, tool": Sent(
        path=RESPONSES,
        body={**responses(tools=[RESPONSES_TOOL], tool_choice={"type": "function", "name": "weather"}).body, "max_output_tokens": 60},
        free=True,
    ),
    "responses, logprobs": responses(include=["message.output_text.logprobs"], top_logprobs=1, max_output_tokens=1),
    "messages, counted": messages(COUNT),
    "invocations": Sent(path="/invocations", body=text().body),
}
"""By name. What is answered with 200, and what …"""

REFUSED: dict[str, Sent] = {
    "suffix of tokens": text(suffix="x"),
    "suffix of a text": text(suffix="x", prompt="a"),
    "an empty prompt among others": text(prompt=["a", ""]),
    "too many choices": text(n=20_000, temperature=1),
    "no number of choices": text(n=None),
    "too many stop texts": text(stop=["q"] * 30),
    "an image": chat(messages=[{"role": "user", "content": [IMAGE]}]),
    "a prompt of tokens and texts": text(prompt=[IDS, "a"]),
    "responses after an unknown one": responses(previous_response_id="resp_nothing"),
    "no such path": Sent(path="/v1/nothing"),
    "wrong method": Sent(path=CHAT),
    "no JSON": Sent(path=TEXT, body=b"{"),
    "no object": Sent(path=TEXT, body=b"[1]"),
    "empty body": Sent(path=CHAT, body=b""),
    "another type of content": Sent(path=TEXT, body=b"a=b", headers={"content-type": "application/x-www-form-urlencoded"}),
    "another model": text(model="another"),
    "another model, chat": chat(model="another"),
    "another model, tokenize": Sent(path=TOKENIZE, body={"model": "another", "prompt": "a"}),
    "beyond the context": text(max_tokens=10_000),
    "beyond the context, chat": chat(max_tokens=10_000),
    "beyond the context, max_completion_tokens": without(chat(max_completion_tokens=10_000), "max_tokens"),
    "a prompt beyond the context": text(prompt=[7] * 5_000),
    "a prompt as long as the context": text(prompt=[7] * 2_048),
    "no messages": chat(messages=[]),
    "messages missing": without(chat(), "messages"),
    "messages of another type": chat(messages=5),
    "a message without a role": chat(messages=[{"content": "x"}]),
    "no prompt": without(text(), "prompt"),
    "an empty prompt": text(prompt=""),
    "no prompts": text(prompt=[]),
    "a token beyond the vocabulary": text(prompt=[10_000_000]),
    "temperature below 0": text(temperature=-1),
    "temperature above 2": text(temperature=7),
    "temperature of another type": text(temperature="hot"),
    "top_p above 1": text(top_p=7),
    "top_p of 0": text(top_p=0),
    "top_k below -1": text(top_k=-5),
    "top_k of another type": text(top_k=0.5),
    "min_p above 1": text(min_p=3),
    "presence_penalty above 2": text(presence_penalty=3),
    "frequency_penalty below -2": text(frequency_penalty=-3),
    "repetition_penalty of 0": text(repetition_penalty=0),
    "no tokens": text(max_tokens=0),
    "tokens below 0": text(max_tokens=-1),
    "tokens below 0, chat": chat(max_tokens=-1),
    "tokens of another type": text(max_tokens="many"),
    "min_tokens above max_tokens": text(min_tokens=6),
    "min_tokens below 0": text(min_tokens=-1),
    "no choices": text(n=0),
    "choices below 0": text(n=-1),
    "several choices of a greedy answer": text(n=2),
    "several choices of a greedy answer, chat": chat(n=2),
    "an empty stop text": text(stop=""),
    "stop of another type": text(stop=5),
    "a stop token beyond the vocabulary": text(stop_token_ids=[10_000_000]),
    "stop tokens of another type": text(stop_token_ids=3),
    "seed beyond 64 bits": text(seed=2**64),
    "seed of another type": text(seed="x"),
    "stream of another type": text(stream="perhaps"),
    "stream options without a stream": text(stream_options={"include_usage": True}),
    "stream options without a stream, chat": chat(stream_options={"include_usage": True}),
    "stream options of another type": chat(stream=True, stream_options=5),
    "logprobs of more than 20": text(logprobs=21),
    "logprobs below -1": text(logprobs=-2),
    "top logprobs without logprobs": chat(top_logprobs=2),
    "top logprobs of more than 20": chat(logprobs=True, top_logprobs=21),
    "top logprobs below -1": chat(logprobs=True, top_logprobs=-2),
    "prompt logprobs streamed": text(prompt_logprobs=1, stream=True),
    "logit bias of no token": text(logit_bias={"x": 1}),
    "logit bias beyond the vocabulary": text(logit_bias={"10000000": 1}),
    "a bad word that is empty": text(bad_words=[""]),
    "empty tools": chat(tools=[]),
    "tools of another type": chat(tools=5),
    "a tool without a function": chat(tools=[{"type": "function"}]),
    "a tool without a name": chat(tools=[{"type": "function", "function": {}}]),
    "a tool choice without tools": chat(tool_choice="auto"),
    "an unknown tool choice": chat(tools=[TOOL], tool_choice="perhaps"),
    "a tool choice that is no tool": chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "other"}}),
    "a tool choice without a name": chat(tools=[TOOL], tool_choice={"type": "function", "function": {}}),
    "an unknown format": chat(response_format={"type": "yaml"}),
    "a format without a type": chat(response_format={}),
    "json_schema without a schema": chat(response_format={"type": "json_schema"}),
    "two kinds of structure": chat(structured_outputs={"regex": "a", "choice": ["a"]}),
    "no kind of structure": chat(structured_outputs={}),
    "an empty choice": chat(structured_outputs={"choice": []}),
    "an empty cache salt": text(cache_salt=""),
    "prefill and the answer's begin": chat(continue_final_message=True, add_generation_prompt=True),
    "tokenize nothing": Sent(path=TOKENIZE, body={"model": "tiny"}),
    "detokenize nothing": Sent(path=DETOKENIZE, body={"model": "tiny"}),
    "detokenize beyond the vocabulary": Sent(path=DETOKENIZE, body={"model": "tiny", "tokens": [-1]}),
    "responses without input": Sent(path=RESPONSES, body={"model": "tiny"}),
    "responses, another model": responses(model="another"),
    "responses, unknown id": Sent(path=f"{RESPONSES}/resp_nothing"),
    "messages without a limit": Sent(path=MESSAGES, body={"model": "tiny", "messages": SAYS}),
    "messages, another model": messages(model="another"),
    "messages, no messages": Sent(path=MESSAGES, body={"model": "tiny", "max_tokens": 3}),
    "embeddings of a model that generates": Sent(path="/v1/embeddings", body={"model": "tiny", "input": "a"}),
}
"""… with an error."""

# What may differ is replaced: what a model says, how many tokens a prompt has, ids and times.

_ID = re.compile(r"[0-9a-f]{8}[0-9a-f-]*$|[0-9a-zA-Z]{9,}$")
_WORDS = ("content", "text", "arguments", "token", "delta", "prompt_text", "name", "partial_json", "decoded_token", "thinking", "prompt")
_NUMBERS: tuple[str, ...] = ("created", "created_at", "completed_at", "prompt_tokens", "total_tokens", "input_tokens", "logprob", "count")
_NUMBERS += ("original_input_tokens", "sequence_number")
_LISTS = ("token_ids", "prompt_token_ids", "tokens", "token_strs", "bytes", "text_offset")


def normal(value: Any, name: str = "") -> Any:
    """A document without what may differ."""
    if isinstance(value, dict):
        if name == "prompt_tokens_details" or (name == "prompt_logprobs" and "logprob" not in value):
            return None
        return {key: normal(one, key) for key, one in value.items() if (value.get("type"), key) != ("tool_use", "input")}
    if isinstance(value, list):
        return _list(value, name)
    if isinstance(value, str):
        return _string(value, name)
    return "number" if name in _NUMBERS and value is not None else value


def _list(value: list[Any], name: str) -> list[Any]:
    if name in _LISTS:
        return [type(value[0]).__name__] if value else []
    if name == "top_logprobs":
        return ["odds" if one else one for one in value]
    if name == "prompt_logprobs":
        return [value[0], all(value[1:])]
    if name == "token_logprobs":
        return ["number" if one is not None else None for one in value][:2]
    return [normal(one, name) for one in value]


def _string(value: str, name: str) -> str:
    if name in ("id", "item_id", "request_id", "response_id", "call_id"):
        return _ID.sub("…", value)
    if name in ("system_fingerprint", "root", "version"):
        return "…"
    if name == "message":
        return re.sub(r"<(dict|list) of \d+ items>", r"<\1>", value)
    return "words" if value and name in (*_WORDS, "stop_sequence") else value


def collapsed(events: list[Any]) -> list[Any]:
    """Events that are alike, one after another, as one."""
    return [event for i, event in enumerate(events) if i == 0 or event != events[i - 1]]


def answer(sent: Sent, got: Got) -> dict[str, Any]:
    """An answer without what may differ, as a golden file has it."""
    kind = got.headers.get("content-type", "")
    if sent.free:
        return _unnumbered(answer(replace(sent, free=False), got))
    found: dict[str, Any] = {"status": got.status, "type": kind}
    if kind.startswith("text/event-stream"):
        events = [[name, normal(_spoken(document))] for name, document in got.events]
        return {**found, "events": collapsed(events)}
    return {**found, "body": normal(got.json) if got.text and "json" in kind else bool(got.text)}


def _unnumbered(value: Any) -> Any:
    """Without the number of output tokens."""
    if isinstance(value, dict):
        return {k: "number" if k in ("completion_tokens", "output_tokens") and one else _unnumbered(one) for k, one in value.items()}
    return [_unnumbered(one) for one in value] if isinstance(value, list) else value


def _spoken(document: Any) -> Any:
    """An event whose text may be empty where a character is not whole yet."""
    if isinstance(document, dict):
        for choice in document.get("choices") or []:
            if "role" not in choice.get("delta", {"role": ""}) and isinstance(choice["delta"].get("content"), str):
                choice["delta"]["content"] = "words"
            if "text" in choice:
                choice["text"] = "words"
    return document
