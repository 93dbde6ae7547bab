"""The text of a plan: the golden text at the full width, and no line wider than the terminal at any."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.cli.show_plan import show_explanation, show_plan
from tonnage.cli.table import table, wrapped
from tonnage.plan.former_candidate import Candidate, Rejected
from tonnage.plan.former_plan import Plan
from tonnage.sizing.demand import Demand
from tonnage.sizing.explain import Explanation, LimitUse, MemoryPart, StepTerm
from tonnage.sizing.fleet_check import FleetCheck
from tonnage.sizing.sensitivity import Changed, Relaxed, Sensitivity, Swing
from tonnage.sizing.warnings import Warned

GOLDEN = Path(__file__).parents[1] / "golden"
NONE = {"mean": None, "p50": None, "p90": None, "p95": None, "p99": None}

BEST = Candidate(
    gpu="h100-sxm-80gb",
    system="dgx-h100",
    gpus_per_system=8,
    precision="fp8",
    tp=1,
    pp=1,
    engine="tensorrt-llm",
    knobs=None,
    instances=40,
    systems=5,
    systems_exact=4.806,
    requests_per_second_per_instance=21.5,
    requests_per_second_per_gpu=21.5,
    requests_per_second_per_8_gpus=172.0,
    output_tokens_per_second_per_8_gpus=34_400.0,
    saturation_requests_per_second_per_instance=37.5,
    concurrency_per_instance=134.0,
    utilisation=0.961,
    headroom_to_saturation=0.81,
    ttft_ms={**NONE, "mean": 104.0, "p95": 232.0, "p99": 305.0},
    itl_ms=NONE,
    tpot_ms={**NONE, "mean": 30.9},
    e2e_ms={**NONE, "mean": 6246.0, "p95": 8922.0},
    binds="TPOT mean ≤ 40 ms",
    load="open loop, poisson arrivals at 21.5 requests/s",
    marks=(),
    memory="9.1 GB weights + 7.3 GB activations and reserve + 62.2 GB KV cache per GPU (949,376 tokens)",
)
WIDE_INSTANCE = replace(BEST, engine="vllm", tp=8, pp=2, systems=14, systems_exact=12.8, instances=7, marks=("published start values",))
EXPLAINED = Explanation(
    requests_per_second_per_instance=21.5,
    step_seconds=0.0296,
    prefill_tokens=1274.0,
    decode_sequences=134.0,
    context_tokens=281_400.0,
    terms=(
        StepTerm(term="compute", label="arithmetic of the layers' matrices", seconds=0.0196, share=0.662),
        StepTerm(term="kv", label="reading the KV cache", seconds=0.01, share=0.338),
    ),
    binds="compute",
    limits=(LimitUse(limit="TPOT mean ≤ 40 ms", value_ms=39.6, limit_ms=40.0, used=0.99),),
    binding_limit="TPOT mean ≤ 40 ms",
    front_end_busy=0.1,
    memory=(
        MemoryPart(part="weights", bytes_per_gpu=9_100_000_000, share=0.116),
        MemoryPart(part="KV cache", bytes_per_gpu=62_200_000_000, share=0.791),
    ),
)


def changed(change: float, systems: int | None, exact: float | None, reason: str = "") -> Changed:
    return Changed(change=change, systems=systems, systems_exact=exact, deployment="", reason=reason)


NO_LOAD = "TPOT mean 41 ms > 40 ms"
SENSITIVE = Sensitivity(
    systems=5,
    systems_exact=4.806,
    swings=(
        Swing(input="isl", label="input length", low=changed(-0.2, 4, 3.9), high=changed(0.2, 6, 5.77)),
        Swing(input="rate", label="requests per second", low=changed(-0.2, 4, 3.845), high=changed(0.2, None, None, NO_LOAD)),
    ),
    relaxed=Relaxed(limit="TPOT mean ≤ 40 ms", from_ms=40.0, to_ms=52.0, systems=4, saved=1, text="TPOT mean 40 → 52 ms: one system fewer"),
)
HALVED = "TPOT mean ≤ 40 ms halves the throughput: without it, 8 GPUs would carry 298 requests/s"
CHECKED = "40 instances on 5 systems, simulated together, hold every limit; one fewer does not (TPOT mean 41.2 ms > 40 ms)"
PLAN = Plan(
    scenario={"model": "llama-3-8b", "isl": "2000", "osl": "200", "limits": ["TTFT p95 ≤ 500 ms", "TPOT mean ≤ 40 ms"], "spare_systems": 0},
    demand=Demand(peak_requests_per_second=826.8, sizing_requests_per_second=826.8, how="826.8 requests/s at the peak, as given"),
    candidates=(BEST, WIDE_INSTANCE),
    rejected=(
        Rejected(gpu="a100-sxm-80gb", precision="fp8", tp=1, pp=1, engine="vllm", reason="Ampere has no FP8 matrix units"),
        Rejected(gpu="a100-sxm-80gb", precision="fp8", tp=2, pp=1, engine="vllm", reason="Ampere has no FP8 matrix units"),
        Rejected(gpu="l40s", precision="fp16", tp=1, pp=4, engine="vllm", reason="TTFT p95 612 ms > 500 ms at any load"),
    ),
    notes=(f"Fleet check: {CHECKED}.", "Each instance is sized on its own share of the arrivals, split at random."),
    percentile_answer=None,
    provenance={},
    sensitivity=SENSITIVE,
    explain=EXPLAINED,
    warnings=(Warned(rule="limit", text=HALVED, value=0.58, unit="share"),),
    fleet_check=FleetCheck(by_division=5, systems=5, runs=(), text=CHECKED),
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
    shown = show_explanation(replace(EXPLAINED, front_end_busy=busy))
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
    text = show_explanation(EXPLAINED)
    assert "arithmetic of the layers' matrices  19.6    66%" in text
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
