"""A calibration: factors on the step model's terms that someone's own measurements asked for.

The file that ``tonnage calibrate`` writes and ``coefficients`` names. It holds what was fitted (``preset``,
``gpu``, ``multipliers``) and, for people, what it was fitted on and how well.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tonnage.errors import InputError, option

SCHEMA = "tonnage.calibration/1"

MULTIPLIERS = (
    "compute",
    "memory",
    "kv_bandwidth",
    "allreduce_s",
    "step_s",
    "sequence_s",
    "prefill_s",
    "frontend_s",
    "turnaround_s",
)
"""Terms that a benchmark of one deployment can tell: ``perf.overlay`` says what each factor acts on."""

OWN_METRICS = ("ttft_ms", "ttft_p95_ms", "itl_ms", "e2e_ms", "requests_s", "output_tok_s")
"""Columns whose left-out errors a file may hold."""

LARGEST = 20.0
"""A factor above this, or below its inverse, is no calibration but a mistake in the file."""

MOST_POINTS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Factors on the terms of one engine preset, measured on one GPU.

    Attributes:
        preset: the fitted preset that they multiply (``EngineSpec.coefficients``).
        gpu: catalog id of the measured GPU; factors on its efficiencies hold for it alone.
        multipliers: pairs of a term of ``MULTIPLIERS`` and its factor; terms that are absent stay as shipped.
        data: what was measured, in words, with its date.
        deployments: what of it was measured, as ``deployment_key`` names it; its error bars hold for these alone.
        left_out: by metric, root of the mean square of log(predicted / measured) over points that the factors had not seen,
            and how many points these are.
        by_curve: whether whole curves were left out for that, or single points, which tell less.
    """

    preset: str
    gpu: str
    multipliers: tuple[tuple[str, float], ...]
    data: str
    deployments: tuple[str, ...] = ()
    left_out: tuple[tuple[str, float, int], ...] = ()
    by_curve: bool = False


def deployment_key(model: str, precision: str, tp: int) -> str:
    """Such as "llama-3-8b fp8 tp1"."""
    return f"{model} {precision} tp{tp}"


def read_calibration(path: Path | str) -> Calibration:
    """Read the file that ``tonnage calibrate`` wrote.

    Raises:
        InputError: it is no such file; the message names the file, the key and what would be right.
    """
    path = Path(path)
    again = "write it with `tonnage calibrate`"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{option('coefficients')}: {path} cannot be read ({error.strerror}); {again}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{option('coefficients')}: {path} is not JSON; {again}") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f"{option('coefficients')}: {path} is no calibration (its schema is not '{SCHEMA}'); {again}")
    texts = {name: document.get(name) for name in ("preset", "gpu", "data")}
    for name, value in texts.items():
        if not isinstance(value, str) or not value:
            raise InputError(f"{option('coefficients')}: {path}, {name}: is not a text; {again}")
    date = document.get("date")
    data = f"{texts['data']}, {date}" if isinstance(date, str) and date else str(texts["data"])
    return Calibration(
        preset=str(texts["preset"]),
        gpu=str(texts["gpu"]),
        multipliers=_multipliers(path, document.get("multipliers")),
        data=" ".join(data.split()),
        deployments=_deployments(path, document.get("deployments", [])),
        left_out=_left_out(path, document.get("left_out_errors", {})),
        by_curve=document.get("left_out_by") == "curve",
    )


def _deployments(path: Path, found: Any) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise InputError(f"{option('coefficients')}: {path}, deployments: is not a list of texts")
    return tuple(found)


def _left_out(path: Path, found: Any) -> tuple[tuple[str, float, int], ...]:
    if not isinstance(found, dict):
        raise InputError(f"{option('coefficients')}: {path}, left_out_errors: is not an object of metric, rms and points")
    errors = []
    for name in OWN_METRICS:
        if name not in found:
            continue
        value = found[name] if isinstance(found[name], dict) else {}
        rms, points = (_number(value.get(key)) for key in ("rms", "points"))
        if not 0 <= rms < math.log(LARGEST) or not 1 <= points <= MOST_POINTS or points != int(points):
            raise InputError(f'{option("coefficients")}: {path}, left_out_errors.{name}: must be {{"rms": from 0, "points": from 1}}')
        errors.append((name, rms, int(points)))
    return tuple(errors)


def _multipliers(path: Path, found: Any) -> tuple[tuple[str, float], ...]:
    if not isinstance(found, dict):
        raise InputError(f"{option('coefficients')}: {path}, multipliers: is not an object of term and factor")
    for name, value in found.items():
        where = f"{option('coefficients')}: {path}, multipliers.{' '.join(str(name).split())[:40]}"
        if name not in MULTIPLIERS:
            raise InputError(f"{where}: is no term that is calibrated; one of {', '.join(MULTIPLIERS)}")
        if not 1 / LARGEST <= _number(value) <= LARGEST:
            raise InputError(f"{where}: must be a factor from {1 / LARGEST:g} to {LARGEST:g}")
    return tuple((name, float(found[name])) for name in MULTIPLIERS if name in found)


def _number(value: Any) -> float:
    """NaN for anything that is no finite number."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if number else math.nan
