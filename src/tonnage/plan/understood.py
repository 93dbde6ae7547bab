"""The question as it was understood: names resolved, defaults filled in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tonnage.plan.limit import Limit
from tonnage.spec.scenario import Mode
from tonnage.spec.typed_values import FORBID
from tonnage.spec.workload import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Understood:
    """What the plan answers.

    Attributes:
        model: catalog id.
        gpus, precisions, tps, pps, dps, eps, engines: what might be combined; an empty list of degrees left them to the search.
        isl, osl: prompt and output lengths, in the form in which they are written; ``mean_isl`` and ``mean_osl`` in tokens.
        limits: latency limits as asked; ``limits_that_count`` are those that count in this mode.
        mode: who waits for what; None for a plan from measured points.
        step_factor: on the time of every step; 1 for the model as it is.
        step_model: whose step times: "fitted" or a name; "" for measured points.
        load: "open", "closed", or "measured" where a benchmark decides.
        arrivals, cv: process of the open loop, "trace" for a recording, and its coefficient of variation; None for measured points.
        spare_systems: added to what the load needs.
        confidence: with which the number of systems is to meet the limits, as a share; None for measured points.
        seed: of every random draw; None for measured points.
        speculation: speculative decoding that was tried beside none; "" for none.
        router: what gives requests to the instances; "" for measured points.
        shares: what prompts share; "" for nothing. ``mean_isl`` is then that of whole prompts, and ``isl`` what was asked for.
        benchmarks: the file of measured points; "" where the plan was simulated.
    """

    __pydantic_config__ = FORBID

    model: str
    gpus: tuple[str, ...]
    precisions: tuple[str, ...]
    tps: tuple[int, ...]
    pps: tuple[int, ...] = ()
    dps: tuple[int, ...] = ()
    eps: tuple[int, ...] = ()
    engines: tuple[str, ...]
    isl: str
    osl: str
    mean_isl: float
    mean_osl: float
    limits: tuple[Limit, ...]
    limits_that_count: tuple[Limit, ...]
    mode: Mode | None = None
    step_factor: float = 1.0
    step_model: str = ""
    load: Literal["open", "closed", "measured"]
    arrivals: Process | Literal["trace"] | None = None
    cv: float | None = None
    spare_systems: int = 0
    confidence: float | None = None
    seed: int | None = None
    speculation: str = ""
    router: str = ""
    shares: str = ""
    benchmarks: str = ""
