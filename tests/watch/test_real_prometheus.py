"""Two weeks of a simulated engine in a real Prometheus, against the requests that were sent: ten
minutes.

A millisecond of the machine's clock is two seconds of the engine's, so that how the test machine is
late looks like bursts. Both sides are therefore sized with Poisson arrivals, four thousand times as
many as were sent."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from tests.watch.served_weeks import DAY, HOUR, scraped, weeks
from tonnage import size
from tonnage.api.bench import bench
from tonnage.api.compare import fit_history, is_history, read_history
from tonnage.spec.recording import Recording
from tonnage.testing import simulated_engine
from tonnage.watch.drift import Server
from tonnage.workload.history import history_of_requests

PROGRAM = os.environ.get("TONNAGE_PROMETHEUS") or shutil.which("prometheus")
DAYS, MINUTES, MODEL = 14, 10, "llama-3.1-8b"
SPEED = DAYS * DAY / (60 * MINUTES)


@pytest.mark.engines
@pytest.mark.skipif(
    PROGRAM is None,
    reason="no prometheus on this machine: apt-get install prometheus, or TONNAGE_PROMETHEUS=path",
)
def test_a_history_says_what_was_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = weeks(days=DAYS, a_day=2_000, growth_per_day=0.03)
    made.write(tmp_path / "trace.csv", SPEED)
    monday = (math.floor((time.time() / DAY + 3) / 7) * 7 - 3 - 7 * 3) * DAY
    with (
        simulated_engine(model=MODEL, speed=SPEED) as engine,
        scraped(
            str(PROGRAM), engine, folder=tmp_path, began=monday, speed=SPEED, every_s=600 / SPEED
        ) as prometheus,
    ):
        clock = time.time_ns()
        asked = {
            "trace": str(tmp_path / "trace.csv"),
            "streaming": False,
            "metrics_url": ["none"],
            "selftest": False,
        }
        bench(url=engine, model=MODEL, output=tmp_path / "run", **asked)
        began = json.loads((tmp_path / "run/run.json").read_text())["load"]["started_unix_ns"]
        shift = (began - clock) / 1e9 * SPEED
        time.sleep(2)
        end = HOUR * math.ceil((monday + shift + DAYS * DAY) / HOUR) + HOUR
        answers = Server(prometheus).read(DAYS * DAY, until=end)
    source = tmp_path / "history.jsonl"
    source.write_text("".join(json.dumps(one) + "\n" for one in answers))
    assert is_history(str(source))
    seen = fit_history(read_history(str(source)), tmp_path / "seen.yaml", model=MODEL)
    due = monday + shift + made.due
    recording = Recording(
        due_ns=tuple(round(1e9 * (one - due[0])) for one in due),
        isl=tuple(made.isl.tolist()),
        osl=tuple(made.osl.tolist()),
        began_ns=round(1e9 * due[0]),
        source="true",
    )
    true = fit_history(history_of_requests(recording), tmp_path / "true.yaml", model=MODEL)

    hours = seen.history.seen
    first = seen.history.start_s + HOUR * np.flatnonzero(hours)[0]
    sent = int(((due >= first) & (due < seen.history.end_s)).sum())
    rate = seen.mean_rps * hours.sum() * HOUR / sent
    isl, osl = seen.isl.mean / true.isl.mean, seen.osl.mean / true.osl.mean
    assert true.growth is not None
    breaks = [
        one.growth.until(1.5 * true.peak_rps / one.peak_rps)[0]
        for one in (seen, true)
        if one.growth is not None
    ]
    search = {
        "gpu": "l40s",
        "system": "1xl40s",
        "tp": 1,
        "engine": "vllm",
        "precision": "fp8",
        "ttft": "p95<=1s",
    }
    plans = []
    for one in (seen, true):
        asked = one.scenario.lengths
        lengths = {
            side: (
                str(tmp_path / text)
                if (text := str(getattr(asked, side))).endswith(".csv")
                else text
            )
            for side in ("isl", "osl")
        }
        plans.append(
            size(
                model=MODEL,
                profile=list(one.profile),
                mean_rps=4_000 * float(np.mean(one.profile)),
                **lengths,
                **search,
            )
        )
    systems = [plan.choice.systems for plan in plans if plan.choice is not None]
    with capsys.disabled():
        print(
            f"\nrate {rate:.4f}, mean lengths {isl:.4f} and {osl:.4f} of the true, systems"
            f" {systems}, breaks in {breaks} days"
        )
    assert rate == pytest.approx(1, rel=0.02)
    assert isl == pytest.approx(1, rel=0.03)
    assert osl == pytest.approx(1, rel=0.03)
    for one, lengths in ((seen.isl, made.isl), (seen.osl, made.osl)):
        assert one.p95[0] <= np.percentile(lengths, 95) <= one.p95[1]
    assert systems[0] > 3
    assert abs(systems[0] - systems[1]) <= 1
    assert abs(breaks[0] - breaks[1]) <= 2
    assert abs(seen.growth.per_day - 0.03) < 0.005
