"""What is simulated of an instance: what each part of it is called with."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.sizing.loads.instances import traffic as traffic_of
from tests.sizing.loads.small_instance import Small, traffic
from tonnage.sizing.loads import instance as instances
from tonnage.sizing.loads.instance import Instance
from tonnage.sizing.loads.shared_load import Answers
from tonnage.spec.kv_tiers import OFF
from tonnage.spec.lengths import Lengths
from tonnage.spec.workload import ClosedLoop, OpenLoop


@dataclass(frozen=True, kw_only=True)
class Requested:
    """Requests whose prompts may share something."""

    contents: Any = None
    pause_ps: Any = None
    due_ps: Any = None
    isl: Any = None
    concurrency: int = 0

    def __len__(self) -> int:
        return 25


SPEC = make_dataclass("Spec", ["step", "knobs", "tiers"], eq=True)


def test_the_run_of_a_single_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight requests that are all equal, a hundred that are drawn; where prompts share something
    after twenty, and three for each prefix."""
    monkeypatch.setattr(instances, "after", lambda record, first: (record, first))
    closed: Any = lambda clients, requests: (clients, requests)  # noqa: E731
    assert Small(closed=closed).alone() == (1, 8)
    assert Small(closed=closed, traffic=traffic(pairs=object())).alone() == (1, 100)

    def shares(**changed: Any) -> Small:
        parts = {"recorded": None, "recording": None, "sessions": None}
        sharing = SimpleNamespace(**parts | changed)
        return Small(closed=closed, traffic=traffic(sharing=sharing))

    assert shares().alone() == ((1, 120), 20)
    assert shares(sessions=SimpleNamespace(prefixes=10)).alone() == ((1, 150), 50)
    assert shares(sessions=SimpleNamespace(prefixes=9_999)).alone() == ((1, 4_100), 4_000)
    recorded = shares(recorded=object())
    recorded.__dict__["_alone_sessions"] = "sessions"
    assert recorded.alone() == "sessions"
    replaying = shares(recording=SimpleNamespace(mean_rps=3.0))
    monkeypatch.setattr(
        instances, "replayed", lambda *args: Requested(contents=args[1:], due_ps=np.array([5, 9]))
    )
    replaying.serve = lambda trace: trace
    trace, first = replaying.alone()
    assert (trace.due_ps.tolist(), trace.concurrency, trace.contents) == ([-1, -1], 1, (3.0, 0))
    assert first == 2, "a tenth of 25"
    with pytest.raises(ValueError, match="without recorded sessions"):
        Small()._alone_sessions  # noqa: B018


def test_a_single_client_is_simulated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(
        instances, "summarize", lambda record, *, by_request: calls.append(by_request) or record
    )
    small = Small(alone=lambda: "record")
    assert [small.single_client() for _ in range(2)] == ["record"] * 2
    assert calls == [True]


def test_how_long_a_lone_answer_takes_by_the_recorded_row() -> None:
    small = Small()
    small.__dict__["_alone_sessions"] = Record(
        row=np.array([2, 0, 1]), due_ns=np.array([5, 20, 40]), last_token_ns=np.array([19, 47, 142])
    )
    assert small.alone_ns.tolist() == [27, 102, 14]


class Record(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.row)


def test_a_rate_of_sessions_is_held_by_a_whole_number_of_them() -> None:
    sharing = SimpleNamespace(recorded=SimpleNamespace(pace=0.5), follows=True)
    small = Small(traffic=traffic(sharing=sharing))
    assert [small.held_rate(rate) for rate in (0.1, 3.2, 3.4)] == [0.5, 3.0, 3.5]
    assert Small().held_rate(3.2) == 3.2
    assert small.recorded_sessions is sharing.recorded
    assert Small().recorded_sessions is None
    assert small.requests_of(3.2, 1) == 3_000, "those of sessions"


