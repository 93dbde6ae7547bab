"""Simulates and sizes services of models that are not LLMs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tonnage.api.question.arguments import Many, rates, whole_numbers
from tonnage.api.running.deploy import Deployed
from tonnage.errors import InputError, option
from tonnage.results.metrics import Latencies, latencies
from tonnage.results.requests import COMPLETED, FAILED, REJECTED
from tonnage.results.services import (
    ModelResult,
    ModelSettings,
    ServiceResult,
    ServiceSweep,
    SizedService,
    StreamResult,
    TriedSettings,
)
from tonnage.simulator.services import ServiceRun, run_service
from tonnage.sizing.services import (
    Met,
    ServiceAnswer,
    Tried,
    choose_settings,
    with_clients,
    with_rate,
)
from tonnage.spec.service import Service, is_service, read_service
from tonnage.units import format_duration

if TYPE_CHECKING:
    from tonnage.evidence.services import ServiceCalibration

REQUESTS = 20_000  # requests of one simulation where none are requested


def simulate_service(
    path: Path | str,
    *,
    requests: int | None = None,
    seed: int | None = None,
    concurrency: Many | None = None,
    request_rate: str | float | Iterable[float] | None = None,
) -> ServiceResult | ServiceSweep:
    """A service under its traffic, or at each ``concurrency`` or ``request_rate`` in its place
    (docs/services.md). Raises InputError.
    """
    service, count = read_service(path), _count(requests)
    if concurrency is not None and request_rate is not None:
        raise InputError(f"{option('concurrency')}, {option('request_rate')}: give one of the two")
    if concurrency is not None:
        loads = tuple(float(value) for value in whole_numbers(concurrency, option("concurrency")))
    elif request_rate is not None:
        loads = tuple(rates(request_rate, option("request_rate")))
    else:
        return _result(service, run_service(service, requests=count, seed=seed or 0))
    at = with_clients if concurrency is not None else with_rate
    points = tuple(
        _result(loaded_service, run_service(loaded_service, requests=count, seed=seed or 0))
        for loaded_service in (at(service, load) for load in loads)
    )
    return ServiceSweep(
        unit="clients" if concurrency is not None else "requests/s", loads=loads, points=points
    )


# rates of the curve around a sized server, as shares of its part of the traffic
CURVE = (0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)


def size_servers(
    path: Path | str,
    *,
    requests: int | None = None,
    seed: int | None = None,
    curve: bool = False,
    progress: Callable[[str], None] | None = None,
) -> SizedService:
    """How many servers a service needs inside its limits, and with which settings of its file;
    ``curve`` adds rates for a figure.

    Raises InputError: a file or a number that cannot be used.
    """
    count = _count(requests)
    answer, tried = choose_settings(
        read_service(path), requests=count, seed=seed or 0, progress=progress
    )
    sized = replace(_sized(answer), tried=_tried(tried, answer) if len(tried) > 1 else ())
    if not curve:
        return sized
    whole = sum(stream.rate for stream in answer.service.streams)
    loads = tuple(whole * share for share in CURVE)
    points = (
        run_service(at, requests=count, seed=seed or 0)
        for at in (with_rate(answer.service, load) for load in loads)
    )
    service_results = tuple(
        _result(with_rate(answer.service, load), run)
        for load, run in zip(loads, points, strict=True)
    )
    return replace(
        sized, curve=ServiceSweep(unit="requests/s", loads=loads, points=service_results)
    )


def calibrate_service(
    measured: Iterable[str | Path],
    *,
    output: str | Path | None = None,
    include_invalid: bool = False,
) -> ServiceCalibration:
    """Write a service file from runs of ``bench`` on a v2 server, and perhaps a service file, whose
    models get the measured times.

    Raises InputError: nothing to make times of, or a file that cannot be read or written.
    """
    from tonnage.csv_file import read_text
    from tonnage.evidence.services import calibrate_service as calibrated
    from tonnage.results.store import write_yaml
    from tonnage.spec.typed_values import parse_yaml

    paths = [Path(path) for path in measured]
    files = [path for path in paths if not path.is_dir()]
    if len(files) > 1 or any(not is_service(path) for path in files):
        raise InputError(
            f"{files[0]}: measured inferences go with one service file (docs/services.md); leave"
            " the other files out"
        )
    document = parse_yaml(read_text(str(files[0]), "service"), str(files[0])) if files else None
    if files:
        read_service(files[0])
    service_calibration = calibrated(
        [path for path in paths if path.is_dir()], document, include_invalid=include_invalid
    )
    if output is not None:
        write_yaml(Path(output), service_calibration.document)
    return service_calibration


def deploy_service(
    path: Path | str,
    *,
    target: str,
    output: Path | str,
    requests: int | None = None,
    seed: int | None = None,
) -> Deployed:
    """Write the files that deploy a service as it is sized, for triton or kserve; one server where
    the file has no limits.

    Raises InputError: a file, a target or a folder that cannot be used, or no number of servers
    meets the limits.
    """
    from tonnage.deploy.service import dns_label
    from tonnage.deploy.services import SizedFiles, service_files
    from tonnage.deploy.targets import write_folder
    from tonnage.report.numbers import counted

    service, servers, words = (
        read_service(path),
        1,
        "One server, as the file has no limits to size it by.",
    )

    def files_of(answer: str) -> dict[str, str]:
        sized_files = SizedFiles(
            name=dns_label(Path(path).stem),
            service=service,
            servers=servers,
            source=Path(path).name,
            answer=answer,
        )
        return service_files(sized_files, target)

    files = files_of(words)  # what cannot be written is refused before anything is simulated
    if service.limits:
        answer, _ = choose_settings(service, requests=_count(requests), seed=seed or 0)
        if not answer.servers:
            raise InputError(
                f"{path}: no number of servers meets the limits; see tonnage size {path}"
            )
        service, servers = answer.service, answer.servers
        limits = "; ".join(map(_words, answer.met))
        words = f"{counted(servers, 'server')} of {counted(service.gpus, 'GPU')}: {limits}."
        files = files_of(words)
    write_folder(Path(output), files)
    return Deployed(files=tuple(sorted(files)), checkpoint="", notes=(words,))


def _tried(tried: tuple[Tried, ...], answer: ServiceAnswer) -> tuple[TriedSettings, ...]:
    return tuple(
        TriedSettings(
            settings=settings(trial.service),
            servers=None if trial.servers < 0 else trial.servers,
            least=trial.least,
            use=trial.use if trial.servers > 0 else None,
            chosen=trial.service.models == answer.service.models,
        )
        for trial in tried
    )


def settings(service: Service) -> tuple[ModelSettings, ...]:
    """The settings of each model that a sizing may choose."""
    return tuple(
        ModelSettings(
            model=name,
            instances=model.instances,
            max_batch_size=model.max_batch_size,
            max_queue_delay_microseconds=(
                None if model.batching is None else model.batching.max_queue_delay_microseconds
            ),
        )
        for name, model in service.models.items()
    )


def _count(requests: int | None) -> int:
    count = REQUESTS if requests is None else requests
    if count < 1:
        raise InputError(
            f"{option('requests')}: {count} is not a number of requests; write 1 or more"
        )
    return count


def _sized(answer: ServiceAnswer) -> SizedService:
    return SizedService(
        run=_result(answer.service, answer.run),
        servers=answer.servers,
        gpus=answer.gpus,
        gpus_each=answer.service.gpus,
        least=answer.least,
        met=tuple(map(_words, answer.met)),
        one_fewer=tuple(map(_words, answer.one_fewer)),
        looked=answer.looked,
    )


def _words(outcome: Met) -> str:
    limit = outcome.limit
    figure = (
        "not every request that counts is answered"
        if outcome.seconds == float("inf")
        else format_duration(outcome.seconds)
    )
    verdict = "holds" if outcome.holds else "does not hold"
    return (
        f"{outcome.stream}: {limit.statistic} ≤ {format_duration(limit.seconds)} {verdict}"
        f" ({figure})"
    )


def _result(service: Service, run: ServiceRun) -> ServiceResult:
    record = run.requests
    ended = record.last_token_ns[record.status == COMPLETED]
    seconds = (int(ended.max()) - int(record.due_ns.min())) / 1e9 if ended.size else 0.0
    streams = []
    for place, stream in enumerate(service.streams):
        status = record.status[run.stream == place]
        done = int((status == COMPLETED).sum())
        streams.append(
            StreamResult(
                name=stream.name,
                asked=(
                    f"{stream.concurrency} clients"
                    if stream.concurrency
                    else f"{stream.rate:.6g}/s"
                ),
                answered_per_second=done / seconds if seconds > 0 else 0.0,
                items_per_second=done * stream.items / seconds if seconds > 0 else 0.0,
                latencies=_latencies(run, place),
                requests=len(status),
                rejected=int((status == REJECTED).sum()),
                expired=int((status == FAILED).sum()),
            )
        )
    return ServiceResult(
        title=service.title, streams=tuple(streams), models=_models(run), busy=run.busy
    )


def _models(run: ServiceRun) -> tuple[ModelResult, ...]:
    return tuple(
        ModelResult(
            name=name,
            batches=batches,
            mean_batch=sum(size * count for size, count in batches.items()) / sum(batches.values()),
            waited_ms=run.waited_s[name] * 1e3,
        )
        for name, batches in run.batches.items()
    )


def _latencies(run: ServiceRun, place: int) -> Latencies:
    seconds = run.latencies_s(place)
    answered = seconds[np.isfinite(seconds)] * 1e3
    if not answered.size:
        return Latencies()
    p50, p90, p95, p99 = (float(value) for value in np.percentile(answered, (50, 90, 95, 99)))
    return latencies(mean=float(answered.mean()), p50=p50, p90=p90, p95=p95, p99=p99)
