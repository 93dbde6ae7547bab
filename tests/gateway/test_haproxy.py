"""HAProxy before simulated instances, as ``tonnage gateway`` starts it and ``deploy --target
compose`` writes it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tonnage import api
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.gateway.haproxy import BALANCE
from tonnage.serve.supervisor import free_ports
from tonnage.watch.expected import Pages

pytestmark = pytest.mark.skipif(
    not (shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")),
    reason="no HAProxy on this machine: apt-get install haproxy",
)


@contextmanager
def balanced(*backends: str, policy: str = "least-outstanding") -> Iterator[str]:
    """The address of HAProxy, started by the command; it takes requests."""
    [port] = free_ports(1)
    flags = [word for backend in backends for word in ("--backend", backend)]
    command = [
        sys.executable,
        "-m",
        "tonnage",
        "gateway",
        "--proxy",
        "haproxy",
        "--policy",
        policy,
        "--port",
        str(port),
        *flags,
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(200):
                if status(f"http://127.0.0.1:{port}/health") == 200:
                    break
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def status(url: str, body: bytes | None = None) -> int:
    """The status of a request; 0 where there is no answer."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=10) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@pytest.mark.parametrize("policy", sorted(BALANCE))
def test_every_policy_that_it_has_is_read_by_it(policy: str, tmp_path: Path) -> None:
    settings = api.gateway_settings(backends=["127.0.0.1:8001=3", "127.0.0.1:8002"], policy=policy)
    program, *_, path = api.proxy_command("haproxy", settings)
    assert (
        subprocess.run([program, "-c", "-f", path], capture_output=True, check=False).returncode
        == 0
    )
    assert "server 127.0.0.1:8002 127.0.0.1:8002 weight 85\n" in Path(path).read_text()
    Path(path).unlink()


def test_requests_are_shared_and_watched_and_admin_paths_are_not_passed_on() -> None:
    with (
        exact_server(Schedule(ttft_s=0.0, itl_s=0.001), seconds=60) as one,
        exact_server(Schedule(ttft_s=0.0, itl_s=0.001), seconds=60) as two,
        balanced(one, two, policy="round-robin") as url,
    ):
        body = json.dumps({"prompt": "a b", "max_tokens": 5}).encode()
        assert [status(f"{url}/v1/completions", body) for _ in range(6)] == [200] * 6
        assert (
            status(f"{url}/v1/load_lora_adapter", b"{}")
            == status(f"{url}/v2/repository/models/m/unload", b"{}")
            == 404
        )
        read = Pages([url]).read()
        assert set(read.asked) == {one, two}
        assert read.ended["ok"] == 6


def test_an_instance_that_died_gets_no_request() -> None:
    quick = Schedule(ttft_s=0.0, itl_s=0.001)
    with exact_server(quick, seconds=60) as staying, ExitStack() as going:
        dying = going.enter_context(exact_server(quick, seconds=60))
        with balanced(dying, staying, policy="round-robin") as url:
            going.close()
            body = json.dumps({"prompt": "a b", "max_tokens": 5}).encode()
            assert [status(f"{url}/v1/completions", body) for _ in range(6)] == [200] * 6


def test_a_token_is_passed_on_as_it_comes() -> None:
    """Small pieces do not wait for more: by default HAProxy keeps them for up to 200 ms."""
    with exact_server(Schedule(ttft_s=0.0, itl_s=0.02), seconds=60) as url, balanced(url) as front:
        body = json.dumps({"prompt": "a b", "max_tokens": 40, "stream": True}).encode()
        waits = []
        for _ in range(5):
            begun = time.monotonic()
            with urllib.request.urlopen(
                urllib.request.Request(f"{front}/v1/completions", body), timeout=10
            ) as answer:
                answer.read(1)
                waits.append(time.monotonic() - begun)
        assert min(waits) < 0.15
