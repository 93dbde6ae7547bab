"""Pages of metrics, under the names of an engine."""

from __future__ import annotations

import pytest

from tonnage.formats.prometheus import SIGNALS, Page
from tonnage.serve.dialect import DIALECTS
from tonnage.serve.metrics import Ended, Load, Metrics
from tonnage.spec.catalog import find_engine
from tonnage.spec.catalog.interfaces import Interface, find_interface
from tonnage.watch.expected import counts_of, signals_on

LOADS = [
    Load(engine="0", running=3, waiting=5, kv_used=0.25, preemptions=2),
    Load(engine="1", running=1, waiting=0, kv_used=0.75),
]

ENDED = Ended(
    engine="1",
    finish="length",
    whole_s=2.0,
    decode_s=1.5,
    queue_s=0.1,
    isl=100,
    osl=31,
    asked_osl=31,
    choices=1,
    preemptions=1,
)


def newest(family: str) -> Interface:
    found = find_interface(find_engine(family).name)
    assert found is not None
    return found


def page(name: str) -> str:
    metrics = Metrics(lambda: LOADS, "m", DIALECTS[name].published)
    metrics.tokens("1", 0, 1, 0.5, 0.5)
    metrics.tokens("1", 1, 1, 0.55, 0.05)
    metrics.ended(ENDED)
    metrics.refused()
    return metrics.text().decode()


@pytest.mark.parametrize("name", list(SIGNALS))
def test_the_names_and_bounds_are_those_that_watch_and_the_alerts_of_deploy_read(name: str) -> None:
    """Whoever reads a real engine's page reads that of the simulated one, with no name that is told
    apart."""
    signals, published = SIGNALS[name], DIALECTS[name].published
    assert signals.path == published.path
    mine = dict(published.histograms.values())
    for histogram in signals.histograms.values():
        assert set(newest(name).buckets[histogram]) <= set(mine[histogram])
    found = Page(page(name))
    assert signals_on(found) is signals
    counts = counts_of(found, signals)
    for value, expected in (
        (counts.running, 4),
        (counts.waiting, 5),
        (counts.kv_used, 0.5),
        (counts.prompt_tokens, 100),
    ):
        assert value in (None, expected)
    assert counts.histograms["e2e"].mean == pytest.approx(2.0)
    assert counts.histograms["ttft"].mean == pytest.approx(0.5)


def test_vllms_page_has_what_its_dashboard_shows() -> None:
    text = page("vllm")
    for line in (
        'vllm:num_requests_running{engine="0",model_name="m"} 3.0',
        'vllm:num_preemptions_total{engine="0",model_name="m"} 2.0',
        'vllm:request_success_total{engine="1",finished_reason="length",model_name="m"} 1.0',
        'vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 0.0',
        'vllm:request_queue_time_seconds_sum{engine="1",model_name="m"} 0.1',
        'vllm:request_prefill_time_seconds_sum{engine="1",model_name="m"} 0.4',
        'vllm:request_decode_time_seconds_sum{engine="1",model_name="m"} 1.5',
        'vllm:request_time_per_output_token_seconds_sum{engine="1",model_name="m"} 0.05',
        'vllm:request_prompt_tokens_bucket{engine="1",le="100.0",model_name="m"} 1.0',
        'vllm:admission_rejections_total{model_name="m",reason="max_num_queued_reqs"} 1.0',
    ):
        assert line.rpartition(" ")[0] in text, line
        value = next(
            float(one.split()[-1])
            for one in text.splitlines()
            if one.startswith(line.rpartition(" ")[0])
        )
        assert value == pytest.approx(float(line.split()[-1]))
