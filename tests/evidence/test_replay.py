"""A run again: the same requests, due at the same moments."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tonnage.api import deployment_of, simulate
from tonnage.evidence.replay import MetricBeside, _attained, _columns, _notes, replay
from tonnage.results.requests import COMPLETED, REJECTED, Requests


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


def test_a_pair_is_written_with_its_ratio() -> None:
    pair = MetricBeside(
        metric="ttft_ms", statistic="p95", measured=100.0, predicted=150.0, low=90.0, high=110.0
    )
    assert pair.to_json() == {
        "metric": "ttft_ms",
        "statistic": "p95",
        "measured": 100.0,
        "predicted": 150.0,
        "ratio": 1.5,
        "low": 90.0,
        "high": 110.0,
        "inside": True,
    }
    assert math.isnan(replace(pair, measured=0.0).ratio)


def beside(
    sent: int, replayed: int, *, rejected: int = 0, cached: int = 0, clients: int | None = None
) -> list[str]:
    """The notes on a run of so many requests of 1,000 tokens in all."""
    status = np.array([REJECTED] * rejected + [COMPLETED] * (replayed - rejected))

    class Run(SimpleNamespace):
        def __len__(self) -> int:
            return int(self.count)

    return list(
        _notes(
            Run(  # type: ignore[arg-type]
                isl=np.array([600, 400]), cached_tokens=np.array([cached, -1]), count=sent
            ),
            Run(status=status, count=replayed),  # type: ignore[arg-type]
            clients,
        )
    )


def test_what_was_not_the_same_is_noted_from_a_hundredth_on() -> None:
    assert beside(1_000, 991) == []
    (unfinished,) = beside(1_000, 989)
    assert unfinished.startswith("1.1% of the requests of the run did not complete")
    (turned_away,) = beside(1_000, 1_000, rejected=3)
    assert turned_away.startswith("3 of 1,000 requests would be rejected")
    assert beside(10, 10, cached=10) == []
    (found,) = beside(10, 10, cached=11)
    assert found.startswith("1.1% of the prompt tokens of the run were found in a prefix cache")
    (closed,) = beside(10, 10, clients=1_200)
    assert closed.startswith("the run was a closed loop of 1,200 clients")


def test_columns_have_the_names_under_which_errors_are_kept() -> None:
    names = {(metric, statistic): name for metric, statistic, name in _columns()}
    assert len(names) == 16
    assert names["ttft_ms", "mean"] == "ttft_ms"
    assert names["ttft_ms", "p95"] == "ttft_p95_ms"
    assert names["itl_ms", "p99"] == "itl_p99_ms"
    assert names["e2e_ms", "p50"] == "e2e_p50_ms"


def test_joint_attainment_is_laid_beside_by_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [SimpleNamespace(share=None), SimpleNamespace(share=0.9), SimpleNamespace(share=0.5)]
    shares = {"measured": (0.8, 0.6), "predicted": (0.7, 0.65)}

    def attained(run: str, slo: tuple[SimpleNamespace, ...]) -> list[SimpleNamespace]:
        assert list(slo) == limits[1:]
        names = ("90%", "50%")
        return [
            SimpleNamespace(limits=name, share=share)
            for name, share in zip(names, shares[run], strict=True)
        ]

    monkeypatch.setattr("tonnage.evidence.replay.attained", attained)
    found = list(_attained("measured", "predicted", tuple(limits)))  # type: ignore[arg-type]
    assert [(one.metric, one.statistic, one.measured, one.predicted) for one in found] == [
        ("share 90%", "mean", 0.8, 0.7),
        ("share 50%", "mean", 0.6, 0.65),
    ]
