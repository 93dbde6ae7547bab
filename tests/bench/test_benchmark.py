"""One load, from the question to the run folder: interrupted, or on a full disk."""

from __future__ import annotations

import errno
import json
import math
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from tests.bench.cli_cases import ASKED
from tests.bench.live import question, run
from tests.bench.records import MS, SEEN, judged
from tonnage.bench import measure
from tonnage.bench.benchmark import (
    NOT_JUDGED,
    Measured,
    Wanted,
    _exchange,
    _run_json,
    benchmark,
    write_imported,
)
from tonnage.bench.connection import Setup, Target
from tonnage.bench.conversations import TurnLog
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.load import Load
from tonnage.bench.measure import Observed
from tonnage.bench.prompts import prompts
from tonnage.bench.recorder import Tally
from tonnage.bench.steady import DEFINITIONS
from tonnage.bench.tiers import Tier
from tonnage.cli.main import run as command
from tonnage.formats.table import NoneCompleted
from tonnage.formats.tool_format import ImportedRequest, ImportedRun
from tonnage.results.metrics import summarize
from tonnage.results.store import Batch, read_run
from tonnage.spec.deployment import parse_limit
from tonnage.spec.workload import ClosedLoop, OpenLoop


@pytest.mark.parametrize(
    "arrivals", [ClosedLoop(concurrency=2), OpenLoop(rate=50.0)], ids=["clients", "rate"]
)
def test_ctrl_c_in_the_warm_up_ends_the_run_before_its_first_request(
    arrivals: ClosedLoop | OpenLoop, fast: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object) -> bool:
        return False

    monkeypatch.setattr(measure, "_warm_up", interrupted)
    assert len(run(fast, tmp_path / "run", question(arrivals), warmup=8).requests) == 0


def test_figures_are_kept_where_the_disk_is_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", full)
    load = [
        "--concurrency",
        "4",
        "--request-count",
        "20",
        "--artifact-dir",
        str(tmp_path / "run"),
        "--json",
    ]
    with exact_server(Schedule(ttft_s=0.01, itl_s=0.002), seconds=60) as url:
        code = command([*ASKED, "--url", url, *load])
    out, err = capsys.readouterr()
    said = json.loads(out)
    assert code == 1
    assert (said["requests"]["completed"], said["errors"]) == (20, 0)
    assert said["ttft_ms"]["mean"] > 10
    assert (
        f"run: cannot be written ({os.strerror(errno.ENOSPC)}); its figures are those above" in err
    )
    assert not list(tmp_path.iterdir())


REQUESTS = 60
SETUP = Setup(
    target=Target(host="h", port=1),
    endpoint=find_endpoint("chat", model="m", extra={"a": 1}, omitted=("b",)),
    prompts=prompts(seed=0, tokenizer=None),
    head=b"",
    headers=("X-Team",),
)


def seen(load: Load, **further: Any) -> Observed:
    """A run of sixty requests as it was observed."""
    tally = Tally(
        outcomes=Counter({"": REQUESTS, "HTTP 500": 3, "cut off": 1}),
        sources=Counter({"server": REQUESTS}),
        shared=2,
        finishes=Counter({"stop": REQUESTS}),
        tokens=300,
        events=150,
        hidden=7,
        osl_off=4,
        isl_extra=30,
        prompt_counts=60,
        examples=[{"id": 3, "outcome": "HTTP 500", "detail": "no"}],
    )
    observed = replace(SEEN, load=load, tally=tally, endpoint=SETUP.endpoint, held=5, waits=6)
    return replace(observed, cpu_s=0.6, retries=2, started_unix_ns=9, **further)


def batch() -> Batch:
    """Sixty requests due every 10 ms, of 100 ms each; five tokens at 50, 60, 70, 80 and 100 ms."""
    due = np.arange(REQUESTS) * 10 * MS
    fixed = (10, 5, 0, 0, 0, 0)
    columns = [due, due, due + 50 * MS, due + 100 * MS, *(due * 0 + value for value in fixed)]
    moments = np.tile(np.array([50, 60, 70, 80, 100]) * MS, REQUESTS)
    return Batch(
        rows=np.stack(columns, axis=1).astype(np.int64),
        offsets_ns=moments,
        lengths=np.full(REQUESTS, 5),
    )


