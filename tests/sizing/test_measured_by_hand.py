"""Two measured deployments worked by hand, and the names and loads of points."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sizing.test_measured import asked, point
from tonnage.errors import InputError
from tonnage.formats.measured_files import STEADY
from tonnage.plan.candidate import Candidate, Identity, Pool
from tonnage.plan.limit import HIGHEST_MEASURED, Breach, Load, bound_by, limit_of
from tonnage.plan.notes import (
    BenchmarkAsMeasured,
    GpusNotMeasured,
    NoLimit,
    PointsLeftOut,
    UnsteadyPoints,
)
from tonnage.plan.plan import Understood
from tonnage.plan.reason import (
    BrokenAtAnyLoad,
    DoesNotDivide,
    MeasuredBreach,
    NoMeasuredLoadHolds,
    Reached,
    StatisticNotMeasured,
    ThroughputNotMeasured,
)
from tonnage.plan.sensitivity import Provenance
from tonnage.results.metrics import Latencies
from tonnage.sizing.measured import (
    _engine_name,
    _gpu_name,
    _in_flight,
    _listed,
    _load,
    _model_name,
    _presets,
    _rate,
    _workload,
    _worst,
    size_measured,
)
from tonnage.spec.deployment import parse_attainment, parse_limit
from tonnage.version import VERSION


def of_two(clients: int, ttft: float, rate: float, **other: Any) -> Any:
    """All clients have a request in flight."""
    e2e = {"mean": 1e3 * clients / rate, "p90": 2_000.0}
    latencies = {"ttft": {"mean": ttft, "p99": 3 * ttft}, "e2e": e2e}
    return point(clients, None, rate, **{"tp": 2, "latencies_ms": latencies} | other)


RISING = [of_two(4, 100.0, 2.0), of_two(8, 200.0, 3.0), of_two(16, 400.0, 5.0)]


def test_a_measured_candidate_by_hand() -> None:
    """Inside 250 ms are 3 requests/s, of four instances on each system 12: 30 need two and a half
    systems, and with a spare one four."""
    points = [RISING[2], RISING[0], RISING[1]]
    plan = size_measured(points, asked(("ttft", "mean<=250ms"), peak=30.0, spare=1))
    assert plan.candidates == (
        Candidate(
            pools=(
                Pool(
                    model="llama-3-8b",
                    gpu="h100-sxm-80gb",
                    precision="fp8",
                    tp=2,
                    pp=1,
                    engine="nim",
                    system="dgx-h100",
                    gpus_per_system=8,
                    knobs=None,
                    instances=16,
                    systems=4,
                ),
            ),
            systems_exact=2.5,
            requests_per_second_per_instance=3.0,
            requests_per_second_per_gpu=1.5,
            requests_per_second_per_8_gpus=12.0,
            output_tokens_per_second_per_8_gpus=2_400.0,
            saturation_requests_per_second_per_instance=5.0,
            concurrency_per_instance=8.0,
            utilisation=30 / 48,
            headroom_to_saturation=80 / 30 - 1,
            ttft_ms=Latencies(mean=200.0, p99=600.0),
            itl_ms=Latencies(),
            tpot_ms=Latencies(),
            e2e_ms=Latencies(mean=8_000 / 3, p90=2_000.0),
            binds=bound_by(parse_limit("ttft", "mean<=250ms")),
            load=Load(kind="closed", clients=8.0, measured=True),
            accuracy_impact="very low",
            calibration="minutes",
        ),
    )
    limits = (limit_of(parse_limit("ttft", "mean<=250ms")),)
    assert plan.scenario == Understood(
        model="llama-3-8b",
        gpus=("h100-sxm-80gb",),
        precisions=("fp8",),
        tps=(2,),
        engines=("nim",),
        isl="2000",
        osl="200",
        mean_isl=2_000.0,
        mean_osl=200.0,
        limits=limits,
        limits_that_count=limits,
        load="measured",
        spare_systems=1,
        benchmarks="example.csv",
    )
    assert (plan.rejected, plan.reachable, plan.notes) == ((), None, (BenchmarkAsMeasured(),))
    assert plan.demand.sizing_requests_per_second == 30.0
    assert plan.provenance == Provenance(
        tonnage=VERSION, benchmarks="example.csv", sources=("here",)
    )


def test_the_best_load_of_all_that_were_measured_is_bound_by_none() -> None:
    """Tokens are those that were counted."""
    counted = [*RISING[:2], of_two(16, 240.0, 5.0, output_tok_s=700.0)]
    (best,) = size_measured(counted, asked(("ttft", "mean<=250ms"), peak=20.0)).candidates
    assert best.binds == HIGHEST_MEASURED
    assert best.output_tokens_per_second_per_8_gpus == 2_800.0
    assert (best.systems, best.systems_exact, best.headroom_to_saturation) == (1, 1.0, 0.0)
    question = asked(peak=20.0, mean_isl=1_900.0, mean_osl=210.0, gpus=("h100", "h200"))
    unsteady = [
        of_two(4, 100.0, 2.0, latencies_ms={"e2e": {"mean": 1_000.0}}),
        *RISING[1:],
        of_two(1, 1.0, 1.0, gpu="l4"),
    ]
    plan = size_measured(unsteady, question)
    assert (plan.scenario.mean_isl, plan.scenario.mean_osl) == (1_900.0, 210.0)
    assert plan.notes == (
        BenchmarkAsMeasured(),
        PointsLeftOut(left_out=1, points=4),
        GpusNotMeasured(gpus=("h200-sxm-141gb",)),
        UnsteadyPoints(unsteady=1, points=3, threshold=STEADY, first_clients=4.0, first_tp=2),
        NoLimit(measured=True),
    )


def test_deployments_come_by_their_gpus_and_others_say_why() -> None:
    """Four instances of two GPUs carry 12, and eight of one 16: of 30 both take three systems or
    two."""
    points = [
        *RISING,
        point(4, 100.0, 2.0),
        point(4, 300.0, 1.0, precision="fp16"),
        point(4, 100.0, None, engine="vllm-0.32"),
        point(4, 100.0, 1.0, tp=3),
        point(4, 100.0, 9.0, gpu="unknown", tp=16),
    ]
    plan = size_measured(points, asked(("ttft", "mean<=250ms"), peak=30.0))
    assert [(one.tp, one.gpu, one.systems, one.gpus) for one in plan.candidates] == [
        (1, "h100-sxm-80gb", 2, 16),
        (2, "h100-sxm-80gb", 3, 24),
        (16, "unknown", 8, 64),
    ]
    assert plan.candidates[2].system == "8xunknown"
    limit = parse_limit("ttft", "mean<=250ms")
    lowest = Load(kind="closed", clients=4.0, measured=True)
    assert {(one.precision, one.tp, one.engine): one.reason for one in plan.rejected} == {
        ("fp16", 1, "nim"): BrokenAtAnyLoad(
            breach=Breach(limit=limit_of(limit), value_ms=300.0), lowest=lowest
        ),
        ("fp8", 1, "vllm-0.32"): ThroughputNotMeasured(),
        ("fp8", 3, "nim"): DoesNotDivide(gpus=3, system="dgx-h100", system_gpus=8),
    }
    assert plan.reachable is None


def test_why_no_measured_load_holds() -> None:
    ttft, e2e = parse_limit("ttft", "mean<=250ms"), parse_limit("e2e", "mean<=250ms")
    slow = [
        point(4, None, 2.0, latencies_ms={"ttft": {"mean": 100.0}, "e2e": {"mean": 300.0}}),
        point(8, None, 2.5, latencies_ms={"ttft": {"mean": 400.0}, "e2e": {"mean": 500.0}}),
        point(9, None, 3.0, latencies_ms={"ttft": {"mean": 300.0}, "e2e": {"mean": 100.0}}),
    ]
    limits = (("ttft", "mean<=250ms"), ("e2e", "mean<=250ms"))
    plan = size_measured(slow, asked(*limits))  # type: ignore[arg-type]
    (refused,) = plan.rejected
    assert refused.reason == NoMeasuredLoadHolds(
        breaches=(
            MeasuredBreach(
                breach=Breach(limit=limit_of(e2e), value_ms=300.0),
                load=Load(kind="closed", clients=4.0, measured=True),
            ),
            MeasuredBreach(
                breach=Breach(limit=limit_of(ttft), value_ms=300.0),
                load=Load(kind="closed", clients=9.0, measured=True),
            ),
        )
    )
    assert refused.identity == Identity(gpu="h100-sxm-80gb", precision="fp8", tp=1, engine="nim")
    assert not plan.reachable
    # the limit that is exceeded most, and the first of equal ones
    assert _worst(slow[1], (ttft, e2e)) == e2e
    assert _worst(slow[1], (e2e, ttft)) == e2e
    assert _worst(slow[2], (ttft, e2e)) == ttft
    assert _worst(slow[2], (e2e,)) is None
    equal = parse_limit("ttft", "mean<=200ms")
    assert _worst(slow[1], (equal, e2e)) == equal
    assert _worst(slow[1], (e2e, equal)) == e2e
    assert _worst(slow[1], ()) is None
    nearest = size_measured(slow[1:2], asked(("ttft", "mean<=250ms")))
    assert nearest.reachable is not None
    assert nearest.reachable.best == (
        Reached(limit=limit_of(ttft), asked_ms=250.0, value_ms=400.0, deployment=refused.identity),
    )
    mixed = [point(4, 900.0, 2.0), point(4, None, 2.0, tp=2)]
    plan = size_measured(mixed, asked(("ttft", "mean<=250ms")))
    assert plan.rejected[1].reason == StatisticNotMeasured(metric="ttft", statistic="mean")


def test_loads_of_points() -> None:
    clients, rate = point(4, 1.0, 2.0), point(0, 1.0, 2.0, concurrency=None, request_rate=2.5)
    assert _load(clients) == Load(kind="closed", clients=4.0, measured=True)
    assert _load(rate) == Load(kind="open", requests_per_second=2.5, measured=True)
    assert (_in_flight(clients), _in_flight(rate)) == (4.0, None)
    answered = point(
        0, None, 2.0, concurrency=None, request_rate=2.5, latencies_ms={"e2e": {"mean": 1_500.0}}
    )
    assert _in_flight(answered) == 3.0
    assert (_rate(clients), _rate(point(4, 1.0, None))) == (2.0, 0.0)


def test_names_are_those_of_the_catalog_where_it_has_them() -> None:
    assert [
        _model_name(name) for name in ("llama-3-8b", " org/Llama-3-8B.json ", " My Model ")
    ] == [
        "llama-3-8b",
        "llama-3-8b",
        "my model",
    ]
    assert _model_name("org/My-Own") == "org/my-own"
    assert [_gpu_name(name) for name in ("h100", " My GPU ")] == ["h100-sxm-80gb", "my gpu"]
    assert [_engine_name(name) for name in ("vllm-0.32", " My Engine ")] == [
        "vllm-0.32",
        "my engine",
    ]
    assert _presets("vllm-0.32") == {"vllm-0.32"}
    assert _presets("my engine 3") == {"my engine 3"}
    assert _presets("my engine") == {"my engine"}
    assert {"vllm-0.32"} < _presets("vllm")
    assert all(name.startswith("vllm") for name in _presets("vllm"))


def test_workloads_are_listed_up_to_eight() -> None:
    assert _workload(None, None, None) == "any model at any/any tokens"
    assert _workload("m", 5, 6) == "m at 5/6 tokens"
    keys = {("m", number, 6) for number in range(1, 11)}
    listed = "; ".join(f"m at {number}/6 tokens" for number in range(1, 9))
    assert _listed(set()) == ""
    assert _listed({("m", number, 6) for number in range(1, 9)}) == listed
    assert _listed(keys) == f"{listed}; and 2 more"


@pytest.mark.parametrize(
    ("changed", "tps"),
    [
        ({}, [1, 2, 4]),
        ({"tps": (1, 4)}, [1, 4]),
        ({"gpus": ("h100",)}, [1, 2]),
        ({"precisions": ("FP16",)}, [4]),
        ({"precisions": ("fp8",)}, [1, 2]),
        ({"engines": ("vllm",)}, [2]),
        ({"engines": ("nim", "vllm-0.32")}, [1, 2]),
        ({"gpus": ("h100",), "tps": (2,)}, [2]),
    ],
)
def test_deployments_that_may_be_chosen(changed: dict[str, Any], tps: list[int]) -> None:
    points = [
        point(4, 100.0, 2.0),
        point(4, 100.0, 2.0, tp=2, engine="vllm-0.32"),
        point(4, 100.0, 2.0, tp=4, gpu="l4", precision="fp16", engine="other"),
    ]
    assert sorted(one.tp for one in size_measured(points, asked(**changed)).candidates) == tps


def test_what_points_do_not_have_is_refused() -> None:
    attained = asked()
    question = type(attained)(
        demand=attained.demand, slo=(parse_attainment("90%: ttft<=1s"),), data="example.csv"
    )
    with pytest.raises(InputError, match=r"^(--)?attain: example.csv has percentiles"):
        size_measured(RISING, question)
    with pytest.raises(InputError, match="its mean and p99; limit one of these"):
        size_measured(RISING, asked(("ttft", "p95<=1s")))
    with pytest.raises(InputError, match=r"no point is left .* it has h100-sxm-80gb fp8 TP 2 nim"):
        size_measured(RISING, asked(tps=(1,)))
    with pytest.raises(
        InputError, match="no point of m at 5/any tokens; it has llama-3-8b at 2000/200"
    ):
        size_measured(RISING, asked(model="m", isl=5))
    with pytest.raises(InputError, match="more than one workload"):
        size_measured([*RISING, point(4, 100.0, 2.0, isl=5)], asked(osl=200))
    assert size_measured([*RISING, point(4, 100.0, 2.0, isl=5)], asked(isl=5)).choice is not None
