"""Fits the watts of GPUs (``perf.power``) to measured serving, with every model left out once.

The rows of ``ml_energy.csv`` are steady states of a closed batch limit: the mean batch and the
measured output tokens per second give the seconds of a step, and the watts of the deployment over
its GPUs are what the terms have to say. Rows of one model are left out together, of both GPUs at
once, so that the errors are those of a model that nobody measured.
"""

from __future__ import annotations

import csv
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.errors import InputError
from tonnage.perf.power import TERMS, StepLoad, idle_watts, shares
from tonnage.perf.step import step_seconds
from tonnage.perf.terms import step_model
from tonnage.spec.catalog import find_engine, find_gpu, find_model
from tonnage.spec.deployment import Deployment, Parallelism
from tonnage.spec.engine import default_knobs
from tonnage.spec.precision import find_precision

if TYPE_CHECKING:
    from numpy.typing import NDArray

POWER = Path(__file__).parents[2] / "src" / "tonnage" / "perf" / "coefficients" / "power.json"
FORMATS = {"bfloat16": "bf16", "fp8": "fp8", "mxfp4": "mxfp4"}
GPUS = {"H100": "h100-sxm-80gb", "B200": "b200"}
PROMPTS = {"lm-arena-chat": 200, "gpqa": 300, "sourcegraph-fim": 1200}
"""Mean prompt tokens by task, which the file does not state: its README says 100 to 300 for chat.
That of code completion was chosen as the length with the least error on models left out; the time
by which its steps are longer than in chat suggests about 1,000."""

RENAMED = {
    "Qwen3-Coder-30B-A3B-Instruct": "qwen3-30b-a3b",
    "Llama-4-Maverick-17B-128E-Instruct-FP8": "llama-4-maverick",
}
"""Checkpoints that are no entry of the catalog, by the entry of the same shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPower:
    """One row.

    Attributes:
        deployment, coefficients: what ran.
        load: its mean step, as long as it was measured.
        predicted: the mean step of the same load by closed form: as long as the step model says.
        tokens_per_second: of the deployment.
        watts: of one GPU.
    """

    deployment: Deployment
    coefficients: NDArray[np.float64]
    load: StepLoad
    predicted: StepLoad
    tokens_per_second: float
    watts: float

    @property
    def gpu(self) -> str:
        """Its kind."""
        return self.deployment.gpu.name

    @property
    def model(self) -> str:
        """The model that is left out with it."""
        return self.deployment.model.name


def model_of(name: str) -> str:
    """The catalog's entry for a checkpoint."""
    short = name.partition("/")[2] or name
    if short in RENAMED:
        return RENAMED[short]
    for end in ("-FP8", "-Instruct-2507", "-Thinking-2507", "-Instruct"):
        try:
            return find_model(name).name
        except InputError:
            name = name.removesuffix(end)
    return find_model(name).name


def read(file: Path) -> tuple[list[MeasuredPower], dict[str, int]]:
    """The rows that can be predicted, and how many of each other model cannot."""
    found, left_out = list[MeasuredPower](), dict[str, int]()
    engine = find_engine("vllm")
    with file.open(newline="", encoding="utf-8") as text:
        for row in csv.DictReader(text):
            try:
                model = find_model(model_of(row["model_id"]))
            except InputError:
                left_out[row["model_id"]] = left_out.get(row["model_id"], 0) + 1
                continue
            found.append(_measured(row, model.name, engine.name))
    return found, left_out


