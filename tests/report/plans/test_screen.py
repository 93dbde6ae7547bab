"""The first screen: at most 40 lines at any width, the answer in it, a warning first where it is
not sure; and its lines one by one."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plan.plans import any_of, filled
from tests.report.example_plan import full, without_answer
from tonnage.cli.main import run
from tonnage.plan.candidate import Candidate, Confidence, Identity
from tonnage.plan.demand import Existing, Growth, OwnedGroup
from tonnage.plan.fleet import AtPeak, Autoscaling, BehindRouter, Standby
from tonnage.plan.horizon import Horizon
from tonnage.plan.limit import SATURATION, Bound, Breach, Limit
from tonnage.plan.notes import LengthToShorten, LimitHalvesThroughput, SmallerModel
from tonnage.plan.plan import Plan, RunnerUp
from tonnage.plan.reason import CannotRun, Reachable, Reached, rejected
from tonnage.plan.sensitivity import (
    Changed,
    OtherSystems,
    PrefixCache,
    RelaxedLimit,
    Sensitivity,
    Swing,
    Unreached,
)
from tonnage.report.document import Table, Text
from tonnage.report.plans.candidates import others_block
from tonnage.report.plans.confidence import chance_text, confidence_text, not_sure_text
from tonnage.report.plans.explained import riskiest_text
from tonnage.report.plans.fleet import router_text
from tonnage.report.plans.plan_document import full_text
from tonnage.report.plans.question import at_peak_text
from tonnage.report.plans.screen import BRIEF, MOST, answer_rows, brief_lines, quiet_lines, screen
from tonnage.report.writers.terminal import terminal
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
TPOT = Limit(metric="tpot", statistic="p95", milliseconds=50.0)
OTHER = Identity(gpu="h100-sxm-80gb", precision="fp8", tp=8, engine="tensorrt-llm")
TAIL = Unreached(
    confidence=0.95,
    step_factor=1.38,
    alone=Breach(limit=TPOT, value_ms=61.2),
    other=OtherSystems(deployment=OTHER, system="dgx-h100", systems=11, gpus=88),
    relaxed=RelaxedLimit(limit=TPOT, to_ms=60.0, system="dgx-b200", systems=9, gpus=72),
)


def sized(confidence: Confidence = SURE) -> Plan:
    first, *rest = full().candidates
    return replace(
        full(),
        candidates=(replace(first, confidence=confidence, at_peak=PEAK, checked=True), *rest),
    )


def chosen(plan: Plan) -> Candidate:
    assert plan.choice is not None
    return plan.choice


def written(plans: tuple[Plan, ...], columns: int, patch: pytest.MonkeyPatch) -> str:
    patch.setenv("COLUMNS", str(columns))
    return terminal(screen(plans))


def check(plans: tuple[Plan, ...], columns: int, patch: pytest.MonkeyPatch) -> None:
    """The first screen is short and narrow enough, and holds the answer of every plan that it has a
    line for."""
    lines = written(plans, columns, patch).splitlines()
    assert len(lines) <= MOST
    assert max(map(len, lines)) <= min(columns, 110)
    words = " ".join(" ".join(lines).split())
    for plan in plans[:1]:
        if plan.choice is None:
            assert "no deployment" in words
        elif not plan.demand.of_existing:
            assert f"{plan.choice.systems:,} × {plan.choice.pools[0].system}" in words
            assert f"{plan.choice.gpus:,} GPU" in words
        unsure = not_sure_text(plan)
        if unsure:
            before = words.partition("× " + chosen(plan).pools[0].system)[0]
            assert (
                "Nothing that was asked for reaches" in before
                or "No number of these systems reaches" in before
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


LIMIT = filled(Limit, milliseconds=st.floats(min_value=0.01, max_value=1e6))
NAMED = st.sampled_from(["h100-sxm-80gb", "rtx-pro-6000-blackwell-se", "b300-sxm-270gb"])
LONG = {
    float: st.floats(min_value=0.01, max_value=1e6),
    int: st.integers(1, 9_999),
    str: NAMED,
    Limit: LIMIT,
    Bound: st.one_of(st.just(SATURATION), st.builds(Bound, kind=st.just("limit"), limit=LIMIT)),
    Identity: filled(
        Identity,
        gpu=NAMED,
        precision=st.just("int4-g32+experts"),
        tp=st.integers(1, 8),
        engine=st.just("tensorrt-llm-1.2"),
    ),
}
"""Numbers and names as long as plans have them."""

WARNING = st.one_of(
    filled(LengthToShorten, LONG, change=st.just(-0.2)),
    any_of(LimitHalvesThroughput, LONG),
    any_of(SmallerModel, LONG),
)
GROUPS = st.lists(any_of(OwnedGroup, LONG), min_size=1, max_size=6).map(tuple)


PARTS = st.fixed_dictionaries(
    {
        "warnings": st.lists(WARNING, max_size=6).map(tuple),
        "tail": st.none() | filled(Unreached, LONG, confidence=st.sampled_from([0.5, 0.8, 0.95])),
        "routers": st.lists(any_of(BehindRouter, LONG), max_size=3).map(tuple),
        "runner_up": any_of(RunnerUp | None, LONG),
        "growth": any_of(Growth | None, LONG),
        "horizon": any_of(Horizon | None, LONG),
        "existing": st.none() | filled(Existing, LONG, groups=GROUPS),
        "prefix_cache": any_of(PrefixCache | None, LONG),
        "autoscaling": st.none() | filled(Autoscaling, fixed=st.none(), reason=st.just("no-rule")),
    }
)
STANDBY = any_of(Standby | None, LONG)
NEAR = st.lists(any_of(Reached, LONG), min_size=1, max_size=4).map(tuple)
REACHABLE = st.none() | filled(Reachable, best=NEAR, nearest=NEAR)


@st.composite
def plausible(draw: st.DrawFn) -> Plan:
    """The example with as much or as little as a plan may hold of what a first screen says."""
    first, *rest = many(draw(st.integers(0, 14)), draw(st.integers(0, 40)))
    first = replace(
        first, confidence=draw(st.sampled_from([SURE, UNSURE, None])), standby=draw(STANDBY)
    )
    found = replace(full(), candidates=(first, *rest), pareto=(), **draw(PARTS))
    return (
        found if draw(st.booleans()) else replace(found, candidates=(), reachable=draw(REACHABLE))
    )


@settings(deadline=None)
@given(plan=plausible())
def test_any_first_screen_has_at_most_forty_lines_and_the_answer(plan: Plan) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for columns in (80, 120):
            check((plan,), columns, patch)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("count", [2, 5, 20])
def test_of_several_models_each_has_a_line_as_far_as_there_is_room(
    count: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = tuple(
        replace(sized(), scenario=replace(sized().scenario, model=f"model-{i}"))
        for i in range(count)
    )
    text = written(plans, columns, monkeypatch)
    check(plans, columns, monkeypatch)
    shown = re.findall(r"^model-\d+ ", text, re.MULTILINE)
    assert "model-0 " in shown
    assert ("… and " in text) == (len(set(shown)) < count)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that has room for every line."""
    monkeypatch.setenv("COLUMNS", "120")


