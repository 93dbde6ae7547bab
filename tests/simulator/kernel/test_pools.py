"""Two pools, compiled, give the record of the plain ones, or none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.simulator.two_pools import COLUMNS
from tests.strategies import MS, examples, runs
from tonnage.simulator import reference
from tonnage.simulator.engine import Engine
from tonnage.simulator.kernel.pools import run_pools
from tonnage.simulator.pools import COUNTING, KvLink, simulate_pools
from tonnage.simulator.request import RECEIVING


@settings(examples(0.5), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data())
def test_whole_fleets_give_the_record_of_the_plain_pools_or_none(data):
    """In an open loop; with blocks for all of them they give one, unless the shortest prompt goes
    first, or one is less than a block."""
    first, second = (data.draw(runs(RECEIVING)) for _ in range(2))
    trace = first.trace
    if trace.concurrency:
        due = np.sort(np.random.default_rng(len(trace)).integers(0, 40 * MS, len(trace)))
        trace = replace(trace, due_ps=due, concurrency=0, turnaround_ps=0)
    first = replace(
        first,
        step=replace(first.step, drafting=None),
        kv_blocks=data.draw(st.sampled_from([first.kv_blocks, 40_000])),
    )
    second = replace(second, knobs=replace(second.knobs, chunked_prefill=True))
    link = KvLink(
        bytes_per_token=100,
        bytes_s=data.draw(st.sampled_from([1e3, 3.3e4, 1e6, 1e9])),
        layers=3,
        overlap=data.draw(st.booleans()),
    )
    link = replace(link, block_tokens=first.knobs.tokens_per_block)
    router, numbers = (
        data.draw(st.sampled_from(COUNTING)),
        data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
    )

    def engines(kind):
        return [
            [
                kind(
                    r.step,
                    r.knobs,
                    r.kv_blocks,
                    windows=r.windows,
                    max_context=r.max_context,
                    seed=i,
                )
                for i in range(count)
            ]
            for r, count in zip((first, second), numbers, strict=True)
        ]

    plain = simulate_pools(trace, *engines(reference.Engine), link, router, seed=3)
    machines = ([engine.machine for engine in pool] for pool in engines(Engine))
    whole = run_pools(trace, *machines, link, router, seed=3)
    if whole is None:
        tight = first.kv_blocks < 40_000 or first.knobs.long_prefill_token_threshold
        assert (
            tight
            or first.knobs.queue_order != "fcfs"
            or trace.isl.min() < first.knobs.tokens_per_block
        )
        return
    for name in COLUMNS:
        assert (getattr(plain, name) == getattr(whole, name)).all(), name
