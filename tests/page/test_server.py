from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import pytest

from tests.page.guarded import TOKEN
from tonnage.plan.plan import Plan
from tonnage.report.plans.candidates import reason_text

if TYPE_CHECKING:
    from starlette.testclient import TestClient


def test_a_scenario_of_aliases_is_refused_in_the_pages_own_process(client: TestClient) -> None:
    levels = [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 40)]
    bomb = "\n".join(["a0: &a0 [x]", *levels, "model: *a39", "demand: *a39"])
    headers = {"x-tonnage-token": TOKEN}
    assert client.put("/files/a.yaml", content=bomb.encode(), headers=headers).status_code == 201
    answer = client.get("/files/a.yaml/look")
    assert answer.status_code == 422
    assert "more than 500,000 values, counted with its aliases" in answer.text


def test_what_a_page_may_do_is_said_on_every_response(client: TestClient) -> None:
    for path in ("/size", "/static/page.js", "/nothing", "/api/v1/catalog?text=h100"):
        policy = client.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_scripts_in_names_are_words(client: TestClient) -> None:
    page = client.get(
        "/size",
        params={
            "title": "<script>alert(1)</script>",
            "model": '"><img src=x onerror=alert(1)>',
            "isl": "1",
        },
    ).text
    assert "<script>alert" not in page
    assert "<img" not in page
    faults = client.get(
        "/size/estimate",
        params={"model": "<script>alert(1)</script>", "isl": "1", "osl": "1", "peak_rps": "1"},
    ).text
    assert "<script>" not in faults
    assert "unknown model" in faults


def test_an_estimate_where_one_request_breaks_the_limit_says_what_the_answer_says(
    client: TestClient,
) -> None:
    question = {
        "model": "llama-3.1-8b",
        "gpu": "h100,l40s",
        "precision": "fp8",
        "tp": "1",
        "engine": "vllm",
        "isl": "2000",
        "osl": "200",
        "peak_rps": "5",
    }
    estimate = client.get("/size/estimate", params={**question, "ttft": "p95<=20ms"}).text
    assert "No deployment meets the limits" in estimate
    assert "≈" not in estimate
    failed = re.findall(r"TTFT p95 [\d.]+ ms &gt; 20 ms", estimate)
    assert len(failed) == 2
    answer = client.get("/plan.json", params={**question, "ttft": "p95<=20ms"}).json()
    reasons = [reason_text(rejected.reason) for rejected in Plan.from_json(answer).rejected]
    assert sorted(reasons) == sorted(f"{html.unescape(text)} at any load" for text in failed)
    part = client.get("/size/estimate", params={**question, "ttft": "p95<=100ms"}).text
    assert re.search(r"≈ \d+ × dgx-h100", part)
    assert re.findall(r"TTFT p95 [\d.]+ ms &gt; 100 ms", part)


@pytest.mark.parametrize(
    "query",
    [
        "trace=/etc/passwd",
        "model=../../etc",
        "gpu=/etc/x.yaml",
        "prices=~/.aws",
        "frobnicate=1",
        "x" * 20_000,
    ],
)
def test_a_question_that_leads_out_is_refused(client: TestClient, query: str) -> None:
    said = client.get(f"/size/estimate?{query}")
    assert said.status_code == 200
    assert 'role="alert"' in said.text
    assert client.get(f"/plan.json?{query}").status_code == 422