def benchmarked(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    report_options: Wanted,
    *,
    load: Load | None = None,
    keep: bool = True,
    metrics: Any = None,
    workers: int = 1,
    fault: str = "",
    setup: Setup = SETUP,
    **observed: Any,
) -> tuple[Measured, list[Any]]:
    """What a load became, and how it was measured."""
    sent = load or Load(isl=np.full(60, 10), osl=np.full(60, 5), concurrency=10)
    calls: list[Any] = []

    def measuring(name: str) -> Callable[..., Observed]:
        def play(setup: Setup, load: Load, writer: Any, **further: Any) -> Observed:
            calls.append((name, load is sent, further))
            writer.add(batch())
            writer.fault = fault
            return seen(load, **observed)

        return play

    monkeypatch.setattr("tonnage.bench.benchmark.measure", measuring("one"))
    monkeypatch.setattr("tonnage.bench.benchmark.measure_by_workers", measuring("several"))
    measured = benchmark(
        replace(setup, workers=workers),
        sent,
        directory=folder,
        keep=keep,
        report_options=report_options,
        facts={"self_test": None},
        scenario={"model": "m"},
        provenance={"who": "me"},
        watchers=("watcher",),  # type: ignore[arg-type]
        metrics=metrics,
    )
    return measured, calls


def test_a_load_of_clients_becomes_a_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, calls = benchmarked(monkeypatch, tmp_path / "run", Wanted(), load=None)
    assert calls == [("one", True, {"watchers": ["watcher"]})]
    run = measured.run_json
    assert list(run) == [
        *("validity", "load", "client", "tokens", "endpoint", "failures", "self_test"),
        *("intervals", "trends", "other_definitions", "steady"),
    ]
    assert run["load"] == {
        "kind": "closed",
        "concurrency": 10,
        "request_rate": None,
        "in_flight": None,
        "held": 5,
        "pattern": "closed",
        "sent": 600,
        "started_unix_ns": 9,
        "seconds": 6.0,
    }
    assert run["client"] == {
        "workers": 1,
        "cpu_s": 0.6,
        "cpu_us_per_token": pytest.approx(2_000.0),
        "cpu_share": 0.3,
        "connections": 10,
        "retries": 2,
    }
    assert run["tokens"] == {
        "counted_by": {"server": 60},
        "events": 150,
        "split_estimated": 2,
        "outputs_of_another_length": 4,
        "hidden": 7,
        "finish_reasons": {"stop": 60},
        "prompts": "4 characters a token, not counted",
        "prompt_tokens_beyond_asked": 0.5,
    }
    assert run["endpoint"] == {
        "type": "chat",
        "model": "m",
        "streaming": True,
        "output_pinned": True,
        "further_fields": {"a": 1},
        "omitted_fields": ["b"],
        "further_headers": ["X-Team"],
    }
    assert run["failures"] == [{"id": 3, "outcome": "HTTP 500", "detail": "no"}]
    assert (run["self_test"], run["intervals"]["confidence"]) == (None, 0.95)
    assert run["trends"]["definitions"] == DEFINITIONS
    assert run["validity"] == measured.validity.to_json()
    # the run is an odd one: it failed too often, and sixty are few for p99
    assert measured.validity.verdict == "INVALID"
    summary = measured.summary_json
    assert summary == {
        **summarize(measured.requests).to_json(),
        "errors": 4,
        "errors_by_kind": {"HTTP 500": 3, "cut off": 1},
        "validity": {"verdict": "INVALID", "reasons": list(measured.validity.reasons)},
    }
    assert (measured.good, measured.unwritten, len(measured.requests)) == ((), "", 60)
    assert measured.to_json() == {**summary, **run}
    # every token of an event of its own: gaps of 10, 10, 10 and 20 ms
    assert run["steady"]["itl_ms"]["mean"] == pytest.approx(12.5)
    assert run["other_definitions"]["gap_by_event_ms"]["mean"] == pytest.approx(12.5)
    assert "itl_ms" in run["intervals"]
    written = json.loads((tmp_path / "run" / "run.json").read_text())
    assert written["client"] == run["client"]
    assert (tmp_path / "run" / "tokens.parquet").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


