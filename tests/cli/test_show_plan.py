"""The text of a plan: the golden text at the full width, and no line wider than the terminal at any."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.plan.candidates import candidate, plan_of
from tonnage.cli.show_plan import show_explanation, show_plan
from tonnage.cli.table import table, wrapped
from tonnage.plan.demand import Demand, DemandSource
from tonnage.plan.explanation import Explanation, StepTerm
from tonnage.plan.fleet_check import FleetCheck, FleetRun
from tonnage.plan.limit import Bound, Breach, Limit, LimitUse
from tonnage.plan.memory import MemoryPart
from tonnage.plan.note import RandomSplit
from tonnage.plan.reason import BrokenAtAnyLoad, PrecisionUnsupported, Reason
from tonnage.plan.rejected import Rejected
from tonnage.plan.sensitivity import Changed, Relaxed, Sensitivity, Swing
from tonnage.plan.warning import LimitHalvesThroughput
from tonnage.results.latencies import Latencies

GOLDEN = Path(__file__).parents[1] / "golden"
TPOT = Limit(metric="tpot", statistic="mean", milliseconds=40.0)
TTFT = Limit(metric="ttft", statistic="p95", milliseconds=500.0)
BINDS = Bound(kind="limit", limit=TPOT)

BEST = candidate(
    systems=5,
    systems_exact=4.806,
    requests_per_second_per_instance=21.5,
    saturation_requests_per_second_per_instance=37.5,
    concurrency_per_instance=134.0,
    utilisation=0.961,
    headroom_to_saturation=0.81,
    ttft_ms=Latencies(mean=104.0, p95=232.0, p99=305.0),
    itl_ms=Latencies(),
    tpot_ms=Latencies(mean=30.9),
    e2e_ms=Latencies(mean=6246.0, p95=8922.0),
    binds=BINDS,
    memory=(
        MemoryPart(part="weights", bytes_per_gpu=9_100_000_000, share=0.116),
        MemoryPart(part="activations", bytes_per_gpu=6_300_000_000, share=0.08),
        MemoryPart(part="reserve", bytes_per_gpu=1_000_000_000, share=0.013),
        MemoryPart(part="kv_cache", bytes_per_gpu=62_200_000_000, share=0.791),
    ),
    kv_tokens=949_376,
)
WIDE_INSTANCE = candidate(
    engine="vllm",
    tp=8,
    pp=2,
    systems=14,
    systems_exact=12.8,
    requests_per_second_per_instance=21.5,
    binds=BINDS,
    marks=("published start values",),
    ttft_ms=BEST.ttft_ms,
    tpot_ms=BEST.tpot_ms,
    e2e_ms=BEST.e2e_ms,
)
EXPLAINED = Explanation(
    requests_per_second_per_instance=21.5,
    step_seconds=0.0296,
    prefill_tokens=1274.0,
    decode_sequences=134.0,
    context_tokens=281_400.0,
    terms=(StepTerm(term="compute", seconds=0.0196, share=0.662), StepTerm(term="kv", seconds=0.01, share=0.338)),
    binds="compute",
    limits=(LimitUse(limit=TPOT, value_ms=39.6, used=0.99),),
    binding_limit=BINDS,
    front_end_busy=0.1,
)


def changed(change: float, systems: int | None, exact: float | None, reason: Reason | None = None) -> Changed:
    return Changed(change=change, systems=systems, systems_exact=exact, deployment=None, reason=reason)


NO_LOAD = BrokenAtAnyLoad(breach=Breach(limit=TPOT, value_ms=41.0))
SENSITIVE = Sensitivity(
    systems=5,
    systems_exact=4.806,
    swings=(
        Swing(input="isl", low=changed(-0.2, 4, 3.9), high=changed(0.2, 6, 5.77)),
        Swing(input="rate", low=changed(-0.2, 4, 3.845), high=changed(0.2, None, None, NO_LOAD)),
    ),
    relaxed=Relaxed(limit=TPOT, to_ms=52.0, systems=4, saved=1),
)


def run(systems: int, worst_ms: float | None = None) -> FleetRun:
    worst = None if worst_ms is None else Breach(limit=TPOT, value_ms=worst_ms)
    nothing = {f"{metric}_ms": Latencies() for metric in ("ttft", "itl", "tpot", "e2e")}
    instances = 8 * systems
    return FleetRun(
        systems=systems,
        instances=instances,
        simulated_instances=instances,
        split="random",
        requests=4_000,
        holds=worst is None,
        worst=worst,
        **nothing,
    )


FP8 = PrecisionUnsupported(subject="Ampere", lacks="no FP8 matrix units")
PLAN = plan_of(
    Demand(
        peak_requests_per_second=826.8,
        sizing_requests_per_second=826.8,
        source=DemandSource(kind="peak", requests_per_second=826.8),
    ),
    BEST,
    WIDE_INSTANCE,
    limits=(TTFT, TPOT),
    rejected=(
        Rejected(gpu="a100-sxm-80gb", precision="fp8", tp=1, engine="vllm", reason=FP8),
        Rejected(gpu="a100-sxm-80gb", precision="fp8", tp=2, engine="vllm", reason=FP8),
        Rejected(
            gpu="l40s",
            precision="fp16",
            tp=1,
            pp=4,
            engine="vllm",
            reason=BrokenAtAnyLoad(breach=Breach(limit=TTFT, value_ms=612.0)),
        ),
    ),
    notes=(RandomSplit(),),
    sensitivity=SENSITIVE,
    explain=EXPLAINED,
    warnings=(LimitHalvesThroughput(value=1.73, limit=TPOT, requests_per_second=21.5, requests_per_second_without=37.2),),
    fleet_check=FleetCheck(by_division=5, systems=5, runs=(run(5), run(4, 41.2))),
)


@pytest.mark.parametrize(
    ("busy", "said"),
    [
        (0.1, "requests that decode\n"),
        (0.43, "; the front end streams tokens 43% of the time\n"),
        (0.93, "93% of the time, which limits: --stream-interval, or a further API server, spares it\n"),
    ],
)
def test_a_busy_front_end_is_said(busy: float, said: str) -> None:
    shown = show_explanation(replace(PLAN, explain=replace(EXPLAINED, front_end_busy=busy)))
    assert said.replace("\n", " ") in " ".join(shown.split()) + " "


@pytest.fixture
def full_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")


@pytest.mark.usefixtures("full_width")
def test_text_is_the_golden_one() -> None:
    assert show_plan(PLAN, explain=True) + "\n" == (GOLDEN / "plan.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("columns", [40, 60, 72, 80, 100, 110, 200])
def test_no_line_is_wider_than_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = show_plan(PLAN, explain=True)
    assert max(map(len, text.splitlines())) <= min(columns, 110)
    assert "5 × dgx-h100" in text


def test_plan_without_an_answer_says_so_and_why() -> None:
    text = show_plan(replace(PLAN, candidates=(), sensitivity=None, explain=None, warnings=(), fleet_check=None))
    assert "no deployment meets the limits" in text
    assert "Ampere has no FP8 matrix units" in text
    assert "What would change" not in text


@pytest.mark.usefixtures("full_width")
def test_explanation_adds_up_and_names_the_limit() -> None:
    text = show_explanation(PLAN)
    assert "arithmetic of the layers' matrices, and activations  19.6    66%" in text
    assert "TPOT mean ≤ 40 ms  39.6   99%" in text


def test_table_leaves_out_and_folds_before_it_is_too_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    rows = [("name", "1234567890123", "a reason that is told in a good many words")]
    spared = table(("first", "number", "reason"), rows, spare=(1,))
    assert "1234567890123" not in spared
    assert "reason" in spared
    folded = table(("first", "number", "reason"), rows).splitlines()
    assert len(folded) > 3
    assert max(map(len, folded)) <= 40
    assert " ".join(" ".join(folded[2:]).split()) == "name 1234567890123 a reason that is told in a good many words"
    assert table(("a", "b"), [("x" * 60, "1")]).splitlines()[2].startswith("xxxx")


def test_paragraphs_fold_under_their_first_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert wrapped("one two three four five six seven eight nine", "· ", "  ") == "· one two three four five six seven\n  eight nine"
