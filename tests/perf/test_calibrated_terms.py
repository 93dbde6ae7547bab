from dataclasses import replace

import pytest

from tonnage.api import deployment_of
from tonnage.perf import step_terms as at
from tonnage.perf.ranges import marks
from tonnage.perf.terms import client_turnaround_s, step_model
from tonnage.perf.terms_file import ACTS_ON, OF_THE_GPU, overlaid, shipped
from tonnage.spec.calibration import MULTIPLIERS, Calibration
from tonnage.spec.deployment import Deployment

NIM = deployment_of(model="llama-3-8b", gpu="h100-sxm-80gb", precision="fp16", tp=2, engine="nim-2024")


def calibrated(deployment: Deployment = NIM, gpu: str = "h100-sxm-80gb", **multipliers: float) -> Deployment:
    found = Calibration(preset="nim-2024", gpu=gpu, multipliers=tuple(multipliers.items()), data="10 points of my.csv")
    return replace(deployment, calibration=found)


MOVES = {
    "compute": (at.LINEAR_FLOPS, 0.5),
    "memory": (at.LINEAR_BYTES, 0.5),
    "kv_bandwidth": (at.CONTEXT, 0.5),
    "allreduce_s": (at.COMM_STEP, 2.0),
    "step_s": (at.HOST_STEP, 2.0),
    "sequence_s": (at.HOST_SEQUENCE, 2.0),
    "prefill_s": (at.HOST_PREFILL, 2.0),
}


@pytest.mark.parametrize("name", MOVES)
def test_each_factor_moves_its_own_seconds(name: str) -> None:
    place, ratio = MOVES[name]
    before, after = step_model(NIM).coefficients, step_model(calibrated(**{name: 2.0})).coefficients
    assert after[place] / before[place] == pytest.approx(ratio, rel=1e-9)
    assert after[at.ATTENTION] == before[at.ATTENTION]


def test_front_end_and_turnaround_are_scaled_too() -> None:
    assert step_model(calibrated(frontend_s=3.0)).frontend_s == pytest.approx(3 * step_model(NIM).frontend_s)
    assert client_turnaround_s(calibrated(turnaround_s=0.5)) == pytest.approx(0.5 * client_turnaround_s(NIM))


def test_every_factor_has_something_to_act_on_and_leaves_the_shipped_terms_alone() -> None:
    assert set(ACTS_ON) == set(MULTIPLIERS)
    before = repr(shipped())
    for name in MULTIPLIERS:
        c = Calibration(preset="nim-2024", gpu="l40s", multipliers=((name, 2.0),), data="")
        assert overlaid(shipped(), c, "l40s") != shipped()
    assert repr(shipped()) == before


def test_the_efficiencies_of_a_gpu_hold_for_it_alone() -> None:
    other = calibrated(gpu="a100-sxm-80gb", compute=0.5, memory=0.5, step_s=2.0)
    c, plain = step_model(other).coefficients, step_model(NIM).coefficients
    assert c[at.LINEAR_FLOPS] == plain[at.LINEAR_FLOPS]
    assert c[at.HOST_STEP] == pytest.approx(2 * plain[at.HOST_STEP])
    assert set(OF_THE_GPU) == {"compute", "memory"}


def test_another_engine_is_untouched_and_says_so() -> None:
    other = deployment_of(model="llama-3-8b", gpu="h100-sxm-80gb", precision="fp16", tp=2, engine="vllm")
    with_it = calibrated(other, step_s=2.0)
    assert step_model(with_it).coefficients.tolist() == step_model(other).coefficients.tolist()
    assert any("not calibrated" in mark for mark in marks(with_it))


def test_marks_say_what_was_calibrated_on_what() -> None:
    assert "calibrated on 10 points of my.csv" in marks(calibrated(step_s=2.0))
    assert any("terms only" in mark for mark in marks(calibrated(gpu="l40s", step_s=2.0)))
    assert any("not calibrated" in mark for mark in marks(calibrated()))
    assert not any("calibrated" in mark for mark in marks(NIM))
