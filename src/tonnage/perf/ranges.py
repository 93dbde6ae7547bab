"""What was measured: ``perf/coefficients/ranges.json``, which ``./fit ranges`` writes from the rows that the fit reads.

By generation of engines and kind of model: how many rows there are of each GPU, and how long, how many at once and on how many GPUs their
requests were. The current versions of an engine are one generation, because their terms are small corrections of one value.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tonnage.perf.coefficient_files import content
from tonnage.spec.catalog import find_engine
from tonnage.spec.typed_values import FORBID, read_as

if TYPE_CHECKING:
    from tonnage.spec.deployment import Deployment
    from tonnage.spec.model import Model

Span = tuple[int, int]
"""The least and the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLoads:
    """What the rows of one generation of engines and one kind of model are of.

    Attributes:
        rows: how many, by GPU.
        isl, osl: the shortest and the longest prompts and outputs, in tokens.
        context: the longest prompt with its output, in tokens.
        in_flight: the most requests that an attention rank held at once.
        gpus: of the largest instance.
    """

    __pydantic_config__ = FORBID

    rows: dict[str, int]
    isl: Span
    osl: Span
    context: int
    in_flight: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """``ranges.json`` as it is written.

    Attributes:
        date: of the fit that read the rows.
        rows: how many, by file.
        gpus: the rows of each GPU, of any engine, by the bits of the arithmetic ("8" or "16") in which it was measured.
        engines: the generation of each engine preset.
        loads: by generation and kind of model (``kind_of``).
    """

    __pydantic_config__ = FORBID

    date: str
    rows: dict[str, int]
    gpus: dict[str, dict[str, int]]
    engines: dict[str, str]
    loads: dict[str, dict[str, MeasuredLoads]]

    def generation(self, deployment: Deployment) -> str:
        """The generation of a deployment's engine."""
        return self.engines[find_engine(deployment.engine).coefficients]

    def of(self, deployment: Deployment) -> MeasuredLoads | None:
        """The rows of a deployment's engine and kind of model; None where there are none."""
        return self.loads[self.generation(deployment)].get(kind_of(deployment.model))

    def by_gpu(self, generation: str) -> Counter[str]:
        """The rows of a generation of engines on each GPU."""
        return sum((Counter(part.rows) for part in self.loads[generation].values()), Counter())


def kind_of(model: Model) -> str:
    """The kind of model that a row is of: "dense", "experts" or "latent attention"."""
    return "latent attention" if model.has_latent_cache else "experts" if model.is_moe else "dense"


@cache
def shipped_ranges() -> Ranges:
    """The ranges that the package ships.

    Raises:
        DataError: the file is missing, is no JSON, or holds what it may not; one line for each fault.
    """
    return read_as(Ranges, content("ranges.json", "reinstall, or write it again with ./fit ranges"), "perf/coefficients/ranges.json")
