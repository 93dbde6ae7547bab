"""Released clients against the simulated engine: SDKs, frameworks, and six load generators.

``./check --engines`` makes their environments, and names the Pythons by ``TONNAGE_CLIENTS``,
``TONNAGE_AIPERF``, ``TONNAGE_GUIDELLM``, ``TONNAGE_LOADTOOLS`` (GenAI-Perf, inference-perf,
SGLang's client) and ``TONNAGE_VLLM``."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.engines.vllm_server import as_vllm
from tests.serve.engines import SERVED
from tonnage.api.compare import import_run
from tonnage.formats.measured_files import read_measured
from tonnage.serve.server import in_thread
from tonnage.serve.tokens import Fours

pytestmark = pytest.mark.engines

NAMES = (
    *(
        "openai_chat",
        "openai_stream",
        "openai_parse",
        "openai_tools",
        "openai_completions",
        "openai_errors",
        "openai_responses",
    ),
    *(
        "anthropic_messages",
        "anthropic_stream",
        "litellm_completion",
        "langchain",
        "langchain_structured",
        "instructor_modes",
    ),
)
MEASURED_ON: dict[str, str | int] = {
    "gpu": "h100-sxm-80gb",
    "precision": "fp16",
    "tp": 1,
    "engine": "vllm",
}
OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_DISABLE_TELEMETRY": "1"}


def run(name: str, program: str, *arguments: str, **environment: str) -> str:
    """What a program of an environment printed."""
    python = os.environ.get(name)
    assert python, f"{name} names no Python; run ./check --engines"
    command = [str(Path(python).with_name(program)), *arguments]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **OFFLINE, **environment},
    )
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    return done.stdout


FAST = replace(
    SERVED,
    instances=1,
    model="tiny",
    max_context=2048,
    tokens=Fours(8_000),
    most_waiting=0,
    speed=50.0,
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with in_thread(FAST) as running:
        yield running.url


@pytest.fixture(scope="module")
def slow_url() -> Iterator[str]:
    """The same with steps of 20 ms, next to which what a client adds after the last token is
    little."""
    with in_thread(replace(FAST, speed=0.2)) as running:
        yield running.url


@pytest.fixture(scope="module")
def found(url: str) -> dict[str, str]:
    """What went wrong, by name."""
    script = str(Path(__file__).with_name("clients.py"))
    read: dict[str, str] = json.loads(
        run("TONNAGE_CLIENTS", "python", script, url).splitlines()[-1]
    )
    return read


@pytest.mark.parametrize("name", NAMES)
def test_a_client_does_what_it_does_with_an_engine(name: str, found: dict[str, str]) -> None:
    assert found.keys() == set(NAMES)
    assert not found[name], found[name]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a tokenizer of bytes, as transformers reads it."""
    folder = tmp_path_factory.mktemp("tokenizer")
    made = Tokenizer(
        models.BPE(
            vocab={one: i for i, one in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))},
            merges=[],
        )
    )
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "a"})
    )
    return str(folder)


@pytest.mark.parametrize("kind", ["chat", "completions", "responses"])
def test_aiperf_measures_it(url: str, tokenizer: str, tmp_path: Path, kind: str) -> None:
    load = (
        "--isl",
        "50",
        "--osl",
        "10",
        "--request-count",
        "10",
        "--concurrency",
        "2",
        "--random-seed",
        "1",
        "--use-server-token-count",
    )
    where = (
        "--url",
        url,
        "--endpoint-type",
        kind,
        "--tokenizer",
        tokenizer,
        "--artifact-dir",
        str(tmp_path),
        "--ui",
        "none",
    )
    pinned = [] if kind == "responses" else ["--extra-inputs", "ignore_eos:true"]
    run(
        "TONNAGE_AIPERF",
        "aiperf",
        "profile",
        "-m",
        "tiny",
        "--streaming",
        *where,
        *load,
        *pinned,
        HF_HUB_OFFLINE="",
    )
    report: dict[str, Any] = json.loads((tmp_path / "profile_export_aiperf.json").read_text())
    assert (report["request_count"]["avg"], report["error_summary"]) == (10, [])
    assert report["output_sequence_length"]["max"] <= 10
    assert pinned == [] or report["output_sequence_length"]["min"] == 10
    # on a busy machine all tokens come in one read
    assert 0 < report["time_to_first_token"]["avg"] <= report["request_latency"]["avg"]
    ((folder, summary, facts),) = import_run(tmp_path, tmp_path / "run")
    own = json.loads((folder / "run.json").read_text())["other_definitions"]
    assert (summary.counted, facts["failed"]) == (10, {})
    assert summary.ttft_from_send_ms.mean == pytest.approx(
        report["time_to_first_token"]["avg"], rel=0.01
    )
    assert own["request_latency_ms"]["mean"] == pytest.approx(
        report["request_latency"]["avg"], rel=0.01
    )
    (row,) = read_measured(tmp_path / "profile_export_aiperf.json", MEASURED_ON)
    assert (row["concurrency"], row["e2e_ms"]) == (
        2,
        pytest.approx(report["request_latency"]["avg"]),
    )


