"""The kernel without numba is the reference to the last bit: engines, ranks, fleets and pools.

What takes half a minute to compile is compared here in milliseconds, on small traces in which all
that the kernel knows happens: the first tests for a change of it.
"""

from __future__ import annotations

import ast
import gc
import heapq
import sys
from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate, pairwise, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deployments import knobs_of
from tests.simulator.kernel.compared import MODEL, SHAPES, instances, same_ranks
from tests.simulator.kernel.hand_worked import trace_of
from tests.simulator.kernel.small_runs import (
    GUESSES,
    KINDS,
    NO_LIMITS,
    TICKS,
    half_ms,
    small_run,
)
from tests.simulator.kernel.uncompiled import beside
from tests.strategies import MS, ROOFLINE, SCHEDULERS, Run, coefficient_array
from tonnage.errors import InputError
from tonnage.perf.step import Drafting
from tonnage.results.requests import COMPLETED, REJECTED
from tonnage.simulator.kernel import compiler
from tonnage.simulator.kernel.build import COARSE, EDGES
from tonnage.simulator.rules import is_for_reference
from tonnage.simulator.spec import EngineSpec
from tonnage.simulator.tiers import Tier
from tonnage.spec.deployment import Windows
from tonnage.spec.sessions import ENDLESS, of_rows
from tonnage.spec.workload import Trace

TIGHT = [(0, 4, 40, 1), (1, 9, 30, 0), (2, 3, 50, 2), (3, 6, 20, 0), (30, 5, 40, 1), (31, 4, 9, 2)]
"""Due times in milliseconds, prompts, outputs and classes, for which 60 blocks of a token are few."""


BUSY = replace(
    MODEL, stream_s=0.0041, stream_step_s=0.00087654321, enter_s=0.0033, enter_token_s=1e-4
)
"""A front end that streams for longer than three quarters of most steps."""


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


PIECES = [
    (0, 14, 30, 1),
    (1, 19, 25, 0),
    (2, 23, 40, 2),
    (3, 16, 20, 0),
    (4, 25, 12, 1),
    (30, 15, 30, 0),
    (31, 24, 9, 2),
]
"""As ``TIGHT``, with prompts that take several steps of 9 tokens."""


@pytest.mark.parametrize("order", ["fcfs", "priority", "deadline"])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_uncompiled_kernel_equals_reference_where_prompts_in_pieces_lose_their_blocks(
    plain, scheduler, order
):
    """Several prompts are computed at a time, 3 tokens of each, or one of them to its end; by class,
    and with a beginning in common."""
    trace = trace_of(*[row[:3] for row in PIECES])
    classes = np.array([row[3] for row in PIECES])
    pieces = [[(7 + n % 2, 9), (100 + n, ENDLESS)] for n in range(len(PIECES))]
    by_class = replace(trace, priority=classes, ttft_ps=np.where(classes == 1, -1, 900 * MS))
    for blocks, longest, tokens in ((50, 3, 9), (62, 3, 12), (56, 0, 9), (80, 2, 6)):
        knobs = knobs_of(
            6,
            tokens,
            block=1 + (blocks == 80),
            scheduler=scheduler,
            chunked_prefill=True,
            queue_order=order,
            shed=order == "priority" and blocks == 62,
            long_prefill_token_threshold=longest,
            prefix_caching=True,
        )
        shared = replace(trace, contents=of_rows(pieces))
        row = by_class if order != "fcfs" else shared
        kv_blocks = blocks // knobs.tokens_per_block
        limits = NO_LIMITS | ({"windows": Windows(blocks=2, tokens=20)} if blocks == 80 else {})
        run = Run(trace=row, step=MODEL, knobs=knobs, kv_blocks=kv_blocks, **limits)
        same_ranks(plain.run_ranks, run, [row], 1, leaps=blocks != 50)


