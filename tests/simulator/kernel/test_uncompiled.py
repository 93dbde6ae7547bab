"""The kernel without numba is the reference to the last bit: engines, ranks, fleets and pools.

What takes half a minute to compile is compared here in milliseconds, on small traces in which all
that the kernel knows happens: the first tests for a change of it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deployments import knobs_of
from tests.simulator.driven_engines import engine_of
from tests.simulator.kernel.compared import MODEL, SHAPES, assert_same, instances, same_ranks
from tests.simulator.kernel.hand_worked import trace_of
from tests.simulator.kernel.uncompiled import beside, uncompiled
from tests.simulator.test_engine import same_at_every_cut
from tests.simulator.two_pools import COLUMNS
from tests.strategies import MS, ROOFLINE, SCHEDULERS, Run, examples
from tonnage.perf.step import Drafting
from tonnage.results.requests import COMPLETED, FAILED, REJECTED
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
from tonnage.simulator.kernel import compiler
from tonnage.simulator.kernel.build import COARSE, EDGES
from tonnage.simulator.pools import COUNTING, KvLink, simulate_pools
from tonnage.simulator.request import RECEIVING
from tonnage.simulator.router import ROUTERS
from tonnage.simulator.rules import is_for_reference
from tonnage.spec.deployment import Windows
from tonnage.spec.sessions import ENDLESS, of_rows
from tonnage.spec.workload import Trace


@pytest.fixture(scope="module")
def plain() -> Iterator[Any]:
    with uncompiled() as module:
        yield module


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@examples(0.15)
@given(data=st.data())
def test_uncompiled_kernel_equals_reference(plain, scheduler, kind, data):
    """All three loops and groups of ranks, which take half a minute each to compile."""
    run, traces, ranks = data.draw(instances(kind, scheduler))
    for leaps in (False, True):
        same_ranks(plain.run_ranks, run, traces, ranks, leaps=leaps)


TIGHT = [(0, 4, 40, 1), (1, 9, 30, 0), (2, 3, 50, 2), (3, 6, 20, 0), (30, 5, 40, 1), (31, 4, 9, 2)]
"""Due times in milliseconds, prompts, outputs and classes, for which 60 blocks of a token are few."""


BUSY = replace(
    MODEL, stream_s=0.0041, stream_step_s=0.00087654321, enter_s=0.0033, enter_token_s=1e-4
)
"""A front end that streams for longer than three quarters of most steps."""

NO_LIMITS = {"windows": Windows(blocks=0, tokens=0), "window_ps": -1, "max_context": 0}


@pytest.mark.parametrize("order", ["fcfs", "priority", "deadline"])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_uncompiled_kernel_equals_reference_in_little_memory(plain, scheduler, order):
    """Everyone decodes for long, and those in the midst of all lose their blocks again and again."""
    trace = trace_of(*[row[:3] for row in TIGHT])
    classes = np.array([row[3] for row in TIGHT])
    trace = replace(trace, priority=classes, ttft_ps=np.where(classes == 1, -1, classes * 40 * MS))
    later = replace(trace, due_ps=trace.due_ps + 47 * MS)
    knobs = knobs_of(6, 64, block=1, scheduler=scheduler, queue_order=order, rank_wait_steps=3)
    guesses = Drafting(tokens=2, acceptance=0.6, passes=1, coefficients=ROOFLINE * 0.1)
    sheds = replace(knobs, shed=True)
    drafts = scheduler != "static" and not is_for_reference(sheds, drafted=True, shares=False)
    guessing = replace(MODEL, drafting=guesses) if drafts else MODEL
    for blocks, engine, step in ((60, knobs, MODEL), (75, knobs, BUSY), (60, sheds, guessing)):
        run = Run(trace=trace, step=step, knobs=engine, kv_blocks=blocks, **NO_LIMITS)
        for leaps in (False, True):
            same_ranks(plain.run_ranks, run, [trace], 1, leaps=leaps)
            same_ranks(plain.run_ranks, run, [trace, later, later], 3, leaps=leaps)


@pytest.mark.parametrize("block", [1, 4])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_uncompiled_kernel_equals_reference_with_common_prompts_in_little_memory(
    plain, scheduler, block
):
    """Prompts that begin alike, in chunks, and whose blocks are wanted by those that decode."""
    rows = [
        (0, 14, 30),
        (1, 19, 25),
        (2, 13, 40),
        (3, 16, 20),
        (30, 15, 30),
        (31, 24, 9),
        (90, 14, 9),
    ]
    beginnings = [(7, 12), (7, 12), (8, 9), (7, 12), (8, 9), (7, 12), (8, 9)]
    contents = of_rows([[cut, (100 + n, ENDLESS)] for n, cut in enumerate(beginnings)])
    trace = replace(trace_of(*rows), contents=contents)
    for tokens, blocks in ((64, 76), (9, 60), (64, 200)):
        knobs = knobs_of(
            6,
            tokens,
            block=block,
            scheduler=scheduler,
            chunked_prefill=tokens < 24,
            prefix_caching=True,
        )
        run = Run(trace=trace, step=MODEL, knobs=knobs, kv_blocks=-(-blocks // block), **NO_LIMITS)
        for leaps in (False, True):
            same_ranks(plain.run_ranks, run, [trace], 1, leaps=leaps)


def test_each_gap_is_in_the_bin_that_its_edges_say(plain):
    """At every edge, and a picosecond before it, which no float of 53 bits tells apart at the end."""
    decoding = sys.modules[f"{plain.__package__}.decoding"]
    tallies = SimpleNamespace(edges=EDGES, coarse=COARSE)
    for place, edge in enumerate(EDGES[:-1].tolist()):
        assert decoding.bin_of(tallies, edge) == place
        if place:
            assert decoding.bin_of(tallies, edge - 1) == place - 1


NOT_PARTS = {"asked", "choose", "drive", "write", "enter", "drive_fleet"}
"""Functions without types that numba takes by other ways than a decorator."""


@pytest.mark.parametrize("file", sorted(Path(compiler.__file__).parent.glob("*.py")), ids=str)
def test_what_the_loops_call_is_compiled_with_them(file: Path) -> None:
    """A function of the kernel without types is for compiled code alone, and says so; one that does
    not is found out by numba only where a loop is compiled that calls it."""
    if file.name in ("compiler.py", "quick_compiler.py"):
        return
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name not in NOT_PARTS:
            arguments = node.args.args
            typed = node.returns is not None or not arguments
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            compiled = decorators in (
                ["part()"],
                ["called()"],
                ["jitable()"],
                ["njit(inline='always')"],
            )
            assert compiled != typed, node.name


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


GUESSES = Drafting(tokens=2, acceptance=0.6, passes=1, coefficients=ROOFLINE * 0.1)


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


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("router", COUNTING)
def test_uncompiled_pools_equal_the_reference(plain, router, overlap):
    """Pools of engines of different kinds, as fleets and driven from event to event."""
    trace = mixed_trace()
    trace = replace(trace, isl=np.maximum(trace.isl, 4))
    link = KvLink(bytes_per_token=100, bytes_s=1e6, layers=3, overlap=overlap, block_tokens=2)
    kinds = [kind for kind in engines_of_all_kinds(trace) if kind.knobs.scheduler in RECEIVING]
    turn = COUNTING.index(router) + overlap
    first, second = (
        replace(kinds[(turn + further) % len(kinds)], kv_blocks=5000) for further in (0, 1)
    )
    first = replace(first, step=replace(first.step, drafting=None))
    second = replace(second, knobs=replace(second.knobs, chunked_prefill=True), kv_blocks=60)

    def engines(kind: Any) -> list[list[Any]]:
        return [[engine_of(kind, run) for _ in range(2)] for run in (first, second)]

    engine = beside(plain, "engine").Engine
    expected = simulate_pools(trace, *engines(reference.Engine), link, router, seed=3)
    driven = simulate_pools(trace, *engines(engine), link, router, seed=3)
    machines = ([member.machine for member in pool] for pool in engines(engine))
    whole = beside(plain, "pools").run_pools(trace, *machines, link, router, seed=3)
    for record in (driven, whole):
        for name in COLUMNS:
            np.testing.assert_array_equal(
                getattr(record, name), getattr(expected, name), err_msg=name
            )
