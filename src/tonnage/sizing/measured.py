"""Sizing from measured benchmarks, the classic way of NVIDIA's course, kept exact.

Of each measured curve (one deployment and one pair of lengths over growing load) take the point
with the most requests per second among loads that meet every limit. Then

    requests/s per 8 GPUs = requests/s × 8 / (tp × pp)        systems = peak / that, rounded up

Nothing is interpolated and no queue is simulated: an answer is as good as the benchmark. Source:
NVIDIA course "Sizing LLM Inference Systems".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tonnage.errors import InputError, UnknownName, option
from tonnage.formats.measured_files import STEADY, MeasuredPoint
from tonnage.formats.table import STATISTICS
from tonnage.plan.candidate import Candidate, Pool, by_gpus_needed
from tonnage.plan.demand import Demand
from tonnage.plan.fleet import Fleet, fleet
from tonnage.plan.limit import HIGHEST_MEASURED, Breach, Load, bound_by, limit_of
from tonnage.plan.notes import (
    BenchmarkAsMeasured,
    GpusNotMeasured,
    NoLimit,
    Note,
    PointsLeftOut,
    UnsteadyPoints,
)
from tonnage.plan.plan import Plan, Understood
from tonnage.plan.reason import (
    BrokenAtAnyLoad,
    DoesNotDivide,
    MeasuredBreach,
    NoMeasuredLoadHolds,
    Reached,
    Reason,
    Rejected,
    StatisticNotMeasured,
    ThroughputNotMeasured,
    nearest_of,
)
from tonnage.plan.sensitivity import Provenance
from tonnage.results.metrics import Latencies
from tonnage.spec.catalog import engines, find_engine, find_gpu, find_model, system_of
from tonnage.spec.catalog.accuracy import accuracy_and_calibration
from tonnage.spec.deployment import Limit, LimitMetric, Slo
from tonnage.spec.precision import find_precision
from tonnage.version import VERSION

ROUNDING = 1e-9
"""Relative slack of a limit: what the conversion between s and ms may round."""

GPUS_PER_SYSTEM = 8
"""Assumed where the catalog does not know the GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredQuestion:
    """A question to a set of measured points; None leaves a choice open.

    Attributes:
        demand: requests per second at the peak.
        slo: limits; all must hold.
        model: by any name of the catalog, or as the points write it.
        isl, osl: in tokens, as the points state them.
        gpus, precisions, tps, engines: which deployments may be chosen.
        spare: systems on top.
        data: where the points came from, in words: the file.
        mean_isl, mean_osl: of the traffic that is sized for, in tokens, where that is not quite
            what was measured.
    """

    demand: Demand
    slo: Slo
    model: str | None = None
    isl: int | None = None
    osl: int | None = None
    gpus: tuple[str, ...] | None = None
    precisions: tuple[str, ...] | None = None
    tps: tuple[int, ...] | None = None
    engines: tuple[str, ...] | None = None
    spare: int = 0
    data: str = "the measured points"
    mean_isl: float | None = None
    mean_osl: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The points of one deployment at one pair of lengths, in order of load, with the catalog's
    names.
    """

    model: str
    gpu: str
    system: str
    gpus_per_system: int
    points: tuple[MeasuredPoint, ...]

    @property
    def gpus(self) -> int:
        """GPUs of one instance."""
        return self.points[0].tp * self.points[0].pp

    def rejected(self, reason: Reason) -> Rejected:
        """This curve, with why it cannot be."""
        p = self.points[0]
        return Rejected(
            gpu=self.gpu, precision=p.precision, tp=p.tp, pp=p.pp, engine=p.engine, reason=reason
        )


def size_measured(points: Sequence[MeasuredPoint], question: MeasuredQuestion) -> Plan:
    """The plan that the measured points give: one candidate per curve, at its best load inside the
    limits.

    The candidates are ordered as in every plan (fewest GPUs first); a curve without such a load is
    rejected with its numbers. ``knobs`` is None and ``memory`` empty: a benchmark does not say
    them. Statistics that were not measured are None.

    Raises:
        InputError: no point fits the question, several models or lengths do and none was requested,
            or no point has a statistic that a limit is on.
    """
    curves = _curves(_asked_for(points, question), question)
    _check_statistics(curves, question)
    outcomes = [_outcome(curve, question) for curve in curves]
    candidates = sorted((o for o in outcomes if isinstance(o, Candidate)), key=by_gpus_needed)
    rejected = tuple(o for o in outcomes if isinstance(o, Rejected))
    sources = tuple(dict.fromkeys(p.source for c in curves for p in c.points))
    return Plan(
        scenario=_understood(curves, question),
        demand=replace(
            question.demand, sizing_requests_per_second=question.demand.peak_requests_per_second
        ),
        candidates=tuple(candidates),
        rejected=rejected,
        reachable=None if candidates else nearest_of(map(_reached, rejected)),
        notes=tuple(_notes(points, curves, question)),
        provenance=Provenance(tonnage=VERSION, benchmarks=question.data, sources=sources),
    )


def _model_name(name: str) -> str:
    """The catalog's name of a model, or the name itself; never read as the path of a file."""
    last = name.strip().rsplit("/", 1)[-1]
    try:
        return find_model(last.removesuffix(".json")).name
    except UnknownName:
        return name.strip().lower()


