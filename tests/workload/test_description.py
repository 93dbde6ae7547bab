from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import tonnage
from tests.workload.described import generated
from tonnage import api
from tonnage.api.question.simulation import simulation_of
from tonnage.cli.main import run
from tonnage.errors import InputError
from tonnage.results.store import write_run
from tonnage.spec.workload import OpenLoop
from tonnage.workload.burstiness import kolmogorov_smirnov
from tonnage.workload.description import rank_correlation

SHARED = Path(__file__).parents[3] / "shared" / "data" / "traces"
EXCERPT = Path(__file__).parents[2] / "examples" / "code-completion.csv"

BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type,Session ID\n"
    "5,ChatGPT,100,50,150,Conversation log,a\n45,ChatGPT,472,0,472,Conversation log,a\n"
    "46,GPT-4,200,20,220,API log,b\n60,ChatGPT,300,30,330,Conversation log,a\n"
)


def test_burstgpts_format_leaves_failures_out(tmp_path: Path) -> None:
    (tmp_path / "burst.csv").write_text(BURSTGPT)
    found = api.describe_workload(tmp_path / "burst.csv")
    recording = found.traffic.recording
    assert (recording.isl, recording.osl, recording.failed) == ((100, 200, 300), (50, 20, 30), 1)
    assert recording.due_ns == (0, 41_000_000_000, 55_000_000_000)
    shared = found.sharing
    assert (shared.by, shared.sessions, shared.turns_per_session) == ("sessions", 2, 1.5)
    assert shared.hit_tokens == 150 / 600, (
        "the third turn is long enough to begin with the 150 tokens of the first"
    )
    assert shared.requests_with_hits == pytest.approx(1 / 3)


