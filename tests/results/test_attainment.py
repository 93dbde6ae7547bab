"""Joint attainment and goodput against counting requests one by one, and against the definitions of
two other tools on their own files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.results.test_metrics import THREE, record
from tonnage.bench.intervals import compare, share_ratio
from tonnage.cli.main import run
from tonnage.errors import InputError
from tonnage.results.metrics import attained
from tonnage.results.requests import COMPLETED, FAILED, Requests
from tonnage.results.store import read_run
from tonnage.spec.deployment import Limit, parse_attainment

FILES = Path(__file__).parents[1] / "bench" / "fixtures"


TTFT = Limit(metric="ttft", statistic="p95", seconds=0.1)


TPOT = Limit(metric="tpot", statistic="mean", seconds=0.05)


def test_goodput_needs_every_limit() -> None:
    assert attained(THREE, ()) == ()
    assert attained(THREE, (TTFT,))[0].requests_per_second == pytest.approx(4)
    both = attained(THREE, (TTFT, TPOT))[0]
    assert both.requests_per_second == pytest.approx(2)
    assert both.share == pytest.approx(1 / 3)
    assert both.holds is None


@pytest.mark.parametrize(
    ("tokens", "failed", "notes"),
    [
        (102, 1, []),
        (103, 0, ["outputs are 100 tokens on average in the first run, 103 in the second"]),
        (100, 2, ["0.0% of the requests did not complete in the first run, 2.0% in the second"]),
    ],
)
def test_two_runs_that_were_asked_other_things_say_so(
    tokens: int, failed: int, notes: list[str]
) -> None:
    times = [0] * 100, [10] * 100, [500] * 100
    second = record(*times, [tokens] * 100, status=[FAILED] * failed + [COMPLETED] * (100 - failed))
    assert list(compare(record(*times, [100] * 100), second).notes) == notes


def test_a_request_at_its_limit_meets_it() -> None:
    r = record([0, 0, 0], [10, 10, 10], [10, 30, 31], [1, 2, 2])
    for limit in (
        Limit(metric="tpot", statistic="p99", seconds=0.020),
        Limit(metric="itl", statistic="mean", seconds=0.0205),
    ):
        assert attained(r, (limit,))[0].share == pytest.approx(2 / 3)


def test_the_interval_is_wider_where_misses_come_together() -> None:
    due = list(range(2000))
    spread = [400 if i % 20 == 0 else 10 for i in due]
    burst = [400 if i < 100 else 10 for i in due]
    limit = parse_attainment("90%: ttft<=100ms")
    found = []
    for waits in (spread, burst):
        first = [d + w for d, w in zip(due, waits, strict=True)]
        found.append(attained(record(due, first, [f + 10 for f in first], [2] * 2000), (limit,))[0])
    assert found[0].share == found[1].share == 0.95
    assert found[1].high - found[1].low > 2 * (found[0].high - found[0].low)


def test_the_ratio_of_two_shares_is_inside_its_interval_as_often_as_it_says() -> None:
    """Runs of 400 requests, of which 85 % and 68 % meet the limit: the ratio is 0.8 in truth."""
    rng, inside, limit = np.random.default_rng(3), 0, parse_attainment("50%: ttft<=100ms")
    for _ in range(150):
        pair = []
        for share in (0.85, 0.68):
            waits = np.where(rng.random(400) < share, 50, 200).tolist()
            first = [due + wait for due, wait in enumerate(waits)]
            pair += attained(
                record(list(range(400)), first, [each + 10 for each in first], [2] * 400), (limit,)
            )
        found = share_ratio(*pair)
        inside += found.low <= 0.8 <= found.high
        assert found.low <= found.ratio <= found.high
    assert inside / 150 >= 0.9


def imported(file: Path, folder: Path) -> Requests:
    assert run(["import", str(file), "--output", str(folder)]) == 0
    return read_run(folder).requests


def test_vllm_s_request_goodput(tmp_path: Path) -> None:
    """vLLM counts the requests whose ttft, tpot and e2el are all inside and divides by the
    duration; tpot of one token is 0."""
    said = json.loads((FILES / "vllm.json").read_text())
    latencies, firsts, lengths = said["latencies"], said["ttfts"], said["output_lens"]
    # Its latency ends 15 to 30 µs after the last token, so that limits between two requests are
    # clear of that.
    ttft, tpot, e2e = (
        float(np.mean(np.sort(values)[12:14]))
        for values in (
            firsts,
            [
                (whole - first) / max(n - 1, 1)
                for whole, first, n in zip(latencies, firsts, lengths, strict=True)
            ],
            latencies,
        )
    )
    good = sum(
        f <= ttft and (w - f) / (n - 1) <= tpot and w <= e2e
        for w, f, n in zip(latencies, firsts, lengths, strict=True)
    )
    assert 0 < good < 24
    requests = imported(FILES / "vllm.json", tmp_path / "run")
    sent = Requests(
        **{name: getattr(requests, name) for name in Requests.__slots__}
        | {"due_ns": requests.sent_ns}
    )
    limit = parse_attainment(
        f"50%: ttft<={1e3 * ttft:.6f}ms & tpot<={1e3 * tpot:.6f}ms & e2e<={1e3 * e2e:.6f}ms"
    )
    found = attained(sent, (limit,))[0]
    assert found.share * 24 == good
    assert found.share * 24 / said["duration"] == good / said["duration"]
    # its clock starts a little earlier
    assert found.requests_per_second == pytest.approx(good / said["duration"], rel=0.02)


def test_aiperf_s_goodput(tmp_path: Path) -> None:
    """AIPerf counts the completed requests per second that meet every constraint; its
    inter_token_latency is a request's mean gap."""
    lines = [
        json.loads(line)
        for line in (FILES / "aiperf" / "profile_export.jsonl").read_text().splitlines()
    ]
    metrics = [
        {
            name: one["metrics"][name]["value"]
            for name in ("time_to_first_token", "inter_token_latency")
        }
        for one in lines
    ]
    ttft, tpot = (
        float(np.mean(np.sort([m[name] for m in metrics])[15:17]))
        for name in ("time_to_first_token", "inter_token_latency")
    )
    good = sum(
        m["time_to_first_token"] <= ttft and m["inter_token_latency"] <= tpot for m in metrics
    )
    assert 0 < good < len(metrics)
    requests = imported(FILES / "aiperf", tmp_path / "run")
    sent = Requests(
        **{name: getattr(requests, name) for name in Requests.__slots__}
        | {"due_ns": requests.sent_ns}
    )
    found = attained(sent, (parse_attainment(f"50%: ttft<={ttft:.6f}ms, tpot<={tpot:.6f}ms"),))[0]
    assert found.share * len(metrics) == pytest.approx(good)
    seconds = (
        max(one["metadata"]["request_end_ns"] for one in lines)
        - min(one["metadata"]["request_start_ns"] for one in lines)
    ) / 1e9
    assert found.requests_per_second == pytest.approx(good / seconds, rel=0.02)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ttft<=500ms", "does not begin with a share"),
        ("0%: ttft<=1s", "not a share above 0%"),
        ("120%: ttft<=1s", "not a share above 0%"),
        ("95%: ttft 500ms", "is not a limit on one request"),
        ("95%: ttft<=500ms & ttft<=1s", "has two limits"),
        ("95%: itl<=50ms", "limit tpot"),
        ("95%:", "is not a limit on one request"),
        ("95%: ttft<=0s", "can never be met"),
    ],
)
def test_what_cannot_be_read_says_what_to_type(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_attainment(text)


@pytest.mark.parametrize(
    ("met", "independent"),
    [
        ([True, True, True, False], 4),
        ([True] * 20 + [False] * 19, 39),
        # in pairs that are alike: the twenty blocks of two differ as much as nineteen requests do
        ([True] * 20 + [False] * 20, 19),
        ([True, False] * 20, 40),
        ([True] * 40, 40),
        ([False] * 3, 3),
    ],
)
def test_the_interval_of_a_share_ends_where_the_share_is_just_expected(
    met: list[bool], independent: int
) -> None:
    """Reference: Wilson's equation, (p − share)² = t² · p · (1 − p) / n, holds at both ends."""
    first = [10 if in_time else 200 for in_time in met]
    attainment = attained(record([0] * len(met), first, first, [1] * len(met)), (TTFT,))[0]
    assert attainment.share == pytest.approx(sum(met) / len(met))
    for end in (attainment.low, attainment.high):
        variance = 2.093**2 * end * (1 - end) / independent
        assert (end - attainment.share) ** 2 == pytest.approx(variance, rel=1e-9, abs=1e-12)
    assert attainment.low < attainment.high