def _measured(row: dict[str, str], model: str, engine_name: str) -> MeasuredPower:
    gpu, engine = find_gpu(GPUS[row["gpu_model"]]), find_engine(engine_name)
    gpus, dp = int(row["num_gpus"]), int(row["data_parallel"])
    parallelism = Parallelism(tp=gpus // dp, dp=dp, ep=int(row["expert_parallel"]))
    deployment = Deployment(
        model=find_model(model),
        gpu=gpu,
        precision=find_precision(FORMATS[row["weight_precision"]]),
        parallelism=parallelism,
        engine=engine.name,
        knobs=default_knobs(engine, gpu, dp),
    )
    c = step_model(deployment).coefficients
    batch, rate = float(row["avg_batch_size"]), float(row["output_throughput_tokens_per_sec"])
    isl, osl = PROMPTS[row["task"]], float(row["avg_output_len"])
    sequences = max(1.0, batch / dp)
    load = StepLoad(
        sequences=sequences,
        prompt_tokens=sequences * isl / osl,
        isl=isl,
        context=isl + osl / 2,
        seconds=batch / rate,
    )
    predicted = _alike(deployment, c, load, osl)
    return MeasuredPower(
        deployment=deployment,
        coefficients=c,
        load=load,
        predicted=predicted,
        tokens_per_second=rate,
        watts=float(row["avg_power_watts"]) / gpus,
    )


def _alike(deployment: Deployment, c: NDArray[np.float64], load: StepLoad, osl: float) -> StepLoad:
    """The same batch with the seconds of the step model."""
    n, prompts = load.sequences, load.prompt_tokens
    seconds = step_seconds(c, prompts, n / osl, n, prompts * load.isl, n * load.context)  # type: ignore[arg-type]
    return replace(load, seconds=float(seconds))


def fitted(rows: Sequence[MeasuredPower]) -> NDArray[np.float64]:
    """The terms that repeat the watts of the rows best, in relative errors; none is negative."""
    from scipy.optimize import nnls

    left, right = [], []
    for row in rows:
        tdp, idle = row.deployment.gpu.tdp_w or math.nan, idle_watts(row.deployment.gpu) or math.nan
        weight = tdp / row.watts
        left.append(
            [weight * share for share in shares(row.deployment, row.coefficients, row.load)]
        )
        right.append((row.watts - idle) / row.watts)
    found: NDArray[np.float64] = nnls(np.array(left), np.array(right))[0]
    return found


def watts_by(terms: NDArray[np.float64], row: MeasuredPower, load: StepLoad) -> float:
    """Watts of one GPU by some terms."""
    tdp, idle = row.deployment.gpu.tdp_w or math.nan, idle_watts(row.deployment.gpu) or math.nan
    return float(
        min(tdp, idle + tdp * float(np.dot(terms, shares(row.deployment, row.coefficients, load))))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """One row as predicted without its model.

    Attributes:
        row: what was measured.
        joules: predicted over measured joules per output token, at the measured speed.
        chain: the same where the speed is predicted too.
    """

    row: MeasuredPower
    joules: float
    chain: float


def held_out(rows: Sequence[MeasuredPower]) -> Iterator[HeldOut]:
    """Every row, predicted by a fit without its model."""
    for model in sorted({row.model for row in rows}):
        terms = fitted([row for row in rows if row.model != model])
        for row in rows:
            if row.model == model:
                slower = row.predicted.seconds / row.load.seconds
                yield HeldOut(
                    row=row,
                    joules=watts_by(terms, row, row.load) / row.watts,
                    chain=watts_by(terms, row, row.predicted) / row.watts * slower,
                )


def _mape(values: Sequence[float]) -> float:
    return 100 * statistics.fmean(abs(value - 1) for value in values)


def fit(file: Path, output: Path | None = None) -> str:
    """Fit, write ``power.json``, and say how far models that were left out are off."""
    rows, left_out = read(file)
    if not rows:
        raise InputError(f"{file}: holds no row of a model in the catalog")
    found = list(held_out(rows))
    errors = _quantiles(found) | {
        gpu: _quantiles([one for one in found if one.row.gpu == gpu])
        for gpu in sorted({r.gpu for r in rows})
    }
    terms = dict(zip(TERMS, map(float, fitted(rows).round(4)), strict=True))
    target = POWER if output is None else output
    document: dict[str, Any] = json.loads(POWER.read_text(encoding="utf-8"))
    document |= {"terms": terms, "errors": errors}
    target.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    lines = [f"{len(rows)} rows of {len({row.model for row in rows})} models; written: {target}"]
    lines += [
        f"left out, not in the catalog: {name} ({count} rows)" for name, count in left_out.items()
    ]
    lines += [
        "terms, as shares of the TDP: "
        + ", ".join(f"{name} {value:g}" for name, value in terms.items())
    ]
    lines += list(_errors(found))
    return "\n".join(lines)


def _quantiles(found: Sequence[HeldOut]) -> dict[str, Any]:
    """The 80 % interval of measured over predicted watts, as logarithms."""
    q10, q90 = np.quantile(np.log([1 / one.joules for one in found]), [0.1, 0.9])
    return {"q10": round(float(q10), 4), "q90": round(float(q90), 4), "rows": len(found)}


def _errors(found: Sequence[HeldOut]) -> Iterator[str]:
    """Mean errors and coverage of the 80 % interval by GPU; that of a model is made of the errors
    of the others on its GPU.
    """
    for gpu in sorted({one.row.gpu for one in found}):
        mine = [one for one in found if one.row.gpu == gpu]
        inside = sum(_inside(one, found) for one in mine) / len(mine)
        fixed, chain = _mape([one.joules for one in mine]), _mape([one.chain for one in mine])
        yield (
            f"{gpu}: joules per token of models left out {fixed:.1f} % off in the mean at the"
            f" measured speed, {chain:.1f} % at the predicted speed; {100 * inside:.0f} % inside"
            f" the 80 % interval ({len(mine)} rows)"
        )


def _inside(one: HeldOut, found: Sequence[HeldOut]) -> bool:
    others = np.log(
        [
            1 / each.joules
            for each in found
            if each.row.model != one.row.model and each.row.gpu == one.row.gpu
        ]
    )
    low, high = np.quantile(others, [0.1, 0.9])
    return bool(low <= math.log(1 / one.joules) <= high)
