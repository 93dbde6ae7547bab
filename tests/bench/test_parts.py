"""The parts of the client by themselves: tokens over events, prompts, schedules, alarms, files."""

from __future__ import annotations

import asyncio
import io
import math
import sys
import time
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tests.bench.live import question
from tests.bench.test_truth import record
from tonnage.api.bench import bench, prepare_bench, run_bench
from tonnage.bench.connection import parse_url, request_bytes, request_head
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.intervals import gap_intervals, other_definitions, single_gaps
from tonnage.bench.prompts import PLAIN_WORDS
from tonnage.bench.recorder import share, token_times
from tonnage.bench.reply import Reply
from tonnage.bench.scrape import NVML, DriverGpus, samples
from tonnage.bench.steady import Steady, find_steady, steady_metrics, trends
from tonnage.bench.timer import Alarm
from tonnage.cli.bench import LiveView
from tonnage.errors import InputError
from tonnage.results.store import Batch, RunWriter, gap_counts, read_run, read_tokens
from tonnage.spec.recording import Recording
from tonnage.spec.workload import ClosedLoop, OpenLoop, TraceArrivals


@given(total=st.integers(0, 10_000), weights=st.lists(st.integers(1, 500), max_size=60))
def test_a_share_adds_up_and_the_first_event_has_a_token(total: int, weights: list[int]) -> None:
    parts = share(total, weights)
    assert len(parts) == len(weights)
    assert sum(parts) == (total if weights else 0)
    assert min(parts, default=0) >= 0
    assert not weights or not total or parts[0] >= 1
    exact = [total * w / sum(weights) for w in weights]
    assert all(abs(part - wanted) < 1.000001 for part, wanted in zip(parts, exact, strict=True))


def reply(sizes: list[int], tokens: int, counts: dict[int, int] | None = None) -> Reply:
    made = Reply(find_endpoint("chat", model="m"))
    made.times, made.sizes, made.tokens, made.counts = (
        list(range(10, 10 + len(sizes))),
        sizes,
        tokens,
        counts or {},
    )
    return made


def test_tokens_of_a_reply_by_what_is_known() -> None:
    one_each = token_times(reply([4, 4, 4], 3))
    assert (one_each.per_event, one_each.tokens, one_each.source, one_each.shared) == (
        None,
        3,
        "server",
        False,
    )
    said = token_times(reply([4, 4], 7, {0: 2, 1: 7}))
    assert (said.per_event, said.shared) == ([2, 5], False)
    split = token_times(reply([16, 16], 8))
    assert (split.per_event, split.shared) == ([4, 4], True)
    fewer = token_times(reply([1, 1, 1, 1], 2))
    assert (sum(fewer.per_event), fewer.per_event[0]) == (2, 1)
    assert token_times(reply([4, 4], -1)).source == "events"
    counted = token_times(reply([4, 4], -1), [3, 1])
    assert (counted.per_event, counted.tokens, counted.source) == ([3, 1], 4, "tokenizer")


@pytest.mark.parametrize(
    # what the server says: its total, the reasoning in it, whether that was sent; tokens, hidden
    # ones, source
    ("said", "counted", "seen"),
    [
        ((3, 2, True), None, (3, 0, "server")),
        ((203, 200, False), None, (3, 200, "server")),
        ((13, 10, False), None, (3, 10, "server")),
        ((7, 3, False), None, (4, 3, "server")),  # several tokens an event
        # more than two tokens a character: the rest was not sent
        ((25, 0, False), None, (3, 22, "events")),
        ((24, 0, False), None, (24, 0, "server")),
        ((25, 0, False), [2, 1, 3], (6, 19, "tokenizer")),
        ((9, 9, False), None, (3, 6, "events")),  # all is reasoning, and yet text came
        ((0, 0, False), None, (3, 0, "events")),  # the server did not count
        ((0, 0, False), [2, 1, 3], (6, 0, "tokenizer")),
        ((-1, 0, False), None, (3, 0, "events")),
    ],
)
def test_tokens_are_those_that_came(
    said: tuple[int, int, bool], counted: list[int] | None, seen: tuple[int, int, str]
) -> None:
    """Three events of four characters each."""
    made = reply([4, 4, 4], said[0])
    made.reasoning, made.thought = said[1:]
    found = token_times(made, counted)
    assert (found.tokens, found.hidden, found.source) == seen
    assert found.per_event is None or sum(found.per_event) == found.tokens


