from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.in_turn import in_turn
from tonnage.cli.main import run
from tonnage.cli.printing import today
from tonnage.page.fields import command_of, query_of, question_of, tokens_of
from tonnage.page.worker import Jobs

ONE = "gpu=h100-sxm-80gb&precision=fp8&tp=1&engine=vllm"
CHAT = f"model=llama-3.1-8b&isl=1000&osl=100&{ONE}"

QUESTIONS = (
    f"{CHAT}&peak_rps=100&ttft=p95<=500ms&tpot=p95<=50ms",
    f"{CHAT}&peak_rps=130&ttft=p95<=500ms&tpot=p95<=50ms",
    f"{CHAT}&peak_rps=100&ttft=p95<=200ms&tpot=p95<=20ms",
    f"{CHAT}&peak_rps=100&ttft=p95<=500ms&confidence=95&spare=1",
    f"{CHAT}&users=5000&requests_per_user_day=30&peak_factor=3&itl=p99<=100ms",
    f"{CHAT}&mean_rps=20&peak_percentile=95&e2e=p95<=10s&mode=sequential&growth=5%25/month",
    f"{CHAT}&peak_rps=40&have=1xdgx-h100&ttft=p95<=1s&where=on-prem,cloud",
    f"{CHAT}&requests=100000&within=8h",
    "model=gpt-j-6b&isl=900&osl=99&peak_rps=9&ttft=p95<=1s&gpu=l40s&precision=fp16&tp=1&engine=tensorrt-llm&seed=3",
    f"{CHAT}&use_case=chatbot&peak_rps=60&title=Chat",
    f"{CHAT}&classes=chat:peak_rps=40,ttft=p95<=1s%0Abatch:peak_rps=9,osl=300,e2e=p95<=30min",
    f"{CHAT}&peak_rps=100&ttft=p95<=1s&growth=5%25/month&horizon=24&price_decay=20%25",
)
"""The last of a turn meets the runs of those before it."""


@pytest.fixture(scope="module")
def jobs() -> Jobs:
    return Jobs(lambda said: None, lambda: True)


@pytest.mark.parametrize("query", in_turn(QUESTIONS, one_of=5))
def test_the_plan_is_that_of_the_command(
    query: str, jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = question_of(query)
    assert question_of(query_of(asked)) == asked
    tokens = [*tokens_of(asked)]
    monkeypatch.setattr(sys, "argv", ["tonnage", *tokens])
    assert run([*tokens, "--output", str(tmp_path / "plan.json"), "--quiet"]) in (0, 3)
    found = jobs.size(arguments=asked, command=command_of(asked), today=today().isoformat())
    assert found == (tmp_path / "plan.json").read_text(encoding="utf-8")
