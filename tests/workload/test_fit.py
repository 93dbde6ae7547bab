"""A fitted scenario reproduces the traffic that it was fitted to: generated with known parameters, and recorded."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import tonnage
from tonnage import api
from tonnage.api.question.simulation import simulation_of
from tonnage.errors import InputError
from tonnage.spec.lengths import parse_lengths
from tonnage.spec.scenario_file import read_scenario
from tonnage.spec.workload import OpenLoop, Workload
from tonnage.workload.burstiness import spread
from tonnage.workload.description import fitted_lengths

SHARED = Path(__file__).parents[3] / "shared" / "data" / "traces"
RECORDED = (
    *(pytest.param(f"AzureLLMInferenceTrace_2023_{kind}.csv", marks=pytest.mark.accuracy) for kind in ("code", "conv")),
    "mooncake_conversation_2000.jsonl",
)
STATISTICS = ("mean", "p50", "p90", "p95", "p99")


def generated(path: Path, isl: str, osl: str, arrivals: OpenLoop) -> Path:
    """A trace of a workload with known parameters."""
    drawn = Workload(isl=parse_lengths(isl, ""), osl=parse_lengths(osl, ""), arrivals=arrivals, requests=20_000).trace(3)
    rows = (f"{due / 1e12:.9f},{i},{o}\n" for due, i, o in zip(drawn.due_ps, drawn.isl, drawn.osl, strict=True))
    path.write_text("timestamp,isl,osl\n" + "".join(rows))
    return path


def assert_alike(seen: np.ndarray, drawn: np.ndarray, floor: float = 0.0) -> None:
    first, second = spread(seen), spread(drawn)
    for name in STATISTICS:
        a, b = getattr(first, name), getattr(second, name)
        assert abs(b - a) <= 0.10 * max(a, floor), (name, a, b)


def assert_reproduced(trace: Path, scenario: Path, requests: int | None = None) -> None:
    """Mean and percentiles of ISL, OSL and gaps within 10 %, in the requests that a simulation of the scenario makes."""
    seen = api.describe_workload(trace).traffic.recording
    asked = {"model": "llama-3.1-8b", "requests": requests}
    if api.fit_workload(trace).scenario.demand.peak_rps is not None:
        asked["request_rate"] = read_scenario(str(scenario)).demand.peak_rps
    drawn = simulation_of(scenario, asked).workloads[0].trace(1)
    assert_alike(np.array(seen.isl), drawn.isl)
    assert_alike(np.array(seen.osl), drawn.osl)
    gaps = np.diff(np.array(seen.due_ns)) / 1e9
    assert_alike(gaps, np.diff(drawn.due_ps) / 1e12, floor=1e-3 * gaps.mean())


@pytest.mark.parametrize(
    ("isl", "osl", "arrivals"),
    [
        pytest.param("lognormal:2000,1500", "normal:400,80", OpenLoop(rate=5.0), marks=pytest.mark.accuracy),
        ("uniform:500-3000", "lognormal:200,150+50", OpenLoop(rate=20.0, process="gamma", cv=2.5)),
        pytest.param("1200", "lognormal:300,200", OpenLoop(rate=2.0, process="gamma", cv=0.4), marks=pytest.mark.accuracy),
        pytest.param("normal:3000,400", "128", OpenLoop(rate=3.0, process="constant"), marks=pytest.mark.accuracy),
    ],
    ids=["poisson", "bursty", "regular", "even"],
)
def test_known_parameters_are_recovered(isl: str, osl: str, arrivals: OpenLoop, tmp_path: Path) -> None:
    trace = generated(tmp_path / "trace.csv", isl, osl, arrivals)
    found = api.fit_workload(trace, tmp_path / "scenario.yaml")
    assert found.files == {}
    for name, written in (("isl", isl), ("osl", osl)):
        known, fitted = parse_lengths(written, ""), parse_lengths(getattr(found.scenario.lengths, name), "")
        assert fitted.kind == known.kind
        assert fitted.mean == pytest.approx(known.mean, rel=0.03)
        assert fitted.std == pytest.approx(known.std, rel=0.05)
    assert found.scenario.search.arrivals == arrivals.process
    assert found.scenario.demand.peak_rps == pytest.approx(arrivals.rate, rel=0.05)
    if arrivals.process == "gamma":
        assert found.scenario.search.cv == pytest.approx(arrivals.cv, rel=0.05)
    assert_reproduced(trace, tmp_path / "scenario.yaml", 20_000)


def test_a_distribution_that_draws_far_longer_requests_than_were_seen_does_not_fit() -> None:
    """Lengths cut to a longest one at p99.7: all percentiles but the last are those of a lognormal distribution that reaches further."""
    values = parse_lengths("lognormal:1000,2000", "").draw(20_000, np.random.default_rng(2))
    whole, cut = fitted_lengths(values), fitted_lengths(np.minimum(values, int(np.percentile(values, 99.7))))
    assert whole.fits
    assert cut.error <= 0.10
    assert cut.overshoots
    assert not cut.fits


def test_a_rate_that_drifts_is_no_poisson_process(tmp_path: Path) -> None:
    """Two hours whose rate doubles and halves again every ten minutes: gaps nearly exponential, minutes far from it."""
    rng = np.random.default_rng(5)
    gaps = rng.exponential(1.0, 30_000)
    due, now = [], 0.0
    for gap in gaps:
        now += gap / (4.0 + 1.3 * math.sin(2 * math.pi * now / 600))
        due.append(now)
    trace = tmp_path / "trace.csv"
    trace.write_text("timestamp,isl,osl\n" + "".join(f"{moment:.6f},{rng.integers(100, 200)},50\n" for moment in due))
    found = api.describe_workload(trace).fitted_arrivals
    assert (found.process, found.disagreement) == ("trace", "counts")
    assert found.dispersion_error > 2
    api.fit_workload(trace, tmp_path / "scenario.yaml")
    assert_reproduced(trace, tmp_path / "scenario.yaml")


def test_correlated_lengths_stay_together(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    isl = rng.integers(100, 2000, 5_000)
    rows = zip(rng.exponential(0.2, 5_000).cumsum(), isl, isl // 10 + rng.integers(1, 40, 5_000), strict=True)
    trace = tmp_path / "trace.csv"
    trace.write_text("timestamp,isl,osl\n" + "".join(f"{t:.6f},{i},{o}\n" for t, i, o in rows))
    found = api.fit_workload(trace, tmp_path / "scenario.yaml")
    assert (found.lengths, sorted(found.files)) == ("pairs", ["scenario.lengths.csv"])
    drawn = (
        simulation_of(tmp_path / "scenario.yaml", {"model": "llama-3.1-8b", "request_rate": 5.0, "requests": 5_000}).workloads[0].trace(0)
    )
    assert np.corrcoef(drawn.isl, drawn.osl)[0, 1] == pytest.approx(np.corrcoef(isl, isl // 10)[0, 1], abs=0.05)
    assert_reproduced(trace, tmp_path / "scenario.yaml", 5_000)


@pytest.mark.skipif(not SHARED.exists(), reason="the whole traces are not part of a checkout")
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_traffic_is_reproduced(name: str, tmp_path: Path) -> None:
    api.fit_workload(SHARED / name, tmp_path / "scenario.yaml")
    assert_reproduced(SHARED / name, tmp_path / "scenario.yaml")


def test_a_fitted_scenario_is_simulated(tmp_path: Path) -> None:
    """The record of the simulation holds the requests that the scenario makes, at their moments."""
    excerpt = Path(__file__).parents[2] / "examples" / "code-completion.csv"
    api.fit_workload(excerpt, tmp_path / "scenario.yaml", model="llama-3.1-8b")
    run = tonnage.simulate(tmp_path / "scenario.yaml", requests=200)
    made = simulation_of(tmp_path / "scenario.yaml", {"requests": 200}).workloads[0].trace(0)
    assert run.requests.isl.tolist() == made.isl.tolist()
    assert run.requests.due_ns.tolist() == (made.due_ps // 1000).tolist()
    assert run.scenario()["arrivals"]["trace"].endswith("scenario.arrivals.csv")


def test_a_trace_is_stretched_to_the_rate_that_is_given(tmp_path: Path) -> None:
    excerpt = Path(__file__).parents[2] / "examples" / "code-completion.csv"
    api.fit_workload(excerpt, tmp_path / "scenario.yaml", model="llama-3.1-8b")
    plain = simulation_of(tmp_path / "scenario.yaml", {}).workloads[0]
    faster = simulation_of(tmp_path / "scenario.yaml", {"request_rate": "10"}).workloads[0]
    ratio = 10 / plain.arrivals.rate
    assert faster.trace(0).due_ps[-1] == pytest.approx(plain.trace(0).due_ps[-1] / ratio, rel=1e-6)


def test_a_fitted_scenario_is_understood_as_a_sizing_question(tmp_path: Path) -> None:
    excerpt = Path(__file__).parents[2] / "examples" / "code-completion.csv"
    api.fit_workload(excerpt, tmp_path / "bursty.yaml")
    question = api.ask(tmp_path / "bursty.yaml", model="llama-3.1-8b", ttft="p95<=2s").questions[0]
    assert question.recording is not None
    assert len(question.recording) == 2000
    assert not question.replays_lengths
    regular = OpenLoop(rate=2.0, process="gamma", cv=0.4)
    api.fit_workload(generated(tmp_path / "trace.csv", "1200", "lognormal:300,200", regular), tmp_path / "regular.yaml")
    question = api.ask(tmp_path / "regular.yaml", model="llama-3.1-8b", ttft="p95<=2s").questions[0]
    assert (question.process, question.cv) == ("gamma", pytest.approx(0.4, rel=0.05))


def test_arrivals_of_a_trace_need_one() -> None:
    with pytest.raises(InputError, match="needs a file of recorded requests"):
        simulation_of(None, {"model": "llama-3.1-8b", "isl": 10, "osl": 10, "arrivals": "trace"})
    with pytest.raises(InputError, match="needs a file of recorded requests"):
        api.ask(model="llama-3.1-8b", isl=10, osl=10, peak_rps=1, ttft="p95<=1s", arrivals="trace")


def test_a_fit_is_written_only_where_it_can_be(tmp_path: Path) -> None:
    excerpt = Path(__file__).parents[2] / "examples" / "code-completion.csv"
    for target in (tmp_path / "missing" / "scenario.yaml", tmp_path / "scenario.json"):
        with pytest.raises(InputError, match="cannot write"):
            api.fit_workload(excerpt, target)
    assert list(tmp_path.iterdir()) == []
