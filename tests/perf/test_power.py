"""Watts of GPUs: published idle and full power, limits of the form, and the held-out errors of the
shipped fit."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deployments import deployment
from tonnage import simulate
from tonnage.api import deployment_of
from tonnage.perf import power
from tonnage.perf.power import Draw, StepLoad, clock, draw, idle_watts, seen_load, steady_load
from tonnage.perf.terms import step_model
from tonnage.spec.catalog import find_gpu
from tonnage.spec.hardware import capped, clocked

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "energy" / "ml_energy.csv"


@pytest.mark.parametrize(
    ("gpu", "idle", "full"),
    [("h100-sxm-80gb", 69, 700), ("h200-sxm-141gb", 78, 700), ("b200-sxm-180gb", 140, 1000)],
)
def test_idle_and_full_power_are_the_published(gpu: str, idle: float, full: float) -> None:
    assert idle_watts(find_gpu(gpu)) == pytest.approx(idle, rel=0.1)
    one = deployment(gpu=gpu, precision="fp8")
    c = step_model(one).coefficients
    prompts = StepLoad(
        sequences=1,
        prompt_tokens=8192,
        isl=8192,
        context=8192,
        seconds=step_model(one).seconds(8192, 1, 0, 8192**2, 0),
    )
    found = draw(one, c, prompts)
    assert found.watts == pytest.approx(full, rel=0.1)
    assert draw(one, c, prompts, busy=0.0).watts == found.idle_watts  # type: ignore[union-attr]


@given(st.floats(0.01, 40), st.floats(50, 4000), st.floats(2, 1000))
def test_more_load_never_draws_less_and_never_more_than_the_board(
    rate: float, isl: float, osl: float
) -> None:
    one = deployment(gpu="h100-sxm-80gb", precision="fp8")
    c = step_model(one).coefficients
    found = []
    for each in (rate, 1.5 * rate):
        load, busy = steady_load(one, c, requests_per_second=each, isl=isl, osl=osl, computed=isl)
        drawn = draw(one, c, load, busy=busy)
        assert isinstance(drawn, Draw)
        assert drawn.idle_watts <= drawn.watts <= 700
        found.append(drawn.watts)
    assert found[1] >= found[0] * 0.98  # a larger batch reads its weights for more tokens


def test_arithmetic_under_a_power_limit_follows_the_published_sweeps() -> None:
    found = json.loads((Path(power.__file__).parent / "coefficients" / "power.json").read_text())[
        "clocks"
    ]
    watts, rates = (np.log([each[name] for each in found["sweeps"]]) for name in ("watts", "rate"))
    assert found["rate_exponent"] == round(float(watts @ rates / (watts @ watts)), 2)
    for each in found["sweeps"]:
        gpu = replace(find_gpu("h100"), power_cap_w=700 * each["watts"])
        assert clock(gpu) == pytest.approx(each["rate"], rel=0.02)


@given(st.floats(0.6, 0.99), st.integers(1, 4000))
def test_a_power_limit_slows_arithmetic_and_no_reading(share: float, tokens: int) -> None:
    free = deployment(gpu="h100-sxm-80gb", precision="fp8")
    held = replace(free, gpu=capped(free.gpu, f"{100 * share}%"))
    first, then = step_model(free), step_model(held)
    most = 1 / clock(held.gpu)
    prompt, decode = (
        (model.seconds(tokens, 1, 0, tokens**2, 0), model.seconds(0, 0, 1, 0, tokens))
        for model in (first, then)
    )
    assert prompt[0] <= then.seconds(tokens, 1, 0, tokens**2, 0) <= most * prompt[0] * (1 + 1e-9)
    assert decode[1] == pytest.approx(prompt[1], rel=0.01)


@given(st.floats(0.6, 0.99), st.floats(1, 256), st.floats(500, 8000))
def test_no_gpu_draws_more_than_its_limit_and_none_below_it_draws_less(
    share: float, sequences: float, rate: float
) -> None:
    free = deployment(gpu="h100-sxm-80gb", precision="fp8")
    load, busy = seen_load(sequences=sequences, tokens_per_second=rate, isl=1000, osl=200)
    before = draw(free, step_model(free).coefficients, load, busy=busy)
    for held in (
        replace(free, gpu=capped(free.gpu, f"{100 * share}%")),
        replace(free, gpu=clocked(free.gpu, share)),
    ):
        after = draw(held, step_model(held).coefficients, load, busy=busy)
        assert before is not None
        assert after is not None
        if held.gpu.power_cap_w is None:
            assert after.watts <= before.watts
        else:
            assert after.watts <= held.gpu.power_cap_w
            assert (
                after.watts
                >= min(before.watts, held.gpu.power_cap_w * busy + before.idle_watts * (1 - busy))
                - 1e-9
            )


@pytest.mark.accuracy
def test_models_left_out_are_within_fifteen_percent(tmp_path: Path) -> None:
    from tools.fit.energy import fit

    if not DATA.exists():
        pytest.skip(f"{DATA} is not there")
    said = fit(DATA, tmp_path / "power.json")
    errors = {
        gpu: float(error)
        for gpu, error in re.findall(
            r"^(\S+): joules per token of models left out ([\d.]+) %", said, re.MULTILINE
        )
    }
    assert set(errors) == {"h100-sxm-80gb", "b200-sxm-180gb"}
    assert max(errors.values()) <= 15
    inside = [int(share) for share in re.findall(r"; (\d+) % inside the 80 % interval", said)]
    assert all(73 <= share <= 87 for share in inside)
    assert len(inside) == 2


def test_poisson_arrivals_leave_the_gpus_idle_as_the_simulator_does() -> None:
    """A third of a request per second: somebody is there for about two thirds of the time."""
    asked = {"model": "llama-3.1-8b", "gpu": "l40s", "precision": "fp8", "tp": 1, "engine": "vllm"}
    run = simulate(**asked, isl=600, osl=250, request_rate=0.3125, requests=3_000)
    due, last = run.requests.due_ns, run.requests.last_token_ns
    order = np.argsort(due)
    reached = np.maximum.accumulate(last[order])
    begins = np.maximum(due[order], np.concatenate([[0], reached[:-1]]))
    served = float(np.maximum(reached - begins, 0).sum() / (reached[-1] - due[order][0]))
    one = deployment_of(**asked)
    load, busy = steady_load(
        one,
        step_model(one).coefficients,
        requests_per_second=0.3125,
        isl=600,
        osl=250,
        computed=600,
    )
    assert busy == pytest.approx(served, abs=0.05)
    assert load.sequences > 1
