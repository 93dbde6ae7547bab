"""What a demonstration found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage.serve.demonstration import Beside, Demonstration, Failure

FAILURE = Failure(
    instance="instance-0", after_s=3.75, back_s=1.52, sent=180, completed=177, failed=3, retried=2, ttft_p95_ms=51.2
)  # fmt: skip

FOUND = Demonstration(
    fleet="4 × llama-3.1-8b",
    load="12 requests/s",
    requests=1234,
    beside=(
        Beside(metric="ttft_ms", predicted=41.0, measured=43.0),
        Beside(metric="tpot_ms", predicted=4.69, measured=4.70),
        Beside(metric="requests_per_second", predicted=12.0, measured=11.9),
    ),
    client="VALID",
    client_reasons=(),
    failure=FAILURE,
)


@pytest.mark.parametrize(
    ("metric", "predicted", "measured", "agrees"),
    [
        ("ttft_ms", 41.0, 44.9, True),  # 9.5 %, but less than 4 ms
        ("ttft_ms", 41.0, 45.1, False),
        ("ttft_ms", 1000.0, 1049.0, True),
        ("ttft_ms", 1000.0, 1051.0, False),
        ("tpot_ms", 10.0, 10.19, True),
        ("tpot_ms", 10.0, 10.21, False),
        ("tpot_ms", 10.0, 9.79, False),
        ("requests_per_second", 12.0, 11.7, False),
    ],
)
def test_what_agrees(metric: str, predicted: float, measured: float, agrees: bool) -> None:
    assert Beside(metric=metric, predicted=predicted, measured=measured).agrees is agrees


def test_one_metric_that_differs_decides() -> None:
    late = replace(
        FOUND,
        beside=(
            *FOUND.beside[:1],
            Beside(metric="tpot_ms", predicted=4.69, measured=6.0),
            *FOUND.beside[2:],
        ),
    )
    assert (FOUND.verdict, late.verdict) == ("agree", "differ")
    assert FOUND.to_json()["predicted"] == {
        "ttft_ms": 41.0,
        "tpot_ms": 4.69,
        "requests_per_second": 12.0,
    }
    assert late.to_json()["measured"]["tpot_ms"] == 6.0
