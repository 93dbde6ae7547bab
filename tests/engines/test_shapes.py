"""The same requests to vLLM and to the simulated engine of the same model: the same statuses, keys, types and names of metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.engines.shapes import REQUESTS, answer, differences, parts, shape
from tonnage.api.running.processes import served_instances
from tonnage.bench.scrape import fetch
from tonnage.serve.published import VLLM
from tonnage.serve.supervision.supervisor import Supervisor
from tonnage.watch.reading import Page

pytestmark = pytest.mark.engines


@pytest.fixture(scope="module")
def simulated(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a simulated engine of the tiny model."""
    what = ["--model", str(model / "config.json"), "--tokenizer", str(model / "tokenizer.json"), "--served-model-name", "tiny"]
    programs = served_instances(["--engine", "simulated", *what, "--precision", "bf16", "--speed", "5"], 1)
    with Supervisor(programs, tmp_path_factory.mktemp("logs"), grace_s=3, told=print) as supervisor:
        supervisor.wait_until_ready(timeout_s=120)
        yield programs[0].url


@pytest.mark.parametrize("name", list(REQUESTS))
def test_answers_have_the_same_shape(server: str, simulated: str, name: str) -> None:
    path, body = REQUESTS[name]
    ports = [urlsplit(url).port or 0 for url in (server, simulated)]
    (status, theirs), (own_status, ours) = (answer(port, path, body) for port in ports)
    assert own_status == status
    assert parts(ours) == parts(theirs)
    if status >= 400 and "error" in theirs[0]:
        assert ours[0]["error"]["type"] == theirs[0]["error"]["type"]
    found = [f"event {i}{each}" for i, pair in enumerate(zip(theirs, ours, strict=True)) for each in differences(*map(shape, pair))]
    assert not found


def test_metrics_have_vllms_names_labels_and_buckets(server: str, simulated: str) -> None:
    for url in (server, simulated):
        for name in ("chat", "text, streamed"):
            answer(urlsplit(url).port or 0, *REQUESTS[name])
    theirs, ours = (Page(fetch(f"{url}/metrics")) for url in (server, simulated))
    names = [*VLLM.gauges.values(), *(f"{name}_total" for name in VLLM.counters.values())]
    names += [f"{name}_{part}" for name, _ in VLLM.histograms.values() for part in ("bucket", "sum", "count")]
    for name in [*names, "http_requests_total"]:
        labels = [{key for one in page.of(name) for key in one.labels} for page in (theirs, ours)]
        assert labels[0], f"{name}: vLLM has no such metric"
        assert labels[1] == labels[0], name
        if name.endswith("_bucket"):
            bounds = [{float(one.labels["le"]) for one in page.of(name)} for page in (theirs, ours)]
            assert bounds[0] <= bounds[1], name
    reasons = [{one.labels["finished_reason"] for one in page.of("vllm:request_success_total")} for page in (theirs, ours)]
    assert reasons[1] <= reasons[0]
