"""The gateway before the instances of a plan, and another program in its place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.plans import dense, experts
from tonnage import api
from tonnage.api.running.gateway import VERSION, haproxy_of
from tonnage.cli.main import run
from tonnage.errors import InputError
from tonnage.gateway.haproxy import whole_weights

ROOT = Path(__file__).parents[2]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(dense().to_json()), encoding="utf-8")
    return path


def test_the_instances_of_a_plan_are_the_backends(plan: Path, tmp_path: Path) -> None:
    found = api.gateway_settings(plan=plan)
    assert [target.authority for target, _ in found.backends] == [
        f"127.0.0.1:{port}" for port in range(8001, 8009)
    ]
    assert found.limits.in_flight == 3_200  # twice 200 each, of eight
    assert api.gateway_settings(plan=plan, max_in_flight=7).limits.in_flight == 7
    assert api.gateway_settings(plan=plan, plan_host=["10.0.0.1"]).backends[0][0].host == "10.0.0.1"
    config = tmp_path / "gateway.yaml"
    config.write_text(f"plan: {plan}\nport: 9000\n")
    assert len(api.gateway_from(config, {}).backends) == 8
    assert [
        target.port for target, _ in api.gateway_from(config, {"backends": ["a:1"]}).backends
    ] == [1]
    config.write_text("backends: [a:1]\n")
    assert len(api.gateway_from(config, {"plan": plan}).backends) == 8


def test_a_plan_of_several_systems_needs_a_host_for_each(tmp_path: Path) -> None:
    path, wide = tmp_path / "plan.json", experts()
    path.write_text(json.dumps(wide.to_json()), encoding="utf-8")
    pool = wide.choice.pool
    hosts = [f"10.0.0.{i}" for i in range(1, pool.systems + 1)]
    found = api.gateway_settings(plan=path, plan_host=hosts).backends
    assert len(found) == pool.instances
    assert {target.host for target, _ in found} == set(hosts)
    with pytest.raises(InputError, match=f"has {pool.systems} ×"):
        api.gateway_settings(plan=path, plan_host=hosts[:1])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--backend", "a:1"], "--backend"),
        (["--plan-host", "a", "--plan-host", "b"], "--plan-host"),
        (["--proxy", "haproxi"], "haproxy"),
        (["--proxy", "haproxy"], "is not installed"),
        (["--proxy", "vllm-router"], "is not installed"),
    ],
)
def test_what_a_plan_or_a_proxy_does_not_go_with_is_refused(
    flags: list[str],
    words: str,
    plan: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    assert run(["gateway", "--plan", str(plan), *flags]) == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert len(printed.splitlines()) == 1


@pytest.fixture
def router(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name that prints what it was given."""
    path = tmp_path / "vllm-router"
    path.write_text(f"#!{sys.executable}\nimport sys\nprint(*sys.argv[1:])\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return path


def test_the_other_program_takes_the_place_of_this_one_with_its_settings(router: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tonnage",
        "gateway",
        "--backend",
        "a:1",
        "--backend",
        "b:2",
        "--proxy",
        "vllm-router",
    ]
    command += [
        "--policy",
        "prefix-aware",
        "--port",
        "9000",
        "--max-in-flight",
        "50",
        "--first-byte-timeout",
        "30",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    said = done.stdout.split()
    assert said[: said.index("--prometheus-port")] == [
        *(
            "--worker-urls",
            "http://a:1",
            "http://b:2",
            "--policy",
            "cache_aware",
            "--host",
            "127.0.0.1",
            "--port",
            "9000",
        ),
        *(
            "--max-concurrent-requests",
            "50",
            "--max-payload-size",
            str(32 * 2**20),
            "--request-timeout-secs",
            "30",
        ),
    ]
    assert str(router) in done.stderr


@pytest.mark.parametrize(
    "given", [{"policy": "least-kv"}, {"backends": ["a:1=2"]}, {"idle_timeout": 5.0}]
)
def test_what_it_does_not_have_is_refused_rather_than_lost(
    given: dict[str, Any], router: Path
) -> None:
    settings = api.gateway_settings(**{"backends": ["a:1"], "policy": "round-robin", **given})
    with pytest.raises(InputError, match="vllm-router"):
        api.proxy_command("vllm-router", settings)


def test_the_version_whose_flags_these_are_is_the_one_that_is_tested() -> None:
    pins = (ROOT / "requirements" / "router.txt").read_text(encoding="utf-8").splitlines()
    assert f"vllm-router=={VERSION}" in pins


@pytest.mark.parametrize(
    "words",
    [
        {"host": "127.0.0.1:1\n    lua-load /evil\n#"},
        {"host": "127.0.0.1:1 ssl crt /evil #"},
        {"host": "*"},
        {"backends": ('http://a"evil":8001',)},
        {"backends": ("http://${HOME}evil:8001",)},
        {"backends": ("http://a%0aevil:8001",)},
        {"backends": ("http://a'evil:8001",)},
    ],
)
def test_no_line_of_the_configuration_comes_from_a_host(words: dict[str, Any]) -> None:
    settings = {"backends": ("http://127.0.0.1:8001",)} | words
    with pytest.raises(InputError, match=r"write one such as 127.0.0.1 or worker-1"):
        api.gateway_settings(**settings)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "worker-1.example.com", "a_b"])
def test_hosts_that_are_names_or_addresses_are_taken(host: str) -> None:
    written = f"[{host}]" if ":" in host else host
    settings = api.gateway_settings(backends=(f"http://{written}:8001",), host=host)
    assert f"server {written}:8001 {written}:8001" in haproxy_of(settings)


def test_weights_of_haproxy_are_whole_and_hardly_off() -> None:
    """6 of 256 would be 7 % less than 6.47; 5 of 198 is 0.1 % off."""
    assert whole_weights([9.68492, 0.244709]) == [198, 5]
    assert whole_weights([1.0, 1.0]) == [256, 256]
    assert whole_weights([3.0, 1.0]) == [255, 85]
    assert whole_weights([1000.0, 1.0])[1] == 1
