"""Recorded traffic described: every format that is read, and figures that are known beforehand."""

from __future__ import annotations

import errno
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import tonnage
from tonnage import api
from tonnage.api.question.simulation import simulation_of
from tonnage.cli.main import run
from tonnage.errors import InputError
from tonnage.results.store import write_run
from tonnage.spec.lengths import parse_lengths
from tonnage.spec.scenario_file import read_scenario
from tonnage.spec.workload import OpenLoop, Workload
from tonnage.workload.burstiness import burstiness, kolmogorov_smirnov, spread
from tonnage.workload.description import fitted_lengths, rank_correlation

EXCERPT = Path(__file__).parents[2] / "examples" / "code-completion.csv"
SHARED = Path(__file__).parents[3] / "shared" / "data" / "traces"
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


def test_poisson_counts_have_a_dispersion_of_one() -> None:
    due = np.random.default_rng(0).exponential(0.1, 200_000).cumsum()
    found = burstiness(due - due[0])
    assert found.cv == pytest.approx(1, rel=0.02)
    for one in found.dispersion:
        assert one.index == pytest.approx(1, abs=4 * np.sqrt(2 / one.intervals))
    assert found.hourly_peak_to_mean == pytest.approx(1, abs=0.05)


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


# A fitted scenario reproduces the traffic that it was fitted to: generated with known parameters,
# and recorded.
RECORDED = (
    *(
        pytest.param(f"AzureLLMInferenceTrace_2023_{kind}.csv", marks=pytest.mark.accuracy)
        for kind in ("code", "conv")
    ),
    "mooncake_conversation_2000.jsonl",
)
STATISTICS = ("mean", "p50", "p90", "p95", "p99")


def generated(path: Path, isl: str, osl: str, arrivals: OpenLoop) -> Path:
    """A trace of a workload with known parameters."""
    drawn = Workload(
        isl=parse_lengths(isl, ""), osl=parse_lengths(osl, ""), arrivals=arrivals, requests=20_000
    ).trace(3)
    rows = (
        f"{due / 1e12:.9f},{i},{o}\n"
        for due, i, o in zip(drawn.due_ps, drawn.isl, drawn.osl, strict=True)
    )
    path.write_text("timestamp,isl,osl\n" + "".join(rows))
    return path


def assert_alike(seen: np.ndarray, drawn: np.ndarray, floor: float = 0.0) -> None:
    first, second = spread(seen), spread(drawn)
    for name in STATISTICS:
        a, b = getattr(first, name), getattr(second, name)
        assert abs(b - a) <= 0.10 * max(a, floor), (name, a, b)


def assert_reproduced(trace: Path, scenario: Path, requests: int | None = None) -> None:
    """Mean and percentiles of ISL, OSL and gaps within 10 %, in the requests that a simulation of
    the scenario makes."""
    seen = api.describe_workload(trace).traffic.recording
    asked = {"model": "llama-3.1-8b", "requests": requests}
    if (rate := read_scenario(str(scenario)).demand.peak_rps) is not None:
        asked["request_rate"] = rate
    drawn = simulation_of(scenario, asked).workloads[0].trace(1)
    assert_alike(np.array(seen.isl), drawn.isl)
    assert_alike(np.array(seen.osl), drawn.osl)
    gaps = np.diff(np.array(seen.due_ns)) / 1e9
    assert_alike(gaps, np.diff(drawn.due_ps) / 1e12, floor=1e-3 * gaps.mean())


@pytest.mark.parametrize(
    ("isl", "osl", "arrivals"),
    [
        pytest.param(
            "lognormal:2000,1500", "normal:400,80", OpenLoop(rate=5.0), marks=pytest.mark.accuracy
        ),
        ("uniform:500-3000", "lognormal:200,150+50", OpenLoop(rate=20.0, process="gamma", cv=2.5)),
        pytest.param(
            "1200",
            "lognormal:300,200",
            OpenLoop(rate=2.0, process="gamma", cv=0.4),
            marks=pytest.mark.accuracy,
        ),
        pytest.param(
            "normal:3000,400",
            "128",
            OpenLoop(rate=3.0, process="constant"),
            marks=pytest.mark.accuracy,
        ),
    ],
    ids=["poisson", "bursty", "regular", "even"],
)
def test_known_parameters_are_recovered(
    isl: str, osl: str, arrivals: OpenLoop, tmp_path: Path
) -> None:
    trace = generated(tmp_path / "trace.csv", isl, osl, arrivals)
    found = api.fit_workload(trace, tmp_path / "scenario.yaml")
    assert found.files == {}
    for name, written in (("isl", isl), ("osl", osl)):
        known, fitted = (
            parse_lengths(written, ""),
            parse_lengths(getattr(found.scenario.lengths, name), ""),
        )
        assert fitted.kind == known.kind
        assert fitted.mean == pytest.approx(known.mean, rel=0.03)
        assert fitted.std == pytest.approx(known.std, rel=0.05)
    assert found.scenario.search.arrivals == arrivals.process
    assert found.scenario.demand.peak_rps == pytest.approx(arrivals.rate, rel=0.05)
    if arrivals.process == "gamma":
        assert found.scenario.search.cv == pytest.approx(arrivals.cv, rel=0.05)
    assert_reproduced(trace, tmp_path / "scenario.yaml", 20_000)


