"""A simulated engine under many requests: 200 streams of calls and JSON at once, and 10,000
requests whose cache a subscriber rebuilds."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from tests.engines.conformance import CHAT, SAYS, Got, Sent, schema_format, send
from tests.serve.engines import SERVED
from tests.serve.prefixes import spec
from tests.serve.test_prefix import Follower
from tonnage.serve.prefix import CachedEngine
from tonnage.serve.server import in_thread
from tonnage.serve.simulated import Simulated

pytestmark = pytest.mark.engines
STREAMS, REQUESTS, CLIENTS = 200, 10_000, 16


def schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """A schema of an object with a few members."""
    kinds: list[dict[str, Any]] = [
        {"enum": ["Oslo", "Rome", 7, None]},
        {"type": "integer", "minimum": rng.randrange(-5, 5), "maximum": rng.randrange(5, 900)},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "string", "minLength": 1, "maxLength": 12},
        {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
        {"type": "string", "format": "date"},
        {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
    ]
    members = {
        f"m{i}": schema(rng, 1) if not depth and rng.random() < 0.2 else rng.choice(kinds)
        for i in range(rng.randrange(1, 4))
    }
    return {
        "type": "object",
        "properties": members,
        "required": list(members),
        "additionalProperties": False,
    }


def asked(number: int) -> tuple[Sent, dict[str, dict[str, Any]]]:
    """A stream, and the schemas of what it says: of each tool by name, or of its text under ""."""
    rng = random.Random(number)
    body = {
        "model": "tiny",
        "messages": SAYS,
        "seed": number,
        "max_tokens": rng.randrange(120, 300),
        "stream": True,
    }
    body["stream_options"] = {"include_usage": True}
    if number % 2:
        form = schema(rng)
        return Sent(path=CHAT, body={**body, "response_format": schema_format(form)}), {"": form}
    forms = {f"tool_{i}": schema(rng) for i in range(rng.randrange(1, 4))}
    tools = [
        {"type": "function", "function": {"name": name, "parameters": form}}
        for name, form in forms.items()
    ]
    choice: Any = rng.choice(
        ["auto", "required", {"type": "function", "function": {"name": "tool_0"}}]
    )
    return Sent(path=CHAT, body={**body, "tools": tools, "tool_choice": choice}), forms


def said(got: Got) -> list[tuple[str, str]]:
    """What a stream said: arguments of calls with the tools' names, or its text with ""."""
    deltas = [
        choice["delta"] for _, one in got.events if one != "[DONE]" for choice in one["choices"]
    ]
    calls: dict[int, list[str]] = {}
    for delta in deltas:
        for call in delta.get("tool_calls") or []:
            name, given = calls.setdefault(call["index"], ["", ""])
            function = call["function"]
            calls[call["index"]] = [
                name + function.get("name", ""),
                given + function.get("arguments", ""),
            ]
    text = "".join(delta.get("content") or "" for delta in deltas)
    return [(name, given) for name, given in calls.values()] or [("", text)]


def test_200_streams_of_calls_and_json_at_once_are_valid() -> None:
    kinds: Counter[str] = Counter()
    with in_thread(
        replace(SERVED, instances=1, model="tiny", max_context=4096, most_waiting=0)
    ) as running:
        together = threading.Barrier(STREAMS)

        def stream(number: int) -> tuple[int, Got]:
            together.wait()
            return number, send(running.port, asked(number)[0])

        with ThreadPoolExecutor(STREAMS) as many:
            for number, got in many.map(stream, range(STREAMS)):
                sent, forms = asked(number)
                assert got.status == 200, got.text
                for name, text in said(got):
                    jsonschema.validate(json.loads(text), forms[name])
                    kinds["call" if name else "JSON"] += 1
                finish = [
                    choice["finish_reason"]
                    for _, one in got.events
                    if one != "[DONE]"
                    for choice in one["choices"]
                ][-1]
                assert finish in ("stop", "tool_calls")
                assert got.events[-2][1]["usage"]["completion_tokens"] <= sent.body["max_tokens"]
    assert kinds["JSON"] == STREAMS // 2
    assert kinds["call"] > STREAMS // 2


def test_a_subscriber_rebuilds_the_cache_of_a_server_over_10_000_requests() -> None:
    """Over HTTP, from clients of which some leave; compared whenever nothing is under way."""
    pytest.importorskip("zmq")
    asked_of = replace(
        SERVED,
        engine=lambda: CachedEngine(spec(blocks=120)),
        instances=1,
        speed=50.0,
        most_waiting=0,
    )
    with in_thread(replace(asked_of, events="tcp://127.0.0.1:*", events_topic="kv")) as running:
        engines = running.service.engines
        assert isinstance(engines, Simulated)
        (publisher,), engine = engines.publishers, engines.fleet.instances[0].member.engine
        assert isinstance(engine, CachedEngine)
        follower = Follower(publisher)
        time.sleep(0.2)  # until the subscription has reached the publisher

        def client(number: int, requests: int) -> None:
            rng = random.Random(number)
            connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
            for _ in range(requests):
                prompt = [rng.randrange(8)] * 16 + [rng.randrange(60)] * rng.randrange(1, 60)
                leaves = rng.random() < 0.02
                body = {
                    "prompt": prompt,
                    "max_tokens": 400 if leaves else rng.randrange(1, 12),
                    "ignore_eos": True,
                    "stream": leaves,
                }
                connection.request(
                    "POST",
                    "/v1/completions",
                    json.dumps(body),
                    {"content-type": "application/json"},
                )
                reply = connection.getresponse()
                if leaves:
                    reply.read(20)
                    connection.close()
                else:
                    reply.read()
            connection.close()

        sizes = []
        for turn in range(4):
            with ThreadPoolExecutor(CLIENTS) as many:
                of = [
                    many.submit(client, turn * CLIENTS + i, -(-REQUESTS // (4 * CLIENTS)))
                    for i in range(CLIENTS)
                ]
                while not all(one.done() for one in of):
                    follower.read(publisher.sent)
                    time.sleep(0.01)
                [one.result() for one in of]
            until = time.monotonic() + 30
            while engines.busy and time.monotonic() < until:
                time.sleep(0.01)
            follower.read(publisher.sent)
            assert follower.names == engine.names
            sizes.append(len(follower.names))
    assert min(sizes) > 60
    assert follower.removed > REQUESTS // 10
    follower.socket.close(linger=0)
