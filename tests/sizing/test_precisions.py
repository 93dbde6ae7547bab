"""Predicted gains beside the published words: they agree in direction for dense models on every
kind of hardware."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.questions import question
from tonnage import api
from tonnage.errors import InputError
from tonnage.perf.memory import memory_plan, weight_bytes
from tonnage.perf.prediction_error import regime_of
from tonnage.report.facts import formats
from tonnage.report.plans.plan_document import full_text, report
from tonnage.report.writers.terminal import markdown, terminal
from tonnage.sizing.planner import size
from tonnage.sizing.precisions import (
    HIGH_FROM,
    NONE_BELOW,
    FormatGain,
    Work,
    _deployment,
    _fewest,
    _gain,
    _mean,
    _run_seconds,
    _seconds,
    band,
    format_gains,
    lacking,
)
from tonnage.spec.catalog import find_gpu, find_model, gpus
from tonnage.spec.catalog.accuracy import trade_offs
from tonnage.spec.hardware import Gpu
from tonnage.spec.precision import PRECISIONS

DENSE = [
    ("llama-3.1-70b", "h100-sxm-80gb"),
    ("llama-3.1-8b", "h100-sxm-80gb"),
    ("llama-3.1-70b", "h200-sxm-141gb"),
    ("llama-3.1-70b", "a100-sxm-80gb"),
    ("llama-2-7b", "a100-sxm-80gb"),
    ("llama-3.1-8b", "l40s"),
    ("llama-3.1-70b", "b200-sxm-180gb"),
    ("llama-3-8b", "t4"),
]
TABLE = {
    "fp8": ("medium", "medium", "very low", "minutes"),
    "int8-sq": ("medium", "medium", "medium", "minutes"),
    "int8-wo": ("medium", "none", "low", "none"),
    "int4-wo": ("high", "none", "high", "none"),
    "awq": ("high", "none", "low", "tens of minutes"),
    "gptq": ("high", "none", "low", "tens of minutes"),
    "w4a8": ("high", "medium", "low", "tens of minutes"),
}


def gains(model: str, gpu: str, engine: str = "tensorrt-llm-0.15") -> dict[str, FormatGain]:
    return {
        one.precision.name: one for one in format_gains(find_model(model), find_gpu(gpu), engine)[1]
    }


def test_the_format_that_a_model_is_published_in_costs_nothing() -> None:
    """DeepSeek's FP8 stood there with a minute of calibration."""
    _, found = format_gains(find_model("deepseek-r1"), find_gpu("h200"), "vllm", tp=8)
    by_name = {one.precision.name: one for one in found}
    assert [name for name, one in by_name.items() if one.native] == ["fp8"]
    base, dense = format_gains(find_model("llama-3.1-8b"), find_gpu("h200"), "vllm", tp=1)
    assert not any(one.native for one in dense)
    text = terminal(
        formats(*format_gains(find_model("deepseek-r1"), find_gpu("h200"), "vllm", tp=8))
    )
    (row,) = [line for line in text.splitlines() if line.startswith("fp8 ") and "none" in line]
    assert row.split()[-2:] == ["none", "none"]
    (calibrated,) = [
        line
        for line in terminal(formats(base, dense)).splitlines()
        if line.startswith("fp8 ") and "very low" in line
    ]
    assert calibrated.endswith("minutes")


def test_the_table_is_the_published_one() -> None:
    for name, words in TABLE.items():
        (said,) = trade_offs(PRECISIONS[name])
        assert (said.gain_small, said.gain_large, said.accuracy_impact, said.calibration) == words