@pytest.mark.parametrize(
    ("blocks", "rows"),
    [
        (
            60,
            [(6, 5, 30), (9, 1, 29), (27, 3, 8), (33, 6, 34), (44, 5, 6), (45, 11, 5), (50, 5, 28)],
        ),
        (
            60,
            [
                (0, 5, 26),
                (9, 2, 36),
                (12, 1, 32),
                (13, 7, 9),
                (30, 3, 13),
                (32, 3, 14),
                (51, 11, 8),
            ],
        ),
        (
            75,
            [
                (1, 1, 7),
                (1, 6, 18),
                (26, 8, 31),
                (33, 1, 29),
                (41, 11, 35),
                (43, 8, 34),
                (56, 6, 36),
            ],
        ),
    ],
)
def test_sglang_retracts_who_has_the_fewest_tokens_though_others_came_later(plain, blocks, rows):
    """One that was retracted before has more of them than who entered meanwhile."""
    trace, knobs = trace_of(*rows), knobs_of(6, 64, block=1, scheduler="sglang")
    knobs = replace(knobs, chunked_prefill=True)
    run = Run(trace=trace, step=MODEL, knobs=knobs, kv_blocks=blocks, **NO_LIMITS)
    same_ranks(plain.run_ranks, run, [trace], 1, leaps=True)


TIERS = {
    "one": [(9, 0, False)],
    "two": [(4, 5_555_555_555, True), (20, 0, False)],
    "none of the first": [(0, 0, False), (9, 1_000_000, True)],
}


@pytest.mark.parametrize("tiers", TIERS)
@pytest.mark.parametrize("scheduler", ["vllm", "sglang", "tensorrt-llm", "one-prefill"])
def test_uncompiled_kernel_equals_reference_where_blocks_come_back_from_tiers(
    plain, scheduler, tiers
):
    """Four beginnings of five blocks each, or of half a block more, of which the cache holds two at a
    time."""
    rows = [(70 * n + 3 * (n % 3), 22 + n % 3, 4 + n % 2) for n in range(14)]
    order = [0, 1, 2, 0, 3, 1, 0, 2, 2, 3, 1, 0, 3, 2]
    cut = 22 if tiers == "two" else 20
    pieces = [[(beginning, cut), (100 + n, ENDLESS)] for n, beginning in enumerate(order)]
    trace = replace(trace_of(*rows), contents=of_rows(pieces))
    knobs = knobs_of(2, 64, block=4, scheduler=scheduler, prefix_caching=True)
    run = Run(
        trace=trace,
        step=MODEL,
        knobs=knobs,
        kv_blocks=14,
        tiers=tuple(
            Tier(blocks=blocks, block_ps=77_777_777, latency_ps=latency, overlaps=overlaps)
            for blocks, latency, overlaps in TIERS[tiers]
        ),
        **NO_LIMITS,
    )
    same_ranks(plain.run_ranks, run, [trace], 1, leaps=True)
    [record], _ = plain.run_ranks([trace], 1, MODEL, knobs, 14, tiers=run.tiers)
    [without], _ = plain.run_ranks([trace], 1, MODEL, knobs, 14)
    assert record.cached_tokens.sum() > without.cached_tokens.sum()


# Small runs of every kind, and leaps.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_uncompiled_kernel_equals_reference_on_small_runs(plain, scheduler, kind):
    for number in range(5):
        run, traces, ranks = small_run(scheduler, kind, number)
        for leaps in (False, True):
            same_ranks(plain.run_ranks, run, traces, ranks, leaps=leaps)


def test_so_many_steps_are_within_a_time(plain):
    """Also where floats, which guess at it, are a step too high or too low."""
    within = beside(plain, "loop").steps_within
    firsts = (1, 7, 5 * 10**9, 5_719_006_086_290, 29_957_094_820_335, 81_218_670_716_780)
    for first, longer in product(firsts, (0, 3, 8_468_804)):
        ends = list(accumulate(first + longer * step for step in range(4100)))
        for steps in (1, 2, 154, 1473, 1590, 1666, 1809, 1986, 4095):
            for lasts in (ends[steps - 1] - 1, ends[steps - 1], ends[steps - 1] + 1):
                expected = bisect_right(ends, lasts)
                assert within(first, longer, lasts, 4096) == min(expected, 4096)
                for limit in (1, steps - 1, steps, steps + 1):
                    assert within(first, longer, lasts, limit) == min(expected, limit)


LONE, PAIR = half_ms((0, 10, 2000)), half_ms((0, 10, 2000), (500.5, 10, 2000))
SHORT = half_ms((0, 10, 60))


@pytest.fixture
def taken(plain, monkeypatch) -> list[int]:
    """How many steps are ended at a time, of an engine and of ranks."""
    steps_ended: list[int] = []

    def noted(ends: Any) -> Any:
        return lambda m, steps, began: (steps_ended.append(steps), ends(m, steps, began))

    files = {"end_ranks": beside(plain, "lockstep"), "end_steps": beside(plain, "loop")}
    for name, file in files.items():
        monkeypatch.setattr(file, name, noted(getattr(file, name)))
    return steps_ended


