"""The metrics of one row of a measured table, predicted.

A static batch has a closed form. Rows under load are simulated: a closed loop with the client's
serial turnaround, or an open loop with Poisson arrivals (``load``). What a benchmark reports of
such a run is defined in ``reported``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tonnage.errors import InputError
from tonnage.formats.invalid_runs import InvalidRuns
from tonnage.formats.measured_files import read_measured
from tonnage.formats.table import CACHED, DRAWN, KNOBS, RATIO
from tonnage.perf.memory import static_peak_bytes
from tonnage.perf.pipeline import EstimatedInstance, estimated_instance
from tonnage.perf.power import draw, seen_load
from tonnage.perf.step import StepModel, batch_seconds, context_seconds, step_seconds
from tonnage.perf.terms import client_turnaround_s, step_model
from tonnage.results.metrics import reported_rates, summarize
from tonnage.results.requests import Requests
from tonnage.spec.calibration import Calibration
from tonnage.spec.catalog import find_engine, find_gpu, find_model, system_of
from tonnage.spec.catalog.checkpoints import as_run
from tonnage.spec.deployment import Deployment, Parallelism, Slo
from tonnage.spec.engine import default_knobs
from tonnage.spec.lengths import parse_lengths
from tonnage.spec.precision import find_precision
from tonnage.spec.sessions import Sessions
from tonnage.spec.workload import LEAST_CV, ClosedLoop, Lengths, OpenLoop, Process, Workload
from tonnage.units import PS_PER_S, to_ps

# A row of a measured table as a point that can be predicted: its deployment and its load.


STATIC_ENGINE = "tensorrt-llm-0.9"  # The preset of a row with a ``batch`` that names no engine

LOADED_ENGINE = "tensorrt-llm-0.15"
"""The preset of a row with ``concurrency`` or ``request_rate`` that names no engine: tables without
one are of 2024."""

# The preset of a row under load whose engine has a preset of static batches alone
IN_FLIGHT_OF_OLD = "tensorrt-llm-0.10"


MANY = 9  # Requests from which a load that comes all at once is a burst


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One row of a measured table with its names looked up in the catalogs."""

    deployment: Deployment  # the model, GPUs, precision and engine, with the engine's default knobs
    # isl, osl: prompt and output lengths in tokens
    isl: int
    osl: int
    # batch, concurrency, request_rate: the load: a static batch, clients of a closed loop, or
    # requests per second; two are None
    batch: int | None = None
    concurrency: int | None = None
    request_rate: float | None = None
    # burstiness, in_flight: of a rate, the shape of its gamma arrivals (1 is Poisson, infinite a
    # constant rate), and the most requests that its client had in flight; None for no cap
    burstiness: float = 1.0
    in_flight: int | None = None
    cached_share: float = 0.0  # share of every prompt that the prefix cache of the engine has
    # requests, window_s: how many requests were sent, or for how many seconds; None where the row
    # does not say
    requests: int | None = None
    window_s: float | None = None
    # the distributions of prompt and output lengths, where the row says that they vary; ``isl`` and
    # ``osl`` are used elsewhere
    drawn: tuple[Lengths, Lengths] | None = None
    # whether the row reports a TTFT, so that requests that are all sent at once pass a server's
    # front end
    served: bool = False

    @property
    def load(self) -> str:
        """The kind of load: "static", "closed" or "open"."""
        return (
            "static"
            if self.batch is not None
            else "closed"
            if self.concurrency is not None
            else "open"
        )

    @property
    def ranks(self) -> int:
        """How many attention ranks share the load."""
        return self.deployment.parallelism.dp

    @property
    def instance(self) -> EstimatedInstance:
        """What the steps of the instance cost and what its memory holds, over all its pipeline
        stages.

        Raises DoesNotFit: the memory does not hold the model; InputError: the parallelism is not
        one that can be predicted.
        """
        return estimated_instance(
            self.deployment,
            gpus_per_system=system_of(self.deployment.gpu).gpus,
            prompt_tokens=self.isl,
        )

    @property
    def at_once(self) -> bool:
        """Whether a closed loop of more than a few clients sends all its requests at once."""
        return (
            self.concurrency is not None
            and self.requests is not None
            and MANY <= self.requests <= self.concurrency
        )

    @property
    def of_rank(self) -> Point:
        """The share of the load that one attention rank has; the fullest rank where the load does
        not divide evenly.
        """
        dp = self.ranks
        if dp == 1:
            return self
        counts = (self.batch, self.concurrency, self.requests, self.in_flight)
        batch, clients, requests, cap = (None if n is None else math.ceil(n / dp) for n in counts)
        rate = None if self.request_rate is None else self.request_rate / dp
        return replace(
            self,
            batch=batch,
            concurrency=clients,
            requests=requests,
            request_rate=rate,
            in_flight=cap,
        )


