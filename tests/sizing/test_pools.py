"""Two pools: the fewest prefill instances for the first token, then the fewest decode instances for the rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.api import deployment_of
from tonnage.errors import InputError
from tonnage.results.metrics import summarize
from tonnage.simulator.disaggregated import simulate_disaggregated
from tonnage.sizing.fleet.pools import grows, least, size_pools
from tonnage.sizing.loads.limits import strain
from tonnage.spec.deployment import parse_limit
from tonnage.spec.lengths import Lengths
from tonnage.spec.workload import OpenLoop, Workload

LOAD = Workload(isl=Lengths(mean=4000), osl=Lengths(mean=60), arrivals=OpenLoop(rate=25.0), requests=250)


@given(needed=st.integers(1, 300), most=st.integers(1, 300))
def test_the_least_number_is_found(needed, most):
    assert least(lambda count: count >= needed, most) == (needed if needed <= most else None)


def test_one_instance_less_in_either_pool_breaks_a_limit():
    deployment = deployment_of(model="llama-3.1-8b", gpu="h100-sxm-80gb", precision="fp8", tp=1, engine="vllm")
    slo = (parse_limit("ttft", "p95<=400ms"), parse_limit("tpot", "p95<=8ms"))
    answer = size_pools(deployment, LOAD, slo, seed=0)
    assert answer is not None
    pools, trace = answer.pools, LOAD.trace(0)
    assert strain(answer.summary, slo) <= 1
    assert answer.together is not None
    assert answer.together > pools.prefill_instances + pools.decode_instances
    fewer = replace(pools, prefill_instances=pools.prefill_instances - 1)
    alone = simulate_disaggregated(fewer, replace(trace, osl=np.ones_like(trace.osl)))
    assert grows(alone) or strain(summarize(alone, window="steady"), slo[:1]) > 1
    if pools.decode_instances > 1:
        record = simulate_disaggregated(replace(pools, decode_instances=pools.decode_instances - 1), trace)
        assert grows(record) or strain(summarize(record, window="steady"), slo) > 1


def test_a_limit_on_the_first_token_or_the_answer_is_needed():
    deployment = deployment_of(model="llama-3.1-8b", gpu="h100-sxm-80gb", precision="fp8", tp=1, engine="vllm")
    with pytest.raises(InputError, match="ttft"):
        size_pools(deployment, LOAD, (parse_limit("itl", "p99<=9ms"),), seed=0)


def test_a_limit_that_no_number_meets_has_no_answer():
    deployment = deployment_of(model="llama-3.1-8b", gpu="h100-sxm-80gb", precision="fp8", tp=1, engine="vllm")
    few = replace(LOAD, requests=10)
    assert size_pools(deployment, few, (parse_limit("ttft", "p95<=1ms"),), seed=0) is None
