"""The fitted terms that speak for one engine on one GPU, out of the groups of ``coefficients/terms.json``.

``shared`` holds for everything, ``architectures`` for a GPU generation, and ``gpus`` are corrections to the generation: a GPU
without measurements has those of the measured one that ``siblings`` names, or none, and so gets its generation's mean. ``links``
holds for NVLink and PCIe, and ``engines`` for one engine generation each: host terms, decode attention, latency of all-reduces.
``formats`` says what a number format reaches of the efficiencies (``perf.formats``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tonnage.errors import DataError

if TYPE_CHECKING:
    from tonnage.spec.hardware import Gpu

Group = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TermGroups:
    """The groups of one engine on one GPU.

    Attributes:
        gpu: what they are for.
        shared: terms that hold for everything.
        generation: those of the GPU's generation, over those of an unmeasured one.
        own: corrections of the GPU, or of the measured GPU that it is most like, to its generation.
        engine: those of the engine preset.
        links: those of each kind of link.
        formats: those of each number format.
    """

    gpu: Gpu
    shared: Group
    generation: Group
    own: Group
    engine: Group
    links: dict[str, Group]
    formats: dict[str, Group]

    @property
    def kernels(self) -> str:
        """The generation in the names of engine terms: Blackwell Ultra runs the kernels of Blackwell."""
        return self.gpu.arch.split()[0].lower()


def groups_of(terms: dict[str, Any], gpu: Gpu, preset: str) -> TermGroups:
    """The groups that speak for an engine preset on a GPU.

    Raises:
        DataError: there are no terms of that preset.
    """
    own: Group = terms["gpus"].get(gpu.name) or terms["gpus"].get(terms["siblings"].get(gpu.name), {})
    return TermGroups(
        gpu=gpu,
        shared=terms["shared"],
        generation={**terms["architectures"]["*"], **terms["architectures"].get(gpu.arch, {})},
        own=own,
        engine=engine_terms(terms, preset),
        links=terms["links"],
        formats=terms["formats"],
    )


def engine_terms(terms: dict[str, Any], preset: str) -> Group:
    """The terms of an engine preset.

    Raises:
        DataError: there are none.
    """
    try:
        engine: Group = terms["engines"][preset]
    except KeyError:
        raise DataError(f"perf/coefficients/terms.json: no terms of the engine preset '{preset}'") from None
    return engine
