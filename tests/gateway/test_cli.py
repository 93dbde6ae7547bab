"""The command: what it refuses, and that it starts, serves and ends."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.failing import CLIENTS, fail_one
from tests.gateway.fakes import asked, before, fine, post, until
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
def test_bad_input_is_one_line_and_exit_code_2(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags, said = BAD[case]
    assert run(["gateway", *flags]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert said in printed.err


def test_the_command_serves_says_when_its_port_is_taken_and_ends_when_it_is_told_to() -> None:
    with exact_server(Schedule(ttft_s=0.0, itl_s=0.001), seconds=60) as url:
        command = [
            sys.executable,
            "-m",
            "tonnage",
            "gateway",
            "--proxy",
            "embedded",
            "--backend",
            url,
            "--port",
        ]
        process = subprocess.Popen([*command, "0"], stderr=subprocess.PIPE, text=True)
        try:
            line = process.stderr.readline() if process.stderr else ""
            found = re.fullmatch(
                r"tonnage: least-outstanding before 1 backend, 1 up, on"
                r" http://127\.0\.0\.1:(\d+)/v1, by the embedded gateway\n",
                line,
            )
            assert found, line
            connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=10)
            connection.request("POST", "/v1/completions", b'{"prompt": "a b", "max_tokens": 5}')
            # the words, and three counts of them in the usage
            assert connection.getresponse().read().count(b"tok") == 5 + 3
            connection.close()
            second = subprocess.run(
                [*command, found[1]], capture_output=True, text=True, check=False, timeout=20
            )
            assert second.returncode == 2
            assert "cannot listen" in second.stderr
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=10) == 0
        finally:
            process.kill()
            process.wait()
            if process.stderr:
                process.stderr.close()


WHOLE = """
backends: [http://127.0.0.1:8001, 127.0.0.1:8002=2]
policy: power-of-two
max_in_flight: 7
port: 9000
"""


def test_a_file_says_what_the_flags_say_and_more(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(WHOLE)
    found = api.gateway_from(path, {"port": 9001})
    assert [(target.authority, weight) for target, weight in found.backends] == [
        ("127.0.0.1:8001", 1.0),
        ("127.0.0.1:8002", 2.0),
    ]
    assert (found.policy, found.limits.in_flight, found.port) == ("power-of-two", 7, 9001)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("backends: []", "backend"),
        ("backend: [a:1]", "backend"),
        ("backends: [a:1]\npolicy: round-robbin", "round-robin"),
        ("backends: [a:1]\nkeys: [{name: x}]", "keys"),
        ("backends: [a:1]\nmax_in_flight: many", "max_in_flight"),
        ("backends: [", "is not YAML"),
        ("- a", "keys with values"),
    ],
)
def test_what_a_file_cannot_say_is_said_in_one_line_with_its_place(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(text)
    assert run(["gateway", "--config", str(path)]) == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert len(printed.splitlines()) == 1


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


async def test_a_model_is_sent_to_the_backends_that_list_it() -> None:
    async with before(fine, fine, fine, models=(("small",), ("large", "lora"), None)) as (
        running,
        fakes,
    ):
        for model in ("small", "large", "lora", "large"):
            assert (await asked(running, post(body(model=model, prompt="x"))))[0] == 200
        # The third lists none, so that it may serve any: an engine without that path must not be
        # shut out.
        served = [[json.loads(got.body)["model"] for got in fake.got] for fake in fakes]
        assert set(served[0]) <= {"small"}
        assert set(served[1]) <= {"large", "lora"}
        assert sum(map(len, served)) == 4


async def test_a_model_that_nobody_serves_is_404_and_one_whose_backends_are_down_is_503() -> None:
    async with before(fine, fine, models=(("small",), ("large",))) as (running, fakes):
        status, text = await asked(running, post(body(model="other", prompt="x")))
        assert (status, json.loads(text)["error"]["message"]) == (
            404,
            "The model `other` does not exist.",
        )
        await fakes[1].end()
        await until(lambda: not running.gateway.backends[1].up)
        assert (await asked(running, post(body(model="large", prompt="x"))))[0] == 503
        assert (await asked(running, post(body(model="small", prompt="x"))))[0] == 200
        # a body that names none goes anywhere
        assert (await asked(running, post(body(prompt="x"))))[0] == 200


@pytest.mark.engines
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_worker_fails_under_load_and_every_request_ends_and_is_counted_once(
    number: signal.Signals, tmp_path: Path
) -> None:
    found = fail_one(tmp_path, number)
    lost = "status 502"  # of what had been sent to it and not begun
    assert set(found.seen) <= {"whole", "cut", lost}
    assert 0 < found.seen["cut"] + found.seen[lost] <= CLIENTS
    assert found.seen.total() == found.asked
    assert (found.counted["ok"], found.counted["cut"]) == (found.seen["whole"], found.seen["cut"])
    assert (found.counted["failed"], found.counted["retried"]) == (found.seen[lost], found.retries)
    assert found.left == found.counted["cancelled"] == 0
    assert found.back_s <= 3
