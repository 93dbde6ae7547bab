"""A run again: the same requests, due at the same moments."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.results.test_metrics import record
from tonnage.api import deployment_of, simulate
from tonnage.errors import InputError
from tonnage.evidence.replay import (
    MetricBeside,
    RunBesidePlan,
    _attained,
    _columns,
    _metrics,
    _notes,
    _trace,
    replay,
)
from tonnage.results.metrics import summarize
from tonnage.results.requests import COMPLETED, FAILED, REJECTED, Requests


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


def test_the_requests_of_a_run_as_they_come_by_hand() -> None:
    """Two were due together, 2 ms before the start, and come when they were sent, the first never
    before it was due; one was sent late and comes when it was due; one failed."""
    due, sent = np.array([5, -2, -2, 9, 1]), np.array([8, 4, -3, 9, 1])
    run = SimpleNamespace(
        status=np.array([COMPLETED, COMPLETED, COMPLETED, FAILED, COMPLETED]),
        due_ns=due,
        sent_ns=sent,
        isl=np.array([10, 20, 30, 40, 50]),
        osl=np.array([1, 2, 3, 4, 5]),
    )
    trace, was_due = _trace(run)  # type: ignore[arg-type]
    assert trace.isl.tolist() == [30, 50, 20, 10]
    assert trace.osl.tolist() == [3, 5, 2, 1]
    assert trace.due_ps.tolist() == [0, 3_000, 6_000, 7_000]
    assert was_due.tolist() == [0, 3, 0, 7]
    assert (trace.concurrency, trace.turnaround_ps) == (0, 0)
    later, was_due = _trace(SimpleNamespace(**vars(run) | {"due_ns": due + 4, "sent_ns": sent + 4}))  # type: ignore[arg-type]
    assert (later.due_ps.tolist(), was_due.tolist()) == ([2_000, 5_000, 8_000, 9_000], [2, 5, 2, 9])
    for name in ("isl", "osl"):
        unknown = SimpleNamespace(**vars(run) | {name: np.array([1, 1, 0, 1, 1])})
        with pytest.raises(InputError, match="does not say how many tokens its prompts"):
            _trace(unknown)  # type: ignore[arg-type]
    failed = SimpleNamespace(**vars(run) | {"status": np.full(5, FAILED)})
    with pytest.raises(InputError, match="has no completed request"):
        _trace(failed)  # type: ignore[arg-type]


def test_every_statistic_is_laid_beside_its_prediction_with_its_interval() -> None:
    """A run of single tokens has no time between tokens, which its replay has."""
    ours = summarize(record([0, 0], [10, 30], [10, 30], [1, 1]))
    theirs = summarize(record([0, 0], [20, 20], [40, 60], [3, 3]))
    found = list(_metrics(ours, theirs, {"ttft_ms": (15.0, 25.0), "e2e_p95_ms": (1.0, 2.0)}))
    assert [(one.metric, one.statistic) for one in found[-2:]] == [
        ("requests_per_second", "mean"),
        ("output_tokens_per_second", "mean"),
    ]
    assert len(found) == 18
    values = {(one.metric, one.statistic): one for one in found}
    assert values["ttft_ms", "mean"] == MetricBeside(
        metric="ttft_ms", statistic="mean", measured=20.0, predicted=20.0, low=15.0, high=25.0
    )
    p95 = values["e2e_ms", "p95"]
    assert (p95.measured, p95.predicted, p95.low, p95.high) == (29.0, 59.0, 1.0, 2.0)
    tpot = values["tpot_ms", "p50"]
    assert (math.isnan(tpot.measured), tpot.predicted, math.isnan(tpot.low)) == (True, 15.0, True)
    rates = [(one.measured, one.predicted) for one in found[-2:]]
    assert rates == [pytest.approx((2 / 0.03, 2 / 0.06)), pytest.approx((2 / 0.03, 6 / 0.06))]


def test_a_run_beside_its_plan_as_json() -> None:
    pair = MetricBeside(metric="ttft_ms", statistic="p95", measured=100.0, predicted=150.0)
    deployment = deployment_of(**CHOICE)
    beside_it = RunBesidePlan(
        deployment=deployment,
        instances=1,
        router="",
        requests=7,
        metrics=(pair,),
        notes=("a note",),
        marks=("a mark",),
    )
    assert beside_it.to_json() == {
        **deployment.named,
        "engine_preset": deployment.engine,
        "instances": 1,
        "router": None,
        "requests": 7,
        "share": 0.8,
        "metrics": beside_it.to_json()["metrics"],
        "notes": ["a note"],
        "marks": ["a mark"],
    }
    assert [metric["ratio"] for metric in beside_it.to_json()["metrics"]] == [1.5]
    assert replace(beside_it, router="session").to_json()["router"] == "session"
