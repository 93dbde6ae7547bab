"""From bench to calibrate to size, against a server whose step times are known: do they come back
over the wire?

    ./benchmark closed_loop [--write]

`tonnage serve` simulates a machine of one's own, of which a file says the true terms, in real time.
Nine loads of it are measured, terms are fitted to them, and steps, an unused load and the answer of
`size` are compared with the truth. Takes two minutes; --write puts the figures into docs/bench.md
with machine and date.
"""

from __future__ import annotations

import contextlib
import json
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from tests.evidence.test_own_terms import TRUTH, Machine
from tonnage import api
from tonnage.api.question.deployment import deployment_of
from tonnage.perf.terms import step_model

ROOT = Path(__file__).resolve().parents[1]

TRIES = 3
"""How often a load is measured until its client calls it VALID; calibrate leaves it out where it
never does."""

BEGIN, END = "<!-- closed loop -->\n", "<!-- end of closed loop -->\n"
PAGE = ROOT / "docs" / "bench.md"

SHORT, LONG = ("uniform:64-192", "uniform:32-96"), ("uniform:256-640", "uniform:16-48")
LOADS = (
    *(
        (SHORT, clients, requests)
        for clients, requests in ((1, 16), (2, 28), (4, 48), (8, 80), (16, 128), (32, 192))
    ),
    *((LONG, clients, requests) for clients, requests in ((1, 16), (4, 40), (12, 84))),
)
UNUSED = (("uniform:128-384", "uniform:24-72"), 6, 90)
STEPS = {
    "a decode of 1": (0, 0, 1, 0, 128),
    "a decode of 32": (0, 0, 32, 0, 4096),
    "a prompt of 512 beside 8": (512, 1, 8, 512**2, 2400),
}


@contextlib.contextmanager
def served(machine: Machine) -> Iterator[str]:
    """The machine behind the API of a real one; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "tonnage",
        "serve",
        "--model",
        str(machine.model),
        "--gpu",
        str(machine.hardware),
        "--tp",
        "1",
    ]
    command += [
        "--precision",
        "bf16",
        "--rules",
        "vllm",
        "--coefficients",
        str(machine.truth),
        "--served-model-name",
        "m",
    ]
    with subprocess.Popen(
        [*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            for _ in range(240):
                with (
                    contextlib.suppress(OSError),
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=1),
                ):
                    break
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def measure(
    url: str, load: tuple[tuple[str, str], int, int], output: Path, seed: int
) -> dict[str, Any]:
    """One load of LOADS, measured again where it is INVALID, three times at most; its summary."""
    for attempt in range(TRIES):
        shutil.rmtree(output, ignore_errors=True)
        found = _measured(url, load, output, seed)
        if found["validity"]["verdict"] == "VALID":
            break
        print(
            f"{output.name}, attempt {attempt + 1}, INVALID:"
            f" {'; '.join(found['validity']['reasons'])}",
            file=sys.stderr,
            flush=True,
        )
    return found


def _measured(
    url: str, load: tuple[tuple[str, str], int, int], output: Path, seed: int
) -> dict[str, Any]:
    lengths, clients, requests = load
    command = [
        sys.executable,
        "-m",
        "tonnage",
        "bench",
        "--url",
        url,
        "--model",
        "m",
        "--endpoint-type",
        "completions",
        "--no-selftest",
    ]
    command += [
        "--isl",
        lengths[0],
        "--osl",
        lengths[1],
        "--concurrency",
        str(clients),
        "--request-count",
        str(requests),
    ]
    command += ["--seed", str(seed), "--artifact-dir", str(output)]
    subprocess.run(command, capture_output=True, check=False)
    found: dict[str, Any] = json.loads((output / "summary.json").read_text())
    return found


def size(machine: Machine, terms: Path) -> float:
    """Requests per second that one instance carries inside the limit."""
    command = [
        sys.executable,
        "-m",
        "tonnage",
        "size",
        "--model",
        str(machine.model),
        "--gpu",
        str(machine.hardware),
        "--tp",
        "1",
    ]
    command += [
        "--precision",
        "bf16",
        "--engine",
        "vllm",
        "--coefficients",
        str(terms),
        "--isl",
        "200",
        "--osl",
        "50",
    ]
    command += ["--peak-rps", "20", "--ttft", "p95<=1s", "--json"]
    end = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(end.stdout)["choice"]["requests_per_second_per_instance"])


def lines(folder: Path) -> Iterator[str]:
    """What was found, as Markdown."""
    machine = Machine(folder)
    with served(machine) as url:
        runs = [folder / f"load-{place}" for place in range(len(LOADS))]
        for place, load in enumerate(LOADS):
            measure(url, load, runs[place], place)
        measured = measure(url, UNUSED, folder / "unused", 99)
    lengths, clients, requests = UNUSED
    report = api.calibrate(
        runs, output=folder / "my.json", date=date.today().isoformat(), **machine.what
    )
    asked = {
        **machine.what,
        "isl": lengths[0],
        "osl": lengths[1],
        "concurrency": clients,
        "requests": requests,
        "seed": 99,
    }
    fitted = api.simulate(**asked, coefficients=folder / "my.json").to_json()
    off = {name: f"{report.left_out[name]:.1f} %" for name in ("e2e_ms", "itl_ms", "ttft_ms")}
    yield (
        f"{platform.machine()}, {date.today().isoformat()}, `./benchmark closed_loop`;"
        f" {report.points} loads, each left out once: E2E off by {off['e2e_ms']}, TPOT by"
        f" {off['itl_ms']}, TTFT by {off['ttft_ms']}."
    )
    yield ""
    yield "| | true | fitted | off |"
    yield "|---|---|---|---|"
    models = [
        step_model(deployment_of(**machine.what, coefficients=file))
        for file in (machine.truth, folder / "my.json")
    ]
    for words, step in STEPS.items():
        true, mine = (1e3 * model.seconds(*step) for model in models)
        yield f"| {words} | {true:.2f} ms | {mine:.2f} ms | {mine / true - 1:+.1%} |"
    true_s, mine_s = TRUTH["sequence_s"], report.factors["sequence_s"]
    yield (
        f"| `sequence_s` | {1e6 * true_s:.0f} µs | {1e6 * mine_s:.0f} µs |"
        f" {mine_s / true_s - 1:+.1%} |"
    )
    for metric in ("ttft_ms", "tpot_ms", "e2e_ms"):
        found, said = measured[metric]["mean"], fitted[metric]["mean"]
        name = f"{metric.removesuffix('_ms').upper()} of {clients} clients, unused"
        yield f"| {name} | {found:.1f} ms measured | {said:.1f} ms | {said / found - 1:+.1%} |"
    carried, answer = size(machine, machine.truth), size(machine, folder / "my.json")
    yield (
        f"| requests/s of an instance, by `size` | {carried:.1f} | {answer:.1f} |"
        f" {answer / carried - 1:+.1%} |"
    )


def main(write: bool) -> None:
    """Print what was found, and write it where asked."""
    with tempfile.TemporaryDirectory() as folder:
        text = "\n".join(lines(Path(folder))) + "\n"
    print(text)
    if write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(
            f"{page.split(BEGIN)[0]}{BEGIN}{text}{END}{page.split(END)[1]}", encoding="utf-8"
        )


if __name__ == "__main__":
    main("--write" in sys.argv)
