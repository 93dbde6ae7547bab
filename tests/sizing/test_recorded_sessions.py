"""Recorded sessions sized: in the units of people, monotone in limits, memory and sessions, and
holding what the plan claims."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.questions import plans_with
from tonnage.api.running.plans import planned
from tonnage.api.sizing import ask, size
from tonnage.errors import InputErrors
from tonnage.formats.sessions import read_sessions
from tonnage.plan.notes import TiersNotStarted
from tonnage.plan.plan import Plan
from tonnage.report.plans.fleet import sessions_text
from tonnage.report.plans.notes import note_text
from tonnage.report.plans.plan_document import report
from tonnage.report.writers.terminal import markdown
from tonnage.sizing import planner
from tonnage.sizing.loads.instance import QUICK, SURE
from tonnage.sizing.loads.load_scan import worst_limit
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.search.search import Search

few_parts = plans_with("sessions", "explain")


GB = 10**9


ASKED = {"model": "llama-3.1-8b", "gpu": "h100", "precision": "fp8", "engine": "vllm", "tp": "1"}


LARGER = {**ASKED, "model": "llama-3.1-70b", "tp": "2"}
"""Its caches hold fewer sessions, which are simulated in half the time."""


def contender(path, runs, **more):
    question = ask(
        **ASKED, trace=path, **{"sessions": 300, "further_ttft": "p95<=800ms", **more}
    ).questions[0]
    return Search(question=question, runs=runs, rows=False).answer().best


def test_a_plan_says_sessions_systems_and_what_each_takes(sessions, tmp_path):
    plan = size(
        **LARGER,
        trace=sessions,
        engineers=400,
        share_active=0.2,
        further_ttft="p95<=800ms",
        slowdown="p90<=1.5",
    )
    held, best = plan.sessions, plan.choice
    assert held.at_once == 80
    assert best.systems * held.per_system >= held.at_once * (1 - 1e-9)
    assert (best.systems - 1) * held.per_system < held.at_once
    assert held.slowdown_p90 <= 1.5
    assert held.further_ttft_p95_ms <= 800
    assert 0.5 < held.hit_rate < 1
    recorded = read_sessions(sessions, "trace")
    assert held.requests == len(recorded.isl) / 16
    assert held.input_tokens == pytest.approx(recorded.isl.sum() / 16)
    assert Plan.from_json(plan.to_json()) == plan
    cache, host = held.tiers
    assert (cache.name, host.name, held.offloader) == (
        "KV cache",
        "host",
        "vllm",
    ), "the usual one of a DGX H100 with vLLM"
    assert host.bytes_per_instance == pytest.approx(0.8 * 2e12 / 4)
    assert host.per_system == held.per_system >= cache.per_system
    assert cache.systems >= best.systems
    assert best.pools[0].launch[-4:] == (
        "--kv-offloading-size",
        "372",
        "--kv-offloading-backend",
        "native",
    )
    assert not any(isinstance(note, TiersNotStarted) for note in plan.notes)
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json()))
    served = planned(tmp_path / "plan.json")
    # of copies, only the rest adds to the cache
    beyond = host.bytes_per_instance / cache.bytes_per_instance - 1
    tokens = [tier.blocks * served.deployment.knobs.tokens_per_block for tier in served.tiers]
    assert tokens == [pytest.approx(best.pools[0].kv_tokens * beyond, rel=1e-3)]
    words = "host memory (vllm, 400 GB at 111 GB/s an instance)"
    assert f"{words} adds nothing to {held.per_system:.1f} a system" in sessions_text(plan)
    fewer = replace(cache, per_system=0.8 * held.per_system, systems=best.systems + 1)
    text = sessions_text(replace(plan, sessions=replace(held, tiers=(fewer, host))))
    assert (
        f"{words} raises {fewer.per_system:.1f} a system to {held.per_system:.1f} and saves 1 of"
        f" {fewer.systems} systems" in text
    )
    table = markdown(report(plan))
    assert "requests/s per instance" in table
    assert "fleet saturates at" not in table, (
        "a closed form that does not count what sessions leave in a cache"
    )


def test_units_of_people_are_sessions_at_once(sessions):
    def at_once(**more):
        return (
            ask(**ASKED, trace=sessions, ttft="p95<=5s", **more).questions[0].demand.source.sessions
        )

    lasts = read_sessions(sessions, "trace").lasts_s.mean()
    assert at_once(sessions=400) == 400
    assert at_once(engineers=400) == 80
    assert at_once(engineers=400, share_active=0.5) == 200
    assert at_once(sessions_per_hour=1000) == pytest.approx(1000 * lasts / 3600)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "none is given"),
        ({"sessions": 4, "engineers": 4}, "several are given"),
        ({"sessions": 4, "share_active": 0.3}, "goes with"),
        ({"engineers": 4, "share_active": 1.5}, "is not a share"),
        ({"sessions": -4}, "is not possible"),
        ({"sessions": 4, "peak_rps": 3}, "sized without it"),
        ({"sessions": 4, "slowdown": "p90<=0.5"}, "above 1"),
        ({"sessions": 4, "longest_pause": "soon"}, "longest_pause"),
    ],
)
def test_what_cannot_be_is_said(sessions, more, said):
    with pytest.raises(InputErrors, match=said):
        ask(**ASKED, trace=sessions, ttft="p95<=5s", **more)


def test_memory_that_no_command_switches_on_is_counted_where_it_is_asked_for_and_said(sessions):
    question = ask(
        **LARGER, trace=sessions, sessions=20, ttft="p95<=5s", kv_tiers="lmcache:host"
    ).questions[0]
    plan = planner.size(replace(question, deepen=False))
    (note,) = (note for note in plan.notes if isinstance(note, TiersNotStarted))
    assert (note.offloader, note.tiers) == ("lmcache", ("host",))
    assert note_text(note).endswith("which the command does not switch on: set lmcache up as well.")
    assert not {"--kv-offloading-size", "--kv-transfer-config"} & set(plan.choice.pools[0].launch)


def test_units_need_a_file_of_sessions():
    with pytest.raises(InputErrors, match="belongs to recorded sessions"):
        ask(**ASKED, isl=100, osl=10, peak_rps=1, slowdown="p90<=1.2")


@pytest.mark.accuracy
def test_sessions_at_the_limit_grow_with_limits_and_memory_and_systems_with_sessions(sessions):
    runs = Runs()
    rates = [
        contender(sessions, runs, further_ttft=f"p95<={limit}ms").rate
        for limit in (300, 800, 2_000)
    ]
    assert rates == sorted(rates)
    rates = [
        contender(sessions, runs, kv_tiers=f"host={size}GB@50GB/s").rate for size in (0, 60, 400)
    ]
    assert rates == sorted(rates)
    assert rates[2] > rates[0], "memory below the cache carries more sessions"
    assert rates[0] == contender(sessions, runs, kv_tiers="none").rate, (
        "a tier of no capacity changes nothing"
    )
    systems = [contender(sessions, runs, sessions=each).systems for each in (10, 100, 300, 1_000)]
    assert systems == sorted(systems)


@pytest.mark.accuracy
def test_the_fleet_at_that_number_holds_the_limits_on_three_seeds(sessions):
    best = contender(sessions, Runs(), slowdown="p90<=2")
    peak = best.contender.at_peak(best.slowdown)
    for seed in (1, 2, 3):
        assert worst_limit(peak.seen(best.systems, seed=seed).summary, peak.slo) is None


@pytest.mark.accuracy
def test_short_runs_say_what_long_ones_say(sessions):
    runs = Runs()
    found = contender(sessions, runs)
    rates = [found.contender.capacity(1, care=care).rate for care in (QUICK, SURE)]
    assert rates[0] == pytest.approx(rates[1], rel=0.15)
