"""Where a question leaves what was measured (docs/intervals.md, "When not to believe it").

The parts of the choice that no measured row covers, lengths and loads outside the rows, and a peak
near saturation.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from tonnage.perf.matrices import fitted_bits
from tonnage.perf.ranges import kind_of, nearest_format, nearest_gpu, nearest_model, shipped_ranges
from tonnage.perf.terms_file import shipped
from tonnage.plan.sensitivity import (
    Beyond,
    ClosedLoopNearSaturation,
    OpenLoopNearSaturation,
    OutOfRange,
    Unmeasured,
)
from tonnage.spec.catalog import find_engine

if TYPE_CHECKING:
    from tonnage.perf.residuals import Regime
    from tonnage.plan.candidate import Candidate
    from tonnage.sizing.question import Question
    from tonnage.sizing.search.deployment_capacity import Sized
    from tonnage.spec.deployment import Deployment
    from tonnage.spec.lengths import Lengths

LONGER, SHORTER = 1.25, 1 / 8
"""A value is near the measured ones up to so many times the largest, and down to so many times the
smallest. Benchmarks draw their lengths over a fifth of the nominal ones, and inside the ranges the
rows themselves are up to eight times apart (1,024 and 8,192 tokens)."""

FEWEST = 20
"""Rows from which the fit counts a GPU, or an engine on it, as measured (``FEWEST`` of
``tools/fit/modern``)."""

TAIL = 95
"""The percentile of lengths whose requests decide a limit on p95 TTFT."""

DRAWN = 4_000
"""Lengths that are drawn to know it."""

GROWTH = ((0.5, 1.1), (0.8, 1.2), (0.85, 1.27), (0.87, 1.47), (0.9, 3.96), (0.92, 14.7))
"""By share of saturation, the factor on p95 TTFT of an open loop if every step takes longer by the
held-out error of step times or requests/s: simulated for deployments with held-out rows
(``./benchmark utilisation``, 2026-11-23, the median)."""

STEADY = 0.85
"""The share of saturation up to which that factor is small; beyond it the plan says so."""

CLOSED_FROM, CLOSED_BELOW, CLOSED_TIMES = 0.95, 0.8, 1.6
"""The share from which held-out errors of p95 TTFT in closed loops are larger than below the second
share, and by which factor (the same benchmark; rows of NIM, the only ones that state a p95)."""


def beyond(best: Sized, chosen: Candidate) -> tuple[Beyond, ...]:
    """Every item, of hardware and software first; empty where the question is inside what was
    measured.
    """
    question, deployment = best.contender.question, best.ready.trial.deployment
    regime = best.contender.errors["requests_s"].regime
    cached = question.sharing is not None and best.contender.instance.knobs.prefix_caching
    return (
        *unmeasured(deployment, regime),
        *((Unmeasured(code="prefix-caching", name=deployment.engine),) if cached else ()),
        *_out_of_range(question, deployment, regime, chosen),
        *_near_saturation(question, chosen),
    )


def unmeasured(deployment: Deployment, regime: Regime) -> Iterator[Unmeasured]:
    """The parts of a deployment that no row covers; none where its owner has measured it
    (``calibrated``, ``own_terms``).
    """
    if not regime.known_layout:
        yield Unmeasured(
            code="architecture", name=deployment.model.architecture, nearest=deployment.model.layout
        )
    if regime.calibrated or regime.own_terms:
        return
    if deployment.step_source is not None:
        yield Unmeasured(code="step-times", name=deployment.step_source.name)
        return
    if not regime.known_model:
        yield Unmeasured(
            code="model", name=deployment.model.name, nearest=nearest_model(deployment.model)
        )
    yield from _hardware(deployment, regime)
    if not regime.known_family:
        yield _layers(deployment)
    elif deployment.parallelism.further and find_engine(
        deployment.engine
    ).coefficients not in shipped()["origins"].get("experts", {}):
        yield Unmeasured(code="ranks", name=deployment.parallelism.label, on=deployment.engine)
    if not regime.known_format:
        name = deployment.precision.weight_format + ("+2:4" if deployment.precision.sparse else "")
        yield Unmeasured(code="format", name=name, nearest=nearest_format(deployment.precision))
    if deployment.parallelism.pp > 1:
        yield Unmeasured(code="pipeline", name=f"PP {deployment.parallelism.pp}")
    if deployment.speculation is not None:
        yield Unmeasured(code="speculation", name=str(deployment.speculation))
    if deployment.adapters is not None:
        yield Unmeasured(code="adapters", name=str(deployment.adapters))
    if deployment.images is not None:
        yield Unmeasured(code="images", name=str(deployment.images))


def _hardware(deployment: Deployment, regime: Regime) -> Iterator[Unmeasured]:
    """The GPU where it has too few rows, or too few in as many bits, or else the engine on it.

    Versions of one generation are near each other: rows of one of them on this GPU are enough,
    unless the version's own terms have no row.
    """
    gpu, rows = deployment.gpu, shipped_ranges()
    bits = fitted_bits(gpu.executes(deployment.precision))
    gpu_rows = rows.gpus.get(gpu.name, {})
    if not regime.known_gpu and gpu_rows.get(bits, 0) < FEWEST:
        near = nearest_gpu(
            gpu, (name for name, counts in rows.gpus.items() if counts.get(bits, 0) >= FEWEST)
        )
        width = int(bits) if max(gpu_rows.values(), default=0) >= FEWEST else None
        yield Unmeasured(
            code="gpu", name=gpu.name, bits=width, rows=gpu_rows.get(bits, 0), nearest=near
        )
        return
    generation = rows.generation(deployment)
    of_engine = rows.by_gpu(generation)
    engine = find_engine(deployment.engine)
    if regime.before_rows or engine.coefficients in shipped()["origins"]["engines"]:
        yield Unmeasured(code="engine", name=deployment.engine, nearest=generation)
    elif not regime.known_engine and of_engine[gpu.name] < FEWEST:
        near = nearest_gpu(gpu, (name for name, count in of_engine.items() if count >= FEWEST))
        yield Unmeasured(
            code="engine",
            name=deployment.engine,
            on=gpu.name,
            rows=of_engine[gpu.name],
            nearest=near,
        )


def _layers(deployment: Deployment) -> Unmeasured:
    """Experts or latent attention in an engine without rows of them; nearest is the engine with the
    most, of the same family first.
    """
    kind, family = kind_of(deployment.model), find_engine(deployment.engine).family
    have = {
        name: sum(parts[kind].rows.values())
        for name, parts in shipped_ranges().loads.items()
        if kind in parts
    }
    near = max(have, key=lambda name: (find_engine(name).family == family, have[name]), default="")
    return Unmeasured(code="layers", name=kind, on=deployment.engine, nearest=near)


def _out_of_range(
    question: Question, deployment: Deployment, regime: Regime, chosen: Candidate
) -> Iterator[OutOfRange]:
    """Lengths, requests in flight and GPUs of an instance beyond the rows of the engine and kind of
    model, where there are any.
    """
    rows = shipped_ranges().of(deployment)
    if rows is None or regime.calibrated or regime.own_terms or deployment.step_source is not None:
        return
    lengths = [*_length("isl", question.isl, rows.isl), *_length("osl", question.osl, rows.osl)]
    yield from lengths
    whole = question.isl.mean + question.osl.mean
    if not lengths and whole > LONGER * rows.context:
        yield OutOfRange(code="context", value=whole, most=rows.context)
    in_flight = _in_flight(chosen) / deployment.parallelism.dp
    if in_flight > LONGER * rows.in_flight:
        yield OutOfRange(code="in-flight", value=in_flight, most=rows.in_flight)
    if deployment.parallelism.gpus > LONGER * rows.gpus:
        yield OutOfRange(code="gpus", value=deployment.parallelism.gpus, most=rows.gpus)


def _length(
    code: Literal["isl", "osl"], lengths: Lengths, measured: tuple[int, int]
) -> Iterator[OutOfRange]:
    """The mean where it is beyond, or else the longest of twenty where they are."""
    import numpy as np

    least, greatest = measured
    if not SHORTER * least <= lengths.mean <= LONGER * greatest:
        yield OutOfRange(code=code, value=lengths.mean, least=least, most=greatest)
    elif lengths.kind != "fixed":
        longest = float(np.percentile(lengths.draw(DRAWN, np.random.default_rng(0)), TAIL))
        if longest > LONGER * greatest:
            yield OutOfRange(code=code, value=longest, least=least, most=greatest, tail=True)


def _in_flight(chosen: Candidate) -> float:
    """Requests that an instance holds at the peak, by Little's law, or at its highest load where no
    peak is known.
    """
    peak = chosen.at_peak
    if peak is None or peak.e2e_ms.mean is None:
        return chosen.concurrency_per_instance or 0.0
    return peak.requests_per_second_per_instance * peak.e2e_ms.mean / 1e3


def _near_saturation(question: Question, chosen: Candidate) -> Iterator[Beyond]:
    """How near the peak, or the clients of a closed loop, come to what the instances complete when
    always busy; nothing of a job.
    """
    saturation, peak = chosen.saturation_requests_per_second_per_instance, chosen.at_peak
    if question.offline or saturation <= 0:
        return
    if peak is None:
        share = chosen.requests_per_second_per_instance / saturation
        if share > CLOSED_FROM:
            yield ClosedLoopNearSaturation(share=share, times=CLOSED_TIMES, below=CLOSED_BELOW)
        return
    share = peak.requests_per_second_per_instance / saturation
    if share > STEADY:
        yield OpenLoopNearSaturation(
            share=share, times=_growth(share), below=STEADY, times_below=_growth(STEADY)
        )


def _growth(share: float) -> float:
    """``GROWTH`` at a share, linear between its points; beyond the last one that of the last."""
    for (low, before), (high, after) in pairwise(GROWTH):
        if share <= high:
            return before + (after - before) * max(share - low, 0.0) / (high - low)
    return GROWTH[-1][1]
