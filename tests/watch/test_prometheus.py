"""Queries of a Prometheus server, by a stand-in that answers a day of requests a second; ``test_real_prometheus.py`` asks a real one."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest

from tests.workload.test_history import MONDAY, answer, series
from tonnage.api.history import read_history
from tonnage.cli.main import run
from tonnage.watch.drift import Server

COUNT = "vllm:e2e_request_latency_seconds_count"
DAY = 86_400.0


class Stand(http.server.BaseHTTPRequestHandler):
    """One request a second, of 600 and 40 tokens, on two instances; scraped every 30 s."""

    asked: list[tuple[str, str]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        query, start, end, step = form["query"], *(float(form[name]) for name in ("start", "end", "step"))
        self.asked.append((query, self.headers.get("Authorization", "")))
        wrong = 'pod="none"' in query
        found = {"status": "error", "data": None, "error": "parse error"} if wrong else answer(list(self.rows(query, start, end, step)))
        data = json.dumps(found).encode()
        self.send_response(400 if wrong else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def rows(self, query: str, start: float, end: float, step: float) -> Iterator[dict[str, Any]]:
        times = np.arange(start, end + 1, step)
        named = re.search(r'"__name__", "([^"]+)", "", ""\)$', query)
        if query.startswith("count by (__name__)"):
            yield series(COUNT, times, np.full(times.size, 2.0))
        elif named is None:
            assert query == f'{{__name__="{COUNT}",model_name="llama"}}'
            yield from (series(COUNT, times, (times - MONDAY) / 2, pod=pod) for pod in "ab")
        elif named[1] == "often":
            yield series("often", times, np.full(times.size, 120.0))
        elif "prompt_tokens" in named[1] or "generation_tokens" in named[1]:
            tokens = 600 if "prompt" in named[1] else 40
            if "_bucket" in named[1]:
                bounds = (("500.0", 500), ("1000.0", 1_000), ("+Inf", 1e9))
                yield from (series(named[1], times, np.full(times.size, 3_600.0 * (bound >= tokens)), le=le) for le, bound in bounds)
            else:
                yield series(named[1], times, np.full(times.size, 3_600.0 * tokens))

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    Stand.asked = []
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stand)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{made.server_port}"
    made.shutdown()
    made.server_close()


def test_a_day_is_read_by_the_hour(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.watch.drift.time.time", lambda: MONDAY + 2 * DAY + 100)
    found = read_history(f"http://me:pass@{server}", range="1d", select='model_name="llama"', save=tmp_path / "history.jsonl")
    assert found.at(0).isoformat() == "2026-10-27T00:00:00+00:00"
    assert found.source == f"http://{server}"  # without the password
    assert found.requests == pytest.approx(np.full(24, 3_600.0))
    assert (found.fine_s, set(found.instances), found.mean("isl"), found.mean("osl")) == (60.0, {2.0}, 600, 40)
    assert {header for _, header in Stand.asked} == {"Basic bWU6cGFzcw=="}
    assert all('model_name="llama"' in query for query, _ in Stand.asked)
    again = read_history(str(tmp_path / "history.jsonl"))
    assert again.requests == pytest.approx(found.requests)


def test_more_points_than_an_answer_holds_are_asked_for_in_parts(server: str) -> None:
    answers = Server(f"http://{server}", select='model_name="llama"').read(10 * DAY, until=MONDAY + 20 * DAY)
    sizes = [len(one["data"]["result"][0]["values"]) for one in answers[:2]]
    assert sizes == [10_001, 4_401]


def test_what_the_server_refuses_and_no_server_are_one_line(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["workload", "from-prometheus", f"http://{server}", "--select", 'pod="none"']) == 2
    assert "answers 400 to count by (__name__)" in capsys.readouterr().err
    assert run(["workload", "from-prometheus", "http://127.0.0.1:9"]) == 1
    assert "no answer of a Prometheus" in capsys.readouterr().err
    assert run(["workload", "from-prometheus", f"http://{server}", "--header", "nothing"]) == 2
    assert "is no header; write such as" in capsys.readouterr().err
    assert run(["workload", "from-prometheus", f"http://{server}", "--forecast", "6mo"]) == 2
    assert "needs the systems of a plan" in capsys.readouterr().err
