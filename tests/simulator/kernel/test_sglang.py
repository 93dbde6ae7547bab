"""The scheduler of SGLang, compiled: steps by hand, beside the reference."""

from __future__ import annotations

from tests.simulator.kernel.compared import both
from tests.simulator.reference.examples import SGLANG, TICK, open_trace


def test_prompts_go_alone_and_before_decodes() -> None:
    trace = open_trace((0, 10, 3), (0, 30, 3), (1.5, 5, 1))
    requests, record, _ = both(trace, TICK, SGLANG, 1000)
    assert record.steps[:, 2:7].tolist() == [
        [40, 2, 0, 100 + 900, 0],
        [0, 0, 2, 0, 11 + 31],
        [5, 1, 0, 25, 0],
        [0, 0, 2, 0, 12 + 32],
    ]
    assert requests.last_token_ns.tolist() == [4_000_000, 4_000_000, 3_000_000]
