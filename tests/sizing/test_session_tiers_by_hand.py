"""What recorded sessions are like on a choice, and what keeping their caches buys, by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tonnage.plan.demand import HeldSessions, KeptCache
from tonnage.plan.fleet import fleet
from tonnage.sizing import session_tiers as module
from tonnage.sizing.loads.instance import SURE
from tonnage.sizing.session_tiers import _kept_caches, _rate, held_sessions, with_tiers
from tonnage.spec.kv_tiers import OFF


class Recorded(SimpleNamespace):
    """Two sessions of three requests and one, which take 10 and 30 s."""

    def __len__(self) -> int:
        return len(self.starts) - 1


def recorded() -> Any:
    return Recorded(
        starts=np.array([0, 3, 4]),
        isl=np.array([100, 300, 200, 400]),
        osl=np.array([10, 20, 30, 40]),
        lasts_s=np.array([10.0, 30.0]),
        pace=0.1,
        requests=2.0,
        source="sessions.jsonl",
    )


def latencies(**values: float | None) -> Any:
    return SimpleNamespace(**values)


SEEN = latencies(
    slowdown_ms=latencies(p50=1_200.0, p90=1_900.0),
    first_ttft_ms=latencies(p95=700.0),
    further_ttft_ms=latencies(p95=500.0),
)


@pytest.mark.parametrize(
    ("sessions", "words"),
    [
        (SEEN, (1.2, 1.9, 700.0, 500.0)),
        (None, (None, None, None, None)),
        (
            latencies(
                slowdown_ms=latencies(p50=None, p90=1_900.0),
                first_ttft_ms=latencies(p95=None),
                further_ttft_ms=latencies(p95=500.0),
            ),
            (None, 1.9, None, 500.0),
        ),
        (
            latencies(
                slowdown_ms=latencies(p50=1_200.0, p90=None),
                first_ttft_ms=latencies(p95=700.0),
                further_ttft_ms=latencies(p95=None),
            ),
            (1.2, None, 700.0, None),
        ),
    ],
)
def test_what_sessions_are_like_at_the_load_of_a_choice(
    sessions: Any, words: tuple[float | None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance carries 0.9 requests/s of sessions that send 0.1; a quarter of the prompts comes
    from caches; of five requests one is left out."""
    of = recorded()
    opened: list[Any] = []
    record = SimpleNamespace(cached_tokens=np.array([50, 75]), isl=np.array([200, 300]))
    running = SimpleNamespace(
        recorded_sessions=of,
        traffic=SimpleNamespace(seed=7),
        requests_of=lambda rate, care: (rate, care),
        open=lambda *what: opened.append(what) or record,
        below=(SimpleNamespace(name="vllm"), ()),
    )
    keys: list[Any] = []

    def once(key: Any, run: Any) -> Any:
        keys.append(key)
        return run()

    source = SimpleNamespace(trace_requests=5, sessions=40)
    contender = SimpleNamespace(
        question=SimpleNamespace(demand=SimpleNamespace(source=source)),
        running=running,
        runs=SimpleNamespace(once=once),
    )
    best: Any = SimpleNamespace(contender=contender, rate=0.9, instances=3, systems=2)
    monkeypatch.setattr(module, "middle", lambda record: record)
    monkeypatch.setattr(module, "summarize", lambda record: SimpleNamespace(sessions=sessions))
    monkeypatch.setattr(module, "_tiers", lambda best: ("tiers",))
    monkeypatch.setattr(module, "_kept_caches", lambda best, of: ("kept", len(of)))
    assert held_sessions(best) == HeldSessions(
        at_once=40,
        per_instance=pytest.approx(9.0),
        per_system=pytest.approx(13.5),
        requests=2.0,
        input_tokens=500.0,
        computed_tokens=375.0,
        output_tokens=50.0,
        hit_rate=0.25,
        seconds=20.0,
        slowdown_p50=words[0],
        slowdown_p90=words[1],
        first_ttft_p95_ms=words[2],
        further_ttft_p95_ms=words[3],
        left_out=pytest.approx(0.2),
        source="sessions.jsonl",
        offloader="vllm",
        tiers=("tiers",),  # type: ignore[arg-type]
        kept=("kept", 2),  # type: ignore[arg-type]
    )
    assert opened == [(0.9, (0.9, SURE), 7)]
    assert keys == [(running, "sessions", 0.9, (0.9, SURE))]
    source.sessions = None
    assert held_sessions(best).at_once == 0.0  # type: ignore[union-attr]
    source.trace_requests = None
    assert held_sessions(best) is None
    source.trace_requests, running.recorded_sessions = 5, None
    assert held_sessions(best) is None


@dataclass(frozen=True)
class Parts:
    """What is replaced part by part."""

    sharing: Any = None
    tiers: Any = None
    traffic: Any = None
    instance: Any = None
    trial: Any = None
    question: Any = None
    ready: Any = None
    runs: Any = None
    knobs: Any = None
    parallelism: Any = None
    prefix_caching: bool | None = None


