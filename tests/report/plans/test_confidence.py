"""How sure a number of systems is, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args, get_type_hints

from tests.report.plans.screens import OTHER, UNSURE, sized
from tonnage.plan.limit import Breach, Limit
from tonnage.plan.sensitivity import (
    Changed,
    OpenLoopNearSaturation,
    OtherSystems,
    OutOfRange,
    RelaxedLimit,
    Sensitivity,
    Swing,
    Unmeasured,
    Unreached,
)
from tonnage.report.plans.confidence import (
    MOST,
    PARTS,
    RANGES,
    beyond_text,
    chance_text,
    confidence_text,
)
from tonnage.report.plans.explained import riskiest_text
from tonnage.report.plans.screen import brief_lines, quiet_lines, screen
from tonnage.report.writers.terminal import terminal

TPOT = Limit(metric="tpot", statistic="p95", milliseconds=50.0)

TAIL = Unreached(
    confidence=0.95,
    step_factor=1.38,
    alone=Breach(limit=TPOT, value_ms=61.2),
    other=OtherSystems(deployment=OTHER, system="dgx-h100", systems=11, gpus=88),
    relaxed=RelaxedLimit(limit=TPOT, to_ms=60.0, system="dgx-b200", systems=9, gpus=72),
)


def test_the_confidence_that_is_not_reached_is_said_first_and_in_its_line() -> None:
    plan = replace(sized(UNSURE), tail=replace(TAIL, confidence=0.8, other=None))
    text = terminal(screen((plan,)))
    words = " ".join(text.split())
    warning = (
        "! Nothing that was asked for reaches 80%: with steps 38% slower, TPOT p95 61.2 ms > 50 ms"
        " at any load; a limit of 60 ms reaches it with 9 × dgx-b200 (72 GPUs). Answer 5 × dgx-h100"
    )
    assert warning in words
    assert text.index("\n! Nothing") < text.index("\nAnswer")
    assert any(line.startswith("Not sure ") for line in brief_lines((plan,))[:2])
    assert quiet_lines((plan,))[0].startswith("Nothing that was asked for reaches 80%")
    nothing = replace(plan, tail=replace(TAIL, confidence=0.8, other=None, relaxed=None))
    assert "at any load; it takes a limit above 61.2 ms." in " ".join(
        terminal(screen((nothing,))).split()
    )
    assert (
        confidence_text(replace(sized(), tail=TAIL))
        == "87% probability of meeting the limits (80% asked); systems for 50%: 4, 80%: 5; no"
        " number of them reaches 95%: with steps 38% slower, TPOT p95 61.2 ms > 50 ms at any"
        " load; TP 8 reaches it with 11 × dgx-h100 (88 GPUs), a limit of 60 ms with 9 × dgx-b200"
        " (72 GPUs)"
    )
    assert confidence_text(sized()).endswith("(80% asked); systems for 50%: 4, 80%: 5, 95%: none")
    near = replace(TAIL, alone=Breach(limit=TPOT, value_ms=49.0), other=None, relaxed=None)
    assert confidence_text(replace(sized(), tail=near)).endswith(
        "38% slower, a single request comes near TPOT p95 ≤ 50 ms"
    )


def test_what_a_chance_and_the_risk_say() -> None:
    for share, text in [
        (0.949, "94%"),
        (0.8, "80%"),
        (0.9951, "over 99%"),
        (0.99, "99%"),
        (0.004, "under 1%"),
        (0.29, "29%"),
    ]:
        assert chance_text(share) == text
    calm = Sensitivity(
        systems=2,
        systems_exact=1.5,
        swings=(swing("isl", 2, 1.6), swing("rate", 2, 1.8)),
        relaxed=None,
    )
    assert (
        riskiest_text(calm)
        == "no input 20% higher takes more GPUs; more requests come nearest (1.80 systems exactly)"
    )
    moved = replace(calm, swings=(*calm.swings, swing("osl", 4, 3.2)))
    assert riskiest_text(moved) == "with 20% longer answers it takes 4 systems in place of 2"
    dead = replace(calm, swings=(*moved.swings, swing("step_time", None, None)))
    assert riskiest_text(dead) == "with 20% slower steps nothing meets the limits"
    racks = replace(calm, swings=(swing("isl", 2, 1.6, gpus=16), swing("osl", 1, 0.4, gpus=72)))
    assert (
        riskiest_text(racks, 8)
        == "with 20% longer answers it takes 72 GPUs of h100-sxm-80gb in place of 16"
    )


def swing(name: str, systems: int | None, exact: float | None, gpus: int = 0) -> Swing:
    low = Changed(change=-0.2, systems=1, systems_exact=0.5, deployment=None, reason=None)
    high = Changed(
        change=0.2, systems=systems, systems_exact=exact, gpus=gpus, deployment=OTHER, reason=None
    )
    return Swing(input=name, low=low, high=high)  # type: ignore[arg-type]


def test_every_code_has_words() -> None:
    assert set(PARTS) == set(get_args(get_type_hints(Unmeasured)["code"]))
    assert set(RANGES) == set(get_args(get_type_hints(OutOfRange)["code"]))


def test_a_line_that_is_too_long_leaves_out_what_is_nearest_and_then_the_last_things() -> None:
    items = (
        Unmeasured(code="model", name="llama-3.2-3b", nearest="gpt-j-6b"),
        Unmeasured(code="gpu", name="h100-pcie-80gb", nearest="h100-nvl-94gb"),
        OutOfRange(code="isl", value=40_000, most=20_000),
    )
    names = "llama-3.2-3b (nearest: gpt-j-6b), h100-pcie-80gb (nearest: h100-nvl-94gb)"
    assert beyond_text(items) == f"not measured: {names}, prompts of 40,000 tokens (up to 20,000)"
    busy = OpenLoopNearSaturation(share=0.92, times=14.0, below=0.85, times_below=1.3)
    near = beyond_text((*items, busy))
    assert len(near) <= MOST
    assert near.startswith(
        "not measured: llama-3.2-3b, h100-pcie-80gb, prompts of 40,000 tokens; at 92% of saturation"
    )
    many = beyond_text((*items * 4, busy))
    assert len(many) <= MOST
    assert " more; at 92% of saturation" in many
    assert "nearest" not in many
    assert beyond_text(()) == ""
