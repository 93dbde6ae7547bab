"""A run folder that several files of tests read."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.cli_cases import ASKED
from tests.bench.exact_runs import FAST
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.cli.main import run


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with every export: 60 requests of 8 tokens, two an event, every tenth
    refused."""
    folder = tmp_path_factory.mktemp("exports") / "run"
    exports = [flag for name in ("genai-perf", "aiperf", "vllm") for flag in ("--export", name)]
    schedule = Schedule(ttft_s=0.01, itl_s=0.004, tokens_per_event=2, fault="500", fault_every=10)
    with exact_server(schedule, seconds=60) as url:
        load = [
            "--concurrency",
            "4",
            "--request-count",
            "60",
            "--osl",
            "8",
            "--artifact-dir",
            str(folder),
        ]
        assert run([*ASKED[:-3], "--no-selftest", "--url", url, *load, *exports]) == 3
    return folder


@pytest.fixture(scope="module")
def fast() -> Iterator[str]:
    with exact_server(FAST, seconds=200) as url:
        yield url


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        server, _ = listening.accept()
        with server:
            client.setblocking(False)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield client, server
