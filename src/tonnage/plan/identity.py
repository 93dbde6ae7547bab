"""What a deployment is called: the words that tell one from another in a plan."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tonnage.spec.deployment import Parallelism
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A deployment by name.

    Attributes:
        gpu: catalog id.
        precision: number format, such as "fp8".
        tp, pp, dp, ep: tensor-parallel and pipeline-parallel degree, data-parallel attention ranks, expert-parallel degree.
        engine: with its version and its speculative decoding, such as "vllm-0.32 + eagle k=3".
        engine_preset: the range of versions that was simulated, such as "vllm-0.32"; "" where the engine was measured.
    """

    __pydantic_config__ = FORBID

    gpu: str
    precision: str
    tp: int
    pp: int = 1
    dp: int = 1
    ep: int = 1
    engine: str
    engine_preset: str = ""

    @property
    def parallelism(self) -> Parallelism:
        """How an instance is split."""
        return Parallelism(tp=self.tp, pp=self.pp, dp=self.dp, ep=self.ep)

    @property
    def identity(self) -> Identity:
        """These names alone, of a value that holds more."""
        return Identity(**{part.name: getattr(self, part.name) for part in fields(Identity)})
