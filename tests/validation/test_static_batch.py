import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import step_models
from tonnage.evidence.predict import static_latencies_s
from tonnage.perf.step import StepModel
from tonnage.results.requests import COMPLETED
from tonnage.simulator.kernel import run
from tonnage.spec.deployment import EngineKnobs
from tonnage.spec.workload import Trace


@settings(max_examples=60, deadline=None)
@given(step_models(), st.integers(1, 40), st.integers(1, 500), st.integers(1, 60))
def test_the_closed_form_of_a_static_batch_is_the_simulator(step: StepModel, batch: int, isl: int, osl: int) -> None:
    knobs = EngineKnobs(
        scheduler="static",
        max_batch_size=batch,
        max_num_tokens=batch * isl,
        chunked_prefill=False,
        tokens_per_block=64,
        kv_rule="free_gpu_memory_fraction",
        kv_fraction=0.9,
    )
    equal = np.full(batch, isl), np.full(batch, osl)
    trace = Trace(due_ps=np.zeros(batch, np.int64), isl=equal[0], osl=equal[1], concurrency=0, turnaround_ps=0)
    record = run(trace, step.in_process, knobs, 10**6)
    ttft, e2e = static_latencies_s(step, batch, isl, osl)
    assert set(record.status) == {COMPLETED}
    assert np.abs(record.first_token_ns / 1e9 - ttft).max() <= 1.001e-9
    assert np.abs(record.last_token_ns / 1e9 - e2e).max() <= 1.001e-9
