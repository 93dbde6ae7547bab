"""Weeks of traffic on a simulated engine, scraped by a real Prometheus in minutes.

The engine's clock runs faster than the wall's. A relay gives each sample of its page the moment of
that clock, so that Prometheus keeps the weeks as if they had passed, and every query is one of
production."""

from __future__ import annotations

import contextlib
import http.server
import math
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

HOUR, DAY = 3_600.0, 86_400.0
WEEK_SHAPE = tuple(
    (0.5 if day > 4 else 1.0)
    * (0.45 + 0.55 * math.sin(math.pi * (hour - 6) / 14) ** 2 if 6 <= hour <= 20 else 0.35)
    for day in range(7)
    for hour in range(24)
)
"""Requests by the hour of the week, Monday first: office hours, and half as many at weekends."""


@dataclass(frozen=True, kw_only=True)
class Weeks:
    """Requests, at seconds since a Monday."""

    due: NDArray[np.float64]
    isl: NDArray[np.int64]
    osl: NDArray[np.int64]

    def write(self, path: Path, speed: float) -> None:
        rows = zip(self.due / speed, self.isl, self.osl, strict=True)
        path.write_text(
            "timestamp,isl,osl\n" + "".join(f"{due:.6f},{isl},{osl}\n" for due, isl, osl in rows)
        )


def weeks(*, days: int, a_day: float, growth_per_day: float, seed: int = 0) -> Weeks:
    """Poisson arrivals by the hour of the week, that grow every day, with lognormal lengths."""
    rng = np.random.default_rng(seed)
    hours = np.arange(24 * days)
    rates = (
        np.array(WEEK_SHAPE)[hours % 168]
        / np.mean(WEEK_SHAPE)
        * a_day
        / 24
        * np.exp(growth_per_day * (hours + 0.5) / 24)
    )
    counts = rng.poisson(rates)
    due = np.sort(np.repeat(hours * HOUR, counts) + rng.uniform(0, HOUR, int(counts.sum())))
    sigma = math.sqrt(math.log1p(0.8**2))
    isl = np.clip(
        np.rint(rng.lognormal(math.log(600) - sigma**2 / 2, sigma, due.size)), 8, 8_000
    ).astype(np.int64)
    osl = np.clip(
        np.rint(rng.lognormal(math.log(40) - sigma**2 / 2, sigma, due.size)), 2, 1_000
    ).astype(np.int64)
    return Weeks(due=due, isl=isl, osl=osl)


class _Relay(http.server.BaseHTTPRequestHandler):
    """The engine's page with the moment of the engine's clock at each sample, in milliseconds."""

    engine: str
    moment: staticmethod

    def do_GET(self) -> None:
        at = f" {round(1e3 * self.moment())}"
        with urllib.request.urlopen(f"{self.engine}/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
        kept = (
            line + at
            for line in lines
            if line.startswith(("vllm:", "http_requests")) and "_created" not in line
        )
        body = ("\n".join(kept) + "\n").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):  # a scrape that was given up
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def scraped(
    program: str, engine: str, *, folder: Path, began: float, speed: float, every_s: float
) -> Iterator[str]:
    """The address of a Prometheus that scrapes an engine; ``began`` is the unix time that its clock
    stands for when the block begins."""
    start = [time.monotonic()]
    handler = type(
        "Relay",
        (_Relay,),
        {
            "engine": engine,
            "moment": staticmethod(lambda: began + speed * (time.monotonic() - start[0])),
        },
    )
    relay = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=relay.serve_forever, daemon=True).start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    every = f"{round(1e3 * every_s)}ms"  # of the wall
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: {every}, scrape_timeout: {every}}}\nstorage: {{tsdb:"
        " {out_of_order_time_window: 60d}}\nscrape_configs: [{job_name: engine,"
        f" static_configs: [{{targets: ['127.0.0.1:{relay.server_port}']}}]}}]\n"
    )
    words = [
        program,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [*words, "--storage.tsdb.retention.time=90d", "--query.lookback-delta=30m"],
            stdout=log,
            stderr=log,
        )
    try:
        for _ in range(200):
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=1),
            ):
                break
            time.sleep(0.1)
        start[0] = time.monotonic()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=60)
        relay.shutdown()
        relay.server_close()
