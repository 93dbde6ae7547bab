"""Fleets, pools and engines that are driven from outside, without numba, beside the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.deployments import knobs_of
from tests.simulator.driven_engines import engine_of, requests_of
from tests.simulator.kernel.compared import MODEL, assert_same
from tests.simulator.kernel.hand_worked import trace_of
from tests.simulator.kernel.small_runs import (
    GUESSES,
    NO_LIMITS,
    TICKS,
    half_ms,
)
from tests.simulator.kernel.uncompiled import beside
from tests.simulator.test_engine import forgets_nothing_that_counts, same_at_every_cut
from tests.simulator.two_pools import COLUMNS
from tests.strategies import MS, SCHEDULERS, Run
from tonnage.results.requests import COMPLETED, FAILED, REJECTED, UNFINISHED
from tonnage.simulator import reference
from tonnage.simulator.autoscaler import Autoscale
from tonnage.simulator.changes import (
    DRAINS,
    FAILS,
    NO_CHANGES,
    RETRIES,
    RETURNS,
    Changes,
    Outages,
)
from tonnage.simulator.fleet import simulate_fleet
from tonnage.simulator.pools import COUNTING, KvLink, simulate_pools
from tonnage.simulator.request import RECEIVING
from tonnage.simulator.router import ROUTERS
from tonnage.spec.workload import Trace

# Fleets.


def mixed_trace(count: int = 26) -> Trace:
    """Requests that come in groups and alone, short and long, one of which fits nowhere."""
    due = [
        0,
        0,
        1,
        1,
        1,
        3,
        4,
        4,
        9,
        9,
        10,
        12,
        12,
        15,
        30,
        31,
        31,
        31,
        33,
        60,
        60,
        61,
        70,
        90,
        90,
        91,
    ]
    rows = [(at, 3 + 7 * k % 23, 1 + 5 * k % 17) for k, at in enumerate(due[:count])]
    rows[9] = (rows[9][0], 400, 3)
    return trace_of(*rows)


def engines_of_all_kinds(trace: Trace) -> list[Run]:
    """An engine of each scheduler, in little memory or with few slots, and no two alike."""
    slow = {"stream_s": 0.0005, "stream_step_s": 0.001, "enter_s": 0.0003, "enter_token_s": 1e-4}
    kinds: list[tuple[int, int, dict[str, Any], dict[str, Any]]] = [
        (4, 14, {"scheduler": "vllm", "block": 4}, {}),
        (3, 90, {"scheduler": "sglang", "block": 1}, {"frontend_s": 0.0123456789}),
        (5, 40, {"scheduler": "tensorrt-llm", "block": 2}, {"drafting": GUESSES}),
        (3, 60, {"scheduler": "static", "block": 4}, {}),
        (4, 50, {"scheduler": "max-utilization", "block": 1}, slow),
        (2, 30, {"scheduler": "one-prefill", "block": 4}, slow | {"stream_s": 0.006}),
    ]
    return [
        Run(
            trace=trace,
            step=replace(MODEL, coefficients=MODEL.coefficients * (1 + 0.07 * place), **timing),
            knobs=knobs_of(slots, 64, **knobs),
            kv_blocks=blocks,
            **NO_LIMITS,
        )
        for place, (slots, blocks, knobs, timing) in enumerate(kinds)
    ]


def failing(*rows: tuple[int, int, int]) -> Outages:
    """Failures, returns and drains: milliseconds, the instance, and which of the three."""
    at, instance, back = np.array(rows, np.int64).T
    return Outages(at=at * MS, instance=instance, back=back)


RULE = Autoscale(
    metric="outstanding",
    target=2.0,
    least=1,
    most=2,
    start_s=0.01,
    hold_s=0.02,
    interval_s=0.004,
    warm=1,
)
OUTAGES = failing(
    (2, 0, FAILS),
    (5, 1, DRAINS),
    (8, 0, RETURNS),
    (13, 2, FAILS),
    (13, 1, FAILS),
    (31, 1, RETURNS),
    (33, 2, RETURNS),
    (61, 0, FAILS),
)
CHANGES = {
    "nothing": NO_CHANGES,
    **{f"failures, retry {retry}": Changes(outages=OUTAGES, retry=retry) for retry in RETRIES},
    "by what is outstanding": Changes(autoscale=RULE),
    "by the rate": Changes(autoscale=replace(RULE, metric="rate", target=150.0, warm=0, most=3)),
    "both": Changes(autoscale=RULE, outages=OUTAGES, retry="all"),
}


def same_fleets(
    plain: Any, kinds: list[Run], router: str, *, changes: Changes = NO_CHANGES, **options: Any
) -> Any:
    """The uncompiled fleet and the reference: records, choices, and what has changed."""
    options |= {"seed": 5, "changes": changes}
    expected = simulate_fleet(
        kinds[0].trace,
        [engine_of(reference.Engine, kind) for kind in kinds],
        router,
        fresh=lambda place: engine_of(reference.Engine, kinds[place]),
        **options,
    )
    kind_of_engine = beside(plain, "engine").Engine
    routed = beside(plain, "fleet").run_fleet(
        kinds[0].trace,
        [engine_of(kind_of_engine, kind).machine for kind in kinds],
        router,
        **options,
    )
    np.testing.assert_array_equal(routed.chosen, expected.chosen)
    np.testing.assert_array_equal(routed.changed.served, expected.changed.served)
    assert replace(routed.changed, served=expected.changed.served) == expected.changed
    assert_same(routed.requests, expected.requests)
    return routed


@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("router", sorted(ROUTERS))
def test_an_uncompiled_fleet_equals_the_reference(plain, router, changes):
    """Three engines of different kinds behind each router, whatever fails, starts and leaves."""
    kinds = engines_of_all_kinds(mixed_trace())
    place = sorted(ROUTERS).index(router) + list(CHANGES).index(changes)
    fleet = [kinds[(place + further) % len(kinds)] for further in (0, 1, 3)]
    routed = same_fleets(
        plain,
        fleet,
        router,
        changes=CHANGES[changes],
        weight=[1.0, 0.5, 3.0],
        sessions=np.arange(26) % 4,
    )
    assert np.isin(routed.requests.status, (COMPLETED, REJECTED, FAILED)).all()


@pytest.mark.parametrize("retry", RETRIES)
@pytest.mark.parametrize("router", ["least-outstanding", "least-tokens"])
def test_what_others_have_on_its_way_stays_so_where_an_instance_fails(plain, router, retry):
    """All stream slowly, so that tokens of each are under way to clients at any time."""
    kinds = engines_of_all_kinds(mixed_trace())
    slow = replace(kinds[5].step, stream_s=0.011)
    fleet = [replace(kind, step=slow) for kind in (kinds[4], kinds[5], kinds[0])]
    outages = failing(
        (12, 0, FAILS),
        (14, 0, RETURNS),
        (17, 2, FAILS),
        (20, 2, RETURNS),
        (35, 1, FAILS),
        (66, 0, FAILS),
    )
    same_fleets(plain, fleet, router, changes=Changes(outages=outages, retry=retry))


CLASSES = np.arange(26) * 7 % 5 % 3


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("router", ["least-outstanding", "least-tokens"])
def test_an_uncompiled_fleet_by_class_equals_the_reference(plain, scheduler, router):
    trace = replace(mixed_trace(), priority=CLASSES)
    knobs = knobs_of(3, 64, scheduler=scheduler, block=2)
    run = Run(trace=trace, step=MODEL, knobs=knobs, kv_blocks=30, **NO_LIMITS)
    by_class = replace(run, knobs=replace(knobs, queue_order="priority"))
    expected = simulate_fleet(trace, [engine_of(reference.Engine, by_class) for _ in "ab"], router)
    engine = engine_of(beside(plain, "engine").Engine, run).machine
    routed = beside(plain, "fleet").run_fleet(trace, [engine] * 2, router, knobs=by_class.knobs)
    np.testing.assert_array_equal(routed.chosen, expected.chosen)
    assert_same(routed.requests, expected.requests)


@pytest.mark.parametrize("wait", [0, 3])
@pytest.mark.parametrize("router", sorted(ROUTERS))
def test_an_uncompiled_fleet_of_ranks_equals_the_reference(plain, router, wait):
    """Two instances of two ranks each, in lockstep."""
    place = sorted(ROUTERS).index(router) + wait
    run = engines_of_all_kinds(mixed_trace())[place % len(SCHEDULERS)]
    run = replace(run, knobs=replace(run.knobs, rank_wait_steps=wait, pads_ranks=wait > 0))
    ranks = [engine_of(reference.Engine, run) for _ in range(4)]
    for first in (0, 2):
        reference.Ranks(ranks[first : first + 2])
    expected = simulate_fleet(run.trace, ranks, router, seed=5)
    engine = engine_of(beside(plain, "engine").Engine, run).machine
    routed = beside(plain, "fleet").run_fleet(
        run.trace, [engine] * 4, router, seed=5, ranks=2, knobs=run.knobs
    )
    np.testing.assert_array_equal(routed.chosen, expected.chosen)
    assert_same(routed.requests, expected.requests)


# Engines that are driven from outside, and pools of them.


@pytest.mark.parametrize("place", range(6))
def test_an_uncompiled_engine_equals_the_reference_at_every_cut(plain, place):
    run = engines_of_all_kinds(mixed_trace())[place]
    for seed in range(3):
        same_at_every_cut(beside(plain, "engine").Engine, run, seed)


@pytest.mark.parametrize("place", [0, 3, 5])
def test_an_uncompiled_engine_may_forget_what_has_ended(plain, place):
    """Of requests that all are small; they are more than an engine has rows for at first."""
    kinds = engines_of_all_kinds(trace_of(*((at, 1 + at % 7, 1 + at % 4) for at in range(70))))
    forgets_nothing_that_counts(beside(plain, "engine").Engine, kinds[place], place)


@pytest.mark.parametrize("place", range(6))
def test_an_uncompiled_engine_that_tells_of_ends_alone_tells_of_all(plain, place):
    """The same instants as where every token is told; and all tokens of those that ran through."""
    run = engines_of_all_kinds(mixed_trace())[place]
    ends = beside(plain, "engine").Engine(
        run.step, run.knobs, run.kv_blocks, seed=run.trace.seed, ends_only=True
    )
    every = engine_of(reference.Engine, run)
    tokens = np.zeros(len(run.trace), np.int64)
    for request in [*requests_of(run.trace), None]:
        for engine in (ends, every) if request else ():
            engine.submit(request)
        if request is None or request.id % 3 == 0:
            tells, told_all = (
                engine.advance(request.at if request else None) for engine in (ends, every)
            )
            ended = told_all.status != UNFINISHED
            columns = ("at", "ids", "status")
            expected = zip(*(getattr(told_all, name)[ended] for name in columns), strict=True)
            found = zip(*(getattr(tells, name) for name in columns), strict=True)
            assert sorted(found) == sorted(expected)
            tokens[tells.ids] += tells.tokens
            assert ends.running.tolist() == every.running
    record = every.requests()
    assert_same(ends.requests(), record)
    np.testing.assert_array_equal(
        tokens[record.preemptions == 0], record.osl[record.preemptions == 0]
    )


def test_an_uncompiled_engine_goes_on_where_its_log_was_full(plain):
    trace = trace_of(*((at // 8, 2, 150 - at) for at in range(60)))
    run = replace(engines_of_all_kinds(trace)[0], kv_blocks=2000)
    run = replace(run, knobs=replace(run.knobs, max_batch_size=30))
    engines = [engine_of(kind, run) for kind in (beside(plain, "engine").Engine, reference.Engine)]
    for request in requests_of(trace):
        for engine in engines:
            engine.submit(request)
    told, expected = (engine.advance() for engine in engines)
    assert len(told.ids) == trace.osl.sum() > 4096
    for name in ("ids", "at", "tokens", "status"):
        np.testing.assert_array_equal(getattr(told, name), getattr(expected, name))


LINK = KvLink(bytes_per_token=100, bytes_s=1e6, layers=3, block_tokens=2)
STREAMS = replace(MODEL, stream_s=0.0005, stream_step_s=0.001)


def pools_of(kind: Any, runs: list[Run]) -> list[list[Any]]:
    """Two engines of a kind for the run of each pool."""
    return [[engine_of(kind, run) for _ in range(2)] for run in runs]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("router", COUNTING)
def test_uncompiled_pools_equal_the_reference(plain, router, overlap):
    """Pools of engines of different kinds, as fleets and driven from event to event."""
    trace = mixed_trace()
    trace = replace(trace, isl=np.maximum(trace.isl, 4))
    link = replace(LINK, overlap=overlap)
    kinds = [kind for kind in engines_of_all_kinds(trace) if kind.knobs.scheduler in RECEIVING]
    turn = COUNTING.index(router) + overlap
    first, second = (kinds[(turn + further) % len(kinds)] for further in (0, 1))
    step = STREAMS if turn == 2 else replace(first.step, drafting=None)
    chunked = replace(second.knobs, chunked_prefill=True)
    runs = [replace(first, step=step, kv_blocks=5000), replace(second, knobs=chunked, kv_blocks=60)]
    engine = beside(plain, "engine").Engine
    expected = simulate_pools(trace, *pools_of(reference.Engine, runs), link, router, seed=3)
    driven = simulate_pools(trace, *pools_of(engine, runs), link, router, seed=3)
    machines = ([member.machine for member in pool] for pool in pools_of(engine, runs))
    whole = beside(plain, "pools").run_pools(trace, *machines, link, router, seed=3)
    for record in (driven, whole):
        for name in COLUMNS:
            np.testing.assert_array_equal(
                getattr(record, name), getattr(expected, name), err_msg=name
            )


@pytest.mark.parametrize(
    ("knobs", "streams", "lacking", "given"),
    [
        ({}, {}, 0, True),
        ({}, {}, 1, False),
        ({}, {"stream_s": 0.002}, 0, True),
        ({}, {"stream_s": 0.002, "enter_s": 0.0001}, 1, False),
        ({"queue_order": "shortest-first"}, {}, 0, False),
        ({"scheduler": "tensorrt-llm"}, {}, 0, True),
        ({"scheduler": "tensorrt-llm", "tokens_per_block": 8}, {}, -1000, False),
        ({"scheduler": "vllm", "tokens_per_block": 8}, {}, -1000, True),
    ],
)
def test_fleets_answer_for_pools_where_blocks_last(plain, knobs, streams, lacking, given):
    """Three prompts of 7 tokens, which one step computes, in blocks of 4: at most 6 of them wait for
    their transfers at once, and a step may take another 64 / 4 + 8 · 3 + 2 · 3."""
    knobs = replace(knobs_of(8, 64, block=4), **knobs)
    engine = beside(plain, "engine").Engine
    source = engine(replace(TICKS, **streams), knobs, 6 + 16 + 24 + 6 - lacking).machine
    target = engine(TICKS, replace(knobs, scheduler="vllm"), 500).machine
    trace = trace_of((0, 7, 5), (0, 7, 5), (0, 7, 5))
    link = replace(LINK, block_tokens=4, bytes_s=1e4)
    found = beside(plain, "pools").run_pools(trace, [source], [target], link, "round-robin")
    assert (found is not None) is given


@pytest.mark.parametrize("streams", [{"stream_s": 0.002}, {"stream_s": 0.002, "enter_s": 0.0001}])
@pytest.mark.parametrize("lacking", [0, 1])
def test_a_prompt_waits_for_its_transfer_from_the_end_of_its_step_on(plain, streams, lacking):
    """The first cache has arrived at 73 or 73.1 ms, and the step of the second prompt, which comes at
    73.5, ends a millisecond later: at no time do both wait."""
    knobs = knobs_of(8, 64, block=4)
    engine = beside(plain, "engine").Engine
    source = engine(replace(TICKS, **streams), knobs, 2 + 16 + 24 + 6 - lacking).machine
    target = engine(TICKS, knobs, 500).machine
    trace = half_ms((0, 7, 5), (73.5, 7, 5))
    link = replace(LINK, block_tokens=4, bytes_s=1e4)
    found = beside(plain, "pools").run_pools(trace, [source], [target], link, "round-robin")
    assert (found is not None) is (lacking == 0)


def test_what_one_step_of_a_pool_may_take_by_hand(plain):
    pools = beside(plain, "pools")
    cfg = {"block_tokens": 4, "window_blocks": 1, "longest_chunk": 0, "slots": 8, "max_tokens": 64}
    # 64 / 4, 3 + 1 for each of 8 prompts, and twice the longest, of 30 / 4 + 2 + 1 blocks
    assert pools._step_blocks(cfg, 5, 30) == 16 + 8 * 4 + 2 * 10
    assert pools._step_blocks(cfg | {"slots": 100}, 5, 30) == 16 + (12 + 2) * 4 + 2 * 10
    # in chunks of 3, or of all of a shorter prompt
    assert pools._step_blocks(cfg | {"longest_chunk": 3}, 5, 30) == 8 * (10 + 2)
    assert pools._step_blocks(cfg | {"longest_chunk": 3, "slots": 100}, 5, 30) == 23 * 12
    assert pools._step_blocks(cfg | {"longest_chunk": 9, "slots": 100}, 5, 30) == 14 * 12


@pytest.mark.parametrize(
    ("begin", "end", "blocks", "most"),
    [
        ([], [], [], 0),
        ([0, 5, 10], [7, 12, 20], [2, 3, 4], 7),
        ([0, 1, 2], [10, 11, 12], [2, 3, 4], 9),
        ([0, 7], [7, 9], [2, 3], 5),
        ([0, 8], [7, 9], [2, 3], 3),
    ],
)
def test_the_most_blocks_that_wait_for_transfers_by_hand(plain, begin, end, blocks, most):
    columns = (np.array(column, np.int64) for column in (begin, end, blocks))
    assert beside(plain, "pools")._most_held(*columns) == most


def test_when_steps_ended_whose_tokens_were_streamed_later_by_hand(plain):
    """Two tokens of a step at 10, of 2 each and 1 for the step; then one at 20; the front end was
    behind with the last at 21, so that its step is only known to have ended after that one."""
    ended_after = beside(plain, "pools")._ended_after
    at = np.array([10, 10, 20, 21])
    assert ended_after(at, 2, 1).tolist() == [5, 5, 17, 17]
    assert ended_after(at, 2, 0).tolist() == [6, 6, 18, 18]
    assert ended_after(at, 0, 1).tolist() == [9, 9, 19, 19]
    assert ended_after(at, 0, 0).tolist() == at.tolist()
    assert ended_after(at[:0], 2, 1).tolist() == []
