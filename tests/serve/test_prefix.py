"""The prefix cache of a simulated engine: what it finds, what that saves, and its events over
ZeroMQ."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import zmq

from tests.serve.engines import KNOBS, Asking
from tests.serve.prefixes import spec
from tonnage.serve.prefix import END, CachedEngine, Content, Publisher
from tonnage.simulator.request import Request
from tonnage.simulator.tiers import Tier


def test_a_prefix_that_is_sent_again_is_found(caching_server: Asking) -> None:
    first = {"prompt": [7] * 100 + [8] * 60, "max_tokens": 2}
    assert (
        caching_server.post("/v1/completions", first)[1]["usage"]["prompt_tokens_details"] is None
    )
    again = caching_server.post("/v1/completions", {**first, "prompt": [7] * 100 + [9] * 60})[1]
    assert again["usage"]["prompt_tokens_details"] == {"cached_tokens": 96}
    salted = caching_server.post("/v1/completions", {**first, "cache_salt": "mine"})[1]
    assert salted["usage"]["prompt_tokens_details"] is None
    page = caching_server.get("/metrics")[1]
    counts = {
        line.split("{")[0]: float(line.split()[-1])
        for line in page.splitlines()
        if line.startswith("vllm:prefix_cache")
    }
    assert counts["vllm:prefix_cache_queries_total"] == 480
    assert counts["vllm:prefix_cache_hits_total"] == 96


def test_the_answer_to_a_turn_is_found_in_the_next_one(caching_server: Asking) -> None:
    said: list[dict[str, Any]] = [{"role": "user", "content": "tell me of it " * 8}]
    for _ in range(3):
        reply = caching_server.post("/v1/chat/completions", {"messages": said, "temperature": 0})[1]
        whole = reply["usage"]["total_tokens"]
        said = [*said, reply["choices"][0]["message"], {"role": "user", "content": "go on"}]
        found = caching_server.post("/v1/chat/completions", {"messages": said, "max_tokens": 1})[1][
            "usage"
        ]["prompt_tokens_details"]
        assert whole - 2 * KNOBS.tokens_per_block <= found["cached_tokens"] <= whole


def test_what_was_found_is_not_computed_again() -> None:
    """The second prompt takes the steps that the simulator predicts of its rest: with 256 tokens a
    step one in place of two."""
    engine = CachedEngine(spec())
    firsts = []
    for number in range(2):
        engine.live.add(number, Content(tuple(range(400)), "", lambda place: place))
        engine.submit(Request(id=number, isl=400, osl=1, at=engine.now))
        began = engine.now
        happened = engine.advance()
        firsts.append((happened.at[0] - began) / 1e12)
    assert engine.cached(1) == 384
    assert firsts == pytest.approx([2 * 0.004, 0.004], rel=1e-6)


class Follower:
    """Rebuilds what a cache holds from its events."""

    def __init__(self, publisher: Publisher) -> None:
        context: zmq.Context[Any] = zmq.Context.instance()
        self.socket, self.names, self.next, self.removed = context.socket(zmq.SUB), set[int](), 0, 0
        self.socket.set_hwm(0)
        self.socket.connect(publisher.endpoint.replace("0.0.0.0", "127.0.0.1"))
        self.socket.subscribe(b"kv")

    def read(self, until: int) -> None:
        while self.next < until:
            assert self.socket.poll(5_000), f"batch {self.next} did not come"
            topic, number, payload = self.socket.recv_multipart()
            assert (topic, int.from_bytes(number, "big")) == (b"kv", self.next)
            self.take(payload)

    def take(self, payload: bytes) -> None:
        _, events, rank = msgspec.msgpack.decode(payload)
        assert rank == 0
        for event in events:
            if event["type"] == "BlockStored":
                assert len(event["token_ids"]) == event["block_size"] * len(event["block_hashes"])
                assert (
                    event["parent_block_hash"] is None or event["parent_block_hash"] in self.names
                )
                self.names |= set(event["block_hashes"])
            elif event["type"] == "AllBlocksCleared":
                self.names.clear()
            else:
                self.names -= set(event["block_hashes"])
                self.removed += len(event["block_hashes"])
        self.next += 1


def test_what_went_down_to_host_memory_is_found_and_the_step_waits_for_it() -> None:
    def second(tiers: Sequence[Tier]) -> tuple[int, int]:
        engine = CachedEngine(spec(blocks=12, tiers=tiers))
        for number, first in enumerate((1, 2, 1)):
            prompt = (first,) * 160
            engine.live.add(number, Content(prompt, "", lambda place: place))
            engine.submit(Request(id=number, isl=160, osl=1, at=engine.now))
            engine.advance()
        return engine.cached(2), engine.now

    cached, ended = second((Tier(blocks=40, block_ps=10**9),))
    fast = second((Tier(blocks=40, block_ps=0),))
    assert (cached, fast[0], second(())[0]) == (144, 144, 32)
    assert ended - fast[1] >= 7 * 10**9, "the blocks that came up, at 1 ms each"


@pytest.mark.parametrize(
    "tiers", [(Tier(blocks=30, block_ps=10**6),), pytest.param((), marks=pytest.mark.accuracy)]
)
def test_a_subscriber_rebuilds_the_cache_over_many_requests_with_evictions(
    tiers: Sequence[Tier],
) -> None:
    engine = CachedEngine(spec(blocks=60, tiers=tiers))
    publisher = Publisher("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", topic="kv", block_tokens=16)
    sent: list[int] = []

    def publish(changes: Any) -> None:
        sent.append(len(changes))
        publisher.publish(changes)

    engine.publish = publish
    follower = Follower(publisher)
    time.sleep(0.2)  # until the subscription has reached the publisher
    rng = random.Random(0)
    for number in range(2_500):
        prompt = (rng.randrange(8),) * 16 + (rng.randrange(60),) * rng.randrange(1, 60)
        engine.live.add(number, Content(prompt, "", lambda place: place))
        engine.submit(Request(id=number, isl=len(prompt), osl=rng.randrange(1, 20), at=engine.now))
        engine.advance()
        if number % 500 == 499:
            follower.read(len(sent))
            assert follower.names == engine.names
            for ended in list(engine.jobs):
                engine.forget(ended)
    assert engine.clear()
    follower.read(len(sent))
    assert follower.names == engine.names == set()
    assert follower.removed > 1_000
    assert [
        int.from_bytes(number, "big") for number in batches_again(publisher, len(sent) - 3)
    ] == [len(sent) - 3 + i for i in range(3)]
    follower.socket.close(linger=0)
    publisher.close()


def batches_again(publisher: Publisher, first: int) -> list[bytes]:
    """The numbers of the batches that the publisher sends again."""
    context: zmq.Context[Any] = zmq.Context.instance()
    asking = context.socket(zmq.DEALER)
    asking.connect(publisher.replay)
    asking.send_multipart((b"", first.to_bytes(8, "big")))
    found = []
    while asking.poll(5_000):
        number = asking.recv_multipart()[2]
        if number == END:
            break
        found.append(number)
    asking.close(linger=0)
    return found
