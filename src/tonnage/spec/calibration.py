"""A calibration is a set of factors on the step model's terms, or of terms in their place, fitted
to someone's own measurements.

The file that ``tonnage calibrate`` writes and ``coefficients`` names. It holds what was fitted
(``preset``, ``gpu``, and ``multipliers`` or ``terms``) and, for people, what it was fitted on and
how well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tonnage.csv_file import read_text
from tonnage.errors import InputError, InputErrors, option
from tonnage.spec.typed_values import parse_json, read_as, strict

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
"""Terms that a benchmark of one deployment can tell: ``perf.terms_file`` says what each factor acts
on."""

OWN_TERMS = ("compute", "memory", "attention", *MULTIPLIERS[2:])
"""Terms that the user's loads determine without any shipped term: ``perf.terms_file`` says what
each of them is."""

# A term outside these is no calibration but a mistake in the file
SMALLEST_TERM, LARGEST_TERM = 1e-12, 1e6

# Columns whose left-out errors a file may hold
OWN_METRICS = ("ttft_ms", "ttft_p95_ms", "itl_ms", "e2e_ms", "requests_s", "output_tok_s")

# A factor above this, or below its inverse, is no calibration but a mistake in the file
LARGEST = 20.0

# The same of ``frontend_s``: a millisecond may be a second behind a slow API server
LARGEST_FRONT_END = 1_000.0

MOST_POINTS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Factors on the terms of one engine preset, or terms in their place, measured on one GPU."""

    preset: str  # the fitted preset that they multiply (``EnginePreset.coefficients``)
    gpu: str  # catalog id of the measured GPU; factors on its efficiencies hold for it alone
    # pairs of a term of ``MULTIPLIERS`` and its factor; terms that are absent stay as shipped
    multipliers: tuple[tuple[str, float], ...]
    data: str  # what was measured, in words, with its date
    # what of it was measured, as ``deployment_key`` names it; its error bars hold for these alone
    deployments: tuple[str, ...] = ()
    # by metric, root of the mean square of log(predicted / measured) over points that the factors
    # had not seen, and how many points these are
    left_out: tuple[tuple[str, float, int], ...] = ()
    # whether whole curves were left out for that, or single points, which tell less
    by_curve: bool = False
    # pairs of a term of ``OWN_TERMS`` and its value, which are in place of the shipped ones on the
    # measured GPU; empty where factors were fitted
    terms: tuple[tuple[str, float], ...] = ()

    @property
    def changes(self) -> bool:
        """Whether it holds anything that predicts better than the shipped terms."""
        return bool(self.multipliers or self.terms)


def deployment_key(model: str, precision: str, tp: int) -> str:
    """The name by which a calibration knows a deployment, such as "llama-3-8b fp8 tp1"; the KV
    cache is in no name.
    """
    return f"{model} {precision.partition('+kv-')[0]} tp{tp}"


@strict
class LeftOutError:
    """The root of the mean square of log(predicted / measured) over ``points`` points that the
    factors had not seen.
    """

    rms: float
    points: int


@strict
class CalibrationFile:
    """The file as it was written; the fields after ``date`` are for people and are not used
    again.
    """

    schema: str
    preset: str
    gpu: str
    multipliers: dict[str, float]
    data: str
    terms: dict[str, float] = field(default_factory=dict)
    deployments: tuple[str, ...] = ()
    left_out_by: str = ""
    left_out_errors: dict[str, LeftOutError] = field(default_factory=dict)
    date: str | None = None
    points: int = 0
    not_steady: int = 0
    verdict: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    fitted: dict[str, Any] = field(default_factory=dict)
    ttft: dict[str, Any] = field(default_factory=dict)
    residuals: dict[str, Any] = field(default_factory=dict)
    loo: dict[str, Any] = field(default_factory=dict)

    def faults(self) -> list[str]:
        """The faults of the values, each with its key."""
        faults = [
            f"{name}: is empty" for name in ("preset", "gpu", "data") if not getattr(self, name)
        ]
        for name, factor in self.multipliers.items():
            if name not in MULTIPLIERS:
                faults.append(
                    f"multipliers.{name}: is no term that is calibrated; one of"
                    f" {', '.join(MULTIPLIERS)}"
                )
            elif (
                not 1 / (largest := LARGEST_FRONT_END if name == "frontend_s" else LARGEST)
                <= factor
                <= largest
            ):
                faults.append(
                    f"multipliers.{name}: must be a factor from {1 / largest:g} to {largest:g}"
                )
        for name, value in self.terms.items():
            if name not in OWN_TERMS:
                faults.append(
                    f"terms.{name}: is no term that is fitted by itself; one of"
                    f" {', '.join(OWN_TERMS)}"
                )
            elif not SMALLEST_TERM <= value <= LARGEST_TERM:
                faults.append(
                    f"terms.{name}: must be a number from {SMALLEST_TERM:g} to {LARGEST_TERM:g}"
                )
        if self.terms and self.multipliers:
            faults.append("terms: stand beside multipliers; a calibration has either")
        if self.terms and (
            missing := [
                name for name in OWN_TERMS if name not in self.terms and name != "allreduce_s"
            ]
        ):
            faults.append(f"terms: without {', '.join(missing)}")
        for name, error in self.left_out_errors.items():
            if not 0 <= error.rms < math.log(LARGEST) or not 1 <= error.points <= MOST_POINTS:
                faults.append(
                    f'left_out_errors.{name}: must be {{"rms": from 0, "points": from 1}}'
                )
        return faults

    def value(self) -> Calibration:
        """The part of the file that predictions use."""
        data = f"{self.data}, {self.date}" if self.date else self.data
        errors = self.left_out_errors
        return Calibration(
            preset=self.preset,
            gpu=self.gpu,
            multipliers=tuple(
                (name, self.multipliers[name]) for name in MULTIPLIERS if name in self.multipliers
            ),
            data=" ".join(data.split()),
            deployments=self.deployments,
            left_out=tuple(
                (name, errors[name].rms, errors[name].points)
                for name in OWN_METRICS
                if name in errors
            ),
            by_curve=self.left_out_by == "curve",
            terms=tuple((name, self.terms[name]) for name in OWN_TERMS if name in self.terms),
        )


def read_calibration(path: Path | str) -> Calibration:
    """Read the file that ``tonnage calibrate`` wrote.

    Raises InputError: it is no such file; the message names the file and what would be right;
    InputErrors: unknown keys and values that cannot be, each with its key.
    """
    where, again = f"{option('coefficients')}: {path}", "write it with `tonnage calibrate`"
    document = parse_json(
        read_text(path, option("coefficients"), give="the file that `tonnage calibrate` wrote"),
        where,
        again,
    )
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f"{where} is no calibration (its schema is not '{SCHEMA}'); {again}")
    calibration_file = read_as(CalibrationFile, document, where, InputErrors)
    InputErrors.raise_if([f"{where}: {fault}" for fault in calibration_file.faults()])
    return calibration_file.value()
