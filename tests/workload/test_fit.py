"""The fit of a recording: known parameters come back, and what is drawn is as recorded."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from tests.workload.described import assert_reproduced, generated
from tonnage import api
from tonnage.api.question.simulation import simulation_of
from tonnage.errors import InputError
from tonnage.spec.lengths import parse_lengths
from tonnage.spec.workload import OpenLoop
from tonnage.workload.description import fitted_lengths

SHARED = Path(__file__).parents[3] / "shared" / "data" / "traces"

# A fitted scenario reproduces the traffic that it was fitted to: generated with known parameters,
# and recorded.
RECORDED = (
    *(
        pytest.param(f"AzureLLMInferenceTrace_2023_{kind}.csv", marks=pytest.mark.accuracy)
        for kind in ("code", "conv")
    ),
    "mooncake_conversation_2000.jsonl",
)


@pytest.mark.parametrize(
    ("isl", "osl", "arrivals"),
    [
        pytest.param(
            "lognormal:2000,1500", "normal:400,80", OpenLoop(rate=5.0), marks=pytest.mark.accuracy
        ),
        ("uniform:500-3000", "lognormal:200,150+50", OpenLoop(rate=20.0, process="gamma", cv=2.5)),
        pytest.param(
            "1200",
            "lognormal:300,200",
            OpenLoop(rate=2.0, process="gamma", cv=0.4),
            marks=pytest.mark.accuracy,
        ),
        pytest.param(
            "normal:3000,400",
            "128",
            OpenLoop(rate=3.0, process="constant"),
            marks=pytest.mark.accuracy,
        ),
    ],
    ids=["poisson", "bursty", "regular", "even"],
)
def test_known_parameters_are_recovered(
    isl: str, osl: str, arrivals: OpenLoop, tmp_path: Path
) -> None:
    trace = generated(tmp_path / "trace.csv", isl, osl, arrivals)
    found = api.fit_workload(trace, tmp_path / "scenario.yaml")
    assert found.files == {}
    for name, written in (("isl", isl), ("osl", osl)):
        known, fitted = (
            parse_lengths(written, ""),
            parse_lengths(getattr(found.scenario.lengths, name), ""),
        )
        assert fitted.kind == known.kind
        assert fitted.mean == pytest.approx(known.mean, rel=0.03)
        assert fitted.std == pytest.approx(known.std, rel=0.05)
    assert found.scenario.search.arrivals == arrivals.process
    assert found.scenario.demand.peak_rps == pytest.approx(arrivals.rate, rel=0.05)
    if arrivals.process == "gamma":
        assert found.scenario.search.cv == pytest.approx(arrivals.cv, rel=0.05)
    assert_reproduced(trace, tmp_path / "scenario.yaml", 20_000)


def test_a_distribution_that_draws_far_longer_requests_than_were_seen_does_not_fit() -> None:
    """Lengths cut to a longest one at p99.7: all percentiles but the last are those of a lognormal
    distribution that reaches further."""
    values = parse_lengths("lognormal:1000,2000", "").draw(20_000, np.random.default_rng(2))
    whole, cut = (
        fitted_lengths(values),
        fitted_lengths(np.minimum(values, int(np.percentile(values, 99.7)))),
    )
    assert whole.fits
    assert cut.error <= 0.10
    assert cut.overshoots
    assert not cut.fits


def test_a_fit_on_a_full_disk_names_the_folder_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, folder = tmp_path / "trace.csv", tmp_path / "fitted"
    trace.write_text("timestamp,isl,osl\n" + "".join(f"{t},{90 + t},{t}\n" for t in range(1, 99)))
    folder.mkdir()
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        write(path, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")  # without the name of a file

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError) as caught:
        api.fit_workload(trace, folder / "scenario.yaml")
    assert str(folder) in str(caught.value)
    assert "cannot be written (No space left on device)" in str(caught.value)
    assert not list(folder.iterdir())


def test_correlated_lengths_stay_together(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    isl = rng.integers(100, 2000, 2_500)
    rows = zip(
        rng.exponential(0.2, 2_500).cumsum(),
        isl,
        isl // 10 + rng.integers(1, 40, 2_500),
        strict=True,
    )
    trace = tmp_path / "trace.csv"
    trace.write_text("timestamp,isl,osl\n" + "".join(f"{t:.6f},{i},{o}\n" for t, i, o in rows))
    found = api.fit_workload(trace, tmp_path / "scenario.yaml")
    assert (found.lengths, sorted(found.files)) == ("pairs", ["scenario.lengths.csv"])
    drawn = (
        simulation_of(
            tmp_path / "scenario.yaml",
            {"model": "llama-3.1-8b", "request_rate": 5.0, "requests": 2_500},
        )
        .workloads[0]
        .trace(0)
    )
    assert np.corrcoef(drawn.isl, drawn.osl)[0, 1] == pytest.approx(
        np.corrcoef(isl, isl // 10)[0, 1], abs=0.05
    )
    assert_reproduced(trace, tmp_path / "scenario.yaml", 2_500)


@pytest.mark.skipif(not SHARED.exists(), reason="the whole traces are not part of a checkout")
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_traffic_is_reproduced(name: str, tmp_path: Path) -> None:
    api.fit_workload(SHARED / name, tmp_path / "scenario.yaml")
    assert_reproduced(SHARED / name, tmp_path / "scenario.yaml")
