"""Measured inferences turned into a service file: the seconds of a batch, and what the file
predicts of the loads that were measured too.

The time of a batch is the median from request to answer that one client saw, so it includes the
network, the server's front end and whatever else every request pays. Runs with several clients or a
rate are held against the prediction; nothing is fitted to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tonnage.errors import InputError, option
from tonnage.formats.invalid_runs import InvalidRuns
from tonnage.results.store import Run, read_run
from tonnage.simulator.services import run_service
from tonnage.spec.service import service_of

CHECKED_REQUESTS = 4_000  # Requests of the simulation that a measured load is held against


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLoad:
    """A load that was measured and is predicted from the file, in milliseconds and items per
    second.
    """

    model: str
    load: str
    items: int
    measured_ms: float
    predicted_ms: float
    measured_per_second: float
    predicted_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCalibration:
    """A service file with measured times."""

    document: dict[str, Any]  # the file's values
    times_ms: dict[str, dict[int, float]]  # by model, the milliseconds of a batch by its items
    loads: tuple[MeasuredLoad, ...]  # the other measured loads
    remarks: tuple[str, ...] = ()  # sentences on runs that were left out

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON values."""
        return asdict(self)


def is_inference(folder: Path) -> bool:
    """Whether a folder is a run of ``bench`` on a v2 server, or holds such runs."""
    return any(
        scenario.get("endpoint_type") == "infer" for scenario in map(_scenario, _runs(folder))
    )


def _runs(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return (
        [folder]
        if (folder / "scenario.yaml").is_file()
        else sorted(path.parent for path in folder.glob("*/scenario.yaml"))
    )


def _scenario(folder: Path) -> Mapping[str, Any]:
    from tonnage.csv_file import read_text
    from tonnage.spec.typed_values import parse_yaml

    where = str(folder / "scenario.yaml")
    document = parse_yaml(read_text(where, "run"), where)
    return document if isinstance(document, dict) else {}


def calibrate_service(
    folders: Sequence[Path], document: Mapping[str, Any] | None, *, include_invalid: bool = False
) -> ServiceCalibration:
    """The service file that run folders of ``bench`` with infer make, or folders of such.

    ``document`` is a service file whose models get their measured times by name; None makes one of
    a single GPU for each model.

    Raises InputError: no run with one client, or a model that the service does not have.
    """
    invalid = InvalidRuns(include=include_invalid, allow_errors=True)
    read_runs = [(path, read_run(path)) for folder in folders for path in _runs(folder)]
    runs = [run for path, run in read_runs if invalid.takes(path, run.summary)]
    invalid.check(runs)
    single = [run for run in runs if run.scenario.get("arrivals", {}).get("concurrency") == 1]
    if not single:
        raise InputError(
            f"{option('concurrency')}: no run has one client; measure {option('items')} 1,2,4,8"
            f" with {option('concurrency')} 1 too"
        )
    times: dict[str, dict[int, float]] = {}
    for run in sorted(single, key=_items):
        table = times.setdefault(str(run.scenario["model"]), {})
        table[_items(run)] = max(float(run.summary["e2e_ms"]["p50"]), *table.values(), 0.0)
    service_document = _document(times) if document is None else deepcopy(dict(document))
    models = service_document["service"]["models"]
    for model, table in times.items():
        if model not in models:
            raise InputError(
                f"service.models: has no '{model}', which was measured; it has {', '.join(models)}"
            )
        models[model]["time"] = {size: f"{ms:.4g}ms" for size, ms in table.items()}
    loaded_runs = [run for run in runs if run not in single]
    return ServiceCalibration(
        document=service_document,
        times_ms=times,
        loads=tuple(_held_against(run, service_document) for run in loaded_runs),
        remarks=invalid.sentences,
    )


def _document(times: Mapping[str, Mapping[int, float]]) -> dict[str, Any]:
    """A file to begin with: each model with batches up to the largest that was measured, and a
    tenth of what it carries.
    """
    models = {
        name: {
            "time": {},
            "max_batch_size": max(table),
            "dynamic_batching": {"max_queue_delay_microseconds": 0},
        }
        for name, table in times.items()
    }
    traffic = [
        {
            "to": name,
            "rate": float(f"{0.1 * max(1e3 * size / ms for size, ms in table.items()):.3g}"),
        }
        for name, table in times.items()
    ]
    slowest = max(ms for table in times.values() for ms in table.values())
    return {
        "title": "Measured",
        "service": {"gpus": 1, "models": models},
        "traffic": traffic,
        "latency": f"p99<={3 * slowest:.3g}ms",
    }


def _items(run: Run) -> int:
    return int(run.scenario["items"])


def _held_against(run: Run, document: Mapping[str, Any]) -> MeasuredLoad:
    """What the file predicts of a measured load: the model alone, on one server."""
    name, arrivals = str(run.scenario["model"]), run.scenario["arrivals"]
    clients = arrivals.get("concurrency")
    load = {"concurrency": int(clients)} if clients else {"rate": float(arrivals["rate"])}
    service_document = {**document, "traffic": [{"to": name, "items": _items(run), **load}]}
    service_run = run_service(
        service_of(service_document, "measured"), requests=CHECKED_REQUESTS, seed=0
    )
    latencies = service_run.latencies_s()
    seconds = float(service_run.requests.last_token_ns.max()) / 1e9
    return MeasuredLoad(
        model=name,
        load=f"{clients} clients" if clients else f"{arrivals['rate']:g}/s",
        items=_items(run),
        measured_ms=float(run.summary["e2e_ms"]["mean"]),
        predicted_ms=1e3 * float(latencies.mean()),
        measured_per_second=float(run.summary["input_tokens_per_second"]),
        predicted_per_second=len(latencies) * _items(run) / seconds,
    )