def test_an_open_loop_by_what_comes_to_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of sessions those of one instance; else the requests of all instances together."""
    monkeypatch.setattr(instances, "session_run", lambda *args, **how: (*args, how))
    monkeypatch.setattr(instances, "balanced_trace", lambda *args: args)
    sessions = SimpleNamespace(pace=0.5)
    of_sessions = Small(traffic=traffic(sharing=SimpleNamespace(recorded=sessions)))
    of_sessions.__dict__ |= {"tiered": "tiered", "alone_ns": "alone"}
    assert of_sessions.open(3.4, 400, 7) == (
        "tiered",
        sessions,
        7,
        400,
        {"seed": 7, "alone_ns": "alone"},
    )
    shares = Small(shared="shared", _open_sharing=lambda *args: args)
    assert shares.open(5.0, 400, 7, 3) == ("shared", 15.0, 400, 7, 3)
    assert shares.open(5.0, 400, 7) == ("shared", 5.0, 400, 7, 1)
    plain = Small(workload=lambda *args: args, together=lambda *args: args, traffic=traffic(cv=2.0))
    for count, how in ((3, (3,)), (1, ())):
        arrivals = OpenLoop(rate=5.0 * count, process="poisson", cv=2.0)
        assert plain.open(5.0, 400, 7, *how) == (
            ((arrivals, 400), arrivals, 7),
            count,
            "least-outstanding",
        )


def test_the_memory_below_the_cache_is_of_the_question_and_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instances, "tiers_of", lambda *args, **how: (*args, how))
    monkeypatch.setattr(instances, "resolved_tiers", lambda *args: args)
    spec = SPEC(step="step", knobs=None, tiers=None)
    system = {"memories": "memories", "gpus_per_system": 4}
    small = Small(spec=spec, traffic=traffic(sharing=SimpleNamespace(tiers="asked"), **system))
    small.memory, small.knobs.tokens_per_block = "memory", 16
    of_system = {**system, "block_tokens": 16}
    assert small.tiered.tiers == ("asked", small.deployment, "memory", of_system)
    assert small.below == ("asked", small.deployment, "memories", 4)
    none = Small(spec=spec, traffic=traffic(**system))
    assert none.tiered is spec
    assert none.below == (OFF, none.deployment, "memories", 4)


def test_clients_of_a_closed_loop_and_the_engine_that_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instances, "client_turnaround_s", lambda deployment: 0.25)
    monkeypatch.setattr(instances, "run_instance", lambda *args, **how: ((args, how), "steps"))

    def workload(loop: Any, requests: int) -> Any:
        return SimpleNamespace(trace=lambda seed, stretch: (loop, requests, seed, stretch))

    small = Small(workload=workload, serve=lambda trace: trace, traffic=traffic(seed=5))
    loop = ClosedLoop(concurrency=3, turnaround_s=0.25)
    assert small.closed(3, 30) == (loop, 30, 5, True)
    serving = Small(spec=SPEC(step="step", knobs=None, tiers=None), _ranks=lambda trace: [trace])
    serving.__dict__["tiered"] = tiered = SPEC(step="step", knobs=None, tiers="tiers")
    plain, shares = Requested(), Requested(contents="pieces")
    assert serving.serve(plain) == ((serving.spec, [plain]), {})
    assert serving.serve(shares) == ((tiered, [shares]), {})
    assert serving.serve(shares, "slow") == ((replace(tiered, step="slow"), [shares]), {})


@pytest.mark.parametrize(
    ("ranks", "contents", "parts"),
    [
        (2, None, ("ranks", 2)),
        (1, "pieces", ("ranks", 1)),
        (2, "pieces", ("parts", ("owners", 2, "session", 5), 2)),
    ],
)
def test_turns_of_a_conversation_stay_at_their_rank(
    ranks: int, contents: Any, parts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "rank_traces", lambda trace, count: ("ranks", count))
    monkeypatch.setattr(instances, "owners", lambda trace, *args: ("owners", *args))
    monkeypatch.setattr(instances, "parts_of", lambda trace, *args: ("parts", *args))
    deployment = SimpleNamespace(parallelism=SimpleNamespace(dp=ranks))
    small = Small(deployment=deployment, traffic=traffic(seed=5))
    assert small._ranks(Requested(contents=contents)) == parts


def in_a_fleet(ranks: int = 1, balanced: bool = True, **changed: Any) -> Small:
    """An instance whose runs say what they are of; ten of 100 tokens are common to all prompts."""
    sharing = SimpleNamespace(
        balanced=lambda router: balanced,
        common_tokens=lambda trace: 10,
        recording=None,
        follows=False,
        recorded=None,
    )
    deployment = SimpleNamespace(parallelism=SimpleNamespace(dp=ranks))
    small = Small(deployment=deployment, traffic=traffic(**{"sharing": sharing, **changed}))
    small.serve = lambda trace: ("alone", trace)
    small._routed = lambda *args: SimpleNamespace(
        requests=("routed", *args), chosen=np.array([0, 1, 2, 3])
    )
    return small


def test_requests_of_several_instances_behind_a_router(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that share nothing are routed in the simulation; others are given out before, and
    each instance simulated with its cache."""
    parts: list[Any] = []

    def parts_of(trace: Any, owner: Any, count: int) -> list[str]:
        parts.append((owner if isinstance(owner, tuple) else owner.tolist(), count))
        return ["a", "b"]

    monkeypatch.setattr(instances, "parts_of", parts_of)
    monkeypatch.setattr(instances, "pooled", lambda records: records)
    monkeypatch.setattr(instances, "owners", lambda trace, *args: args)
    plain, shares = Requested(isl=100), Requested(contents="pieces", isl=100)
    assert in_a_fleet().together(plain, 1, "random") == ("alone", plain)
    for ranks, count in ((2, 1), (1, 2)):
        routed = ("routed", plain, count, "random")
        assert in_a_fleet(ranks).together(plain, count, "random") == routed
    alone = in_a_fleet(sharing=None)
    assert alone.together(shares, 2, "random") == ("routed", shares, 2, "random")
    assert in_a_fleet(2).together(shares, 1, "random") == ("alone", shares)
    both = [("alone", "a"), ("alone", "b")]
    calls: list[Any] = []
    for caches, computed in ((True, 90), (False, 100)):
        loaded = in_a_fleet(2)
        loaded.knobs.prefix_caching = caches
        loaded._routed = lambda *args: (
            calls.append(args) or SimpleNamespace(chosen=np.array([0, 1, 2, 3]))
        )
        assert loaded.together(shares, 2, "least-outstanding") == both
        assert calls.pop() == (Requested(isl=computed), 2, "least-outstanding")
        assert parts.pop() == ([0, 0, 1, 1], 2), "two ranks of each"
    for blind in (in_a_fleet(balanced=False, seed=5), in_a_fleet(seed=5)):
        blind.saturation_estimate = lambda: 4.0
        turns = replace(shares, pause_ps="pauses") if blind.traffic.sharing.balanced("") else shares
        assert blind.together(turns, 2, "least-outstanding") == both
        answers = Answers(answer_ps=750 * 10**9, apart_ps=250 * 10**9)
        assert parts.pop() == ((2, "random", 5, answers), 2)


