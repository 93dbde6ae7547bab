"""AISimulate's predictions of closed loops, one JSON object a line; ``rivals.py`` runs it with the
Python of AISimulate's environment.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version
from typing import Any

from aisimulate.config.cli import CorePredictionConfig
from aisimulate.predict import run_prediction
from aisimulate.stack import resolve_runner_factory


def main() -> None:
    """Answer each line; what it refuses gets the last line of its message."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # its libraries print
    factory = resolve_runner_factory("engine")
    print(json.dumps({"version": version("aisimulate")}), file=answers)
    for line in sys.stdin:
        try:
            said = answer(json.loads(line), factory)
        except Exception as error:  # it raises many kinds; each is a refusal that is counted
            said = {
                "refused": (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]
            }
        print(json.dumps(said), file=answers)


def answer(config: dict[str, Any], factory: Any) -> dict[str, float]:
    """The mean TPOT, and the output tokens/s of the instance."""
    found = run_prediction(
        CorePredictionConfig.model_validate(config), stack="engine", runner_factory=factory
    ).summary
    return {"itl_ms": found["mean_tpot_ms"], "output_tok_s": found["output_throughput_tok_s"]}


if __name__ == "__main__":
    main()