class Metrics:
    """A scraper that has read some pages."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def summary(self) -> dict[str, Any]:
        return {"a": 1}

    def write(self, path: Path) -> None:
        path.write_text("metrics")

    def energy(self, seconds: float, tokens: int) -> dict[str, Any]:
        self.asked.append((seconds, tokens))
        return {"gpu_joules": 5.0}


def test_what_is_wanted_of_a_run_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open loop, limits, a tier, a price, metrics, conversations; no single tokens."""
    metrics, priced = Metrics(), list[Any]()
    wanted = Wanted(
        percentiles=(99,),
        error_rate=0.2,
        slo=(parse_limit("e2e", "p95<=1s"),),
        tokens=False,
        tiers=(Tier(tokens_per_second=1.0, ttft_s=9.0),),
        priced=lambda summary: priced.append(summary) or {"usd": 3},
    )
    log = TurnLog(conversation=np.repeat([0, 1], 30), turn=np.tile([0, 1], 30))
    load = Load(
        isl=np.full(60, 10),
        osl=np.full(60, 5),
        due_ns=np.arange(60) * 10 * MS,
        concurrency=0,
        rate=100.0,
        in_flight=3,
        pattern="poisson",
    )
    kept = tmp_path / "run"
    measured, calls = benchmarked(
        monkeypatch, kept, wanted, load=load, metrics=metrics, turns=log, sent=60
    )
    assert calls == [("one", True, {"watchers": ["watcher", metrics]})]
    run = measured.run_json
    assert {name: run["load"][name] for name in ("kind", "concurrency", "request_rate")} == {
        "kind": "open",
        "concurrency": None,
        "request_rate": 100.0,
    }
    assert (run["load"]["in_flight"], run["load"]["pattern"]) == (3, "poisson")
    # whose latencies are those of a closed loop's clients alone
    assert not {"tiers", "other_definitions"} & set(run)
    assert "itl_ms" not in run["intervals"]
    assert run["cost"] == {"usd": 3}
    assert priced == [measured.summary]
    assert run["goodput"] == [measured.good[0].to_json()]
    assert measured.good[0].share == 1.0
    assert run["server_metrics"] == {"a": 1}
    assert (kept / "server_metrics.parquet").read_text() == "metrics"
    assert run["conversations"]["conversations"] == 2
    turns = pq.read_table(kept / "turns.parquet").to_pydict()
    assert turns == {
        "id": list(range(60)),
        "conversation": [0] * 30 + [1] * 30,
        "turn": [0, 1] * 30,
    }
    [(seconds, tokens)] = metrics.asked
    assert (seconds, tokens) == (pytest.approx(0.69), 300)
    assert measured.summary_json["energy"] == {"gpu_joules": 5.0}
    assert measured.validity.reasons == (
        "p99 was asked for and needs 459 completed requests, there were 60",
    )
    assert not (kept / "tokens.parquet").exists()
    assert "itl_ms" not in run["steady"]


def test_several_workers_measure_and_a_run_that_is_not_kept_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = Tier(tokens_per_second=1.0, ttft_s=9.0)
    metrics = Metrics()
    metrics.energy = lambda *_: {}  # type: ignore[method-assign]
    measured, calls = benchmarked(
        monkeypatch,
        tmp_path / "run",
        Wanted(tiers=(tier,)),
        keep=False,
        metrics=metrics,
        workers=3,
    )
    assert calls == [("several", True, {"metrics": metrics})]
    assert measured.run_json["client"]["workers"] == 3
    assert measured.run_json["tiers"]["users"] == 10
    assert "energy" not in measured.summary_json
    assert list(tmp_path.iterdir()) == []
    assert measured.unwritten == ""


