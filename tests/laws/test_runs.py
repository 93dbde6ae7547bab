"""Laws of a simulated run: what is conserved, and what may never make it better or worse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deployments import deployment
from tests.laws.draws import SECOND, clients, ran, trace_of
from tests.strategies import examples
from tonnage.perf.memory import memory_plan
from tonnage.perf.step_terms import DURATIONS
from tonnage.perf.terms import step_model
from tonnage.results.metrics import summarize
from tonnage.results.requests import COMPLETED, Requests
from tonnage.simulator.engine import Engine
from tonnage.simulator.fleet import simulate_fleet
from tonnage.spec.deployment import Deployment
from tonnage.spec.workload import Trace

MADE = {
    engine: deployment(engine=engine, precision="fp8")
    for engine in ("vllm", "sglang", "tensorrt-llm-1.2")
}
ENGINES = st.sampled_from(sorted(MADE))
SEEDS = st.integers(0, 2**32 - 1)


def open_trace(seed: int, rate: float = 20.0, count: int = 200) -> Trace:
    return trace_of(np.random.default_rng(seed), count, rate)


def closed_trace(seed: int, concurrency: int = 8, count: int = 200) -> Trace:
    return clients(np.random.default_rng(seed), count, concurrency)


def fleet_of(made: Deployment, trace: Trace, instances: int, router: str) -> Requests:
    """What happens to the requests of a trace on so many instances behind a router."""
    step, blocks = step_model(made), memory_plan(made).blocks
    return simulate_fleet(
        trace, [Engine(step, made.knobs, blocks) for _ in range(instances)], router
    ).requests


def e2e_s(record: Requests) -> float:
    """Mean seconds from sending to the last token."""
    return float((record.last_token_ns - record.sent_ns).mean()) / 1e9


@examples(0.4)
@given(engine=ENGINES, seed=SEEDS, rate=st.sampled_from([1.0, 30.0, 300.0]))
def test_every_request_ends_once_with_its_own_tokens(engine: str, seed: int, rate: float) -> None:
    trace = open_trace(seed, rate)
    record = ran(MADE[engine], trace)
    assert (record.status == COMPLETED).all()
    np.testing.assert_array_equal(record.isl, trace.isl)
    np.testing.assert_array_equal(record.osl, trace.osl)
    assert record.gaps.sum() == (trace.osl - 1).sum()
    assert (record.sent_ns <= record.first_token_ns).all()
    assert (record.first_token_ns <= record.last_token_ns).all()


@examples(0.4)
@given(engine=ENGINES, seed=SEEDS, shift=st.integers(1, 10**6))
def test_a_later_clock_changes_nothing(engine: str, seed: int, shift: int) -> None:
    trace, moved_ns = open_trace(seed), shift * 1_000_000
    record = ran(MADE[engine], trace)
    later = ran(MADE[engine], replace(trace, due_ps=trace.due_ps + moved_ns * 1000))
    for name in ("sent_ns", "first_token_ns", "last_token_ns"):
        np.testing.assert_array_equal(getattr(later, name), getattr(record, name) + moved_ns)


@examples(0.4)
@given(engine=ENGINES, seed=SEEDS, factor=st.sampled_from([2, 4]))
def test_where_everything_takes_longer_by_a_factor_every_time_does(
    engine: str, seed: int, factor: int
) -> None:
    made, trace = MADE[engine], closed_trace(seed)
    step = step_model(made)
    times = replace(
        step, frontend_s=0.0, stream_s=0.0, stream_step_s=0.0, enter_s=0.0, enter_token_s=0.0
    )
    longer = times.coefficients.copy()
    longer[list(DURATIONS)] *= factor
    one, more = ran(made, trace, times), ran(made, trace, replace(times, coefficients=longer))
    np.testing.assert_allclose(more.last_token_ns, factor * one.last_token_ns, rtol=1e-5)


@examples(0.4)
@given(engine=ENGINES, seed=SEEDS)
def test_the_same_seed_is_the_same_run(engine: str, seed: int) -> None:
    one, again = (ran(MADE[engine], open_trace(seed)) for _ in range(2))
    np.testing.assert_array_equal(one.last_token_ns, again.last_token_ns)


@examples(0.4)
@given(engine=ENGINES, seed=SEEDS, concurrency=st.sampled_from([2, 8, 24]))
def test_littles_law_holds_of_clients(engine: str, seed: int, concurrency: int) -> None:
    """So many clients that never pause are the rate times the mean E2E, but for the last ones,
    which no further request follows."""
    record = ran(MADE[engine], closed_trace(seed, concurrency, count=40 * concurrency))
    rate = len(record.sent_ns) / (record.last_token_ns.max() / 1e9)
    assert rate * e2e_s(record) == pytest.approx(concurrency, rel=0.06)


@examples(0.4)
@given(engine=ENGINES, seed=SEEDS, concurrency=st.sampled_from([1, 4, 16]))
def test_more_clients_get_more_done_and_wait_longer(
    engine: str, seed: int, concurrency: int
) -> None:
    few, many = (
        ran(MADE[engine], closed_trace(seed, count, 320))
        for count in (concurrency, 4 * concurrency)
    )
    assert many.last_token_ns.max() < few.last_token_ns.max()
    assert e2e_s(many) > e2e_s(few)


@examples(0.4)
@given(engine=ENGINES, seed=SEEDS)
def test_half_the_rate_of_the_same_requests_never_takes_longer(engine: str, seed: int) -> None:
    trace = open_trace(seed, rate=100.0)
    slow = ran(MADE[engine], replace(trace, due_ps=trace.due_ps * 2))
    assert e2e_s(slow) <= e2e_s(ran(MADE[engine], trace)) * 1.001


@examples(0.4)
@given(engine=ENGINES, seed=SEEDS)
def test_longer_answers_take_longer(engine: str, seed: int) -> None:
    trace = closed_trace(seed)
    assert e2e_s(ran(MADE[engine], replace(trace, osl=2 * trace.osl))) > e2e_s(
        ran(MADE[engine], trace)
    )


@examples(0.4)
@given(engine=ENGINES, seed=SEEDS)
def test_a_pool_that_holds_everything_never_pre_empts_and_is_no_slower(
    engine: str, seed: int
) -> None:
    trace, size = open_trace(seed, 200.0), MADE[engine].knobs.tokens_per_block
    everything = int((trace.isl + trace.osl).sum()) // size + len(trace)
    small, large = (
        ran(MADE[engine], trace, blocks=blocks) for blocks in (everything // 20, everything)
    )
    assert large.preemptions.sum() == 0
    assert e2e_s(large) <= e2e_s(small) * 1.001


@examples(0.4)
@given(engine=ENGINES, seed=SEEDS)
def test_the_statistics_of_a_summary_are_those_of_its_requests(engine: str, seed: int) -> None:
    record = ran(MADE[engine], open_trace(seed))
    summary = summarize(record)
    seconds = (record.last_token_ns.max() - record.sent_ns.min()) / 1e9
    ttft, e2e = record.first_token_ns - record.sent_ns, record.last_token_ns - record.sent_ns
    assert summary.statistic_ms("ttft", "mean") == pytest.approx(ttft.mean() / 1e6)
    assert summary.statistic_ms("ttft", "p95") == pytest.approx(np.percentile(ttft, 95) / 1e6)
    assert summary.statistic_ms("tpot", "mean") == pytest.approx(
        ((e2e - ttft) / np.maximum(record.osl - 1, 1))[record.osl > 1].mean() / 1e6
    )
    assert summary.statistic_ms("itl", "mean") == pytest.approx(
        (e2e - ttft).sum() / (record.osl - 1).sum() / 1e6
    )
    assert summary.requests_per_second == pytest.approx(len(record.osl) / seconds, rel=0.02)
    assert summary.output_tokens_per_second == pytest.approx(
        summary.requests_per_second * record.osl.mean()
    )


@examples(0.2)
@given(engine=ENGINES, seed=SEEDS, instances=st.sampled_from([2, 3]))
def test_instances_in_turn_are_the_instances_by_themselves(
    engine: str, seed: int, instances: int
) -> None:
    made, trace = MADE[engine], open_trace(seed, 60.0)
    fleet = fleet_of(made, trace, instances, "round-robin")
    for place in range(instances):
        rows = np.arange(place, len(trace.isl), instances)
        alone = ran(
            made,
            replace(trace, due_ps=trace.due_ps[rows], isl=trace.isl[rows], osl=trace.osl[rows]),
        )
        np.testing.assert_array_equal(fleet.last_token_ns[rows], alone.last_token_ns)


@examples(0.08)
@given(seed=SEEDS)
def test_the_router_that_looks_never_does_worse_than_chance(seed: int) -> None:
    made, trace = MADE["vllm"], open_trace(seed, 500.0, 800)
    looking, chance = (
        fleet_of(made, trace, 4, router) for router in ("least-outstanding", "random")
    )
    assert e2e_s(looking) <= e2e_s(chance) * 1.02


@examples(0.08)
@given(seed=SEEDS)
def test_another_instance_never_makes_a_fleet_slower(seed: int) -> None:
    made, trace = MADE["vllm"], open_trace(seed, 300.0, 600)
    two, four = (summarize(fleet_of(made, trace, count, "least-outstanding")) for count in (2, 4))
    assert four.statistic_ms("e2e", "mean") <= two.statistic_ms("e2e", "mean")


def test_a_second_is_a_million_million_picoseconds() -> None:
    """The unit of the traces above, by the record of one request that is due a second late."""
    record = ran(MADE["vllm"], replace(open_trace(1, count=1), due_ps=np.array([SECOND], np.int64)))
    assert record.sent_ns.tolist() == [10**9]