@pytest.mark.parametrize(("model", "gpu"), DENSE)
def test_gains_agree_with_the_published_words_and_those_of_weights_alone_fall_with_the_batch(
    model: str, gpu: str
) -> None:
    found = gains(model, gpu)
    ran = {
        name: (one.small, one.large)
        for name, one in found.items()
        if name in TABLE and not one.lacks
    }
    assert ran == {name: TABLE[name][:2] for name in ran}
    assert {"int8-wo", "int4-wo", "awq", "gptq", "int8-sq"} <= set(ran)
    for name, one in found.items():
        if one.gain is None:
            continue
        runs, tokens = (list(values.values()) for values in (one.gain.run, one.gain.token))
        if name in {"int8-wo", "int4-wo", "int4-g32", "awq", "gptq"}:
            assert runs == sorted(runs, reverse=True)
            assert tokens == sorted(tokens, reverse=True)
            assert one.gain.prompt <= 1.01
            assert runs[-1] < 1.1
        else:
            assert min(runs) > NONE_BELOW or name == "mxfp4"


def test_what_cannot_run_says_why_and_has_no_gain() -> None:
    found = gains("llama-3.1-8b", "a100-sxm-80gb", "nim-2024")
    assert found["fp8"].lacks == "Ampere has no FP8 matrix units"
    assert found["mxfp4"].lacks == "nim-2024 has no mxfp4"
    assert (found["fp8"].gain, found["fp8"].small, found["fp8"].marks) == (None, None, ())
    assert found["fp8"].weight_gb > 0


OF_EACH_KIND = {(gpu.vendor, gpu.arch): gpu.name for gpu in gpus()}.values()


@pytest.mark.parametrize(
    "gpu",
    [
        pytest.param(
            gpu, marks=() if gpu.name in OF_EACH_KIND else pytest.mark.accuracy, id=gpu.name
        )
        for gpu in gpus()
    ],
)
def test_every_gpu_can_be_asked(gpu: Gpu) -> None:
    base, gains = format_gains(find_model("llama-3.2-1b"), gpu, "vllm", tp=1)
    assert base.parallelism.tp == 1
    assert [gain.precision.name for gain in gains if not gain.lacks]
    assert all(gain.gain is not None for gain in gains if not gain.lacks)


@pytest.mark.parametrize(
    ("gain", "word"),
    [
        (NONE_BELOW - 0.01, "none"),
        (NONE_BELOW, "medium"),
        (1.49, "medium"),
        (1.5 * HIGH_FROM, "high"),
        (0.5, "none"),
    ],
)
def test_bands(gain: float, word: str) -> None:
    assert band(gain, 1.5) == word


def test_a_plan_says_what_its_format_costs() -> None:
    """In the answer, in JSON and in the report."""
    plan = size(replace(question(precision="awq", tp="1", ttft=None), deepen=False))
    assert (plan.choice.accuracy_impact, plan.choice.calibration) == ("low", "tens of minutes")
    said = " ".join(terminal(full_text((plan,))).split())
    assert "awq: accuracy impact low, calibration tens of minutes, longer for larger models" in said
    assert any("format awq not fitted" in mark for mark in plan.choice.marks)
    document = plan.to_json()
    assert document["choice"]["accuracy_impact"] == "low"
    written = markdown(report(plan))
    assert (
        "awq: accuracy impact low, calibration tens of minutes, longer for larger models" in written
    )


def test_every_format_can_be_asked_for_at_once() -> None:
    assert {one.name for one in question(precision="all").precisions} == set(PRECISIONS) - {"bf16"}


def test_intervals_know_which_formats_were_measured() -> None:
    def known(precision: str) -> bool:
        d = api.deployment_of(
            model="llama-3-8b", gpu="h100-sxm-80gb", precision=precision, tp=1, engine="nim-2024"
        )
        return regime_of(d, isl=2000, osl=200, clients=8).known_format

    assert [known(name) for name in ("fp16", "bf16", "fp8", "fp8+kv-fp16")] == [True] * 4
    assert not any(known(name) for name in ("awq", "int8-sq", "w4a8", "fp8+2:4"))


