"""What closed forms say of a question before anything is simulated."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.questions import best, contenders, question
from tests.sizing.search.contenders import asked_for, carrying, ready_of
from tonnage.errors import InputError
from tonnage.plan.candidate import Identity
from tonnage.plan.limit import Breach, limit_of
from tonnage.plan.reason import BrokenAtAnyLoad, NotSure
from tonnage.sizing.estimate import Estimate, _alone, _by_gpu, _estimate, _key, estimates
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import MARGIN
from tonnage.spec.deployment import parse_limit

SEVERAL = {"gpu": "l40s,h100", "tp": "1,2", "peak_rps": 900}


def test_each_gpu_has_the_deployment_that_needs_the_fewest_of_them() -> None:
    asked = question(**SEVERAL, spare=1)
    expected: dict[str, list[Estimate]] = {}
    for one in contenders(asked):
        trial = one.ready.trial
        # a little more than the simulation finds: the bound is that much too high at most
        rate = one.bound(one.slowdown(asked.confidence)) / MARGIN
        per_system = 8 // trial.deployment.parallelism.gpus
        systems = math.ceil(900 / (rate * per_system)) + 1
        expected.setdefault(trial.deployment.gpu.name, []).append(
            Estimate(
                deployment=trial.identity,
                system=trial.system.name,
                systems=systems,
                systems_exact=pytest.approx(900 / rate / per_system),
                gpus=8 * systems,
                requests_per_second=pytest.approx(rate),
                ttft_ms=pytest.approx(1e3 * one.instance.unloaded_ttft_s()),
                tpot_ms=pytest.approx(1e3 * one.instance.unloaded_tpot_s()),
                confidence=0.8,
            )
        )
    found = estimates(asked, Runs())
    assert [one.deployment.gpu for one in found] == ["h100-sxm-80gb", "l40s"]
    assert found[0].gpus < found[1].gpus
    for one in found:
        of_gpu = expected[one.deployment.gpu]
        assert len(of_gpu) == 2
        assert one in of_gpu
        assert one.gpus == min(other.gpus for other in of_gpu)


@pytest.mark.parametrize(
    "limits",
    [
        {"ttft": "p95<=14ms"},
        {"ttft": "p95<=16ms"},  # TP 1 takes 19 ms alone, TP 2 15 ms
        {"ttft": "p95<=24ms"},
        {"ttft": None, "tpot": "p95<=2ms"},
        {"ttft": None, "e2e": "p95<=300ms"},
        {"isl": "1000+-400", "ttft": "p95<=20ms"},
        {"isl": "1000+-400", "ttft": "p95<=40ms"},
        {"ttft": "p95<=30ms", "gpu": "l40s,h100", "engine": "vllm"},
    ],
)
def test_what_breaks_a_limit_alone_is_estimated_as_the_search_answers_it(
    limits: dict[str, str | None],
) -> None:
    asked = question(**{"peak_rps": 5, **limits})
    estimated = estimates(asked, Runs())
    assert estimated
    level = estimated[0].confidence
    assert level in (asked.confidence, None)
    alone = {
        contender.ready.trial.identity: contender.capacity(
            1, None if level is None else contender.slowdown(level)
        ).reason
        for contender in contenders(asked)
    }
    for estimate in estimated:
        reason = alone[estimate.deployment]
        if estimate.breach is None:
            assert not isinstance(reason, BrokenAtAnyLoad | NotSure)
            assert estimate.requests_per_second > 0
            continue
        assert isinstance(reason, BrokenAtAnyLoad | NotSure)
        assert estimate.breach.limit == reason.breach.limit
        assert estimate.breach.value_ms == pytest.approx(reason.breach.value_ms)
        assert (estimate.systems, estimate.gpus, estimate.requests_per_second) == (0, 0, 0.0)
        others = [alone[identity] for identity in alone if identity.gpu == estimate.deployment.gpu]
        assert all(isinstance(other, BrokenAtAnyLoad | NotSure) for other in others)
    if all(estimate.breach is not None for estimate in estimated):
        with pytest.raises(LookupError):
            best(asked)
    else:
        assert (level is None) == (best(asked).level != asked.confidence)


def test_nothing_is_estimated_where_no_closed_form_speaks_and_bad_questions_are_refused() -> None:
    offline = {"peak_rps": None, "ttft": None, "mode": "offline", "requests": 1e5, "within": "1h"}
    assert estimates(question(**offline), Runs()) == ()
    assert estimates(question(load="closed"), Runs()) == ()
    with pytest.raises(InputError):
        estimates(question(isl=100_000, osl=100_000), Runs())


def estimate(gpus: int, systems: int, exact: float, value_ms: float | None = None) -> Estimate:
    limit = limit_of(parse_limit("ttft", "p95<=500ms"))
    return Estimate(
        deployment=Identity(gpu="g", precision="fp8", tp=1, engine="e"),
        system="s",
        systems=systems,
        systems_exact=exact,
        gpus=gpus,
        requests_per_second=1.0,
        ttft_ms=1.0,
        tpot_ms=1.0,
        confidence=0.8,
        breach=None if value_ms is None else Breach(limit=limit, value_ms=value_ms or None),
    )


def test_estimates_come_by_their_gpus_and_then_by_how_much_of_these_they_take() -> None:
    """Of eight GPUs a half, three quarters of one system, 1.5 of two of four; then the nearest of
    those that break a limit, by its share."""
    in_order = [
        estimate(8, 1, 0.5),
        estimate(8, 2, 1.1),
        estimate(8, 1, 0.6),
        estimate(8, 2, 1.5),
        estimate(16, 2, 0.1),
        estimate(0, 0, 0.0, 0.0),
        estimate(0, 0, 0.0, 600.0),
        estimate(0, 0, 0.0, 900.0),
    ]
    assert sorted([*in_order[4:], *in_order[:4]], key=_key) == in_order
    assert [_key(one) for one in in_order] == [
        (0, 8, 4.0),
        (0, 8, 4.4),
        (0, 8, pytest.approx(4.8)),
        (0, 8, 6.0),
        (0, 16, pytest.approx(0.8)),
        (1, 0.0),
        (1, 600 / in_order[6].breach.limit.seconds),
        (1, 900 / in_order[7].breach.limit.seconds),
    ]
    assert _key(estimate(0, 0, 0.0)) == (0, 0, 0.0)


BREACH = Breach(limit=limit_of(parse_limit("ttft", "p95<=500ms")), value_ms=600.0)


def contender(gpu: str, most: float, *, meets: bool = True, width: int = 2) -> Any:
    """Instances of two GPUs that closed forms allow so much, a tenth less with slower steps."""
    ready = ready_of(width)
    ready.trial.identity = Identity(gpu=gpu, precision="fp8", tp=width, engine="e")
    ready.instance.unloaded_ttft_s = lambda: 0.25
    ready.instance.unloaded_tpot_s = lambda: 0.02
    of = carrying(100.0, width, ready=ready, question=asked_for(100.0, spare=1))
    return SimpleNamespace(
        question=of.question,
        ready=ready,
        instance=ready.instance,
        layout=of.layout,
        load=of.load,
        as_asked="as asked",
        slowdown=lambda level: f"at {level}",
        bound=lambda slowdown: most * (1.0 if slowdown == "as asked" else 0.9),
        meets_alone=lambda slowdown: meets or slowdown == "as asked",
        alone_at=lambda slowdown: BREACH,
    )


@pytest.mark.parametrize(("level", "rate"), [(0.8, 9.0), (None, 10.0)])
def test_an_estimate_by_closed_forms(level: float | None, rate: float) -> None:
    """100 requests/s at 9 or 10 an instance, of which four are on a system, and one spare system."""
    found = _estimate(contender("g", 10.0 * MARGIN), level)
    assert found == Estimate(
        deployment=Identity(gpu="g", precision="fp8", tp=2, engine="e"),
        system="system",
        systems=4,
        systems_exact=pytest.approx(100 / rate / 4),
        gpus=32,
        requests_per_second=pytest.approx(rate),
        ttft_ms=250.0,
        tpot_ms=20.0,
        confidence=level,
    )
    nothing = _estimate(contender("g", 0.0), level)
    assert (nothing.systems, nothing.systems_exact, nothing.gpus) == (0, 0.0, 0)
    assert _alone(found, contender("g", 10.0)) is found
    broken = _alone(found, contender("g", 10.0, meets=False))
    if level is None:
        assert broken is found
    else:
        assert broken == replace(
            found, systems=0, systems_exact=0.0, gpus=0, requests_per_second=0.0, breach=BREACH
        )


def test_each_gpu_has_its_best_that_a_single_client_meets() -> None:
    """The fewest GPUs first; without systems where no deployment of a type is met."""
    made = [
        contender("a", 20.0, meets=False),
        contender("a", 10.0),
        contender("a", 5.0),
        contender("b", 30.0),
        contender("c", 30.0, meets=False),
        contender("d", 0.0),
    ]
    found = _by_gpu(made, 0.8)
    assert [one.deployment.gpu for one in found] == ["b", "a", "c"]
    assert [one.requests_per_second for one in found] == pytest.approx(
        [27 / MARGIN, 9 / MARGIN, 0.0]
    )
    assert [one.breach for one in found] == [None, None, BREACH]
    assert [one.deployment.gpu for one in _by_gpu(made, None)] == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("changed", "sure", "levels"),
    [
        ({}, [None, BREACH], [0.8]),
        ({}, [BREACH, BREACH], [0.8, None]),
        ({"offline": True}, [None], []),
        ({"load": "closed"}, [None], []),
    ],
)
def test_times_are_as_predicted_where_no_deployment_is_as_sure(
    changed: Any, sure: list[Any], levels: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, looked, checked = "tonnage.sizing.estimate", [], []
    asked = asked_for(1.0, check=lambda: checked.append(1), **changed)
    answers = tuple(SimpleNamespace(breach=breach) for breach in sure)
    monkeypatch.setattr(f"{module}.prepare", lambda question, runs: ("prepared", runs))
    monkeypatch.setattr(
        f"{module}.poolable", lambda question, ready: [ready, SimpleNamespace(), "rejected"]
    )
    monkeypatch.setattr(f"{module}.Ready", SimpleNamespace)
    monkeypatch.setattr(f"{module}.contenders_of", lambda question, ready, runs: (len(ready), runs))
    monkeypatch.setattr(
        f"{module}._by_gpu",
        lambda of, level: looked.append((of, level)) or answers,
    )
    found = estimates(asked, "runs")  # type: ignore[arg-type]
    assert looked == [((1, "runs"), level) for level in levels]
    assert found == (answers if levels else ())
    assert checked == [1]
