"""Why no number of the chosen systems is surer than it is, and what would be."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.plan.identity import Identity
from tonnage.plan.limit import Breach, Limit
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSystems:
    """Another deployment that reaches the confidence; ``systems`` and ``gpus`` of whole systems, spare ones included."""

    __pydantic_config__ = FORBID

    deployment: Identity
    systems: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaxedLimit:
    """One limit, relaxed to ``to_ms`` milliseconds, and what then reaches the confidence; systems and GPUs as of ``OtherSystems``."""

    __pydantic_config__ = FORBID

    limit: Limit
    to_ms: float
    systems: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreached:
    """A confidence that no number of the chosen systems reaches, or only one that nobody would buy.

    Attributes:
        confidence: as a share.
        step_factor: how many times as long as predicted steps may take for it.
        alone: the limit that a single client then comes nearest to, and the value there: above the limit it breaks at any load. None
            without limits.
        other: what reaches it instead; None where nothing that was asked for does.
        relaxed: the limit that would have to be looser for it; None where that does not help.
    """

    __pydantic_config__ = FORBID

    confidence: float
    step_factor: float
    alone: Breach | None
    other: OtherSystems | None
    relaxed: RelaxedLimit | None
