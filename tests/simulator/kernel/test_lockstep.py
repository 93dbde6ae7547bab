from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.deployments import knobs_of
from tests.simulator.driven_engines import engine_of
from tests.simulator.kernel.compared import SHAPES, assert_same, instances, same_ranks
from tests.simulator.test_engine import opened
from tests.strategies import (
    MS,
    SCHEDULERS,
    Run,
    coefficient_array,
    examples,
    runs,
)
from tonnage import api
from tonnage.errors import InputError
from tonnage.perf.step import StepModel
from tonnage.simulator import reference
from tonnage.simulator.changes import Changes, Outages
from tonnage.simulator.engine import Engine
from tonnage.simulator.fleet import simulate_fleet
from tonnage.simulator.kernel import run_ranks, run_recorded
from tonnage.simulator.kernel.fleet import run_fleet
from tonnage.simulator.reference import Ranks
from tonnage.simulator.request import ALL_TOKENS, DURATION, PREFILL_TOKENS, STEP_COLUMNS
from tonnage.simulator.router import ROUTERS
from tonnage.simulator.tiers import Tier
from tonnage.spec.deployment import Windows
from tonnage.spec.sessions import ENDLESS, of_rows
from tonnage.spec.workload import Trace

COMPILED = pytest.mark.accuracy
"""The loops of groups of ranks are compiled for ten to thirty seconds each, for these tests alone;
``./check --accuracy`` has the time."""


def equal(run: Run, traces: list[Trace], ranks: int) -> None:
    """Kernel, step by step and with leaps, and reference: records, and the steps of the
    instance."""
    for leaps in (False, True):
        same_ranks(run_ranks, run, traces, ranks, leaps=leaps)