def test_a_length_of_zero_is_refused_where_it_marks_no_failure(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("timestamp,isl,osl\n0,5,5\n1,5,0\n")
    with pytest.raises(InputError, match=r"trace.csv:3: osl '0'"):
        api.describe_workload(tmp_path / "trace.csv")


def test_shared_blocks_are_counted_by_hand(tmp_path: Path) -> None:
    """1000 tokens are two blocks of 512: [1, 2], then [1, 3], [1, 2], [4, 2], whose 2 was seen but
    stands behind a new block, and [2, 1], whose blocks were seen but never at the beginning."""
    rows = [(0, [1, 2]), (10, [1, 3]), (20, [1, 2]), (30, [4, 2]), (40, [2, 1])]
    text = "".join(
        json.dumps({"timestamp": t, "input_length": 1000, "output_length": 7, "hash_ids": ids})
        + "\n"
        for t, ids in rows
    )
    (tmp_path / "trace.jsonl").write_text(text)
    shared = api.describe_workload(tmp_path / "trace.jsonl").sharing
    assert (shared.block_tokens, shared.blocks) == (512, 10)
    assert shared.seen_blocks == 6 / 10
    assert shared.hit_blocks == 3 / 10
    assert shared.hit_tokens == (512 + 1000) / 5000
    assert shared.requests_with_hits == 2 / 5


def test_a_run_folder_is_described_by_its_requests(tmp_path: Path) -> None:
    made = tonnage.simulate(
        model="llama-3.1-8b", isl="lognormal:500,300", osl="100", request_rate=4, requests=200
    )
    write_run(tmp_path / "run", made.scenario(), made.requests, made.summary, {})
    found = api.describe_workload(tmp_path / "run")
    assert found.traffic.recording.isl == tuple(made.requests.isl.tolist())
    assert (
        np.diff(found.traffic.recording.due_ns).tolist() == np.diff(made.requests.due_ns).tolist()
    )


def test_correlation_and_distance_are_scipys() -> None:
    rng = np.random.default_rng(1)
    first = rng.integers(1, 50, 500)
    second = first + rng.integers(0, 40, 500)
    assert rank_correlation(first, second) == pytest.approx(
        stats.spearmanr(first, second).statistic
    )
    assert kolmogorov_smirnov(first, second) == pytest.approx(
        stats.ks_2samp(first, second).statistic
    )
    assert rank_correlation(first, np.full(500, 3)) is None


def test_limits_at_p99_gain_kv_memory() -> None:
    found = api.describe_workload(EXCERPT, model="llama-3.1-8b", tp=1)
    limits, gain = found.limits, found.gain
    assert limits.max_input_tokens >= found.isl.p99 > limits.max_input_tokens - 1
    assert 0 < limits.beyond <= 0.02
    per_token = 2 * 32 * 8 * 128 * 2
    assert gain.context_bytes == 131_072 * per_token
    assert gain.limit_bytes == -(-limits.max_sequence_tokens // 32) * 32 * per_token
    assert gain.limit_requests > gain.context_requests


@pytest.mark.skipif(not SHARED.exists(), reason="the whole traces are not part of a checkout")
@pytest.mark.parametrize(
    ("name", "requests", "cv", "indices", "limits"),
    [
        ("AzureLLMInferenceTrace_2023_code.csv", 8819, 13.2, (13.2, 71.6, 164), (7436, 252)),
        pytest.param(
            "AzureLLMInferenceTrace_2023_conv.csv",
            19366,
            1.09,
            (1.39, 3.86, 16.1),
            (4142, 601),
            marks=pytest.mark.accuracy,
        ),
        ("mooncake_conversation_2000.jsonl", 2000, 2.82, (7.08, 2.02, 2.59), (98_818, 1060)),
    ],
)
def test_the_published_traces(
    name: str, requests: int, cv: float, indices: tuple[float, ...], limits: tuple[int, int]
) -> None:
    found = api.describe_workload(SHARED / name)
    assert len(found.traffic.recording) == requests
    assert found.burstiness.cv == pytest.approx(cv, rel=0.01)
    assert [one.index for one in found.burstiness.dispersion] == pytest.approx(indices, rel=0.01)
    assert (found.limits.max_input_tokens, found.limits.max_output_tokens) == limits


@pytest.mark.skipif(not SHARED.exists(), reason="the whole traces are not part of a checkout")
def test_mooncakes_prefixes() -> None:
    """Every prompt of the conversation trace begins with the same block; the hit rate is counted
    anew here, by whole prefixes."""
    shared = api.describe_workload(SHARED / "mooncake_conversation_2000.jsonl").sharing
    seen: set[tuple[int, ...]] = set()
    hits = total = 0
    for line in (SHARED / "mooncake_conversation_2000.jsonl").read_text().splitlines():
        ids = json.loads(line)["hash_ids"]
        total += len(ids)
        prefixes = [tuple(ids[: place + 1]) for place in range(len(ids))]
        hits += sum(prefix in seen for prefix in prefixes)
        seen.update(prefixes)
    assert (shared.block_tokens, shared.blocks) == (512, total)
    assert shared.hit_blocks == hits / total


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (["describe", "nothing.csv"], "cannot be read"),
        (["describe", str(EXCERPT), "--output", "x.yaml"], "--output: belongs to fit"),
        (["describe", str(EXCERPT), "--gpu", "l40s"], "give --model too"),
        (["fit", str(EXCERPT)], "--output: missing"),
        (["fit", str(EXCERPT), "--output", "x.yaml", "--tp", "2"], "--tp: belongs to describe"),
        (["fit", str(EXCERPT), "--output", "x.html"], "name a .yaml file"),
    ],
)
def test_bad_input_is_one_line(
    tokens: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["workload", *tokens]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_trace_is_stretched_to_the_rate_that_is_given(tmp_path: Path) -> None:
    excerpt = Path(__file__).parents[2] / "examples" / "code-completion.csv"
    api.fit_workload(excerpt, tmp_path / "scenario.yaml", model="llama-3.1-8b")
    plain = simulation_of(tmp_path / "scenario.yaml", {}).workloads[0]
    faster = simulation_of(tmp_path / "scenario.yaml", {"request_rate": "10"}).workloads[0]
    ratio = 10 / plain.arrivals.rate
    assert faster.trace(0).due_ps[-1] == pytest.approx(plain.trace(0).due_ps[-1] / ratio, rel=1e-6)


def test_a_fitted_scenario_is_understood_as_a_sizing_question(tmp_path: Path) -> None:
    excerpt = Path(__file__).parents[2] / "examples" / "code-completion.csv"
    api.fit_workload(excerpt, tmp_path / "bursty.yaml")
    question = api.ask(tmp_path / "bursty.yaml", model="llama-3.1-8b", ttft="p95<=2s").questions[0]
    assert question.recording is not None
    assert len(question.recording) == 2000
    assert not question.replays_lengths
    regular = OpenLoop(rate=2.0, process="gamma", cv=0.4)
    api.fit_workload(
        generated(tmp_path / "trace.csv", "1200", "lognormal:300,200", regular),
        tmp_path / "regular.yaml",
    )
    question = api.ask(tmp_path / "regular.yaml", model="llama-3.1-8b", ttft="p95<=2s").questions[0]
    assert (question.process, question.cv) == ("gamma", pytest.approx(0.4, rel=0.05))
