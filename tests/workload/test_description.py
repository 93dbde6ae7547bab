from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.workload.described import generated
from tonnage import api
from tonnage.api.question.simulation import simulation_of
from tonnage.cli.main import run
from tonnage.spec.workload import OpenLoop
from tonnage.workload.burstiness import kolmogorov_smirnov
from tonnage.workload.description import rank_correlation

SHARED = Path(__file__).parents[3] / "shared" / "data" / "traces"


EXCERPT = Path(__file__).parents[2] / "examples" / "code-completion.csv"


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
