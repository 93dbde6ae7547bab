"""``tonnage ui`` as the docs have it: started, asked by curl, and left in the middle of an
answer."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shlex
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from tests.page.served import base_of
from tonnage.cli.main import run
from tonnage.serve.bounded_headers import HEADER_S

PAGE = Path(__file__).parents[2] / "docs" / "ui.md"


@pytest.fixture
def base(address: str) -> str:
    return base_of(address)


@pytest.mark.live
def test_curl_of_the_docs_gets_a_plan(base: str) -> None:
    commands = re.findall(r"^curl .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert commands
    for command in commands:
        words = [word.replace("http://127.0.0.1:8000", base) for word in shlex.split(command)]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
        assert json.loads(done.stdout)["schema"].startswith("tonnage-plan/")


def test_a_client_that_leaves_ends_its_job(base: str) -> None:
    whole = f"{base}/size/stream?model=llama-3.1-70b&isl=4000&osl=1000&peak_rps=2000&ttft=p95<=900ms&itl=p99<=60ms"
    with urllib.request.urlopen(whole, timeout=60) as answer:
        assert answer.readline() == b"event: progress\n"
    body = json.dumps(
        {"model": "llama-3.1-8b", "isl": 100, "osl": 10, "concurrency": 1, "requests": 10}
    ).encode()
    with urllib.request.urlopen(f"{base}/api/v1/simulate", data=body, timeout=120) as answer:
        assert json.load(answer)["model"] == "llama-3.1-8b"


def test_a_port_that_is_taken_is_one_line(
    base: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["ui", str(tmp_path), "--port", base.rsplit(":", 1)[-1]]) == 2
    assert "--port: cannot listen on 127.0.0.1:" in capsys.readouterr().err


@pytest.mark.live
def test_a_header_that_drips_is_given_up(base: str) -> None:
    with socket.create_connection(("127.0.0.1", int(base.rpartition(":")[2])), timeout=60) as slow:
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for sign in itertools.chain(b"GET / HTTP/1.1\r\nX: ", itertools.repeat(ord("x"))):
                slow.sendall(bytes([sign]))
                slow.settimeout(0.5)
                with contextlib.suppress(TimeoutError):
                    if not slow.recv(1_000):
                        break
        assert HEADER_S - 1 < time.monotonic() - began < HEADER_S + 10
