"""Settings that no engine has are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulator.kernel.compared import ENGINE, MODEL
from tonnage.errors import InputError
from tonnage.simulator.kernel import run
from tonnage.spec.workload import Lengths, OpenLoop, Workload


@pytest.mark.parametrize("knob", ["max_batch_size", "max_num_tokens", "tokens_per_block"])
def test_impossible_knobs_are_refused(knob):
    trace = Workload(
        isl=Lengths(mean=5), osl=Lengths(mean=5), arrivals=OpenLoop(rate=2), requests=5
    ).trace(0)
    with pytest.raises(InputError, match=knob):
        run(trace, MODEL, replace(ENGINE, **{knob: 0}), 100)
