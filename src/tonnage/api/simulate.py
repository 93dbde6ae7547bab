"""``tonnage.simulate``: one deployment under one load or several, and the record of what happened."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tonnage.api.arguments import Many, lengths_of, rates, seed_of, whole_numbers
from tonnage.errors import InputError, option
from tonnage.perf.external.measured_steps import check_source, checked_source
from tonnage.spec.calibration import read_calibration
from tonnage.spec.catalog import find_engine, find_gpu, find_model
from tonnage.spec.deployment import Deployment, EngineKnobs, Parallelism, Scheduler
from tonnage.spec.engine import default_knobs
from tonnage.spec.precision import find_precision
from tonnage.spec.speculation import parse_speculation
from tonnage.spec.workload import Arrivals, ClosedLoop, Lengths, OpenLoop, Process, Workload
from tonnage.units import parse_duration

if TYPE_CHECKING:
    from tonnage.results.metrics import Summary
    from tonnage.results.requests import Requests
    from tonnage.sizing.planner import Progress

DEFAULT_REQUESTS = 1_000
WINDOW_REQUESTS = 1_000_000
MOST_TOKENS = 2e10
MOST_REQUESTS = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """One simulated point: what was run, what happened to each request, and the metrics of it.

    Attributes:
        deployment, workload, seed: what was run.
        requests, summary: what happened.
        plain: of speculative decoding, the metrics of the same point without it; None otherwise.
    """

    deployment: Deployment
    workload: Workload
    seed: int
    requests: Requests
    summary: Summary
    plain: Summary | None = None

    @property
    def gain(self) -> float | None:
        """What speculative decoding brings: output tokens/s over those without; in an open loop mean E2E without over with."""
        if self.plain is None:
            return None
        if isinstance(self.workload.arrivals, ClosedLoop):
            return self.summary.output_tokens_per_second / self.plain.output_tokens_per_second
        return self.plain.e2e_ms.mean / self.summary.e2e_ms.mean

    def to_json(self) -> dict[str, Any]:
        """The summary with its qualifiers: deployment, lengths, load, seed."""
        from tonnage.sizing.planner import engine_label

        d, w = self.deployment, self.workload
        load: dict[str, Any] = (
            {"concurrency": w.arrivals.concurrency}
            if isinstance(w.arrivals, ClosedLoop)
            else {"request_rate": w.arrivals.rate, "arrivals": w.arrivals.process}
        )
        summary = self.summary.to_json()
        summary["mean_concurrency"] = summary.pop("concurrency")
        return {
            "model": d.model.name,
            "gpu": d.gpu.name,
            "precision": d.precision.name,
            "tp": d.parallelism.tp,
            **d.parallelism.further,
            "engine": engine_label(d.engine),
            "engine_preset": d.engine,
            "isl": str(w.isl),
            "osl": str(w.osl),
            **load,
            "requests": w.requests,
            "seed": self.seed,
            **({} if d.speculation is None else {"speculation": str(d.speculation), "speculation_gain": self.gain}),
            "marks": list(self.marks),
            "intervals": {name: list(bounds) for name, bounds in self.intervals.items()},
            **summary,
        }

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Where a measurement lies with a probability of 80 %, by column; of a mean unless the name has a percentile."""
        from tonnage.perf.prediction_error import intervals_of, regime_of, run_noise

        s, w = self.summary, self.workload
        values = {"ttft_ms": s.ttft_ms.mean, "ttft_p95_ms": s.ttft_ms.p95, "tpot_ms": s.tpot_ms.mean, "e2e_ms": s.e2e_ms.mean}
        values["requests_s"] = s.requests_per_second
        clients = w.arrivals.concurrency if isinstance(w.arrivals, ClosedLoop) else None
        batch = clients if self.deployment.knobs.scheduler == "static" else None
        regime = regime_of(self.deployment, isl=w.isl.mean, osl=w.osl.mean, batch=batch, clients=clients)
        return intervals_of(values, regime, run_noise(self.requests) if clients is None else {})

    @property
    def marks(self) -> tuple[str, ...]:
        """Which numbers behind it were not fitted to measurements of this GPU and engine, in words."""
        from tonnage.perf.provenance import marks

        return marks(self.deployment)

    def scenario(self) -> dict[str, Any]:
        """What was run, for the run folder: deployment with every knob, workload, seed."""
        d, w = self.deployment, self.workload
        return {
            "model": d.model.name,
            "gpu": d.gpu.name,
            "precision": d.precision.name,
            "tp": d.parallelism.tp,
            **d.parallelism.further,
            "engine": d.engine,
            "knobs": asdict(d.knobs),
            "isl": str(w.isl),
            "osl": str(w.osl),
            "arrivals": asdict(w.arrivals),
            "requests": w.requests,
            "seed": self.seed,
            **({"calibration": asdict(d.calibration)} if d.calibration is not None else {}),
            **({"speculation": str(d.speculation)} if d.speculation is not None else {}),
            **({"step_model": d.step_source.name, "marks": list(self.marks)} if d.step_source is not None else {}),
        }