@pytest.mark.parametrize("keep", [True, False])
def test_a_folder_that_cannot_be_written_is_said_where_it_was_wanted(
    keep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, _ = benchmarked(monkeypatch, tmp_path / "run", Wanted(), keep=keep, fault="no space")
    words = f"{tmp_path / 'run'}: cannot be written (no space); its figures are those above"
    assert measured.unwritten == (words if keep else "")
    assert list(tmp_path.iterdir()) == []
    assert len(measured.requests) == 60
    assert "other_definitions" not in measured.run_json


def test_a_run_without_tokens_has_no_figure_of_one() -> None:
    observed = replace(seen(Load(isl=np.zeros(0), osl=np.zeros(0))), tally=Tally())
    counter: Any = SimpleNamespace(count=len)
    setup = replace(SETUP, prompts=replace(SETUP.prompts, counter=counter))
    run = _run_json(setup, observed, judged(), {})
    assert run["client"]["cpu_us_per_token"] is None
    assert run["tokens"]["prompt_tokens_beyond_asked"] is None
    assert run["tokens"]["prompts"] == "tokens of the tokenizer given"
    assert (run["load"]["kind"], run["load"]["concurrency"]) == ("open", None)
    assert (run["load"]["request_rate"], run["failures"]) == (None, [])


@pytest.mark.parametrize(
    ("changed", "sizes", "tokens"),
    [
        ({}, [4, 4, 4], 4),
        ({"single": False}, [1, 3], 4),
        ({"single": False, "events_ns": (30,)}, [4], 4),
        ({"events_ns": (), "outcome": "x"}, [], 4),
        ({"single": False, "osl": 1}, [1, 1], 1),
        ({"osl": 0}, [1, 1, 1], 0),
    ],
)
def test_a_request_of_another_tool_is_as_if_it_had_just_come_back(
    changed: dict[str, Any], sizes: list[int], tokens: int
) -> None:
    usual = {"due_ns": 10, "sent_ns": 12, "events_ns": (20, 25, 30), "isl": 7, "osl": 4}
    request = ImportedRequest(**{**usual, **changed})
    made = _exchange(3, request)
    assert (made.number, made.isl, made.osl) == (3, 7, tokens)
    assert (made.due_ns, made.begun_ns, made.sent_ns) == (10, 12, 12)
    assert (made.outcome, made.streamed) == (request.outcome, True)
    assert (made.reply.times, made.reply.prompt) == (list(request.events_ns), 7)
    count = 2 if "single" in changed and len(request.events_ns) > 1 else len(request.events_ns)
    assert (made.reply.sizes[:count], made.reply.tokens) == (sizes, tokens)
    assert made.reply.last_ns == (30 if request.events_ns else -1)


def imported(*requests: ImportedRequest, **further: Any) -> ImportedRun:
    usual: dict[str, Any] = {"tool": "t", "model": "m", "concurrency": 4, "rate": 0.0}
    return ImportedRun(**{**usual, **further}, requests=requests)


def one(due_ms: int, **changed: Any) -> ImportedRequest:
    """A request due then, sent 1 ms later, with tokens 10 and 20 ms after that."""
    events = tuple((due_ms + k) * MS for k in (11, 21))
    usual = {"due_ns": due_ms * MS, "sent_ns": (due_ms + 1) * MS, "events_ns": events}
    return ImportedRequest(**{**usual, "isl": 7, "osl": 2, **changed})


@pytest.mark.parametrize("single", [True, False])
def test_a_run_of_another_tool_becomes_a_run_folder(single: bool, tmp_path: Path) -> None:
    requests = [
        one(1_005, single=single),
        one(1_000, single=single),
        one(1_010, outcome="no"),
        one(1_020, events_ns=()),
    ]
    rate, concurrency = (5.0, 0) if single else (0.0, 4)
    summary, run = write_imported(
        imported(
            *requests,
            rate=rate,
            concurrency=concurrency,
            left_out=Counter({"no start": 2}),
            remarks=["r"],
            model="m" if single else "",
        ),
        tmp_path / "run",
        source="f.json",
        provenance={"who": "me"},
    )
    assert summary.requests == {"completed": 2, "rejected": 0, "unfinished": 0, "failed": 1}
    assert run["imported"] == {
        "tool": "t",
        "file": "f.json",
        "single_tokens": single,
        "left_out": {"no start": 2, "no end": 1},
        "failed": {"no": 1},
        "remarks": ["r"],
    }
    assert run["validity"] == {
        "verdict": "NOT JUDGED",
        "reasons": [NOT_JUDGED],
        "steady": {"found": None, "drift": pytest.approx(math.nan, nan_ok=True)},
    }
    assert run["load"] == {
        "concurrency": None if single else 4,
        "request_rate": 5.0 if single else None,
        "started_unix_ns": 1_000 * MS,
    }
    assert run["endpoint"] == {"type": None, "model": "m" if single else "", "streaming": True}
    assert run["intervals"]["confidence"] == 0.95
    assert ("other_definitions" in run) == single
    record = read_run(tmp_path / "run")
    assert record.requests.due_ns.tolist() == [5 * MS, 0, 10 * MS]
    assert record.requests.last_token_ns.tolist() == [26 * MS, 21 * MS, -1]
    assert int(record.requests.gaps.sum()) == (2 if single else 0)
    scenario = yaml.safe_load((tmp_path / "run" / "scenario.yaml").read_text())
    assert scenario == {
        **dict.fromkeys(("gpu", "precision", "tp", "engine")),
        "imported": "t",
        "model": "m" if single else None,
        "requests": 3,
        "arrivals": {"rate": 5.0} if single else {"concurrency": 4},
    }
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (written["errors"], written["errors_by_kind"]) == (1, {"no": 1})
    assert written["validity"] == {"verdict": "NOT JUDGED", "reasons": [NOT_JUDGED]}


def test_a_run_in_which_nothing_completed_is_none(tmp_path: Path) -> None:
    for requests in ([one(1, outcome="no"), one(2, events_ns=()), one(3, events_ns=())], []):
        why = "2 no end, 1 no" if requests else ""
        with pytest.raises(NoneCompleted, match=rf"f: no completed request .* \({why}\)"):
            write_imported(imported(*requests), tmp_path / "run", source="f", provenance={})
        assert list(tmp_path.iterdir()) == []