def test_each_rank_of_each_instance_is_an_engine_of_the_fleet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instances, "run_fleet", lambda *args, **how: (*args, how))
    small = Small(traffic=traffic(seed=5))
    small.__dict__["engine"] = "engine"
    assert small._routed("trace", 3, "random") == (
        "trace",
        ["engine"] * 6,
        "random",
        {"seed": 5, "ranks": 2, "knobs": small.knobs},
    )
    monkeypatch.setattr(
        instances, "engine_of", lambda spec, *, seed: SimpleNamespace(machine=(spec, seed))
    )
    knobs = make_dataclass("Knobs", ["ranks", "queue_order"])
    for ranks, order in ((True, "fcfs"), (False, "priority")):
        asked = knobs(ranks, "priority")
        alone = Small(knobs=asked, spec=SPEC("step", asked, None), traffic=traffic(seed=5))
        assert alone.engine == (SPEC("step", knobs(ranks, order), None), 5)


def test_the_steps_that_are_recorded_of_an_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "run_instance", lambda *args, **how: ("record", (args, how)))
    monkeypatch.setattr(instances, "session_traces", lambda *args: (args, "rows", 99))
    sessions = SimpleNamespace(pace=0.5)
    of_sessions = Small(traffic=traffic(seed=5, sharing=SimpleNamespace(recorded=sessions)))
    of_sessions.__dict__["tiered"] = "tiered"
    traces = ("tiered", sessions, 7, 400, 5)
    assert of_sessions.recorded(3.4, 400, 60) == (
        ("tiered", traces),
        {"most_steps": 60, "window_ps": 99},
    )

    def workload(arrivals: Any, requests: int) -> Any:
        return SimpleNamespace(trace=lambda seed, stretch: (arrivals, requests, seed, stretch))

    plain = Small(workload=workload, _ranks=lambda trace: trace, traffic=traffic(seed=5, cv=2.0))
    arrivals = OpenLoop(rate=3.4, process="poisson", cv=2.0)
    how = {"most_steps": 60}
    assert plain.recorded(3.4, 400, 60) == ((plain.spec, (arrivals, 400, 5, True)), how)
    plain.shared = SimpleNamespace(trace=lambda *args: args)
    assert plain.recorded(3.4, 400, 60) == ((plain.spec, (3.4, 400, 5)), how)


def test_the_lengths_of_a_workload_are_those_of_the_question_or_of_new_turns() -> None:
    lengths = {"isl": Lengths(mean=100), "osl": Lengths(mean=10)}
    loop, new = OpenLoop(rate=2.0), Lengths(mean=30)
    knobs = SimpleNamespace(tokens_per_block=16)
    deployment = SimpleNamespace(knobs=knobs)
    plain = Small(traffic=traffic(pairs="pairs"), deployment=deployment).workload(loop, 40)
    assert (plain.isl, plain.osl) == (lengths["isl"], lengths["osl"])
    assert (plain.arrivals, plain.requests, plain.pairs, plain.sessions) == (
        loop,
        40,
        "pairs",
        None,
    )
    for fresh, sessions, isl in ((new, "sessions", new), (None, "sessions", lengths["isl"])):
        sharing = SimpleNamespace(new=fresh, sessions=sessions)
        sharing.shorter = lambda *blocks, sharing=sharing: sharing
        small = Small(
            traffic=traffic(sharing=sharing),
            deployment=deployment,
            knobs=knobs,
        )
        work = small.workload(loop, 40)
        assert (work.isl, work.osl, work.arrivals, work.requests) == (isl, lengths["osl"], loop, 40)
        assert work.sessions == (sessions if fresh else None)