def read_point(row: Mapping[str, Any], calibration: Calibration | None = None) -> Point:
    """The point of a row of ``read_measured``, with the engine's ``knobs`` if it has some. Raises
    UnknownName: with the name's ``kind``.
    """
    model, gpu = (
        find_model(str(row["model"]), str(row.get("layout") or "")),
        find_gpu(str(row["gpu"])),
    )
    static = row.get("batch") is not None
    engine = find_engine(str(row.get("engine") or (STATIC_ENGINE if static else LOADED_ENGINE)))
    if not static and engine.knobs.scheduler == "static":
        engine = find_engine(IN_FLIGHT_OF_OLD)
    precision = as_run(find_precision(str(row["precision"])), model, engine, gpu)
    parallelism = Parallelism(
        tp=row["tp"], pp=row.get("pp") or 1, dp=row.get("dp") or 1, ep=row.get("ep") or 1
    )
    settings = {knob: row[column] for column, knob in KNOBS.items() if row.get(column) is not None}
    knobs = replace(row.get("knobs") or default_knobs(engine, gpu, parallelism.dp), **settings)
    if static and knobs.scheduler != "static":
        knobs = replace(
            knobs,
            scheduler="static",
            max_num_tokens=max(knobs.max_num_tokens, row["batch"] * row["isl"]),
        )
    deployment = Deployment(
        model=model,
        gpu=gpu,
        precision=precision,
        parallelism=parallelism,
        engine=engine.name,
        knobs=knobs,
        calibration=calibration,
    )
    return Point(
        deployment=deployment,
        isl=row["isl"],
        osl=row["osl"],
        batch=row.get("batch"),
        concurrency=row.get("concurrency"),
        request_rate=row.get("request_rate"),
        burstiness=row.get("burstiness") or 1.0,
        in_flight=row.get("in_flight"),
        cached_share=row.get(CACHED) or 0.0,
        requests=row.get("requests"),
        window_s=row.get("window_s"),
        drawn=_drawn(row),
        served=row.get("ttft_ms") is not None,
    )


def _drawn(row: Mapping[str, Any]) -> tuple[Lengths, Lengths] | None:
    """How the lengths of a row vary; None where it does not say that they do."""
    ratio, written = row.get(RATIO) or 1.0, {name: row.get(key) for name, key in DRAWN.items()}
    if ratio == 1.0 and not any(written.values()):
        return None
    isl, osl = (
        parse_lengths(written[name] or f"{max(round(ratio * row[name]), 1)}-{row[name]}", name)
        for name in DRAWN
    )
    return isl, osl


# A static batch in closed form, equal to what the simulator gives.


