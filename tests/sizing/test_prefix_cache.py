"""Sizing with prefix caches: what an instance is found to carry, held against ``simulate``, and
what must not depend on a cache."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tonnage
from tests.questions import plans_with, question
from tonnage.cli.main import run
from tonnage.errors import InputErrors
from tonnage.plan.plan import Plan
from tonnage.report.plans.fleet import prefix_cache_text
from tonnage.simulator.reference import Engine
from tonnage.simulator.shared_fleet import simulate_shared_fleet
from tonnage.sizing.loads.fleet_check import Replayed, fleet_record
from tonnage.sizing.loads.instance import Instance
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.shared_load import hit_rate, replayed
from tonnage.sizing.loads.trial import Ready
from tonnage.sizing.planner import size
from tonnage.sizing.question import Question
from tonnage.sizing.search.search_space import prepare
from tonnage.spec.lengths import Lengths

few_parts = plans_with("prefix_cache")


PREFIX: dict[str, Any] = {
    "tp": "1",
    "engine": "vllm",
    "isl": "exact:300",
    "osl": "40+-20%",
    "shared_prefix": 2_000,
    "ttft": "p95<=200ms",
}


CHAT: dict[str, Any] = {
    "tp": "1",
    "engine": "vllm",
    "isl": 200,
    "osl": 40,
    "turns": 6,
    "think_time": "exponential:20s",
    "ttft": "p95<=500ms",
}


def asked(**changed: Any) -> Question:
    return replace(question(**{"peak_rps": 100, **changed}), tune=False)


@cache
def planned(**changed: Any) -> Plan:
    return size(asked(**changed))


def instance_of(one: Question) -> Instance:
    return next(found.instance for found in prepare(one, Runs()) if isinstance(found, Ready))


@pytest.mark.accuracy
@pytest.mark.parametrize(
    "load", [pytest.param(PREFIX, id="prefix"), pytest.param(CHAT, id="conversations")]
)
def test_simulate_holds_the_limits_at_the_load_that_is_found_and_breaks_them_a_little_above(
    load: dict[str, Any],
) -> None:
    """``simulate`` draws its requests by itself and begins with an empty cache, so a tenth is left
    to the limits."""
    choice = planned(**load).choice
    rate, limit = choice.requests_per_second_per_instance, 200 if load is PREFIX else 500
    own = {name: value for name, value in load.items() if name not in ("ttft", "tp")}
    base: dict[str, Any] = {
        "model": "llama-3.1-8b",
        "gpu": "h100",
        "precision": "fp8",
        "tp": 1,
        "requests": 20_000,
        **own,
    }
    instances = 8 if load is PREFIX else 1

    def p95(factor: float) -> float:
        return tonnage.simulate(
            **base, request_rate=factor * rate * instances, instances=instances
        ).summary.statistic_ms("ttft", "p95")

    assert p95(0.98) <= 1.1 * limit
    assert p95(1.15) > limit


@pytest.mark.parametrize("counts", [(), pytest.param((60, 400), marks=pytest.mark.accuracy)])
def test_the_more_prompts_share_the_fewer_systems(counts: tuple[int, ...]) -> None:
    """Equally long prompts that draw one of fewer prefixes, first the only one, and at last no
    cache at all."""
    some = [planned(**PREFIX, shared_prefixes=count) for count in counts]
    plans = [planned(**PREFIX), *some, planned(**PREFIX, prefix_caching=False)]
    rates = [
        plan.choice.requests_per_second_per_instance for plan in plans if plan.choice is not None
    ]
    systems = [plan.choice.systems_exact for plan in plans if plan.choice is not None]
    assert len(rates) == len(counts) + 2
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 2 * rates[-1]
    assert systems == sorted(systems)


def test_whole_prompts_without_a_cache_are_prompts_as_long() -> None:
    shared, whole = (
        planned(**PREFIX, prefix_caching=False),
        planned(**{**PREFIX, "isl": "exact:2300", "shared_prefix": None}),
    )
    rate = whole.choice.requests_per_second_per_instance
    # other draws of the same load
    assert shared.choice.requests_per_second_per_instance == pytest.approx(rate, rel=0.08)
    assert shared.prefix_cache is None
    assert whole.prefix_cache is None
    with_cache = planned(**PREFIX).prefix_cache
    assert with_cache.without_requests_per_second_per_instance == pytest.approx(rate, rel=0.08)


def test_what_shares_nothing_is_the_question_without_a_cache(tmp_path: Path) -> None:
    assert question(turns=1) == question()
    lines = [
        {
            "timestamp": 100 * i,
            "input_length": 1_000,
            "output_length": 20,
            "hash_ids": [2 * i, 2 * i + 1],
        }
        for i in range(50)
    ]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = question(trace=str(trace), isl=None, osl=None, peak_rps=None)
    assert found.sharing is None
    assert found.recording.blocks == ()
    lines[7]["hash_ids"] = [0, 99]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    shared = question(trace=str(trace), isl=None, osl=None, peak_rps=None).sharing
    assert shared is not None
    best = shared.best(Lengths(mean=20))
    assert best.isl.mean == 1_000
    assert best.computed == pytest.approx(990)  # half of one prompt of 50


def test_a_recording_is_shared_out_by_its_prefixes_or_at_random(tmp_path: Path) -> None:
    """Conversations of ten requests, each a block longer than the one before: every instance but
    one has to compute it anew."""
    turns = [
        (i + 20 * turn, [1_000 * i + place for place in range(turn + 2)])
        for turn in range(10)
        for i in range(20)
    ]
    lines = [
        {"timestamp": 50 * at, "input_length": 512 * len(ids), "output_length": 10, "hash_ids": ids}
        for at, (_, ids) in enumerate(turns)
    ]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    base: dict[str, Any] = {
        "tp": "1",
        "engine": "vllm",
        "trace": str(trace),
        "isl": None,
        "osl": None,
        "peak_rps": None,
        "ttft": "p95<=3s",
    }
    kept, spread = (
        planned(**base, router="prefix-aware").prefix_cache,
        planned(**base, router="random").prefix_cache,
    )
    assert kept.hit_rate > 1.5 * spread.hit_rate > 0
    assert (kept.other_router, spread.other_router) == ("random", "prefix-aware")
    assert kept.other_hit_rate == pytest.approx(spread.hit_rate)


def one_prefix(path: Path, requests: int, prompt_blocks: int, output_tokens: int) -> Path:
    """Requests two a second, all of whose prompts begin with the same block and share nothing
    else."""
    lines = [
        {
            "timestamp": 500 * number,
            "input_length": 512 * prompt_blocks,
            "output_length": output_tokens,
            "hash_ids": [
                0,
                *(1 + prompt_blocks * number + place for place in range(1, prompt_blocks)),
            ],
        }
        for number in range(requests)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("prompt_blocks", "output_tokens", "rate"),
    [
        pytest.param(2, 101, 150.0, marks=pytest.mark.accuracy),  # as case 101
        (2, 20, 400.0),
        (4, 60, 200.0),
    ],
)
def test_a_prefix_of_all_prompts_does_not_send_them_to_one_instance(
    prompt_blocks: int, output_tokens: int, rate: float, tmp_path: Path
) -> None:
    """Prompts are shared out as by the router among plain engines, which sees real answers."""
    trace = one_prefix(tmp_path / "trace.jsonl", 600, prompt_blocks, output_tokens)
    traffic: dict[str, Any] = {
        "trace": str(trace),
        "mean_rps": rate,
        "isl": None,
        "osl": None,
        "peak_rps": None,
        "ttft": "p95<=500ms",
    }
    replay = asked(tp="1", engine="vllm", **traffic)
    assert replay.recording is not None
    instance, runs = instance_of(replay), Runs()
    estimated, _ = fleet_record(
        instance, rate, 8, "prefix-aware", replayed=Replayed(recording=replay.recording), runs=runs
    )
    whole = replayed(instance.traffic.sharing, rate, 0, len(estimated))
    engines = [instance.spec.plain_engine(contents=whole.contents) for _ in range(8)]
    record, chosen = simulate_shared_fleet(whole, engines, "prefix-aware")
    assert len(estimated) == len(whole)
    assert sorted(np.bincount(estimated.instance)) == pytest.approx(
        sorted(np.bincount(chosen)), rel=0.08
    )
    assert hit_rate(estimated) == pytest.approx(hit_rate(record), abs=0.01)
    plan = planned(tp="1", engine="vllm", **traffic)
    assert plan.choice is not None
    assert plan.choice.systems == 1


@pytest.mark.parametrize(
    ("prompt_blocks", "output_tokens"),
    [
        pytest.param(2, 101, marks=pytest.mark.accuracy),  # as case 100
        pytest.param(2, 20, marks=pytest.mark.accuracy),
        (4, 60),
    ],
)
def test_what_an_instance_carries_of_a_trace_does_not_depend_on_its_length(
    prompt_blocks: int, output_tokens: int, tmp_path: Path
) -> None:
    def carried(requests: int) -> float:
        trace = one_prefix(tmp_path / f"{requests}.jsonl", requests, prompt_blocks, output_tokens)
        plan = planned(
            tp="1",
            engine="vllm",
            trace=str(trace),
            isl=None,
            osl=None,
            peak_rps=None,
            ttft="p95<=500ms",
        )
        return float(plan.choice.requests_per_second_per_instance)

    assert carried(60) == pytest.approx(carried(600), rel=0.05)
    assert carried(600) == pytest.approx(carried(3_000), rel=0.08)


FIELD = Path(__file__).parents[3] / "shared" / "field" / "measuring"
"""Cases from the field, as their ``command.txt`` says."""


ON_H100 = ["--model", "llama-3.1-8b", "--gpu", "h100", "--precision", "fp8", "--engine", "vllm"]


def field_trace(name: str) -> Path:
    path = FIELD / name
    return path if path.exists() else pytest.skip("the cases from the field are not here")


def answer(capsys: pytest.CaptureFixture[str], *command: str) -> dict[str, Any]:
    assert run([*command, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_lengths_of_a_trace_from_the_field_have_one_capacity(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case 100: the capacities of 60 and 3,000 lines of one traffic agree within the interval."""
    lines = [
        json.loads(line) for line in field_trace("100/tr_len600.jsonl").read_text().splitlines()
    ]
    period, most = lines[-1]["timestamp"] + 500, max(max(line["hash_ids"]) for line in lines)
    longer = tmp_path / "3000.jsonl"
    again = (
        {
            **line,
            "timestamp": line["timestamp"] + turn * period,
            "hash_ids": [value and value + turn * most for value in line["hash_ids"]],
        }
        for turn in range(5)
        for line in lines
    )
    longer.write_text("".join(json.dumps(line) + "\n" for line in again))
    carried = []
    for trace in (field_trace("100/tr_len60.jsonl"), field_trace("100/tr_len600.jsonl"), longer):
        plan = answer(capsys, "size", *ON_H100, "--trace", str(trace), "--ttft", "p95<=500ms")
        carried.append(plan["choice"]["requests_per_second_per_instance"])
        assert plan["choice"]["pools"][0]["systems"] == 1
    # the interval of a capacity is wider
    assert carried == pytest.approx([carried[-1]] * 3, rel=0.1)


