"""Paths that only one family of engines has."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.deploy.plans import dense
from tests.serve.asked_servers import served
from tests.serve.engines import Asking, ask
from tonnage.cli.main import run
from tonnage.deploy.nim import METRICS
from tonnage.deploy.service import service_of
from tonnage.deploy.targets import target_files
from tonnage.serve.dialect import DIALECTS
from tonnage.serve.server import in_thread


@pytest.fixture(scope="module")
def sglang() -> Iterator[Asking]:
    with in_thread(served(dialect=DIALECTS["sglang"], settings={"tp_size": 2})) as running:
        yield Asking(running.port)


PARAMETERS = {"max_new_tokens": 8, "temperature": 0, "ignore_eos": True}


def test_sglang_generates(sglang: Asking) -> None:
    status, whole = sglang.post(
        "/generate", {"text": "a tale", "sampling_params": PARAMETERS, "rid": "mine"}
    )
    meta = whole["meta_info"]
    assert (status, len(whole["output_ids"]), meta["id"], meta["finish_reason"]) == (
        200,
        8,
        "mine",
        {"type": "length", "length": 8},
    )
    assert (
        meta.items()
        >= {"completion_tokens": 8, "cached_tokens": 0, "weight_version": "default"}.items()
    )
    body = {"text": "a tale", "sampling_params": PARAMETERS, "stream": True}
    events = [
        line.removeprefix("data: ")
        for line in ask(sglang.port, "POST", "/generate", body)[1].split("\n\n")
        if line
    ]
    assert events.pop() == "[DONE]"
    texts = [json.loads(event)["text"] for event in events]
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    assert texts[-1] == whole["text"]
    several = sglang.post(
        "/generate",
        {"input_ids": [[5, 6], [7]], "sampling_params": {"max_new_tokens": 2, "ignore_eos": True}},
    )[1]
    assert [one["meta_info"]["prompt_tokens"] for one in several] == [2, 1]


def test_sglang_says_what_it_is(sglang: Asking) -> None:
    for path in ("/get_model_info", "/model_info"):
        assert (
            json.loads(sglang.get(path)[1]).items()
            >= {"model_path": "toy", "is_generation": True, "weight_version": "default"}.items()
        )
    for path in ("/get_server_info", "/server_info"):
        assert (
            json.loads(sglang.get(path)[1]).items()
            >= {"tp_size": 2, "internal_states": [{"num_running_reqs": 0}]}.items()
        )
    assert sglang.get("/health_generate") == (200, "")
    status, reply = sglang.post("/generate", {"sampling_params": PARAMETERS})
    assert (status, reply["object"], reply["message"]) == (
        400,
        "error",
        "Either text, input_ids or input_embeds should be provided.",
    )


def test_nim_says_what_it_is() -> None:
    with in_thread(served(dialect=DIALECTS["nim"])) as running:
        nim = Asking(running.port)
        found = {
            path: json.loads(nim.get(path)[1])
            for path in ("/v1/metadata", "/v1/manifest", "/v1/health/ready", "/v1/health/live")
        }
        assert nim.post("/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200
        scraped = [nim.get(path) for path in (METRICS, "/metrics")]
    assert [status for status, _ in scraped] == [200, 200]
    # METRICS is what the PodMonitor of deploy scrapes
    assert all("vllm:request_success_total" in text for _, text in scraped)
    assert found["/v1/metadata"]["modelInfo"][0]["shortName"].startswith("toy:")
    assert found["/v1/metadata"]["selectedModelProfileId"] in found["/v1/manifest"]["manifest_file"]
    assert [found[path]["message"] for path in ("/v1/health/ready", "/v1/health/live")] == [
        "ready",
        "live",
    ]


def test_a_stream_in_the_shape_of_tritons_files_has_a_ttft(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = target_files(service_of(dense("tensorrt-llm-1.2"), checkpoint="a/b"), "triton")[
        "README.md"
    ].replace("\\\n", " ")
    (line,) = (
        one for one in page.splitlines() if one.startswith("tonnage bench --endpoint-type generate")
    )
    words = shlex.split(line)[2:]
    asked = dict(pairwise(words))
    with in_thread(served(model=asked["--model"], dialect=DIALECTS["triton"])) as running:
        url = asked["--url"].replace("127.0.0.1:8000", f"127.0.0.1:{running.port}")
        more = [
            "--no-selftest",
            "--isl",
            "40",
            "--osl",
            "60",
            "--concurrency",
            "2",
            "--request-count",
            "6",
            "--json",
        ]
        run(
            [
                "bench",
                "--endpoint-type",
                "generate",
                "--model",
                asked["--model"],
                "--url",
                url,
                *more,
            ]
        )
        said = json.loads(capsys.readouterr().out)
        assert said["requests"]["completed"] == 6
        assert 0 < said["ttft_ms"]["mean"] < said["e2e_ms"]["mean"]
        asking = Asking(running.port)
        status, reply = asking.post(
            f"/v2/models/{asked['--model']}/generate",
            {"text_input": "a b c", "max_tokens": 3, "min_length": 3},
        )
        assert (status, reply["model_name"], bool(reply["text_output"])) == (
            200,
            asked["--model"],
            True,
        )
        assert asking.post(f"/v2/models/{asked['--model']}/generate", {"prompt": "a"})[0] == 400
