"""Watts of GPUs: published idle and full power, limits of the form, and the held-out errors of the
shipped fit."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deployments import deployment
from tests.strategies import coefficient_array
from tonnage import simulate
from tonnage.api import deployment_of
from tonnage.perf import power
from tonnage.perf import step_terms as at
from tonnage.perf.power import Draw, StepLoad, clock, draw, idle_watts, seen_load, steady_load
from tonnage.perf.terms import step_model
from tonnage.spec.catalog import find_gpu
from tonnage.spec.deployment import Parallelism
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


HALF_READ = coefficient_array(
    linear_bytes=1.5e-3,
    head_bytes=3e-4,
    activation=1e-5,
    context=1e-7,
    bounded=5e-5,
    linear_flops=1e-4,
    head_flops=5e-5,
    attention=2 * 4e-4 / 600,
)
"""A step of 4 sequences of 1,000 tokens and 6 tokens of prompts of 100 reads 1.5 + 0.3 + 0.1 + 0.4
+ 0.2 = 2.5 ms and computes 1 + 0.2 + 0.4 = 1.6 ms."""

LOAD = StepLoad(sequences=4, prompt_tokens=6, isl=100, context=1000, seconds=1e-2)


def test_watts_of_a_step_by_hand() -> None:
    fitted = power._shipped()
    dense = deployment(gpu="h100-sxm-80gb", precision="fp8")
    assert power.shares(dense, HALF_READ, LOAD) == pytest.approx((0.5, 0.4, 0.0))
    short = replace(LOAD, seconds=1e-4)
    assert power.shares(dense, HALF_READ, short) == (1.0, 1.0, 0.0)
    experts = HALF_READ.copy()
    # a share of 1 − 2 · 0.5¹⁰ of the experts is read
    for place, value in (("BYTES", 1.024e-3), ("MISS", 0.5), ("REST", 2.0), ("FLOPS", 1e-5)):
        experts[getattr(at, f"EXPERT_{place}")] = value
    reads, computes, _ = power.shares(dense, experts, LOAD)
    assert (reads, computes) == pytest.approx((math.sqrt(0.3522), math.sqrt(0.17)))
    above = 700 * (fitted["terms"]["traffic"] * 0.5 + fitted["terms"]["arithmetic"] * 0.4)
    errors = fitted["errors"]["h100-sxm-80gb"]
    low, high = math.exp(errors["q10"]), math.exp(errors["q90"])
    expected = Draw(watts=69 + above, idle_watts=69, busy=1.0, low=low, high=high)
    assert draw(dense, HALF_READ, LOAD) == expected
    quarter = draw(dense, HALF_READ, LOAD, busy=0.25)
    assert quarter == replace(expected, watts=69 + above / 4, busy=0.25)
    limited = replace(dense, gpu=replace(dense.gpu, power_cap_w=300))
    assert draw(limited, HALF_READ, LOAD).watts == 300  # type: ignore[union-attr]
    assert draw(dense, HALF_READ, short).watts == 700  # type: ignore[union-attr]
    locked = draw(replace(dense, gpu=replace(dense.gpu, clock=0.8)), HALF_READ, LOAD)
    traffic, arithmetic = 0.8 ** fitted["clocks"]["traffic_exponent"], 0.8 ** (1 / 0.49)
    assert fitted["clocks"]["rate_exponent"] == 0.49
    assert locked.watts == pytest.approx(  # type: ignore[union-attr]
        69
        + 700 * fitted["terms"]["traffic"] * 0.5 * traffic
        + 700 * fitted["terms"]["arithmetic"] * 0.4 * arithmetic
    )
    unknown = replace(dense.gpu, tdp_w=None)
    assert idle_watts(unknown) is None
    assert draw(replace(dense, gpu=unknown), HALF_READ, LOAD) is None
    unlisted = replace(dense.gpu, name="unlisted", tdp_w=1000)
    assert idle_watts(unlisted) == pytest.approx(117)
    drawn = draw(replace(dense, gpu=unlisted), HALF_READ, LOAD)
    assert drawn.low == math.exp(fitted["errors"]["q10"])  # type: ignore[union-attr]


def test_the_clock_and_its_mark_by_hand() -> None:
    free = find_gpu("h100")
    assert (clock(free), power.limit_mark(free)) == (1.0, "")
    assert clock(replace(free, clock=0.7)) == 0.7
    assert clock(replace(free, power_cap_w=175)) == pytest.approx(0.25**0.49)
    assert clock(replace(free, power_cap_w=175, tdp_w=None)) == 1.0
    assert power.limit_mark(replace(free, name="g", clock=0.7)) == (
        "g: clocks locked to 70%; times and watts are estimated from published runs of other GPUs"
    )
    assert power.limit_mark(replace(free, name="g", power_cap_w=350)) == (
        "g: power cap 350 W of 700 W; arithmetic at 71% of its rate, estimated from published"
        " sweeps of other GPUs"
    )


@pytest.mark.parametrize(
    ("rate", "slots", "ranks", "meant"),
    [(2.0, 64, 1, 2.0), (0.5, 64, 1, 0.5), (4.0, 64, 2, 2.0), (9.0, 3, 1, 3.0)],
)
def test_a_mean_step_under_a_load_by_hand(
    rate: float, slots: int, ranks: int, meant: float
) -> None:
    """Steps of 10 ms and 100 tokens of output: a rank that gets two requests per second holds two,
    and of Poisson arrivals somebody is there for 1 − exp(−2) of the time."""
    engine = deployment()
    engine = replace(
        engine,
        knobs=replace(engine.knobs, max_batch_size=slots),
        parallelism=Parallelism(dp=ranks),
    )
    load, busy = steady_load(
        engine,
        coefficient_array(host_step=0.01),
        requests_per_second=rate,
        isl=1000,
        osl=100,
        computed=600,
    )
    assert busy == pytest.approx(1 - math.exp(-meant * ranks))
    sequences = min(slots, max(1.0, meant / busy))
    assert load.sequences == pytest.approx(sequences)
    assert load.prompt_tokens == pytest.approx(6 * load.sequences)
    assert (load.isl, load.context, load.seconds) == (1000, 1050, pytest.approx(0.01))


@pytest.mark.parametrize(
    ("term", "seconds"),
    [
        ({"host_step": 1e-4, "context": 1e-7}, 1e-4 + 1e-7 * 40 * 1050),
        ({"host_sequence": 1e-4}, (40 + 0.4) * 1e-4),  # 0.4 of a prompt begins in each step
        ({"scan": 1e-5}, 40 * 6e-5),
        ({"attention": 2e-9}, 40 * 6 * (2 * 1000 - 600) * 1e-9),
        ({"host_prefill": 2e-3}, 2e-3),
    ],
)
def test_each_part_of_a_full_mean_step_counts_as_it_should(
    term: dict[str, float], seconds: float
) -> None:
    engine = deployment()
    engine = replace(engine, knobs=replace(engine.knobs, max_batch_size=40))
    load, busy = steady_load(
        engine,
        coefficient_array(**term),
        requests_per_second=1e6,
        isl=1000,
        osl=100,
        computed=600,
    )
    assert (load.sequences, busy) == pytest.approx((40, 1))
    assert load.seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("sequences", "ranks", "per_rank", "busy"), [(8, 1, 8, 1), (8, 2, 4, 1), (0.5, 2, 1, 0.25)]
)
def test_a_step_that_was_seen_by_hand(
    sequences: float, ranks: int, per_rank: float, busy: float
) -> None:
    assert seen_load(
        sequences=sequences, tokens_per_second=200, isl=1000, osl=400, ranks=ranks
    ) == (
        StepLoad(
            sequences=per_rank,
            prompt_tokens=2.5 * per_rank,
            isl=1000,
            context=1200,
            seconds=sequences / 200,
        ),
        busy,
    )