def deployment_of(
    *,
    model: str,
    gpu: str,
    precision: str,
    tp: int,
    engine: str,
    dp: int = 1,
    ep: int = 1,
    knobs: Mapping[str, int | bool | float | str | None] | None = None,
    coefficients: str | Path | None = None,
    step_model: str | Path | None = None,
    speculation: str | None = None,
) -> Deployment:
    """A deployment by catalog names, with any of the engine's knobs set, a calibration's file, and whose step times price it.

    Raises:
        InputError: an unknown name, a knob that cannot be, or a file that is no calibration.
    """
    found_gpu, found_precision, spec = find_gpu(gpu), find_precision(precision), find_engine(engine)
    if lacking := found_gpu.lacks(found_precision):
        raise InputError(
            f"{option('precision')}: {found_gpu.name} ({found_gpu.arch}) has {lacking} for {found_precision.name}; choose another"
        )
    if lacking := spec.lacks(found_precision):
        raise InputError(f"{option('precision')}: {lacking}; choose another")
    set_knobs = {name: value for name, value in (knobs or {}).items() if value is not None}
    for name, value in set_knobs.items():
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise InputError(f"{option(name)}: {value} is not possible; write 1 or more")
    chosen: EngineKnobs = replace(default_knobs(spec, found_gpu), **set_knobs)  # type: ignore[arg-type]
    _check_waits(chosen, spec.name)
    calibration = None if coefficients is None else read_calibration(coefficients)
    source = None if step_model is None else checked_source(step_model)
    check_source(source, calibration, 1)
    return Deployment(
        model=find_model(model),
        gpu=found_gpu,
        precision=found_precision,
        parallelism=Parallelism(tp=tp, dp=dp, ep=ep),
        engine=spec.name,
        knobs=chosen,
        calibration=calibration,
        step_source=source,
        speculation=parse_speculation(speculation),
    )


def _check_waits(knobs: EngineKnobs, engine: str) -> None:
    """Refuse settings by which requests wait that the engine does not have, or that do not go together."""
    waits = knobs.batch_wait_steps > 0, knobs.batch_wait_ratio > 0
    if knobs.receive_interval > 1 and knobs.scheduler != "sglang":
        raise InputError(
            f"{option('receive_interval')}: {engine} has no such setting, SGLang does ({option('engine')} sglang); leave it out"
        )
    if any(waits) and knobs.scheduler != "tensorrt-llm":
        raise InputError(
            f"{option('batch_wait_steps')}, {option('batch_wait_ratio')}: {engine} has no such settings, TensorRT-LLM does; leave them out"
        )
    if any(waits) != all(waits) or not 0 <= knobs.batch_wait_ratio <= 1:
        raise InputError(
            f"{option('batch_wait_steps')}, {option('batch_wait_ratio')}: "
            f"go together, the ratio above 0 and at most 1, for example 20 and 0.9"
        )


def simulate(
    *,
    model: str,
    isl: str | float,
    osl: str | float,
    concurrency: int | None = None,
    request_rate: float | None = None,
    **options: Any,
) -> SimulatedRun:
    """What one instance does under one load.

    Args:
        model: catalog id, or path of a Hugging Face ``config.json``.
        isl, osl: prompt and output lengths in tokens: a number or a distribution ("2000+-500").
        concurrency: clients of a closed loop; or
        request_rate: requests per second of an open loop.
        options: as in ``simulate_sweep``.

    Raises:
        InputError: anything that cannot be used, in one line.
    """
    return simulate_sweep(model=model, isl=isl, osl=osl, concurrency=concurrency, request_rate=request_rate, **options)[0]