def test_other_memories_below_a_cache_are_those_of_the_question_and_of_the_instance() -> None:
    made: list[Any] = []
    runs = SimpleNamespace(instance=lambda *what: made.append(what) or "other instance")
    traffic = Parts(sharing=Parts(tiers="old"))
    ready = Parts(instance=Parts(traffic=traffic), trial=Trial())
    contender: Any = Parts(question=Parts(sharing=Parts(tiers="older")), ready=ready, runs=runs)
    tiers: Any = "new"
    other: Any = with_tiers(contender, tiers)
    assert made == [("deployment", Parts(sharing=Parts(tiers="new")))]
    assert other == replace(
        contender,
        question=Parts(sharing=Parts(tiers="new")),
        ready=replace(ready, instance="other instance"),
    )
    for nothing in (
        replace(contender, question=Parts()),
        replace(contender, ready=replace(ready, instance=Parts(traffic=Parts()))),
    ):
        with pytest.raises(ValueError, match="share nothing"):
            with_tiers(nothing, OFF)


class Trial:
    """A trial of one deployment."""

    deployment = "deployment"


@pytest.mark.parametrize("offloads", [True, False])
@pytest.mark.parametrize(
    ("tokens", "pinned"),
    # the largest contexts are 320 and 440 tokens; of those that are met at any moment a quarter and
    # three quarters: 410
    [(2_049, 4), (2_050, 5), (409, 0), (10_000, 6)],
)
def test_what_becomes_of_a_cache_that_waits(
    *, offloads: bool, tokens: float, pinned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two ranks an instance carries 0.6 requests/s with the cache alone and none without."""
    deployment = Parts(knobs=Parts(prefix_caching=True), parallelism=SimpleNamespace(dp=1))
    instance = SimpleNamespace(
        memory=SimpleNamespace(tokens=tokens),
        deployment=deployment,
        traffic="traffic",
        recorded_sessions=recorded(),
        below=("rules", ("host",) if offloads else ()),
    )
    asked: list[Any] = []

    @dataclass(frozen=True)
    class Way:
        ready: Any
        instance: Any = None
        runs: Any = None
        layout: Any = None
        load: float = 6.0

        def alone_at(self, slowdown: Any) -> str:
            return f"breach at {slowdown}"

    runs = SimpleNamespace(instance=lambda *what: asked.append(what) or "computing")
    contender = Way(ready="ready", instance=instance, runs=runs, layout=fleet(4, 8))
    cached = Way(
        ready=Parts(instance="cached"), instance=SimpleNamespace(traffic="no tiers"), runs=runs
    )
    monkeypatch.setattr(
        module, "with_tiers", lambda of, tiers: cached if (of, tiers) == (contender, OFF) else None
    )
    rates = {"cached": 0.6, "computing": 0.0}
    monkeypatch.setattr(module, "_rate", lambda best, way: rates[way.ready.instance])
    best: Any = SimpleNamespace(
        contender=contender, rate=0.9, instances=3, systems=2, slowdown="slow"
    )
    kept = _kept_caches(best, recorded())
    assert asked == [(replace(deployment, knobs=Parts(prefix_caching=False)), "no tiers")]
    # each session sends a tenth of a request; a system has one and a half instances
    assert kept == (
        KeptCache(how="recompute", per_system=0.0, systems=None, alone="breach at slow"),  # type: ignore[arg-type]
        KeptCache(
            how="pin",
            per_system=pytest.approx(1.5 * pinned),
            systems=None if not pinned else fleet(4, 8).carrying(6.0, 0.1 * pinned).systems,
        ),
        KeptCache(how="cache", per_system=pytest.approx(9.0), systems=5),
        *(
            (KeptCache(how="offload", per_system=pytest.approx(13.5), systems=4),)
            if offloads
            else ()
        ),
    )
    deployment.parallelism.dp = 2
    monkeypatch.setattr(module, "_rate", lambda best, way: 9.0)
    (pin,) = (cache for cache in _kept_caches(best, recorded()) if cache.how == "pin")
    assert pin.per_system == pytest.approx(1.5 * 2 * (tokens // 410))


def test_what_is_taken_away_never_carries_more_than_the_choice() -> None:
    looked: list[Any] = []
    answers: dict[str, Any] = {"needed": (3, SimpleNamespace(rate=0.5))}
    contender: Any = SimpleNamespace(
        needed=lambda slowdown, care: looked.append((slowdown, care)) or answers["needed"]
    )
    best: Any = SimpleNamespace(rate=0.9, slowdown="slow", care="sure")
    assert _rate(best, contender) == 0.5
    answers["needed"] = (3, SimpleNamespace(rate=1.5))
    assert _rate(best, contender) == 0.9
    answers["needed"] = "reason"
    assert _rate(best, contender) == 0.0
    assert looked == [("slow", "sure")] * 3
