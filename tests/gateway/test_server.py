from __future__ import annotations

import asyncio
import itertools

import pytest
from prometheus_client import Histogram

from tests.gateway.fakes import (
    Fake,
    Got,
    asked,
    before,
    counted,
    fine,
    get,
    outcomes,
    post,
    replies,
    silent,
    talk,
    until,
)
from tonnage.gateway.server import FIRST_BYTE

CHUNKS = [b'data: {"x": %d}\n\n' % i for i in range(50)]

STREAM = (
    b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in [*CHUNKS, b"data: [DONE]\n\n"])
    + b"0\r\n\r\n"
)

HEAD = (
    b"HTTP/1.1 200 Fine\r\nContent-Type: text/event-stream\r\nX-Own: a  b\r\nTransfer-Encoding:"
    b" chunked\r\n"
)


def stream_in_pieces(size: int):
    async def answer(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
        data = (
            HEAD
            + b"Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\r\n"
            + STREAM
        )
        for place in range(0, len(data), size):
            writer.write(data[place : place + size])
            await asyncio.sleep(0)

    return answer


@pytest.mark.parametrize("size", [7, 100, 1_000_000])
async def test_a_chunked_stream_passes_byte_for_byte_however_it_is_cut_into_pieces(
    size: int,
) -> None:
    async with before(stream_in_pieces(size)) as (running, [fake]), talk(running) as client:
        for _ in range(3):  # the connections on both sides go on
            client.writer.write(post())
            head = await client.head()
            assert b"x-own: a  b\r\n" in head
            assert b"transfer-encoding: chunked\r\n" in head
            assert not {b"x-hop", b"keep-alive"} & {
                line.partition(b":")[0].lower() for line in head.split(b"\r\n")
            }
            assert await client.body() == b"".join([*CHUNKS, b"data: [DONE]\n\n"])
        assert len(fake.got) == 3
        assert outcomes(running) == {"ok": 3}
        await until(lambda: running.gateway.in_flight == 0)


async def test_the_request_arrives_with_its_body_and_headers_and_without_those_of_the_connection() -> (
    None
):
    body = bytes(range(256)) * 1_000

    async with before(replies(b"HTTP/1.1 201 Made\r\nContent-Length: 3\r\n\r\nyes")) as (
        running,
        [fake],
    ):
        headers = (
            "Authorization: Bearer k",
            "X-One: 1",
            "Connection: X-Hop",
            "X-Hop: secret",
            "TE: trailers",
        )
        assert await asked(running, post(body, "/v2/models/m/infer?x=%20y", *headers)) == (
            201,
            b"yes",
        )
        [got] = fake.got
        assert got.line == b"POST /v2/models/m/infer?x=%20y HTTP/1.1"
        assert got.body == body
        assert got.headers == {
            b"host": f"127.0.0.1:{fake.port}".encode(),
            b"authorization": b"Bearer k",
            b"x-one": b"1",
            b"content-length": str(len(body)).encode(),
        }


async def test_a_chunked_request_arrives_whole() -> None:
    async with before(replies(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")) as (
        running,
        [fake],
    ):
        data = (
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:"
            b" chunked\r\n\r\n3\r\nabc\r\n2;e=1\r\nde\r\n0\r\nT: x\r\n\r\n"
        )
        assert await asked(running, data) == (200, b"ok")
        assert fake.got[0].body == b"abcde"
        assert b"transfer-encoding" not in fake.got[0].headers


async def test_a_client_that_expects_100_continue_is_told_to_go_on() -> None:
    async with (
        before(replies(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")) as (running, [fake]),
        talk(running) as client,
    ):
        client.writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect:"
            b" 100-continue\r\n\r\n"
        )
        assert await client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert await client.ask(b"abc") == (200, b"ok")
        assert fake.got[0].body == b"abc"


async def test_interim_responses_are_dropped_and_a_body_until_the_end_of_the_connection_is_passed_on() -> (
    None
):
    async def answer(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.0 200 OK\r\nX: 1\r\n\r\nab"
        )
        await asyncio.sleep(0.05)
        writer.write(b"cd")
        writer.close()

    async with before(answer) as (running, _), talk(running) as client:
        client.writer.write(post())
        assert (await client.head()).startswith(b"HTTP/1.1 200 OK\r\nx: 1\r\n")
        assert await client.body() == b"abcd"
        assert outcomes(running) == {"ok": 1}


@pytest.mark.parametrize("status", [200, 204, 304])
async def test_responses_without_a_body_end_with_their_head(status: int) -> None:
    length = b"content-length: 5\r\n" if status == 200 else b""
    async with (
        before(replies(b"HTTP/1.1 %d X\r\n%s\r\n" % (status, length))) as (running, _),
        talk(running) as client,
    ):
        for _ in range(2):
            client.writer.write(
                get("/v1/completions").replace(b"GET", b"HEAD" if status == 200 else b"GET")
            )
            head = await client.head()
            assert head.startswith(b"HTTP/1.1 %d " % status)
            assert length in head
            assert status == 200 or b"content-length" not in head
        assert outcomes(running) == {"ok": 2}


async def test_pipelined_requests_are_answered_in_order() -> None:
    async def echo(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05 if got.body == b"0" else 0)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(got.body), got.body))

    async with before(echo, echo) as (running, _), talk(running) as client:
        client.writer.write(b"".join(post(b"%d" % i) for i in range(20)) + get("/v1/health/live"))
        assert [await client.one() for _ in range(20)] == [(200, b"%d" % i) for i in range(20)]
        assert (await client.one())[0] == 200


async def test_a_client_that_leaves_ends_its_request_at_the_backend() -> None:
    async def drip(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\n1\r\na\r\n")

    async def silent_once(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
        return

    for answer in (drip, silent_once):
        async with before(answer) as (running, [fake]):
            async with talk(running) as client:
                client.writer.write(post())
                await until(lambda fake=fake: len(fake.got) == 1)
                lost = fake.lost
            await until(lambda fake=fake, lost=lost: fake.lost == lost + 1)
            assert outcomes(running) == {"cancelled": 1}
            assert running.gateway.in_flight == 0
            assert running.gateway.backends[0].requests == 0
            assert running.gateway.backends[0].tokens == 0


async def test_a_slow_reader_holds_its_backend_up_and_nobody_else() -> None:
    size, sent = 64 * 1_048_576, []
    piece = b"x" * 65_536

    async def flood(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (size if got.body == b"big" else 2)
        )
        if got.body != b"big":
            writer.write(b"ok")
            return
        for _ in range(size // len(piece)):
            writer.write(piece)
            await writer.drain()
            sent.append(len(piece))

    async with before(flood) as (running, _), talk(running) as client:
        client.reader._limit = 1  # asyncio reads no more than twice this ahead
        client.writer.write(post(b"big"))
        await asyncio.sleep(0.4)
        held = sum(sent)
        await asyncio.sleep(0.2)
        assert sum(sent) == held < size // 2  # what is on the way lies in the buffers of the kernel
        assert await asked(running, post(b"small")) == (200, b"ok")
        client.reader._limit = 1_048_576
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert await client.reader.readexactly(size) == b"x" * size
        assert outcomes(running) == {"ok": 2}


async def test_a_reader_that_stops_for_good_is_given_up() -> None:
    async def flood(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 40_000_000)

    async with before(flood, idle_s=0.3) as (running, _), talk(running) as client:
        client.reader._limit = 1
        client.writer.write(post())
        await until(lambda: outcomes(running) == {"cut": 1} and running.gateway.in_flight == 0)


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


def test_buckets_of_first_bytes_are_prometheus_and_then_half_minutes() -> None:
    short = [bound for bound in FIRST_BYTE if bound <= 10]
    assert set(short) <= set(Histogram.DEFAULT_BUCKETS)
    assert all(bound % 30 == 0 for bound in FIRST_BYTE[len(short) :])
    assert max(b / a for a, b in itertools.pairwise(FIRST_BYTE)) <= 3
