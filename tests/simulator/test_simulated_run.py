"""What a simulated run says of its schedule."""

from __future__ import annotations

from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.deployments import deployment, knobs_of
from tests.simulator.reference.examples import TICK, VLLM, open_trace
from tonnage.perf import pipeline, prediction_error, ranges
from tonnage.results import store
from tonnage.results.metrics import summarize
from tonnage.results.requests import COMPLETED, FAILED
from tonnage.simulator import simulated_run as module
from tonnage.simulator.changes import Changed, Routed
from tonnage.simulator.reference import run_reference
from tonnage.simulator.simulated_run import (
    ALTERNATING,
    EqualLengths,
    FleetFacts,
    SimulatedRun,
    SimulatedSweep,
    facts_of,
    write_runs,
)
from tonnage.spec.arrivals import TrafficClass
from tonnage.spec.deployment import Alike, Parallelism, parse_limit, parse_speculation
from tonnage.spec.sessions import Pause, Sessions
from tonnage.spec.workload import (
    ClosedLoop,
    Lengths,
    OpenLoop,
    Simulated,
    TraceArrivals,
    Workload,
)


@pytest.mark.parametrize(
    ("firsts", "alternates"),
    [
        ([5, 6, 6], True),
        ([5, 6, 6, 7, 8, 8], True),
        ([5, 6, 6, 7, 7], False),  # a third are alone
        ([-1, 5, 6, 6, 7, 7], False),  # one that had no token is no batch
        ([5, 6, 7], False),  # no batch has two
        ([5, 5, 6, 6], False),
        ([], False),
    ],
)
def test_static_batches_alternate_where_more_than_a_third_have_one_request(
    firsts: list[int], alternates: bool
) -> None:
    def says(scheduler: str, arrivals: object) -> bool:
        return SimulatedRun._alternates(
            SimpleNamespace(  # type: ignore[arg-type]
                workload=SimpleNamespace(arrivals=arrivals),
                deployment=SimpleNamespace(knobs=knobs_of(8, 64, scheduler=scheduler)),
                requests=SimpleNamespace(first_token_ns=np.array(firsts, np.int64)),
            )
        )

    assert says("static", ClosedLoop(concurrency=3)) is alternates
    assert not says("vllm", ClosedLoop(concurrency=3))
    assert not says("static", OpenLoop(rate=3.0))


SESSIONS = Sessions(turns=Lengths(mean=3.0), think=Pause(mean_s=2.0))


def workload_of(arrivals: Simulated, **more) -> Workload:
    return Workload(
        isl=Lengths(mean=40.0), osl=Lengths(mean=2.0), arrivals=arrivals, requests=4, **more
    )


@pytest.fixture(scope="module")
def answered() -> SimulatedRun:
    """Four requests at 0, 0, 5 and 9 ms of 10, 20, 30 and 40 tokens and two each; a tick a step."""
    trace = open_trace((0, 10, 2), (0, 20, 2), (5, 30, 2), (9, 40, 2))
    record = run_reference(trace, TICK, VLLM, 1000).requests
    return SimulatedRun(
        deployment=deployment("llama-3.1-8b", engine="vllm", precision="fp8"),
        workload=workload_of(OpenLoop(rate=3.0)),
        seed=5,
        requests=record,
        summary=summarize(record),
    )


def test_a_run_by_itself_says_nothing_of_what_it_has_not(answered) -> None:
    found = answered.to_json()
    for name in (
        "instances", "router", "unlike", "sessions", "prefix_hit_rate", "saved_prompt_tokens",
        "speculation", "fleet", "attained", "equal_lengths", "classes", "concurrency", "in_flight",
    ):  # fmt: skip
        assert name not in found, name
    assert found["model"] == "llama-3.1-8b"
    assert {
        name: found[name]
        for name in ("engine", "isl", "osl", "request_rate", "arrivals", "requests", "seed")
    } == {
        "engine": answered.deployment.engine,
        "isl": "40",
        "osl": "2",
        "request_rate": 3.0,
        "arrivals": "poisson",
        "requests": {"completed": 4, "rejected": 0, "unfinished": 0, "failed": 0},
        "seed": 5,
    }
    assert found["engine_preset"] == found["engine"]
    assert found["marks"] == list(answered.marks)
    assert found["mean_concurrency"] == answered.summary.to_json()["concurrency"]
    assert {name: tuple(bounds) for name, bounds in found["intervals"].items()} == dict(
        answered.intervals
    )
    defaults = answered.plain, answered.instances, answered.router, answered.unlike
    assert defaults == (None, 1, "", ())
    assert (answered.fleet, answered.equal_lengths, answered.limits) == (None, None, ())
    nothing = answered.gain, answered.saved_prompt_tokens, answered.hit_rate, answered.classes
    assert nothing == (None, None, None, ())
    assert (answered.by_group, answered.attained, dict(answered.settings)) == ((), (), {})