def static_latencies_s(step: StepModel, batch: int, isl: int, osl: int) -> tuple[float, float]:
    """TTFT and end-to-end seconds of one static batch of equal requests without streaming, in
    closed form.

    One step takes all prompts, and ``osl − 1`` decode steps follow, whose contexts grow by one
    token each. The results equal those of the simulator to the picosecond.
    """
    c = step.coefficients
    prefill = to_ps(step_seconds(c, batch * isl, batch, 0, batch * isl * isl, 0))
    steps = osl - 1
    context = batch * (steps * isl + steps * (steps + 1) // 2)
    decode = (
        steps * round(batch_seconds(c, batch, batch) * PS_PER_S)
        + round(context_seconds(c, batch) * PS_PER_S) * context
    )
    first = to_ps(step.frontend_s) + prefill
    return first / PS_PER_S, (first + decode) / PS_PER_S


# The load that a benchmark sent for one row of a measured table, as a workload that can be
# simulated. In a closed loop all clients start together, and each sends its next request when the
# last is answered, after the client's serial turnaround. Where there are no more requests than
# clients and no TTFT is reported, the benchmark runs in the engine's own process and nothing is
# streamed. In an open loop requests arrive at random (Poisson, or as bursty as the row says).


def open_loop(rate: float, *, burstiness: float = 1.0, in_flight: int = 0) -> OpenLoop:
    """An open loop as vLLM's and SGLang's clients send it: gaps of a gamma distribution whose shape
    is the burstiness.
    """
    cv = 1.0 / math.sqrt(burstiness)
    process: Process = "poisson" if burstiness == 1.0 else "gamma" if cv >= LEAST_CV else "constant"
    return OpenLoop(rate=rate, process=process, cv=cv, in_flight=in_flight)


# Requests per client of a closed loop that says neither ``requests`` nor ``window_s``: what
# benchmarks commonly send
ROUNDS = 10

OPEN_REQUESTS, OPEN_SECONDS, OPEN_MOST = 1_000, 60.0, 20_000
"""An open loop that does not say ``requests`` has this many, or as many as arrive in this many
seconds, up to the third number."""

SEED = 0  # Of the arrivals of an open loop

# Gives the workload of a row from its step model and the seconds of the client's turnaround
Load = Callable[[StepModel, float], Workload]


def workload_of(point: Point, step: StepModel, *, turnaround_s: float) -> Workload:
    """The workload of a row; the constants of this module stand for what the row does not say.

    The step model tells how many requests fit into a window; a client takes ``turnaround_s``
    between an answer and its next request.
    """
    if point.concurrency is not None:
        arrivals: ClosedLoop | OpenLoop = ClosedLoop(
            concurrency=point.concurrency, turnaround_s=turnaround_s
        )
        requests = point.requests or ROUNDS * point.concurrency
        if point.window_s is not None:
            alone = static_latencies_s(step, 1, point.isl, point.osl)[1]
            requests = point.concurrency * (2 + math.ceil(point.window_s / alone))
    else:
        rate = point.request_rate or 1.0
        arrivals = open_loop(rate, burstiness=point.burstiness, in_flight=point.in_flight or 0)
        requests = point.requests or round(min(max(OPEN_REQUESTS, OPEN_SECONDS * rate), OPEN_MOST))
    isl, osl = point.drawn or (Lengths(mean=point.isl), Lengths(mean=point.osl))
    prefix = min(round(point.cached_share * point.isl), point.isl - 1)
    if prefix <= 0:
        return Workload(isl=isl, osl=osl, arrivals=arrivals, requests=requests)
    if (
        point.drawn
        or point.ranks > 1
        or not point.deployment.knobs.prefix_caching
        or point.in_flight
    ):
        raise InputError(
            f"{CACHED}: is simulated for prompts of one length on one attention rank with prefix"
            " caching and without a cap; leave it out"
        )
    fresh = Lengths(mean=point.isl - prefix)
    return Workload(
        isl=fresh,
        osl=osl,
        arrivals=arrivals,
        requests=requests,
        sessions=Sessions(prefix_tokens=prefix),
    )


# What a benchmark reports of a simulated run, by the names of the columns of a measured table.


# Metrics that the attention ranks of an instance have together; of the others each rank has its own
RATES = ("requests_s", "output_tok_s")


def reported_metrics(record: Requests) -> dict[str, float]:
    """Latencies in ms over the completed requests, and the rates per second up to the last
    completion.

    ``itl_ms`` is the mean TPOT, as GenAI-Perf reports it; percentiles of ITL are those of single
    gaps. Nothing is reported where no request completed, and no time per token where none had a
    second token.
    """
    summary = summarize(record)
    if not summary.counted:
        return {}
    metrics = dict(zip(RATES, reported_rates(record), strict=True))
    latencies = {
        "ttft": summary.ttft_ms,
        "e2e": summary.e2e_ms,
        "tpot": summary.tpot_ms,
        "itl": summary.itl_ms,
    }
    for metric, statistics in latencies.items():
        values = {
            "": statistics.mean,
            "_p50": statistics.p50,
            "_p90": statistics.p90,
            "_p95": statistics.p95,
            "_p99": statistics.p99,
        }
        metrics |= {
            f"{metric}{statistic}_ms": value
            for statistic, value in values.items()
            if value is not None
        }
    return metrics | ({"itl_ms": metrics["tpot_ms"]} if "tpot_ms" in metrics else {})


def predict(point: Point, load: Load | None = None) -> dict[str, float]:
    """Predict every metric of a row, by the name of its column: latencies in ms, rates per second,
    memory in GB.

    ``load`` gives the row's workload where that is not the one of ``workload_of``; it is not used
    for a static batch.

    Raises:
        DoesNotFit: the memory does not hold the model, or not one request of these lengths.
        InputError: the parallelism is not one that can be predicted.
    """
    if point.batch is None:
        return reported_metrics(simulated(point, load))
    metrics = _static(point.of_rank)
    return metrics | {name: metrics[name] * point.ranks for name in RATES if name in metrics}


def decoding(point: Point) -> dict[str, float]:
    """Predict the TPOT of a closed loop whose prompts are taken elsewhere, in ms.

    All clients of a worker decode at once, and a token takes one step; the mean is over the steps
    of a request. The metrics are those of ``predict`` as far as a decode pool alone has them.

    Raises:
        DoesNotFit: the memory does not hold the model.
        InputError: the parallelism is not one that can be predicted.
    """
    rank = point.of_rank
    clients, steps = rank.concurrency or 1, max(rank.osl - 1, 1)
    context = round(clients * (rank.isl + (steps + 1) / 2))
    seconds = step_seconds(rank.instance.step.coefficients, 0, 0, clients, 0, context)
    return {"itl_ms": 1e3 * seconds}


def joules_per_token(
    point: Point, values: Mapping[str, float]
) -> tuple[float, float, float] | None:
    """Joules of all GPUs for an output token at the speed in ``values`` (``output_tok_s``, and
    ``itl_ms`` of an open loop).

    With them the joules between which a measurement is expected with a probability of 80 %. None
    where the speed or the TDP of the GPU is not known.
    """
    rate, load = values.get("output_tok_s"), point.batch or point.concurrency
    sequences = (
        load if load is not None else values.get("itl_ms", math.nan) / 1e3 * (rate or math.nan)
    )
    if not rate or not sequences or math.isnan(sequences):
        return None
    d = point.deployment
    step_load, busy = seen_load(
        sequences=sequences, tokens_per_second=rate, isl=point.isl, osl=point.osl, ranks=point.ranks
    )
    power_draw = draw(d, point.instance.step.coefficients, step_load, busy=busy)
    if power_draw is None:
        return None
    joules = power_draw.watts * d.parallelism.gpus / rate
    return joules, joules * power_draw.low, joules * power_draw.high


def _static(point: Point) -> dict[str, float]:
    batch, isl, osl = point.batch or 1, point.isl, point.osl
    peak = static_peak_bytes(point.deployment, batch, isl, osl)
    ttft, e2e = static_latencies_s(step_model(point.deployment).in_process, batch, isl, osl)
    tpot = (e2e - ttft) / (osl - 1) if osl > 1 else math.nan
    metrics = {
        "requests_s": batch / e2e,
        "output_tok_s": batch * osl / e2e,
        "peak_gpu_memory_gb": peak / 1e9,
    }
    for name, value in (("ttft", ttft), ("itl", tpot), ("tpot", tpot), ("e2e", e2e)):
        metrics[f"{name}_ms"] = 1e3 * value
        metrics |= {f"{name}_p{p}_ms": 1e3 * value for p in (50, 90, 95, 99)}
    return metrics


def simulated(point: Point, load: Load | None = None) -> Requests:
    """The requests of a row with clients or a rate, as the simulator serves them; arguments and
    errors as of ``predict``.
    """
    from tonnage.simulator.simulate import run
    from tonnage.simulator.spec import spec_of

    instance, d = point.instance, point.deployment
    step = instance.step
    turnaround_s = client_turnaround_s(d)
    workload = (
        workload_of(point, step, turnaround_s=turnaround_s)
        if load is None
        else load(step, turnaround_s)
    )
    trace = workload.trace(SEED)
    window = -1 if point.window_s is None or point.concurrency is None else to_ps(point.window_s)
    model = step.in_process if workload.queued and not point.served else step
    return run(spec_of(d, replace(instance, step=model)), trace, window_ps=window)


# The rows of a measured file as points that can be predicted, each with its own way to be
# predicted. A plain table of our columns is read by ``formats.measured_files``. Files with columns
# and own rules are turned into a ``MeasuredTable`` by anyone who knows those rules, such as
# ``tools/fit`` for ``silicon_sample.csv``.


# A measured file that many have, with its own columns: the fit's command reads it
FOREIGN = "silicon_sample.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTable:
    """The rows of a measured file."""

    # as ``formats.measured_files.read_measured`` gives them, or with the same keys as far as they
    # are known
    rows: list[dict[str, Any]]
    point: Callable[[int], Point]  # looks row ``i`` up in the catalogs
    # gives the metrics of row ``i`` at a point that ``point`` gave, by the names that
    # ``evidence.predict.predict`` uses
    predict: Callable[[int, Point], dict[str, float]]
    remarks: tuple[str, ...] = ()  # what was left out of the file, one sentence each
    # rows of the file that are of another kind, by the name of that kind; their errors are not
    # among those of the others
    apart: Mapping[str, MeasuredTable] = field(default_factory=dict)
    # whether requests are predicted with just what the rows say of their lengths
    by_lengths: bool = False
    slo: Slo = ()  # joint attainment that is compared where a row has its single requests


Measured = MeasuredTable | Path | str | Sequence[Mapping[str, Any]]
"""What can be scored: a table, a file or folder of measurements, or rows that were read before."""


def measured_table(
    measured: Measured,
    known_values: Mapping[str, str | int] | None = None,
    *,
    invalid: InvalidRuns | None = None,
) -> MeasuredTable:
    """The table of a file or folder, or of rows that were read before; a table is returned as it
    is.

    Args:
        known_values: model, gpu, precision, tp, engine, isl and osl, where a file does not say
        them.
        invalid: decides on runs that are not to be believed; a remark names each. They are left out
            without it.

    Raises:
        InputError: the file cannot be read as measurements.
    """
    if isinstance(measured, MeasuredTable):
        return measured
    invalid = invalid or InvalidRuns()
    rows = (
        _read(Path(measured), known_values, invalid)
        if isinstance(measured, Path | str)
        else [dict(row) for row in measured]
    )
    invalid.check(rows)
    return MeasuredTable(
        rows=rows,
        point=lambda i: read_point(rows[i]),
        predict=lambda _, point: predict(point),
        remarks=invalid.sentences,
        by_lengths=True,
    )


def _read(
    path: Path, known_values: Mapping[str, str | int] | None, invalid: InvalidRuns
) -> list[dict[str, Any]]:
    try:
        return read_measured(path, known_values, invalid)
    except InputError:
        if path.name != FOREIGN:
            raise
    raise InputError(
        f"{path}: has columns of its own, which the fit's command knows: ./fit score {path}, in a"
        " checkout of Tonnage"
    )
