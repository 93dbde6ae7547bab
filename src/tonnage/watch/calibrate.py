"""What to do where the steps of a running engine take another time than the plan expects."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST = 1.5
"""Steps that take longer than so many times the prediction, or shorter than its inverse, are taken for a fault before they are taken for
an error of the step model. This is a judgement: calibrated factors stay far below it (docs/calibrate.md)."""

LOADS = "--concurrency 1,2,4,8,16,24,32,48 --benchmark-duration 20s"
"""The benchmark that a calibration rests on: eight loads (docs/calibrate.md), for two minutes and a half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What was found, and the commands that answer it.

    Attributes:
        metric: "TPOT", or "ITL" where the engine publishes no TPOT.
        ratio: the measured mean over the predicted.
        beyond: by how much the measurement is beyond the nearer bound of the interval, as a share of that bound.
        commands: that measure, calibrate, and watch again; none where a fault is the likelier cause.
    """

    metric: str
    ratio: float
    beyond: float
    commands: tuple[str, ...]

    @property
    def text(self) -> str:
        """The finding in one line."""
        side = "above" if self.ratio > 1 else "below"
        found = f"measured {self.metric} is {self.beyond:.0%} {side} the plan's interval ({self.ratio:.2f} times its prediction)"
        found = found.replace("%", " %")
        if self.commands:
            return f"calibrate: {found}"
        return f"look for a fault: {found}; more than a calibration should take up (throttled GPUs, other work, other settings)"

    def to_json(self) -> dict[str, Any]:
        """By name."""
        return {"text": self.text, "ratio": self.ratio, "beyond": self.beyond, "commands": list(self.commands)}


def advice(
    *,
    measured: float,
    predicted: float,
    interval: tuple[float, float],
    metric: str,
    model: str,
    urls: Sequence[str],
    plan: str,
    lengths: str,
) -> Advice | None:
    """The advice; None where the measurement is in the interval.

    Args:
        measured, predicted, interval: of the mean time between tokens, in one unit.
        metric: what it is called.
        model: the name that clients use.
        urls: that are watched.
        plan: the file of the plan.
        lengths: of prompts and outputs, as flags of ``tonnage bench``.
    """
    low, high = interval
    if low <= measured <= high:
        return None
    bound = high if measured > high else low
    ratio = measured / predicted
    commands = _commands(model, urls, plan, lengths) if 1 / MOST < ratio < MOST else ()
    return Advice(metric=metric, ratio=ratio, beyond=abs(measured / bound - 1), commands=commands)


def _commands(model: str, urls: Sequence[str], plan: str, lengths: str) -> tuple[str, ...]:
    return (
        f"tonnage bench --url {shlex.quote(urls[0])} --model {shlex.quote(model)} {lengths} {LOADS} --artifact-dir runs",
        f"tonnage calibrate runs --plan {shlex.quote(plan)} --output calibrated.json",
        shlex.join(["tonnage", "watch", *urls, "--plan", plan, "--coefficients", "calibrated.json"]),
    )