def test_what_a_run_has_is_in_its_json(answered) -> None:
    closed = replace(answered, workload=workload_of(ClosedLoop(concurrency=7)))
    assert closed.to_json()["concurrency"] == 7
    assert not {"request_rate", "arrivals", "in_flight"} & set(closed.to_json())
    capped = replace(answered, workload=workload_of(OpenLoop(rate=3.0, in_flight=9)))
    assert capped.to_json()["in_flight"] == 9
    equal = EqualLengths(share=0.1, requests=3, ttft_p95_ms=5.0, varied_ttft_p95_ms=4.0)
    guess = parse_speculation("ngram k=2 acceptance=0.5")
    facts = FleetFacts(
        failures=1, restarts=2, retried=3, lost=4, availability=0.5, instance_hours=6.0,
        serving_mean=1.5, serving_most=2, violations=(),
    )  # fmt: skip
    more = replace(
        answered,
        deployment=replace(answered.deployment, speculation=guess),
        router="random",
        instances=3,
        fleet=facts,
        equal_lengths=equal,
        limits=(parse_limit("ttft", "p95<=1s"),),
        plain=answered.summary,
    )
    found = more.to_json()
    assert (found["instances"], found["router"]) == (3, "random")
    assert (found["speculation"], found["speculation_gain"]) == (str(guess), 1.0)
    assert found["fleet"] == {
        "failures": 1, "restarts": 2, "retried": 3, "lost": 4, "availability": 0.5,
        "instance_hours": 6.0, "serving_mean": 1.5, "serving_most": 2, "violations": [],
    }  # fmt: skip
    assert found["equal_lengths"] == {
        "share": 0.1, "requests": 3, "ttft_p95_ms": 5.0, "varied_ttft_p95_ms": 4.0,
    }  # fmt: skip
    assert found["attained"] == [attainment.to_json() for attainment in more.attained]
    assert len(found["attained"]) == 1


def test_what_prompts_share_by_hand(answered) -> None:
    """25 of the 100 prompt tokens were in a cache."""
    record = replace(answered.requests, cached_tokens=np.array([0, 5, 0, 20]))
    chats = workload_of(OpenLoop(rate=3.0), sessions=SESSIONS)
    run = replace(answered, workload=chats, requests=record)
    assert (run.saved_prompt_tokens, run.hit_rate) == (25, 0.25)
    found = run.to_json()
    assert (found["prefix_hit_rate"], found["saved_prompt_tokens"]) == (0.25, 25)
    assert found["sessions"] == str(SESSIONS)
    empty = replace(run, requests=record.some(np.arange(0)))
    assert (empty.saved_prompt_tokens, empty.hit_rate) == (0, 0.0)


def test_what_guesses_bring_by_hand(answered) -> None:
    """Clients of a closed loop gain throughput, requests of an open one time."""
    summary = SimpleNamespace(
        output_tokens_per_second=30.0,
        statistic_ms=lambda metric, kind: {"e2e mean": 8.0}[f"{metric} {kind}"],
    )
    plain = SimpleNamespace(
        output_tokens_per_second=20.0,
        statistic_ms=lambda metric, kind: {"e2e mean": 10.0}[f"{metric} {kind}"],
    )
    run = replace(answered, summary=summary, plain=plain)
    assert run.gain == 10 / 8
    assert replace(run, workload=workload_of(ClosedLoop(concurrency=2))).gain == 30 / 20


