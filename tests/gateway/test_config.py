"""Settings from a file: read strictly, and read again while requests run."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.fakes import Fake, Got, asked, before, bounded, fine, post, talk, until
from tonnage import api
from tonnage.bench.exact.schedule import Schedule
from tonnage.bench.exact.serve import exact_server
from tonnage.cli.main import run
from tonnage.gateway.settings import Limits, Settings

DIGEST = hashlib.sha256(b"secret").hexdigest()
WHOLE = f"""
backends: [http://127.0.0.1:8001, 127.0.0.1:8002=2]
policy: power-of-two
max_in_flight: 7
port: 9000
aliases: {{gpt-x: llama-3.1-8b}}
keys:
  - {{name: team, sha256: "{DIGEST}", requests_per_minute: 60}}
"""


def test_a_file_says_what_the_flags_say_and_more(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(WHOLE)
    found = api.gateway_from(path, {"port": 9001})
    assert [(target.authority, weight) for target, weight in found.backends] == [("127.0.0.1:8001", 1.0), ("127.0.0.1:8002", 2.0)]
    assert (found.policy, found.limits.in_flight, found.port, found.aliases) == ("power-of-two", 7, 9001, {"gpt-x": "llama-3.1-8b"})
    assert [(key.name, key.sha256.hex(), key.requests_per_minute, key.concurrency) for key in found.keys] == [("team", DIGEST, 60, 0)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("backends: []", "backend"),
        ("backend: [a:1]", "backend"),
        ("backends: [a:1]\npolicy: round-robbin", "round-robin"),
        ("backends: [a:1]\nkeys: [{name: x, sha256: abc}]", "64 hexadecimal digits"),
        (f"backends: [a:1]\nkeys: [{{name: x, key: secret, sha256: '{DIGEST}'}}]", "key"),
        (f"backends: [a:1]\nkeys: [{{name: x, sha256: '{DIGEST}', concurrency: -1}}]", "concurrency"),
        (f"backends: [a:1]\nkeys: [{{name: x, sha256: '{DIGEST}'}}, {{name: x, sha256: '{DIGEST}'}}]", "two are called"),
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


def test_new_settings_serve_new_requests_while_old_ones_end() -> None:
    go = asyncio.Event()

    async def waits(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        await fine(fake, got, writer)

    async def test() -> None:
        async with before(waits, fine) as (running, [slow, quick]):
            old = running.core
            settings = old.settings
            one, other = settings.backends
            tight = Limits(health_s=0.2, health_timeout_s=0.3)
            await running.renew(Settings(backends=(one,), port=0, limits=tight))
            first = running.core
            async with talk(running) as idle:
                running_one = asyncio.create_task(asked(running, post()))
                await until(lambda: len(slow.got) == 1)
                await running.renew(Settings(backends=(other,), port=0, limits=tight))
                assert await idle.rest() == b""  # nothing was under way there
                assert (await asked(running, post()))[0] == 200
                assert len(quick.got) == 1
                go.set()
                assert (await running_one)[0] == 200
            await until(lambda: first.in_flight == 0 and not first.clients and not first.backends[0].idle)
            assert (await asked(running, post()))[0] == 200
            assert (len(slow.got), len(quick.got)) == (1, 2)

    bounded(test())


def test_the_command_reads_its_file_again_on_sighup_and_keeps_what_it_has_if_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    with exact_server(Schedule(ttft_s=0.0, itl_s=0.001), seconds=60) as url:
        path.write_text(f"backends: [{url}]\nport: 0\n")
        command = [sys.executable, "-m", "tonnage", "gateway", "--config", str(path)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            port = int(process.stderr.readline().split(":")[-1].split("/")[0])

            def status(*headers: tuple[str, str]) -> int:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 2}), dict(headers))
                try:
                    return connection.getresponse().status
                finally:
                    connection.close()

            assert status() == 200
            path.write_text("backends: [\n")
            process.send_signal(signal.SIGHUP)
            assert "the settings stay as they were" in process.stderr.readline()
            assert status() == 200
            path.write_text(f"backends: [{url}]\nkeys: [{{name: a, sha256: '{DIGEST}'}}]\n")
            process.send_signal(signal.SIGHUP)
            assert "settings read again" in process.stderr.readline()
            for _ in range(100):
                if status() == 401:
                    break
            assert status() == 401
            assert status(("Authorization", "Bearer secret")) == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=15) == 0
