"""`tonnage mcp`: the tools and their schemas; and in the tier of notebooks the SDK's own client, which asks over a pipe."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tonnage.api.running.agents import QUESTIONS
from tonnage.spec.scenario_file import json_schema

ROOT = Path(__file__).parents[2]
SIZED = {
    "model": "llama-3.1-8b",
    "lengths": {"isl": 1000, "osl": 100},
    "demand": {"peak_rps": 300},
    "limits": {"ttft": "p95<=500ms"},
    "search": {"gpu": "h100", "precision": "fp8", "tp": 1, "engine": "vllm"},
}


def nobody(done: int, total: int, name: str) -> None:
    pass


def test_a_question_has_a_schema_and_answers_in_words_and_values() -> None:
    schema = QUESTIONS["size"].schema()
    schema["properties"].pop("full")
    assert schema == json_schema()
    pytest.importorskip("jsonschema")
    document, values = QUESTIONS["memory"].answer({"model": "llama-3.1-8b"}, nobody)
    assert document.sections
    assert values["kv_tokens"] > 100_000


async def asked(*calls: tuple[str, dict[str, Any]]) -> tuple[list[Any], list[Any], list[tuple[float, float | None]]]:
    """The tools, the answer of each call, and the progress that was told."""
    from mcp import Client, StdioServerParameters

    told: list[tuple[float, float | None]] = []

    async def progress(done: float, total: float | None, words: str | None) -> None:
        told.append((done, total))

    server = StdioServerParameters(command=sys.executable, args=["-m", "tonnage", "mcp"], env={"PYTHONPATH": str(ROOT / "src")})
    async with Client(server) as client:
        tools = (await client.list_tools()).tools
        answers = [await client.call_tool(name, arguments, progress_callback=progress) for name, arguments in calls]
    return tools, answers, told


@pytest.mark.notebooks
@pytest.mark.filterwarnings("default")
def test_the_sdks_client_sizes_and_reads_what_is_wrong() -> None:
    import asyncio

    import tonnage

    other = {**SIZED, "demand": {"peak_rps": 600}}
    tools, answers, told = asyncio.run(
        asked(
            ("size", SIZED),
            ("compare", {"first": SIZED, "second": other}),
            ("simulate", {"model": "llama-3.1-8b", "isl": 500, "osl": 50, "request_rate": 4, "requests": 50}),
            ("catalog", {"text": "l40s"}),
            ("size", {**SIZED, "model": "llama-99"}),
            ("simulate", {"model": "llama-3.1-8b", "users": 5}),
            ("quantise", {}),
        )
    )
    assert [tool.name for tool in tools] == list(QUESTIONS)
    sized, compared, simulated, found, unknown, wrong, missing = answers
    plan = tonnage.size(SIZED)
    assert sized.structured_content["plans"][0]["choice"]["systems_exact"] == plan.choice.systems_exact
    assert f"{plan.choice.systems} × {plan.choice.system}" in sized.content[0].text
    assert told
    assert "600" in compared.content[0].text
    assert simulated.structured_content["points"][0]["requests_per_second"] > 3
    assert "l40s" in found.content[0].text
    assert not any(answer.is_error for answer in answers[:4])
    assert all(answer.is_error for answer in answers[4:])
    assert "llama-99" in unknown.content[0].text
    assert "users" in wrong.content[0].text
    assert "the tools are size, simulate" in missing.content[0].text


@pytest.mark.notebooks
def test_python_runs_the_program_of_the_page(tmp_path: Path) -> None:
    from tests.test_docs import FILES

    (tmp_path / "tonnage").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT / "src"} exec {sys.executable} -m tonnage "$@"\n')
    (tmp_path / "tonnage").chmod(0o755)
    (tmp_path / "ask.py").write_text(FILES["ask.py"].replace('"tonnage"', json.dumps(str(tmp_path / "tonnage"))))
    done = subprocess.run([sys.executable, "ask.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
    assert "systems to buy" in done.stdout