@pytest.mark.parametrize(
    ("trace", "settings", "leaps"),
    [
        (LONE, {}, [1, 1999]),
        (half_ms((0, 10, 6000)), {}, [1, 4096, 1903]),
        # heard at the end of the step in which it comes; then both decode until the first ends
        (PAIR, {}, [1, 500, 1, 1498, 501]),
        (PAIR, {"overlap_schedule": True}, [1, 501, 1, 1497, 502]),
        # looked for after every 7th step of decodes alone
        (PAIR, {"receive_interval": 7}, [1, 504, 1, 1494, 505]),
        # a prompt alone, whose step gives the other no token
        (PAIR, {"scheduler": "sglang"}, [1, 500, 1, 1499, 500]),
        # a batch that ends before the next begins; the first look at who has come changes nothing
        (PAIR, {"scheduler": "static"}, [1, 500, 1499, 1, 1999]),
        (PAIR, {"scheduler": "tensorrt-llm"}, [1, 500, 1, 1498, 501]),
        (PAIR, {"scheduler": "one-prefill"}, [1, 500, 1, 1498, 501]),
        (
            PAIR,
            {"scheduler": "max-utilization", "chunked_prefill": True},
            [1, 500, 1, 1498, 501],
        ),
        # a front end that takes longer than a step, or keeps who enters out for longer than it may
        (SHORT, {"stream_s": 0.0004, "stream_step_s": 0.0005}, [1, 59]),
        (SHORT, {"stream_s": 0.0006, "stream_step_s": 0.0005}, [1] * 60),
        (SHORT, {"enter_s": 0.0001, "stream_s": 0.0007}, [1, 59]),
        (SHORT, {"enter_s": 0.0001, "stream_s": 0.0008}, [1] * 60),
    ],
)
def test_steps_that_are_alike_are_taken_at_once(plain, taken, trace, settings, leaps):
    """By hand, of steps of 1 ms."""
    timing = {name: seconds for name, seconds in settings.items() if name.endswith("_s")}
    knobs = {name: knob for name, knob in settings.items() if name not in timing}
    plain.run(trace, replace(TICKS, **timing), knobs_of(4, 512, **knobs), 500)
    assert taken == leaps


