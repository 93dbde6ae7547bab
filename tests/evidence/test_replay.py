"""A run again: the same requests, due at the same moments."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tonnage.api import deployment_of, simulate
from tonnage.evidence.replay import MetricBeside, replay
from tonnage.results.requests import Requests


@pytest.mark.parametrize(
    ("measured", "low", "high", "inside"),
    [
        (2.0, 1.0, 3.0, True),
        (1.0, 1.0, 3.0, True),
        (3.0, 1.0, 3.0, True),
        (0.9, 1.0, 3.0, False),
        (3.1, 1.0, 3.0, False),
        (math.nan, 1.0, 3.0, None),
        (2.0, math.nan, math.nan, None),
    ],
)
def test_what_is_not_known_is_neither_inside_nor_outside(
    measured: float, low: float, high: float, inside: bool | None
) -> None:
    found = MetricBeside(
        metric="ttft_ms", statistic="p95", measured=measured, predicted=2.0, low=low, high=high
    )
    assert found.inside is inside


CLIENTS = 9
CHOICE = {"model": "llama-3-8b", "precision": "fp8", "gpu": "h100", "tp": 1, "engine": "sglang"}


def replayed(sent_ns: list[int], due_ns: list[int]) -> Requests:
    """The replay of nine requests."""
    made = simulate(**CHOICE, isl=500, osl=5, request_rate=1000, requests=CLIENTS).requests
    run = replace(
        made, due_ns=np.array(due_ns), sent_ns=np.array(sent_ns), isl=np.arange(500, 500 + CLIENTS)
    )
    return replay(run, deployment_of(**CHOICE), gpus_per_system=8)


def test_the_first_of_several_clients_does_not_wait_for_the_others() -> None:
    together = replayed([0] * CLIENTS, [0] * CLIENTS)
    sent = [200_000 * place for place in range(CLIENTS)][::-1]
    apart = replayed(sent, [0] * CLIENTS)
    assert apart.due_ns.tolist() == [0] * CLIENTS
    assert apart.isl.tolist() == list(range(500, 500 + CLIENTS))[::-1]
    assert apart.first_token_ns[0] < 0.5 * together.first_token_ns[0]
    assert (np.diff(apart.first_token_ns) >= 0).all()
    assert apart.first_token_ns[1] > 1.5 * apart.first_token_ns[0]


def test_what_was_due_at_moments_of_its_own_comes_then_however_late_it_was_sent() -> None:
    due = [1_000_000 * place for place in range(CLIENTS)]
    on_time, late = replayed(due, due), replayed([at + 50_000_000 for at in due], due)
    assert on_time.due_ns.tolist() == late.due_ns.tolist() == due
    assert on_time.first_token_ns.tolist() == late.first_token_ns.tolist()
