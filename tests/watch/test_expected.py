"""What a deployment does between two readings of its pages."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.watch.pages import observed
from tonnage.errors import InputError
from tonnage.formats.prometheus import Page
from tonnage.watch.deployment_status import present
from tonnage.watch.expected import Pages, backends_on, reading

FIRST, SECOND = "http://a:1", "http://b:2"


def vllm(done: int, *, failed: int = 0, waiting: int = 0) -> Page:
    """The page of an instance that has done so many requests of 100 and 20 tokens, 2 s each."""
    whole = "vllm:e2e_request_latency_seconds"
    lines = [
        f'{whole}_bucket{{le="1.0"}} 0',
        f'{whole}_bucket{{le="2.5"}} {done}',
        f'{whole}_bucket{{le="+Inf"}} {done}',
        f"{whole}_count {done}",
        f"{whole}_sum {2 * done}",
        f'vllm:request_queue_time_seconds_bucket{{le="+Inf"}} {done}',
        f"vllm:request_queue_time_seconds_count {done}",
        f"vllm:request_queue_time_seconds_sum {0.25 * done}",
        f"vllm:prompt_tokens_total {100 * done}",
        f"vllm:generation_tokens_total {20 * done}",
        'vllm:num_requests_running{engine="0"} 3',
        f'vllm:num_requests_waiting{{engine="0"}} {waiting}',
        'vllm:kv_cache_usage_perc{engine="0"} 0.25',
        f'http_requests_total{{handler="/v1/completions",status="2xx"}} {done}',
        f'http_requests_total{{handler="/v1/completions",status="5xx"}} {failed}',
        'http_requests_total{handler="/metrics",status="2xx"} 999',
    ]
    return Page("\n".join(lines))


def test_counters_of_two_instances_are_added() -> None:
    before = reading(10.0, {FIRST: vllm(100), SECOND: vllm(200)})
    now = reading(20.0, {FIRST: vllm(150, waiting=2), SECOND: vllm(260, failed=10)})
    found = present(before, now)
    assert (found.requests, found.requests_per_second, found.running, found.waiting) == (
        110,
        11.0,
        6,
        2,
    )
    assert (found.mean_isl, found.mean_osl, found.output_tokens_per_second) == (100, 20, 220)
    assert found.kv_used == 0.25
    assert found.error_share == pytest.approx(10 / 120)
    assert found.latencies["e2e"].mean == 2.0
    assert {stage: (one.count, one.mean) for stage, one in found.stages.items()} == {
        "queue": (110, 0.25)
    }
    assert (found.answering, found.asked) == (2, 2)


def test_a_missing_and_a_restarted_instance() -> None:
    before = reading(0.0, {FIRST: vllm(100), SECOND: vllm(200)})
    found = present(before, reading(10.0, {FIRST: vllm(130), SECOND: Page("")}))
    assert (found.requests, found.answering, found.asked) == (30, 1, 2)
    again = present(
        reading(10.0, {FIRST: vllm(130), SECOND: Page("")}),
        reading(20.0, {FIRST: vllm(5), SECOND: vllm(40)}),
    )
    # one began anew; the other was not there before, so that nothing is known of it
    assert again.requests == 5
    assert (again.mean_isl, again.answering) == (100, 2)


def test_a_gateway_says_which_requests_were_broken() -> None:
    def gateway(ok: int, cut: int) -> Page:
        counts = [
            f'tonnage_gateway_requests_total{{backend="a:1",outcome="{name}"}} {n}'
            for name, n in (("ok", ok), ("cut", cut))
        ]
        return Page("\n".join(['tonnage_gateway_up{backend="a:1"} 1.0', *counts]))

    assert backends_on(gateway(1, 0)) == ("http://a:1",)
    before, now = (
        reading(at, {FIRST: vllm(n)}, [gateway(n, n // 10)]) for at, n in ((0.0, 100), (1.0, 200))
    )
    assert present(before, now).error_share == pytest.approx(10 / 110)


def test_gpus_are_read_off_their_exporter() -> None:
    page = Page(
        'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 40\nDCGM_FI_DEV_GPU_UTIL{gpu="1"}'
        ' 60\nDCGM_FI_DEV_POWER_USAGE{gpu="0"} 300.5\nDCGM_FI_DEV_POWER_USAGE{gpu="1"}'
        ' 310\nnv_gpu_utilization{gpu="x"} NaN\n'
    )
    now = reading(1.0, {FIRST: vllm(1)}, [page])
    found = present(reading(0.0, {FIRST: vllm(0)}), now)
    assert (found.gpu_use, found.gpu_watts) == (0.5, 610.5)
    assert present(now, reading(2.0, {FIRST: vllm(1)})).gpu_use is None


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:99999"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="is no address"):
        Pages([url])


@settings(max_examples=30)
@given(
    st.lists(st.floats(0.001, 1.5), max_size=30),
    st.lists(st.floats(0.001, 1.5), min_size=1, max_size=30),
)
def test_a_stretch_holds_what_was_observed_in_it(before: list[float], after: list[float]) -> None:
    first, second = observed(before, after)
    stretch = second.since(first)
    assert stretch.count == len(after)
    assert stretch.mean == pytest.approx(sum(after) / len(after))
    for share in (0.5, 0.95):
        exact = sorted(after)[math.ceil(share * len(after) - 1e-9) - 1]
        low, high = stretch.bracket(share)
        assert low <= exact <= high
        assert low <= stretch.quantile(share) <= (high if math.isfinite(high) else low)
    assert stretch.slower(0.2) == pytest.approx(sum(value > 0.2 for value in after) / len(after))


def test_between_two_bounds_observations_lie_evenly() -> None:
    (found,) = observed([0.3] * 4)
    assert found.quantile(0.5) == pytest.approx(0.35)
    assert found.slower(0.35) == pytest.approx(0.5)
    assert found.slower(5.0) == 0.0