@pytest.mark.usefixtures("wide")
def test_every_form_has_the_same_lines() -> None:
    said = [" ".join(text.split()) for _, text in answer_rows(sized())]
    words = " ".join(terminal(full_text((sized(),))).split())
    assert [text for text in said if text not in words] == []
    first = " ".join(terminal(screen((sized(),))).split())
    assert [text for text in said if text not in first] == []
    brief = brief_lines((sized(),))
    assert [line[13:] for line in brief if line[:13].strip() in dict(answer_rows(sized()))] == [
        text
        for name, text in answer_rows(sized())
        if any(line.startswith(f"{name} ") for line in brief)
    ]


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


def test_the_peak_names_every_limited_statistic_beside_its_limit_and_the_mean_of_the_rest() -> None:
    limits = (
        Limit(metric="ttft", statistic="p95", milliseconds=500.0),
        Limit(metric="itl", statistic="p99", milliseconds=62.5),
    )
    assert (
        at_peak_text(PEAK, limits)
        == "TTFT p95 201 ms (limit 500), ITL p99 61.0 ms (limit 62.5), E2E mean 2,345 ms; 64% of"
        " capacity"
    )
    assert at_peak_text(PEAK, ()).endswith("E2E mean 2,345 ms; 64% of capacity")
    unmeasured = replace(PEAK, ttft_ms=Latencies())
    assert "TTFT" not in at_peak_text(unmeasured, limits)


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