def simulate_sweep(
    *,
    model: str,
    isl: str | float,
    osl: str | float,
    gpu: str = "h100-sxm-80gb",
    precision: str = "fp16",
    tp: int = 1,
    engine: str = "tensorrt-llm",
    dp: int = 1,
    ep: int = 1,
    concurrency: Many | None = None,
    request_rate: str | float | Iterable[float] | None = None,
    requests: int | None = None,
    window: str | None = None,
    arrivals: Process = "poisson",
    cv: float = 1.0,
    seed: int = 0,
    batcher: Literal["static", "in-flight", "one-prefill"] | None = None,
    max_batch_size: int | None = None,
    max_num_tokens: int | None = None,
    chunked_prefill: bool | None = None,
    stream_interval: int | None = None,
    receive_interval: int | None = None,
    batch_wait_steps: int | None = None,
    batch_wait_ratio: float | None = None,
    overlap_schedule: bool | None = None,
    graph_tokens: int | None = None,
    speculation: str | None = None,
    coefficients: str | Path | None = None,
    step_model: str | Path | None = None,
    progress: Progress | None = None,
) -> list[SimulatedRun]:
    """The same instance under several loads, several points at once over the cores.

    Args:
        model, isl, osl: as in ``simulate``.
        gpu, precision, tp, engine: the deployment.
        dp, ep: ranks of attention and groups of experts of a mixture of experts; loads are those of all ranks.
        concurrency: clients of a closed loop, one point each ("1,2,5"); or
        request_rate: requests per second of an open loop, one point each.
        requests: requests per point; 1,000, and in a closed loop at least 10 per client, if not given.
        window: closed loop: count what completes within this time of a common start ("216s").
        arrivals, cv: arrival process of an open loop.
        seed: of every random draw.
        batcher: "static" or "in-flight"; the engine's own if not given.
        max_batch_size, max_num_tokens, chunked_prefill, stream_interval, receive_interval, batch_wait_steps, batch_wait_ratio,
            overlap_schedule, graph_tokens: engine knobs (``spec.deployment.EngineKnobs``); the engine's own if not given.
        speculation: speculative decoding, such as "eagle k=3 acceptance=0.7"; every point is then run without it too.
        coefficients: file that ``calibrate`` wrote; the shipped terms if not given.
        step_model: whose step times: "fitted", "aiconfigurator", or a CSV (``spec.step_times_file``).
        progress: called with (done, total, name) after each point.

    Raises:
        InputError: anything that cannot be used, in one line.
    """
    from tonnage.perf.terms import client_turnaround_s
    from tonnage.results.metrics import summarize
    from tonnage.simulator.simulate import simulate_many

    knobs = {
        "scheduler": _scheduler(batcher, engine),
        "max_batch_size": max_batch_size,
        "max_num_tokens": max_num_tokens,
        "chunked_prefill": chunked_prefill,
        "stream_interval": stream_interval,
        "receive_interval": receive_interval,
        "batch_wait_steps": batch_wait_steps,
        "batch_wait_ratio": batch_wait_ratio,
        "overlap_schedule": overlap_schedule,
        "graph_tokens": graph_tokens,
    }
    seed_of(seed)
    place: dict[str, Any] = {"model": model, "gpu": gpu, "precision": precision, "tp": tp, "dp": dp, "ep": ep, "engine": engine}
    whose: dict[str, Any] = {"coefficients": coefficients, "step_model": step_model, "speculation": speculation}
    deployment = deployment_of(**place, knobs=knobs, **whose)
    loads = _loads(concurrency, request_rate, arrivals, cv, client_turnaround_s(deployment))
    window_s = None if window is None else _window(window, loads)
    lengths = (lengths_of(isl, option("isl")), lengths_of(osl, option("osl")))
    check_context(deployment, *lengths)
    workloads = [_workload(*lengths, load, requests, window_s) for load in loads]
    points = [(deployment, workload) for workload in workloads]
    if deployment.speculation is not None:
        points += [(replace(deployment, speculation=None), workload) for workload in workloads]
    runs = simulate_many(points, seed=seed, window_s=window_s, progress=progress)
    summaries = [summarize(run) for run in runs]
    plain: list[Summary | None] = [*summaries[len(loads) :]] or [None] * len(loads)
    made = zip(workloads, runs, summaries, plain, strict=False)
    return [SimulatedRun(deployment=deployment, workload=w, seed=seed, requests=r, summary=s, plain=p) for w, r, s, p in made]


