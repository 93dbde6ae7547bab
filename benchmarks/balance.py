"""Three simulated workers, one of them five times slower, behind this gateway, vllm-router and
nginx: makespan, latency, CPU.

    ./benchmark balance [--router PATH/TO/vllm-router] [--nginx PATH/TO/nginx] [--repeats 3]
    ./benchmark balance --only prefixes     or --only makespan

Every balancer gets the same workers and the same loads, one after another, repeated in turn, and
the median counts:

    makespan     120 requests of 200 and 50 tokens, 24 clients: how long the last of them takes
    one client   what the balancer before the two fast workers adds to the first token, p50 and p99
    CPU          of the balancer's processes for each request of the first load, and the requests/s of one core that follow

``--only prefixes`` holds 90 conversations of six turns over three workers with prefix caches
(benchmarks/prefix_traffic.py):

    reuse        share of the prompts' blocks that the worker had in its cache
    makespan     and how unevenly the requests were spread: the busiest worker's over the mean

vllm-router is not a dependency: install it where you like and name its command. What is not given
is left out, and said.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.prefix_traffic import Reused, reused
from tonnage.api.bench import bench
from tonnage.api.running.processes import gateway_before, served_instances
from tonnage.serve.supervisor import Program, Supervisor, free_ports
from tonnage.simulator.kernel import warm_up

ROOT = Path(__file__).resolve().parents[1]

MODEL = "llama-3.1-8b"
ISL, OSL = 200, 50
REQUESTS, CLIENTS = 120, 24
ALONE, FEW = 300, 2
"""Requests of a single client, and the tokens that each asks for: the time to the first one
counts."""
SLOW = [[], [], ["--fault", "slow factor=5"]]
OURS = ("round-robin", "least-outstanding", "power-of-two", "least-tokens", "prefix-aware")
THEIRS = ("round_robin", "power_of_two", "cache_aware")
NGINX = ("", "least_conn;")
BY_PREFIX = (
    ("round-robin", "least-outstanding", "prefix-aware", "session"),
    ("round_robin", "cache_aware", "consistent_hash"),
)
"""Policies under conversations: ours, vllm-router's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one run of one balancer showed; milliseconds and seconds."""

    makespan_s: float
    added_p50_ms: float
    added_p99_ms: float
    cpu_ms: float


def measured(url: str, *, clients: int, requests: int, osl: int = OSL) -> Any:
    """A closed loop of streamed requests."""
    return bench(
        url=url,
        model=MODEL,
        isl=ISL,
        osl=osl,
        endpoint_type="completions",
        concurrency=clients,
        request_count=requests,
        metrics_url=["none"],
        selftest=False,
    )[0]


