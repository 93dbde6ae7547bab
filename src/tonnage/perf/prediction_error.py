"""How sure a prediction is: intervals from held-out errors (``residuals``) and from the noise of a
finite run (``run_noise``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tonnage.perf.host import WITH_INDEXER
from tonnage.perf.links import over_pcie
from tonnage.perf.matrices import fitted_bits
from tonnage.perf.ranges import (
    differs,
    first_support,
    fitted_engine,
    measured_model,
    unfitted_formats_of,
)
from tonnage.perf.residuals import Regime, like, shipped_residuals
from tonnage.perf.terms_file import calibrated_for, shipped
from tonnage.results.requests import COMPLETED, Requests
from tonnage.spec.catalog import find_engine
from tonnage.spec.layers import WITH_STATE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.spec.deployment import Deployment
    from tonnage.spec.model import Model


WITH_EXPERTS = ("tensorrt-llm-0.9", "tensorrt-llm-0.15")
"""Presets whose rows of the project's own files hold a mixture of experts."""

MEASURED_VENDOR = "NVIDIA"
"""The vendor that rows of many GPUs are of."""

SMALL_BATCH, FEW_CLIENTS, MANY_CLIENTS = 8, 8, 64
"""Static batches and closed loops up to which a load is small or light, and from which a closed
loop is heavy."""


LIGHT_S = 3e-3
"""Seconds of a small step, by the weights of a token at the datasheet's bandwidth and what an
engine launches for each layer, below which the host decides how long it takes. That tells little
where the model itself was measured with the engine on the GPU."""


def regime_of(
    deployment: Deployment,
    *,
    isl: float,
    osl: float,
    batch: int | None = None,
    clients: float | None = None,
    burst: bool = False,
) -> Regime:
    """The regime of a prediction; an open loop has neither ``batch`` nor ``clients``, and of a
    ``burst`` all requests come at once.
    """
    if batch is not None:
        load = "small batch" if batch <= SMALL_BATCH else "large batch"
    elif clients is not None:
        load = (
            "light" if clients <= FEW_CLIENTS else "heavy" if clients >= MANY_CLIENTS else "middle"
        )
    else:
        load = "open"
    terms, gpu, engine = shipped(), deployment.gpu.name, find_engine(deployment.engine)
    preset = engine.coefficients
    calibration = deployment.calibration if calibrated_for(deployment, preset) else None
    own_terms = calibration is not None and bool(calibration.terms)
    bits = fitted_bits(deployment.gpu.executes(deployment.precision))
    return Regime(
        load=load,
        mix="prompt" if isl >= 2 * osl else "output",
        family="moe" if deployment.model.is_moe else "dense",
        known_gpu=own_terms
        or f"compute_{bits}" in terms["gpus"].get(gpu, {})
        or gpu in terms["origins"].get("gpus", {}),
        few_of_vendor=deployment.gpu.vendor != MEASURED_VENDOR,
        known_generation=own_terms or deployment.gpu.arch in terms["architectures"],
        known_model=own_terms or measured_model(deployment.model),
        newer_kinds=not deployment.model.kinds.isdisjoint((*WITH_STATE, *WITH_INDEXER)),
        known_layout=not deployment.model.architecture,
        known_engine=own_terms or (deployment.step_source is None and fitted_engine(preset, gpu)),
        before_rows=engine.before_rows and calibration is None,
        known_format=deployment.precision.weight_format in shipped_residuals().formats
        and not (deployment.precision.sparse or deployment.precision.kernels),
        known_family=_known_family(deployment.model, preset, terms["origins"]),
        first_support=calibration is None and first_support(deployment),
        differs=differs(deployment) if batch is None else 1.0,
        apart=frozenset()
        if calibration is not None or batch is not None
        else frozenset(_apart(deployment, preset, burst=burst)),
        current=preset in terms["origins"].get("engine_rows", {}),
        calibrated=calibration is not None,
        own_terms=own_terms,
        own=() if calibration is None else calibration.left_out,
        by_curve=calibration is not None and calibration.by_curve,
    )


