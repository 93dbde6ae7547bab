"""A way to run a model on a machine: engine, number format, degree, and what it is made for; and whether the machine can."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["runnable", "low memory", "incompatible"]
Aim = Literal["throughput", "latency"]

KINDS: tuple[Kind, ...] = ("runnable", "low memory", "incompatible")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One way.

    Attributes:
        family: of the engine, such as "vllm".
        preset: of the engine.
        precision: number format.
        tp: GPUs of an instance.
        aim: "throughput" for the fewest GPUs that hold the model, "latency" for more.
        kind: whether it runs here.
        context: tokens of a request that fit, at most the model's context; 0 where none do.
        needs_bytes: memory that each GPU must have for the model's whole context; 0 where that is not known.
        why: why it does not run, or runs with a shorter context, as a clause; empty where it runs.
        checkpoint: what it would load; "" where nobody has named one in this format.
        bits: of a weight, by which formats are ordered.
    """

    family: str
    preset: str
    precision: str
    tp: int
    aim: Aim
    kind: Kind
    context: int
    needs_bytes: int
    why: str
    checkpoint: str
    bits: float

    @property
    def name(self) -> str:
        """Such as "vllm-fp8-tp2-pp1-latency", after the pattern of NVIDIA's NIM."""
        return f"{self.family}-{self.precision}-tp{self.tp}-pp1-{self.aim}"

    def to_json(self) -> dict[str, Any]:
        """By name."""
        return {
            "name": self.name,
            "kind": self.kind,
            "engine": self.preset,
            "precision": self.precision,
            "tp": self.tp,
            "aim": self.aim,
            "context": self.context,
            "needs_bytes_per_gpu": self.needs_bytes,
            "why": self.why,
            "checkpoint": self.checkpoint or None,
        }
