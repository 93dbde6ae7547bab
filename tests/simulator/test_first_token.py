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
from tonnage.results.requests import Requests
from tonnage.simulator import simulate
from tonnage.simulator.disaggregated import pool_engines
from tonnage.simulator.first_token import PARTS, request_parts, ttft_parts
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