@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses"])
def test_guidellm_measures_it(url: str, tokenizer: str, tmp_path: Path, path: str) -> None:
    arguments = ["--backend", f"kind=openai_http,target={url},model=tiny,request_format=/v1/{path}"]
    arguments += [
        "--tokenizer",
        f"kind=huggingface_auto,model={tokenizer}",
        "--profile",
        "kind=concurrent,streams=2",
    ]
    arguments += [
        "--constraint",
        "kind=max_requests,count=6",
        "--data",
        "kind=synthetic_text,prompt_tokens=40,output_tokens=8",
    ]
    arguments += ["--output", f"kind=json,path={tmp_path / 'report.json'}", "--disable-console"]
    run("TONNAGE_GUIDELLM", "guidellm", "run", *arguments, HF_HUB_OFFLINE="1")
    (report,) = json.loads((tmp_path / "report.json").read_text())["benchmarks"]
    requests = report["requests"]
    assert (len(requests["successful"]), requests["errored"]) == (6, [])
    assert {one["output_tokens"] for one in requests["successful"]} == {8}
    own = {
        name: report["metrics"][name]["successful"]["mean"]
        for name in ("time_to_first_token_ms", "request_latency")
    }
    ((_, summary, facts),) = import_run(tmp_path / "report.json", tmp_path / "run")
    assert (summary.counted, facts["failed"]) == (6, {})
    assert summary.ttft_from_send_ms.mean == pytest.approx(own["time_to_first_token_ms"], rel=0.01)
    (row,) = read_measured(tmp_path / "report.json", MEASURED_ON)
    assert (row["concurrency"], row["e2e_ms"]) == (2, pytest.approx(1e3 * own["request_latency"]))