def test_a_running_count_starts_behind_what_was_hidden() -> None:
    made = reply([8, 8], 207, {0: 202, 1: 207})
    made.reasoning = 200
    assert token_times(made).per_event == [2, 5]
    made.counts = {0: 199, 1: 207}  # which cannot be: less than what was hidden
    assert token_times(made).shared


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=30),
    total=st.integers(-1, 400),
    part=st.floats(0, 1),
    thought=st.booleans(),
)
def test_every_token_that_a_server_counts_is_seen_or_hidden(
    sizes: list[int], total: int, part: float, thought: bool
) -> None:
    made = reply(sizes, total)
    made.reasoning, made.thought = max(round(total * part), 0), thought
    found = token_times(made)
    assert found.tokens > 0
    assert found.hidden >= 0
    assert sum(found.per_event or [1] * len(sizes)) == found.tokens
    if found.source == "server":
        assert found.tokens + found.hidden == total
    if found.hidden:
        assert found.tokens + found.hidden == total
        assert not thought or total > 2 * sum(sizes)


def words_tokenizer(path: Path) -> Path:
    """A byte-level BPE tokenizer that knows some words whole, and the others in pieces."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = [" ".join(PLAIN_WORDS[:60])] * 20 + list(PLAIN_WORDS[:60]) * 20
    tokenizer.train_from_iterator(
        text,
        trainers.BpeTrainer(vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.save(str(path))
    return path


@pytest.mark.parametrize(
    ("process", "cv", "expected"),
    [("poisson", 1.0, 1.0), ("constant", 1.0, 0.0), ("gamma", 3.0, 3.0)],
)
def test_a_schedule_has_the_gaps_that_were_asked_for(
    process: str, cv: float, expected: float
) -> None:
    load = question(OpenLoop(rate=100, process=process, cv=cv), requests=20_000).draw()
    assert load.due_ns is not None
    gaps = np.diff(load.due_ns)
    assert gaps.mean() == pytest.approx(1e7, rel=0.08)
    assert gaps.std() / gaps.mean() == pytest.approx(expected, rel=0.05, abs=1e-6)


def test_bursts_come_together_at_the_mean_rate() -> None:
    load = question(OpenLoop(rate=100), requests=64, burst=8).draw()
    assert load.due_ns is not None
    assert sorted(np.bincount(np.unique(load.due_ns, return_inverse=True)[1])) == [8] * 8
    assert np.diff(np.unique(load.due_ns)) == pytest.approx(80e6)
    assert load.pattern == "burst"


def test_a_trace_is_sent_as_it_came_with_its_own_lengths() -> None:
    recording = Recording(
        due_ns=(0, 5_000_000, 70_000_000), isl=(10, 20, 30), osl=(1, 2, 3), source="t.csv"
    )
    load = question(TraceArrivals(recording=recording), requests=3).draw()
    assert load.due_ns is not None
    assert (list(load.due_ns), list(load.isl), list(load.osl)) == (
        [0, 5_000_000, 70_000_000],
        [10, 20, 30],
        [1, 2, 3],
    )


def test_a_time_ends_an_open_loop() -> None:
    load = question(OpenLoop(rate=50, process="constant"), requests=None, seconds=2.0).draw()
    assert len(load) == 100
    assert load.due_ns.max() <= 2e9
    with pytest.raises(InputError, match="request_count"):
        question(ClosedLoop(concurrency=1), requests=None).draw()


def test_an_alarm_rings_in_time_and_never_before() -> None:
    """Three rounds at most: a machine that does other things delays a round, and an alarm that is
    late itself is late in all of them."""
    assert any(median_delay_ns() < 3e6 for _ in range(3))


def median_delay_ns() -> float:
    """How long after its moment an alarm rings, which is never before."""
    late: list[int] = []

    async def ring() -> None:
        loop = asyncio.get_running_loop()
        rung = asyncio.Event()
        alarm = Alarm(loop, rung.set)
        for _ in range(40):
            moment = time.monotonic_ns() + 1_300_000
            alarm.set(moment)
            await rung.wait()
            rung.clear()
            late.append(time.monotonic_ns() - moment)
        alarm.close()

    asyncio.run(ring())
    assert min(late) >= 0
    return float(np.median(late))


def batch(first: int, count: int) -> Batch:
    rows = np.zeros((count, 10), dtype=np.int64)
    rows[:, 0] = np.arange(first, first + count) * 1_000_000
    rows[:, 3] = rows[:, 0] + 5_000_000
    rows[:, 5] = 3
    return Batch(
        rows=rows,
        offsets_ns=np.tile([1, 2, 3], count).astype(np.int64),
        lengths=np.full(count, 3, dtype=np.int64),
    )


def test_a_run_written_in_batches_reads_back_as_one(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    for start, count in ((0, 4), (4, 1), (5, 7)):
        writer.add(batch(start, count))
    requests = writer.finish()
    assert not (tmp_path / "run").exists()
    writer.close(scenario={"a": 1}, summary={"b": 2}, provenance={}, run={"c": 3})
    found = read_run(tmp_path / "run")
    assert (
        list(found.requests.due_ns) == list(requests.due_ns) == [k * 1_000_000 for k in range(12)]
    )
    offsets, lengths = read_tokens(tmp_path / "run")
    assert (list(offsets), list(lengths)) == ([1, 2, 3] * 12, [3] * 12)


def test_a_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    writer.add(batch(0, 3))
    writer.discard()
    assert not list(tmp_path.iterdir())


def test_a_request_has_its_key_and_its_length() -> None:
    head = request_head(parse_url("http://h:1/p"), "/v1/x", key="k", headers=(("X-A", "b"),))
    raw = request_bytes(head, 7, b"{}")
    assert raw.startswith(b"POST /p/v1/x HTTP/1.1\r\nHost: h:1\r\n")
    assert b"\r\nAuthorization: Bearer k\r\n" in raw
    assert raw.endswith(b"X-Request-Id: 7\r\nContent-Length: 2\r\n\r\n{}")
    with pytest.raises(InputError, match="printable"):
        request_head(parse_url("http://h"), "/x", key="a\r\nX-Evil: 1")


MS = 1_000_000


EVENTS = st.lists(st.tuples(st.integers(1, 40 * MS), st.integers(1, 4)), max_size=6)


@settings(max_examples=30, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=5))
def test_gaps_are_those_that_are_counted_one_by_one(requests: list[list[tuple[int, int]]]) -> None:
    """Each request is a list of events: the time since the one before it, and how many tokens it
    carries."""
    offsets, lengths, expected = [], [], []
    for number, events in enumerate(requests):
        moment = 0
        for place, (step, tokens) in enumerate(events):
            moment += step
            offsets += [moment] * tokens
            if place:
                expected += [(number, step / tokens / MS)] * tokens
        lengths.append(sum(tokens for _, tokens in events))
    found = single_gaps(np.array(offsets, dtype=np.int64), np.array(lengths, dtype=np.int64))
    one_by_one = [
        (int(who), float(ms))
        for who, ms, count in zip(found.request, found.ms, found.count, strict=True)
        for _ in range(count)
    ]
    assert [w for w, _ in one_by_one] == [w for w, _ in expected]
    assert [ms for _, ms in one_by_one] == pytest.approx([ms for _, ms in expected])
    mean = found.statistics()["mean"]
    assert mean == (pytest.approx(np.mean([ms for _, ms in expected])) if expected else None)


def test_the_interval_of_the_mean_holds_it_as_often_as_it_says() -> None:
    """Requests have a pace of their own, so that the gaps of one are alike: blocks of requests must
    not be taken for single gaps."""
    rng, held = np.random.default_rng(3), 0
    requests = record(np.full(200, 200.0))
    for seed in range(40):
        pace = rng.normal(10, 2, 200).clip(2)
        gaps = rng.normal(pace[:, None], 0.5, (200, 9)).clip(0.1)
        offsets = np.rint(
            np.cumsum(np.hstack([np.full((200, 1), 50.0), gaps]), axis=1) * MS
        ).astype(np.int64)
        low, high = gap_intervals(
            single_gaps(offsets.ravel(), np.full(200, 10)), requests, seed=seed
        )["mean"]
        held += low <= 10 <= high
    assert held >= 34


def test_too_few_requests_have_no_interval() -> None:
    gaps = single_gaps(np.arange(1, 31, dtype=np.int64) * MS, np.full(3, 10))
    assert math.isnan(gap_intervals(gaps, record(np.full(3, 100.0)), seed=0)["p95"][0])


def test_the_steady_window_leaves_the_beginning_out() -> None:
    e2e = np.concatenate([np.full(120, 900.0), np.full(480, 100.0)])
    requests = record(e2e)
    steady = find_steady(requests)
    offsets = np.column_stack([np.rint(e2e / 2 * MS), np.rint(e2e * MS)]).astype(np.int64).ravel()
    gaps = single_gaps(offsets, np.full(600, 2))
    found = steady_metrics(requests, steady, gaps)
    assert found["start_s"] >= 1.2
    assert found["e2e_ms"]["mean"] == found["e2e_ms"]["p99"] == pytest.approx(100.0)
    assert found["itl_ms"]["p99"] == pytest.approx(50.0)
    # and those of the beginning that end in it
    assert found["requests_per_second"] == pytest.approx(100, rel=0.2)
    assert "itl_ms" not in (steady_metrics(requests, steady, None) or {})
    assert steady_metrics(requests, Steady(found=False), gaps) is None
    late = replace(requests, last_token_ns=requests.last_token_ns + 10**12)
    assert (steady_metrics(late, steady, gaps) or {})["requests_per_second"] == 0


def test_other_tools_definitions_by_hand(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    rows = np.zeros((3, 10), dtype=np.int64)
    rows[:, 5] = [4, 1, 2]
    rows[2, 8] = 3  # failed
    offsets = np.array([10, 10, 20, 40, 7, 1, 2], dtype=np.int64) * 1_000_000
    writer.add(Batch(rows=rows, offsets_ns=offsets, lengths=np.array([4, 1, 2])))
    found = other_definitions(writer.finish(), offsets, np.array([4, 1, 2]))
    writer.discard()
    assert found["gap_by_event_ms"]["mean"] == pytest.approx(15)
    # 30 ms for the two tokens after the first event
    assert found["tpot_by_event_ms"]["mean"] == pytest.approx(15)
    assert found["inter_token_latency_ms"]["mean"] == pytest.approx(10)
    assert found["tpot_with_ttft_ms"]["mean"] == pytest.approx((10 + 7) / 2)
    assert found["request_latency_ms"]["mean"] == pytest.approx((40 + 7) / 2)


def test_slopes_of_ttft_and_itl_are_those_that_were_put_in() -> None:
    rng = np.random.default_rng(1)
    isl = rng.integers(100, 4_000, 400)
    made = record(np.full(400, 100.0))
    ttft = np.rint((30 + 0.02 * isl + rng.normal(0, 1, 400)) * 1e6).astype(np.int64)
    gaps = np.rint((10 + 0.004 * np.arange(1, 2_000)) * 1e6).astype(np.int64)
    found = trends(
        replace(
            made,
            isl=isl,
            osl=np.full(400, 2_000),
            first_token_ns=made.due_ns + ttft,
            gaps=gap_counts(np.tile(gaps, 5), np.tile(np.arange(1, 2_000), 5)),
        )
    )
    ttft_line, itl_line = (
        found["ttft_ms_per_1000_prompt_tokens"],
        found["itl_ms_per_1000_output_tokens"],
    )
    assert ttft_line["slope"] == pytest.approx(20, abs=3 * ttft_line["standard_error"])
    assert ttft_line["standard_error"] == pytest.approx(1 / (isl.std() / 1e3) / 20, rel=0.15)
    assert ttft_line["at_zero"] == pytest.approx(30, abs=1)
    # buckets know the mean of their positions
    assert itl_line["slope"] == pytest.approx(4, rel=0.004)
    # a gap stands for the middle of its bin
    assert itl_line["at_zero"] == pytest.approx(10, rel=0.004)
    assert found["limits_tokens"]["prompt_p99"] == np.percentile(isl, 99)


def test_lengths_that_are_all_alike_have_no_slope() -> None:
    found = trends(record(np.full(400, 100.0)))
    assert found["ttft_ms_per_1000_prompt_tokens"] is None
    assert trends(record(np.full(5, 100.0)))["limits_tokens"] is None


def test_an_engine_is_to_be_built_for_the_99th_percentile_of_lengths_and_of_their_sum() -> None:
    lengths = np.arange(401)
    found = trends(replace(record(np.full(401, 100.0)), isl=lengths, osl=2 * lengths + 1))[
        "limits_tokens"
    ]
    assert found == {"prompt_p99": 396, "output_p99": 793, "sum_p99": 1189}


PAGE = """# HELP vllm:num_requests_running Number of requests
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b"} 3.0
vllm:kv_cache_usage_perc 0.25 1700000000
vllm:time_to_first_token_seconds_bucket{le="0.1"} 4
vllm:time_to_first_token_seconds_count 9
vllm:generation_tokens_created 1.7e9
nv_inference_queue_duration_us{model="m"} NaN
DCGM_FI_DEV_POWER_USAGE{gpu="0"} 312.5
process_cpu_seconds_total 12
vllm:broken
"""


def test_known_names_are_kept_and_the_rest_is_passed_over() -> None:
    found = samples(PAGE)
    assert found.pop('nv_inference_queue_duration_us{model="m"}') != 0
    assert found == {
        'vllm:num_requests_running{engine="0",model_name="a b"}': 3.0,
        "vllm:kv_cache_usage_perc": 0.25,
        "vllm:time_to_first_token_seconds_count": 9.0,
        'DCGM_FI_DEV_POWER_USAGE{gpu="0"}': 312.5,
    }


def test_a_run_holds_the_server_s_metrics_and_a_view_shows_it(tmp_path: Path) -> None:
    views: list[LiveView] = []

    def watch(words: str) -> LiveView:
        views.append(LiveView(words, Console(file=io.StringIO(), width=120)))
        return views[-1]

    with exact_server(Schedule(ttft_s=0.05, itl_s=0.005, slots=2), seconds=60) as url:
        asked = prepare_bench(url=url, model="m", isl=20, osl=10, concurrency=6, request_count=30)
        assert asked.metrics_urls == (f"{url}/metrics",)
        run = run_bench(asked, output=tmp_path / "run", selftest=False, provenance={}, watch=watch)[
            0
        ]
    waiting = run.run_json["server_metrics"]["vllm:num_requests_waiting"]
    assert waiting["max"] == 4  # six clients, two slots
    rows = pq.read_table(tmp_path / "run" / "server_metrics.parquet")
    assert rows.column_names == ["time_ns", "name", "value"]
    assert rows.num_rows == 2 * waiting["read"]
    console = Console(file=io.StringIO(), width=120)
    console.print(views[0].picture())
    shown = console.file.getvalue()
    assert views[0]._words == "6 clients"
    assert "30" in shown.split()
    assert "TTFT p95" in shown


class NvmlFault(Exception):
    pass


def library(
    *,
    gpus: int = 2,
    driver: bool = True,
    energy: Callable[[float], float] = lambda now: 300.0 * now,
) -> types.ModuleType:
    """A stand-in for ``pynvml``: GPU 1 does not tell its power."""
    made = types.ModuleType("pynvml")

    def init() -> None:
        if not driver:
            raise NvmlFault("Driver Not Loaded")

    def power(handle: int) -> int:
        if handle == 1:
            raise NvmlFault("Not Supported")
        return 412_500

    for name, value in {
        "NVMLError": NvmlFault,
        "NVML_CLOCK_SM": 1,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": init,
        "nvmlDeviceGetCount": lambda: gpus,
        "nvmlDeviceGetHandleByIndex": lambda place: place,
        "nvmlDeviceGetName": lambda handle: b"NVIDIA H200" if handle else "NVIDIA H100",
        "nvmlDeviceGetPowerUsage": power,
        "nvmlDeviceGetUtilizationRates": lambda handle: types.SimpleNamespace(gpu=87, memory=40),
        "nvmlDeviceGetMemoryInfo": lambda handle: types.SimpleNamespace(used=70 * 2**30),
        "nvmlDeviceGetClockInfo": lambda handle, kind: 1_755,
        "nvmlDeviceGetTemperature": lambda handle, kind: 61,
        "nvmlDeviceGetTotalEnergyConsumption": lambda handle: round(1e3 * energy(time.monotonic())),
    }.items():
        setattr(made, name, value)
    return made


def test_every_gpu_is_read_and_what_one_does_not_tell_is_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library())
    nvml = DriverGpus()
    assert nvml.gpus == ("NVIDIA H100", "NVIDIA H200")
    found = nvml.samples()
    assert len(found) == 2 * len(NVML) - 1
    assert found['nvml:power_w{gpu="0"}'] == 412.5
    assert 'nvml:power_w{gpu="1"}' not in found
    assert found['nvml:memory_used_bytes{gpu="1"}'] == 70 * 2**30


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (None, "nvidia-ml-py"),
        (library(driver=False), "Driver Not Loaded"),
        (library(gpus=0), "no GPU"),
    ],
)
def test_without_package_driver_or_gpu_it_is_refused_before_anything_is_sent(
    made: types.ModuleType | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", made)
    with pytest.raises(InputError, match=says):
        bench(
            url="127.0.0.1:1",
            model="m",
            isl=5,
            osl=5,
            concurrency=1,
            request_count=1,
            selftest=False,
            gpu_metrics=True,
        )
