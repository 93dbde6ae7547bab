"""Requests that could be read in two ways, that are too large, or that come too slowly."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.fakes import Fake, Got, asked, before, fine, get, outcomes, post, silent, talk, until

SMUGGLED = {
    "both lengths": b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "both, the other way round": b"POST /v1/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "a signed length": b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc",
    "a coding that is not last": b"POST /v1/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
    "two codings": b"POST /v1/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "an unknown coding": b"POST /v1/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /v1/x HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length : 3\r\n\r\nabc",
    "a bare line feed": b"POST /v1/x HTTP/1.1\r\nHost: a\r\nX: a\nContent-Length: 3\r\n\r\nabc",
    "a bare carriage return": b"POST /v1/x HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
    "a zero byte": b"POST /v1/x HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n",
    "a folded line": b"POST /v1/x HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
    "no host": b"GET /v1/x HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /v1/x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "an absolute target": b"GET http://b/v1/x HTTP/1.1\r\nHost: a\r\n\r\n",
    "a bad chunk size": b"POST /v1/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
    "a path upwards": b"GET /v1/../metrics HTTP/1.1\r\nHost: a\r\n\r\n",
    "a path upwards in disguise": b"GET /v1/%2e%2E/metrics HTTP/1.1\r\nHost: a\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


async def test_requests_that_could_be_read_in_two_ways_are_refused() -> None:
    async with before(fine) as (running, [fake]):
        for name, data in SMUGGLED.items():
            async with talk(running) as client:
                assert (await client.ask(data))[0] == 400, name
                assert "upwards" in name or await client.rest() == b"", name
        assert fake.got == []
        assert running.core.refused == {400: len(SMUGGLED)}


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (get("/v1/" + "a" * 9_000), 414),
        (get("/v1/x", "A: " + "a" * 70_000), 431),
        (get("/v1/x", *(f"A{i}: 1" for i in range(200))), 431),
        (b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n", 413),
        (b"POST /v1/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"a" * 2_000 + b"\r\n0\r\n\r\n", 413),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"TRACE /v1/x HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"GET /v1/x HTTP/2.0\r\nHost: a\r\n\r\n", 400),
    ],
    ids=["target", "headers", "many headers", "length", "chunks", "connect", "trace", "version"],
)
async def test_what_is_too_large_or_not_passed_on_is_refused_and_the_connection_ends(data: bytes, status: int) -> None:
    async with before(fine, body=1_000) as (running, [fake]), talk(running) as client:
        assert (await client.ask(data))[0] == status or status == 400
        assert await client.rest() == b""
        assert fake.got == []


async def test_headers_without_an_end_are_refused_while_they_come() -> None:
    async with before(fine) as (running, _), talk(running) as client:
        client.writer.write(b"GET /v1/x HTTP/1.1\r\nHost: a\r\nA: ")
        for _ in range(20):
            client.writer.write(b"a" * 16_384)
            await asyncio.sleep(0.001)
        assert (await client.one())[0] == 431


@pytest.mark.parametrize("data", [b"GET /v1/x HT", b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab"])
async def test_a_request_that_drips_in_is_given_up(data: bytes) -> None:
    async with before(fine, head_s=0.3, body_s=0.3) as (running, _), talk(running) as client:
        client.writer.write(data)
        assert (await client.one())[0] == 408
        assert await client.rest() == b""


async def test_idle_connections_end_and_too_many_are_not_taken() -> None:
    async with before(fine, keep_alive_s=0.3, connections=2) as (running, _):
        async with talk(running) as one, talk(running) as two, talk(running) as three:
            assert await three.rest() == b""
            assert await one.rest() == await two.rest() == b""
        await until(lambda: not running.core.clients)


async def test_beyond_the_limit_in_flight_the_answer_is_429() -> None:
    async with before(silent, in_flight=2) as (running, [fake]), talk(running) as one, talk(running) as two, talk(running) as three:
        one.writer.write(post())
        two.writer.write(post())
        await until(lambda: len(fake.got) == 2)
        three.writer.write(post())
        head = await three.head()
        assert head.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
        assert b"Retry-After: 1\r\n" in head
        assert len(fake.got) == 2
        assert running.core.in_flight == 2
        assert running.core.refused == {429: 1}


async def test_an_upgrade_is_ignored_and_the_connection_ends_with_the_response() -> None:
    async with before(fine) as (running, [fake]), talk(running) as client:
        client.writer.write(post(b"abc", "/v1/x", "Connection: Upgrade", "Upgrade: h2c")[:-1])
        await asyncio.sleep(0.05)
        client.writer.write(b"c" + get("/v1/smuggled", "Connection: Upgrade", "Upgrade: h2c"))
        assert (await client.rest()).endswith(b"\r\n\r\nok")
        assert [got.body for got in fake.got] == [b"abc"]
        assert b"upgrade" not in fake.got[0].headers


async def test_a_broken_request_behind_a_good_one_does_not_disturb_its_response() -> None:
    async def slow(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.1)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with before(slow) as (running, _), talk(running) as client:
        client.writer.write(post() + b"nonsense\r\n\r\n")
        assert await client.one() == (200, b"ok")
        assert (await client.one())[0] == 400
        assert await client.rest() == b""
        assert outcomes(running) == {"ok": 1}


async def test_other_paths_are_not_passed_on() -> None:
    async with before(fine) as (running, [fake]):
        for path in ("/", "/log", "/v1", "/admin"):
            assert (await asked(running, get(path)))[0] == 404
        assert fake.got == []


async def test_what_a_client_that_left_had_sent_is_let_go_at_once() -> None:
    async with before(fine) as (running, [fake]):
        async with talk(running) as client:
            client.writer.write(b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n" + b"a" * 5_000_000)
            await client.writer.drain()
            [connection] = running.core.clients
            reader = connection._reader
            await until(lambda: sum(map(len, reader._body)) > 1_000_000)
            client.writer.transport.abort()
        await until(lambda: not running.core.clients)
        assert (reader._body, reader.ready) == ([], type(reader.ready)())
        assert not hasattr(reader, "_parser")  # they hold each other: nothing of it would go before the garbage collector comes
        assert fake.got == []


async def test_all_bodies_together_are_bounded_and_counted_out_again() -> None:
    async with before(silent, held=3_000_000) as (running, [fake]), talk(running) as one, talk(running) as two, talk(running) as three:
        one.writer.write(post(b"a" * 1_000_000))
        await until(lambda: len(fake.got) == 1)
        assert running.core.held == 1_000_000  # until it is answered
        two.writer.write(b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n" + b"a" * 1_500_000)
        await until(lambda: running.core.held == 2_500_000)
        three.writer.write(post(b"a" * 1_000_000))
        head = await three.head()
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1\r\n" in head
        await until(lambda: running.core.held == 2_500_000)
        one.writer.transport.abort()
        await until(lambda: running.core.held == 1_500_000)
        fake.answer = fine
        two.writer.write(b"a" * 500_000)
        assert (await two.one())[0] == 200
        assert (await two.ask(post(b"a" * 1_000_000)))[0] == 200
        assert running.core.held == 0