def test_leaps_end_where_blocks_or_the_window_do(plain, taken):
    """Of 64 blocks each has 32, for 512 tokens; the last one loses its 513 tokens and computes them
    again, 512 in a step, when the other has ended."""
    knobs = knobs_of(4, 512)
    plain.run(trace_of((0, 16, 500), (0, 16, 500)), TICKS, knobs, 64)
    assert taken == [1, 496, 1, 2, 1, 1, 2]
    taken.clear()
    plain.run(LONE, TICKS, knobs, 500, window_ps=2001 * MS // 2)
    assert taken == [1, 999]


def test_ranks_leap_together(plain, taken):
    """The second rank has a request at 500.5 ms, which is heard at the end of a step."""
    traces = [LONE, half_ms((500.5, 10, 2000))]
    plain.run_ranks(traces, 2, TICKS, knobs_of(4, 512), 500)
    assert taken == [1, 500, 1, 1498, 501]


@pytest.mark.parametrize("isl", [70, 71, 300])
@pytest.mark.parametrize("order", [1, -1])
def test_a_leap_ends_where_another_rank_becomes_the_slowest(plain, taken, order, isl):
    """One long context in a rank, and four short ones in another, which grow four times as fast: they
    are as long at the 10th token of those that begin with 70 tokens."""
    traces = [trace_of((0, isl, 200)), trace_of(*[(0, 10, 200)] * 4)][::order]
    step = replace(TICKS, coefficients=coefficient_array(host_step=0.001, context=1e-6, norm=1.0))
    run = Run(trace=traces[0], step=step, knobs=knobs_of(4, 512), kv_blocks=500, **NO_LIMITS)
    same_ranks(plain.run_ranks, run, traces, 2, leaps=True)
    # of two that take as long the first one counts as the slowest
    ends = (isl - 40) // 3 - (order < 0 and (isl - 40) % 3 == 0)
    assert taken == [1, ends, 199 - ends]


@pytest.mark.parametrize("wait", [1, 2, 4])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_prompt_that_is_cut_waits_for_those_of_other_ranks_between_its_chunks(
    plain, scheduler, wait
):
    """While all ranks decode, of which one has a prompt of 40 tokens for steps of 16, and then
    another one that it could compute at once."""
    traces = [trace_of((0, 5, 60), (5, 40, 5), (70, 9, 4)), trace_of((0, 5, 70), (30, 3, 9))]
    knobs = knobs_of(
        4, 16, block=4, scheduler=scheduler, chunked_prefill=True, rank_wait_steps=wait
    )
    run = Run(trace=traces[0], step=MODEL, knobs=knobs, kv_blocks=60, **NO_LIMITS)
    for leaps in (False, True):
        same_ranks(plain.run_ranks, run, traces, 2, leaps=leaps)


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


# Whole instances, and what is refused.


def test_a_record_of_an_uncompiled_instance_is_that_of_its_ranks(plain):
    """Of one rank its record as it is, where one that was rejected has no instance; of two in the
    order in which requests came, and their steps in that order too."""
    runs = plain.run_ranks([LONE, PAIR], 2, TICKS, knobs_of(4, 512), 200, most_steps=5000)
    spec = EngineSpec(step=TICKS, knobs=knobs_of(4, 512), blocks=200, ranks=2)
    record, steps = plain.run_instance(spec, [LONE, PAIR], most_steps=5000)
    assert record.instance.tolist() == [0, 1, 1]
    first, second = runs[0]
    assert record.last_token_ns.tolist() == [*first.last_token_ns, *second.last_token_ns]
    np.testing.assert_array_equal(steps.last_step, runs[1].last_step)
    late = replace(LONE, due_ps=LONE.due_ps + 400 * MS)
    record, steps = plain.run_instance(spec, [late, PAIR], most_steps=5000)
    assert record.due_ns.tolist() == [0, 400_000_000, 500_500_000]
    assert record.instance.tolist() == [1, 0, 1]
    assert steps.first_step.tolist() == [0, 400, 501]
    for _, steps in (
        plain.run_instance(spec, [late, PAIR]),
        plain.run_ranks([late, PAIR], 2, TICKS, knobs_of(4, 512), 200),
    ):
        assert steps.first_step.tolist() == steps.last_step.tolist() == steps.steps.tolist() == []
    spec = replace(spec, ranks=1, max_context=500)
    record, steps = plain.run_instance(
        spec, [half_ms((0, 10, 60), (1, 10, 600))], window_ps=30 * MS
    )
    assert record.instance.tolist() == [0, -1]
    assert record.osl.tolist() == [30, 0]
    assert (record.window_ns, steps.count) == (30_000_000, 30)


@pytest.mark.parametrize("loop", [{}, {"shares": True}, {"ranks": True}, {"grouped": True}])
def test_a_run_that_warms_up_runs_and_leaves_the_collector_as_it_was(plain, loop, monkeypatch):
    records, run_ranks = [], plain.run_ranks
    monkeypatch.setattr(
        plain, "run_ranks", lambda *values: records.append(run_ranks(*values)) or gc.isenabled()
    )
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        plain.warm_up(**loop)
        assert gc.isenabled() is enabled
    gc.enable()
    for [record], steps in records:
        assert record.status.tolist() == [COMPLETED]
        assert steps.count == 1


def two_requests(plain: Any, *, blocks: int = 40, **changed: Any) -> list[int]:
    """What becomes of two requests of a token each where this much is changed."""
    columns = {"isl": [1, 1], "osl": [1, 1], "due_ps": [0, 0]}
    columns |= {name: changed[name] for name in columns.keys() & changed.keys()}
    trace = Trace(
        **{name: np.array(column) for name, column in columns.items()},
        concurrency=changed.get("concurrency", 0),
        turnaround_ps=0,
    )
    step, knobs = TICKS, replace(knobs_of(4, 512), **changed.get("knobs", {}))
    if "contents" in changed:
        pieces = [[(piece, ENDLESS)] for piece in changed["contents"]]
        trace = replace(trace, contents=of_rows(pieces))
    if "drafting" in changed:
        step = replace(step, drafting=replace(GUESSES, tokens=changed["drafting"]))
    return plain.run(trace, step, knobs, blocks).status.tolist()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"isl": [1, 0]}, "one token or more"),
        ({"osl": [0, 1]}, "one token or more"),
        ({"due_ps": [5, 4]}, "in order"),
        ({"due_ps": [-1, 4]}, "in order"),
        ({"knobs": {"max_batch_size": 0}}, "max_batch_size"),
        ({"knobs": {"max_num_tokens": 0}}, "max_num_tokens"),
        ({"knobs": {"tokens_per_block": 0}}, "tokens_per_block"),
        ({"knobs": {"receive_interval": 0}}, "receive_interval"),
        ({"blocks": -1}, "1 or more"),
        ({"drafting": 3, "knobs": {"long_prefill_token_threshold": 1}}, "leave one of the two out"),
        ({"drafting": 3, "knobs": {"scheduler": "static"}}, "static batching"),
        ({"drafting": 0}, "k=0"),
        ({"drafting": 512}, "steps of 512 tokens"),
        ({"drafting": 3, "knobs": {"queue_order": "priority"}}, "readable simulator"),
        ({"contents": [0, 0], "knobs": {"shed": True}}, "readable simulator"),
        ({"contents": [0, 1 << 39]}, "more than can be simulated"),
        ({"contents": [0, 0], "blocks": (1 << 30) + 1}, "more than can be simulated"),
        ({"contents": [0, 0], "osl": [1, (16 << 23) - 1]}, "more than can be simulated"),
    ],
)
def test_what_no_engine_could_do_is_refused(plain, changed, words):
    with pytest.raises(InputError, match=words):
        two_requests(plain, **changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"due_ps": [0, 0]},
        {"due_ps": [-1, -1], "concurrency": 1},
        {"isl": [1, 1], "osl": [1, 1]},
        {"drafting": 511},
        {"drafting": 1},
        {"contents": [0, (1 << 39) - 1]},
        {"knobs": {"max_batch_size": 1, "max_num_tokens": 1, "tokens_per_block": 1}},
    ],
)
def test_the_least_and_the_most_that_an_engine_can_do(plain, changed):
    assert two_requests(plain, **changed) == [COMPLETED] * 2
    assert two_requests(plain, **changed, blocks=0) == [REJECTED] * 2


