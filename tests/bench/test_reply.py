"""Replies are read the same however they are cut into pieces, and whatever bytes come, nothing
crashes or miscounts."""

from __future__ import annotations

import json
import random
import sys
import time
import types
from email.message import Message
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.answering import answering
from tests.bench.corpus import CASES, DONE, HEAD, PLAIN, STREAM, Case, chat, chunked, sse, usage
from tests.bench.test_parts import library
from tonnage.api.bench import bench
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.http_response import MAX_EVENT, MAX_HEAD, BrokenReply, EventStream, HttpResponse
from tonnage.bench.reply import Reply
from tonnage.bench.scrape import GPU_COUNTERS, GPU_WATTS, DriverGpus, host_joules, joules
from tonnage.errors import InputError


def read(case: Case, pieces: list[bytes], *, by_feed: bool = False) -> tuple[Reply, str]:
    """The reply after all pieces, stamped 1, 2, …, taken one by one or together; and what was found
    broken."""
    reply = Reply(find_endpoint(case.kind, model="m", streaming=case.streaming), keep_text=True)
    try:
        stamped = list(enumerate(pieces, start=1))
        if by_feed:
            for at, piece in stamped:
                reply.feed(at, piece)
        else:
            reply.read(stamped)
        reply.end()
    except BrokenReply as broken:
        return reply, str(broken)
    return reply, ""


def check(case: Case, pieces: list[bytes]) -> None:
    for by_feed in (True, False):
        check_one(case, *read(case, pieces, by_feed=by_feed))


def check_one(case: Case, reply: Reply, broken: str) -> None:
    assert case.broken in broken
    assert bool(broken) == bool(case.broken)
    assert reply.texts == case.texts
    assert reply.sizes == [len(text) for text in case.texts]
    assert reply.times == sorted(reply.times)
    assert len(reply.times) == len(case.texts)
    assert (reply.tokens, reply.prompt, reply.cached) == (case.tokens, case.prompt, case.cached)
    assert (reply.finished, reply.error, reply.http.status) == (
        case.finished,
        case.error,
        case.status,
    )
    if not case.broken:
        assert reply.http.complete
        assert reply.http.keep_alive == case.keep_alive
    if not case.broken and case.status == 200 and not case.error:
        outcome, detail = reply.failure()
        assert outcome == case.failure
        assert case.detail in detail


@pytest.mark.parametrize("name", CASES)
def test_a_reply_is_read_the_same_cut_in_two_at_every_byte(name: str) -> None:
    case = CASES[name]
    check(case, [case.raw])
    for cut in range(1, len(case.raw)):
        check(case, [case.raw[:cut], case.raw[cut:]])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_reply_is_read_the_same_in_small_pieces(name: str, size: int) -> None:
    case = CASES[name]
    check(case, [case.raw[i : i + size] for i in range(0, len(case.raw), size)])


def test_an_event_has_the_stamp_of_the_piece_that_completes_it() -> None:
    parts = [HEAD, *(chunked(sse(d), last=b"") for d in PLAIN), chunked(DONE)]
    reply, _ = read(CASES["a plain stream"], parts)
    assert reply.times == [3, 4, 5]  # after the head and the role
    first = HEAD + parts[1] + parts[2][:-10]
    late, _ = read(CASES["a plain stream"], [first, parts[2][-10:], b"".join(parts[3:])])
    assert late.times == [2, 3, 3]


@pytest.mark.parametrize("beyond", ["HTTP/1.1", "\x01", "garbage\r\n\r\n"])
@pytest.mark.parametrize("pieces", [1, 2])
def test_a_connection_on_which_more_than_the_response_comes_is_not_used_again(
    beyond: str, pieces: int
) -> None:
    response, whole = HttpResponse(), b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    assert response.feed(whole + (beyond.encode() if pieces == 1 else b"")) == [b"ok"]
    assert response.keep_alive == (pieces == 2)
    assert pieces == 1 or not response.feed(beyond.encode())
    assert response.complete
    assert not response.keep_alive


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * MAX_HEAD,
        HEAD + b"1;" + b"x" * 2000,
        HEAD + b"0\r\n" + b"t" * (MAX_HEAD + 1),
        HEAD + b"1\r\nx\r\n1;" + b"x" * 2000,
        HEAD + b"0\r\n" + b"t: u\r\n" * (MAX_HEAD // 4),
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * MAX_HEAD + b"\r\n\r\n",
    ],
    ids=["head", "chunk size", "trailer", "second chunk size", "second trailer", "whole head"],
)
def test_what_has_no_end_is_refused_before_it_fills_memory(raw: bytes) -> None:
    response = HttpResponse()
    with pytest.raises(BrokenReply, match="too long"):
        response.feed(raw)


