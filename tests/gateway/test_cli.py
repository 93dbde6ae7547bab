"""The command: what it refuses, and that it starts, serves and ends."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import sys

import pytest

from tonnage import api
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.cli.main import run

BAD = {
    "no backend": ([], "--backend"),
    "unknown policy": (["--backend", "127.0.0.1:1", "--policy", "round-robbin"], "round-robin"),
    "a path": (["--backend", "http://a:1/v1"], "path"),
    "another scheme": (["--backend", "ftp://a"], "--backend"),
    "no weight": (["--backend", "http://a:1=heavy"], "heavy"),
    "weight 0": (["--backend", "http://a:1=0"], "weight"),
    "twice": (["--backend", "a:1", "--backend", "http://a:1"], "twice"),
    "no requests": (["--backend", "a:1", "--max-in-flight", "0"], "--max-in-flight"),
    "no time": (["--backend", "a:1", "--idle-timeout", "nan"], "--idle-timeout"),
    "no port": (["--backend", "a:1", "--port", "70000"], "--port"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags, said = BAD[case]
    assert run(["gateway", *flags]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert said in printed.err


def test_addresses_and_weights_are_read() -> None:
    settings = api.gateway_settings(backends=["127.0.0.1:8001", "http://b:8002=2.5"])
    assert [(target.authority, weight) for target, weight in settings.backends] == [("127.0.0.1:8001", 1.0), ("b:8002", 2.5)]
    assert settings.host == "127.0.0.1"


def test_the_command_serves_says_when_its_port_is_taken_and_ends_when_it_is_told_to() -> None:
    with exact_server(Schedule(ttft_s=0.0, itl_s=0.001), seconds=60) as url:
        command = [sys.executable, "-m", "tonnage", "gateway", "--backend", url, "--port"]
        process = subprocess.Popen([*command, "0"], stderr=subprocess.PIPE, text=True)
        try:
            line = process.stderr.readline() if process.stderr else ""
            found = re.fullmatch(r"tonnage: least-outstanding before 1 backend, 1 up, on http://127\.0\.0\.1:(\d+)/v1\n", line)
            assert found, line
            connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=10)
            connection.request("POST", "/v1/completions", b'{"prompt": "a b", "max_tokens": 5}')
            assert connection.getresponse().read().count(b"tok") == 5 + 3  # the words, and three counts of them in the usage
            connection.close()
            second = subprocess.run([*command, found[1]], capture_output=True, text=True, check=False, timeout=20)
            assert second.returncode == 2
            assert "cannot listen" in second.stderr
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=10) == 0
        finally:
            process.kill()
            process.wait()
            if process.stderr:
                process.stderr.close()
