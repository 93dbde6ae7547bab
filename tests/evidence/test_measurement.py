"""What a measurement of the choice would buy: in the plan, as commands that the tool takes, and as
it turns out."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.measurement import Machine, Truth
from tests.questions import contenders, plans_with, question
from tests.serve.test_chain import flags_of, loads, slower
from tonnage.api import bench as bench_api
from tonnage.api.running.plans import planned
from tonnage.api.sizing import size
from tonnage.cli.main import run
from tonnage.evidence.measurement import (
    POINTS,
    Afterwards,
    ClosedLoad,
    Design,
    _grid,
    _lengths,
    _measurable,
    _Outcomes,
    _row,
    _variance_left,
    design,
    greedy,
    measurement,
    width_left,
)
from tonnage.evidence.predict import Point
from tonnage.perf.pipeline import start_seconds
from tonnage.perf.residuals import LEVELS, SCALE, Residuals
from tonnage.plan.cost import YearlyCost
from tonnage.plan.fleet import fleet
from tonnage.plan.plan import Plan
from tonnage.plan.sensitivity import FOLDER, Measurement, Sweep
from tonnage.results.metrics import summarize
from tonnage.results.store import write_run
from tonnage.simulator.simulate import simulate_many
from tonnage.sizing.loads.confidence import StepErrors, step_errors
from tonnage.spec.lengths import parse_lengths
from tonnage.spec.workload import Workload

few_parts = plans_with()


ASKED: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "precision": "fp8",
    "tp": "1",
    "engine": "tensorrt-llm",
    "isl": 1000,
    "osl": 100,
    "peak_rps": 2000,
    "ttft": "p95<=500ms",
    "tpot": "p95<=50ms",
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return size(**ASKED)


def test_a_plan_says_what_ten_points_would_buy(plan: Plan) -> None:
    found, choice = plan.measurement, plan.choice
    assert found.points == 10
    assert found.systems == choice.confidence.systems
    for level, now in found.systems.items():  # never wider
        after, middle = found.after[level], found.after["50"]
        assert now is not None
        assert middle <= after <= now
    assert found.now is not None
    assert found.expected_systems is not None
    assert found.after["80"] is not None
    assert found.narrows
    assert 0 < found.left < 0.5
    assert 600 < found.seconds < 7200


def test_it_is_worth_the_systems_that_it_saves(plan: Plan) -> None:
    found = plan.measurement
    assert isinstance(plan.cost, YearlyCost)
    each = min(
        way.total_usd_per_year
        for way in plan.cost.ways
        if way.where in ("on-prem", "cloud") and way.total_usd_per_year is not None
    )
    each /= plan.choice.systems
    assert found.usd == pytest.approx(each * found.seconds / (3600 * 8760), rel=0.01)
    assert found.saved_usd_per_year == pytest.approx(
        each * found.saved_systems - (found.usd or 0), rel=0.01
    )


def test_bench_takes_the_proposed_commands_as_they_stand(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parsed and checked by the command itself, up to where it would send its first request."""
    found, prepared = plan.measurement, list[Any]()

    def noted(made: Any, **_: Any) -> tuple[()]:
        prepared.append(made)
        return ()

    monkeypatch.setattr(bench_api, "run_bench", noted)
    monkeypatch.setattr("tonnage.cli.bench.print_answer", lambda *_, **__: None)
    for argv in found.bench:
        assert run(argv[1:]) == 0
    for made, sweep in zip(prepared, found.sweeps, strict=True):
        assert tuple(one.arrivals.concurrency for one in made.questions) == sweep.concurrency
        assert {(one.isl.mean, one.osl.mean, one.seconds) for one in made.questions} == {
            (sweep.isl, sweep.osl, sweep.seconds)
        }


