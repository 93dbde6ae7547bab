"""What a simulated run says of its schedule."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tests.deployments import knobs_of
from tonnage.simulator.simulated_run import SimulatedRun
from tonnage.spec.workload import ClosedLoop, OpenLoop


@pytest.mark.parametrize(
    ("firsts", "alternates"),
    [
        ([5, 6, 6], True),
        ([5, 6, 6, 7, 8, 8], True),
        ([5, 6, 6, 7, 7], False),  # a third are alone
        ([-1, 5, 6, 6, 7, 7], False),  # one that had no token is no batch
        ([5, 6, 7], False),  # no batch has two
        ([5, 5, 6, 6], False),
        ([], False),
    ],
)
def test_static_batches_alternate_where_more_than_a_third_have_one_request(
    firsts: list[int], alternates: bool
) -> None:
    def says(scheduler: str, arrivals: object) -> bool:
        return SimulatedRun._alternates(
            SimpleNamespace(  # type: ignore[arg-type]
                workload=SimpleNamespace(arrivals=arrivals),
                deployment=SimpleNamespace(knobs=knobs_of(8, 64, scheduler=scheduler)),
                requests=SimpleNamespace(first_token_ns=np.array(firsts, np.int64)),
            )
        )

    assert says("static", ClosedLoop(concurrency=3)) is alternates
    assert not says("vllm", ClosedLoop(concurrency=3))
    assert not says("static", OpenLoop(rate=3.0))