def family(pid: int) -> set[int]:
    """A process and all below it."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, before = {pid}, 0
    while len(found) > before:
        before = len(found)
        found |= {one for one, parent in parents.items() if parent in found}
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and those below it."""
    total = 0
    for one in family(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def nginx_program(path: str, workers: list[Program], method: str, folder: Path) -> Program:
    """Nginx as a reverse proxy that does not buffer."""
    port = free_ports(1)[0]
    servers = " ".join(f"server {worker.address};" for worker in workers)
    config = folder / f"nginx-{port}.conf"
    config.write_text(
        f"daemon off; worker_processes 1; pid {folder}/nginx-{port}.pid; error_log stderr;\nevents"
        f" {{ worker_connections 4096; }}\nhttp {{ access_log off; client_body_temp_path {folder};"
        f" proxy_temp_path {folder}; fastcgi_temp_path {folder};\nuwsgi_temp_path {folder};"
        f" scgi_temp_path {folder};\nupstream workers {{ {method} {servers} keepalive 64;"
        f" }}\nserver {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://workers;"
        ' proxy_http_version 1.1;\nproxy_set_header Connection ""; proxy_buffering off; } } }\n'
    )
    return Program(
        name=f"nginx-{port}",
        argv=(path, "-c", str(config), "-e", "stderr"),
        address=f"127.0.0.1:{port}",
    )


def router_program(path: str, workers: list[Program], policy: str) -> Program:
    """The router of the vLLM project, with its own defaults."""
    port, metrics = free_ports(2)
    argv = (
        path,
        "--worker-urls",
        *(worker.url for worker in workers),
        "--policy",
        policy,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    )
    return Program(
        name=f"router-{port}",
        argv=(*argv, "--prometheus-port", str(metrics)),
        address=f"127.0.0.1:{port}",
    )


@contextmanager
def running(program: Program, folder: Path) -> Iterator[int]:
    """A balancer; its process id."""
    with Supervisor([program], folder, grace_s=3) as supervisor:
        supervisor.wait_until_ready(timeout_s=60)
        yield supervisor.children[0].pid


def seen(make: Callable[[list[Program]], Program], workers: list[Program], folder: Path) -> Seen:
    """One run: the makespan over all workers, and the latency behind a balancer before the two fast
    ones.
    """
    program = make(workers)
    with running(program, folder) as pid:
        before, began = cpu_s(pid), time.monotonic()
        load = measured(program.url, clients=CLIENTS, requests=REQUESTS)
        makespan, cpu = time.monotonic() - began, cpu_s(pid) - before
        if load.summary.counted < REQUESTS:
            raise SystemExit(f"{program.name}: {load.summary_json['errors_by_kind']}")
        makespan = load.observed.seconds
    program = make(workers[:2])
    with running(program, folder):
        behind = measured(program.url, clients=1, requests=ALONE, osl=FEW).summary.ttft_ms
    alone = measured(workers[0].url, clients=1, requests=ALONE, osl=FEW).summary.ttft_ms
    return Seen(
        makespan_s=makespan,
        added_p50_ms=behind.p50 - alone.p50,
        added_p99_ms=behind.p99 - alone.p99,
        cpu_ms=1e3 * cpu / REQUESTS,
    )


def main() -> None:
    """Print a line for each balancer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--router")
    parser.add_argument("--nginx")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=("makespan", "prefixes"))
    asked = parser.parse_args()
    left = [name for name in ("router", "nginx") if not getattr(asked, name)]
    print(
        f"{platform.machine()}, Python {platform.python_version()}, {os.cpu_count()} CPUs; left"
        f" out: {', '.join(left) or 'nothing'}"
    )
    if asked.only != "prefixes":
        makespans(asked)
    if asked.only != "makespan":
        prefixes(asked)


def prefixes(asked: argparse.Namespace) -> None:
    """Conversations over workers with prefix caches: a line for each policy."""
    ours, theirs = BY_PREFIX
    command = (sys.executable, str(ROOT / "benchmarks" / "prefix_traffic.py"))
    found: dict[str, list[Reused]] = {}
    for seed in range(asked.repeats):
        for name in [
            *(f"tonnage {one}" for one in ours),
            *(f"vllm-router {one}" for one in theirs if asked.router),
        ]:
            policy = name.partition(" ")[2]
            with tempfile.TemporaryDirectory() as folder:
                workers = [
                    Program(name=f"w{p}", argv=(*command, str(p)), address=f"127.0.0.1:{p}")
                    for p in free_ports(3)
                ]
                # new ones each time: their caches are empty
                with Supervisor(workers, Path(folder), grace_s=3) as supervisor:
                    supervisor.wait_until_ready(timeout_s=60)
                    ours_now = name.startswith("tonnage")
                    program = (
                        gateway_before(workers, policy=policy)
                        if ours_now
                        else router_program(asked.router, workers, policy)
                    )
                    with running(program, Path(folder)):
                        found.setdefault(name, []).append(
                            reused(program.url, [worker.url for worker in workers], seed)
                        )
    print(f"{'':28} {'reuse':>8} {'makespan s':>11} {'uneven':>8}")
    for name, runs in found.items():
        middle = {
            field: statistics.median(getattr(run, field) for run in runs)
            for field in Reused.__slots__
        }
        print(
            f"{name:28} {middle['share']:>8.1%} {middle['makespan_s']:>11.2f}"
            f" {middle['uneven']:>8.2f}"
        )


def makespans(asked: argparse.Namespace) -> None:
    """One slow worker of three: a line for each policy."""
    warm_up()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        makers: dict[str, Callable[[list[Program]], Program]] = {
            f"tonnage {policy}": lambda workers, policy=policy: gateway_before(
                workers, policy=policy
            )
            for policy in OURS
        }
        if asked.router:
            makers |= {
                f"vllm-router {p}": lambda workers, p=p: router_program(asked.router, workers, p)
                for p in THEIRS
            }
        if asked.nginx:
            named = {f"nginx {m.strip(';') or 'round robin'}": m for m in NGINX}
            makers |= {
                name: lambda workers, m=m: nginx_program(asked.nginx, workers, m, folder)
                for name, m in named.items()
            }
        workers = served_instances(["--engine", "simulated", "--model", MODEL], len(SLOW), SLOW)
        with Supervisor(workers, folder, grace_s=3) as supervisor:
            supervisor.wait_until_ready(timeout_s=120)
            found: dict[str, list[Seen]] = {name: [] for name in makers}
            for _ in range(asked.repeats):
                for name, make in makers.items():
                    found[name].append(seen(make, workers, folder))
        print(
            f"{'':28} {'makespan s':>11} {'added TTFT p50, p99 ms':>24} {'CPU ms/request':>15}"
            f" {'per core':>9}"
        )
        for name, runs in found.items():
            middle = {
                field: statistics.median(getattr(run, field) for run in runs)
                for field in Seen.__slots__
            }
            added = f"{middle['added_p50_ms']:.2f}, {middle['added_p99_ms']:.2f}"
            print(
                f"{name:28} {middle['makespan_s']:>11.2f} {added:>24} {middle['cpu_ms']:>15.2f}"
                f" {1e3 / middle['cpu_ms']:>8,.0f}/s"
            )


if __name__ == "__main__":
    main()