@COMPILED
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(max_examples=1_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_kernel_equals_reference_on_a_thousand_runs(
    scheduler: str, kind: str, data: st.DataObject
) -> None:
    equal(*data.draw(instances(kind, scheduler)))


@COMPILED
@pytest.mark.parametrize("kind", SHAPES)
@examples(0.4)
@given(data=st.data())
def test_a_rank_by_itself_is_an_engine_to_the_last_bit(kind: str, data: st.DataObject) -> None:
    """A group of one rank in the loop of groups, beside the loop of an engine."""
    run = data.draw(SHAPES[kind](SCHEDULERS))
    options = {
        "windows": run.windows,
        "window_ps": run.window_ps,
        "max_context": run.max_context,
        "tiers": run.tiers,
    }
    alone, steps = run_recorded(
        run.trace, run.step, run.knobs, run.kv_blocks, most_steps=100_000, **options
    )
    [found], together = run_ranks(
        [run.trace],
        1,
        run.step,
        run.knobs,
        run.kv_blocks,
        most_steps=100_000,
        grouped=True,
        **options,
    )
    assert_same(found, alone)
    np.testing.assert_array_equal(together.steps, steps.steps)


STEP = StepModel(
    coefficients=coefficient_array(host_step=0.001, linear_flops=1e-5, norm=1.0), frontend_s=0.0
)
"""A step takes 1 ms and 10 µs for each token."""


KNOBS = knobs_of(8, 4096)


def open_trace(*rows: tuple[float, int, int]) -> Trace:
    """Requests by milliseconds, prompt and output."""
    due, isl, osl = (
        np.array(column, np.int64)
        for column in zip(*((round(at * MS), i, o) for at, i, o in rows), strict=True)
    )
    return Trace(due_ps=due, isl=isl, osl=osl, concurrency=0, turnaround_ps=0)


@COMPILED
def test_a_step_that_waits_for_blocks_is_not_repeated_while_prompts_are_held() -> None:
    """A prompt's first block was moved to a tier and is fetched when the prompt enters, long before
    the other rank has one too."""
    opening, alone = [(1000, 16)], []
    beginnings = [opening, alone, alone, opening]
    trace = open_trace((0, 30, 2), (0, 180, 4), (100, 30, 25), (106, 30, 2))
    trace = replace(
        trace,
        contents=of_rows(
            [[*beginning, (number, ENDLESS)] for number, beginning in enumerate(beginnings)]
        ),
    )
    other = replace(open_trace((0, 30, 150)), contents=of_rows([[(9, ENDLESS)]]))
    knobs = knobs_of(
        8,
        4096,
        scheduler="one-prefill",
        chunked_prefill=False,
        prefix_caching=True,
        rank_wait_steps=5,
    )
    tiers = (Tier(blocks=8, block_ps=77_777_777),)
    limits = {"windows": Windows(blocks=0, tokens=0), "window_ps": -1, "max_context": 0}
    run = Run(trace=trace, step=STEP, knobs=knobs, kv_blocks=12, tiers=tiers, **limits)
    _, steps = run_ranks([trace, other], 2, STEP, knobs, 12, most_steps=1000, tiers=tiers)
    assert (steps.steps[:, DURATION] == 1_010_000_000 + tiers[0].block_ps).sum() == 1
    equal(run, [trace, other], 2)


@COMPILED
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_rank_that_lost_its_only_request_to_its_class_computes_in_the_next_step(
    ranks: int,
) -> None:
    """In little memory the only running request pre-empts itself, and a step computes nothing;
    leaps must not pass over the next one."""
    isl, osl = (np.array(column, np.int64) for column in ([26, 20, 16, 9], [9, 25, 21, 1]))
    due = np.array([5, 8, 124, 257], np.int64) * MS // 1000
    classes = {"priority": np.array([1, 1, 0, 1]), "ttft_ps": np.full(4, -1)}
    trace = Trace(due_ps=due, isl=isl, osl=osl, concurrency=0, turnaround_ps=0, **classes)
    knobs = replace(
        KNOBS,
        tokens_per_block=1,
        max_num_tokens=47,
        chunked_prefill=False,
        queue_order="priority",
        prefix_caching=True,
    )
    run = Run(
        trace=trace,
        step=STEP,
        knobs=knobs,
        kv_blocks=47,
        windows=Windows(blocks=0, tokens=0),
        window_ps=-1,
        max_context=0,
    )
    _, steps = run_ranks([trace], ranks, STEP, knobs, 47, most_steps=1000, leaps=False)
    nothing = steps.steps[steps.steps[:, ALL_TOKENS] == 0]
    assert len(nothing) > 0
    assert (nothing[:, DURATION] > 0).all()
    equal(run, [trace] * ranks, ranks)


@COMPILED
def test_a_request_that_goes_back_to_the_queue_ends_the_wait_of_prompts() -> None:
    """It leaves a slot free in the last rank that had none, so all ranks have prompts in the next
    step, which no leap may pass."""
    first = (26, 20, 16, 9, 10, 2, 3)
    isl = [first, first, (*first, 1, 6, 25, 20, 28, 16, 19, 30, 22, 19, 17, 17, 29)]
    due = [
        np.linspace(0.02, 0.91, 7) * MS,
        np.array([0, *[0.5] * 6]) * MS,
        np.linspace(0.01, 0.86, 20) * MS,
    ]
    osl = [np.full(7, 90), np.array([2, 16, 74, 59, 83, 46, 55]), np.full(20, 30)]
    order = np.array([0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 0, 0, 1, 0, 1, 0, 1, 1])
    traces = [
        Trace(
            due_ps=at.astype(np.int64),
            isl=np.array(i),
            osl=o,
            concurrency=0,
            turnaround_ps=0,
            priority=order[: len(i)],
            ttft_ps=np.full(len(i), -1),
        )
        for at, i, o in zip(due, isl, osl, strict=True)
    ]
    knobs = replace(
        KNOBS,
        scheduler="sglang",
        tokens_per_block=1,
        max_num_tokens=116,
        chunked_prefill=False,
        queue_order="priority",
        rank_wait_steps=30,
    )
    step = StepModel(coefficients=coefficient_array(host_step=0.001, norm=1.0), frontend_s=0.0)
    run = Run(
        trace=traces[0],
        step=step,
        knobs=knobs,
        kv_blocks=348,
        windows=Windows(blocks=0, tokens=0),
        window_ps=-1,
        max_context=0,
    )
    equal(run, traces, 3)


def test_the_prompt_of_one_rank_holds_up_the_tokens_of_the_other() -> None:
    """Two ranks decode with 1.01 ms a token; then a prompt of 1,000 tokens comes to one, and both
    have one gap of 11 ms more."""
    decodes = open_trace((0, 1, 100))
    traces = [decodes, open_trace((0, 1, 100), (50, 1000, 1))]
    found = reference.run_ranks(traces, 2, STEP, KNOBS, 1000)
    steps = np.array(found[0].steps)
    assert steps.shape[1] == STEP_COLUMNS
    alone, _ = run_recorded(decodes, STEP, KNOBS, 1000, most_steps=0)
    later = int(found[0].requests.last_token_ns[0] - alone.last_token_ns[0])
    assert later == 10_000_000
    assert steps[steps[:, PREFILL_TOKENS] == 1000, DURATION].tolist() == [11_010 * MS // 1000]
    assert steps[:, ALL_TOKENS].max() == 1002


def test_experts_compute_the_tokens_of_all_ranks() -> None:
    """Experts take 10 µs for each of the mean tokens of a rank: a prompt of 1,000 in one of two
    ranks costs as much as 500 in both."""
    step = StepModel(
        coefficients=coefficient_array(
            host_step=0.001, expert_flops=1e-5, expert_bytes=1e-12, norm=1.0
        ),
        frontend_s=0.0,
    )
    loads = [open_trace((0, 1000, 1))], [open_trace((0, 500, 1))] * 2
    one, both = (reference.run_ranks(traces, 2, step, KNOBS, 1000)[0].requests for traces in loads)
    assert one.last_token_ns.tolist() == both.last_token_ns.tolist() == [6_000_000]


@pytest.mark.parametrize("scheduler", ["tensorrt-llm", "sglang"])
def test_prompts_wait_until_all_ranks_have_some(scheduler: str) -> None:
    """While both decode, the second prompt of one rank waits for the other's, but no more than 20
    steps."""
    knobs = replace(KNOBS, scheduler=scheduler, rank_wait_steps=20)
    ttft = []
    for other in (5.0, 90.0):
        traces = [open_trace((0, 1, 200), (4, 10, 1)), open_trace((0, 1, 200), (other, 10, 1))]
        found = reference.run_ranks(traces, 2, STEP, knobs, 1000)[0].requests
        ttft.append(float(found.first_token_ns[1] - found.due_ns[1]) / 1e6)
    assert ttft[0] < 4.0
    assert 10.0 < ttft[1] < 23.0


@COMPILED
@pytest.mark.parametrize("router", sorted(ROUTERS))
@examples(0.3)
@given(data=st.data())
def test_a_fleet_of_instances_is_the_plain_one(router: str, data: st.DataObject) -> None:
    """The ranks of two instances behind a router, against plain engines in groups."""
    run = opened(data.draw(runs(SCHEDULERS)))
    run = replace(
        run,
        knobs=replace(
            run.knobs,
            rank_wait_steps=data.draw(st.sampled_from([0, 3])),
            pads_ranks=data.draw(st.booleans()),
        ),
    )
    ranks = data.draw(st.sampled_from([1, 2, 3]))
    plain = [engine_of(reference.Engine, run) for _ in range(2 * ranks)]
    for first in (0, ranks):
        Ranks(plain[first : first + ranks])
    expected = simulate_fleet(run.trace, plain, router, seed=5)
    machines = [engine_of(Engine, run).machine] * (2 * ranks)
    found = run_fleet(run.trace, machines, router, seed=5, ranks=ranks, knobs=run.knobs)
    np.testing.assert_array_equal(found.chosen, expected.chosen)
    assert_same(found.requests, expected.requests)


def test_ranks_of_instances_that_fail_are_not_simulated() -> None:
    trace = open_trace((0, 1, 1))
    machines = [Engine(STEP, KNOBS, 100).machine] * 2
    changes = Changes(
        outages=Outages(
            at=np.zeros(1, np.int64), instance=np.zeros(1, np.int64), back=np.zeros(1, np.int64)
        )
    )
    with pytest.raises(InputError, match="attention ranks"):
        run_fleet(trace, machines, "random", ranks=2, changes=changes)


def test_ranks_carry_the_load_of_all_of_them() -> None:
    """Eight ranks with eight clients each: every request ends, none waits for another rank, and the
    rates are of all."""
    what = {
        "model": "deepseek-v3",
        "gpu": "h200",
        "precision": "fp8",
        "engine": "vllm",
        "isl": 500,
        "osl": 50,
        "requests": 640,
    }
    run = api.simulate(concurrency=64, tp=1, dp=8, ep=8, **what)
    assert len(run.requests) == 640
    assert set(run.requests.instance.tolist()) == set(range(8))
    assert run.to_json()["dp"] == 8
    assert "dp" not in api.simulate(concurrency=8, tp=8, **what).to_json()


EXPERTS = StepModel(
    coefficients=coefficient_array(
        host_step=0.001, expert_flops=1e-5, expert_bytes=1e-12, norm=1.0
    ),
    frontend_s=0.0,
)
"""A step takes 1 ms, and its experts 10 µs for each of the mean tokens of a rank."""


@pytest.mark.parametrize(("graph_tokens", "lasts_us"), [(8, 1080), (7, 1050)])
def test_the_experts_of_a_captured_step_compute_as_much_for_every_rank_as_for_the_fullest(
    graph_tokens: int, lasts_us: int
) -> None:
    """Prompts of 8 and 2 tokens in two ranks: filled up to 16 tokens for the experts where graphs
    hold 8 tokens of a rank, else 10."""
    knobs = replace(KNOBS, pads_ranks=True, graph_tokens=graph_tokens)
    found = reference.run_ranks(
        [open_trace((0, 8, 1)), open_trace((0, 2, 1))], 2, EXPERTS, knobs, 1000
    )
    (step,) = found[0].steps
    assert step[DURATION] == pytest.approx(lasts_us * MS // 1000, abs=10)
    assert step[ALL_TOKENS] == (lasts_us - 1000) // 5


@pytest.mark.parametrize("pads_ranks", [True, False])
def test_decodes_are_captured_whatever_graphs_of_prompts_hold(pads_ranks: bool) -> None:
    """Three sequences decode in one rank, one in another and none in two more: 12 tokens with
    padding, 4 without."""
    knobs = replace(KNOBS, pads_ranks=pads_ranks, graph_tokens=0)
    traces = [open_trace(*[(0, 1, 3)] * 3), open_trace((0, 1, 3))]
    steps = np.array(reference.run_ranks(traces, 4, EXPERTS, knobs, 1000)[0].steps)
    decodes = steps[steps[:, PREFILL_TOKENS] == 0]
    assert decodes[:, ALL_TOKENS].tolist() == ([12, 12] if pads_ranks else [4, 4])
    assert decodes[:, DURATION].tolist() == pytest.approx(
        [(1030 if pads_ranks else 1010) * MS // 1000] * 2, abs=10
    )
    assert steps[0, ALL_TOKENS] == 4  # the prompts' step is no graph
