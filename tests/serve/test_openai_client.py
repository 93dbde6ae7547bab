"""The official Python client against simulated instances, directly and through the gateway."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve import openai_client
from tonnage.api.running.processes import gateway_before, processes, served_instances
from tonnage.bench.scrape import fetch, samples

MODEL = "llama-3.1-8b"


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of an instance, and of the gateway before two."""
    logs: Path = tmp_path_factory.mktemp("logs")
    instances = served_instances(["--engine", "simulated", "--model", MODEL, "--speed", "5"], 2)
    gateway = gateway_before(instances, policy="round-robin")
    with processes(instances, gateway, logs, ready_s=60, grace_s=3, told=lambda line: None, seen=lambda ready, of: None) as up:
        yield {"engine": instances[0].url, "other": instances[1].url, "gateway": up.url}


@pytest.mark.parametrize("where", ["engine", "gateway"])
def test_answers_streams_and_errors(urls: dict[str, str], where: str) -> None:
    assert [model.id for model in openai_client.client(urls[where]).models.list().data] == [MODEL]
    whole = openai_client.completes(urls[where], MODEL)
    streamed = openai_client.streams(urls[where], MODEL)
    assert set(whole["completion"]) == {"choices", "created", "id", "model", "object", "usage"}
    assert streamed["chat"]["choices"][0]["delta"] == {"content": "str"}
    openai_client.refuses(urls[where], MODEL)


def test_a_client_that_leaves_frees_its_slot_behind_the_gateway(urls: dict[str, str]) -> None:
    openai_client.leaves(urls["gateway"], MODEL)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        held = [samples(fetch(f"{urls[one]}/metrics")) for one in ("engine", "other")]
        if sum(value for found in held for name, value in found.items() if "num_requests" in name) == 0:
            break
        time.sleep(0.05)
    else:
        pytest.fail("a request is still held")
    aborted = [value for found in held for name, value in found.items() if "request_success_total" in name and '"abort"' in name]
    assert sum(aborted) == 1
