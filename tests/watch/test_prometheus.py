"""Queries of a Prometheus server, by a stand-in that answers a day of requests a second;
``test_real_prometheus.py`` asks a real one."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest

from tests.answering import answering
from tests.workload.prometheus_history import MONDAY, answer, series
from tonnage.api.compare import read_history
from tonnage.cli.main import run
from tonnage.watch import settings
from tonnage.watch.drift import Server

COUNT = "vllm:e2e_request_latency_seconds_count"
DAY = 86_400.0


class Stand:
    """One request a second, of 600 and 40 tokens, on two instances; scraped every 30 s."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[tuple[str, str]] = []

    def reply(self, path: str, headers: Message, data: bytes) -> tuple[int, bytes]:
        form = {name: values[0] for name, values in parse_qs(data.decode()).items()}
        query, start, end, step = (
            form["query"],
            *(float(form[name]) for name in ("start", "end", "step")),
        )
        self.asked.append((query, headers.get("Authorization", "")))
        wrong = 'pod="none"' in query
        found = (
            {"status": "error", "data": None, "error": "parse error"}
            if wrong
            else answer(list(self.rows(query, start, end, step)))
        )
        return 400 if wrong else 200, json.dumps(found).encode()

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
                yield from (
                    series(named[1], times, np.full(times.size, 3_600.0 * (bound >= tokens)), le=le)
                    for le, bound in bounds
                )
            else:
                yield series(named[1], times, np.full(times.size, 3_600.0 * tokens))


@pytest.fixture
def server() -> Iterator[Stand]:
    made = Stand()
    with answering(made.reply) as made.url:
        yield made


def test_a_day_is_read_by_the_hour(
    server: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tonnage.watch.drift.time.time", lambda: MONDAY + 2 * DAY + 100)
    found = read_history(
        server.url.replace("//", "//me:pass@"),
        range="1d",
        select='model_name="llama"',
        save=tmp_path / "history.jsonl",
    )
    assert found.at(0).isoformat() == "2026-10-27T00:00:00+00:00"
    assert found.source == server.url  # without the password
    assert found.requests == pytest.approx(np.full(24, 3_600.0))
    assert (found.fine_s, set(found.instances), found.mean("isl"), found.mean("osl")) == (
        60.0,
        {2.0},
        600,
        40,
    )
    assert {header for _, header in server.asked} == {"Basic bWU6cGFzcw=="}
    assert all('model_name="llama"' in query for query, _ in server.asked)
    again = read_history(str(tmp_path / "history.jsonl"))
    assert again.requests == pytest.approx(found.requests)


def test_more_points_than_an_answer_holds_are_asked_for_in_parts(server: Stand) -> None:
    answers = Server(server.url, select='model_name="llama"').read(
        10 * DAY, until=MONDAY + 20 * DAY
    )
    sizes = [len(one["data"]["result"][0]["values"]) for one in answers[:2]]
    assert sizes == [10_001, 4_401]


def test_what_the_server_refuses_and_no_server_are_one_line(
    server: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["workload", "from-prometheus", server.url, "--select", 'pod="none"']) == 2
    assert "answers 400 to count by (__name__)" in capsys.readouterr().err
    assert run(["workload", "from-prometheus", "http://127.0.0.1:9"]) == 1
    assert "no answer of a Prometheus" in capsys.readouterr().err
    assert run(["workload", "from-prometheus", server.url, "--header", "nothing"]) == 2
    assert "is no header; write such as" in capsys.readouterr().err
    assert run(["workload", "from-prometheus", server.url, "--forecast", "6mo"]) == 2
    assert "needs the systems of a plan" in capsys.readouterr().err


class Deep(http.server.BaseHTTPRequestHandler):
    """A server whose answers are nested too deeply, or hold a number of thousands of digits."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(
            b"[" * 100_000
            if self.path != "/digits"
            else b'{"version": "' + b"9" * 5_000 + b'", "n": ' + b"9" * 5_000 + b"}"
        )

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


def test_answers_that_are_too_deep_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Deep) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert run(["workload", "from-prometheus", url]) == 1
        assert "no answer of a Prometheus" in capsys.readouterr().err
        assert settings._json(f"{url}/deep") == settings._json(f"{url}/digits") == {}
        server.shutdown()
    assert settings._plain("9" * 5_000) == "9" * 5_000
