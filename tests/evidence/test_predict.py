"""``score`` and ``simulate`` run the same engine: the figures of drawn rows are equal to the last
bit."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tonnage
from tests.in_turn import in_turn
from tonnage.errors import DoesNotFit
from tonnage.evidence.predict import predict, read_point, reported_metrics

SPLITS = (
    {"tp": 8},
    {"tp": 2, "dp": 4, "ep": 8},
    {"tp": 1, "dp": 8, "ep": 8},
    {"tp": 4, "dp": 2, "ep": 1},
    {"tp": 4, "ep": 4},
)
MODELS = {
    "deepseek-r1": ("fp8", SPLITS),
    "gpt-oss-120b": ("mxfp4", (*SPLITS, {"tp": 1}, {"tp": 2})),
    "minimax-m2.5": ("fp8", (*SPLITS[:3], {"tp": 4})),
    "llama-3.1-8b": ("fp8", ({"tp": 1}, {"tp": 2})),
    "qwen3-32b": ("fp8", ({"tp": 2}, {"tp": 4})),
}
ENGINES = ("vllm", "vllm-0.12", "sglang", "sglang-0.5", "tensorrt-llm", "tensorrt-llm-1.1")
GPUS = ("h200-sxm-141gb", "b200-sxm-180gb", "h100-sxm-80gb")


def drawn_row(number: int) -> dict[str, Any]:
    draw = random.Random(number)
    model = draw.choice(list(MODELS))
    precision, splits = MODELS[model]
    row: dict[str, Any] = {
        "model": model,
        "gpu": draw.choice(GPUS),
        "precision": precision,
        "engine": ENGINES[number % len(ENGINES)],
    }
    row |= {"isl": draw.randint(1, 3000), "osl": draw.randint(2, 60)} | draw.choice(splits)
    if number % 3:
        clients = draw.randint(1, 80)
        return row | {"concurrency": clients, "requests": clients + draw.randint(1, 120)}
    return row | {"request_rate": draw.uniform(0.5, 20), "requests": draw.randint(2, 150)}


@pytest.mark.parametrize(("number", "twin"), in_turn(range(10), range(10)))
def test_score_gives_the_figures_of_simulate_to_the_last_bit(number: int, twin: int) -> None:
    row = drawn_row(10 * number + twin)
    try:
        scored = predict(read_point(row))
    except DoesNotFit:
        with pytest.raises(DoesNotFit):
            tonnage.simulate(**row)
        return
    assert scored == reported_metrics(tonnage.simulate(**row).requests)
    assert scored["output_tok_s"] > 0


@pytest.mark.parametrize(
    ("clients", "requests", "burst"),
    [(64, 64, True), (64, 9, True), (9, 9, True), (64, 8, False), (64, 65, False), (8, 8, False)],
)
def test_nine_requests_or_more_of_as_many_clients_are_a_burst(
    clients: int, requests: int, burst: bool
) -> None:
    row = drawn_row(1) | {"concurrency": clients, "requests": requests}
    assert read_point(row).at_once is burst
    rate = drawn_row(0) | {"requests": requests}
    assert not read_point(rate).at_once  # requests that come at a rate never are


def test_a_row_says_how_its_model_is_split_and_says_one_by_leaving_it_out() -> None:
    row = drawn_row(1) | {"tp": 4}
    split = {"pp": 2, "dp": 2, "ep": 8}
    for name, ways in split.items():
        parallelism = read_point(row | {name: ways}).deployment.parallelism
        assert {key: getattr(parallelism, key) for key in split} == {
            key: ways if key == name else 1 for key in split
        }


@pytest.mark.parametrize("engine", ENGINES)
def test_ranks_have_the_front_ends_of_their_engine_however_one_asks(engine: str) -> None:
    row = {
        "model": "deepseek-r1",
        "gpu": "b200-sxm-180gb",
        "precision": "fp8",
        "tp": 1,
        "dp": 8,
        "ep": 8,
        "engine": engine,
    }
    row |= {"isl": 100, "osl": 2, "concurrency": 8, "requests": 16}
    assert read_point(row).deployment.knobs == tonnage.simulate(**row).deployment.knobs