def test_the_router_is_worth_what_a_plain_service_would_need() -> None:
    def behind(router: str, systems: int | None, p95: float) -> BehindRouter:
        return BehindRouter(
            router=router,
            systems=systems,
            **dict.fromkeys(("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms"), Latencies(p95=p95)),
        )

    own, text = behind("least-outstanding", 9, 201.0), "the answer counts on least-outstanding; "
    service = "a plain Kubernetes service (random choice)"
    assert (
        router_text((own, behind("random", 14, 400.0)), (), 9)
        == f"{text}{service} would need 14 systems in place of 9"
    )
    as_many = f"{text}{service} needs as many systems, at TTFT p95 230 ms in place of 201 ms"
    assert router_text((own, behind("random", 9, 230.0)), (), 9) == as_many
    assert (
        router_text((own, behind("random", None, 1.0)), (), 9)
        == f"{text}behind {service} no number of systems holds the limits"
    )
    assert router_text((), (), 9) == ""
    itself = (behind("random", 9, 230.0), behind("least-outstanding", 8, 201.0))
    assert (
        router_text(itself, (), 9)
        == "random choice, TTFT p95 230 ms at the peak; behind least-outstanding 201 ms (8 systems"
        " would do)"
    )


def test_brief_has_ten_lines_at_most_and_is_enough_to_act() -> None:
    lines = brief_lines((sized(),))
    assert len(lines) <= BRIEF
    text = "\n".join(lines)
    for word in (
        "Question",
        "Answer",
        "Confidence",
        "At the peak",
        "Cost",
        "Risk",
        "More",
        "FILE.html",
    ):
        assert word in text
    assert len(brief_lines((without_answer(),))) <= BRIEF
    assert "no deployment meets the limits" in "\n".join(brief_lines((without_answer(),)))


@pytest.mark.usefixtures("plans_of_this_run")
def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [
        "size",
        "--model",
        "llama-3.1-8b",
        "--isl",
        "500",
        "--osl",
        "50",
        "--peak-rps",
        "0.1",
        "--gpu",
        "h100",
        "--tp",
        "1",
    ]
    asked += ["--precision", "fp8", "--engine", "vllm", "--ttft", "p95<=1s"]
    assert run([*asked, "--brief"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= BRIEF
    assert run([*asked, "--json"]) == 0
    choice = json.loads(capsys.readouterr().out)["choice"]
    text = " ".join(lines)
    assert f"E2E mean {choice['at_peak']['e2e_ms']['mean']:.0f} ms" in text
    assert choice["launch"][:2] == ["vllm", "serve"]
    assert " ".join(choice["launch"]) in text
    assert run(asked) == 0
    first = capsys.readouterr().out
    assert len(first.splitlines()) <= MOST
    assert "--full prints every deployment" in first
    assert run([*asked, "--full", "--brief"]) == 2


def test_the_best_of_every_gpu_has_a_row_before_others_of_one_gpu_and_is_counted_where_there_is_no_room() -> (
    None
):
    first, *rest = many(6, 0)
    other = replace(first, pools=(replace(rest[0].pool, gpu="mi355x", systems=30),), at_peak=PEAK)
    plan = replace(full(), candidates=(first, *rest, other), pareto=(), rejected=())
    table = others_block(plan, 2)
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["rtx-pro-6000-blackwell-se", "mi355x"]
    far = others_block(
        replace(
            plan,
            candidates=(first, *rest, replace(other, pools=(replace(other.pool, systems=900),))),
        ),
        2,
    )
    assert isinstance(far, Table)
    assert "7,200 GPUs of mi355x would do" in far.note
    failed = rejected(
        replace(OTHER, gpu="l40s"), CannotRun(error="weights 594 GB do not fit 1 × 48 GB")
    )
    alone = replace(
        plan,
        candidates=(first,),
        rejected=(failed,),
        scenario=replace(plan.scenario, gpus=(first.pool.gpu, "l40s")),
    )
    assert others_block(alone) == Text(
        text="No answer on l40s: weights 594 GB do not fit 1 × 48 GB (fp8 TP 8 tensorrt-llm)."
    )