def _engine_name(name: str) -> str:
    try:
        return find_engine(name).name
    except InputError:
        return name.strip().lower()


def _gpu_name(name: str) -> str:
    try:
        return find_gpu(name).name
    except UnknownName:
        return name.strip().lower()


def _presets(engine: str) -> set[str]:
    """The presets that an asked engine stands for: a bare name stands for every version that was
    measured.
    """
    if any(letter.isdigit() for letter in engine):
        return {_engine_name(engine)}
    try:
        family = find_engine(engine).family
    except UnknownName:
        return {_engine_name(engine)}
    return {spec.name for spec in engines() if spec.family == family}


def _asked_for(points: Sequence[MeasuredPoint], question: MeasuredQuestion) -> list[MeasuredPoint]:
    """The points of the model and lengths asked for; where none are requested there must be one of
    each.
    """
    requested_key = (question.model and _model_name(question.model), question.isl, question.osl)
    names = {p.model: _model_name(p.model) for p in points}
    keys = [(names[p.model], p.isl, p.osl) for p in points]
    matching = {
        key
        for key in keys
        if all(a is None or a == k for a, k in zip(requested_key, key, strict=True))
    }
    if not matching:
        raise InputError(
            f"{question.data}: has no point of {_workload(*requested_key)}; it has"
            f" {_listed(set(keys))}"
        )
    if len(matching) > 1:
        raise InputError(
            f"{question.data}: measures more than one workload; choose with {option('model')},"
            f" {option('isl')} and {option('osl')} from {_listed(matching)}"
        )
    (workload_key,) = matching
    return [point for point, key in zip(points, keys, strict=True) if key == workload_key]


def _workload(model: str | None, isl: int | None, osl: int | None) -> str:
    return f"{model or 'any model'} at {isl or 'any'}/{osl or 'any'} tokens"


def _listed(keys: set[tuple[str, int, int]]) -> str:
    shown = [_workload(*key) for key in sorted(keys)]
    return "; ".join(shown[:8]) + (f"; and {len(shown) - 8} more" if len(shown) > 8 else "")


def _curves(points: list[MeasuredPoint], question: MeasuredQuestion) -> list[Curve]:
    """The deployments that may be chosen, in the order of the file."""
    gpus = question.gpus and {_gpu_name(name) for name in question.gpus}
    precisions = question.precisions and {name.lower() for name in question.precisions}
    presets = question.engines and {
        name for engine in question.engines for name in _presets(engine)
    }
    groups: dict[tuple[str, str, int, int, str], list[MeasuredPoint]] = {}
    for p in points:
        gpu = _gpu_name(p.gpu)
        allowed = (
            (not gpus or gpu in gpus)
            and (not precisions or p.precision in precisions)
            and (not question.tps or p.tp in question.tps)
            and (not presets or _engine_name(p.engine) in presets)
        )
        if allowed:
            groups.setdefault((gpu, p.precision, p.tp, p.pp, p.engine), []).append(p)
    if not groups:
        has = sorted({f"{_gpu_name(p.gpu)} {p.precision} TP {p.tp} {p.engine}" for p in points})
        raise InputError(
            f"{question.data}: no point is left by {option('gpu')}, {option('precision')},"
            f" {option('tp')} and {option('engine')}; it has {'; '.join(has[:8])}"
        )
    return [_curve(gpu, group) for (gpu, *_), group in groups.items()]


def _curve(gpu: str, points: list[MeasuredPoint]) -> Curve:
    try:
        system = system_of(find_gpu(gpu))
    except UnknownName:
        system = None
    return Curve(
        model=_model_name(points[0].model),
        gpu=gpu,
        system=system.name if system else f"{GPUS_PER_SYSTEM}x{gpu}",
        gpus_per_system=system.gpus if system else GPUS_PER_SYSTEM,
        points=tuple(sorted(points, key=lambda p: p.load_size)),
    )


