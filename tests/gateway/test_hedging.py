"""Hedging: a second backend is asked when the first dawdles, one answer is passed on, and everything is counted once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.gateway.fakes import Answer, Fake, Got, asked, before, bounded, closes, fine, get, outcomes, post, silent, talk, until
from tests.gateway.test_admission import A, key
from tonnage import api
from tonnage.cli.main import run
from tonnage.gateway.core import HEDGED

SOON = 0.1


def after(seconds: float, text: bytes = b"ok") -> Answer:
    async def answer(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))

    return answer


def test_the_second_answers_the_first_is_cancelled_and_all_is_counted_once(tmp_path: Path) -> None:
    async def test() -> None:
        further = {"keys": (key("a", "key-a", requests_per_minute=1),), "access_log": tmp_path / "log"}
        async with before(silent, after(0.05, b"second"), hedge_s=SOON, further=further) as (running, [slow, quick]):
            began = asyncio.get_running_loop().time()
            assert await asked(running, post(b"body", "/v1/completions", A)) == (200, b"second")
            assert asyncio.get_running_loop().time() - began >= SOON
            await until(lambda: slow.open == 0)  # its connection has been closed
            assert [got.body for got in slow.got] == [got.body for got in quick.got] == [b"body"]
            assert outcomes(running) == {"outrun": 1, "ok": 1}
            counts = running.core.counts
            assert (counts.hedges.total(0), counts.started.total(0), counts.retries.total(0), counts.admitted.total(0)) == (1, 1, 0, 1)
            assert running.core.in_flight == sum(running.core.balancer.requests) == sum(running.core.balancer.tokens) == 0
            assert sum(sum(counts.waits(i)[0]) for i in range(2)) == 1
            assert running.core.keys.accounts[0].running == 0
            _, page = await asked(running, get("/metrics"))
            assert b"tonnage_gateway_hedges_total 1.0" in page
        assert [json.loads(line)["backend"] for line in (tmp_path / "log").read_text().splitlines()] == [quick.url[7:]]

    bounded(test())


def test_the_first_may_still_win() -> None:
    async def test() -> None:
        async with before(after(0.25, b"first"), silent, hedge_s=SOON) as (running, [_, other]):
            assert await asked(running, post()) == (200, b"first")
            assert len(other.got) == 1
            await until(lambda: other.open == 0)
            assert outcomes(running) == {"outrun": 1, "ok": 1}

    bounded(test())


def test_what_begins_in_time_is_not_hedged_however_long_it_takes() -> None:
    async def slowly(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
        await asyncio.sleep(5 * SOON)
        writer.write(b"k")

    async def test() -> None:
        async with before(slowly, fine, hedge_s=3 * SOON) as (running, [_, other]):
            assert await asked(running, post()) == (200, b"ok")
            assert other.got == []
            assert running.core.counts.hedges.total(0) == 0

    bounded(test())


def test_without_it_and_for_what_leaves_something_behind_nothing_is_sent_twice() -> None:
    async def test() -> None:
        for path, hedge_s in (("/v1/completions", 0.0), ("/v1/files", SOON), ("/v1/completions/x", SOON)):
            async with before(after(2.5 * SOON), fine, hedge_s=hedge_s) as (running, [_, other]):
                assert await asked(running, post(b"{}", path)) == (200, b"ok")
                assert other.got == []

    bounded(test())


def test_two_that_fail_are_one_failure_and_one_that_fails_leaves_it_to_the_other() -> None:
    async def test() -> None:
        async with before(silent, closes(), fine, hedge_s=SOON) as (running, [first, second, third]), talk(running) as client:
            client.writer.write(post())
            await until(lambda: len(second.got) == 1)
            await first.end()
            assert (await client.one())[0] == 502
            assert third.got == []
            assert outcomes(running) == {"retried": 1, "failed": 1}
            assert running.core.in_flight == sum(running.core.balancer.requests) == 0
        async with before(silent, after(0.3), hedge_s=SOON) as (running, [first, second]), talk(running) as client:
            client.writer.write(post())
            await until(lambda: len(second.got) == 1)
            await first.end()
            assert await client.one() == (200, b"ok")
            assert outcomes(running) == {"retried": 1, "ok": 1}

    bounded(test())


def test_a_client_that_leaves_ends_both() -> None:
    async def test() -> None:
        async with before(silent, silent, hedge_s=SOON) as (running, [one, other]):
            async with talk(running) as client:
                client.writer.write(post())
                await until(lambda: len(one.got) == len(other.got) == 1)
            await until(lambda: outcomes(running) == {"cancelled": 2})
            await until(lambda: one.open == other.open == 0)
            assert running.core.in_flight == sum(running.core.balancer.requests) == 0

    bounded(test())


def test_an_overload_is_not_doubled() -> None:
    async def test() -> None:
        async with before(after(0.3), after(0.3), hedge_s=0.02, policy="least-outstanding") as (running, _):
            answers = await asyncio.gather(*(asked(running, post()) for _ in range(100)))
            assert answers == [(200, b"ok")] * 100
            assert 1 <= running.core.counts.hedges.total(0) <= HEDGED * 100
            assert outcomes(running)["ok"] == 100

    bounded(test())


@pytest.mark.parametrize("text", ["500", "soon", "0s", "-1s"])
def test_what_is_no_duration_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gateway", "--backend", "a:1", "--hedge-after", text]) == 2
    assert "--hedge-after" in capsys.readouterr().err


def test_a_duration_is_read() -> None:
    assert api.gateway_settings(backends=["a:1"], hedge_after="500ms").limits.hedge_s == 0.5
    assert api.gateway_settings(backends=["a:1"]).limits.hedge_s == 0