def test_a_fleet_behind_the_prefix_router_is_one_system_and_simulate_agrees(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Case 101."""
    load = [*ON_H100, "--tp", "1", "--trace", str(field_trace("101/tr_len600.jsonl"))]
    plan = answer(capsys, "size", *load, "--mean-rps", "150", "--ttft", "p95<=500ms")["choice"]
    (pool,) = plan["pools"]
    assert (pool["systems"], pool["system"], pool["instances"]) == (1, "dgx-h100", 8)
    simulated = answer(
        capsys,
        "simulate",
        *load,
        "--request-rate",
        "150",
        "--instances",
        "8",
        "--router",
        "prefix-aware",
    )
    assert simulated["requests"] == {"completed": 600, "rejected": 0, "unfinished": 0, "failed": 0}
    assert simulated["ttft_ms"]["p95"] < 500
    assert simulated["prefix_hit_rate"] == pytest.approx(0.5, abs=0.02)
    assert simulated["e2e_ms"]["mean"] == pytest.approx(plan["at_peak"]["e2e_ms"]["mean"], rel=0.1)


@pytest.mark.accuracy
def test_a_router_that_looks_at_the_load_finds_what_random_choice_finds() -> None:
    """Four instances behind least outstanding in the plain simulator, and as the compiled loop
    shares them out."""
    one = instance_of(asked(**{**CHAT, "osl": 8, "peak_rps": 40, "router": "least-outstanding"}))
    shared = one.shared
    trace = shared.trace(40.0, 6_000, 3, router="session", whole=True)
    engines = [
        Engine(one.step, one.knobs, one.memory.blocks, contents=trace.contents) for _ in range(4)
    ]
    looked, _ = simulate_shared_fleet(trace, engines, "least-outstanding")
    drawn = fleet_record(one, 40.0, 4)[0]
    late = looked.due_ns > np.percentile(looked.due_ns, 60)
    found = looked.cached_tokens[late].sum() / looked.isl[late].sum()
    assert hit_rate(drawn) == pytest.approx(found, abs=0.04)
    assert hit_rate(fleet_record(one, 40.0, 4, "session")[0]) > 1.5 * found


def test_a_plan_says_what_the_cache_finds_and_reads_it_again() -> None:
    plan = planned(**PREFIX)
    assert plan.prefix_cache.hit_rate == pytest.approx(2_000 / 2_300, abs=0.01)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    text = prefix_cache_text(plan.prefix_cache, plan.choice.systems)
    assert text.startswith(
        "87% of prompt tokens come from the cache behind least-outstanding; without a cache "
    )
    assert plan.scenario.shares == "2000 shared tokens"
    assert plan.scenario.mean_isl == 2_300


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"router": "session"}, "looks at what prompts share, and these share nothing"),
        ({"kv_tiers": "host=1GB@1GB/s"}, "these share nothing"),
        ({"turns": 3, "load": "closed"}, "conversations are sized as an open loop"),
        (
            {"turns": 3, "peak_rps": None, "requests": 1e6, "within": "1h", "ttft": None},
            "follow no other",
        ),
        ({"turns": 900}, "more than the context of"),
    ],
)
def test_what_cannot_be_sized_is_refused_in_one_line(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InputErrors, match=said) as refused:
        question(**changed)
    assert len(refused.value.lines) == 1