def _check_statistics(curves: list[Curve], question: MeasuredQuestion) -> None:
    for limit in question.slo:
        if limit.share is not None:
            raise InputError(
                f"{option('attain')}: {question.data} has percentiles and no single requests, of"
                " which joint attainment is a share; limit a percentile of each metric, or leave"
                " out the measured points"
            )
        has = [
            s
            for s in STATISTICS
            if any(s in p.latencies_ms.get(limit.metric, {}) for c in curves for p in c.points)
        ]
        if limit.statistic not in has:
            what = (
                f"has its {' and '.join(has)}; limit one of these"
                if has
                else "does not have that metric at all; leave the limit out"
            )
            raise InputError(
                f"{option(limit.metric)}: {question.data} has no {limit.statistic} of"
                f" {limit.metric.upper()}; it {what}"
            )


def _outcome(curve: Curve, question: MeasuredQuestion) -> Candidate | Rejected:
    gpus, per_system = curve.gpus, curve.gpus_per_system
    if per_system % gpus and gpus % per_system:
        return curve.rejected(DoesNotDivide(gpus=gpus, system=curve.system, system_gpus=per_system))
    rated = [p for p in curve.points if p.requests_s is not None]
    if not rated:
        return curve.rejected(ThroughputNotMeasured())
    inside = [p for p in rated if _worst(p, question.slo) is None]
    if not inside:
        return curve.rejected(_why_none(rated, question.slo))
    best = max(inside, key=_rate)
    return _candidate(curve, best, question)


def _rate(point: MeasuredPoint) -> float:
    return point.requests_s or 0.0


def _worst(point: MeasuredPoint, slo: Slo) -> Limit | None:
    """The limit that the point exceeds by the largest factor, or does not have measured; None when
    all hold.
    """
    over = [(_factor(point, limit), -i) for i, limit in enumerate(slo)]
    factor, index = max(over, default=(0.0, 0))
    return slo[-index] if factor > 1 + ROUNDING else None


def _factor(point: MeasuredPoint, limit: Limit) -> float:
    value = point.statistic_ms(limit.metric, limit.statistic)
    return math.inf if value is None else value / 1e3 / limit.seconds


def _breach(point: MeasuredPoint, limit: Limit) -> Breach:
    return Breach(limit=limit_of(limit), value_ms=point.statistic_ms(limit.metric, limit.statistic))


def _load(point: MeasuredPoint) -> Load:
    """The load that a point was measured at."""
    if point.concurrency is None:
        return Load(kind="open", requests_per_second=point.request_rate, measured=True)
    return Load(kind="closed", clients=float(point.concurrency), measured=True)


def _why_none(rated: list[MeasuredPoint], slo: Slo) -> Reason:
    """The limit that every load breaks, at its lowest; or the lowest and the highest load and what
    breaks there.
    """
    for limit in slo:
        lowest = min(rated, key=lambda p: _factor(p, limit))
        if math.isinf(_factor(lowest, limit)):
            return StatisticNotMeasured(metric=limit.metric, statistic=limit.statistic)
        if _factor(lowest, limit) > 1 + ROUNDING:
            return BrokenAtAnyLoad(breach=_breach(lowest, limit), lowest=_load(lowest))
    ends = [(p, worst) for p in (rated[0], rated[-1]) if (worst := _worst(p, slo)) is not None]
    broken = [MeasuredBreach(breach=_breach(p, worst), load=_load(p)) for p, worst in ends]
    return NoMeasuredLoadHolds(breaches=tuple(dict.fromkeys(broken)))


def _reached(refused: Rejected) -> tuple[Reached, ...]:
    """The value nearest to the limit that the deployment breaks at every measured load."""
    why = refused.reason
    if not isinstance(why, BrokenAtAnyLoad) or why.breach.value_ms is None:
        return ()
    limit, value = why.breach.limit, why.breach.value_ms
    return (
        Reached(
            limit=limit, asked_ms=limit.milliseconds, value_ms=value, deployment=refused.identity
        ),
    )


