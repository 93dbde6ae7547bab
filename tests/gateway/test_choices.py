"""The balancer and the written configuration without a network: who gets which request, and every
number in a file."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tonnage.bench.connection import Target
from tonnage.gateway.balancer import (
    BLOCK,
    DEFAULT_OUTPUT,
    MOST_BLOCKS,
    MOST_OUTPUT,
    MOST_PER_REQUEST,
    Asked,
    Backend,
    Balancer,
    Prefixes,
)
from tonnage.gateway.haproxy import Long, configuration, whole_weights
from tonnage.gateway.server import Gateway
from tonnage.gateway.settings import GatewayArguments, Limits, Settings


def target(port: int) -> Target:
    return Target(host="10.0.0.1", port=port)


def backends(count: int, **each: list[Any]) -> list[Backend]:
    made = [Backend(target=target(8001 + place), weight=1.0, up=True) for place in range(count)]
    for name, values in each.items():
        for backend, value in zip(made, values, strict=True):
            setattr(backend, name, value)
    return made


def places(of: list[Backend], policy: str, bodies: list[bytes], **how: Any) -> list[int]:
    """The place of the backend that each gets; -1 for none."""
    balancer = Balancer(of, policy)
    chosen = [balancer.choose(Asked(body=body), **how) for body in bodies]
    return [-1 if one is None else of.index(one) for one in chosen]


@pytest.mark.parametrize(
    ("policy", "states", "chosen"),
    [
        ("round-robin", {}, [0, 1, 2, 0, 1]),
        ("round-robin", {"up": [False, True, True]}, [1, 2, 1, 2, 1]),
        ("round-robin", {"up": [False, False, False]}, [-1] * 5),
        ("round-robin", {"up": [True, False, False]}, [0] * 5),
        ("least-outstanding", {"requests": [3, 1, 2]}, [1] * 5),
        ("least-tokens", {"tokens": [30, 20, 10]}, [2] * 5),
        ("least-kv", {"kv_used": [0.1, 0.3, 0.2]}, [0] * 5),
        ("weighted", {"weight": [1.0, 3.0, 1.0]}, [1, 0, 1, 2, 1]),
    ],
)
def test_a_policy_reads_what_the_gateway_knows(
    policy: str, states: dict[str, list[Any]], chosen: list[int]
) -> None:
    found = places(backends(3, **states), policy, [b"{}"] * 5)
    assert sorted(found) == sorted(chosen)
    if policy != "weighted":
        assert found == chosen


def test_a_request_goes_to_none_that_was_tried_or_lacks_the_model() -> None:
    some = backends(3, models=[{"a": 1}, None, {"a": 1, "b": 1}])
    assert places(some, "round-robin", [b"{}"] * 3, model="a") == [0, 1, 2]
    assert places(some, "round-robin", [b"{}"] * 3, model="b") == [1, 2, 1]
    assert places(some, "round-robin", [b"{}"] * 3, model="c") == [1, 1, 1]
    assert places(some, "round-robin", [b"{}"] * 2, tried=[some[0], some[1]]) == [2, 2]
    assert places(some, "round-robin", [b"{}"] * 2, tried=some) == [-1, -1]
    assert some[0].name == "10.0.0.1:8001"
    assert [one.serves("") for one in some] == [True] * 3


def test_a_session_has_its_backend_and_a_prompt_goes_to_its_prefix() -> None:
    of_user = [b'{"user": "u%d"}' % number for number in range(12)]
    first, again = (places(backends(3), "session", of_user) for _ in range(2))
    assert first == again
    assert set(first) == {0, 1, 2}
    bodies = [b'{"prompt": "%s"}' % (bytes([65 + n]) * (20 * BLOCK)) for n in range(3)]
    found = places(backends(3), "prefix-aware", [*bodies, *reversed(bodies)])
    assert sorted(found[:3]) == [0, 1, 2]
    assert found[3:] == list(reversed(found[:3]))


def test_what_is_read_off_a_body() -> None:
    """Four bytes count as a token; limits of output are bounded."""
    assert [Asked(body=bytes(size)).prompt_tokens for size in (0, 3, 4, 11)] == [0, 0, 1, 2]
    limits = {
        b"{}": DEFAULT_OUTPUT,
        b"": 0,
        b'{"max_tokens": 7}': 7,
        b'{"max_completion_tokens":8}': 8,
        b'{"max_output_tokens" : 9}': 9,
        b'{"max_tokens": 1000000}': 1_000_000,
        b'{"max_tokens": 1000001}': MOST_OUTPUT,
        b'{"max_tokens": "many"}': 256,
    }
    assert {body: Asked(body=body).output_tokens for body in limits} == limits
    assert Asked(body=b"{}").session == -1
    assert Asked(body=b'{"user": "a"}').session == Asked(body=b"{}", session_id=b"a").session


def test_blocks_of_a_prompt_are_chained_from_its_beginning() -> None:
    prefixes = Prefixes()
    body = b'{"model": "m", "prompt": "' + bytes(range(256)) * 3
    whole = prefixes.blocks(body)
    start = body.index(b'"prompt"')
    assert len(whole) == (len(body) - start) // BLOCK == 3
    assert prefixes.blocks(b'{"model": "other", "prompt": "' + bytes(range(256)) * 3) == whole
    assert prefixes.blocks(b'{"messages": [' + bytes(256))[:1] != whole[:1]
    assert prefixes.blocks(body[: start + BLOCK - 1]) == []
    assert prefixes.blocks(body[: start + BLOCK]) == whole[:1]
    prefixes.sent(whole[:1], 1)
    prefixes.sent(whole, 0)
    matched = [9, 9]
    prefixes.match(whole, matched)
    assert matched == [3 * 64, 64]
    prefixes.match([], matched)
    assert matched == [0, 0]
    assert (MOST_BLOCKS, MOST_PER_REQUEST * BLOCK) == (200_000, 2**18)  # docs/gateway.md


def test_blocks_that_were_not_seen_for_longest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tonnage.gateway.balancer.MOST_BLOCKS", 3)
    prefixes, matched = Prefixes(), [0]
    prefixes.sent([1, 2, 3], 0)
    prefixes.sent([1], 0)
    prefixes.sent([4], 0)
    found = []
    for block in (1, 2, 3, 4):
        prefixes.match([block], matched)
        found.append(matched[0])
    assert found == [64, 0, 64, 64]


@pytest.mark.parametrize(
    ("weights", "whole"),
    [
        ([1.0], [256]),
        ([3.0, 1.0], [255, 85]),
        ([2.0, 1.0], [256, 128]),
        ([1.0, 1e-6], [256, 1]),
        ([7.0, 5.0, 3.0], [252, 180, 108]),
    ],
)
def test_weights_are_whole_and_in_proportion(weights: list[float], whole: list[int]) -> None:
    assert whole_weights(weights) == whole


SETTING: dict[str, Any] = {
    "host": "0.0.0.0",
    "port": 8080,
    "in_flight": 64,
    "body": 1_000,
    "first_byte_s": 600.0,
    "idle_s": 120.5,
}


def test_every_number_of_a_configuration_is_where_it_belongs() -> None:
    servers = (("a:8001", 3.0, 1), ("$HOST:8002", 1.0, 4))
    text = configuration(servers, "least-outstanding", **SETTING)
    for line in (
        "maxconn 1064",  # and a thousand that wait between two requests
        "timeout client 120.5s",
        "timeout server 600s",
        "timeout queue 600s",
        "bind 0.0.0.0:8080",
        "http-request return status 200 if { path /health /v1/health/ready } { nbsrv(engines) gt 0"
        " }",
        "http-request deny deny_status 413 if { req.hdr_val(content-length) gt 1000 }",
        "http-request return status 429 hdr Retry-After 1 if { be_conn(engines) ge 64 }",
        "default_backend engines",
        "balance leastconn",
        "server a:8001 a:8001 weight 255",
        "server-template kind-2- 4 $HOST:8002 weight 85",
    ):
        assert f"    {line}\n" in f"{text}\n"
    assert len(re.findall(r"^backend ", text, re.MULTILINE)) == 1
    assert "long" not in text.partition("frontend")[2].replace("a long", "")


def test_long_prompts_have_a_backend_and_a_bound_of_their_own() -> None:
    long = Long(servers=(("b:1", 1.0, 1),), over_bytes=4_000, in_flight=6)
    text = configuration((("$H:1", 1.0, 1),), "random", long=long, **SETTING)
    for line in (
        "maxconn 1070",
        "acl long req.body_size gt 4000",
        "http-request return status 429 hdr Retry-After 1 if { be_conn(engines) ge 64 } !long",
        "http-request return status 429 hdr Retry-After 1 if { be_conn(long) ge 6 } long",
        "use_backend long if long",
        "server kind-1 $H:1 weight 256",
        "server b:1 b:1 weight 256",
    ):
        assert f"    {line}\n" in f"{text}\n"
    assert "{ nbsrv(engines) gt 0 } { nbsrv(long) gt 0 }" in text
    assert text.count("balance random(1)") == 2


def test_the_defaults_of_a_gateway_are_those_of_its_help() -> None:
    """And of docs/gateway.md."""
    limits = Limits()
    assert (limits.body, limits.in_flight, limits.keep_alive_s) == (32 * 2**20, 1_024, 75)
    assert (limits.connect_s, limits.first_byte_s, limits.idle_s) == (2.0, 600.0, 120.0)
    assert (limits.pooled_s, limits.health_s, limits.drain_s) == (4.0, 1.0, 10)
    settings = Settings(backends=())
    arguments = GatewayArguments()
    assert (settings.policy, settings.seed) == (arguments.policy, arguments.seed)
    assert (settings.policy, settings.seed) == ("least-outstanding", 0)
    assert (settings.host, settings.port) == (arguments.host, arguments.port)
    assert (settings.host, settings.port) == ("127.0.0.1", 8080)
    assert arguments.max_body_mb * 2**20 == limits.body
    assert (arguments.first_byte_timeout, arguments.idle_timeout) == (600.0, 120.0)
    assert arguments.backends == arguments.plan_host == ()
    assert arguments.plan is arguments.max_in_flight is None
    with pytest.raises(TypeError):
        Limits(1)  # type: ignore[misc]


def test_the_waits_of_a_gateway_are_counted_in_buckets() -> None:
    gateway = Gateway(Settings(backends=((target(8001), 1.0),)))
    gateway.counts.waits.labels("b").observe(0.3)
    names = "tonnage_gateway_first_byte_seconds_bucket"
    counted = {
        sample.labels["le"]: sample.value
        for family in gateway.counts.registry.collect()
        for sample in family.samples
        if sample.name == names
    }
    bounds = "0.005 0.01 0.025 0.05 0.1 0.25 0.5 1.0 2.5 5.0 10.0 30.0 60.0 120.0 300.0 +Inf"
    assert list(counted) == bounds.split()
    assert list(counted.values()) == [0.0] * 6 + [1.0] * 10
