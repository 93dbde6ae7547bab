"""The parts of a TTFT sum to it, and each is what its name says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator.kernel.compared import assert_same
from tests.simulator.reference.examples import VLLM, open_trace
from tests.strategies import (
    MS,
    SCHEDULERS,
    Run,
    coefficient_array,
    examples,
    ranked_runs,
    runs,
    shared_runs,
)
from tonnage.perf.step import StepModel
from tonnage.results.metrics import summarize
from tonnage.results.requests import REJECTED, Requests
from tonnage.simulator import first_token as module
from tonnage.simulator import simulate
from tonnage.simulator.disaggregated import pool_engines
from tonnage.simulator.first_token import PARTS, alone_ns, request_parts, ttft_parts
from tonnage.simulator.pools import KvLink, simulate_pools
from tonnage.simulator.spec import EngineSpec
from tonnage.spec.deployment import EngineKnobs
from tonnage.spec.sessions import ENDLESS, of_rows
from tonnage.spec.workload import Trace


def spec_of(run: Run) -> EngineSpec:
    made = run.step, run.knobs, run.kv_blocks, run.windows, run.max_context
    return EngineSpec(
        **dict(zip(("step", "knobs", "blocks", "windows", "max_context"), made, strict=True)),
        tiers=run.tiers,
    )


def check(record: Requests, spec: EngineSpec) -> np.ndarray:
    """The parts of the requests with a first token, which are never below 0 and sum to the TTFT."""
    parts = request_parts(record := record.some(np.flatnonzero(record.first_token_ns >= 0)), spec)
    assert (parts[:-1] >= 0).all()
    np.testing.assert_array_equal(parts[:-1].sum(axis=0), record.first_token_ns - record.due_ns)
    return parts


@examples(0.5)
@given(run=st.one_of(runs(), shared_runs(), ranked_runs()))
def test_parts_sum_to_the_ttft_to_the_nanosecond(run: Run) -> None:
    spec = spec_of(run)
    records = [simulate.run(spec, run.trace, window_ps=run.window_ps, plain=True)]
    if run.knobs.ranks == 0 or run.trace.contents is None:
        records.append(simulate.run(spec, run.trace, window_ps=run.window_ps))
        assert_same(*records)
    check(records[-1], spec)
    for of, statistic in zip(ttft_parts(records[-1], spec), ("mean", "p95"), strict=False):
        ttft = summarize(records[-1]).statistic_ms("ttft", statistic)  # type: ignore[arg-type]
        assert sum(getattr(of, part) for part in PARTS[:-1]) == pytest.approx(
            ttft, rel=1e-9, abs=1e-9
        )


@examples(0.5)
@given(run=runs(tuple(name for name in SCHEDULERS if name != "one-prefill")))
def test_a_request_alone_has_its_prompt_and_the_front_end_and_nothing_else(run: Run) -> None:
    count = len(run.trace)
    apart = replace(
        run.trace,
        due_ps=np.arange(count) * 1_000_000 * MS,
        osl=np.ones(count, np.int64),
        concurrency=0,
        turnaround_ps=0,
    )
    # chunks end with the budget, and steps begin at once
    knobs = replace(run.knobs, tokens_per_block=1, overlap_schedule=False)
    spec = replace(spec_of(run), knobs=knobs, blocks=1_000_000)
    parts = dict(zip(PARTS, check(simulate.run(spec, apart, plain=True), spec), strict=True))
    assert (parts["queue_ms"] <= 1).all()
    # nanoseconds: admission, prompt and streaming are each rounded down
    assert (parts["shared_ms"] <= 2).all()
    assert not parts["handover_ms"].any()
    assert not parts["saved_ms"].any()


TICK = StepModel(
    coefficients=coefficient_array(host_step=0.001, linear_flops=1e-5, norm=1.0), frontend_s=0.002
)
"""A millisecond a step, and 10 µs for each of its tokens."""


def parts_of(trace: Trace, knobs: EngineKnobs = VLLM) -> dict[str, list[float]]:
    spec = EngineSpec(step=TICK, knobs=knobs, blocks=1000)
    return {
        name: (part / 1e6).tolist()
        for name, part in zip(
            PARTS, check(simulate.run(spec, trace, plain=True), spec), strict=True
        )
    }


def test_a_prompt_waits_for_the_step_under_way_and_shares_its_own() -> None:
    """The second comes while the first is computed (2 to 4 ms), and is computed in a step with the
    first one's next token."""
    parts = parts_of(open_trace((0, 100, 3), (1, 50, 3)))
    assert parts["front_end_ms"] == [2, 2]
    assert parts["queue_ms"] == [0, 1]
    assert parts["prefill_ms"] == pytest.approx([2, 1.5])
    assert parts["shared_ms"] == pytest.approx([0, 0.01])


def test_a_prompt_in_chunks_pays_for_who_is_beside_it() -> None:
    """A budget of 64: the second has 63 of its 100 tokens beside a decode, and 37 beside the next
    one."""
    parts = parts_of(open_trace((0, 10, 9), (0.5, 100, 1)), replace(VLLM, max_num_tokens=64))
    assert parts["prefill_ms"][1] == pytest.approx(3.0)
    assert parts["shared_ms"][1] == pytest.approx(0.02)


def test_what_the_cache_has_is_saved() -> None:
    trace = replace(
        open_trace((0, 100, 3), (99, 100, 3)), contents=of_rows([[(0, ENDLESS)], [(0, ENDLESS)]])
    )
    parts = parts_of(trace, replace(VLLM, prefix_caching=True))
    assert parts["saved_ms"][0] == 0.0
    assert parts["saved_ms"][1] == pytest.approx(0.01 * 96)
    assert parts["prefill_ms"] == pytest.approx([2, 1.04])


