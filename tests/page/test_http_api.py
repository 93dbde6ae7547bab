"""``/api/v1`` answers as the command does, and takes nothing that it cannot answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.page.served import base_of
from tests.report.example_plan import full, without_answer
from tonnage import api
from tonnage.page.http_api import LARGEST_BODY, openapi
from tonnage.results.store import json_text
from tonnage.spec.scenario_file import json_schema


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=base_of(address), timeout=60) as found:
        yield found


def test_catalog_and_memory_are_those_of_the_command(client: httpx2.Client) -> None:
    assert client.get("/api/v1/catalog?text=h100").text == json_text(api.catalog("h100"))
    asked: dict[str, Any] = {"model": "llama-3.1-70b", "tp": 4}
    assert client.get("/api/v1/memory", params=asked).text == json_text(
        api.memory(**asked).to_json()
    )


def test_compare_says_what_two_plans_say_differently(client: httpx2.Client) -> None:
    found = client.post(
        "/api/v1/compare", json={"first": full().to_json(), "second": without_answer().to_json()}
    ).json()
    assert found["schema"] == "tonnage-diff/1"
    assert {"answer", "question"} & {one["part"] for one in found["differences"]}


def test_simulate_is_that_of_python_and_streams_its_progress(client: httpx2.Client) -> None:
    asked: dict[str, Any] = {
        "model": "llama-3.1-8b",
        "isl": 500,
        "osl": 20,
        "concurrency": "1,2",
        "requests": 40,
    }
    runs = json_text({"points": [run.to_json() for run in api.simulate_sweep(None, **asked)]})
    assert client.post("/api/v1/simulate", json=asked).text == runs
    streamed = client.post(
        "/api/v1/simulate", json=asked, headers={"accept": "text/event-stream"}
    ).text
    events = [part.split("\n", 1) for part in streamed.strip().split("\n\n")]
    assert {kind for kind, _ in events} == {"event: progress", "event: answer"}
    answer = "\n".join(line.removeprefix("data: ") for line in events[-1][1].splitlines())
    assert json.loads(answer) == json.loads(runs)


def test_size_streams_its_choice_before_what_would_change_it(client: httpx2.Client) -> None:
    asked = {
        "model": "llama-3.1-8b",
        "lengths": {"isl": 500, "osl": 50},
        "demand": {"peak_rps": 20},
        "search": {"gpu": "l40s"},
        "limits": {"ttft": "p95<=500ms"},
    }
    streamed = client.post("/api/v1/size", json=asked, headers={"accept": "text/event-stream"}).text
    events = [part.split("\n", 1) for part in streamed.strip().split("\n\n")]
    assert events[-1][0] == "event: answer"
    early, whole = (
        json.loads("\n".join(line.removeprefix("data: ") for line in said.splitlines()))
        for kind, said in events
        if kind in {"event: decided", "event: answer"}
    )
    assert not early["sensitivity"]
    assert whole["sensitivity"]
    for part in ("choice", "candidates", "fleet_check", "cost"):
        assert early[part] == whole[part]


REFUSED: list[tuple[str, Any]] = [
    ("size", {}),
    (
        "size",
        {"model": "no-such-model", "lengths": {"isl": 1, "osl": 1}, "demand": {"peak_rps": 1}},
    ),
    ("size", {"frobnicate": 1}),
    ("size", {"lengths": "x"}),
    ("size", {"model": {"a": [1]}, "lengths": {"isl": "/etc/passwd"}}),
    ("simulate", {"model": 3}),
    ("simulate", {"frobnicate": 1}),
    ("simulate", {"model": "llama-3.1-8b", "isl": [[]], "osl": {}}),
    ("simulate", {"scenario": 5, "model": "llama-3.1-8b"}),
    ("simulate", {"model": "llama-3.1-8b", "isl": -2.5e15}),
    (
        "simulate",
        {"model": "llama-3.1-8b", "isl": 50, "osl": 5, "request_rate": 4, "requests": "-1"},
    ),
    ("simulate", {"model": "llama-3.1-8b", "isl": 50, "osl": 5, "engine": "9" * 5_000}),
    (
        "simulate",
        {
            "model": "llama-3.1-8b",
            "isl": 50,
            "osl": 5,
            "scenario": {"search": {"engine": "vllm 0." + "9" * 5_000}},
        },
    ),
    ("compare", {"first": 1, "second": None}),
    ("compare", {}),
]


@pytest.mark.parametrize(("verb", "document"), REFUSED)
def test_what_cannot_be_used_is_said_in_lines(
    client: httpx2.Client, verb: str, document: Any
) -> None:
    said = client.post(f"/api/v1/{verb}", json=document)
    assert said.status_code == 422
    assert said.json()["errors"]


def test_a_body_that_is_no_object_or_too_large_is_refused(client: httpx2.Client) -> None:
    inner = (
        '{"a":' * 900 + "1" + "}" * 900,
        "[" * 900 + "]" * 900,
        '"\\ud800"',
        '"\\u001b[2J"',
        "9" * 6_000,
    )
    named = [
        f'{{"{name}": {text}}}'
        for text in inner
        for name in ("model", "demand", "first", "scenario")
    ]
    for path in ("size", "simulate", "compare"):
        for body in ("", "[]", "5", "{", "[" * 100_000, "x" * (LARGEST_BODY + 1), *inner, *named):
            answer = client.post(f"/api/v1/{path}", content=body)
            assert answer.status_code == 422, (path, body[:80])
            assert len(answer.content) < 10_000


def test_the_scenario_of_its_openapi_is_the_schema_of_the_command() -> None:
    scenario, known = openapi()["components"]["schemas"]["Scenario"], json_schema()
    assert scenario["properties"].keys() == known["properties"].keys()
    assert "#/$defs/" not in json.dumps(openapi())
