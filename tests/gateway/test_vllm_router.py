"""``tonnage gateway --proxy vllm-router`` with the real router: what takes the gateway's place
passes every request on."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.failing import MODEL, samples
from tonnage.api.bench import bench
from tonnage.api.running.gateway import POLICIES, VERSION
from tonnage.api.running.processes import served_instances
from tonnage.serve.supervisor import Program, Supervisor, free_ports

pytestmark = pytest.mark.engines

REQUESTS = 40


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Program]]:
    """Two simulated instances, each a process of its own."""
    programs = served_instances(["--engine", "simulated", "--model", MODEL], 2)
    with Supervisor(programs, tmp_path_factory.mktemp("workers"), grace_s=3) as supervisor:
        supervisor.wait_until_ready(timeout_s=120)
        yield programs


def router(workers: list[Program], policy: str) -> Program:
    """The command line that starts it in place of the gateway."""
    named = os.environ.get("TONNAGE_ROUTER", "") or shutil.which("vllm-router") or ""
    assert Path(named).is_file(), (
        f"TONNAGE_ROUTER names no vllm-router {VERSION}, and PATH has none; run ./check --engines"
    )
    port = free_ports(1)[0]
    backends = [word for one in workers for word in ("--backend", one.url)]
    argv = (
        sys.executable,
        "-m",
        "tonnage",
        "gateway",
        *backends,
        "--proxy",
        "vllm-router",
        "--policy",
        policy,
        "--port",
        str(port),
    )
    path = f"{Path(named).absolute().parent}:{os.environ['PATH']}"
    return Program(
        name="router", argv=argv, address=f"127.0.0.1:{port}", environment={"PATH": path}
    )


def answered(worker: Program) -> float:
    """Requests that an instance has answered in full, by its own metrics."""
    return sum(
        value
        for labels, value in samples(worker.url).items()
        if labels[0] == "vllm:request_success_total" and "length" in labels
    )


@pytest.mark.parametrize("policy", list(POLICIES))
def test_a_benchmark_behind_it_is_answered_in_full_by_both_workers(
    policy: str, workers: list[Program], tmp_path: Path
) -> None:
    before = [answered(one) for one in workers]
    program = router(workers, policy)
    with Supervisor([program], tmp_path, grace_s=3) as supervisor:
        supervisor.wait_until_ready(timeout_s=60)
        (found,) = bench(
            url=program.url,
            model=MODEL,
            isl=100,
            osl=10,
            concurrency=4,
            request_count=REQUESTS,
            metrics_url=["none"],
            selftest=False,
        )
    shares = [answered(one) - old for one, old in zip(workers, before, strict=True)]
    print(f"vllm-router, {policy}: {shares[0]:.0f} and {shares[1]:.0f} requests")
    assert found.summary_json["errors"] == 0, found.run_json["failures"]
    assert (found.requests.osl == 10).all()
    assert sum(shares) == REQUESTS
    assert min(shares) > 0
    if policy == "round-robin":
        assert shares[0] == shares[1]
