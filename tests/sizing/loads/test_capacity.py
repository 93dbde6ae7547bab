"""The highest load inside the limits, held against closed forms and against independent runs."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.questions import contender, plans_with
from tests.sizing.loads.instances import alone, asked, capacity, found, holding, recording, traffic
from tonnage import api
from tonnage.errors import DoesNotFit
from tonnage.perf.memory import memory_plan
from tonnage.perf.step import step_seconds
from tonnage.plan.limit import SATURATION, THROUGHPUT, Bound, Breach, bound_by, limit_of
from tonnage.plan.reason import (
    AboveSaturation,
    BrokenAtAnyLoad,
    BrokenEarly,
    BrokenOnManyInstances,
    TooSlowForJob,
)
from tonnage.report.plans.candidates import reason_text
from tonnage.report.plans.question import bound_text
from tonnage.results.metrics import summarize
from tonnage.sizing.loads import capacity as capacities
from tonnage.sizing.loads.capacity import _closed_capacity, find_capacity, replay_capacity
from tonnage.sizing.loads.fleet_check import Replayed
from tonnage.sizing.loads.instance import QUICK, SURE, Instance, middle
from tonnage.sizing.loads.load_scan import Broken, Highest, worst_limit
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.planner import size
from tonnage.spec import deployment as spec
from tonnage.spec.deployment import Deployment, parse_speculation

few_parts = plans_with("curve")


def deployment(**knobs: int) -> Deployment:
    return api.deployment_of(
        model="llama-3-8b",
        gpu="h100-sxm-80gb",
        precision="fp8",
        tp=1,
        engine="tensorrt-llm-0.15",
        knobs=dict(knobs),
    )


@pytest.mark.parametrize("factor", [1.5, 3.0])
def test_one_slot_and_one_token_is_an_m_d_1_queue(factor: float) -> None:
    """Mean TTFT = front end + S + ρS / (2 (1 − ρ)), so the rate at a limit is known."""
    tokens = 2000
    instance = Instance(deployment(max_batch_size=1), traffic(isl=tokens, osl=1))
    service = step_seconds(instance.step.coefficients, tokens, 1, 0, tokens * tokens, 0)
    limit = instance.step.frontend_s + factor * service
    rho = 2 * (factor - 1) / (2 * (factor - 1) + 1)
    answer = found(instance, api.slo(ttft=f"mean {limit:.9f}s"))
    assert answer.reason is None
    assert answer.rate == pytest.approx(rho / service, rel=0.06)
    assert Runs().saturation(instance) == pytest.approx(1 / service, rel=0.01)


def test_instances_behind_least_outstanding_carry_more_than_an_m_d_1_queue_each_and_less_than_all_their_time() -> (
    None
):
    """With one slot and one token, n of them are an M/D/n queue whose waits are shorter; Ciw and
    SimPy hold the router itself."""
    tokens = 2000
    instance = Instance(deployment(max_batch_size=1), traffic(isl=tokens, osl=1))
    service = step_seconds(instance.step.coefficients, tokens, 1, 0, tokens * tokens, 0)
    slo = api.slo(ttft=f"mean {instance.step.frontend_s + 1.5 * service:.9f}s")
    rates = [found(instance, slo, n).rate * service for n in (1, 2, 4, 8)]
    assert rates == sorted(rates)
    assert rates[0] == pytest.approx(0.5, abs=0.03)
    assert rates[1] > 0.6  # M/D/2 reaches a mean wait of half a service time at 0.7 of its capacity
    assert rates[-1] < 1


def test_the_load_found_meets_the_limit_in_another_run_and_a_higher_one_does_not() -> None:
    instance, slo = Instance(deployment(), traffic()), api.slo(ttft="p95<=200ms")
    answer = found(instance, slo)
    assert answer.binds is not None
    assert bound_text(answer.binds) == "TTFT p95 ≤ 200 ms"
    requests = instance.requests_of(answer.rate, SURE)
    other = summarize(middle(instance.open(0.96 * answer.rate, requests, seed=99)))
    assert worst_limit(other, slo) is None
    above = summarize(middle(instance.open(1.1 * answer.rate, requests, seed=99)))
    assert worst_limit(above, slo) is not None


def test_a_looser_limit_never_carries_less() -> None:
    instance, runs = Instance(deployment(), traffic()), Runs()
    rates = [
        find_capacity(runs, instance, api.slo(tpot=f"mean {ms}ms")).rate for ms in (8, 12, 20, 40)
    ]
    assert all(a <= b for a, b in pairwise(rates))
    assert rates[-1] > rates[0]


def test_without_limits_saturation_binds() -> None:
    instance = Instance(deployment(), traffic())
    answer = found(instance)
    assert answer.binds == SATURATION
    assert 0.95 < answer.rate / Runs().saturation(instance) < 1.0


def test_a_limit_below_the_unloaded_latency_is_refused_with_both_numbers() -> None:
    answer = found(Instance(deployment(), traffic(isl=8000)), api.slo(ttft="p95<=20ms"))
    assert answer.rate == 0
    assert answer.reason is not None
    assert reason_text(answer.reason).startswith("TTFT p95 ")
    assert reason_text(answer.reason).endswith("> 20 ms at any load")


def test_closed_loop_carries_the_most_clients_inside_the_limit() -> None:
    instance, slo = Instance(deployment(), traffic(load="closed")), api.slo(e2e="mean 1s")
    clients = round(found(instance, slo).concurrency)
    assert worst_limit(summarize(instance.closed(clients, 10 * clients)), slo) is None
    more = math.ceil(clients * 1.05) + 1
    assert worst_limit(summarize(instance.closed(more, 10 * more)), slo) is not None


def test_littles_law_ties_rate_and_concurrency() -> None:
    answer = found(Instance(deployment(), traffic()), api.slo(ttft="p95<=300ms"))
    assert answer.concurrency == pytest.approx(answer.rate * answer.summary.e2e_ms.mean / 1e3)


def test_windows_are_room_that_a_context_does_not_have() -> None:
    d = api.deployment_of(
        model="gemma-3-4b", gpu="h100-sxm-80gb", precision="fp8", tp=1, engine="tensorrt-llm-0.15"
    )
    d = replace(d, knobs=replace(d.knobs, kv_fraction=0.003))
    memory = memory_plan(d)
    room = memory.tokens - memory.windows.blocks * d.knobs.tokens_per_block
    assert 1024 < room < memory.tokens
    assert Instance(d, traffic(isl=room - 50, osl=50)).batch == 1
    with pytest.raises(
        DoesNotFit,
        match=f"one request of {room + 1:,} tokens does not fit the KV cache of {room:,} tokens",
    ):
        Instance(d, traffic(isl=room - 49, osl=50))


@pytest.mark.parametrize(
    ("engine", "speculation"),
    [
        ("tensorrt-llm-0.15", "eagle k=3 acceptance=0.7"),
        ("sglang", "draft=llama-3.2-1b k=2 acceptance=0.5"),
        ("sglang", "ngram k=4 acceptance=0.2"),
    ],
)
def test_closed_forms_hold_with_guesses(engine: str, speculation: str) -> None:
    place = {"model": "llama-3-8b", "gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 1}
    instance = Instance(
        api.deployment_of(**place, engine=engine, speculation=speculation),
        traffic(isl=300, osl=300),
    )
    runs = Runs()
    assert 0.9 < runs.saturation(instance) / instance.saturation_estimate() < 1.05
    assert instance.single_client().tpot_ms.mean / 1e3 == pytest.approx(
        instance.unloaded_tpot_s(), rel=0.06
    )


def test_a_slower_step_has_a_slower_drafter() -> None:
    guessing = replace(
        deployment(), speculation=parse_speculation("draft=llama-3.2-1b k=2 acceptance=0.5")
    )
    usual, slower = (
        Instance(guessing, replace(traffic(), step_factor=factor)) for factor in (1.0, 1.5)
    )
    assert slower.unloaded_tpot_s() == pytest.approx(1.5 * usual.unloaded_tpot_s(), rel=1e-9)


@pytest.mark.parametrize("bursts", [False, True])
def test_systems_agree_with_brute_force_over_whole_systems(bursts: bool) -> None:
    one = asked(bursts)
    ready = alone()
    plan = size(one)
    for systems in range(1, plan.choice.systems + 1):
        assert holding(ready, one.recording, 8 * systems) == (systems == plan.choice.systems)


def test_a_trace_that_no_number_of_instances_holds_is_refused() -> None:
    reason = capacity(contender(tp="1", ttft="p95<=1ms"), recording(bursts=False)).reason
    assert isinstance(reason, BrokenAtAnyLoad)
    assert reason.breach.limit.milliseconds == 1


TTFT = spec.Limit(metric="ttft", statistic="p95", seconds=1.0)


def summary_of(seconds: float, rate: float = 0.0) -> Any:
    """The metrics of a run whose limited latency is given, and whose answers take twice as long."""
    return SimpleNamespace(
        limit_s=lambda limit: seconds,
        statistic_ms=lambda metric, statistic: (
            2e3 * seconds if (metric, statistic) == ("e2e", "mean") else 0.0
        ),
        requests_per_second=rate,
    )


def fake(**changed: Any) -> Any:
    """An instance that completes 100 requests per second by closed form."""
    parts = {"saturation_estimate": lambda: 100.0, "in_flight": 50}
    return SimpleNamespace(**parts | changed)


@pytest.mark.parametrize(
    ("limit_s", "falls", "clients", "in_flight"),
    [
        (2.0, 1_000, 100, 50),  # all that are tried hold
        (0.4, 1_000, 40, 50),
        (0.99, 1_000, 99, 50),  # the most that are tried break
        (0.4, 30, 25, 50),  # more clients than 30 complete less
        # of 2,000 as many as are known to a hundredth: 398 and 402 are too far apart, 402 and 406
        # are not
        (4.0, 9_999, 400, 1_000),
        (4.04, 9_999, 402, 1_000),
    ],
)
def test_clients_of_a_closed_loop_are_as_many_as_complete_most_inside_the_limit(
    limit_s: float, falls: int, clients: int, in_flight: int
) -> None:
    """A latency of 10 ms for each client, and twice as many clients as are in flight at most."""
    tried: list[int] = []

    def clients_run(instance: Any, count: int) -> Any:
        tried.append(count)
        return summary_of(0.01 * count, float(count if count <= falls else 2 * falls - count))

    instance = fake(single_client=lambda: summary_of(0.01, 1.0), in_flight=in_flight)
    binds = SATURATION if limit_s == 2.0 else bound_by(replace(TTFT, seconds=limit_s))
    answer = _closed_capacity(
        SimpleNamespace(clients=clients_run), instance, (replace(TTFT, seconds=limit_s),)
    )
    assert (answer.concurrency, answer.rate, answer.binds) == (clients, clients, binds)
    assert answer.summary.limit_s(TTFT) == pytest.approx(0.01 * clients)
    assert answer.reason is None
    assert max(tried) == 2 * in_flight


def replayed_over(
    monkeypatch: pytest.MonkeyPatch,
    mean: float,
    limit_s: float = 1.0,
    estimate: float = 100.0,
    length: int = 1_000,
) -> capacities.Capacity:
    """What is carried of a recording where latencies are a tenth of a second for each request per
    second of an instance, which completes 100.
    """

    class Recorded(SimpleNamespace):
        def __len__(self) -> int:
            return length

        def at_mean(self, rate: float) -> Any:
            return Recorded(mean_rps=rate)

    def fleet_at(runs: Any, instance: Any, rate: float, count: int, *, replayed: Any) -> Any:
        assert replayed.recording.mean_rps == rate
        return SimpleNamespace(summary=summary_of(rate / count / 10))

    monkeypatch.setattr(capacities, "fleet_seen", fleet_at)
    runs = SimpleNamespace(saturation=lambda instance: 100.0)
    return replay_capacity(
        runs,
        fake(saturation_estimate=lambda: estimate),
        (replace(TTFT, seconds=limit_s),),
        Replayed(recording=Recorded(mean_rps=mean)),
    )


def test_a_recording_needs_a_fraction_between_the_instances_that_hold_and_one_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At 95 requests/s ten instances hold 10 each, and nine do not: in logarithms of the latency
    the limit is at ln(10 / 9.5) / ln(10 / 9) of the way."""
    answer = replayed_over(monkeypatch, 95.0)
    share = math.log(10 / 9.5) / math.log(10 / 9)
    assert answer.rate == pytest.approx(9.5 + share * (95 / 9 - 9.5))
    assert answer.summary.limit_s(TTFT) == pytest.approx(0.95)
    assert answer.concurrency == pytest.approx(answer.rate * 2 * 0.95)
    assert (answer.binds, answer.reason) == (bound_by(TTFT), None)


