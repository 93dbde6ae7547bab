"""What measuring the choice would buy: the points to take, the systems before and after, and what that is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tonnage.plan.confidence import percent_key
from tonnage.plan.document import DERIVES, Shown
from tonnage.spec.typed_values import FORBID

SERVER, FOLDER, PLAN, CALIBRATED = "127.0.0.1:8000", "measured", "plan.json", "calibrated.json"
"""What the commands call the server, the folder of the runs, the file of this plan and the file of the calibration."""

LEAST_GAIN = 0.05
"""Systems that have to be saved, on average, for a measurement to gain anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Loads of equal lengths, which one benchmark measures one after another.

    Attributes:
        isl, osl: tokens of each prompt and output.
        concurrency: clients of each closed loop.
        seconds: how long each of them sends.
    """

    __pydantic_config__ = FORBID

    isl: int
    osl: int
    concurrency: tuple[int, ...]
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(Shown):
    """Points of the chosen deployment to measure and calibrate on, and the systems that the load takes afterwards.

    Attributes:
        model: name by which the server knows it.
        confidence: that was asked for, as a share.
        sweeps: the points, one benchmark for each pair of lengths.
        seconds: that they take of one system, the start of an instance included.
        left: share of the variance of the deciding prediction that the points cannot tell, as far as a calibration can tell it at all.
        systems: that do with each confidence now, by percent; spare and standby ones included. None where no number does.
        after: the same after the calibration, where it finds the deployment as predicted.
        expected_systems: mean number after the calibration at the confidence that was asked for, over what it may find; None where no
            number does now.
        usd: what these seconds of a system cost; None without a price.
        saved_usd_per_year: mean saving, less ``usd``; None without a price.
    """

    __pydantic_config__ = DERIVES

    DERIVED: ClassVar[tuple[str, ...]] = ("points", "bench", "calibrate")

    model: str
    confidence: float
    sweeps: tuple[Sweep, ...]
    seconds: float
    left: float
    systems: dict[str, int | None]
    after: dict[str, int | None]
    expected_systems: float | None
    usd: float | None = None
    saved_usd_per_year: float | None = None

    @property
    def points(self) -> int:
        """How many loads are measured."""
        return sum(len(sweep.concurrency) for sweep in self.sweeps)

    @property
    def now(self) -> int | None:
        """Systems at the confidence that was asked for; None where no number reaches it."""
        return self.systems.get(percent_key(self.confidence))

    @property
    def saved_systems(self) -> float:
        """Systems that are saved on average; 0 where that is not known."""
        return 0.0 if self.now is None or self.expected_systems is None else self.now - self.expected_systems

    @property
    def narrows(self) -> bool:
        """Whether it lowers the number of systems at any confidence, or on average."""
        return self.gains or any(self.after.get(level) != count for level, count in self.systems.items())

    @property
    def gains(self) -> bool:
        """Whether the measurement saves more than it costs, on average."""
        return self.saved_systems >= LEAST_GAIN and (self.saved_usd_per_year is None or self.saved_usd_per_year > 0)

    @property
    def bench(self) -> tuple[tuple[str, ...], ...]:
        """The commands that measure the points, as argument lists."""
        return tuple(
            (
                *("tonnage", "bench", "--url", SERVER, "--model", self.model, "--endpoint-type", "completions"),
                *("--isl", str(sweep.isl), "--osl", str(sweep.osl), "--concurrency", ",".join(map(str, sweep.concurrency))),
                *("--benchmark-duration", f"{sweep.seconds}s", "--artifact-dir", f"{FOLDER}/{sweep.isl}-{sweep.osl}"),
            )
            for sweep in self.sweeps
        )

    @property
    def calibrate(self) -> tuple[str, ...]:
        """The command that calibrates on them, as an argument list; sizing takes its file as coefficients."""
        return ("tonnage", "calibrate", FOLDER, "--plan", PLAN, "--output", CALIBRATED)
