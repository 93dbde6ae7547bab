"""What was due at the same moment comes as it was sent when it is replayed; its latencies count from the moment when it was due."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tonnage import simulate
from tonnage.api import deployment_of
from tonnage.evidence.replay import replay
from tonnage.results.requests import Requests

CLIENTS = 9
CHOICE = {"model": "llama-3-8b", "precision": "fp8", "gpu": "h100", "tp": 1, "engine": "vllm"}


def replayed(sent_ns: list[int], due_ns: list[int]) -> Requests:
    """The replay of nine requests."""
    made = simulate(**CHOICE, isl=500, osl=5, request_rate=1000, requests=CLIENTS).requests
    run = replace(made, due_ns=np.array(due_ns), sent_ns=np.array(sent_ns), isl=np.arange(500, 500 + CLIENTS))
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