@pytest.mark.parametrize(
    ("backend", "path"), [("openai-chat", "chat/completions"), ("openai", "completions")]
)
def test_vllm_bench_measures_it(
    slow_url: str, tokenizer: str, tmp_path: Path, backend: str, path: str
) -> None:
    arguments = [
        "-m",
        "vllm.entrypoints.cli.main",
        "bench",
        "serve",
        "--model",
        "tiny",
        "--tokenizer",
        tokenizer,
        "--base-url",
        slow_url,
    ]
    arguments += [
        "--backend",
        backend,
        "--endpoint",
        f"/v1/{path}",
        "--dataset-name",
        "random",
        "--random-input-len",
        "50",
    ]
    arguments += [
        "--random-output-len",
        "10",
        "--num-prompts",
        "10",
        "--max-concurrency",
        "2",
        "--ignore-eos",
        "--disable-tqdm",
    ]
    arguments += ["--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result", "--save-detailed"]
    arguments += ["--result-dir", str(tmp_path), "--result-filename", "report.json"]
    environment = {
        "PYTHONPATH": str(as_vllm(tmp_path)),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    run("TONNAGE_VLLM", "python", *arguments, **environment)
    report: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
    assert (report["completed"], report["failed"], report["output_lens"]) == (10, 0, [10] * 10)
    ((_, summary, facts),) = import_run(tmp_path / "report.json", tmp_path / "run")
    assert (summary.counted, facts["failed"]) == (10, {})
    assert summary.ttft_from_send_ms.mean == pytest.approx(report["mean_ttft_ms"], rel=0.01)
    assert summary.tpot_ms.mean == pytest.approx(report["mean_tpot_ms"], rel=0.01)
    assert summary.e2e_ms.mean == pytest.approx(report["mean_e2el_ms"], rel=0.01)
    # of a chat the role is an event of its own, and its gap is one of those that vLLM pools
    roles = backend == "openai-chat"
    assert [len(gaps) for gaps in report["itls"]] == [9 + roles] * 10
    assert summary.itl_ms.mean == pytest.approx(report["mean_itl_ms"] * (9 + roles) / 9, rel=0.01)
    (row,) = read_measured(tmp_path / "report.json", MEASURED_ON)
    assert (row["concurrency"], row["e2e_ms"]) == (2, pytest.approx(report["mean_e2el_ms"]))


@pytest.mark.parametrize("backend", ["sglang-oai-chat", "sglang-oai"])
def test_sglang_s_client_measures_it(
    slow_url: str, tokenizer: str, tmp_path: Path, backend: str
) -> None:
    arguments = [
        str(Path(__file__).with_name("sglang_bench.py")),
        "--backend",
        backend,
        "--base-url",
        slow_url,
        "--model",
        "tiny",
    ]
    arguments += [
        "--tokenizer",
        tokenizer,
        "--dataset-name",
        "random-ids",
        "--random-input-len",
        "50",
        "--random-output-len",
        "10",
    ]
    arguments += [
        "--random-range-ratio",
        "1",
        "--num-prompts",
        "10",
        "--max-concurrency",
        "2",
        "--output-details",
        "--disable-tqdm",
    ]
    run(
        "TONNAGE_LOADTOOLS",
        "python",
        *arguments,
        "--output-file",
        str(tmp_path / "out.jsonl"),
        HF_HUB_OFFLINE="1",
    )
    report: dict[str, Any] = json.loads((tmp_path / "out.jsonl").read_text())
    assert (report["completed"], report["output_lens"]) == (10, [10] * 10)
    ((_, summary, facts),) = import_run(tmp_path / "out.jsonl", tmp_path / "run")
    assert (summary.counted, facts["failed"]) == (10, {})
    measured = [
        summary.ttft_from_send_ms.mean,
        summary.tpot_ms.mean,
        summary.itl_ms.mean,
        summary.e2e_ms.mean,
    ]
    names = ("mean_ttft_ms", "mean_tpot_ms", "mean_itl_ms", "mean_e2e_latency_ms")
    assert measured == pytest.approx([report[name] for name in names], rel=0.01)
    (row,) = read_measured(tmp_path / "out.jsonl", MEASURED_ON | {"model": "llama-3.1-8b"})
    assert (row["concurrency"], row["e2e_ms"], row["isl"], row["osl"]) == (
        2,
        pytest.approx(report["mean_e2e_latency_ms"]),
        50,
        10,
    )


@pytest.mark.parametrize("by_server", [False, True])
def test_inference_perf_measures_it(
    slow_url: str, tokenizer: str, tmp_path: Path, by_server: bool
) -> None:
    length = {"min": 8, "max": 8, "mean": 8, "std_dev": 0, "total_count": 20}
    question: dict[str, Any] = {
        "api": {"type": "completion", "streaming": True},
        "data": {"type": "random", "input_distribution": length, "output_distribution": length},
        "load": {
            "type": "concurrent",
            "stages": [{"num_requests": 10, "concurrency_level": 2}],
            "num_workers": 1,
        },
        "server": {"type": "vllm", "model_name": "tiny", "base_url": slow_url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": tokenizer},
        "storage": {"local_storage": {"path": str(tmp_path / "out")}},
        "report": {
            "request_lifecycle": {"per_request": True, "use_server_output_tokens": by_server}
        },
    }
    (tmp_path / "question.yml").write_text(json.dumps(question))
    run("TONNAGE_LOADTOOLS", "inference-perf", "-c", str(tmp_path / "question.yml"))
    report: dict[str, Any] = json.loads(
        (tmp_path / "out" / "stage_0_lifecycle_metrics.json").read_text()
    )
    count, latency = report["successes"]["count"], report["successes"]["latency"]
    assert (report["failures"]["count"], report["successes"]["output_tokens"]["mean"]) == (0, 8)
    ((folder, summary, facts),) = import_run(tmp_path / "out", tmp_path / "run")
    assert (summary.counted, facts["failed"]) == (count, {})
    written = json.loads((folder / "run.json").read_text())
    assert (written["load"]["concurrency"], written["endpoint"]["model"]) == (2, "tiny")
    (row,) = read_measured(tmp_path / "out", MEASURED_ON | {"model": "llama-3.1-8b"})
    assert (row["concurrency"], row["osl"], row["requests"]) == (2, 8, count)
    # its tokenizer counts four for one
    tokens = report["successes"]["output_tokens" if by_server else "output_len"]["mean"]
    assert tokens == (8 if by_server else 32)
    own = [
        1e3 * latency["time_to_first_token"]["mean"],
        1e3 * latency["time_per_output_token"]["mean"] * (tokens - 1) / 7,
    ]
    assert [row["ttft_ms"], row["tpot_ms"]] == pytest.approx(own, rel=0.01)
    assert [summary.ttft_from_send_ms.mean, summary.tpot_ms.mean] == pytest.approx(own, rel=0.01)
    assert row["e2e_ms"] == pytest.approx(1e3 * latency["request_latency"]["mean"])


@pytest.mark.parametrize("kind", ["chat", "completions"])
def test_genai_perf_measures_it(slow_url: str, tokenizer: str, tmp_path: Path, kind: str) -> None:
    python = Path(os.environ["TONNAGE_LOADTOOLS"])
    cuda = next(python.parents[1].glob("lib/python3*/site-packages/nvidia/cuda_runtime/lib"))
    environment = {
        "LD_LIBRARY_PATH": str(cuda),
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
    }
    try:
        run("TONNAGE_LOADTOOLS", "perf_analyzer", "--version", **environment)
    except AssertionError as error:
        pytest.skip(f"perf_analyzer does not start (it needs Debian's libb64-0d): {error}")
    arguments = [
        "profile",
        "-m",
        "tiny",
        "--endpoint-type",
        kind,
        "--streaming",
        "-u",
        slow_url.removeprefix("http://"),
        "--tokenizer",
        tokenizer,
    ]
    arguments += [
        "--concurrency",
        "2",
        "--request-count",
        "10",
        "--synthetic-input-tokens-mean",
        "50",
        "--output-tokens-mean",
        "10",
    ]
    arguments += ["--extra-inputs", "ignore_eos:true", "--artifact-dir", str(tmp_path / "out")]
    run("TONNAGE_LOADTOOLS", "genai-perf", *arguments, **environment)
    (folder,) = (tmp_path / "out").iterdir()
    report: dict[str, Any] = json.loads((folder / "profile_export_genai_perf.json").read_text())
    assert report["request_count"]["avg"] == 10
    count = Tokenizer.from_file(f"{tokenizer}/tokenizer.json")
    ((run_folder, summary, facts),) = import_run(
        folder / "profile_export.json",
        tmp_path / "run",
        tokenizer=Path(tokenizer) / "tokenizer.json",
    )
    own = json.loads((run_folder / "run.json").read_text())["other_definitions"]
    assert (summary.counted, facts["failed"], count.get_vocab_size()) == (10, {}, 256)
    assert summary.ttft_from_send_ms.mean == pytest.approx(
        report["time_to_first_token"]["avg"], rel=0.01
    )
    assert own["request_latency_ms"]["mean"] == pytest.approx(
        report["request_latency"]["avg"], rel=0.01
    )
    (row,) = read_measured(tmp_path / "out", MEASURED_ON | {"model": "llama-3.1-8b"})
    assert (row["concurrency"], row["e2e_ms"]) == (
        2,
        pytest.approx(report["request_latency"]["avg"]),
    )
