"""The balancer: policies, sessions and prefixes, and the models of backends."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.fakes import (
    Fake,
    Got,
    asked,
    before,
    fine,
    get,
    post,
    replies,
    silent,
    talk,
    until,
)
from tonnage import api
from tonnage.gateway.balancer import BLOCK, Asked, Prefixes
from tonnage.gateway.server import gateway
from tonnage.simulator.router import ROUTERS
from tonnage.version import VERSION


@given(model=st.text(max_size=20), prompt=st.text(max_size=60))
def test_the_model_of_any_body_is_read(model: str, prompt: str) -> None:
    for fields in (
        {"model": model, "prompt": prompt},
        {"metadata": {"model": prompt}, "model": model, "prompt": prompt},
    ):
        for ascii_only in (True, False):
            data = json.dumps(fields, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
            assert Asked(body=data).model == model


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"model": 3}',
        b'{"model": null}',
        b'["model", "model"]',
        b'{"model": "a\\',
        b'"model":"a" "model":"b"',
    ],
)
def test_a_body_that_names_no_model_goes_anywhere(data: bytes) -> None:
    assert Asked(body=data).model in ("", "a")


@pytest.mark.parametrize("policy", sorted(ROUTERS))
async def test_every_policy_serves_and_spreads(policy: str) -> None:
    async with before(fine, fine, fine, policy=policy) as (running, fakes):
        for i in range(60):
            assert await asked(
                running, post(b'{"user": "u%d", "prompt": "%s"}' % (i, b"%04d" % i * 100))
            ) == (200, b"ok")
        assert sum(got.line.startswith(b"POST") for fake in fakes for got in fake.got) == 60
        assert all(fake.got for fake in fakes)


async def test_weights_share_the_load() -> None:
    async with before(fine, fine, policy="weighted", weights=(3.0, 1.0)) as (running, fakes):
        for _ in range(40):
            await asked(running, post())
        assert [len(fake.got) for fake in fakes] == [30, 10]


@pytest.mark.parametrize("policy", ["least-outstanding", "least-tokens"])
async def test_a_slow_backend_gets_less(policy: str) -> None:
    async with (
        before(silent, fine, policy=policy) as (running, [slow, fast]),
        talk(running) as stuck,
    ):
        stuck.writer.write(post())
        await until(lambda: len(slow.got) + len(fast.got) == 1)
        if not slow.got:
            stuck.writer.write(post())
            await until(lambda: len(slow.got) == 1)
        before_now = len(fast.got)
        for _ in range(10):
            assert (await asked(running, post()))[0] == 200
        assert len(slow.got) == 1
        assert len(fast.got) == before_now + 10


async def test_a_session_stays_and_the_conversation_goes_back_to_its_prefix() -> None:
    async with before(fine, fine, fine, policy="session") as (running, fakes):
        for _ in range(10):
            await asked(running, post(b"{}", "/v1/completions", "X-Session-Id: one"))
        assert sorted(len(fake.got) for fake in fakes) == [0, 0, 10]
    async with before(fine, fine, fine, policy="prefix-aware") as (running, fakes):
        turns = b"".join(b"turn %04d " % i * 100 for i in range(6))
        for i in range(2, 7):
            await asked(running, post(b'{"prompt": "%s"}' % turns[: i * 1_000]))
        assert sorted(len(fake.got) for fake in fakes) == [0, 0, 5]


async def test_least_kv_reads_the_backends_metrics() -> None:
    def kv(share: float):
        async def answer(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
            body = (
                b'vllm:kv_cache_usage_perc{engine="0"} %f\n' % share
                if b"/metrics" in got.line
                else b"ok"
            )
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

        return answer

    async with before(kv(0.9), kv(0.2), policy="least-kv") as (running, fakes):
        await until(lambda: [one.kv_used for one in running.gateway.backends] == [0.9, 0.2])
        for _ in range(10):
            await asked(running, post())
        assert sum(b"POST" in got.line for got in fakes[1].got) == 10


def test_tokens_and_sessions_are_read_off_a_request() -> None:
    body = (
        b'{"messages": [{"role": "user", "content": "say \\"max_tokens\\": 7"}], "max_tokens": 40,'
        b' "user": "me"}'
    )
    assert Asked(body=body).output_tokens == 40
    assert Asked(body=body).prompt_tokens == len(body) // 4
    assert Asked(body=b'{"prompt": "x"}').output_tokens == 256
    assert Asked(body=b"").output_tokens == 0
    assert Asked(body=body).session == Asked(body=b'{"user":"me"}').session >= 0
    assert Asked(body=body, session_id=b"s").session != Asked(body=body).session
    assert Asked(body=b'{"role": "user"}').session == -1


def test_prefixes_are_unbroken_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    prefixes, matched = Prefixes(), [0, 0]
    body = bytes(i % 251 for i in range(BLOCK * 4))
    prefixes.sent(prefixes.blocks(body), 0)
    prefixes.sent(prefixes.blocks(body[: BLOCK * 2]), 1)
    prefixes.match(prefixes.blocks(body), matched)
    assert matched == [BLOCK, BLOCK // 2]  # 4 bytes a token
    prefixes.match(prefixes.blocks(b"x" + body), matched)
    assert matched == [0, 0]
    assert len(prefixes.blocks(bytes(2**18 + 3 * BLOCK))) == 1_024  # of 256 KiB and no more
    assert len(prefixes.blocks(b"{" + b'"prompt": "' + bytes(2**18 - 12))) == 1_023
    monkeypatch.setattr("tonnage.gateway.balancer.MOST_BLOCKS", 3)
    prefixes.sent(prefixes.blocks(bytes(BLOCK * 5)), 0)
    prefixes.match(prefixes.blocks(body), matched)
    assert matched == [0, 0]


async def test_the_models_of_all_backends_are_listed_once() -> None:
    async with before(fine, fine, fine, models=(("a", "b"), ("b", "c"), None)) as (running, _):
        status, body = await asked(running, get("/v1/models"))
        assert status == 200
        assert [one["id"] for one in json.loads(body)["data"]] == ["a", "b", "c"]
        status, body = await asked(running, get("/v1/metadata"))
        assert (status, [one["shortName"] for one in json.loads(body)["modelInfo"]]) == (
            200,
            ["a", "b", "c"],
        )
        status, body = await asked(running, get("/v1/version"))
        assert (status, json.loads(body)["release"]) == (200, VERSION)


@pytest.mark.parametrize(
    ("header", "status"),
    [(("Authorization: Bearer k",), 200), (("Authorization: Bearer x",), 401), ((), 401)],
)
async def test_backends_that_want_a_key_are_asked_for_their_models_with_the_clients(
    header: tuple[str, ...], status: int
) -> None:
    fake = await Fake(models=("m",)).begin()
    fake.key = b"Bearer k"
    settings = api.gateway_settings(backends=[fake.url], policy="round-robin", port=0)
    try:
        async with gateway(settings) as running:
            found, body = await asked(running, get("/v1/models", *header))
            assert found == status
            assert (
                not header
                or status == 401
                or [one["id"] for one in json.loads(body)["data"]] == ["m"]
            )
    finally:
        await fake.end()


async def test_the_models_of_backends_without_a_list_are_no_concern_of_the_others() -> None:
    async with before(fine, fine, models=((), None)) as (running, _):
        status, body = await asked(running, get("/v1/models"))
        assert (status, json.loads(body)["data"]) == (200, [])


async def test_metrics_say_what_happened() -> None:
    async with before(fine, replies(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n")) as (
        running,
        fakes,
    ):
        for _ in range(4):
            await asked(running, post())
        _, body = await asked(running, get("/v1/metrics"))
        found = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }
        names = [fake.url.removeprefix("http://") for fake in fakes]
        assert found["tonnage_gateway_requests_total", names[0], "ok"] == 2
        assert found["tonnage_gateway_requests_total", names[1], "error"] == 2
        assert found["tonnage_gateway_up", names[0]] == 1
        assert found["tonnage_gateway_policy", "round-robin"] == 1
        assert found["tonnage_gateway_first_byte_seconds_count", names[0]] == 2
        assert (
            found[("tonnage_gateway_in_flight",)]
            == found[("tonnage_gateway_cut_streams_total",)]
            == 0
        )
        assert (await asked(running, get("/metrics")))[0] == 200
