"""An instance whose times are round numbers, so that closed forms can be worked by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tonnage.perf.step_terms import ATTENTION, EAGER, HOST_PREFILL
from tonnage.sizing.loads import instance as instances
from tonnage.sizing.loads import trial, two_pools
from tonnage.sizing.loads.instance import Instance
from tonnage.spec.lengths import Lengths

if TYPE_CHECKING:
    import pytest


class Small(Instance):
    """Two attention ranks of four requests each; 50 of the 100 tokens of a prompt are computed, and
    10 are answered. A token of a step takes 1 ms, a sequence 10 ms, a token of context of each
    sequence 1 µs, and a pair of tokens in a prompt's attention 1 µs.
    """

    def __init__(self, **changed: Any) -> None:
        """Take attributes in place of these."""
        step = SimpleNamespace(
            coefficients={ATTENTION: 1e-6, HOST_PREFILL: 0.002, EAGER: 0.001},
            drafting=None,
            tokens_per_step=1.0,
            seconds=lambda new, prefills, decodes, pairs, context: (
                new / 1e3 + prefills / 1e2 + decodes / 50 + (pairs + context) / 1e6
            ),
            entering_s=lambda tokens: tokens / 1e4,
        )
        parts = {
            "deployment": SimpleNamespace(parallelism=SimpleNamespace(dp=2)),
            "traffic": traffic(),
            "spec": SimpleNamespace(step=step),
            "knobs": SimpleNamespace(
                max_num_tokens=64, scheduler="vllm", prefix_caching=True, max_batch_size=4
            ),
            "computed": 50,
            "batch": 4,
            "in_flight": 8,
            "alone_e2e_s": 0.5,
            "shared": None,
        }
        self.__dict__.update(parts | changed)


def traffic(**changed: Any) -> Any:
    """Poisson arrivals of prompts that share nothing."""
    parts = {
        "isl": Lengths(mean=100),
        "osl": Lengths(mean=10),
        "pairs": None,
        "sharing": None,
        "load": "open",
        "process": "poisson",
        "cv": 1.0,
        "seed": 0,
        "router": "least-outstanding",
    }
    return SimpleNamespace(**parts | changed)


def round_times(patch: pytest.MonkeyPatch) -> None:
    """The times of ``Small`` in all closed forms."""
    for module in (instances, trial, two_pools):
        patch.setattr(
            module, "batch_seconds", lambda c, tokens, sequences: tokens / 1e3 + sequences / 1e2
        )
        patch.setattr(module, "context_seconds", lambda c, batch: 1e-6)
