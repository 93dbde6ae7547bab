"""Sizing from measurements: the course's answers exactly, and what must hold for any curve."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.formats.measured_files import MeasuredPoint, read_points
from tonnage.plan.limit import HIGHEST_MEASURED
from tonnage.plan.plan import Plan
from tonnage.report.plans.candidates import reason_text
from tonnage.report.plans.deployments import load_text
from tonnage.report.plans.notes import note_text
from tonnage.results.store import json_text
from tonnage.sizing.demand import demand_of
from tonnage.sizing.measured import MeasuredQuestion, _published, size_measured
from tonnage.spec.catalog import find_model
from tonnage.spec.catalog.accuracy import accuracy_and_calibration
from tonnage.spec.deployment import Limit, LimitMetric, Statistic, parse_limit
from tonnage.spec.precision import find_precision

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "nim-llama-3-8b-h100-fp8.csv"


def asked(
    *limits: tuple[LimitMetric, str], peak: float = 199.77, **other: object
) -> MeasuredQuestion:
    slo = tuple(parse_limit(metric, text) for metric, text in limits)
    return MeasuredQuestion(demand=demand_of(peak_rps=peak), slo=slo, data="example.csv", **other)


def point(clients: int, ttft: float | None, rate: float | None, **other: object) -> MeasuredPoint:
    values: dict[str, object] = {
        "model": "llama-3-8b",
        "gpu": "h100-sxm-80gb",
        "precision": "fp8",
        "engine": "nim",
        "tp": 1,
        "pp": 1,
        "isl": 2000,
        "osl": 200,
        "concurrency": clients,
        "request_rate": None,
        "latencies_ms": {} if ttft is None else {"ttft": {"mean": ttft}},
        "requests_s": rate,
        "output_tok_s": None,
        "source": "here",
    }
    return MeasuredPoint(**{**values, **other})


@pytest.mark.parametrize(
    ("limit", "clients", "per_8", "exact", "systems"),
    [("mean<300ms", 10, 41.6, 4.8, 5), ("mean<500ms", 25, 70.7, 2.8, 3)],
)
def test_the_answers_of_the_course(
    limit: str, clients: int, per_8: float, exact: float, systems: int
) -> None:
    choice = size_measured(read_points(EXAMPLE), asked(("ttft", limit))).choice
    assert choice.concurrency_per_instance == clients
    assert round(choice.requests_per_second_per_8_gpus, 1) == per_8
    assert round(choice.systems_exact, 1) == exact
    assert (choice.systems, choice.instances, choice.system) == (systems, 8 * systems, "dgx-h100")
    assert choice.systems_exact == pytest.approx(
        199.77 / (choice.requests_per_second_per_instance * 8)
    )
    assert choice.utilisation == pytest.approx(choice.systems_exact / choice.systems)


@pytest.mark.parametrize("limit", ["300", "500"])
def test_golden_answers(limit: str) -> None:
    plan = size_measured(read_points(EXAMPLE), asked(("ttft", f"mean<{limit}ms")))
    document = json.loads(json_text(plan.to_json()))
    golden = json.loads(
        (ROOT / "tests" / "golden" / f"size-measured-ttft-{limit}ms.json").read_text(
            encoding="utf-8"
        )
    )
    assert {name: document[name] for name in golden} == golden


def test_no_load_inside_the_limits_is_a_plan_without_choice() -> None:
    plan = size_measured(read_points(EXAMPLE), asked(("ttft", "mean<20ms")))
    assert plan.choice is None
    (rejected,) = plan.rejected
    assert (
        reason_text(rejected.reason)
        == "TTFT mean 34.7 ms > 20 ms at every load measured (lowest: closed loop of 1 client)"
    )


def test_limits_that_no_one_load_meets_together() -> None:
    points = [
        point(1, 100, 1.0, latencies_ms={"ttft": {"mean": 100.0}, "e2e": {"mean": 900.0}}),
        point(9, 900, 5.0, latencies_ms={"ttft": {"mean": 900.0}, "e2e": {"mean": 100.0}}),
    ]
    plan = size_measured(points, asked(("ttft", "mean<500ms"), ("e2e", "mean<500ms")))
    assert (
        reason_text(plan.rejected[0].reason)
        == "no load measured meets every limit: E2E mean 900 ms > 500 ms (closed loop of 1"
        " client), "
        "TTFT mean 900 ms > 500 ms (closed loop of 9 clients)"
    )


def test_a_statistic_that_was_not_measured_is_refused_with_those_that_were() -> None:
    with pytest.raises(
        InputError,
        match=r"^ttft: example.csv has no p99 of TTFT; it has its mean; limit one of these",
    ):
        size_measured(read_points(EXAMPLE), asked(("ttft", "p99<1s")))
    with pytest.raises(
        InputError,
        match=r"^e2e: example.csv has no mean of E2E; it does not have that metric at all",
    ):
        size_measured(read_points(EXAMPLE), asked(("e2e", "mean<1s")))


def test_every_curve_is_a_candidate_and_the_fewest_gpus_win() -> None:
    points = [
        *read_points(EXAMPLE),
        point(10, 100, 7.0, tp=2),
        point(10, 612, 9.0, precision="fp16"),
        point(10, None, 9.0, precision="bf16"),
        point(10, 100, None, tp=4),
        point(10, 100, 9.0, tp=3),
        point(10, 100, 2.0, gpu="some-new-chip"),
    ]
    plan = size_measured(points, asked(("ttft", "mean<500ms")))
    assert [(c.gpu, c.tp) for c in plan.candidates] == [
        ("h100-sxm-80gb", 1),
        ("h100-sxm-80gb", 2),
        ("some-new-chip", 1),
    ]
    assert plan.candidates[1].requests_per_second_per_8_gpus == 28
    assert plan.candidates[2].system == "8xsome-new-chip"
    reasons = {(r.precision, r.tp): reason_text(r.reason) for r in plan.rejected}
    assert (
        reasons["fp16", 1]
        == "TTFT mean 612 ms > 500 ms at every load measured (lowest: closed loop of 10 clients)"
    )
    assert reasons["bf16", 1] == "TTFT mean was not measured"
    assert reasons["fp8", 4] == "its requests/s were not measured"
    assert reasons["fp8", 3] == "an instance of 3 GPUs does not divide the 8 of one dgx-h100"


def test_the_search_can_be_narrowed() -> None:
    points = [
        *read_points(EXAMPLE),
        point(10, 100, 7.0, tp=2),
        point(10, 100, 9.0, precision="fp16", engine="vLLM"),
    ]
    assert len(size_measured(points, asked(tps=(2,))).candidates) == 1
    assert (
        size_measured(points, asked(engines=("vllm",), gpus=("H100-SXM",))).choice
        == size_measured(points, asked(precisions=("FP16",))).choice
    )
    with pytest.raises(InputError, match="no point is left by"):
        size_measured(points, asked(gpus=("a100-sxm-80gb",)))


def test_one_workload_at_a_time() -> None:
    points = [
        *read_points(EXAMPLE),
        point(10, 100, 7.0, isl=200),
        point(10, 100, 7.0, model="meta-llama/Llama-3.1-70B-Instruct"),
    ]
    with pytest.raises(
        InputError,
        match="more than one workload; choose with model, isl and osl from llama-3-8b at 200/200",
    ):
        size_measured(points, asked())
    with pytest.raises(InputError, match="measures more than one workload"):
        size_measured(points[:-1], asked())
    with pytest.raises(InputError, match="has no point of llama-3-8b at 999/any tokens"):
        size_measured(points, asked(model="Meta-Llama-3-8B", isl=999))
    plan = size_measured(points, asked(model="meta-llama/Meta-Llama-3-8B", isl=2000, osl=200))
    assert plan.scenario.model == "llama-3-8b"
    assert (
        note_text(plan.notes[-2])
        == "2 of 12 points are of other models, lengths or deployments and were left out."
    )
    assert size_measured(points, asked(model="llama-3.1-70b")).scenario.model == "llama-3.1-70b"


def test_spare_systems_and_an_open_loop() -> None:
    sent = point(
        0, 100, 5.0, concurrency=None, request_rate=5.2, latencies_ms={"e2e": {"mean": 2000.0}}
    )
    choice = size_measured([sent], asked(spare=1)).choice
    assert choice.systems == math.ceil(choice.systems_exact) + 1
    assert choice.concurrency_per_instance == pytest.approx(10)
    assert load_text(choice.load) == "open loop at 5.2 requests/s, measured"
    assert choice.binds == HIGHEST_MEASURED


def test_points_that_were_not_steady_are_counted() -> None:
    def measured(clients: int, e2e: float) -> MeasuredPoint:
        return point(clients, None, 10.0, latencies_ms={"e2e": {"mean": e2e}})

    plan = size_measured(
        [measured(10, 1000.0), measured(20, 1900.0), measured(30, 2840.0)], asked()
    )
    assert (
        note_text(plan.notes[1])
        == "1 of 3 points were not steady (requests/s × E2E below 0.95 × clients): their throughput"
        " is understated; the first: closed loop of 30 clients at TP 1."
    )
    assert (
        note_text(plan.notes[2])
        == "No latency limit was given, so the highest throughput measured decides."
    )


def test_a_point_at_its_limit_holds_it() -> None:
    points = [point(1, 100, 1.0), point(2, 489.486, 2.0), point(3, 489.487, 3.0)]
    choice = size_measured(points, asked(("ttft", "mean<=489.486ms"))).choice
    assert choice.concurrency_per_instance == 2


RATES = st.floats(0.01, 1e4)


@st.composite
def curves(draw: st.DrawFn) -> list[MeasuredPoint]:
    shapes = draw(
        st.lists(
            st.sampled_from([(1, "fp8"), (2, "fp8"), (4, "fp16"), (8, "fp8")]),
            min_size=1,
            max_size=4,
            unique=True,
        )
    )
    return [
        point(n + 1, draw(RATES), draw(RATES), tp=tp, precision=precision)
        for tp, precision in shapes
        for n in range(draw(st.integers(1, 5)))
    ]


@given(curves(), RATES, RATES)
def test_the_choice_is_the_best_point_inside_the_limit(
    points: list[MeasuredPoint], limit_ms: float, peak: float
) -> None:
    plan = sized(points, limit_ms, peak)
    inside = [p for p in points if p.latencies_ms["ttft"]["mean"] <= limit_ms * (1 + 1e-9)]
    assert (plan.choice is None) == (not inside)
    assert len(plan.candidates) + len(plan.rejected) == len({(p.tp, p.precision) for p in points})
    if plan.choice is not None:
        best = max((p.requests_s or 0) * 8 / p.tp for p in inside)
        fewest = max(1, math.ceil(round(peak / best, 9)))
        assert plan.choice.systems == fewest
        assert plan.choice.systems_exact == pytest.approx(peak / best)
        assert plan.choice.utilisation <= 1 + 1e-9


def sized(points: list[MeasuredPoint], limit_ms: float, peak: float) -> Plan:
    metric: LimitMetric = "ttft"
    statistic: Statistic = "mean"
    limit = Limit(metric=metric, statistic=statistic, seconds=limit_ms / 1e3)
    return size_measured(points, MeasuredQuestion(demand=demand_of(peak_rps=peak), slo=(limit,)))


def test_what_a_format_costs_depends_on_how_the_model_is_published() -> None:
    fp8, model = find_precision("fp8"), find_model("deepseek-v3")
    native = accuracy_and_calibration(fp8, model.released)
    assert _published("fp8", "deepseek-v3") == native
    assert _published("fp8", "") == accuracy_and_calibration(fp8, "") != native
    assert _published("fp3", "deepseek-v3") == _published("fp8", "nobody") == ("", "")