def test_a_distribution_that_draws_far_longer_requests_than_were_seen_does_not_fit() -> None:
    """Lengths cut to a longest one at p99.7: all percentiles but the last are those of a lognormal
    distribution that reaches further."""
    values = parse_lengths("lognormal:1000,2000", "").draw(20_000, np.random.default_rng(2))
    whole, cut = (
        fitted_lengths(values),
        fitted_lengths(np.minimum(values, int(np.percentile(values, 99.7)))),
    )
    assert whole.fits
    assert cut.error <= 0.10
    assert cut.overshoots
    assert not cut.fits


def test_a_rate_that_drifts_is_no_poisson_process(tmp_path: Path) -> None:
    """An hour whose rate doubles and halves again every ten minutes: gaps nearly exponential,
    minutes far from it."""
    rng = np.random.default_rng(5)
    gaps = rng.exponential(1.0, 15_000)
    due, now = [], 0.0
    for gap in gaps:
        now += gap / (4.0 + 1.3 * math.sin(2 * math.pi * now / 600))
        due.append(now)
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "timestamp,isl,osl\n"
        + "".join(f"{moment:.6f},{rng.integers(100, 200)},50\n" for moment in due)
    )
    found = api.describe_workload(trace).fitted_arrivals
    assert (found.process, found.disagreement) == ("trace", "counts")
    assert found.dispersion_error > 2
    api.fit_workload(trace, tmp_path / "scenario.yaml")
    assert_reproduced(trace, tmp_path / "scenario.yaml")


def test_a_fit_on_a_full_disk_names_the_folder_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, folder = tmp_path / "trace.csv", tmp_path / "fitted"
    trace.write_text("timestamp,isl,osl\n" + "".join(f"{t},{90 + t},{t}\n" for t in range(1, 99)))
    folder.mkdir()
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        write(path, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")  # without the name of a file

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError) as caught:
        api.fit_workload(trace, folder / "scenario.yaml")
    assert str(folder) in str(caught.value)
    assert "cannot be written (No space left on device)" in str(caught.value)
    assert not list(folder.iterdir())


def test_correlated_lengths_stay_together(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    isl = rng.integers(100, 2000, 2_500)
    rows = zip(
        rng.exponential(0.2, 2_500).cumsum(),
        isl,
        isl // 10 + rng.integers(1, 40, 2_500),
        strict=True,
    )
    trace = tmp_path / "trace.csv"
    trace.write_text("timestamp,isl,osl\n" + "".join(f"{t:.6f},{i},{o}\n" for t, i, o in rows))
    found = api.fit_workload(trace, tmp_path / "scenario.yaml")
    assert (found.lengths, sorted(found.files)) == ("pairs", ["scenario.lengths.csv"])
    drawn = (
        simulation_of(
            tmp_path / "scenario.yaml",
            {"model": "llama-3.1-8b", "request_rate": 5.0, "requests": 2_500},
        )
        .workloads[0]
        .trace(0)
    )
    assert np.corrcoef(drawn.isl, drawn.osl)[0, 1] == pytest.approx(
        np.corrcoef(isl, isl // 10)[0, 1], abs=0.05
    )
    assert_reproduced(trace, tmp_path / "scenario.yaml", 2_500)


@pytest.mark.skipif(not SHARED.exists(), reason="the whole traces are not part of a checkout")
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_traffic_is_reproduced(name: str, tmp_path: Path) -> None:
    api.fit_workload(SHARED / name, tmp_path / "scenario.yaml")
    assert_reproduced(SHARED / name, tmp_path / "scenario.yaml")


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