def _scheduler(batcher: str | None, engine: str) -> Scheduler | None:
    """The scheduler that a batching strategy means on an engine."""
    if batcher is None:
        return None
    if batcher == "static":
        return "static"
    if batcher == "one-prefill":
        raise InputError(f"{option('batcher')}: one-prefill is a strategy of the lesson; add {option('ticks')}, or use static or in-flight")
    own = find_engine(engine).knobs.scheduler
    return "tensorrt-llm" if own == "static" else own


def _loads(
    concurrency: Many | None, request_rate: str | float | Iterable[float] | None, process: Process, cv: float, turnaround_s: float
) -> list[Arrivals]:
    if (concurrency is None) == (request_rate is None):
        what = "neither" if concurrency is None else "both"
        raise InputError(
            f"{option('concurrency')}, {option('request_rate')}: {what} given; "
            f"give one of them, for example {option('concurrency')} 1,10,100"
        )
    if concurrency is not None:
        clients = whole_numbers(concurrency, option("concurrency"))
        return [ClosedLoop(concurrency=n, turnaround_s=turnaround_s) for n in clients]
    if process == "gamma" and not (math.isfinite(cv) and cv > 0):
        raise InputError(f"{option('cv')}: {cv:g} is not a coefficient of variation; write a number above 0 (1 is Poisson)")
    return [OpenLoop(rate=rate, process=process, cv=cv) for rate in rates(request_rate or "", option("request_rate"))]


def _window(text: str, loads: list[Arrivals]) -> float:
    seconds = parse_duration(text, option("window"))
    if seconds <= 0:
        raise InputError(f"{option('window')}: '{text}' is empty; write for example 216s")
    if not isinstance(loads[0], ClosedLoop):
        raise InputError(
            f"{option('window')}: belongs to a closed loop; give {option('concurrency')}, or {option('requests')} for an open loop"
        )
    return seconds


def check_context(deployment: Deployment, isl: Lengths, osl: Lengths) -> None:
    """Refuse lengths that the model's context cannot hold.

    Raises:
        InputError: naming both lengths and the context.
    """
    from tonnage.sizing.question import check_context as check

    check(deployment.model, isl, osl)


def _workload(isl: Lengths, osl: Lengths, load: Arrivals, requests: int | None, window_s: float | None) -> Workload:
    count = requests
    if count is None:
        count = max(DEFAULT_REQUESTS, 10 * load.concurrency) if isinstance(load, ClosedLoop) else DEFAULT_REQUESTS
        count = WINDOW_REQUESTS if window_s is not None else count
    if not 1 <= count <= MOST_REQUESTS:
        raise InputError(f"{option('requests')}: {count} is not possible; write 1 to {MOST_REQUESTS:,}")
    if count * osl.mean > MOST_TOKENS and window_s is None:
        raise InputError(
            f"{option('requests')}: "
            f"{count:,} × {osl.mean:,.0f} output tokens are more than the {MOST_TOKENS:.0e} that a run may have; ask for fewer"
        )
    return Workload(isl=isl, osl=osl, arrivals=load, requests=count)


def write_runs(folder: Path, runs: Sequence[SimulatedRun], provenance: dict[str, Any]) -> None:
    """Write one run folder, or for a sweep one per point inside ``folder``.

    Raises:
        InputError: the folder exists and is not empty.
    """
    from tonnage.results.store import write_run

    for run in runs:
        load = run.workload.arrivals
        name = f"concurrency-{load.concurrency}" if isinstance(load, ClosedLoop) else f"rate-{load.rate:g}"
        target = folder if len(runs) == 1 else folder / name
        write_run(target, run.scenario(), run.requests, run.summary, provenance)
