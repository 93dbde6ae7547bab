"""What vLLM 0.32 answers, request by request: the requests, and answers without what may differ
(words, numbers of tokens, ids, times)."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass, field, replace
from typing import Any

CHAT, TEXT, RESPONSES, MESSAGES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
)
COUNT, TOKENIZE, DETOKENIZE = "/v1/messages/count_tokens", "/tokenize", "/detokenize"
SAYS = [{"role": "user", "content": "tell a tale"}]
PLAIN = {"model": "tiny", "max_tokens": 5, "temperature": 0, "ignore_eos": True}
IDS = [7, 8, 9, 10, 11, 12]
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
EACH = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "of a city", "parameters": CITY},
}
NAMED = {"type": "function", "function": {"name": "weather"}}
DIGIT = {"enum": [7]}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
ANTHROPIC_TOOL = {"name": "weather", "description": "of a city", "input_schema": CITY}
RESPONSES_TOOL = {
    "type": "function",
    "name": "weather",
    "description": "of a city",
    "parameters": CITY,
}
CALL = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
STREAM = {"stream": True}
CONTINUED = [*SAYS, {"role": "assistant", "content": "once upon"}]
PARTS = [{"type": "text", "text": "rain"}]
THOUGHT = [{"type": "refusal", "refusal": "no"}, {"type": "thinking", "thinking": "hm"}]
RESPONSES_CALL = {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}
TOOL_USE = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "t", "name": "weather", "input": {}}],
}
TOOL_RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "rain"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request: without a body a GET, unless ``method`` says otherwise; bytes are sent as they
    stand.

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
                found.append(
                    (
                        lines.get("event", ""),
                        lines["data"] if lines["data"] == "[DONE]" else json.loads(lines["data"]),
                    )
                )
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
        connection.request(
            sent.method or ("GET" if sent.body is None else "POST"), sent.path, data, headers
        )
        reply = connection.getresponse()
        return Got(
            status=reply.status,
            headers={k.lower(): v for k, v in reply.getheaders()},
            text=reply.read().decode(),
        )
    finally:
        connection.close()


def chat(**more: Any) -> Sent:
    return Sent(path=CHAT, body={**PLAIN, "messages": SAYS, **more})


def text(**more: Any) -> Sent:
    return Sent(path=TEXT, body={**PLAIN, "prompt": IDS, **more})


def without(sent: Sent, *names: str) -> Sent:
    return Sent(
        path=sent.path, body={name: value for name, value in sent.body.items() if name not in names}
    )


def responses(**more: Any) -> Sent:
    return Sent(
        path=RESPONSES,
        body={
            "model": "tiny",
            "input": "tell a tale",
            "max_output_tokens": 5,
            "temperature": 0,
            **more,
        },
    )


def messages(path: str = MESSAGES, **more: Any) -> Sent:
    limit = {} if path == COUNT else {"max_tokens": 5}
    return Sent(path=path, body={"model": "tiny", "messages": SAYS, **limit, **more})


def ending(sent: Sent, **more: Any) -> Sent:
    """A request whose answer ends where its grammar does."""
    return Sent(
        path=sent.path,
        body={**without(sent, "ignore_eos").body, "max_tokens": 60, **more},
        free=True,
    )


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
    "chat, parts of a content": chat(
        messages=[{"role": "user", "content": [{"type": "text", "text": "a tale"}]}]
    ),
    "chat, several roles": chat(
        messages=[
            {"role": "system", "content": "be brief"},
            *SAYS,
            {"role": "assistant", "content": "no"},
            *SAYS,
        ]
    ),
    "chat, no model": without(chat(), "model"),
    "chat, streamed": chat(**STREAM),
    "chat, streamed with usage": chat(**USAGE),
    "chat, streamed with usage in every event": chat(**EACH),
    "chat, two choices streamed": chat(**USAGE, n=2, temperature=1, max_tokens=1),
    "chat, one token streamed": chat(**STREAM, max_tokens=1),
    "chat, logprobs": chat(logprobs=True, max_tokens=2),
    "chat, top logprobs": chat(logprobs=True, top_logprobs=2, max_tokens=2),
    "chat, top logprobs streamed": chat(logprobs=True, top_logprobs=2, max_tokens=2, stream=True),
    "chat, logprobs by token ids": chat(
        logprobs=True, top_logprobs=1, max_tokens=1, return_tokens_as_token_ids=True
    ),
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
                "tool_calls": [
                    {
                        "id": "c",
                        "type": "function",
                        "function": {"name": "weather", "arguments": "{}"},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "rain"},
        ]
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
    "messages, parts of a content": messages(
        messages=[{"role": "user", "content": [{"type": "text", "text": "a tale"}]}]
    ),
    "messages, streamed": messages(stream=True),
    "messages, a stop text": replace(
        messages(stop_sequences=["e", "a", "i", "o"], temperature=0), free=True
    ),
    "messages, tool": Sent(
        path=MESSAGES,
        body={
            **messages(
                tools=[ANTHROPIC_TOOL], tool_choice={"type": "tool", "name": "weather"}
            ).body,
            "max_tokens": 60,
            "temperature": 0,
        },
        free=True,
    ),
    "responses, tool": Sent(
        path=RESPONSES,
        body={
            **responses(
                tools=[RESPONSES_TOOL], tool_choice={"type": "function", "name": "weather"}
            ).body,
            "max_output_tokens": 60,
        },
        free=True,
    ),
    "responses, logprobs": responses(
        include=["message.output_text.logprobs"], top_logprobs=1, max_output_tokens=1
    ),
    "messages, counted": messages(COUNT),
    "invocations": Sent(path="/invocations", body=text().body),
    "chat, the answer's role": chat(add_generation_prompt=False, stream=True),
    "chat, the last message continued": chat(
        messages=CONTINUED, continue_final_message=True, add_generation_prompt=False, echo=True
    ),
    "chat, echo of the last message streamed": chat(messages=CONTINUED, echo=True, stream=True),
    "chat, developer and unknown roles": chat(
        messages=[{"role": "developer", "content": "x"}, {"role": "wizard", "content": "y"}, *SAYS]
    ),
    "chat, a tool's result in parts": chat(
        messages=[
            *SAYS,
            {"role": "assistant", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c", "content": PARTS},
        ]
    ),
    "chat, thinking and a refusal": chat(
        messages=[{"role": "assistant", "content": THOUGHT}, *SAYS]
    ),
    "chat, no content": chat(messages=[{"role": "user"}]),
    "chat, a required call without room": chat(tools=[TOOL], tool_choice="required", max_tokens=5),
    "chat, a named call without room": chat(tools=[TOOL], tool_choice=NAMED, max_tokens=3),
    "chat, a tool of a broken schema": chat(
        tools=[{"type": "function", "function": {"name": "w", "parameters": {"type": "thing"}}}],
        max_tokens=3,
    ),
    "chat, tools and JSON": ending(
        chat(tools=[TOOL], tool_choice="none", response_format=schema_format(DIGIT))
    ),
    "chat, priority and kv_transfer_params": chat(
        priority=-3, kv_transfer_params={"a": 1}, vllm_xargs={"a": 1}
    ),
    "chat, fields of OpenAI": chat(
        store=True, metadata={"a": "b"}, service_tier="default", user="u", reasoning_effort="low"
    ),
    "chat, two choices with token ids": chat(n=2, temperature=1, return_token_ids=True),
    "chat, prompt logprobs of two choices": chat(
        n=2, temperature=1, prompt_logprobs=1, max_tokens=1
    ),
    "text, beam search": text(use_beam_search=True, n=2),
    "text, two prompts streamed": text(prompt=[IDS, [7, 8]], max_tokens=1, **USAGE),
    "text, two prompts with two choices and logprobs": text(
        prompt=[IDS, [7, 8]], n=2, temperature=1, logprobs=1, max_tokens=1
    ),
    "text, echo alone streamed": text(echo=True, max_tokens=0, stream=True),
    "text, echo with logprobs and nothing else": text(echo=True, logprobs=1, max_tokens=0),
    "text, echo with logprobs streamed": text(echo=True, logprobs=1, max_tokens=1, stream=True),
    "text, prompt logprobs of 0 streamed": text(prompt_logprobs=0, max_tokens=1, stream=True),
    "text, allowed tokens": text(
        allowed_token_ids=[7, 8, 9],
        bad_words=["a"],
        stop_token_ids=[7777],
        skip_special_tokens=False,
    ),
    "text, numbers of other types": text(max_tokens=True, temperature=True, n=1.0, stream=0),
    "text, the last tokens of a long prompt": text(prompt=[7] * 5_000, truncate_prompt_tokens=-1),
    "text, the first tokens of a long prompt": text(
        prompt=[7] * 5_000, truncate_prompt_tokens=3, truncation_side="right"
    ),
    "text, empty stream options": text(stream=True, stream_options={}, max_tokens=1),
    "text, usage in every event alone": text(
        stream=True, stream_options={"continuous_usage_stats": True}, max_tokens=2
    ),
    "text, JSON as text": ending(text(structured_outputs={"json": '{"enum":[7]}'})),
    "detokenize a token that there is not": Sent(path=DETOKENIZE, body={"tokens": [10_000_000]}),
    "tokenize a chat without the answer's begin": Sent(
        path=TOKENIZE, body={"messages": SAYS, "add_generation_prompt": False}
    ),
    "responses, parts of an input": responses(
        input=[{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]
    ),
    "responses, a call and its result": responses(
        input=[
            *SAYS,
            RESPONSES_CALL,
            {"type": "function_call_output", "call_id": "c", "output": "x"},
        ]
    ),
    "responses, logprobs streamed": responses(
        include=["message.output_text.logprobs"], top_logprobs=1, max_output_tokens=2, stream=True
    ),
    "responses, effort": responses(reasoning={"effort": "low"}),
    "responses, a tool of OpenAI's": responses(tools=[{"type": "web_search_preview"}]),
    "responses, its own number": responses(request_id="resp_mine"),
    "messages, a tool's result": messages(
        messages=[*SAYS, TOOL_USE, {"role": "user", "content": [TOOL_RESULT, *PARTS]}]
    ),
    "messages, a system in parts": messages(system=PARTS),
    "messages, tools counted": messages(COUNT, tools=[ANTHROPIC_TOOL]),
    "metrics posted": Sent(path="/metrics/", body={}),
    "not scaling": Sent(path="/is_scaling_elastic_ep", body={}),
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
    "another type of content": Sent(
        path=TEXT, body=b"a=b", headers={"content-type": "application/x-www-form-urlencoded"}
    ),
    "another model": text(model="another"),
    "another model, chat": chat(model="another"),
    "another model, tokenize": Sent(path=TOKENIZE, body={"model": "another", "prompt": "a"}),
    "beyond the context": text(max_tokens=10_000),
    "beyond the context, chat": chat(max_tokens=10_000),
    "beyond the context, max_completion_tokens": without(
        chat(max_completion_tokens=10_000), "max_tokens"
    ),
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
    "a tool choice that is no tool": chat(
        tools=[TOOL], tool_choice={"type": "function", "function": {"name": "other"}}
    ),
    "a tool choice without a name": chat(
        tools=[TOOL], tool_choice={"type": "function", "function": {}}
    ),
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
    "detokenize beyond the vocabulary": Sent(
        path=DETOKENIZE, body={"model": "tiny", "tokens": [-1]}
    ),
    "responses without input": Sent(path=RESPONSES, body={"model": "tiny"}),
    "responses, another model": responses(model="another"),
    "responses, unknown id": Sent(path=f"{RESPONSES}/resp_nothing"),
    "messages without a limit": Sent(path=MESSAGES, body={"model": "tiny", "messages": SAYS}),
    "messages, another model": messages(model="another"),
    "messages, no messages": Sent(path=MESSAGES, body={"model": "tiny", "max_tokens": 3}),
    "embeddings of a model that generates": Sent(
        path="/v1/embeddings", body={"model": "tiny", "input": "a"}
    ),
    "HEAD of a GET": Sent(path="/v1/models", method="HEAD"),
    "another origin": Sent(
        path=CHAT,
        method="OPTIONS",
        headers={"origin": "http://x.y", "access-control-request-method": "POST"},
    ),
    "null": Sent(path=TEXT, body=b"null"),
    "bytes that are no text": Sent(path=TEXT, body=b'{"prompt":"\xff"}'),
    "scale-out": Sent(path="/v1/chat/completions/render", body={}),
    "invocations, no JSON": Sent(path="/invocations", body=b"{"),
    "the last message continued and an answer begun": chat(
        messages=CONTINUED, continue_final_message=True
    ),
    "a chat template": chat(chat_template="{{ messages }}"),
    "processor arguments": chat(mm_processor_kwargs={"a": 1}),
    "media arguments": chat(media_io_kwargs={"a": {}}),
    "null as a content": chat(messages=[{"role": "user", "content": None}]),
    "a number as a content": chat(messages=[{"role": "user", "content": 5}]),
    "an object as a content": chat(messages=[{"role": "user", "content": {"a": 1}}]),
    "texts as parts": chat(messages=[{"role": "user", "content": ["a", "b"]}]),
    "an unknown part": chat(
        messages=[{"role": "user", "content": [{"type": "smell", "text": "x"}]}]
    ),
    "a video": chat(
        messages=[
            {"role": "user", "content": [{"type": "video_url", "video_url": {"url": "http://x"}}]}
        ]
    ),
    "a text as a message": chat(messages=["hello"]),
    "arguments that are no text": chat(
        messages=[
            *SAYS,
            {
                "role": "assistant",
                "tool_calls": [{**CALL, "function": {"name": "w", "arguments": {}}}],
            },
        ]
    ),
    "a salt that is no text": chat(cache_salt=5),
    "a format without its schema": chat(
        response_format={"type": "json_schema", "json_schema": {"name": "x"}}
    ),
    "a format and another structure": chat(
        structured_outputs={"choice": ["a"]}, response_format={"type": "json_object"}
    ),
    "a structural tag without a structure": chat(response_format={"type": "structural_tag"}),
    "a broken regular expression": text(structured_outputs={"regex": "["}),
    "a broken grammar": text(structured_outputs={"grammar": "root ::= ("}),
    "broken JSON as a structure": text(structured_outputs={"json": "{"}),
    "an unknown structure": text(structured_outputs={"nothing": 1}),
    "prompt embeddings": text(prompt_embeds="x"),
    "a prompt truncated to nothing": text(truncate_prompt_tokens=0),
    "a prompt truncated beyond the context": text(truncate_prompt_tokens=100_000),
    "a long text, chat": chat(messages=[{"role": "user", "content": "a b c d " * 2_000}]),
    "a long text streamed": text(prompt="a b c d " * 2_000, stream=True),
    "tokenize, continued and begun": Sent(
        path=TOKENIZE,
        body={"messages": SAYS, "continue_final_message": True, "add_generation_prompt": True},
    ),
    "responses, background without a store": responses(background=True, store=False),
    "responses, background": responses(background=True),
    "responses, a required tool without tools": responses(tool_choice="required"),
    "responses, a tool choice that is no tool": responses(
        tools=[RESPONSES_TOOL], tool_choice={"type": "function", "name": "other"}
    ),
    "responses, a tool without a name": responses(tools=[{"type": "function"}]),
    "responses, beyond the context": responses(max_output_tokens=100_000),
    "responses, a prompt template": responses(prompt={"id": "x"}),
    "responses, an image": responses(
        input=[
            {
                "role": "user",
                "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA"}],
            }
        ]
    ),
    "messages, a tool choice that is no tool": messages(
        tools=[ANTHROPIC_TOOL], tool_choice={"type": "tool", "name": "x"}
    ),
    "messages, an image": messages(
        messages=[
            {
                "role": "user",
                "content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}],
            }
        ]
    ),
    "messages, no tokens": messages(max_tokens=0),
    "messages, beyond the context": messages(max_tokens=100_000),
    "messages, much to think": messages(thinking={"type": "enabled", "budget_tokens": 1024}),
    "messages, another model counted": Sent(path=COUNT, body={"model": "other", "messages": SAYS}),
    "messages, a long text": messages(messages=[{"role": "user", "content": "a b c d " * 2_000}]),
}
"""… with an error."""
