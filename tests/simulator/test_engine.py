"""The resumable engine: how time is cut changes nothing, and the kernel is the reference at every
cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator.driven_engines import EASY, ENGINES, engine_of, requests_of
from tests.simulator.kernel.compared import assert_same
from tests.simulator.reference.examples import KNOBS, TICK, VLLM, ms
from tests.strategies import MS, SCHEDULERS, Run, runs
from tonnage.errors import InputError
from tonnage.perf.step import Drafting
from tonnage.results.requests import COMPLETED, REJECTED, UNFINISHED
from tonnage.simulator import reference
from tonnage.simulator.engine import Engine
from tonnage.simulator.engine import engine_of as engine_of_spec
from tonnage.simulator.kernel import run
from tonnage.simulator.request import CANCELLED, Happened, Request
from tonnage.simulator.spec import EngineSpec
from tonnage.spec.deployment import Windows
from tonnage.spec.workload import Trace


def opened(r: Run) -> Run:
    """The same engine without an end of time, under an open loop: clients who all come within a
    tenth of a second."""
    r = replace(r, window_ps=-1)
    if r.trace.concurrency == 0:
        return r
    due = np.sort(np.random.default_rng(len(r.trace)).integers(0, 200, len(r.trace))) * (MS // 2)
    return replace(r, trace=replace(r.trace, due_ps=due, concurrency=0))


def cuts(engine: Any, requests: list[Request], rng: np.random.Generator) -> Iterator[Happened]:
    """Submit the requests, early, at their instant or between, and advance in random slices until
    nothing is left."""
    coming = list(requests)
    for number in range(1000):
        event = engine.next_event()
        if event is None and not coming:
            return
        ahead = int(rng.integers(0, 3)) if rng.integers(0, 4) == 0 else 0
        choices = [
            engine.now,
            engine.now + int(rng.integers(1, 30 * MS)),
            event,
            coming[0].at if coming else None,
        ]
        until = (
            choices[rng.integers(0, 4)]
            if number < 200
            else max(filter(None, (event, engine.now + 1000 * MS)))
        )
        until = max(engine.now, until if until is not None else engine.now + MS)
        at_once = rng.integers(0, 2) == 0
        while coming and (coming[0].at < until or ahead > 0 or (at_once and coming[0].at == until)):
            ahead -= 1
            engine.submit(coming.pop(0))
        event = engine.next_event()
        happened = engine.advance(until)
        assert engine.now == until
        if len(happened):
            assert event <= happened.at.min()
        yield happened
    raise AssertionError("it does not end")


def same_at_every_cut(kind: Any, r: Run, seed: int) -> None:
    """A kind of engine and the reference, cut at the same instants, of which the same requests are
    cancelled; nothing is lost."""
    kernel, plain = engine_of(kind, r), engine_of(reference.Engine, r)
    requests = requests_of(r.trace)
    both = (cuts(engine, requests, np.random.default_rng(seed)) for engine in (kernel, plain))
    chance, log = np.random.default_rng(seed + 1), []
    for one, other in zip(*both, strict=True):
        for name in ("ids", "at", "tokens", "status"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        log += list(zip(one.ids.tolist(), one.tokens.tolist(), one.status.tolist(), strict=True))
        if chance.integers(0, 3) == 0:
            victim = int(chance.integers(0, len(requests)))
            assert kernel.cancel(victim) == plain.cancel(victim)
        assert kernel.next_event() == plain.next_event()
        assert kernel.running.tolist() == plain.running
        assert kernel.waiting.tolist() == plain.waiting
        assert kernel.kv_blocks_free == plain.kv_blocks_free == r.kv_blocks - plain.kv_blocks_used
        assert plain.kv_blocks_used == sum(job.blocks for job in plain.batcher.running)
    assert_same(kernel.requests(), plain.requests())
    ended = Counter(number for number, _, status in log if status != UNFINISHED)
    assert max(ended.values(), default=1) == 1
    assert len(ended) == len(requests)
    assert kernel.kv_blocks_free == r.kv_blocks
    assert len(kernel.running) == len(kernel.waiting) == 0
    got = Counter()
    for number, tokens, _ in log:
        got[number] += tokens
    done = {number for number, _, status in log if status == COMPLETED}
    assert all(got[number] == requests[number].osl for number in done)
    assert kernel.requests().gaps.sum() == sum(max(tokens - 1, 0) for tokens in got.values())


def forgets_nothing_that_counts(kind: Any, r: Run, seed: int) -> None:
    """Two engines of a kind, of which one forgets what has ended."""
    rng = np.random.default_rng(seed)
    keeps, forgets = (engine_of(kind, r) for _ in range(2))
    coming, forgotten = requests_of(r.trace), 0
    while coming or keeps.next_event() is not None:
        until = keeps.now + int(rng.integers(1, 100 * MS))
        while coming and coming[0].at <= until:
            request = coming.pop(0)
            for engine in (keeps, forgets):
                engine.submit(request)
        if rng.integers(0, 8) == 0 and len(keeps.waiting):
            assert keeps.cancel(int(keeps.waiting[0])) == forgets.cancel(int(forgets.waiting[0]))
        one, other = (engine.advance(until) for engine in (keeps, forgets))
        for name in ("ids", "at", "tokens", "status"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        forgotten += forgets.forget()
        assert keeps.running.tolist() == forgets.running.tolist()
        assert keeps.waiting.tolist() == forgets.waiting.tolist()
        assert keeps.preemptions() == forgets.preemptions()
        assert (keeps.kv_blocks_used, keeps.queued) == (forgets.kv_blocks_used, forgets.queued)
        assert keeps.queue.tolist() == forgets.queue.tolist()
    whole, rest = keeps.requests(), forgets.requests()
    assert len(whole) == len(rest) + forgotten
    np.testing.assert_array_equal(whole.gaps, rest.gaps)
    np.testing.assert_array_equal(whole.last_token_ns[forgotten:], rest.last_token_ns)


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@EASY
@given(data=st.data())
def test_two_engines_in_turn_are_two_runs_to_the_end(kind, scheduler, data):
    pair = [opened(data.draw(runs((scheduler,)))) for _ in range(2)]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    engines = [engine_of(kind, r) for r in pair]
    turns = [
        cuts(engine, requests_of(r.trace), rng) for engine, r in zip(engines, pair, strict=True)
    ]
    while turns:
        turn = turns[rng.integers(0, len(turns))]
        if next(turn, None) is None:
            turns.remove(turn)
    for engine, r in zip(engines, pair, strict=True):
        assert_same(
            engine.requests(),
            run(
                r.trace, r.step, r.knobs, r.kv_blocks, windows=r.windows, max_context=r.max_context
            ),
        )


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@EASY
@given(data=st.data())
def test_the_kernel_is_the_reference_at_every_cut_and_nothing_is_lost_when_requests_are_cancelled(
    scheduler, data
):
    r = opened(data.draw(runs((scheduler,))))
    same_at_every_cut(Engine, r, data.draw(st.integers(0, 2**32)))


@pytest.mark.parametrize("kind", ENGINES)
def test_a_cancelled_request_gets_nothing_more_and_its_place_goes_to_the_next(kind) -> None:
    engine = kind(TICK, replace(KNOBS, max_batch_size=1), 100)
    for number in range(4):
        engine.submit(Request(id=number, isl=10, osl=50, at=number * MS // 10))
    engine.advance(3 * MS + 1)
    assert [engine.cancel(number) for number in (0, 2, 9, 0)] == [True, True, False, False]
    assert engine.next_event() == engine.now
    assert engine.kv_blocks_used == 0
    happened = engine.advance(5 * MS)
    assert happened.ids.tolist() == [0, 2, 1]
    assert happened.status.tolist() == [CANCELLED, CANCELLED, UNFINISHED]
    assert happened.at.tolist() == [3 * MS + 1, 3 * MS + 1, 5 * MS]
    engine.advance()
    record = engine.requests()
    assert record.status.tolist() == [UNFINISHED, COMPLETED, UNFINISHED, COMPLETED]
    assert record.osl.tolist() == [3, 50, 0, 50]
    assert record.gaps.sum() == 2 + 49 + 49


@pytest.mark.parametrize("kind", ENGINES)
def test_what_cannot_be_is_refused(kind) -> None:
    engine = kind(TICK, KNOBS, 100)
    engine.submit(Request(id=0, isl=5, osl=5, at=0))
    engine.advance(10 * MS)
    with pytest.raises(InputError, match="that is past"):
        engine.submit(Request(id=1, isl=5, osl=5, at=10 * MS - 1))
    with pytest.raises(InputError, match="it was there before"):
        engine.submit(Request(id=0, isl=5, osl=5, at=20 * MS))
    with pytest.raises(InputError, match="cannot be advanced"):
        engine.advance(9 * MS)
    with pytest.raises(InputError, match="one token or more"):
        Request(id=2, isl=0, osl=1, at=0)
    with pytest.raises(InputError, match="0 or more"):
        Request(id=2, isl=1, osl=1, at=-1)


def test_thousands_of_requests_out_of_order_and_more_entries_than_the_log_holds() -> None:
    rng = np.random.default_rng(3)
    at, osl = rng.integers(0, 2_000, 3_000) * MS, rng.integers(1, 60, 3_000)
    engine = Engine(TICK, replace(VLLM, max_batch_size=64, max_num_tokens=512), 2_000)
    for number in range(3_000):
        engine.submit(Request(id=number, isl=20, osl=int(osl[number]), at=int(at[number])))
    happened = engine.advance()
    assert np.bincount(happened.ids, happened.tokens).tolist() == osl.tolist()
    order = np.argsort(at, kind="stable")
    trace = Trace(
        due_ps=at[order], isl=np.full(3_000, 20), osl=osl[order], concurrency=0, turnaround_ps=0
    )
    assert_same(
        engine.requests(),
        run(trace, TICK, replace(VLLM, max_batch_size=64, max_num_tokens=512), 2_000),
    )


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@given(data=st.data())
@EASY
def test_an_engine_that_forgets_what_has_ended_goes_on_as_one_that_does_not(
    scheduler, data
) -> None:
    r = opened(data.draw(runs((scheduler,))))
    forgets_nothing_that_counts(Engine, r, data.draw(st.integers(0, 1000)))


def test_who_waits_and_who_is_on_the_way_by_hand() -> None:
    """One slot: the first runs, the second waits, two are on their way, and one of them leaves."""
    engine = Engine(TICK, replace(KNOBS, max_batch_size=1), 100)
    assert (engine.queued, engine.coming.tolist(), engine.queue.tolist()) == (0, [], [])
    for number, at in ((0, 0), (1, 1), (2, 30), (3, 9)):
        engine.submit(Request(id=number, isl=10, osl=5, at=at * MS))
    assert engine.queued == 4
    engine.advance(2 * MS + 1)
    assert (engine.running.tolist(), engine.waiting.tolist()) == ([0], [1])
    assert engine.coming.tolist() == [3, 2], "in the order of time"
    assert (engine.queue.tolist(), engine.queued) == ([1, 3, 2], 3)
    engine.submit(Request(id=4, isl=10, osl=5, at=9 * MS))
    assert engine.queued == 4
    assert engine.coming.tolist() == [3, 4, 2], "of one instant the one submitted first"
    assert not engine.cancel(9)
    assert engine.cancel(3)
    assert not engine.cancel(3)
    assert (engine.coming.tolist(), engine.queued) == ([4, 2], 3)
    assert engine.next_event() == engine.now, "a client left"
    assert engine.advance(engine.now).status.tolist() == [CANCELLED]
    assert (engine.tokens_per_block, engine.last_step_ps) == (10, MS)
    engine.advance()
    assert engine.requests().isl.tolist() == [10] * 4
    assert engine.requests().status.tolist() == [COMPLETED] * 4
    assert ms(engine.requests().last_token_ns) == [5, 10, 15, 35]
    assert engine.next_event() is None


@pytest.mark.parametrize("kind", ENGINES)
def test_blocks_that_others_have_yet_to_read_are_nobodys(kind) -> None:
    """Of ten blocks three hold a prompt; a request for eight more gets the seven that are free."""
    engine = kind(TICK, KNOBS, 10)
    engine.submit(Request(id=0, isl=20, osl=5, at=0))
    engine.advance(1)
    assert (engine.kv_blocks_free, engine.kv_blocks_used) == (7, 3)
    assert engine.hold(2) == 2
    assert (engine.kv_blocks_free, engine.kv_blocks_used) == (5, 5)
    assert engine.hold(8) == 5
    assert engine.hold(1) == 0
    engine.submit(Request(id=1, isl=30, osl=1, at=2 * MS))
    engine.advance(9 * MS)
    assert (list(engine.running), list(engine.waiting)) == ([], [1])
    engine.release(7)
    assert engine.kv_blocks_free == 10
    engine.advance()
    assert engine.requests().status.tolist() == [COMPLETED] * 2


def test_pre_emptions_are_counted_for_one_and_for_all_also_of_those_forgotten() -> None:
    """Two of 8 tokens in 4 blocks of 4: the second gives way once (``reference/test_vllm.py``)."""
    engine = Engine(TICK, VLLM, 4)
    for number in (5, 6):
        engine.submit(Request(id=number, isl=8, osl=5, at=0))
    assert (engine.preemptions(), engine.preemptions(6)) == (0, 0)
    engine.advance()
    counts = [engine.preemptions(number) for number in (5, 6, 7)]
    assert (counts, engine.preemptions()) == ([0, 1, 0], 1)
    assert engine.forget() == 2
    assert engine.forget() == 0
    assert (engine.preemptions(6), engine.preemptions(), len(engine.requests())) == (0, 1, 0)
    engine.submit(Request(id=6, isl=8, osl=1, at=engine.now))
    engine.advance()
    assert engine.requests().status.tolist() == [COMPLETED]


def test_an_engine_draws_by_its_seed_and_tells_of_ends_alone_where_that_is_asked_for() -> None:
    drafting = Drafting(tokens=3, acceptance=0.5, passes=0, coefficients=TICK.coefficients)
    spec = EngineSpec(step=replace(TICK, drafting=drafting), knobs=VLLM, blocks=100)
    ends = []
    for seed in (None, 0, 1):
        engine = engine_of_spec(spec) if seed is None else engine_of_spec(spec, seed=seed)
        engine.submit(Request(id=0, isl=8, osl=60, at=0))
        engine.advance()
        ends.append(engine.requests().last_token_ns[0])
    assert ends[0] == ends[1] != ends[2]
    limited = replace(spec, max_context=67, windows=Windows(blocks=2, tokens=9))
    engine = engine_of_spec(limited, ends_only=True)
    engine.submit(Request(id=0, isl=8, osl=60, at=0))
    engine.submit(Request(id=1, isl=7, osl=60, at=0))
    happened = engine.advance(1)
    assert engine.kv_blocks_used == 2 + 2
    assert happened.status.tolist() == [REJECTED]
    assert engine.advance().ids.tolist() == [1]
