"""Plans on one screen."""

from __future__ import annotations

from dataclasses import replace

from tests.report.example_plan import full
from tonnage.plan.candidate import Candidate, Confidence, Identity
from tonnage.plan.fleet import AtPeak
from tonnage.plan.plan import Plan
from tonnage.results.metrics import Latencies

SURE = Confidence(
    asked=0.8,
    meets=0.876,
    systems={"50": 4, "80": 5, "95": None},
    step_factors={},
    metric="ttft_ms",
)
UNSURE = replace(SURE, systems={"50": 4, "80": None, "95": None}, meets=0.6)

PEAK = AtPeak(
    requests_per_second_per_instance=20.67,
    ttft_ms=Latencies(mean=101.0, p95=201.0),
    itl_ms=Latencies(mean=9.0, p99=61.0),
    tpot_ms=Latencies(mean=11.0, p95=21.0),
    e2e_ms=Latencies(mean=2_345.0),
    utilisation=0.64,
    instances=40,
)
OTHER = Identity(gpu="h100-sxm-80gb", precision="fp8", tp=8, engine="tensorrt-llm")


def sized(confidence: Confidence = SURE) -> Plan:
    first, *rest = full().candidates
    return replace(
        full(),
        candidates=(replace(first, confidence=confidence, at_peak=PEAK, checked=True), *rest),
    )


def many(count: int, spread: int) -> tuple[Candidate, ...]:
    """So many candidates, the last of them with many times the GPUs of the first."""
    first = full().candidates[0]
    wide = replace(
        first.pool,
        gpu="rtx-pro-6000-blackwell-se",
        precision="int4-g32+experts",
        tp=1,
        dp=4,
        ep=4,
        engine="tensorrt-llm-1.2",
    )
    pools = (
        replace(wide, engine=f"tensorrt-llm-1.{i}", systems=5 * (1 + spread * i // max(1, count)))
        for i in range(count)
    )
    return (
        replace(first, confidence=SURE, at_peak=PEAK),
        *(replace(first, pools=(pool,), at_peak=PEAK, marks=("x",)) for pool in pools),
    )
