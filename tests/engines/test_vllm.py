"""vLLM itself: its answers are read right, and what was measured on it predicts loads that were
not."""

from __future__ import annotations

import json
import statistics
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from benchmarks.engine_loop import UNUSED, Outcome, lines, median, rounds
from tests.engines.vllm_server import python
from tonnage.api.bench import bench
from tonnage.bench.benchmark import Measured
from tonnage.bench.prompts import TokenizerFile

pytestmark = pytest.mark.engines

CLOSED, OPEN = range(len(UNUSED))
WITHIN = 0.15
ROUNDS = 5


def measured(server: str, model: Path, **asked: Any) -> Measured:
    asked = {
        "concurrency": 3,
        "isl": 40,
        "osl": 12,
        "request_count": 9,
        "tokenizer": model / "tokenizer.json",
        **asked,
    }
    (found,) = bench(url=server, model="tiny", selftest=False, **asked)
    return found


@pytest.mark.parametrize("kind", ["chat", "completions", "responses"])
@pytest.mark.parametrize("streaming", [True, False])
def test_every_request_is_answered_and_its_tokens_are_those_of_usage(
    server: str, model: Path, kind: str, *, streaming: bool
) -> None:
    """Outputs have exactly the length asked for, by the server's own count, and nothing fails."""
    # min_tokens and ignore_eos are no fields of the Responses API
    further = {"pin_output": kind != "responses"}
    found = measured(server, model, endpoint_type=kind, streaming=streaming, **further)
    assert found.summary_json["errors"] == 0, found.run_json["failures"]
    assert list(found.run_json["tokens"]["counted_by"]) == ["server"]
    assert (found.requests.isl >= 40).all()
    assert (found.requests.osl <= 12).all()
    if kind != "responses":
        assert (found.requests.osl == 12).all()
        assert found.run_json["tokens"]["outputs_of_another_length"] == 0
    if kind == "completions":
        assert (found.requests.isl == 40).all()
        assert found.run_json["tokens"]["prompt_tokens_beyond_asked"] == 0
    if streaming:
        assert found.summary.ttft_ms.mean < found.summary.e2e_ms.mean


def test_a_reply_in_full_says_what_the_client_counted(server: str, model: Path) -> None:
    """The same prompt by hand: usage, finish_reason and text as the server gives them, and the
    client's tokenizer agrees."""
    counter = TokenizerFile(model / "tokenizer.json")
    body = {
        "model": "tiny",
        "prompt": " ".join(["abc"] * 20),
        "max_tokens": 7,
        "min_tokens": 7,
        "ignore_eos": True,
    }
    ask = urllib.request.Request(
        f"{server}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
        method="POST",
    )
    with urllib.request.urlopen(ask) as response:
        said = json.load(response)
    assert said["usage"]["completion_tokens"] == 7
    assert said["usage"]["prompt_tokens"] == counter.count(body["prompt"])
    assert said["choices"][0]["finish_reason"] == "length"


def test_an_unknown_model_and_a_prompt_that_is_too_long_are_counted_as_what_they_are(
    server: str, model: Path
) -> None:
    (found,) = bench(
        url=server,
        model="nobody",
        isl=40,
        osl=4,
        concurrency=1,
        request_count=2,
        endpoint_type="completions",
        selftest=False,
    )
    assert found.summary_json["errors_by_kind"] == {"HTTP 404": 2}
    found = measured(
        server, model, isl=3_000, concurrency=1, request_count=2, endpoint_type="completions"
    )
    assert found.summary_json["errors_by_kind"] == {"HTTP 400": 2}


def test_the_server_s_own_metrics_are_read_while_it_works(server: str, model: Path) -> None:
    found = measured(
        server, model, endpoint_type="completions", concurrency=4, request_count=40, osl=60
    )
    seen = found.run_json["server_metrics"]
    assert any("running" in name for name in seen), seen


def test_nothing_but_a_pooling_model_serves_embeddings(server: str, model: Path) -> None:
    """This model generates: vLLM refuses embeddings of it, which the client counts and does not
    take for an answer."""
    (found,) = bench(
        url=server,
        model="tiny",
        isl=40,
        concurrency=1,
        request_count=2,
        endpoint_type="embeddings",
        streaming=False,
        selftest=False,
    )
    assert found.summary_json["errors"] == 2


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> list[list[Outcome]]:
    found = list(rounds(ROUNDS, python(), folder))
    print("\n".join(lines(found)))
    return found


@pytest.mark.parametrize("metric", ["e2e_ms", "tpot_ms"])
def test_a_load_that_was_not_used_is_predicted_within_15_percent(
    outcomes: list[list[Outcome]], metric: str
) -> None:
    assert median([each[CLOSED] for each in outcomes], metric) <= WITHIN


@pytest.mark.parametrize("metric", ["e2e_ms", "tpot_ms"])
def test_its_interval_is_narrower_than_without_the_loads(
    outcomes: list[list[Outcome]], metric: str
) -> None:
    """In the median of the rounds; a disturbed one, whose fit is not kept, leaves the intervals as
    they were."""
    for place in (CLOSED, OPEN):
        widths = [each[place].widths[metric] for each in outcomes]
        assert all(mine <= without for mine, without in widths)
        assert statistics.median(mine / without for mine, without in widths) < 1
