"""``score`` and ``simulate`` run the same engine: the figures of drawn rows are equal to the last
bit."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import pytest

import tonnage
from tests.in_turn import in_turn
from tonnage.errors import DoesNotFit, InputError
from tonnage.evidence.predict import (
    decoding,
    joules_per_token,
    open_loop,
    predict,
    read_point,
    reported_metrics,
    static_latencies_s,
    static_peak_bytes,
    workload_of,
)
from tonnage.perf.step import step_seconds
from tonnage.perf.terms import step_model
from tonnage.spec.workload import OpenLoop

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


ROW: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm-80gb",
    "precision": "fp8",
    "engine": "vllm",
    "tp": 1,
    "isl": 1_000,
    "osl": 100,
}


def test_a_point_has_what_its_row_says_and_the_usual_for_the_rest() -> None:
    point = read_point(ROW | {"concurrency": 6})
    assert (point.isl, point.osl, point.concurrency) == (1_000, 100, 6)
    assert point.batch is point.request_rate is point.in_flight is None
    assert point.requests is point.window_s is point.drawn is None
    assert (point.burstiness, point.cached_share, point.served) == (1.0, 0.0, False)
    assert (point.load, point.ranks) == ("closed", 1)
    full = read_point(
        ROW
        | {"request_rate": 3.0, "burstiness": 0.5, "in_flight": 9, "requests": 70}
        | {"window_s": 20.0, "ttft_ms": 5.0, "range_ratio": 0.5}
    )
    assert (full.request_rate, full.burstiness, full.in_flight) == (3.0, 0.5, 9)
    assert (full.requests, full.window_s, full.served, full.load) == (70, 20.0, True, "open")
    assert [(lengths.mean, lengths.longest) for lengths in full.drawn or ()] == [
        (750, 1_000),
        (75, 100),
    ]
    batch = read_point(ROW | {"batch": 4})
    assert (batch.load, batch.deployment.knobs.scheduler) == ("static", "static")
    assert batch.deployment.knobs.max_num_tokens >= 4_000
    assert read_point({**ROW, "engine": None, "concurrency": 1}).deployment.engine


@pytest.mark.parametrize(
    ("burstiness", "process", "cv"),
    [(1.0, "poisson", 1.0), (0.25, "gamma", 2.0), (4.0, "gamma", 0.5), (math.inf, "constant", 0.0)],
)
def test_the_burstiness_of_a_client_is_the_shape_of_its_gaps(
    burstiness: float, process: str, cv: float
) -> None:
    loop = open_loop(7.0, burstiness=burstiness, in_flight=3)
    assert (loop.rate, loop.process, loop.in_flight) == (7.0, process, 3)
    assert loop.cv == pytest.approx(cv, abs=1e-4)


def workload(**row: Any) -> Any:
    point = read_point(ROW | row)
    return workload_of(point, step_model(point.deployment), turnaround_s=0.01)


def test_a_prefix_in_the_cache_is_a_session_that_begins_with_it() -> None:
    cached = workload(concurrency=4, requests=8, cached_share=0.3)
    assert (cached.isl.mean, cached.sessions.prefix_tokens) == (700, 300)
    assert (cached.osl.mean, cached.requests) == (100, 8)
    most = workload(concurrency=4, requests=8, cached_share=1.0)
    assert (most.isl.mean, most.sessions.prefix_tokens) == (1, 999)
    for share in (0.0, 0.0004):
        assert workload(concurrency=4, requests=8, cached_share=share).sessions is None
    for refused in (
        {"range_ratio": 0.5},
        {"dp": 2},
        {"in_flight": 3, "concurrency": None, "request_rate": 1.0},
    ):
        with pytest.raises(InputError, match="cached_share: is simulated for prompts of one"):
            workload(**{"concurrency": 4, "requests": 8, "cached_share": 0.3} | refused)


def test_loads_have_as_many_requests_as_benchmarks_send() -> None:
    assert workload(concurrency=6).requests == 60
    assert workload(concurrency=6, requests=7).requests == 7
    assert workload(concurrency=6).arrivals.turnaround_s == 0.01
    assert [workload(request_rate=rate).requests for rate in (1.0, 20.0, 500.0)] == [
        1_000,
        1_200,
        20_000,
    ]
    assert workload(request_rate=2.0, requests=5).requests == 5
    alone = static_latencies_s(
        step_model(read_point(ROW | {"concurrency": 1}).deployment), 1, 1_000, 100
    )[1]
    assert workload(concurrency=6, window_s=10.5 * alone).requests == 6 * (2 + 11)


def test_tokens_of_a_decode_pool_take_a_step_of_all_its_clients() -> None:
    """Six clients: 1,000 tokens each and half of 99 further steps."""
    point = read_point(ROW | {"concurrency": 6})
    c = point.instance.step.coefficients
    seconds = step_seconds(c, 0, 0, 6, 0, 6 * 1_050)
    assert decoding(point) == {"itl_ms": pytest.approx(1e3 * seconds)}
    one = read_point({**ROW, "osl": 1, "concurrency": 1})
    assert decoding(one) == {"itl_ms": pytest.approx(1e3 * step_seconds(c, 0, 0, 1, 0, 1_001))}


def test_a_static_batch_has_its_metrics_in_every_unit() -> None:
    row = ROW | {"batch": 8, "osl": 50}
    point = read_point(row)
    ttft, e2e = static_latencies_s(step_model(point.deployment).in_process, 8, 1_000, 50)
    found = predict(point)
    assert found["ttft_ms"] == found["ttft_p99_ms"] == pytest.approx(1e3 * ttft)
    assert found["e2e_ms"] == found["e2e_p50_ms"] == pytest.approx(1e3 * e2e)
    assert found["itl_ms"] == found["tpot_p95_ms"] == pytest.approx(1e3 * (e2e - ttft) / 49)
    assert found["requests_s"] == pytest.approx(8 / e2e)
    assert found["output_tok_s"] == pytest.approx(8 * 50 / e2e)
    peak = static_peak_bytes(point.deployment, 8, 1_000, 50)
    assert found["peak_gpu_memory_gb"] == pytest.approx(peak / 1e9)
    assert len(found) == 3 + 4 * 5
    single = predict(read_point(row | {"osl": 1}))
    assert math.isnan(single["itl_ms"])
    assert single["e2e_ms"] == single["ttft_ms"]


def test_an_open_loop_is_poisson_and_has_no_cap_unless_its_row_says_so() -> None:
    assert open_loop(7.0) == OpenLoop(rate=7.0, process="poisson", cv=1.0, in_flight=0)
    assert workload(request_rate=3.0).arrivals == open_loop(3.0)
    assert workload(request_rate=3.0, in_flight=4, burstiness=0.25).arrivals == OpenLoop(
        rate=3.0, process="gamma", cv=2.0, in_flight=4
    )


def test_rows_of_old_engines_have_the_preset_of_their_load() -> None:
    """An engine whose only preset is that of static batches, under a load; a batch on any engine."""
    old = ROW | {"engine": "tensorrt-llm-0.9", "precision": "fp16"}
    loaded, static = read_point(old | {"concurrency": 1}), read_point(old | {"batch": 3})
    assert (loaded.deployment.engine, static.deployment.engine) == (
        "tensorrt-llm-0.10",
        "tensorrt-llm-0.9",
    )
    batch = read_point(ROW | {"batch": 50})
    assert (batch.deployment.knobs.scheduler, batch.deployment.knobs.max_num_tokens) == (
        "static",
        50_000,
    )
    knobs = batch.deployment.knobs
    given = read_point(ROW | {"concurrency": 2, "knobs": knobs, "max_batch_size": 7})
    assert given.deployment.knobs.max_num_tokens == 50_000
    assert given.deployment.knobs.scheduler == "static"


def test_ranks_answer_together_and_each_has_its_own_latencies() -> None:
    """Eight requests on four attention ranks: two each, and the rates are of all."""
    row = ROW | {"model": "gpt-oss-120b", "precision": "mxfp4", "dp": 4, "ep": 4, "batch": 8}
    found = predict(read_point(row))
    seconds = found["e2e_ms"] / 1e3
    assert found["requests_s"] * seconds == pytest.approx(8)
    assert found["output_tok_s"] * seconds == pytest.approx(800)
    rank = read_point(row).of_rank
    assert rank.batch == 2
    alone = static_latencies_s(step_model(rank.deployment).in_process, 2, 1_000, 100)
    assert found["e2e_ms"] == pytest.approx(1e3 * alone[1])


@pytest.mark.parametrize(
    ("load", "values", "sequences"),
    [
        ({"batch": 8}, {"output_tok_s": 200.0}, 8),
        ({"concurrency": 6}, {"output_tok_s": 200.0, "itl_ms": 99.0}, 6),
        # tokens/s times the seconds of a token are those that decode at once
        ({"request_rate": 2.0}, {"output_tok_s": 200.0, "itl_ms": 15.0}, 3.0),
        ({"request_rate": 2.0}, {"output_tok_s": 200.0}, None),
        ({"request_rate": 2.0}, {"output_tok_s": 200.0, "itl_ms": 0.0}, None),
        ({"batch": 8}, {"output_tok_s": 0.0}, None),
        ({"batch": 8}, {}, None),
    ],
)
def test_joules_of_a_token_are_the_watts_of_all_gpus_over_the_tokens(
    load: dict[str, Any],
    values: dict[str, float],
    sequences: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two GPUs of 300 W, and 200 tokens/s."""
    seen: list[dict[str, Any]] = []
    drawn: list[Any] = [SimpleNamespace(watts=300.0, low=0.9, high=1.2), None]

    def seen_load(**what: Any) -> tuple[str, float]:
        seen.append(what)
        return "step", 0.5

    monkeypatch.setattr("tonnage.evidence.predict.seen_load", seen_load)
    monkeypatch.setattr("tonnage.evidence.predict.draw", lambda *_, **__: drawn.pop(0))
    point = read_point(ROW | load | {"tp": 2})
    found = joules_per_token(point, values)
    if sequences is None:
        assert (found, seen) == (None, [])
        return
    assert found == pytest.approx((3.0, 2.7, 3.6))
    assert seen == [
        {
            "sequences": pytest.approx(sequences),
            "tokens_per_second": 200.0,
            "isl": 1_000,
            "osl": 100,
            "ranks": 1,
        }
    ]
    assert joules_per_token(point, values) is None  # nothing is known of the GPU's power