# What the kernel keeps in arrays, beside Python's own.


def test_names_stand_for_the_blocks_that_a_dictionary_says(plain):
    """In a table of 32 seats, three quarters full: names move up where others are forgotten."""
    blocks, rng = beside(plain, "blocks"), np.random.default_rng(1)
    c = SimpleNamespace(
        names=np.full(32, blocks.EMPTY),
        blocks=np.zeros(32, np.int32),
        note=SimpleNamespace(shift=62),
    )
    names = [
        blocks.name_of(piece, place, begins)
        for piece, place, begins in product((3, 1 << 38), (0, 1, 7, 8, 9, 20, 21), (0, 1))
    ]
    assert len(set(names)) == len(names)
    expected: dict[int, int] = {}
    with np.errstate(over="ignore"):
        for block in range(300):
            name = names[rng.integers(len(names))]
            if name in expected and rng.integers(2):
                blocks.drop(c, name)
                del expected[name]
            elif name in expected or len(expected) < 24:
                blocks.put(c, name, block)
                expected[name] = block
            for other in names:
                assert blocks.named(c, other) == expected.get(other, blocks.EMPTY)
            assert (c.names != blocks.EMPTY).sum() == len(expected)


def test_the_blocks_of_a_ring_are_in_the_order_of_a_list(plain):
    blocks, rng = beside(plain, "blocks"), np.random.default_rng(2)
    before, after = beside(plain, "build")._rings(np.array([6, 9]))
    c = SimpleNamespace(before=before, after=after, name=np.zeros(9), first=np.array([6, 9]))
    rings = {9: [0, 1, 2, 3, 4, 5], 10: [6, 7, 8]}
    for _ in range(60):
        for entry, ring in rings.items():
            block = ring.pop(int(rng.integers(len(ring))))
            place = int(rng.integers(len(ring) + 1))
            blocks.unlink(c, block)
            blocks.link(c, ring[place - 1] if place else entry, block)
            ring.insert(place, block)
            for here, following in pairwise([entry, *ring, entry]):
                assert (after[here], before[following]) == (following, here)
    c.first = np.array([3, 5, 9])
    assert [blocks.ring_of(c, block) for block in (3, 4, 5, 8)] == [10, 10, 11, 11]