def _candidate(curve: Curve, best: MeasuredPoint, question: MeasuredQuestion) -> Candidate:
    peak, rate = question.demand.peak_requests_per_second, _rate(best)
    layout = fleet(curve.gpus, curve.gpus_per_system)
    need = layout.of(layout.carrying(peak, rate).systems + question.spare)
    saturation = max(_rate(p) for p in curve.points)
    impact, calibration = _published(best.precision, curve.model)
    tokens = best.output_tok_s if best.output_tok_s is not None else rate * best.osl
    better = sorted((p for p in curve.points if _rate(p) > _rate(best)), key=_rate)
    limit = _worst(better[0], question.slo) if better else None
    return Candidate(
        pools=(_pool(curve, best, need),),
        systems_exact=need.exactly(peak, rate),
        requests_per_second_per_instance=rate,
        requests_per_second_per_gpu=rate / curve.gpus,
        requests_per_second_per_8_gpus=rate * 8 / curve.gpus,
        output_tokens_per_second_per_8_gpus=tokens * 8 / curve.gpus,
        saturation_requests_per_second_per_instance=saturation,
        concurrency_per_instance=_in_flight(best),
        utilisation=need.utilisation(peak, rate),
        headroom_to_saturation=saturation * need.instances / peak - 1,
        ttft_ms=_latencies(best, "ttft"),
        itl_ms=_latencies(best, "itl"),
        tpot_ms=_latencies(best, "tpot"),
        e2e_ms=_latencies(best, "e2e"),
        binds=HIGHEST_MEASURED if limit is None else bound_by(limit),
        load=_load(best),
        accuracy_impact=impact,
        calibration=calibration,
    )


def _published(precision: str, model: str) -> tuple[str, str]:
    """Accuracy impact and calibration of a format as a file writes it; ("", "") where it is none of
    ours.
    """
    try:
        return accuracy_and_calibration(
            find_precision(precision), find_model(model).released if model else ""
        )
    except InputError:
        return "", ""


def _pool(curve: Curve, best: MeasuredPoint, need: Fleet) -> Pool:
    """The measured instances on their systems."""
    return Pool(
        model=curve.model,
        gpu=curve.gpu,
        precision=best.precision,
        tp=best.tp,
        pp=best.pp,
        engine=best.engine,
        system=curve.system,
        gpus_per_system=curve.gpus_per_system,
        knobs=None,
        instances=need.instances,
        systems=need.systems,
    )


def _latencies(point: MeasuredPoint, metric: LimitMetric) -> Latencies:
    measured = point.latencies_ms.get(metric, {})
    return Latencies(**{s: measured.get(s) for s in STATISTICS})


def _in_flight(point: MeasuredPoint) -> float | None:
    """Clients of the closed loop; in an open loop by Little's law, None where E2E was not
    measured.
    """
    if point.concurrency is not None:
        return float(point.concurrency)
    e2e = point.statistic_ms("e2e", "mean")
    return None if e2e is None else _rate(point) * e2e / 1e3


def _understood(curves: list[Curve], question: MeasuredQuestion) -> Understood:
    """The question as the plan states it."""
    first = curves[0].points[0]
    limits = tuple(map(limit_of, question.slo))
    return Understood(
        model=curves[0].model,
        gpus=tuple(dict.fromkeys(c.gpu for c in curves)),
        precisions=tuple(dict.fromkeys(c.points[0].precision for c in curves)),
        tps=tuple(sorted({c.points[0].tp for c in curves})),
        engines=tuple(dict.fromkeys(c.points[0].engine for c in curves)),
        isl=str(first.isl),
        osl=str(first.osl),
        mean_isl=float(first.isl) if question.mean_isl is None else question.mean_isl,
        mean_osl=float(first.osl) if question.mean_osl is None else question.mean_osl,
        limits=limits,
        limits_that_count=limits,
        load="measured",
        spare_systems=question.spare,
        benchmarks=question.data,
    )


def _notes(
    points: Sequence[MeasuredPoint], curves: list[Curve], question: MeasuredQuestion
) -> Iterator[Note]:
    """What a reader must know about the numbers."""
    used = [p for c in curves for p in c.points]
    yield BenchmarkAsMeasured()
    if len(used) < len(points):
        yield PointsLeftOut(left_out=len(points) - len(used), points=len(points))
    missing = tuple(
        dict.fromkeys(
            gpu for gpu in map(_gpu_name, question.gpus or ()) if gpu not in {c.gpu for c in curves}
        )
    )
    if missing:
        yield GpusNotMeasured(gpus=missing)
    unsteady = [p for p in used if not p.steady]
    if unsteady:
        first = unsteady[0]
        clients = float(first.concurrency or 0)
        yield UnsteadyPoints(
            unsteady=len(unsteady),
            points=len(used),
            threshold=STEADY,
            first_clients=clients,
            first_tp=first.tp,
        )
    if not question.slo:
        yield NoLimit(measured=True)