@pytest.mark.parametrize("factor", [1.25, pytest.param(0.9, marks=pytest.mark.accuracy)])
def test_measured_as_proposed_the_answer_is_within_one_system_of_the_truth(
    plan: Plan,
    factor: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Run folders as ``bench`` leaves them, of a machine that takes so many times as long, and the
    calibrate command as it stands."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json()), encoding="utf-8")
    deployment = planned("plan.json").deployment
    monkeypatch.setattr("tests.serve.test_chain.SLOWER", factor)
    for argv in plan.measurement.bench:
        asked = flags_of(" ".join(argv))
        for where, arrivals, said in loads(asked):
            clients = int(said["concurrency"])
            lengths = {name: parse_lengths(asked[f"--{name}"], name) for name in ("isl", "osl")}
            (record,) = simulate_many(
                [(deployment, Workload(arrivals=arrivals, requests=6 * clients, **lengths))], seed=0
            )
            unknown = dict.fromkeys(("gpu", "precision", "tp", "engine"))
            scenario = {
                "model": asked["--model"],
                **unknown,
                "isl": asked["--isl"],
                "osl": asked["--osl"],
                "requests": 6 * clients,
            }
            shown = slower(record)
            write_run(tmp_path / where, {**scenario, "arrivals": said}, shown, summarize(shown), {})
    assert (tmp_path / FOLDER).is_dir()
    assert run(plan.measurement.calibrate[1:]) == 0, capsys.readouterr().err
    again = size(**ASKED, coefficients=plan.measurement.calibrate[-1])
    truth = Truth.of(plan, **ASKED).systems(Machine(factor=factor))
    assert abs(again.choice.systems - truth) <= 1
    assert again.measurement is None  # it is measured


@given(slope=st.floats(0.01, 20.0), count=st.integers(1, 12))
def test_equal_points_of_one_factor_leave_what_the_closed_form_says(
    slope: float, count: int
) -> None:
    """The variance of a normal mean with prior variance 1 after n measurements of precision s² is 1
    / (1 + n s²)."""
    _, left, _ = greedy(np.full((count, 1, 1), slope), np.array([2.0]))
    assert left == pytest.approx([1 / (1 + n * slope**2) for n in range(min(count, POINTS) + 1)])


@given(
    seed=st.integers(0, 10_000),
    points=st.integers(6, 20),
    terms=st.integers(1, 6),
    metrics=st.integers(1, 4),
)
def test_what_is_left_is_the_posterior_variance_and_never_grows(
    seed: int, points: int, terms: int, metrics: int
) -> None:
    rng = np.random.default_rng(seed)
    told, wanted = rng.normal(size=(points, terms, metrics)), rng.normal(size=terms)
    chosen, left, _ = greedy(told, wanted)
    assert len(chosen) == len(set(chosen)) == min(points, POINTS)
    assert all(0 <= after <= before + 1e-12 for before, after in pairwise(left))
    # the covariance of a posterior, by conditioning on the measured values
    for count in (1, len(chosen)):
        h = np.concatenate([told[i].T for i in chosen[:count]])
        posterior = np.eye(terms) - h.T @ np.linalg.solve(h @ h.T + np.eye(len(h)), h)
        assert left[count] == pytest.approx(
            wanted @ posterior @ wanted / (wanted @ wanted), abs=1e-9
        )
    first = [wanted @ np.linalg.solve(np.eye(terms) + one @ one.T, wanted) for one in told]
    assert first[chosen[0]] == pytest.approx(min(first))


def test_the_points_of_a_deployment_fit_into_it_and_tell_of_the_load() -> None:
    contender = contenders(question(tp="1"))[0]
    found = design(contender.running, "itl_ms", rate=10.0, clients=40.0)
    assert len(found.points) == len(set(found.points)) == POINTS
    assert all(one.isl + one.osl <= 2 * (1000 + 100) for one in found.points)
    assert max(one.clients for one in found.points) <= 80
    assert found.left[0] == 1.0
    assert found.left[-1] == found.left_of["itl_ms"] < 0.5
    assert found.left[-1] < found.left[3] < found.left[1]
    few = design(contender.running, "itl_ms", rate=0.1, clients=0.2)
    assert few is None or len(few.points) >= 6


def _normal(width: float) -> StepErrors:
    """Errors that are normal with that standard deviation, and half of it after a calibration."""
    plain = tuple(width * z for z in SCALE)
    table = {"itl_ms": {"loaded": plain, "calibrated": tuple(z / 2 for z in plain)}}
    regime = step_errors(question(), contenders(question(tp="1"))[0].ready.trial.deployment)[
        "requests_s"
    ].regime
    known = replace(
        regime,
        known_gpu=True,
        known_engine=True,
        known_model=True,
        known_format=True,
        known_family=True,
        current=False,
    )
    return StepErrors(
        metric="itl_ms",
        regime=known,
        residuals=Residuals(quantiles=table, stretch={}, unseen_gpu={}),
    )


def test_what_is_found_and_what_is_left_add_up_to_the_errors_now() -> None:
    """Law of total variance: normal findings and a normal rest make the normal errors of today."""
    errors = _normal(0.2)
    share = width_left(errors, 0.0)
    assert share == pytest.approx(0.5)
    assert width_left(errors, 1.0) == pytest.approx(1.0)
    assert width_left(errors, 0.0) < width_left(errors, 0.3) < width_left(errors, 0.6) < 1.0
    spread = []
    for p in (0.1, 0.5, 0.9):
        after = Afterwards(
            metric=errors.metric,
            regime=errors.regime,
            residuals=errors.residuals,
            kept=share,
            found=p,
        )
        assert math.log(after.factor(0.9) / after.factor(0.5)) == pytest.approx(
            share * 0.2 * NormalDist().inv_cdf(0.9)
        )
        spread.append(math.log(after.factor(0.5)))
    found = (spread[2] - spread[0]) / (2 * NormalDist().inv_cdf(0.9))
    assert math.hypot(found, share * 0.2) == pytest.approx(0.2)
    nothing = Afterwards(
        metric=errors.metric, regime=errors.regime, residuals=errors.residuals, kept=1.0, found=0.95
    )
    assert [nothing.factor(p) for p in LEVELS] == pytest.approx([errors.factor(p) for p in LEVELS])


# The numbers of a measurement by hand: a choice of 10 systems with two instances in each.


def outcomes(
    systems: dict[str, int | None] | None = None, *, confidence: float = 0.8, **changed: Any
) -> Any:
    """What may come out for a load of 100 requests/s, of which an instance carries 5."""
    points = [(100, 50, 4, 1.0), (100, 50, 1, 0.5), (25, 50, 8, 20.5), (100, 50, 2, 2.0)]
    design = Design(
        points=tuple(ClosedLoad(isl=isl, osl=osl, clients=n) for isl, osl, n, _ in points),
        e2e_s=tuple(e2e_s for *_, e2e_s in points),
        left=(1.0, 0.4),
        left_of={"e2e_ms": 0.3},
    )
    contender = SimpleNamespace(
        load=100.0,
        layout=fleet(4, 8),
        question=SimpleNamespace(confidence=confidence, spare=1, step_factor=1.0),
        instance=SimpleNamespace(deployment=deployment()),
        as_asked="as asked",
        slowdown=lambda level: level,
        capacity=lambda instances, slowdown, care: SimpleNamespace(
            rate={"as asked": 8.0, 0.5: 5.0, 0.8: 4.0}.get(slowdown, slowdown)
        ),
        **changed,
    )
    choice = SimpleNamespace(
        systems=10,
        instances=20,
        sized_rate=5.0,
        standby=SimpleNamespace(extra_systems=2),
        confidence=None if systems is None else SimpleNamespace(systems=systems),
    )
    return _Outcomes(contender=contender, choice=choice, points=design)


@cache
def deployment() -> Any:
    return contenders(question())[0].ready.trial.deployment


def test_systems_are_counted_with_spare_and_standby_ones_up_to_twice_the_choice() -> None:
    found = outcomes({"50": 9, "80": 10, "90": None})
    assert found._now() == {"50": 11, "80": 12, "90": None}
    assert outcomes()._now() == {}
    # two instances in a system: ⌈100 / (2 · rate)⌉, one spare and two on standby
    rates = [10.0, 5.0, 4.99, 2.95, 2.94, 0.0, -1.0]
    assert [found._systems(rate) for rate in rates] == [8, 13, 14, 20, None, None, None]
    found.choice.standby = None
    assert found._systems(5.0) == 11


@pytest.mark.parametrize(
    ("systems", "confidence", "level"),
    [
        ({"50": 9, "80": 10, "90": 12}, 0.8, 0.8),
        ({"50": 9, "80": None, "90": None}, 0.8, 0.5),
        ({"50": 9, "80": 10, "90": 12}, 0.9, 0.9),
        ({"50": 9, "80": 10, "90": 12}, 0.85, 0.8),  # the next that was looked at
        ({"50": None, "80": None}, 0.8, None),
        (None, 0.8, None),
    ],
)
def test_short_runs_are_scaled_to_what_the_plan_counts_on(
    systems: dict[str, int | None] | None, confidence: float, level: float | None
) -> None:
    found = outcomes(systems, confidence=confidence)
    assert found._level == level
    now = {None: 8.0, 0.5: 5.0, 0.8: 4.0}.get(level, level)
    assert found._rate(6.0) == pytest.approx(6.0 * 5.0 / now)
    found.contender.capacity = lambda instances, slowdown, care: SimpleNamespace(
        rate=0.0 if slowdown != 6.0 else slowdown
    )
    assert found._rate(6.0) == 6.0


def test_differences_beyond_those_now_are_scatter() -> None:
    found = outcomes()
    now = {"50": 9, "80": 12, "90": 15}
    assert found._between(now, {"50": 8, "80": 10, "90": 16}) == {"50": 9, "80": 10, "90": 15}
    assert found._between(now, {"80": None, "99": 14}) == {"80": 12, "99": 14}
    assert found._between({"50": None, "80": 12}, {"80": 8}) == {"80": 8}
    assert found._between({}, {"80": None}) == {"80": None}


def test_the_mean_number_of_systems_is_over_what_a_calibration_may_find() -> None:
    """Rates from 2 requests/s, where it finds steps slow, to 32, on a line of logarithms over the
    quantiles 0.05, 0.25, … 0.95."""
    found = outcomes({"50": 9, "80": 10})
    rates = dict(zip((0.05, 0.25, 0.5, 0.75, 0.95), (2.0, 4.0, 8.0, 16.0, 32.0), strict=True))
    fakes = SimpleNamespace(
        contender=found.contender,
        choice=found.choice,
        _after=lambda level, quantile: (level, quantile),
        _rate=lambda after: rates[after[1]] * (after[0] == 0.8),
        _systems=found._systems,
    )
    places = [0.05, 0.25, 0.5, 0.75, 0.95]
    counts = []
    for number in range(40):
        share = (number + 0.5) / 40
        at = min(max(share, 0.05), 0.95)
        left = max(place for place in range(4) if places[place] <= at)
        part = (at - places[left]) / (places[left + 1] - places[left])
        rate = max(2.0, 100 / 40) * (4 / 2.5) ** part if left == 0 else 2.0 ** (left + 1 + part)
        systems = math.ceil(100 / (2 * rate) - 1e-9) + 3
        counts.append(systems if systems <= 20 else 20)
    assert _Outcomes._expected(fakes, 0.8) == pytest.approx(np.mean(counts))  # type: ignore[arg-type]


def test_the_points_are_measured_by_their_lengths_for_whole_steps_of_seconds() -> None:
    """Ten times the longest request, a minute at least, in steps of ten seconds."""
    found = outcomes()
    first, second = sweeps = tuple(found._sweeps())
    assert first == Sweep(isl=100, osl=50, concurrency=(1, 2, 4), seconds=60)
    assert second == Sweep(isl=25, osl=50, concurrency=(8,), seconds=210)
    assert found._sending([0]) == 60
    start = start_seconds(deployment())
    assert found._seconds(sweeps) == pytest.approx(start + 3 * 60 + 210 + 24.0)


def test_the_points_that_could_be_measured_fit_the_cache_and_the_slots() -> None:
    """A question of 400 and 40 tokens whose longest request has 520, on 1,000 blocks of 16."""

    def grid(
        clients: float, longest: int = 520, **changed: Any
    ) -> dict[tuple[int, int], list[int]]:
        instance = SimpleNamespace(
            computed=400.2,
            traffic=SimpleNamespace(
                pairs=changed.get("pairs"),
                isl=SimpleNamespace(longest=longest - 60),
                osl=SimpleNamespace(longest=60, mean=40.4),
            ),
            memory=SimpleNamespace(
                blocks=changed.get("blocks", 1_000),
                request_blocks=lambda tokens: math.ceil(tokens / 16),
            ),
            knobs=SimpleNamespace(max_batch_size=changed.get("slots", 64)),
            deployment=SimpleNamespace(parallelism=SimpleNamespace(dp=changed.get("ranks", 1))),
        )
        found: dict[tuple[int, int], list[int]] = {}
        for load in _grid(instance, clients):  # type: ignore[arg-type]
            found.setdefault((load.isl, load.osl), []).append(load.clients)
        return found

    shapes = [(400, 40), (100, 40), (400, 16), (100, 160)]
    assert grid(4.0) == {shape: [1, 2, 4, 8] for shape in shapes}
    assert grid(0.2) == {shape: [1, 2] for shape in shapes}
    # a request of 440 tokens takes 28 blocks, of 140 nine, of 416 26, of 260 17
    assert [max(counts) for counts in grid(1e3).values()] == [32, 64, 32, 32]
    assert [max(counts) for counts in grid(1e3, ranks=2).values()] == [64, 128, 64, 64]
    assert [max(counts) for counts in grid(1e4, slots=9_999, blocks=10**6).values()] == [512] * 4
    assert list(grid(4.0, longest=430)) == [(100, 40), (400, 16), (100, 160)]
    pairs = SimpleNamespace(longest=200)
    assert list(grid(4.0, pairs=pairs)) == [(100, 40)]


def test_what_is_left_of_a_variance() -> None:
    wanted = np.array([3.0, 4.0])
    assert _variance_left(np.eye(2), wanted) == pytest.approx(1.0)
    assert _variance_left(np.diag([4.0, 1.0]), wanted) == pytest.approx((9 / 4 + 16) / 25)
    assert _variance_left(np.diag([4.0, 8.0]), np.zeros(2)) == 1.0
    assert _variance_left(np.diag([0.5, 0.5]), wanted) == 1.0


def choice_of(**changed: Any) -> Any:
    """A choice that can be measured."""
    return SimpleNamespace(
        **{
            "confidence": SimpleNamespace(systems={"50": 9, "80": 10}),
            "pools": (1,),
            "knobs": SimpleNamespace(scheduler="vllm"),
            "parallelism": SimpleNamespace(pp=1),
            "engine": "vllm",
            "engine_preset": "vllm",
            "gpu": "h100-sxm-80gb",
            **changed,
        }
    )


def question_of(**changed: Any) -> Any:
    """A question whose choice can be measured."""
    return SimpleNamespace(
        **{
            "calibration": None,
            "step_source": None,
            "sharing": None,
            "recording": None,
            "offline": False,
            "deepen": True,
            **changed,
        }
    )


@pytest.mark.parametrize(
    ("of_question", "of_choice", "measurable"),
    [
        ({}, {}, True),
        ({"sharing": SimpleNamespace(recorded=None)}, {}, True),
        ({"sharing": SimpleNamespace(recorded="sessions")}, {}, False),
        ({"calibration": "terms"}, {}, False),
        ({"step_source": "table"}, {}, False),
        ({"recording": "trace"}, {}, False),
        ({"offline": True}, {}, False),
        ({}, {"confidence": None}, False),
        ({}, {"pools": (1, 2)}, False),
        ({}, {"knobs": None}, False),
        ({}, {"knobs": SimpleNamespace(scheduler="static")}, False),
        ({}, {"parallelism": SimpleNamespace(pp=2)}, False),
        ({}, {"engine_preset": "vllm-0.12"}, False),
        ({}, {"gpu": "no-such-gpu"}, False),
        ({}, {"gpu": "h100"}, False),  # another name of it: no catalog id
    ],
)
def test_a_choice_is_measured_where_a_calibration_would_apply_to_it(
    of_question: dict[str, Any], of_choice: dict[str, Any], measurable: bool
) -> None:
    assert _measurable(question_of(**of_question), choice_of(**of_choice)) is measurable


def test_nothing_is_measured_of_a_quick_answer_none_or_one_on_a_fleet_that_exists() -> None:
    for of_plan, of_question in (
        ({"choice": None, "existing": None}, {}),
        ({"choice": choice_of(), "existing": None}, {"deepen": False}),
        ({"choice": choice_of(), "existing": "fleet"}, {}),
        ({"choice": choice_of(pools=()), "existing": None}, {}),
    ):
        plan = SimpleNamespace(**of_plan)
        found = measurement(question_of(**of_question), plan, None)  # type: ignore[arg-type]
        assert found is None


@pytest.mark.parametrize(("load", "rate"), [("open", 5.0), ("closed", None)])
def test_the_points_are_designed_for_the_load_that_the_choice_carries(
    load: str, rate: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rate of an instance of an open loop, its clients, and the metric that ends the load."""
    designed: list[Any] = []
    made: list[Any] = [None, "points"]

    def design_of(*values: Any, **more: Any) -> Any:
        designed.append((*values, more))
        return made.pop(0)

    def outcomes_of(**values: Any) -> Any:
        return SimpleNamespace(measurement=lambda deciding: (values, deciding))

    contender = SimpleNamespace(running="instance")
    module = "tonnage.evidence.measurement"
    monkeypatch.setattr(f"{module}.contender_of", lambda *_: contender)
    monkeypatch.setattr(f"{module}.design", design_of)
    monkeypatch.setattr(f"{module}.metric_of", lambda binds: f"metric of {binds}")
    monkeypatch.setattr(f"{module}._Outcomes", outcomes_of)
    choice = choice_of(binds="ttft", sized_rate=5.0, concurrency_per_instance=40.0)
    plan: Any = SimpleNamespace(choice=choice, existing=None)
    question: Any = question_of(load=load)
    assert measurement(question, plan, None) is None  # type: ignore[arg-type]
    assert measurement(question, plan, None) == (  # type: ignore[arg-type]
        {"contender": contender, "choice": choice, "points": "points"},
        "metric of ttft",
    )
    assert designed == [("instance", "metric of ttft", {"rate": rate, "clients": 40.0})] * 2
    choice.concurrency_per_instance = None
    assert measurement(question, plan, None) is None  # type: ignore[arg-type]
    monkeypatch.setattr(f"{module}.contender_of", lambda *_: None)
    choice.concurrency_per_instance = 40.0
    assert measurement(question, plan, None) is None  # type: ignore[arg-type]


def test_what_is_said_of_a_measurement_field_by_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each confidence the systems of the rate afterwards, and at the question's own."""
    found = outcomes({"50": 9, "80": 10, "95": 12, "85": 11}, confidence=0.85)
    found.contender.instance.deployment = deployment()
    rates = {0.5: 5.5, 0.8: 5.2, 0.85: 5.0, 0.95: 4.6}
    monkeypatch.setattr(_Outcomes, "_after", lambda _, level, quantile: (level, quantile))
    monkeypatch.setattr(_Outcomes, "_rate", lambda _, after: rates[after[0]] * (after[1] == 0.5))
    monkeypatch.setattr(_Outcomes, "_expected", lambda _, level: 100 * level)
    said = found.measurement("e2e_ms")
    sweeps = tuple(found._sweeps())
    # two instances in a system, one spare system and two on standby; not below those at 50 % now
    assert said == Measurement(
        model=deployment().model.name,
        confidence=0.85,
        sweeps=sweeps,
        seconds=found._seconds(sweeps),
        left=0.3,
        systems={"50": 11, "80": 12, "95": 14, "85": 13},
        after={"50": 11, "80": 12, "85": 13, "95": 14},
        expected_systems=85.0,
    )
    unknown = outcomes({"50": 9, "80": None, "95": None})
    assert unknown.measurement("e2e_ms").expected_systems is None
    nobody = outcomes()
    assert nobody.measurement("e2e_ms").systems == {}


def test_lengths_and_rows_of_points_that_nobody_has_measured() -> None:
    def lengths(computed: float, osl: float) -> tuple[int, int]:
        traffic = SimpleNamespace(osl=SimpleNamespace(mean=osl))
        return _lengths(SimpleNamespace(computed=computed, traffic=traffic))  # type: ignore[arg-type]

    assert [lengths(0.2, 1.0), lengths(399.6, 2.4), lengths(1.6, 3.6)] == [(1, 2), (400, 2), (2, 4)]
    point = Point(deployment=deployment(), isl=7, osl=9, concurrency=3, requests=11)
    assert _row(point) == {
        "point": point,
        "model": deployment().model.name,
        "isl": 7,
        "osl": 9,
        "batch": None,
        "concurrency": 3,
        "request_rate": None,
        "ttft_ms": 1.0,
        "ttft_p95_ms": 1.0,
        "itl_ms": 1.0,
        "e2e_ms": 1.0,
        "requests_s": 1.0,
    }