@pytest.mark.parametrize(
    ("mean", "estimate", "rate"),
    [
        (250.0, 100.0, 98.0),  # three instances; a share of 0.98 of saturation settles
        (294.0, 100.0, 98.0),
        (260.0, 80.0, 98.0),  # three by the closed form, which allows 1.12 times 80
        (150.0, 70.0, 98.0),
        (160.0, 70.0, 80 * (1 - 1e-6)),  # two, which were not tried, would carry 80 each
    ],
)
def test_a_recording_without_a_limit_in_reach_ends_at_saturation(
    mean: float, estimate: float, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = replayed_over(monkeypatch, mean, limit_s=50.0, estimate=estimate)
    assert answer.rate == pytest.approx(rate, rel=1e-9)
    assert answer.binds == SATURATION


def test_what_no_number_of_instances_holds_names_the_most_that_were_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 20 requests no more than 40 instances are tried, in doublings of the first number, and of
    no recording more than 4,096."""
    for length, most in ((20, 32), (31, 32), (32, 64), (9_999, 4_096)):
        answer = replayed_over(monkeypatch, 10.0, limit_s=1e-9, length=length)
        assert (answer.rate, answer.concurrency, answer.binds) == (0.0, 0.0, None)
        assert answer.summary.limit_s(TTFT) == 1.0 / most
        value_ms = pytest.approx(1e3 / most)
        assert answer.reason == BrokenOnManyInstances(
            breach=Breach(limit=limit_of(replace(TTFT, seconds=1e-9)), value_ms=value_ms),
            instances=most,
        )


@pytest.mark.parametrize(
    ("limit_s", "rate", "binds"),
    [
        (50.0, 98.0, SATURATION),
        # of 7 halvings in logarithms between 10 and 98, the last below 40
        (4.0, 10 * 9.8 ** (77 / 128), bound_by(replace(TTFT, seconds=4.0))),
    ],
)
def test_a_recording_that_an_instance_holds_is_sped_up_until_it_does_not(
    limit_s: float, rate: float, binds: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = replayed_over(monkeypatch, 10.0, limit_s=limit_s)
    assert (answer.rate, answer.binds) == (pytest.approx(rate), binds)
    assert answer.summary.limit_s(TTFT) == 1.0, "the run of the recording as it is"


@pytest.mark.parametrize(
    ("below", "above", "rate"),
    [
        (0.5, 2.0, 12.0),
        (1.0, 2.0, 10.0),
        (0.0, 2.0, 10.0),
        (0.25, 2.0, 10 + 4 * 2 / 3),
        (0.5, 1 + 1e-9, 10 + 4 * 0.999),
    ],
)
def test_the_load_between_two_is_linear_in_the_logarithm_of_the_strain(
    below: float, above: float, rate: float
) -> None:
    assert capacities._between(10.0, 14.0, below, above) == pytest.approx(rate)


@pytest.fixture
def straight(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Queues that take 2 s and 10 ms for each request, and whose lengths are returned."""
    lengths: list[int] = []

    def queue(instance: Any, requests: int) -> int:
        lengths.append(requests)
        return requests

    monkeypatch.setattr(capacities, "queued", queue)
    monkeypatch.setattr(capacities, "makespan_s", lambda requests: 2 + requests / 100)
    monkeypatch.setattr(capacities, "summarize", lambda requests: ("summary of", requests))
    return lengths


@pytest.mark.parametrize(
    ("seconds", "estimate", "most"),
    [
        (2.0, 100.0, 0),
        (2.01, 100.0, 1),
        (2.035, 100.0, 3),
        (12.0, 100.0, 1_000),
        (12.0, 1.0, 1_000),
        (119.0, 100.0, 11_700),
        (127.0, 100.0, 12_500),
        (129.0, 100.0, 12_700),  # near what is simulated or beyond, along a straight line
        (200.0, 100.0, 19_800),
        (200.0, 10.0, 19_800),
    ],
)
def test_the_longest_queue_within_a_time(
    seconds: float, estimate: float, most: int, straight: list[int]
) -> None:
    instance = fake(saturation_estimate=lambda: estimate)
    assert capacities.most_within(instance, seconds) == most
    assert (8_000 in straight) == (estimate * seconds > 12_800)
    if estimate * seconds > 12_800:
        assert sorted(straight) == [8_000, 16_000]
    elif estimate * seconds > 1_000:
        assert straight[:2] == [1, round(0.9 * estimate * seconds)], "the second by a closed form"


def test_the_second_run_of_a_line_has_half_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here times grow with the square: 10 requests take a second, and 5 a quarter of it."""
    monkeypatch.setattr(capacities, "queued", lambda instance, requests: requests)
    monkeypatch.setattr(capacities, "makespan_s", lambda requests: requests**2 / 100)
    assert capacities._line(fake(), 10) == pytest.approx((1 - 10 * 0.15, 0.15))
    assert capacities._line(fake(), 11) == pytest.approx((1.21 - 11 * 0.16, 0.16))


def test_a_queue_is_there_at_the_start_and_ends_with_its_last_token() -> None:
    """In the engine's own process, by the lengths of the question."""

    def workload(arrivals: Any, requests: int) -> Any:
        return SimpleNamespace(trace=lambda seed: Queue(due_ps=seed, isl=requests))

    instance = fake(
        workload=workload,
        traffic=SimpleNamespace(seed=5),
        step=SimpleNamespace(in_process="in process"),
        serve=lambda trace, step: (trace, step),
    )
    trace, step = capacities.queued(instance, 3)
    assert (trace.due_ps.tolist(), trace.isl, step) == ([0, 0, 0], 3, "in process")
    ends = SimpleNamespace(last_token_ns=np.array([4, 9, 7]) * 10**9)
    assert capacities.makespan_s(ends) == 9.0


@dataclass(frozen=True)
class Queue:
    """Requests and when they are due."""

    due_ps: Any
    isl: int


@pytest.mark.parametrize(
    ("requests", "seconds", "rate", "shown"),
    [
        (500, 12.0, 1_000 / 12, 500),
        (5_000, 12.0, 1_000 / 12, 1_000),
        (90_000, 202.0, 20_000 / 202, 16_000),
    ],
)
def test_a_job_completes_the_longest_queue_in_its_time(
    requests: int, seconds: float, rate: float, shown: int, straight: list[int]
) -> None:
    assert capacities.offline_capacity(fake(), requests, seconds) == capacities.Capacity(
        rate=rate, concurrency=50.0, summary=("summary of", shown), binds=THROUGHPUT, reason=None
    )


def test_a_job_that_is_shorter_than_a_request_is_refused_with_both_times(
    straight: list[int],
) -> None:
    answer = capacities.offline_capacity(fake(), 500, 2.005)
    assert answer.reason == TooSlowForJob(seconds=2.01, allowed=2.005)
    assert (answer.rate, answer.summary) == (0.0, ("summary of", 1))


def test_when_a_job_is_done_follows_from_the_line_through_two_runs(straight: list[int]) -> None:
    demand = SimpleNamespace(offline_requests=50_000, offline_seconds=300.0)
    job = capacities.job_done(SimpleNamespace(demand=demand), fake(), 3)
    assert job is not None
    assert (job.requests, job.requests_per_instance, job.allowed_seconds) == (50_000, 16_667, 300.0)
    assert job.finish_seconds == pytest.approx(2 + 166.67)
    assert (job.fixed_seconds, job.seconds_per_request) == pytest.approx((2.0, 0.01))
    assert max(straight) == 16_000
    assert capacities.finish_s(fake(), 16_000) == 162.0
    assert capacities._line(fake(), 3) == pytest.approx((2.0, 0.01))
    assert capacities._line(fake(), 1) == pytest.approx((0.0, 2.01))
    demand.offline_requests = None
    assert capacities.job_done(SimpleNamespace(demand=demand), fake(), 3) is None


def test_a_line_that_begins_below_zero_takes_no_time_by_itself(
    straight: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacities, "makespan_s", lambda requests: requests / 100 - 5)
    demand = SimpleNamespace(offline_requests=2_000, offline_seconds=300.0)
    job = capacities.job_done(SimpleNamespace(demand=demand), fake(), 1)
    assert job is not None
    assert max(straight) == 2_000
    assert (job.fixed_seconds, job.finish_seconds) == pytest.approx((0.0, 15.0))
    assert capacities._continued(fake(), 0.0) == 500
    assert capacities._continued(fake(), -10.0) == 0


def test_why_no_load_of_an_open_loop_is_inside_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that breaks at the lowest load names its share of saturation, and saturation both
    rates."""
    instance = fake(traffic=SimpleNamespace(load="open"))
    runs = SimpleNamespace(saturation=lambda instance: 96.0)
    outcome = Broken(rate=25.0, summary=summary_of(3.0), limit=TTFT)
    calls: list[Any] = []
    for broken in (outcome, replace(outcome, limit=None)):
        scan = SimpleNamespace(highest=lambda *args, broken=broken: calls.append(args) or broken)
        monkeypatch.setattr(
            capacities, "LoadScan", lambda *args, scan=scan: calls.append(args) or scan
        )
        answer = find_capacity(runs, instance, (TTFT,))
        assert answer == capacities.no_capacity(
            broken.summary,
            BrokenEarly(
                breach=Breach(limit=limit_of(TTFT), value_ms=3_000.0),
                requests_per_second=25.0,
                share_of_saturation=0.25,
            )
            if broken.limit
            else AboveSaturation(requests_per_second=25.0, most=96.0),
        )
    assert calls == [(runs, instance, 1), ((TTFT,), 0.0, SURE, 0.0)] * 2
    calls.clear()
    find_capacity(runs, instance, (TTFT,), instances=4, above=2.0, care=QUICK, near=3.0)
    assert calls == [(runs, instance, 4), ((TTFT,), 2.0, QUICK, 3.0)]


@pytest.mark.parametrize(("limit", "binds"), [(TTFT, bound_by(TTFT)), (None, SATURATION)])
def test_the_highest_load_of_an_open_loop_is_what_an_instance_carries(
    limit: Any, binds: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers take a second, so that as many requests are in flight as come in one."""
    summary = summary_of(0.5)
    highest = Highest(rate=25.0, summary=summary, limit=limit)
    scan = SimpleNamespace(highest=lambda *_: highest)
    monkeypatch.setattr(capacities, "LoadScan", lambda *_: scan)
    instance = fake(traffic=SimpleNamespace(load="open"))
    assert find_capacity(None, instance, (TTFT,)) == capacities.Capacity(
        rate=25.0, concurrency=25.0, summary=summary, binds=binds, reason=None
    )
    closed = fake(traffic=SimpleNamespace(load="closed"))
    monkeypatch.setattr(capacities, "_closed_capacity", lambda *args: args)
    assert find_capacity(None, closed, (TTFT,)) == (None, closed, (TTFT,))


def test_what_a_single_client_breaks_no_load_keeps() -> None:
    alone = summary_of(1.5)
    assert capacities.broken_alone(alone, (replace(TTFT, seconds=1.5),)) is None
    assert capacities.broken_alone(alone, (TTFT,)) == capacities.Capacity(
        rate=0.0,
        concurrency=0.0,
        summary=alone,
        binds=None,
        reason=BrokenAtAnyLoad(breach=Breach(limit=limit_of(TTFT), value_ms=1_500.0)),
    )
