"""Rules of thumb that an answer runs against, each with the number behind it."""

from __future__ import annotations

from typing import Annotated, Literal

from tonnage.plan.document import Tagged
from tonnage.plan.limit import Limit
from tonnage.spec.typed_values import strict


@strict
class PcieForLargeModel:
    """A large model's GPUs are joined by PCIe: ``value`` is the share of a decode step that all-reduces take."""

    value: float
    model: str
    parameters: int
    gpu: str
    rule: Literal["nvlink"] = "nvlink"


@strict
class WideOverPcie:
    """Tensor parallelism over more GPUs than PCIe is advised for: ``value`` is the share of a decode step that all-reduces take."""

    value: float
    tp: int
    gpu: str
    rule: Literal["tp-over-pcie"] = "tp-over-pcie"


@strict
class LengthToShorten:
    """Shortening prompts, or answers, saves much more than shortening the other: read off the sensitivity of the plan.

    Attributes:
        value: systems that the one saves, over those that the other does, or over 1 % of all where it saves less.
        which: "isl" or "osl".
        change: by which each was shortened, such as −0.2.
        saved, other_saved: systems saved, without rounding.
    """

    value: float
    which: Literal["isl", "osl"]
    change: float
    saved: float
    other_saved: float
    rule: Literal["length-to-shorten"] = "length-to-shorten"


@strict
class LimitHalvesThroughput:
    """Requests/s of an instance without a limit over those with it (``value``)."""

    value: float
    limit: Limit
    requests_per_second: float
    requests_per_second_without: float
    rule: Literal["limit-halves-throughput"] = "limit-halves-throughput"


@strict
class BurstyTrace:
    """Coefficient of variation of a trace's gaps (``value``), with a Poisson peak of its mean next to its busiest second."""

    value: float
    poisson_peak: float
    peak_second: int
    rule: Literal["bursty"] = "bursty"


@strict
class SmallerModel:
    """A model with fewer parameters publishes at least the same score: ``value`` is the ratio of their parameters.

    Attributes:
        model, other: the planned model and the smaller one, with ``parameters`` and ``other_parameters``.
        score, other_score: of the benchmark, asked in the setting that both share.
    """

    value: float
    model: str
    parameters: int
    score: float
    other: str
    other_parameters: int
    other_score: float
    benchmark: str
    setting: str
    rule: Literal["smaller-model"] = "smaller-model"


Warning = Annotated[PcieForLargeModel | WideOverPcie | LengthToShorten | LimitHalvesThroughput | BurstyTrace | SmallerModel, Tagged("rule")]