def test_a_header_that_comes_in_small_pieces_is_refused_as_soon_as_it_is_too_long() -> None:
    response = HttpResponse()
    taken = 0
    while taken < 10 * MAX_HEAD:
        try:
            response.feed(b"HTTP/1.1 200 OK\r\nX: " if not taken else b"y" * 1000)
        except BrokenReply:
            break
        taken += 1000
    assert MAX_HEAD - 2000 < taken < MAX_HEAD + 2000


def test_an_event_without_an_end_is_refused() -> None:
    stream = EventStream()
    stream.feed(b"x" * (MAX_EVENT - 1))
    with pytest.raises(BrokenReply, match="too long"):
        stream.feed(b"xx")


TEXTS = st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=8)


@settings(max_examples=150, deadline=None)
@given(
    texts=TEXTS,
    ascii_only=st.booleans(),
    end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    seed=st.integers(0, 2**32),
)
def test_any_text_in_any_pieces_comes_out_as_it_went_in(
    texts: list[str], ascii_only: bool, end: bytes, seed: int
) -> None:
    rng = random.Random(seed)
    texts = [t.encode("utf-8", "replace").decode() for t in texts]
    events = (
        b"".join(sse(json.dumps(chat(t), ensure_ascii=ascii_only).encode(), end) for t in texts)
        + sse(usage(len(texts)))
        + DONE
    )
    cuts = sorted(rng.randrange(len(events)) for _ in range(rng.randrange(12)))
    body = [events[a:b] for a, b in zip([0, *cuts], [*cuts, len(events)], strict=True) if a < b]
    raw = HEAD + chunked(*body)
    pieces = sorted(rng.randrange(len(raw)) for _ in range(rng.randrange(20)))
    check(
        Case(kind="chat", raw=raw, texts=texts, tokens=len(texts), prompt=7),
        [raw[a:b] for a, b in zip([0, *pieces], [*pieces, len(raw)], strict=True) if a < b],
    )


def test_fuzzed_bytes_never_crash_and_never_count_what_is_not_there() -> None:
    rng = random.Random(5)
    for _ in range(3_000):
        raw = bytearray(STREAM)
        for _ in range(rng.randrange(1, 6)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        cut = rng.randrange(len(raw))
        reply, broken = read(CASES["a plain stream"], [bytes(raw[:cut]), bytes(raw[cut:])])
        assert len(reply.times) <= 4  # the role's empty content may become a text
        assert broken or reply.http.complete


# Energy of a run: counters and power of a known curve, by NVML's library, DCGM's page, RAPL and a
# rack's PDU.


def test_joules_of_a_known_power_curve() -> None:
    """Watts that rise from 200 to 600 in 20 s: 8,000 J, and 7,900 J from a counter that began
    again; both exact to 1 %."""
    times = [round(1e9 * (0.3 + each)) for each in range(20)]
    watts = [(at, 'DCGM_FI_DEV_POWER_USAGE{gpu="0"}', 200 + 20 * at / 1e9) for at in times]
    assert joules(watts, GPU_WATTS, 20.0) == pytest.approx(8_000, rel=0.01)
    both = [*watts, *((at, 'DCGM_FI_DEV_POWER_USAGE{gpu="1"}', 100.0) for at in times)]
    assert joules(both, GPU_WATTS, 20.0) == pytest.approx(10_000, rel=0.01)
    counted = [
        (at, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1e3 * (200 * at / 1e9 + 10 * (at / 1e9) ** 2))
        for at in times
    ]
    assert joules(counted, GPU_COUNTERS, 20.0) == pytest.approx(8_000, rel=0.01)
    assert joules(counted[:1], GPU_COUNTERS, 20.0) is None
    began = [
        (at, name, value - counted[10][2] if at >= times[10] else value)
        for at, name, value in counted
    ]
    # what was counted between the two readings is lost
    assert joules(began, GPU_COUNTERS, 20.0) == pytest.approx(8_000, rel=0.07)


def test_energy_of_a_run_is_in_its_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "intel-rapl:0").mkdir()
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("5000000\n")
    monkeypatch.setattr("tonnage.bench.scrape.RAPL", tmp_path)
    assert host_joules() == {'rapl:energy_j{package="intel-rapl:0"}': 5.0}
    monkeypatch.setitem(sys.modules, "pynvml", library(gpus=1))
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.002)) as url:
        asked = {
            "concurrency": 2,
            "request_count": 20,
            "metrics_url": ["none"],
            "gpu_metrics": True,
        }
        (found,) = bench(
            url=url, model="m", isl=5, osl=5, selftest=False, output=tmp_path / "run", **asked
        )
    rows = pq.read_table(tmp_path / "run" / "server_metrics.parquet").to_pydict()
    assert all(-1e8 <= at < found.observed.seconds * 1e9 + 2e9 for at in rows["time_ns"])
    assert found.run_json["server_metrics"]['nvml:utilization_percent{gpu="0"}']["mean"] == 87
    energy = found.summary_json["energy"]
    seconds, tokens = (
        found.summary.window_s,
        found.summary.output_tokens_per_second * found.summary.window_s,
    )
    assert energy["mean_gpu_watts"] == pytest.approx(300, rel=0.01)
    assert energy["joules_per_output_token"] == pytest.approx(300 * seconds / tokens, rel=0.01)