def test_a_front_end_has_the_requests_of_its_rank() -> None:
    small = Small()
    small.step.front_end_busy = lambda *args: args
    assert small.front_end_busy(6.0) == (3.0, 100, 10, 0.0)
    assert small.front_end_busy(6.0, 40.0) == (3.0, 100, 10, 40.0)


def test_blocks_of_the_size_that_is_simulated() -> None:
    """Where a cache keeps prefixes, of a size by what has to be computed of a prompt."""
    deployment = make_dataclass("Deployment", ["knobs"])
    knobs = make_dataclass("Knobs", ["prefix_caching", "tokens_per_block"])
    sharing = SimpleNamespace(
        best=lambda osl: SimpleNamespace(computed=30.0, common=0.0),
        block_tokens=lambda block, computed: (block, computed),
    )
    small = Small(deployment=deployment(knobs(True, 16)), traffic=traffic(sharing=sharing))
    assert small._simulated() == deployment(knobs(True, (16, 30.0)))
    small.deployment = deployment(knobs(False, 16))
    assert small._simulated() is small.deployment
    plain = Small(deployment=deployment(knobs(True, 16)))
    assert plain._simulated() is plain.deployment


@pytest.mark.parametrize(
    ("changed", "common", "batch"),
    [
        ({}, 0, 7),  # 110 tokens take 11 of 80 blocks
        ({"max_batch_size": 5}, 0, 5),
        ({"blocks": 10}, 0, 1),
        ({}, 60, 16),  # 60 tokens of a prompt are in blocks that all requests hold together
        ({}, 100, 32),  # a token and ten of the answer: 2 blocks
        ({"scheduler": "static"}, 60, 3),
    ],
)
def test_the_requests_that_an_instance_holds_at_once(
    changed: dict[str, Any], common: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    knobs = SimpleNamespace(
        prefix_caching=True,
        max_batch_size=changed.get("max_batch_size", 32),
        scheduler=changed.get("scheduler", "vllm"),
    )
    memory = SimpleNamespace(
        blocks=changed.get("blocks", 80),
        request_blocks=lambda tokens: -(-tokens // 10),
        concurrent_requests=lambda isl, osl: 3 if (isl, osl) == (100, 10) else 0,
    )
    prices: list[Any] = []

    def estimated(deployment: Any, **how: Any) -> Any:
        prices.append((deployment, how))
        return SimpleNamespace(memory=memory, step="step", knobs="knobs")

    monkeypatch.setattr(instances, "estimated_instance", estimated)
    monkeypatch.setattr(instances, "slower", lambda step, factor: (step, factor))
    monkeypatch.setattr(
        instances, "engine_spec", lambda *args: SimpleNamespace(args=args, knobs=knobs)
    )
    for name, value in {
        "_simulated": lambda self: "simulated",
        "_computed": lambda self, caches: (50.0, common),
        "_check_longest": lambda self: None,
        "_shared": lambda self: "shared",
        "unloaded_ttft_s": lambda self: 0.5,
        "unloaded_tpot_s": lambda self: 0.02,
    }.items():
        monkeypatch.setattr(Instance, name, value)
    deployment = SimpleNamespace(parallelism=SimpleNamespace(dp=2))
    asked = replace(traffic_of(99.5, 9.2), step_factor=1.5, gpus_per_system=4)
    made = Instance(deployment, asked)
    assert prices == [("simulated", {"gpus_per_system": 4, "prompt_tokens": 100})]
    assert made.spec.args == (deployment, ("step", 1.5), "knobs", memory)
    assert (made.batch, made.in_flight, made.computed) == (batch, 2 * batch, 50.0)
    assert made.alone_e2e_s == pytest.approx(0.5 + 9.2 * 0.02)
    assert (made.deployment, made.traffic, made.memory, made.shared) == (
        deployment,
        asked,
        memory,
        "shared",
    )


def test_traffic_is_of_whole_systems_as_predicted_unless_it_says_otherwise() -> None:
    usual = traffic_of()
    assert (usual.pairs, usual.step_factor, usual.gpus_per_system) == (None, 1.0, 8)
    assert (usual.memories, usual.router, usual.sharing) == ((), "least-outstanding", None)