def test_groups_of_unlike_instances_by_hand(answered) -> None:
    """Instances 0 and 1 are of one group and served two of the four, 2 is of the other."""
    other = replace(answered.deployment, parallelism=Parallelism(tp=4))
    groups = (
        Alike(deployment=answered.deployment, instances=2, weight=3.0),
        Alike(deployment=other, instances=1),
    )
    record = replace(answered.requests, instance=np.array([0, 2, 1, 2], np.int32))
    run = replace(answered, unlike=groups, router="weighted", instances=3, requests=record)
    assert run.gpus == 2 * 1 + 1 * 4
    assert replace(answered, instances=5).gpus == 5
    (first, half, ttft, e2e), (second, rest, later_ttft, _) = run.by_group
    assert (first, second, half, rest) == (*groups, 0.5, 0.5)
    assert (ttft.mean, e2e.mean, later_ttft.mean) == pytest.approx((1.0, 2.0, 1.0))
    unlike = run.to_json()["unlike"]
    assert [(row["instances"], row["weight"], row["share"], row["tp"]) for row in unlike] == [
        (2, 3.0, 0.5, 1),
        (1, 1.0, 0.5, 4),
    ]
    assert unlike[0]["ttft_ms"]["mean"] == pytest.approx(1.0)
    assert unlike[0]["e2e_ms"]["mean"] == pytest.approx(2.0)
    assert unlike[0]["engine"] == answered.deployment.engine
    assert run.intervals == {}, "how their errors go together was not measured"
    nobody = replace(run, requests=record.some(np.arange(0)))
    assert [share for _, share, _, _ in nobody.by_group] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("workload", "scheduler", "regime"),
    [
        (workload_of(OpenLoop(rate=3.0)), "vllm", (None, None, 40.0)),
        (workload_of(ClosedLoop(concurrency=6)), "vllm", (None, 6, 40.0)),
        (workload_of(ClosedLoop(concurrency=6)), "static", (6, 6, 40.0)),
        (workload_of(OpenLoop(rate=3.0)), "static", (None, None, 40.0)),
        # of conversations the prompts with all that was said before
        (workload_of(OpenLoop(rate=3.0), sessions=SESSIONS), "vllm", (None, None, 25.0)),
    ],
)
def test_the_regime_of_a_runs_intervals(monkeypatch, answered, workload, scheduler, regime) -> None:
    """The batch of a static engine, the clients of a closed loop, and the mean prompt."""
    batch, clients, isl = regime
    asked = []
    monkeypatch.setattr(prediction_error, "regime_of", lambda *what, **more: asked.append(more))
    monkeypatch.setattr(prediction_error, "run_noise", lambda record: "noise")
    monkeypatch.setattr(prediction_error, "intervals_of", lambda *what: what)
    knobs = replace(answered.deployment.knobs, scheduler=scheduler)
    run = replace(answered, workload=workload, deployment=replace(answered.deployment, knobs=knobs))
    values, _, noise = run.intervals
    assert asked == [{"isl": isl, "osl": 2.0, "batch": batch, "clients": clients}]
    assert noise == ("noise" if clients is None else {})
    assert values == {
        "ttft_ms": pytest.approx(1.0),
        "tpot_ms": pytest.approx(1.0),
        "e2e_ms": pytest.approx(2.0),
        "ttft_p95_ms": pytest.approx(1.0),
        "requests_s": answered.summary.requests_per_second,
    }
    nobody = replace(run, requests=answered.requests.some(np.arange(0)))
    assert nobody.intervals[0] == values
    assert asked[1]["isl"] == 40.0


def test_the_marks_of_unlike_instances_of_stages_and_of_static_batches(
    monkeypatch, answered
) -> None:
    """Each mark once; a pipeline's and a static batch's own come last."""
    monkeypatch.setattr(ranges, "marks", lambda d: ("all", f"tp {d.parallelism.tp}"))
    assert answered.marks == ("all", "tp 1")
    other = replace(answered.deployment, parallelism=Parallelism(tp=2, pp=2))
    groups = tuple(Alike(deployment=d, instances=1) for d in (answered.deployment, other))
    assert replace(answered, unlike=groups).marks == ("all", "tp 1", "tp 2", pipeline.MARK)
    assert replace(answered, deployment=other).marks == ("all", "tp 2", pipeline.MARK)
    static = replace(
        answered.deployment, knobs=replace(answered.deployment.knobs, scheduler="static")
    )
    record = replace(answered.requests, first_token_ns=np.array([5, 6, 6, 6]))
    closed = workload_of(ClosedLoop(concurrency=3))
    run = replace(answered, deployment=static, requests=record, workload=closed)
    assert run.marks == ("all", "tp 1", ALTERNATING)


