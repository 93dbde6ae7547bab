"""What closed forms say of a question before anything is simulated."""

from __future__ import annotations

import math

import pytest

from tests.questions import contenders, question
from tonnage.errors import InputError
from tonnage.sizing.estimate import Estimate, estimates
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import MARGIN

SEVERAL = {"gpu": "l40s,h100", "tp": "1,2", "peak_rps": 900}


def test_each_gpu_has_the_deployment_that_needs_the_fewest_of_them() -> None:
    asked = question(**SEVERAL, spare=1)
    expected: dict[str, list[Estimate]] = {}
    for one in contenders(asked):
        trial = one.ready.trial
        # a little more than the simulation finds: the bound is that much too high at most
        rate = one.bound(one.slowdown(asked.confidence)) / MARGIN
        per_system = 8 // trial.deployment.parallelism.gpus
        systems = math.ceil(900 / (rate * per_system)) + 1
        expected.setdefault(trial.deployment.gpu.name, []).append(
            Estimate(
                deployment=trial.identity,
                system=trial.system.name,
                systems=systems,
                systems_exact=pytest.approx(900 / rate / per_system),
                gpus=8 * systems,
                requests_per_second=pytest.approx(rate),
                ttft_ms=pytest.approx(1e3 * one.instance.unloaded_ttft_s()),
                tpot_ms=pytest.approx(1e3 * one.instance.unloaded_tpot_s()),
            )
        )
    found = estimates(asked, Runs())
    assert [one.deployment.gpu for one in found] == ["h100-sxm-80gb", "l40s"]
    assert found[0].gpus < found[1].gpus
    for one in found:
        of_gpu = expected[one.deployment.gpu]
        assert len(of_gpu) == 2
        assert one in of_gpu
        assert one.gpus == min(other.gpus for other in of_gpu)


def test_nothing_is_estimated_where_no_closed_form_speaks_and_bad_questions_are_refused() -> None:
    offline = {"peak_rps": None, "ttft": None, "mode": "offline", "requests": 1e5, "within": "1h"}
    assert estimates(question(**offline), Runs()) == ()
    assert estimates(question(load="closed"), Runs()) == ()
    with pytest.raises(InputError):
        estimates(question(isl=100_000, osl=100_000), Runs())
