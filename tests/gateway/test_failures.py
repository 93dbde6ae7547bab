"""Backends that die, freeze, break off or talk nonsense."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.gateway.fakes import (
    Fake,
    Got,
    asked,
    before,
    closes,
    counted,
    fine,
    outcomes,
    post,
    replies,
    silent,
    talk,
    until,
)
from tonnage import api
from tonnage.gateway.server import gateway


async def test_a_request_goes_elsewhere_once_where_no_connection_can_be_made() -> None:
    async with before(fine, fine, fine, health_s=60.0) as (running, [first, second, third]):
        await first.end()
        assert await asked(running, post(b"same")) == (200, b"ok")
        assert [got.body for got in second.got] == [b"same"]
        assert outcomes(running) == {"retried": 1, "ok": 1}
        assert counted(running, "tonnage_gateway_retries_total") == 1
        for backend in running.gateway.backends:
            backend.up = True
        await second.end()
        assert (await asked(running, post()))[0] == 200  # the third is next
        for backend in running.gateway.backends:
            backend.up = True
        await third.end()
        assert (await asked(running, post()))[0] == 503
        assert counted(running, "tonnage_gateway_retries_total") == 2


async def test_a_request_that_was_sent_is_never_sent_again() -> None:
    async with before(closes(), closes(), closes()) as (running, fakes):
        status, body = await asked(running, post())
        assert status == 502
        assert b"without an answer" in body
        assert sum(len(fake.got) for fake in fakes) == 1
        assert outcomes(running) == {"failed": 1}
        assert counted(running, "tonnage_gateway_refused_total") == 1
        assert running.gateway.in_flight == 0


@pytest.mark.parametrize(
    ("head", "rest"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"3\r\nabc\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", b"abc"),
    ],
)
async def test_a_stream_that_breaks_off_is_cut_and_counted_and_not_sent_again(
    head: bytes, rest: bytes
) -> None:
    async with before(closes(head + rest), fine) as (running, [_, whole]), talk(running) as client:
        client.writer.write(post())
        assert (await client.rest()).endswith(rest)  # and the end, without the end of the body
        assert whole.got == []
        assert outcomes(running) == {"cut": 1}
        assert counted(running, "tonnage_gateway_retries_total") == running.gateway.in_flight == 0


async def test_a_backend_that_is_killed_is_avoided_and_back_within_three_seconds() -> None:
    async with before(fine, fine) as (running, [one, other]):
        await one.end()
        for _ in range(20):
            assert await asked(running, post()) == (200, b"ok")
        assert len(other.got) == 20
        # it is avoided until a health check passes
        assert counted(running, "tonnage_gateway_retries_total") <= 1
        await until(lambda: not running.gateway.backends[0].up)
        await one.begin()
        began = asyncio.get_running_loop().time()
        while not one.got:
            assert (await asked(running, post()))[0] == 200
            await asyncio.sleep(0.02)
        assert asyncio.get_running_loop().time() - began < 3


async def test_without_any_backend_the_answer_is_503_and_readiness_says_so() -> None:
    async with before(fine) as (running, [fake]):
        assert (await asked(running, b"GET /v1/health/ready HTTP/1.1\r\nHost: a\r\n\r\n"))[0] == 200
        await fake.end()
        await until(lambda: not running.gateway.backends[0].up)
        async with talk(running) as client:
            client.writer.write(post())
            assert b"retry-after: 1" in await client.head()
        for path, status in (
            ("/v1/health/ready", 503),
            ("/health", 503),
            ("/v1/health/live", 200),
            ("/v1/models", 503),
        ):
            assert (await asked(running, f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode()))[
                0
            ] == status
        assert outcomes(running) == {}


async def test_an_idle_connection_that_the_backend_closed_is_no_failure() -> None:
    async def once(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()
        writer.close()

    async with before(once) as (running, [fake]), talk(running) as client:
        for body in (b"{}", b"again"):
            assert await client.ask(post(body)) == (200, b"ok")
            await until(lambda: fake.open == 0)
        assert [got.body for got in fake.got] == [b"{}", b"again"]
        assert outcomes(running) == {"ok": 2}


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switch\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 200_000 + b"\r\n\r\n",
        b"RTSP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_a_response_that_is_none_becomes_502(data: bytes) -> None:
    async with before(replies(data)) as (running, _):
        assert (await asked(running, post()))[0] == 502
        assert outcomes(running) == {"failed": 1}


async def test_a_second_response_that_nobody_asked_for_never_reaches_a_client() -> None:
    good = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

    async with (
        before(replies(good + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")) as (running, _),
        talk(running) as client,
    ):
        client.writer.write(post())
        assert b"evil" not in await client.head() + await client.reader.read(100)


async def test_a_backend_that_never_answers_is_given_up() -> None:
    async with before(silent, first_byte_s=0.3) as (running, [fake]):
        assert (await asked(running, post()))[0] == 504
        assert outcomes(running) == {"failed": 1}
        await until(lambda: fake.lost >= 1)


async def test_interim_responses_without_end_are_given_up_and_take_no_other_backend_out() -> None:
    async def interim(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
            await writer.drain()
            await asyncio.sleep(0)

    async with before(interim, interim, fine, first_byte_s=0.3, health_s=60.0) as (running, fakes):
        began = asyncio.get_running_loop().time()
        assert (await asked(running, post()))[0] in (502, 504)
        assert asyncio.get_running_loop().time() - began < 3
        assert [len(fake.got) for fake in fakes] == [1, 0, 0]
        assert sum(backend.up for backend in running.gateway.backends) >= 2
        await until(lambda: fakes[0].open == 0)


async def test_a_stream_that_stalls_is_cut() -> None:
    async with (
        before(replies(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"), idle_s=0.3) as (
            running,
            _,
        ),
        talk(running) as client,
    ):
        client.writer.write(post())
        assert (await client.rest()).endswith(b"\r\n\r\nab")
        assert outcomes(running) == {"cut": 1}


async def test_killed_under_load_every_request_is_counted_once() -> None:
    waiting: Counter[Fake] = Counter()
    begun: Counter[Fake] = Counter()

    async def slowly(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
        waiting[fake] += 1
        await asyncio.sleep(0.05)
        waiting[fake] -= 1
        begun[fake] += 1
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(10):
            await asyncio.sleep(0.01)
            writer.write(b"1\r\na\r\n")
        begun[fake] -= 1
        writer.write(b"0\r\n\r\n")

    async with before(slowly, slowly, slowly, policy="least-outstanding") as (running, fakes):

        async def ask(i: int) -> bytes:
            await asyncio.sleep(i * 0.002)
            async with talk(running) as client:
                client.writer.write(post(b"{}", "/v1/completions", "Connection: close"))
                return await client.rest()

        asking = [asyncio.create_task(ask(i)) for i in range(150)]
        await until(lambda: waiting[fakes[0]] > 0 and begun[fakes[0]] > 0)
        await fakes[0].end()
        answers = await asyncio.gather(*asking)
        whole = sum(answer.endswith(b"1\r\na\r\n0\r\n\r\n") for answer in answers)
        cut = sum(not answer.endswith(b"0\r\n\r\n") for answer in answers)
        counts = outcomes(running)
        refused = sum(b" 502 " in answer for answer in answers)
        assert whole + cut == 150
        assert (counts["ok"], counts["cut"], counts["failed"]) == (whole, cut - refused, refused)
        assert counts["cut"] > 0
        assert counts["failed"] > 0
        assert (
            running.gateway.in_flight
            == sum(backend.requests + backend.tokens for backend in running.gateway.backends)
            == 0
        )


DEEP = b'{"data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    "page",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(DEEP), DEEP),
        b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 6_000_000,
    ],
    ids=["deep", "interim responses without end", "long"],
)
async def test_a_hostile_list_of_models_ends_no_health_check(
    page: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tonnage.gateway.server.LIST_EVERY", 1)
    monkeypatch.setattr("tests.gateway.fakes.listed", lambda models: page)
    async with before(fine, fine, health_s=0.3) as (running, fakes):
        await asyncio.sleep(1.0)
        assert [backend.up for backend in running.gateway.backends] == [True, True]
        assert await asked(running, post()) == (200, b"ok")
        await fakes[0].end()
        await until(lambda: not running.gateway.backends[0].up)  # its checks go on


async def test_a_backend_that_speaks_no_http_is_down_and_stops_nobody() -> None:
    async def rubbish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 mail.example ESMTP\r\n\r\n")
        writer.close()

    mail = await asyncio.start_server(rubbish, "127.0.0.1", 0)
    port = mail.sockets[0].getsockname()[1]
    fake = await Fake().begin()
    settings = api.gateway_settings(backends=[f"127.0.0.1:{port}", fake.url], port=0)
    try:
        async with gateway(settings) as running:
            down, up = running.gateway.backends
            assert (down.up, down.fault, down.failures) == (False, "no connection", 1)
            assert (up.up, up.fault, up.failures) == (True, "", 0)
            assert await asked(running, post()) == (200, b"ok")
    finally:
        mail.close()
        await fake.end()
