"""The question as the plan understood it."""

from __future__ import annotations

from dataclasses import replace

from tests.report.example_plan import full
from tests.report.plans.screens import PEAK
from tonnage.plan.limit import Limit
from tonnage.plan.notes import LengthsVary
from tonnage.report.plans.question import at_peak_text, lengths_text, pace_text
from tonnage.results.metrics import Latencies


def test_the_pace_beside_reading_and_a_spread_that_is_assumed() -> None:
    for mean, p99, said in [
        (
            0.03,
            0.1,
            (
                "faster than a fast reader (90 ms per token), and p99 is within the 250 ms that"
                " readers accept"
            ),
        ),
        (
            0.12,
            0.3,
            (
                "faster than an average reader (200 ms per token), slower than a fast one (90 ms),"
                " and p99 is beyond the 250 ms"
            ),
        ),
        (
            0.25,
            0.25,
            (
                "slower than an average reader (200 ms per token), and p99 is within the 250 ms"
                " that readers accept"
            ),
        ),
    ]:
        assert pace_text(mean, p99).startswith(said)
    asked = replace(full().scenario, isl="2000+-20%", osl="200+-20%")
    both, one = (LengthsVary(which=which, share=0.2) for which in (("isl", "osl"), ("osl",)))
    assert (
        lengths_text(replace(full(), scenario=asked, notes=(both,)))
        == "2,000 tokens in, 200 out (lengths within ±20%, assumed)"
    )
    assert (
        lengths_text(replace(full(), scenario=asked, notes=(one,)))
        == "2,000 ± 20% tokens in, 200 out (answers within ±20%, assumed)"
    )
    assert (
        lengths_text(replace(full(), scenario=asked, notes=()))
        == "2,000 ± 20% tokens in, 200 ± 20% out"
    )


def test_the_peak_names_every_limited_statistic_beside_its_limit_and_the_mean_of_the_rest() -> None:
    limits = (
        Limit(metric="ttft", statistic="p95", milliseconds=500.0),
        Limit(metric="itl", statistic="p99", milliseconds=62.5),
    )
    assert (
        at_peak_text(PEAK, limits)
        == "TTFT p95 201 ms (limit 500), ITL p99 61.0 ms (limit 62.5), E2E mean 2,345 ms; 64% of"
        " capacity"
    )
    assert at_peak_text(PEAK, ()).endswith("E2E mean 2,345 ms; 64% of capacity")
    unmeasured = replace(PEAK, ttft_ms=Latencies())
    assert "TTFT" not in at_peak_text(unmeasured, limits)
