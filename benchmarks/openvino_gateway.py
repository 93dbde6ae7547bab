"""Tokens/s of a real model of 56 million parameters on the CPU, with and without the gateway before
it.

    ./benchmark openvino_gateway [--rounds 6] [--clients 16] [--requests 64]

One OpenVINO instance serves a GGUF with random weights, made for the run. The same closed loop of
streams goes to it straight and through the gateway, in turn (straight, through, through, straight,
…), since the speed of a machine drifts. Printed are the tokens/s of each, the ratio of their
medians, and the CPU of the gateway for each token. The exit code is 1 where the ratio is below
0.90. About two minutes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from benchmarks.balance import cpu_s
from tests.serve.openvino.tiny_gguf import MILLIONS_56, write_gguf
from tonnage.api.bench import bench
from tonnage.api.running.processes import gateway_before, served_instances
from tonnage.serve.supervisor import Supervisor

MODEL = "tiny"
ISL, OSL = 32, 64
LEAST = 0.90


def tokens_per_second(url: str, *, clients: int, requests: int) -> float:
    """Output tokens/s of one closed loop, all of whose requests must complete."""
    found = bench(
        url=url,
        model=MODEL,
        isl=ISL,
        osl=OSL,
        endpoint_type="completions",
        concurrency=clients,
        request_count=requests,
        metrics_url=["none"],
        selftest=False,
    )[0]
    if found.summary.counted < requests:
        raise SystemExit(f"{url}: {found.summary_json['errors_by_kind']}")
    return float(found.requests.osl.sum() / found.observed.seconds)


def main() -> None:
    """Print the ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=64)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        model = write_gguf(folder / "model.gguf", MILLIONS_56)
        words = ["--engine", "openvino", "--model", str(model), "--served-model-name", MODEL]
        instances = served_instances(words, 1)
        gateway = gateway_before(instances, policy="least-outstanding")
        found: dict[str, list[float]] = {instances[0].url: [], gateway.url: []}
        with (
            Supervisor(instances, folder, grace_s=5) as engine,
            Supervisor([gateway], folder, grace_s=5) as front,
        ):
            engine.wait_until_ready(timeout_s=120)
            front.wait_until_ready(timeout_s=30)
            tokens_per_second(instances[0].url, clients=asked.clients, requests=asked.clients)
            began = cpu_s(front.children[0].pid)
            for number in range(asked.rounds):
                for url in list(found)[:: 1 if number % 2 == 0 else -1]:
                    found[url].append(
                        tokens_per_second(url, clients=asked.clients, requests=asked.requests)
                    )
            used = cpu_s(front.children[0].pid) - began
    straight, through = (statistics.median(rates) for rates in found.values())
    tokens = asked.rounds * asked.requests * OSL
    for name, rates in zip(("straight", "through the gateway"), found.values(), strict=True):
        print(
            f"{name:20} {statistics.median(rates):8,.0f} tokens/s  "
            f" ({', '.join(f'{rate:,.0f}' for rate in rates)})"
        )
    print(
        f"ratio {through / straight:.3f}; the gateway used {1e6 * used / tokens:.0f} µs of CPU a"
        " token"
    )
    raise SystemExit(0 if through / straight >= LEAST else 1)


if __name__ == "__main__":
    main()
