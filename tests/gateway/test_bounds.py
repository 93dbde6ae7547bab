"""Requests that could be read in two ways, that are too large, or that come too slowly."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.fakes import asked, before, counted, fine, get, post, silent, talk, until

SMUGGLED = {
    "both lengths": (
        b"POST /v1/score HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding:"
        b" chunked\r\n\r\n0\r\n\r\n"
    ),
    "both, the other way round": (
        b"POST /v1/score HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length:"
        b" 3\r\n\r\n0\r\n\r\n"
    ),
    "two lengths": (
        b"POST /v1/score HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"
    ),
    "a signed length": b"POST /v1/score HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc",
    "a coding that is not last": (
        b"POST /v1/score HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n"
    ),
    "two codings": (
        b"POST /v1/score HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
    ),
    "an unknown coding": (
        b"POST /v1/score HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"
    ),
    "chunks in HTTP/1.0": (
        b"POST /v1/score HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "a space before the colon": (
        b"POST /v1/score HTTP/1.1\r\nHost: a\r\nContent-Length : 3\r\n\r\nabc"
    ),
    "a bare line feed": b"POST /v1/score HTTP/1.1\r\nHost: a\r\nX: a\nContent-Length: 3\r\n\r\nabc",
    "a bare carriage return": b"POST /v1/score HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
    "a zero byte": b"POST /v1/score HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n",
    "a folded line": b"POST /v1/score HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
    "no host": b"GET /v1/score HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /v1/score HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "an absolute target": b"GET http://b/v1/score HTTP/1.1\r\nHost: a\r\n\r\n",
    "a bad chunk size": (
        b"POST /v1/score HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:"
        b" chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n"
    ),
    "a path upwards": b"GET /v1/../metrics HTTP/1.1\r\nHost: a\r\n\r\n",
    "a path upwards in disguise": b"GET /v1/%2e%2E/metrics HTTP/1.1\r\nHost: a\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


async def test_a_request_that_could_be_read_in_two_ways_is_refused_or_framed_anew() -> None:
    async with before(fine) as (running, [fake]):
        for name, data in SMUGGLED.items():
            fake.got.clear()
            async with talk(running) as client:
                client.writer.write(data)
                status = int((await client.head()).split()[1])
            assert status in (200, 400, 404), name
            assert len(fake.got) == (status == 200), name
            for got in fake.got:
                assert b"transfer-encoding" not in got.headers
                assert int(got.headers.get(b"content-length", b"0")) == len(got.body)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (get("/v1/" + "a" * 9_000), 404),
        (
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n"
            + b"a" * 2_000,
            413,
        ),
        (
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n"
            + b"a" * 2_000
            + b"\r\n0\r\n\r\n",
            413,
        ),
    ],
    ids=["target", "length", "chunks"],
)
async def test_what_is_too_large_or_not_passed_on_is_refused(data: bytes, status: int) -> None:
    async with before(fine, body=1_000) as (running, [fake]):
        assert (await asked(running, data))[0] == status
        assert fake.got == []


async def test_a_body_that_drips_in_is_given_up() -> None:
    async with before(fine, idle_s=0.3) as (running, [fake]), talk(running) as client:
        client.writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab"
        )
        await client.rest()
        await until(lambda: running.gateway.in_flight == 0)
        assert fake.got == []


async def test_a_header_that_drips_in_is_given_up_and_an_idle_connection_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tonnage.serve.bounded_headers.HEADER_S", 0.4)
    async with before(fine) as (running, [fake]):
        async with talk(running) as client:
            client.writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nX: ")
            began = asyncio.get_running_loop().time()
            while not client.reader.at_eof() and asyncio.get_running_loop().time() < began + 5:
                client.writer.write(b"a")
                await asyncio.sleep(0.05)
            assert 0.3 < asyncio.get_running_loop().time() - began < 3
        assert fake.got == []
        async with talk(running) as client:
            for _ in range(2):
                client.writer.write(post())
                assert (await client.head()).startswith(b"HTTP/1.1 200")
                assert await client.reader.readexactly(2) == b"ok"
                await asyncio.sleep(0.6)
            client.writer.write(b"POST /v1/")
            assert await asyncio.wait_for(client.rest(), 3) == b""
        assert len(fake.got) == 2


@pytest.mark.parametrize(
    "path",
    [
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/v2/repository/models/m/unload",
        "/v2/repository/models/m/load",
        "/reset_prefix_cache",
    ],
)
async def test_paths_that_change_an_engine_are_for_its_operator_alone(path: str) -> None:
    async with before(fine) as (running, [fake]):
        assert (await asked(running, post(b"{}", path)))[0] == 404
        assert fake.got == []


async def test_beyond_the_limit_in_flight_the_answer_is_429() -> None:
    async with (
        before(silent, in_flight=2) as (running, [fake]),
        talk(running) as one,
        talk(running) as two,
        talk(running) as three,
    ):
        one.writer.write(post())
        two.writer.write(post())
        await until(lambda: len(fake.got) == 2)
        three.writer.write(post())
        head = await three.head()
        assert head.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
        assert b"retry-after: 1\r\n" in head
        assert len(fake.got) == 2
        assert running.gateway.in_flight == 2
        assert counted(running, "tonnage_gateway_refused_total") == 1


async def test_an_upgrade_is_not_passed_on() -> None:
    async with before(fine) as (running, [fake]):
        assert await asked(
            running, post(b"abc", "/v1/completions", "Connection: Upgrade", "Upgrade: h2c")
        ) == (200, b"ok")
        assert [got.body for got in fake.got] == [b"abc"]
        assert b"upgrade" not in fake.got[0].headers


async def test_other_paths_are_not_passed_on() -> None:
    async with before(fine) as (running, [fake]):
        for path in ("/", "/log", "/v1", "/admin"):
            assert (await asked(running, get(path)))[0] == 404
        assert fake.got == []
