"""Measured inferences as a service file: the times of batches, and loads held against it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.evidence.services import (
    MeasuredLoad,
    calibrate_service,
    is_inference,
)

RUNS: dict[str, tuple[str, int, dict[str, float], float, float]] = {
    # model, items, arrivals, ms of the median, and of the mean
    "a1": ("a", 1, {"concurrency": 1}, 2.0, 2.1),
    "a4": ("a", 4, {"concurrency": 1}, 3.2, 3.3),
    "a8": ("a", 8, {"concurrency": 1}, 3.0, 3.1),  # noise: no larger batch takes less
    "b2": ("b", 2, {"concurrency": 1}, 40.0, 41.0),
    "clients": ("a", 4, {"concurrency": 3}, 9.0, 9.5),
    "rate": ("b", 2, {"rate": 2.5}, 44.0, 45.0),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs as ``bench`` leaves them, as far as a calibration reads them."""
    for name in RUNS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "scenario.yaml").write_text("endpoint_type: infer\n")

    def read(path: Path) -> Any:
        model, items, arrivals, median, mean = RUNS[path.name]
        return SimpleNamespace(
            scenario={"model": model, "items": items, "arrivals": arrivals},
            summary={
                "e2e_ms": {"p50": median, "mean": mean},
                "input_tokens_per_second": items * 7.0,
                "requests": {"completed": 10},
            },
        )

    monkeypatch.setattr("tonnage.evidence.services.read_run", read)
    return tmp_path


def test_the_times_of_one_client_make_a_file_and_other_loads_are_held_against_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tonnage.evidence.services.CHECKED_REQUESTS", 900)
    made = calibrate_service([folder], None)
    assert made.times_ms == {"a": {1: 2.0, 4: 3.2, 8: 3.2}, "b": {2: 40.0}}
    assert list(made.times_ms["a"]) == [1, 4, 8]
    # a carries 8 items in 3.2 ms, b 2 in 40 ms; the file begins at a tenth of it
    assert made.document == {
        "title": "Measured",
        "service": {
            "gpus": 1,
            "models": {
                "a": {
                    "time": {1: "2ms", 4: "3.2ms", 8: "3.2ms"},
                    "max_batch_size": 8,
                    "dynamic_batching": {"max_queue_delay_microseconds": 0},
                },
                "b": {
                    "time": {2: "40ms"},
                    "max_batch_size": 2,
                    "dynamic_batching": {"max_queue_delay_microseconds": 0},
                },
            },
        },
        "traffic": [{"to": "a", "rate": 250.0}, {"to": "b", "rate": 5.0}],
        "latency": "p99<=120ms",
    }
    clients, rate = made.loads
    # two of three clients share a batch of 8 items, which takes 3.2 ms
    assert clients == MeasuredLoad(
        model="a",
        load="3 clients",
        items=4,
        measured_ms=9.5,
        predicted_ms=pytest.approx(4.8, rel=0.01),
        measured_per_second=28.0,
        predicted_per_second=pytest.approx(2_500, rel=0.01),
    )
    # Little's law of a closed loop: clients = rate · seconds
    assert clients.predicted_per_second / 4 * clients.predicted_ms / 1e3 == pytest.approx(
        3, rel=0.01
    )
    assert (rate.model, rate.load, rate.items) == ("b", "2.5/s", 2)
    assert (rate.measured_ms, rate.measured_per_second) == (45.0, 14.0)
    assert rate.predicted_ms == pytest.approx(42.2, rel=0.05)  # M/D/1 at a tenth of its capacity
    assert rate.predicted_per_second == pytest.approx(5.0, rel=3 / 900**0.5)
    assert made.remarks == ()
    assert made.to_json() == asdict(made)


def test_a_service_file_keeps_what_was_not_measured(folder: Path) -> None:
    document = {
        "service": {
            "gpus": 2,
            "models": {
                name: {"time": {1: "9ms"}, "max_batch_size": 8, "dynamic_batching": {}}
                for name in ("a", "b", "other")
            },
        },
        "traffic": [{"to": "a", "rate": 1}],
    }
    made = calibrate_service([folder / name for name in ("a1", "b2")], document)
    models = made.document["service"]["models"]
    assert [models[name]["time"] for name in ("a", "b", "other")] == [
        {1: "2ms"},
        {2: "40ms"},
        {1: "9ms"},
    ]
    assert document["service"]["models"]["a"]["time"] == {1: "9ms"}  # a copy is changed
    assert made.document["traffic"] == document["traffic"]
    assert made.loads == ()
    del document["service"]["models"]["b"]  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="has no 'b', which was measured; it has a, other"):
        calibrate_service([folder / "b2"], document)


def test_without_one_client_there_are_no_times(folder: Path) -> None:
    with pytest.raises(InputError, match="no run has one client"):
        calibrate_service([folder / "rate", folder / "clients"], None)


def test_runs_of_inferences_are_told_by_their_scenario(folder: Path) -> None:
    assert is_inference(folder)
    assert is_inference(folder / "a1")
    for text in ("endpoint_type: completions\n", "- 1\n"):
        other = folder / "other"
        other.mkdir(exist_ok=True)
        (other / "scenario.yaml").write_text(text)
        assert not is_inference(other)
    assert is_inference(folder)  # one of them is
    assert not is_inference(folder / "a1" / "scenario.yaml")
    assert not is_inference(folder / "nowhere")
