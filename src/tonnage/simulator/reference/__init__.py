"""The simulator as a reader reads it: one engine in plain objects, a file per scheduler."""

from tonnage.simulator.reference.engine import Engine
from tonnage.simulator.reference.run import Reference, drafted_tokens, run_ranks, run_reference

__all__ = ["Engine", "Reference", "drafted_tokens", "run_ranks", "run_reference"]