@pytest.mark.parametrize(
    ("model", "gpu"),
    [("llama-3.1-8b", "h100-sxm-80gb"), ("llama-3.1-70b", "h100-sxm-80gb"), ("qwen3-32b", "l40s")],
)
def test_formats_are_compared_on_the_fewest_gpus_that_hold_64_requests(
    model: str, gpu: str
) -> None:
    def holds(tp: int) -> bool:
        wide = _deployment(find_model(model), find_gpu(gpu), "vllm", "fp16", tp)
        try:
            return memory_plan(wide).concurrent_requests(2_048, 128) >= 64
        except InputError:
            return False

    base = _deployment(find_model(model), find_gpu(gpu), "vllm", "fp16", 1)
    fewest = next(tp for tp in (1, 2, 4, 8) if holds(tp))
    assert _fewest(base).parallelism.tp == fewest


def test_a_model_that_fits_nowhere_is_compared_on_the_most() -> None:
    base = _deployment(find_model("llama-3.1-405b"), find_gpu("l4"), "vllm", "fp16", 1)
    assert _fewest(base).parallelism.tp == 8


def test_the_mean_of_gains_is_geometric() -> None:
    assert _mean({1: 2.0, 4: 8.0, 16: 9.0}, (1, 4)) == pytest.approx(4.0)
    assert _mean({1: 2.0, 4: 8.0, 16: 9.0}, (16,)) == pytest.approx(9.0)
    slow = Work(token={1: 6.0, 4: 8.0}, run={1: 9.0}, prompt=10.0)
    fast = Work(token={1: 3.0, 4: 2.0}, run={1: 6.0}, prompt=4.0)
    assert slow.over(fast) == Work(token={1: 2.0, 4: 4.0}, run={1: 1.5}, prompt=2.5)


def test_formats_are_compared_on_as_many_gpus_as_are_asked_for() -> None:
    """On 80 GB a model of 70 billion parameters takes four GPUs in 16 bits."""
    model, gpu = find_model("llama-3.1-70b"), find_gpu("h100-sxm-80gb")
    fewest, _ = format_gains(model, gpu, "vllm")
    assert fewest.parallelism.tp == _fewest(fewest).parallelism.tp == 4
    asked, found = format_gains(model, gpu, "vllm", tp=8)
    assert (asked.parallelism.tp, asked.precision.name) == (8, "fp16")
    assert [one.precision.name for one in found] == [
        *(name for name in PRECISIONS if name not in ("fp16", "bf16")),
        "fp8+2:4",
    ]
    by_name = {one.precision.name: one for one in found}
    assert by_name["fp8"].weight_gb == weight_bytes(_deployment(model, gpu, "vllm", "fp8", 8)) / 1e9
    assert by_name["fp8"].weight_gb == pytest.approx(70.55 / 8, rel=0.05)
    assert by_name["awq"].weight_gb < by_name["fp8"].weight_gb
    assert by_name["fp8"].generations == tuple(
        dict.fromkeys(one.arch for one in gpus() if one.supports(PRECISIONS["fp8"]))
    )
    assert not by_name["fp8+2:4"].native
    assert by_name["fp8"].published == trade_offs(PRECISIONS["fp8"])
    sparse = by_name["fp8+2:4"].precision
    assert sparse.sparse
    assert by_name["fp8+2:4"].published == trade_offs(sparse)


