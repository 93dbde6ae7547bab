"""Users at each tier of speed and TTFT: of one load, and over a sweep."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.bench.records import MS, SEEN, judged, record
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.recorder import Tally
from tonnage.bench.tiers import TIERS, Tier, most_users, parse_tier, tiers_of_run
from tonnage.bench.validity import Validity
from tonnage.cli.main import run
from tonnage.errors import InputError


@pytest.mark.parametrize(
    ("text", "speed", "ttft_s"),
    [
        ("30 tokens/s, 15s", 30, 15),
        ("30,15s", 30, 15),
        ("12.5 tok/s @ 500ms", 12.5, 0.5),
        ("100 2s", 100, 2),
        ("30 t/s, TTFT 1s", 30, 1),
    ],
)
def test_tiers_are_read_as_people_write_them(text: str, speed: float, ttft_s: float) -> None:
    assert parse_tier(text) == Tier(tokens_per_second=speed, ttft_s=ttft_s)


@pytest.mark.parametrize(
    "text", ["", "fast", "30", "0, 15s", "30, 0s", "1.2.3, 15s", "30, soon", "-5, 3s"]
)
def test_what_is_no_tier_is_refused_with_one_that_is(text: str) -> None:
    with pytest.raises(InputError, match="tier"):
        parse_tier(text)


def test_three_of_four_requests_are_as_fast_as_the_floor_and_nineteen_of_twenty_begin_in_time() -> (
    None
):
    """Decoding takes 4 gaps of half of E2E: 100 requests of 20 to 119 tokens/s; half of E2E is
    TTFT."""
    speeds = np.arange(20.0, 120.0)
    requests = record(2 * 4e3 / speeds)
    found = tiers_of_run(
        requests,
        judged(),
        7,
        (
            *TIERS,
            Tier(tokens_per_second=44.0, ttft_s=15.0),
            Tier(tokens_per_second=20.0, ttft_s=0.1),
        ),
    )
    assert found["users"] == 7
    # 44.75
    assert found["output_tokens_per_second_p25"] == pytest.approx(
        np.percentile(speeds, 25), rel=1e-6
    )
    # 167 ms
    assert found["ttft_ms_p95"] == pytest.approx(np.percentile(4e3 / speeds, 95), rel=1e-6)
    assert [tier["met"] for tier in found["tiers"]] == [True, False, False, True, False]


def test_a_load_whose_requests_fail_or_whose_client_was_late_is_in_no_tier() -> None:
    requests, easy = record(np.full(600, 100.0)), (Tier(tokens_per_second=1.0, ttft_s=10.0),)
    failing = judged(replace(SEEN, tally=Tally(outcomes=Counter({"": 580, "HTTP 429": 20}))))
    late = judged(replace(SEEN, lateness_ns=array("q", [50 * MS] * 600)))
    assert [
        tiers_of_run(requests, verdict, 4, easy)["tiers"][0]["met"]
        for verdict in (judged(), failing, late)
    ] == [True, False, False]


def test_the_most_users_are_those_below_the_first_load_that_misses() -> None:
    def load(users: int, met: bool) -> dict[str, object]:
        return {"users": users, "tiers": [{"met": met}]}

    assert most_users([load(16, False), load(4, True), load(8, True)], 0) == "8 (16 are too many)"
    assert most_users([load(4, False), load(8, True)], 0) == "fewer than 4"
    assert most_users([load(4, True), load(8, True)], 0) == "at least 8"


PRICED = [
    "--gpu",
    "h100",
    "--gpus",
    "2",
    "--price",
    "cloud.h100-sxm-80gb=3",
    "--price",
    "licence_usd_per_gpu_hour=none",
]


def test_a_run_has_the_cost_of_its_tokens_and_a_table_of_tiers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # on a busy machine the client is late, and its load in no tier
    monkeypatch.setattr(Validity, "client_limited", property(lambda _: False))
    load = [
        "--isl",
        "20",
        "--osl",
        "5",
        "--concurrency",
        "2",
        "--request-count",
        "20",
        "--no-selftest",
    ]
    asked = ["bench", "--model", "m", *load, *PRICED, "--tier", "1, 10s", "--tier", "900000, 10s"]
    with exact_server(Schedule(ttft_s=0.01, itl_s=0.002), seconds=60) as url:
        run([*asked, "--url", url, "--json", "--artifact-dir", str(tmp_path / "run")])
        said = json.loads(capsys.readouterr().out)
        run([*asked, "--url", url])
    out = " ".join(capsys.readouterr().out.split())
    owned, rented = said["cost"]["ways"]
    assert (owned["where"], rented["where"], rented["usd_per_hour"]) == ("on-prem", "cloud", 6.0)
    into, out_of = rented["usd_per_million_input_tokens"], rented["usd_per_million_output_tokens"]
    hour = (
        said["input_tokens_per_second"] * 3.6e3 * into / 1e6
        + said["output_tokens_per_second"] * 3.6e3 * out_of / 1e6
    )
    assert hour == pytest.approx(6.0, rel=1e-9)  # the tokens of an hour pay for the hour
    assert rented["usd_per_1000_requests"] == pytest.approx(
        6.0 / (said["requests_per_second"] * 3.6), rel=1e-9
    )
    assert 0 < owned["usd_per_hour"] < 30
    assert [part.partition(":")[0] for part in rented["how"]] == ["cloud GPUs"]
    assert [part.partition(":")[0] for part in owned["how"]][:2] == ["systems", "hosting"]
    assert "Cloud GPUs, a year: cloud GPUs: 17,520 GPU-hours" in out
    assert json.loads((tmp_path / "run" / "run.json").read_text())["cost"] == said["cost"]
    assert [tier["met"] for tier in said["tiers"]["tiers"]] == [True, False]
    assert "1 tokens/s, TTFT 10 s at least 2" in out
    assert "900,000 tokens/s" in out or "900000 tokens/s, TTFT 10 s fewer than 2" in out
    assert "Cost of 2 × h100-sxm-80gb" in out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--price", "cloud.h100=3"], "--price: names no hardware; add --gpu"),
        (["--gpus", "2"], "--gpus: names no hardware"),
        (["--gpu", "h100", "--gpus", "0"], "--gpus: 0 is not possible"),
        (["--gpu", "nope"], "unknown GPU 'nope'"),
        (["--gpu", "h100", "--price", "cluod.h100=3"], "unknown key"),
        (
            ["--gpu", "h100", "--endpoint-type", "embeddings", "--no-streaming"],
            "--gpu: a cost is split over tokens",
        ),
        (["--plan", "no.json"], "no.json: cannot be read"),
    ],
)
def test_a_cost_that_cannot_be_had_is_refused_before_anything_is_sent(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [
        "bench",
        "--url",
        "127.0.0.1:1",
        "--model",
        "m",
        "--isl",
        "2",
        "--osl",
        "5",
        "--concurrency",
        "2",
        "--request-count",
        "2",
    ]
    assert run([*asked, *flags]) == 2
    assert words in capsys.readouterr().err


def test_a_tier_is_met_at_its_very_floor_and_ceiling_and_not_by_a_run_without_tokens() -> None:
    """TTFT 50 ms; four gaps of 12.5 ms are 80 tokens/s."""
    requests = record(np.full(600, 100.0))
    bounds = [
        Tier(tokens_per_second=speed, ttft_s=ttft)
        for speed, ttft in ((80.0, 0.05), (80.01, 0.05), (80.0, 0.0499))
    ]
    found = tiers_of_run(requests, judged(), 3, bounds)
    assert found == {
        "users": 3,
        "output_tokens_per_second_p25": 80.0,
        "ttft_ms_p95": 50.0,
        "tiers": [
            {"output_tokens_per_second": tier.tokens_per_second, "ttft_s": tier.ttft_s, "met": met}
            for tier, met in zip(bounds, (True, False, False), strict=True)
        ],
    }
    nothing = tiers_of_run(replace(requests, status=np.full(600, 3)), judged(), 3, bounds)
    assert (nothing["output_tokens_per_second_p25"], nothing["ttft_ms_p95"]) == (None, None)
    assert not any(tier["met"] for tier in nothing["tiers"])
    at_once = tiers_of_run(
        replace(requests, last_token_ns=requests.first_token_ns), judged(), 3, bounds
    )
    assert (at_once["output_tokens_per_second_p25"], at_once["ttft_ms_p95"]) == (None, 50.0)
    assert str(bounds[0]) == "80 tokens/s, TTFT 50 ms"
    assert [(tier.tokens_per_second, tier.ttft_s) for tier in TIERS] == [
        (30.0, 15.0),
        (100.0, 15.0),
        (300.0, 15.0),
    ]
