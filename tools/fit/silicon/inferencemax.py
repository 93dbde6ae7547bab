"""What InferenceMAX's scripts set when they measured a row, by the rules of
``inferencemax.yaml``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tonnage.spec.catalog import find_engine, find_gpu
from tools.fit.rules import Rule, read_rules, settings
from tools.fit.silicon.sample import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRules:
    """What the scripts set, as rules over the columns of a row."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    runs: tuple[Rule, ...]


RULES = read_rules(Path(__file__).with_name("inferencemax.yaml"), ScriptRules)


def run_of(row: Row, day: str) -> Row:
    """What the script of a row set, as columns of the row.

    Args:
        row: model, gpu, precision, engine, tp, dp, ep, isl, osl and concurrency.
        day: of the measurement, such as 2026-03-25; empty where it is not known.

    Returns:
        slots, budget (tokens a step; 0 for the engine's own), stream (tokens a message),
        kv_fraction; and, where the script changes them, graphs (tokens of a step with prompts as
        CUDA graphs), precision, tp, dp, ep, receive, rank_wait, wait_steps, wait_ratio and ttft_ms.
    """
    more = {
        "day": day,
        "family": find_engine(row["engine"]).family,
        "blackwell": find_gpu(row["gpu"]).arch.startswith("Blackwell"),
        "lengths": f"{row['isl']}/{row['osl']}",
    }
    return settings(RULES.runs, row | more)