def test_of_two_pools_what_comes_after_the_prompt_is_the_handover() -> None:
    """A millisecond of transfer for each token, and the first step of the decode pool."""
    spec = EngineSpec(step=TICK, knobs=VLLM, blocks=1000)
    prefill, decode = (pool_engines(spec, 1, inside=inside) for inside in (False, True))
    record = simulate_pools(
        open_trace((0, 100, 3)),
        prefill,
        decode,
        KvLink(bytes_per_token=1000, bytes_s=1e6, layers=4),
    )
    parts = dict(zip(PARTS, (check(record, spec)[:, 0] / 1e6).tolist(), strict=True))
    assert (parts["front_end_ms"], parts["queue_ms"], parts["shared_ms"]) == (2, 0, 0)
    assert parts["handover_ms"] == pytest.approx(100 + 1.01)


def test_a_measured_run_says_nothing_of_it() -> None:
    spec = EngineSpec(step=TICK, knobs=VLLM, blocks=1000)
    measured = replace(simulate.run(spec, open_trace((0, 100, 3)), plain=True), admitted_ns=None)
    with pytest.raises(ValueError, match="a measured run"):
        ttft_parts(measured, spec)


def test_the_mean_and_those_near_the_95th_percentile_by_hand(monkeypatch) -> None:
    """Of 30 requests the k-th waits k + k² ms, in two parts, and saves 2 k: 756 the 27th and 812 the
    28th, between which the p95 is 786.8. Their mean parts stand for it, made as large as it is."""
    k = np.arange(30)
    nothing = np.zeros(30)
    parts = np.array([k, k**2, nothing, nothing, nothing, 2 * k])
    order = np.random.default_rng(1).permutation(30)
    monkeypatch.setattr(module, "request_parts", lambda *_: parts[:, order] * 1e6)
    spec = EngineSpec(step=TICK, knobs=VLLM, blocks=1000)
    record = simulate.run(spec, open_trace(*[(at, 5, 1) for at in range(30)]), plain=True)
    mean, p95 = ttft_parts(record, spec)
    assert (mean.statistic, p95.statistic) == ("mean", "p95")
    names = PARTS[0], PARTS[1], PARTS[-1]
    assert [getattr(mean, name) for name in names] == pytest.approx([14.5, 8555 / 30, 29])
    near = np.array([27.5, (27**2 + 28**2) / 2, 55])
    assert [getattr(p95, name) for name in names] == pytest.approx(near * 786.8 / 784)
    one = parts[:, 20:21] * 1e6
    monkeypatch.setattr(module, "request_parts", lambda *_: one)
    for statistic in ttft_parts(record.some(np.array([0])), spec):
        assert [getattr(statistic, name) for name in names] == pytest.approx([20, 400, 40])
    nobody = replace(record, status=np.full(30, REJECTED, np.int8))
    assert ttft_parts(nobody, spec) == ()


@pytest.mark.parametrize(
    ("isl", "cached", "budget", "knobs", "steps"),
    [
        (100, 0, 100, {}, [(100, 0)]),
        (100, 0, 40, {}, [(40, 0), (40, 40), (20, 80)]),
        (100, 30, 40, {}, [(40, 30), (30, 70)]),
        (100, 100, 40, {}, []),
        (100, 0, 40, {"chunked_prefill": False}, [(100, 0)]),
        # others than vLLM cut at the end of a block, here of 16
        (100, 0, 40, {"scheduler": "tensorrt-llm", "tokens_per_block": 16}, [(32, 0), (32, 32), (32, 64), (4, 96)]),
        (40, 0, 10, {"scheduler": "sglang", "tokens_per_block": 16}, [(16, 0), (16, 16), (8, 32)]),
    ],
)  # fmt: skip
def test_the_steps_of_a_prompt_alone(isl, cached, budget, knobs, steps) -> None:
    """A millisecond a step, 10 µs for each token, and a nanosecond for each pair of tokens."""
    step = StepModel(
        coefficients=coefficient_array(host_step=1e-3, linear_flops=1e-5, attention=1e-9, norm=1.0),
        frontend_s=0.5,
    )
    spec = EngineSpec(step=step, knobs=replace(VLLM, max_num_tokens=budget, **knobs), blocks=99)
    takes = [float(step.seconds(new, 1, 0, new * (2 * done + new), 0, 1.0)) for new, done in steps]
    found = alone_ns(np.array([isl, 7, isl]), np.array([cached, 7, cached]), spec)
    assert found.tolist() == pytest.approx([sum(takes) * 1e9, 0, sum(takes) * 1e9], abs=1)


def test_the_front_end_lets_prompts_in_one_after_another_by_hand() -> None:
    """2 ms and 10 µs a token for each prompt, at least 4 ms of wall time; two instances, and
    requests that are not in the order of time."""
    step = replace(TICK, enter_s=0.002, enter_token_s=1e-5, frontend_s=0.004)
    knobs = EngineSpec(step=step, knobs=VLLM, blocks=1000)
    trace = open_trace((0, 100, 1), (0, 300, 1), (1, 100, 1), (50, 100, 1))
    record = simulate.run(knobs, trace, plain=True)
    apart = replace(record, instance=np.array([0, 0, 1, 0], np.int32))
    order = np.array([3, 1, 0, 2])
    entering = module._entering_ns(apart, step)
    assert entering.tolist() == [4_000_000, 3_000_000 + 5_000_000, 4_000_000, 4_000_000]
    assert module._entering_ns(apart.some(order), step).tolist() == [
        4_000_000,
        5_000_000,
        5_000_000 + 4_000_000,
        4_000_000,
    ]