def test_the_scenario_of_a_run_folder(answered) -> None:
    found = answered.scenario()
    assert set(found) == {
        *answered.deployment.named, "engine", "knobs", "isl", "osl", "arrivals", "requests", "seed",
    }  # fmt: skip
    assert found["knobs"] == asdict(answered.deployment.knobs)
    assert (found["isl"], found["osl"], found["requests"], found["seed"]) == ("40", "2", 4, 5)
    assert found["arrivals"] == {"rate": 3.0, "process": "poisson", "cv": 1.0, "in_flight": 0}
    classes = (TrafficClass(name="all", share=1.0, ttft_s=2.0),)
    more = replace(
        answered,
        workload=workload_of(ClosedLoop(concurrency=6), sessions=SESSIONS, classes=classes),
        deployment=replace(
            answered.deployment, speculation=parse_speculation("ngram k=2 acceptance=0.5")
        ),
        router="random",
        instances=2,
    ).scenario()
    assert more["sessions"] == asdict(SESSIONS)
    assert more["classes"] == [asdict(classes[0])]
    assert more["speculation"] == "ngram k=2 acceptance=0.5"
    assert (more["router"], more["instances"]) == ("random", 2)
    assert more["arrivals"] == {"concurrency": 6, "turnaround_s": 0.0}


def test_a_sweep_is_a_sequence_of_its_runs(answered) -> None:
    runs = (answered, replace(answered, seed=6))
    sweep = SimulatedSweep(runs=runs, left_out=(({"tp": "3"}, "--tp: 3 does not divide 32"),))
    assert (len(sweep), list(sweep), sweep[1], sweep[-1]) == (2, list(runs), runs[1], runs[1])
    assert answered in sweep
    assert replace(answered, seed=7) not in SimulatedSweep(runs=runs[1:])
    found = sweep.to_json()
    assert [point["seed"] for point in found["points"]] == [5, 6]
    [left] = found["left_out"]
    assert left["tp"] == "3"
    assert "does not divide 32" in left["reason"]
    assert "left_out" not in SimulatedSweep(runs=runs).to_json()


def test_the_folders_of_runs(monkeypatch, answered, tmp_path) -> None:
    """One run in the folder itself, several in one each, by what was varied and the load."""
    written = []
    monkeypatch.setattr(store, "write_run", lambda *what: written.append(what))
    write_runs(tmp_path, [answered], {"seed": 5})
    assert written == [
        (tmp_path, answered.scenario(), answered.requests, answered.summary, {"seed": 5})
    ]
    closed = replace(
        answered,
        workload=workload_of(ClosedLoop(concurrency=6)),
        settings={"tp": "2", "precision": "fp8+kv-fp8", "model": "a/b c.json"},
    )
    written.clear()
    write_runs(tmp_path, [answered, closed], {})
    assert [str(what[0].relative_to(tmp_path)) for what in written] == [
        "rate-3",
        "tp-2,precision-fp8+kv-fp8,model-a_b_c.json,concurrency-6",
    ]


def test_the_facts_of_a_fleet_by_hand(answered) -> None:
    """Two of four failed; one instance was held for half an hour and three for an hour; the
    controller looked twice."""
    record = replace(
        answered.requests, status=np.array([COMPLETED, FAILED, FAILED, COMPLETED], np.int8)
    )
    changed = Changed(
        failures=1,
        restarts=2,
        retried=3,
        availability=0.75,
        held_seconds={1: 1800.0, 3: 3600.0},
        served=np.array([[1, 1], [4, 6]], np.int32),
    )
    routed = Routed(requests=record, chosen=np.zeros(4, np.int64), changed=changed)
    found = facts_of(routed, (parse_limit("ttft", "p95<=1ms"),))
    assert (found.failures, found.restarts, found.retried, found.lost) == (1, 2, 3, 2)
    assert (found.availability, found.instance_hours) == (0.75, 3.5)
    assert (found.serving_mean, found.serving_most) == (2.5, 4)
    assert [violation.share for violation in found.violations] == [0.5]
    assert found.to_json()["violations"] == [asdict(found.violations[0])]
    still = replace(changed, served=np.zeros((0, 2), np.int32))
    without = facts_of(replace(routed, changed=still), ())
    assert (without.serving_mean, without.serving_most, without.violations) == (None, None, ())


def test_a_replayed_load_is_named_by_its_file() -> None:
    recording = SimpleNamespace(source="log.csv", change=" × 2", mean_rps=8.0)
    arrivals = TraceArrivals(recording=recording, share=0.25)  # type: ignore[arg-type]
    assert module._arrivals(arrivals) == {"trace": "log.csv × 2", "rate": 2.0}
