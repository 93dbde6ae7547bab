"""Further requests, most of one field with values of its kind and of another: what a suite of
somebody else would try."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.engines.conformance import (
    ANTHROPIC_TOOL,
    CALL,
    CHAT,
    COUNT,
    DETOKENIZE,
    DIGIT,
    EACH,
    MESSAGES,
    NAMED,
    PARTS,
    RESPONSES,
    SAYS,
    TEXT,
    TOKENIZE,
    TOOL,
    Sent,
    chat,
    ending,
    messages,
    responses,
    schema_format,
    text,
)

WARM = {"temperature": 1, "max_tokens": 1}

OF_TEXT: Mapping[str, Sequence[Any]] = {
    "stop": ([], None),
    "stop_token_ids": ([], [-1], ["a"]),
    "min_p": (0.1, -0.1),
    "top_k": (0, -1, None),
    "top_p": (None,),
    "temperature": (None,),
    "repetition_penalty": (1.1, -1, 3),
    "logit_bias": ({"7": -100}, {"7": 101}, {}, {"7": "x"}, {"-1": 1}, {"7.0": 1}, [1]),
    "seed": (-1, 0, 2**63 - 1, 2**63, 1.5, 1.0, True),
    "bad_words": ("a", None, []),
    "allowed_token_ids": ([], [10_000_000], [-1]),
    "best_of": (0,),
    "max_tokens": (1.5, 5.0),
    "n": (1.5,),
    "echo": ("yes", "perhaps"),
    "logprobs": (True, -1, None, 20, 1.5),
    "prompt_logprobs": (-1, -2, 21, 0, "x"),
    "min_tokens": (None, 5),
    "stream": ("true", 2),
    "stream_options": (None, {}),
    "suffix": (None, ""),
    "user": (5,),
    "priority": ("x",),
    "request_id": (5,),
    "truncate_prompt_tokens": (-2, -1, "x"),
    "include_stop_str_in_output": ("x",),
    "return_token_ids": ("x",),
    "kv_transfer_params": ("x",),
    "vllm_xargs": ({"a": [1, 2], "b": "c"}, {"a": {"b": 1}}),
    "model": ("a/b", None, 5, "", ["tiny"]),
    "prompt": (
        *(
            [-1],
            [[]],
            [[], [1]],
            [1.5],
            True,
            {},
            5,
            None,
            [None],
            [["a"]],
            [1, "a"],
            [[1], "a"],
            [1.0, 2.0],
            [True, False],
            [7],
        ),
        *([7] * 2_047, [[7], [7] * 3_000]),
    ),
}
OF_CHAT: Mapping[str, Sequence[Any]] = {
    "max_completion_tokens": (0, -1, "x"),
    "max_tokens": (0,),
    "guided_choice": (["a"],),
    "guided_json": ({},),
    "guided_regex": ("a",),
    "structured_outputs": (
        *({"choice": [1, 2]}, {"choice": "ab"}, None, {"regex": None}, {"json_object": False}),
        *({"json": {"type": "nothing"}}, {"json": True}, {"json": 5}),
    ),
    "parallel_tool_calls": (False,),
    "tool_choice": ("none", "required", NAMED, 5),
    "tools": (None, {"a": 1}),
    "functions": ([{"name": "w"}],),
    "response_format": (
        *(
            schema_format({"type": "nothing"}),
            schema_format(True),
            schema_format("x"),
            schema_format({"type": "string", "pattern": "["}),
        ),
        *(
            schema_format({"$ref": "#/nothing"}),
            schema_format({"enum": []}),
            schema_format({"type": "integer", "minimum": 5, "maximum": 1}),
        ),
        *(None, "json_object", [], {"type": "text", "x": 1}),
    ),
    "logprobs": (5, 1),
    "top_logprobs": (0, 1),
    "messages": (
        *(
            [{"role": "user", "content": [part]}]
            for part in ({"type": "text"}, {"type": "text", "text": 5}, {"text": "x"}, {}, None)
        ),
        *(
            [{"role": "user", "content": [{"type": kind, kind: {"url": "http://x"}}]}]
            for kind in ("input_audio", "audio_url", "file")
        ),
        *(
            [{"role": "user", "content": [{"type": kind, "text": "x"}]}]
            for kind in ("input_text", "output_text")
        ),
        *([{"role": "user", "content": content}] for content in ("", [])),
        *([{"role": role, "content": "x"}] for role in ("", 5, None, "system", "assistant")),
        *(
            [*SAYS, {"role": "tool", "content": "x"}],
            [*SAYS, {"role": "assistant"}, *SAYS],
            {"role": "user", "content": "x"},
        ),
        *([None], [[]], [{}], [{"role": "user", "content": "x", "name": "bob", "extra": 1}]),
        *(
            [*SAYS, {"role": "assistant", "content": "x", "tool_calls": calls}]
            for calls in ([], None)
        ),
        [
            *SAYS,
            {
                "role": "assistant",
                "tool_calls": [{**CALL, "function": {"name": "w", "arguments": "{"}}],
            },
        ],
        [
            *SAYS,
            {
                "role": "assistant",
                "tool_calls": [{**CALL, "function": {"name": "w", "arguments": ""}}],
            },
        ],
        [*SAYS, {"role": "assistant", "content": "x", "reasoning": "y"}, *SAYS],
    ),
    "add_generation_prompt": (False, "x"),
    "chat_template_kwargs": ({"enable_thinking": False}, 5),
    "documents": ([{"title": "a", "text": "b"}], 5),
    "reasoning_effort": ("none", "wild"),
    "thinking_token_budget": (5,),
    "service_tier": ("x",),
    "model": ("a/b", None, 5, ""),
}
OF_RESPONSES: Mapping[str, Sequence[Any]] = {
    "max_output_tokens": (0, -1, "x"),
    "input": (
        *(
            [],
            "",
            None,
            5,
            [{"role": "user", "content": []}],
            [{"type": "message", "role": "user", "content": "x"}],
        ),
        [{"type": "item_reference", "id": "x"}],
    ),
    "instructions": (None, 5),
    "temperature": (3, -1),
    "top_p": (2,),
    "top_k": (5,),
    "min_p": (0.1,),
    "top_logprobs": (21, 2),
    "truncation": ("auto", "x"),
    "include": (["x"], [], ["reasoning.encrypted_content"]),
    "tool_choice": ("none", "auto"),
    "max_tool_calls": (2,),
    "metadata": ({"a": "b"},),
    "service_tier": ("flex", "x"),
    "parallel_tool_calls": (False,),
    "text": (
        {"format": {"type": "text"}},
        {"format": {"type": "x"}},
        {"format": {"type": "json_schema", "name": "x"}},
    ),
    "reasoning": ({"effort": "wild"}, {"summary": "auto"}),
    "stream": ("x",),
    "store": (False, "x"),
    "model": (None, ""),
    "cache_salt": ("x", ""),
    "seed": (4,),
    "structured_outputs": ({"choice": ["a"]},),
    "tools": ([], [{"type": "wild"}], [{"type": "function", "name": "a"}]),
    "x_unknown": (1,),
}
OF_MESSAGES: Mapping[str, Sequence[Any]] = {
    "temperature": (2, 3, -1),
    "top_p": (2,),
    "top_k": (5, -5),
    "stop_sequences": ([], "a"),
    "system": (None, 5),
    "max_tokens": ("5", "x", -1),
    "messages": (
        *(
            None,
            [{"role": "user", "content": []}],
            [{"role": "user", "content": ""}],
            [{"role": "wizard", "content": "x"}],
        ),
        *(
            [{"role": "user"}],
            [{"role": "user", "content": [{"type": "thing"}]}],
            [{"role": "assistant", "content": "x"}],
        ),
    ),
    "tools": ([], [{"name": "x"}], [ANTHROPIC_TOOL]),
    "tool_choice": ({"type": "none"}, {"type": "any"}, {"type": "wild"}, "auto"),
    "thinking": ({"type": "disabled"}, {"type": "adaptive"}),
    "stream": ("x",),
    "model": (None, ""),
    "metadata": ({"user_id": "x"},),
    "x_unknown": (1,),
}
OF_BODIES = {
    "the same key twice": (
        b'{"model":"x","model":"tiny","prompt":[7],"max_tokens":1,"temperature":0}'
    ),
    "NaN": b'{"model":"tiny","prompt":[7],"max_tokens":1,"temperature":NaN}',
    "words after it": b'{"model":"tiny","prompt":[7]} x',
    "a byte order mark": (
        b'\xef\xbb\xbf{"model":"tiny","prompt":[7],"max_tokens":1,"temperature":0}'
    ),
    "a text": b'"x"',
    "a comma too many": b'{"model":"tiny",}',
    "blanks": b"   ",
    "a very long number": b'{"model":"tiny","prompt":[7],"max_tokens":' + b"9" * 30 + b"}",
    "half a character": b'{"model":"tiny","prompt":"\\ud800","max_tokens":1,"temperature":0}',
    "a zero": b'{"model":"tiny","prompt":"a\\u0000b","max_tokens":1,"temperature":0}',
}
METHODS = {
    "GET": (
        "/",
        "/v1",
        "/v1/models/tiny",
        "/v1/models/",
        "/v1/models?x=1",
        "/metrics",
        "/metrics/",
        "/tokenize",
        "/v1/completions",
        "/v1/messages",
    ),
    "POST": (
        "/health",
        "/version",
        "/v1/models",
        "/v1/rerank",
        "/score",
        "/pooling",
        "/classify",
        "/v1/completions/",
        "/pause",
    ),
    "HEAD": ("/health", "/ping", "/metrics"),
    "OPTIONS": (CHAT, "/v1/models"),
    "PUT": (CHAT,),
    "DELETE": ("/v1/models", f"{RESPONSES}/resp_x"),
}
TYPES = (
    "application/json; charset=utf-8",
    "APPLICATION/JSON",
    "text/plain",
    "",
    "application/ld+json",
    "multipart/form-data; boundary=x",
)


def each(kind: str, of: Mapping[str, Sequence[Any]], make: Any) -> dict[str, Sent]:
    """A request for each value of each field."""
    named = ((name, value, json.dumps(value)) for name, values in of.items() for value in values)
    return {
        f"{kind}, {name} = {shown if len(shown) < 99 else len(shown)}": make(**{name: value})
        for name, value, shown in named
    }


FURTHER: dict[str, Sent] = {
    **each("text", OF_TEXT, text),
    **each("chat", OF_CHAT, chat),
    **{
        name: replace(sent, free=True)
        for name, sent in each("responses", OF_RESPONSES, responses).items()
    },
    **{
        name: replace(sent, free=True)
        for name, sent in each("messages", OF_MESSAGES, messages).items()
    },
    **{f"a body of {name}": Sent(path=TEXT, body=body) for name, body in OF_BODIES.items()},
    **{
        f"{method} {path}": Sent(path=path, method=method)
        for method, paths in METHODS.items()
        for path in paths
    },
    **{
        f"content of type {kind!r}": Sent(
            path=TEXT, body=json.dumps(text().body).encode(), headers={"content-type": kind}
        )
        for kind in TYPES
    },
    "invocations, no JSON type": Sent(
        path="/invocations", body=b"{}", headers={"content-type": "text/plain"}
    ),
    "an empty number of a request": replace(text(), headers={"x-request-id": ""}),
    "a number of a request with blanks": replace(text(), headers={"x-request-id": "a b/c"}),
    "another origin, asked": replace(text(), headers={"origin": "http://x.y"}),
    "text, echo of two prompts": text(echo=True, prompt=["a", "b"], max_tokens=1, logprobs=0),
    "text, echo of a prompt as long as the context": text(
        prompt=[7] * 2_048, max_tokens=0, echo=True
    ),
    "text, two choices streamed with logprobs": text(n=2, logprobs=1, stream=True, **WARM),
    "text, two choices of a seed": text(n=2, seed=3, **WARM),
    "chat, three choices streamed": chat(n=3, **{**WARM, **EACH}),
    "chat, tools and none, streamed": chat(tools=[TOOL], tool_choice="none", stream=True),
    "chat, no parallel calls": chat(tools=[TOOL], parallel_tool_calls=False, max_tokens=3),
    "chat, the same tool twice": chat(tools=[TOOL, TOOL], max_tokens=3),
    "chat, a tool of another type": chat(
        tools=[{"type": "web", "function": {"name": "w"}}], max_tokens=3
    ),
    "chat, an only choice": ending(chat(structured_outputs={"choice": ["only"]})),
    "chat, a strict schema": ending(
        chat(
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": DIGIT, "strict": True},
            }
        )
    ),
    "chat, JSON cut short": chat(
        response_format={"type": "json_object"}, max_tokens=1, stream=True
    ),
    "chat, beyond the context, streamed": chat(max_tokens=10_000, stream=True),
    "tokenize without the model's own tokens": Sent(
        path=TOKENIZE, body={"prompt": "a", "add_special_tokens": False}
    ),
    **{
        f"tokenize {body}": Sent(path=TOKENIZE, body=body)
        for body in ({"prompt": ""}, {"prompt": ["a"]}, {"prompt": 5}, {"messages": []})
    },
    **{
        f"detokenize {tokens}": Sent(path=DETOKENIZE, body={"tokens": tokens})
        for tokens in ([], "abc", ["a"], [[1]])
    },
    **{
        f"{path} of {body}": Sent(path=path, body=body)
        for path in (CHAT, RESPONSES, MESSAGES, TOKENIZE)
        for body in ([], {})
    },
    "messages, a result in parts": messages(
        messages=[
            *SAYS,
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t", "content": PARTS, "is_error": True}
                ],
            },
        ]
    ),
    "messages, no messages counted": Sent(path=COUNT, body={"model": "tiny", "messages": []}),
    "responses, a long text": responses(input="a b c d " * 2_000),
    "responses, a number that is none": Sent(path=f"{RESPONSES}/abc"),
}
"""By name."""