def _apart(deployment: Deployment, preset: str, *, burst: bool) -> Iterator[str]:
    """The properties in which a deployment under load differs from the measured ones (keys of
    ``perf.residuals.ELSEWHERE``).
    """
    gpu, model, split = deployment.gpu, deployment.model, deployment.parallelism
    current = shipped()["origins"].get("experts", {})
    weights = model.active_parameters * deployment.precision.weight_bytes / split.gpus
    if preset in current:
        yield "host"
    if over_pcie(gpu, split.tp):
        yield "pcie"
    if burst and preset in current:
        yield "burst"
    if preset in current:
        read_s = weights / (gpu.memory_bandwidth_gb_s * 1e9)
        if read_s + model.layers * shipped()["engines"][preset]["layer_s"] < LIGHT_S:
            yield "light weights"
    if deployment.precision.weight_bytes < 1 and (model.is_moe or unfitted_formats_of(deployment)):
        yield "four bits"
    if preset in current and split.dp > 1:
        yield "ranks"


def _known_family(model: Model, preset: str, origins: Mapping[str, Any]) -> bool:
    """Whether rows of an engine have what the model has beyond dense layers; TensorRT-LLM's of 2024
    have Mixtral's experts.
    """
    if model.has_latent_cache:
        return bool(origins.get("latent", {}).get(preset))
    return (
        not model.is_moe or preset in WITH_EXPERTS or origins.get("experts", {}).get(preset, 0) > 0
    )


def intervals_of(
    values: Mapping[str, float], regime: Regime, noise: Mapping[str, float] | None = None
) -> dict[str, tuple[float, float]]:
    """The interval of each predicted value whose errors are known. Rates of an open loop have none,
    for they are what it sends.

    Args:
        values: by column, such as "ttft_ms".
        regime: what they are of.
        noise: standard error of the run's own means, as ``run_noise`` gives it.
    """
    table = shipped_residuals()
    intervals = {}
    for name, value in values.items():
        noise_key = like(name, noise) if noise else None
        is_input = regime.load == "open" and not name.endswith("_ms")
        if table.knows(name) and not is_input and value > 0 and math.isfinite(value):
            intervals[name] = table.interval(
                name, value, regime, noise=noise[noise_key] if noise and noise_key else 0.0
            )
    return intervals


# The noise of a finite run: how far its means and percentiles are from those of an endless one.


BLOCKS = 10
"""Number of parts of a run, in order of arrival, whose scatter tells the noise of the whole."""


def run_noise(requests: Requests) -> dict[str, float]:
    """Standard error of a run's means and rates as a share of them, from ``BLOCKS`` blocks in order
    of arrival.

    Blocks of an open loop hardly depend on each other once each is several latencies long; where
    waves of a closed loop repeat, the error is that of where the run was cut.

    Returns:
        By column: "ttft_ms", "itl_ms", "e2e_ms", "requests_s"; empty where too few requests
            completed.
    """
    import numpy as np

    done, due = requests.status == COMPLETED, requests.due_ns
    count = int(np.count_nonzero(done))
    if count < 4 * BLOCKS:
        return {}
    rows: Any = slice(None)  # a slice copies nothing
    if count < len(requests) or (due[1:] < due[:-1]).any():
        done = np.flatnonzero(done)
        rows = done[np.argsort(due[done], kind="stable")]
    columns = [
        column[rows]
        for column in (due, requests.first_token_ns, requests.last_token_ns, requests.osl)
    ]
    blocks = zip(*(np.array_split(column, BLOCKS) for column in columns), strict=True)
    means = [
        [
            values.mean()
            for values in (first - due, (last - first) / np.maximum(osl - 1, 1), last - due)
        ]
        for due, first, last, osl in blocks
    ]
    block_size, more = divmod(count - 1, BLOCKS)
    # of the gaps between ends, as numpy splits them
    edges = [number * block_size + min(number, more) for number in range(BLOCKS + 1)]
    ends = np.partition(columns[2], edges)[edges]
    ttft, itl, e2e = np.array(means).T
    return {
        "ttft_ms": _standard_error(ttft),
        "itl_ms": _standard_error(itl),
        "e2e_ms": _standard_error(e2e),
        "requests_s": _standard_error(np.diff(ends) / np.diff(edges)),
    }


def _standard_error(of_each: NDArray[np.float64]) -> float:
    whole = float(of_each.mean())
    return float(of_each.std(ddof=1) / math.sqrt(BLOCKS) / whole) if whole > 0 else 0.0
