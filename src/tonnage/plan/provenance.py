"""Where the numbers of a plan come from."""

from __future__ import annotations

from dataclasses import dataclass, field

from tonnage.spec.calibration import Calibration
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Version, coefficients, data, and the command.

    Attributes:
        tonnage: version.
        coefficients: source of the fitted terms by engine preset; empty where nothing was simulated.
        benchmarks: the file of measured points that the plan rests on; "" where it was simulated.
        sources: what that file says of its points, each once.
        seed: of every random draw; None where nothing was simulated.
        calibration: factors of one's own on the fitted terms; None for the terms as shipped.
        step_model: whose step times were used in place of the fitted terms; "" for the fitted ones.
        command: as it was typed; "" where the plan was not made by the command.
        date: the day on which it was made, as YYYY-MM-DD; "" where it is not known.
    """

    __pydantic_config__ = FORBID

    tonnage: str
    coefficients: dict[str, str] = field(default_factory=dict)
    benchmarks: str = ""
    sources: tuple[str, ...] = ()
    seed: int | None = None
    calibration: Calibration | None = None
    step_model: str = ""
    command: str = ""
    date: str = ""

    @property
    def simulated(self) -> bool:
        """Whether the plan was simulated; otherwise it was read from measured points."""
        return not self.benchmarks