def test_who_is_sent_next_is_the_first_of_a_heap(plain):
    """Of two sent at one instant the lower row; and the front end knows when the first arrives."""
    sessions, rng = beside(plain, "sessions"), np.random.default_rng(3)
    sent = rng.integers(0, 9, 40)
    m = SimpleNamespace(
        cache=SimpleNamespace(at=np.zeros(41, np.int64), row=np.zeros(41, np.int64)),
        rows=SimpleNamespace(sent=sent, isl=np.ones(40, np.int64)),
        state=SimpleNamespace(coming=0, entered=0, next_arrival=-1),
        cfg=SimpleNamespace(frontend=100, enter=0, enter_token=0),
    )
    heap: list[tuple[int, int]] = []
    for row in rng.permutation(40).tolist():
        heapq.heappush(heap, (int(sent[row]), row))
        sessions.push(m, row)
        m.state.coming += 1
        assert m.state.next_arrival == heap[0][0] + 100
        if len(heap) > 1 and rng.integers(2):
            assert m.cache.row[0] == heapq.heappop(heap)[1]
            m.state.coming -= 1
            assert sessions.pop(m) == heap[0][1]
    while len(heap) > 1:
        heapq.heappop(heap)
        m.state.coming -= 1
        assert sessions.pop(m) == heap[0][1]


def test_what_is_on_its_way_to_clients_comes_in_the_order_of_time(plain):
    members, rng = beside(plain, "members"), np.random.default_rng(4)
    watch = SimpleNamespace(
        late=np.full((50, 4), 7),
        under_way=np.zeros(1, np.int64),
        requests=np.zeros(3, np.int64),
        tokens=np.zeros(3, np.int64),
    )
    left: list[tuple[int, int, int, int]] = []
    requests, tokens = np.zeros(3, np.int64), np.zeros(3, np.int64)
    for now in range(50):
        entry = (now + int(rng.integers(1, 9)), now % 3, int(rng.integers(3)), int(rng.integers(9)))
        members.push(watch, *entry)
        left.append(entry)
        if now % 3 == 2:
            members.deliver(watch, now)
            for _, place, ended, returned in (entry for entry in left if entry[0] <= now):
                requests[place] -= ended
                tokens[place] -= returned
            left = [entry for entry in left if entry[0] > now]
        assert watch.requests.tolist() == requests.tolist()
        assert watch.tokens.tolist() == tokens.tolist()
        assert watch.under_way[0] == len(left)
        assert watch.late[0, 0] == min(left)[0]


@pytest.mark.parametrize("engines", [2, 4, 8])
def test_the_engine_of_the_earliest_event_is_the_first_of_the_earliest(plain, engines):
    members, rng = beside(plain, "members"), np.random.default_rng(5)
    f = SimpleNamespace(events=np.full(2 * engines, 99))
    instants = [99] * engines
    for _ in range(60):
        place, at = int(rng.integers(engines)), int(rng.integers(20))
        members.put_event(f, place, at)
        instants[place] = at
        assert f.events[1] == min(instants)
        assert members.first_engine(f) == instants.index(min(instants))


def test_buckets_of_output_positions_by_hand(plain):
    decoding = beside(plain, "decoding")
    positions = (1, 2, 3, 4, 7, 8, 2**23 - 1, 2**23, 2**24, 2**30)
    assert [decoding.bucket_of(position) for position in positions] == [
        *(0, 1, 1, 2, 2, 3, 22),
        *(23, 23, 23),
    ]
    # 2 to the power of the next bucket, after the round before the first token; the last is left never
    assert [decoding.crossing(5, bucket) for bucket in (0, 1, 3, 22)] == [7, 9, 21, 5 + 2**23]
    assert decoding.crossing(5, 23) == 1 << 62


def test_a_long_answer_is_in_every_bucket_that_it_goes_through(plain):
    """5,000 tokens, and 3,000 of another that comes later."""
    trace, knobs = trace_of((0, 3, 5000), (40, 3, 3000)), knobs_of(4, 512)
    run = Run(trace=trace, step=MODEL, knobs=knobs, kv_blocks=600, **NO_LIMITS)
    same_ranks(plain.run_ranks, run, [trace], 1, leaps=True)


# Whatever hypothesis draws.


@pytest.mark.accuracy
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@given(data=st.data())
def test_uncompiled_kernel_equals_reference(run_uncompiled, scheduler, kind, data):
    """All three loops and groups of ranks, which take half a minute each to compile."""
    run, traces, ranks = data.draw(instances(kind, scheduler))
    for leaps in (False, True):
        same_ranks(run_uncompiled.run_ranks, run, traces, ranks, leaps=leaps)