class AmdFault(Exception):
    """What amdsmi raises."""


def amd_library(*, counter: bool = True) -> types.ModuleType:
    """A stand-in for ``amdsmi``: two GPUs of 250 and 500 W, the second of a generation that tells
    an average alone."""
    made = types.ModuleType("amdsmi")

    def energy(gpu: int) -> dict[str, float]:
        if not counter:
            raise AmdFault("not supported")
        joules = 250 * (gpu + 1) * time.monotonic()
        return {
            ("power", "energy_accumulator")[gpu]: round(joules * 1e6 / 15.3),
            "counter_resolution": 15.3,
        }

    def power(gpu: int) -> dict[str, object]:
        return {
            "current_socket_power": "N/A" if gpu else 250,
            "average_socket_power": 500 if gpu else "N/A",
        }

    for name, value in {
        "AmdSmiException": AmdFault,
        "amdsmi_init": lambda: None,
        "amdsmi_get_processor_handles": lambda: [0, 1],
        "amdsmi_get_gpu_asic_info": lambda gpu: {"market_name": "AMD Instinct MI300X"},
        "amdsmi_get_power_info": power,
        "amdsmi_get_gpu_activity": lambda gpu: {"gfx_activity": 90 if gpu else "N/A"},
        "amdsmi_get_gpu_vram_usage": lambda gpu: {"vram_used": 1024},
        "amdsmi_get_energy_count": energy,
    }.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize("counter", [True, False])
def test_amd_s_library_gives_the_joules_of_its_gpus(
    counter: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", amd_library(counter=counter))
    monkeypatch.setattr("tonnage.bench.scrape.AMD_DRIVER", tmp_path)
    found = DriverGpus().samples()
    assert found['amdsmi:power_w{gpu="1"}'] == 500
    assert found['amdsmi:memory_used_bytes{gpu="0"}'] == 2**30
    assert 'amdsmi:utilization_percent{gpu="0"}' not in found
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.002)) as url:
        asked = {
            "concurrency": 2,
            "request_count": 20,
            "metrics_url": ["none"],
            "gpu_metrics": True,
        }
        (run,) = bench(
            url=url, model="m", isl=5, osl=5, selftest=False, output=tmp_path / "run", **asked
        )
    energy = run.summary_json["energy"]
    assert energy["by"] == ("energy counters" if counter else "power read once a second")
    assert energy["joules_per_output_token"] == pytest.approx(
        750 * run.summary.window_s / 100, rel=0.01
    )
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    with pytest.raises(InputError, match="amdsmi"):
        DriverGpus()


def test_a_driver_that_fails_is_quoted_up_to_80_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = amd_library(counter=True)

    def failing() -> None:
        raise library.AmdSmiException("error 7: " + "0123456789" * 20)

    monkeypatch.setattr(library, "amdsmi_init", failing)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", library)
    monkeypatch.setattr("tonnage.bench.scrape.AMD_DRIVER", tmp_path)
    with pytest.raises(InputError, match=r"cannot be asked \(error 7: [0-9]{71}\); leave it out"):
        DriverGpus()


@pytest.mark.live
def test_joules_of_a_token_by_dcgm_s_page_are_those_of_the_power_curve(tmp_path: Path) -> None:
    """A GPU that draws 300 W and 10 W more every second, and a PDU that says twice as much."""
    began = time.time()

    def reply(path: str, headers: Message, data: bytes) -> tuple[int, bytes]:
        watts = 300 + 10 * (time.time() - began)
        return (
            200,
            f'DCGM_FI_DEV_POWER_USAGE{{gpu="0"}} {watts}\nrPDU2DeviceStatusPower{{ifIndex="1"}}'
            f" {2 * watts / 10}\n".encode(),
        )

    with answering(reply) as page, exact_server(Schedule(ttft_s=0.05, itl_s=0.01)) as url:
        asked = {
            "concurrency": 2,
            "request_count": 40,
            "metrics_url": [f"{page}/metrics"],
            "selftest": False,
        }
        (found,) = bench(url=url, model="m", isl=5, osl=10, output=tmp_path / "run", **asked)
    run = json.loads((tmp_path / "run/run.json").read_text())
    seconds, energy = found.summary.window_s, found.summary_json["energy"]
    middle = run["load"]["started_unix_ns"] / 1e9 - began + seconds / 2
    assert energy["by"] == "power read once a second"
    assert energy["joules_per_output_token"] == pytest.approx(
        (300 + 10 * middle) * seconds / 400, rel=0.01
    )
    assert energy["pdu_joules"] == pytest.approx(2 * energy["gpu_joules"], rel=0.001)
