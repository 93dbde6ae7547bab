"""Docker Compose's file: an instance for each part of the machine, and settings that the gateway
takes."""

from __future__ import annotations

import contextlib
import http.client
import re
import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.plans import DENSE_CHECKPOINT, dense
from tonnage.api.running.gateway import gateway_from
from tonnage.deploy.compose import TLS_PORT, files
from tonnage.deploy.service import service_of

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def written(folder: Path, engine: str = "vllm-0.32") -> dict[str, Any]:
    """The files in a folder, and those in YAML as values."""
    texts = files(service_of(dense(engine), checkpoint=DENSE_CHECKPOINT))
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return {name: yaml.safe_load(text) for name, text in texts.items() if name.endswith(".yaml")}


def test_nginx_and_envoy_stand_before_the_gateway(tmp_path: Path) -> None:
    envoy = written(tmp_path)["envoy.yaml"]["static_resources"]
    [chain], [endpoints] = (
        envoy["listeners"][0]["filter_chains"],
        envoy["clusters"][0]["load_assignment"]["endpoints"],
    )
    address = endpoints["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
    settings = gateway_from(tmp_path / "gateway.yaml", {})
    assert (address["address"], address["port_value"]) == (settings.host, settings.port)
    filters = chain["filters"][0]["typed_config"]["http_filters"]
    assert [one["name"].rpartition(".")[2] for one in filters] == [
        "api_key_auth",
        "local_ratelimit",
        "router",
    ]
    rate = filters[1]["typed_config"]["token_bucket"]["tokens_per_fill"]
    carried = service_of(dense(), checkpoint=DENSE_CHECKPOINT).capacity
    assert carried <= rate < carried + 1
    nginx = (tmp_path / "nginx.conf").read_text()
    assert f"server {settings.host}:{settings.port};" in nginx
    assert f"rate={rate}r/s" in nginx
    assert nginx.count("{") == nginx.count("}")
    assert not filters[0]["typed_config"]["credentials"]  # no key that others know too


@pytest.mark.skipif(not NGINX, reason="no nginx on this machine: apt-get install nginx-light")
def test_nginx_reads_its_file_and_refuses_all_until_a_key_is_set(tmp_path: Path) -> None:
    written(tmp_path)
    certificate = [
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-keyout",
        "tls.key",
        "-out",
        "tls.crt",
    ]
    subprocess.run(
        ["openssl", "req", "-x509", *certificate], cwd=tmp_path, check=True, capture_output=True
    )
    done = subprocess.run(
        [NGINX, "-t", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "nginx.conf").read_text()
    [line] = [line.strip() for line in text.splitlines() if line.strip().startswith('# "Bearer')]
    words = re.findall(r'"Bearer ([^"]*)"', line)
    assert {_status(tmp_path, text, key) for key in ("", *words, "replace-this-key")} == {401}
    # passed on; no gateway runs
    assert _status(tmp_path, text.replace(line, '"Bearer of-team-a" "team-a";'), "of-team-a") == 502


def _status(folder: Path, text: str, key: str) -> int:
    """The status of a request with a key, from nginx with this configuration on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "set.conf").write_text(
        text.replace(f"listen {TLS_PORT} ", f"listen 127.0.0.1:{port} ")
    )
    words = [
        str(NGINX),
        "-p",
        str(folder),
        "-c",
        str(folder / "set.conf"),
        "-g",
        "daemon off; master_process off; pid nginx.pid;",
    ]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(100):
                connection = http.client.HTTPSConnection(
                    "127.0.0.1", port, context=ssl._create_unverified_context(), timeout=10
                )
                with contextlib.closing(connection), contextlib.suppress(ConnectionRefusedError):
                    connection.request(
                        "GET", "/v1/models", headers={"Authorization": f"Bearer {key}"}
                    )
                    return connection.getresponse().status
                time.sleep(0.05)
            raise AssertionError("nginx did not start")
        finally:
            process.terminate()


HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")


@pytest.mark.skipif(not HAPROXY, reason="no HAProxy on this machine: apt-get install haproxy")
def test_haproxy_reads_its_file_and_has_every_instance(tmp_path: Path) -> None:
    written(tmp_path)
    done = subprocess.run(
        [HAPROXY, "-c", "-f", "haproxy.cfg"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    servers = re.findall(
        r"^    server (\S+) (\S+) weight 256$", (tmp_path / "haproxy.cfg").read_text(), re.MULTILINE
    )
    assert servers == [(f"instance-{place}:8000",) * 2 for place in range(1, 9)]


@pytest.mark.docker_compose
@pytest.mark.parametrize(
    "engine",
    [
        "vllm-0.32",
        *(
            pytest.param(name, marks=pytest.mark.live)
            for name in ("sglang-0.5.9", "tensorrt-llm-1.2")
        ),
    ],
)
def test_docker_compose_reads_it(tmp_path: Path, engine: str) -> None:
    written(tmp_path, engine)
    command = ["docker-compose", "-f", "compose.yaml", "config"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert (
        len(
            [
                name
                for name in yaml.safe_load(done.stdout)["services"]
                if name.startswith("instance-")
            ]
        )
        == 8
    )


@pytest.mark.live
@pytest.mark.docker_compose
def test_docker_compose_reads_the_files_of_several_machines(tmp_path: Path) -> None:
    for name, text in files(service_of(dense(systems=3, instances=20))).items():
        if name.startswith(("machine-", "router")):
            (tmp_path / name).write_text(text, encoding="utf-8")
            command = ["docker-compose", "-f", name, "config"]
            done = subprocess.run(
                command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
            )
            assert done.returncode == 0, done.stderr


@pytest.mark.promtool
def test_prometheus_reads_its_configuration(tmp_path: Path) -> None:
    written(tmp_path)
    done = subprocess.run(
        ["promtool", "check", "config", "prometheus.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout


def test_of_several_machines_each_has_a_file_with_its_own_instances_and_the_router_one(
    tmp_path: Path,
) -> None:
    texts = files(service_of(dense(systems=3, instances=20), checkpoint=DENSE_CHECKPOINT))
    assert "compose.yaml" not in texts
    ports = {}
    for name in ("machine-1", "machine-2", "machine-3"):
        services = yaml.safe_load(texts[f"{name}.yaml"])["services"]
        assert "gpu-exporter" in services
        for service, one in services.items():
            if service.startswith("instance-"):
                ports[service] = f"{name}:{one['ports'][0].partition(':')[0]}"
    assert list(ports) == [f"instance-{place + 1}" for place in range(20)]
    assert set(yaml.safe_load(texts["router.yaml"])["services"]) == {
        "gateway",
        "prometheus",
        "grafana",
    }
    (tmp_path / "gateway.yaml").write_text(texts["gateway.yaml"], encoding="utf-8")
    backends = [
        f"{target.host}:{target.port}"
        for target, _ in gateway_from(tmp_path / "gateway.yaml", {}).backends
    ]
    assert (
        backends
        == list(ports.values())
        == [f"machine-{1 + place // 8}:{8001 + place % 8}" for place in range(20)]
    )
    jobs = {
        job["job_name"]: job["static_configs"][0]["targets"]
        for job in yaml.safe_load(texts["prometheus.yaml"])["scrape_configs"]
    }
    assert jobs["engines"] == backends
    assert jobs["gateway"] == ["gateway:8080"]
    assert jobs["gpus"] == ["machine-1:9400", "machine-2:9400", "machine-3:9400"]
    assert "docker compose --file machine-1.yaml up" in texts["README.md"]
