"""Static batching, compiled, beside SimPy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import simpy

from tests.simulator.queues import ONE_AT_A_TIME, PLENTY
from tests.strategies import coefficient_array
from tonnage.perf.step import StepModel
from tonnage.simulator.kernel import run
from tonnage.spec.workload import Lengths, OpenLoop, Workload


def simpy_bulk_server(
    due: np.ndarray, slots: int, first_ps: int, rest_ps: int, lengths: np.ndarray
) -> np.ndarray:
    """End of each job at a server that takes up to ``slots`` at once and keeps them until the
    longest has ended."""
    env = simpy.Environment()
    queue = simpy.Store(env)
    ends = np.zeros(len(due), np.int64)

    def arrivals() -> Iterator[simpy.Event]:
        for i, moment in enumerate(due):
            yield env.timeout(int(moment) - env.now)
            yield queue.put(i)

    def server() -> Iterator[simpy.Event]:
        while True:
            batch = [(yield queue.get())]
            while queue.items and len(batch) < slots:
                batch.append((yield queue.get()))
            for i in batch:
                ends[i] = env.now + first_ps + (lengths[i] - 1) * rest_ps
            yield env.timeout(first_ps + (int(lengths[batch].max()) - 1) * rest_ps)

    env.process(arrivals())
    env.process(server())
    env.run()
    return ends


def test_simpy_serves_static_batches_to_the_same_nanosecond() -> None:
    step = StepModel(
        coefficients=coefficient_array(host_step=0.004, host_prefill=0.007, norm=1.0),
        frontend_s=0.0,
    )
    trace = Workload(
        isl=Lengths(mean=100),
        osl=Lengths(kind="normal", mean=20, std=9),
        arrivals=OpenLoop(rate=70),
        requests=2_000,
    ).trace(3)
    requests = run(
        trace, step, replace(ONE_AT_A_TIME, scheduler="static", max_batch_size=8), PLENTY
    )
    ends = simpy_bulk_server(trace.due_ps, 8, 11_000_000_000, 4_000_000_000, trace.osl)
    np.testing.assert_array_equal(requests.last_token_ns, ends // 1000)
