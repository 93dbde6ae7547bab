import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tonnage import api
from tonnage.simulator.spec import rank_traces
from tonnage.spec.workload import ClosedLoop, Lengths, OpenLoop, Workload


@given(ranks=st.integers(1, 8), clients=st.integers(0, 20), requests=st.integers(1, 60))
def test_every_request_goes_to_one_rank_and_clients_keep_theirs(ranks: int, clients: int, requests: int) -> None:
    arrivals = ClosedLoop(concurrency=clients) if clients else OpenLoop(rate=3.0)
    lengths = Lengths(mean=100, kind="uniform", std=20)
    trace = Workload(isl=lengths, osl=Lengths(mean=5), arrivals=arrivals, requests=requests).trace(3)
    parts = rank_traces(trace, ranks)
    assert sum(len(part) for part in parts) == len(trace)
    assert sorted(np.concatenate([part.isl for part in parts])) == sorted(trace.isl)
    assert len(parts) <= ranks
    assert len({part.seed for part in parts}) == len(parts)
    if clients and requests >= clients:
        assert sum(part.concurrency for part in parts) == clients
    else:
        assert all((part.due_ps[1:] >= part.due_ps[:-1]).all() for part in parts)


def test_ranks_carry_the_load_of_all_of_them() -> None:
    """Eight ranks with eight clients each: every request ends, none waits for another rank, and the rates are of all."""
    what = {"model": "deepseek-v3", "gpu": "h200", "precision": "fp8", "engine": "vllm", "isl": 500, "osl": 50, "requests": 640}
    run = api.simulate(concurrency=64, tp=1, dp=8, ep=8, **what)
    assert len(run.requests) == 640
    assert set(run.requests.instance.tolist()) == set(range(8))
    assert run.to_json()["dp"] == 8
    assert "dp" not in api.simulate(concurrency=8, tp=8, **what).to_json()


def test_speculation_over_ranks_draws_for_each_of_them() -> None:
    what = {"model": "deepseek-v3", "gpu": "h200", "precision": "fp8", "engine": "sglang", "isl": 200, "osl": 100, "requests": 64}
    run = api.simulate(concurrency=8, tp=1, dp=8, ep=8, speculation="mtp k=1 acceptance=0.8", **what)
    ends = [run.requests.last_token_ns[run.requests.instance == rank].tolist() for rank in range(8)]
    assert len({tuple(times) for times in ends}) == 8
    assert run.gain is not None
    assert 1.2 < run.gain < 1.8