def test_gains_are_ratios_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 1 ms for each prompt token and 1 s for a decode step with its batch; 2,048 prompt
    tokens are a step of their own up to 4,096."""
    calls: list[tuple[int, ...]] = []

    def seconds(c: Any, *counts: int) -> float:
        calls.append(counts)
        return c * (counts[0] / 1e3 + (counts[2] > 0))

    monkeypatch.setattr("tonnage.sizing.precisions.step_seconds", seconds)
    # two prompts a step: of five there are three steps, and then 127 steps of all
    assert _run_seconds(1.0, 5, 4_100) == pytest.approx(5 * 2.048 + 127)  # type: ignore[arg-type]
    square = 2_048 * 2_048
    assert [counts[:3] for counts in calls[:3]] == [(4_096, 2, 0), (4_096, 2, 0), (2_048, 1, 0)]
    assert [counts[3] for counts in calls[:3]] == [2 * square, 2 * square, square]
    assert calls[3] == (0, 0, 5, 0, 5 * 2_049)
    assert calls[-1] == (0, 0, 5, 0, 5 * (2_048 + 127))
    assert len(calls) == 3 + 127
    calls.clear()
    assert _run_seconds(1.0, 2, 100) == pytest.approx(2 * 2.048 + 127)  # type: ignore[arg-type]
    assert [counts[:2] for counts in calls[:2]] == [(2_048, 1), (2_048, 1)]
    calls.clear()
    deployment = SimpleNamespace(knobs=SimpleNamespace(max_num_tokens=4_096))
    step = SimpleNamespace(coefficients=2.0)
    monkeypatch.setattr("tonnage.sizing.precisions.step_model", lambda of: step)
    work = _seconds(deployment)  # type: ignore[arg-type]
    batches = (1, 4, 16, 64)
    assert work == Work(
        token=dict.fromkeys(batches, 2.0),
        run={batch: pytest.approx(2 * (batch * 2.048 + 127)) for batch in batches},
        prompt=pytest.approx(2 * 2.048),
    )
    assert calls[:4] == [(0, 0, batch, 0, batch * 2_048) for batch in batches]
    assert calls[-1] == (2_048, 1, 0, square, 0)


@pytest.mark.parametrize("lacks", ["", "no units"])
@pytest.mark.parametrize("eights", [True, False])
def test_a_format_on_a_deployment(
    lacks: str, eights: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens of small batches are 2 and 8 times as fast, requests of large ones 1.1 times; 8 bits
    make 3 and 1.5 of these."""
    module = "tonnage.sizing.precisions"
    deployment = _deployment(find_model("llama-3.1-8b"), find_gpu("h100"), "vllm", "fp8", 1)
    small, large = (1, 4), (16, 64)
    work = Work(
        token={1: 2.0, 4: 8.0, 16: 0.5, 64: 0.5}, run={16: 1.1, 64: 1.1, 1: 9.0, 4: 9.0}, prompt=1.0
    )
    slow: Any = SimpleNamespace(over=lambda fast: work if fast == "fast" else None)
    eight = Work(token=dict.fromkeys(small, 3.0), run=dict.fromkeys(large, 1.5), prompt=1.0)
    monkeypatch.setattr(f"{module}.lacking", lambda of: lacks)
    monkeypatch.setattr(f"{module}._seconds", lambda of: "fast")
    monkeypatch.setattr(f"{module}.weight_bytes", lambda of: 8e9)
    monkeypatch.setattr(f"{module}.marks", lambda of: ("mark",))
    monkeypatch.setattr(f"{module}.unfitted_formats_of", lambda of: (("part", "source"),))
    monkeypatch.setattr(f"{module}.trade_offs", lambda of: ("published",))
    found = _gain(deployment, slow, eight if eights else None)
    assert (found.precision, found.lacks, found.weight_gb) == (deployment.precision, lacks, 8.0)
    assert found.published == ("published",)
    assert not found.native
    if lacks:
        assert (found.gain, found.small, found.large) == (None, None, None)
        assert found.marks == found.unfitted == ()
        return
    # 4 is more than 1.03 times 3, or than of itself not
    assert (found.gain, found.small, found.large) == (work, "high" if eights else "medium", "none")
    assert (found.marks, found.unfitted) == (("mark",), (("part", "source"),))


def test_what_a_format_lacks_is_of_the_gpu_or_of_the_engine() -> None:
    model = find_model("llama-3.1-8b")
    on = {
        gpu: lacking(_deployment(model, find_gpu(gpu), "nim-2024", "fp8", 1))
        for gpu in ("a100", "h100")
    }
    assert on == {"a100": "Ampere has no FP8 matrix units", "h100": ""}
    old = _deployment(model, find_gpu("b200"), "nim-2024", "mxfp4", 1)
    assert lacking(old) == "nim-2024 has no mxfp4"
    assert (NONE_BELOW, HIGH_FROM) == (1.2, 1.03)
    assert [band(gain, 2.0) for gain in (1.19, 1.2, 2.05, 2.06)] == [
        "none",
        "medium",
        "medium",
        "high",
    ]
