"""The client measured against the exact server: how far off its latencies are, and how much it can
take.

Both run on this machine and share one clock, so that every time that the client reports can be laid
next to the moment at which the server wrote. The server takes CPU too: a bias found here is at
least as large as against a server elsewhere.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from tonnage.bench.connection import Setup, parse_url, request_head
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.load import Question
from tonnage.bench.measure import Observed, measure
from tonnage.bench.prompts import prompts
from tonnage.results.metrics import summarize
from tonnage.results.requests import Requests
from tonnage.results.store import RunWriter
from tonnage.spec.lengths import Lengths
from tonnage.spec.workload import ClosedLoop

TOKENS = 64
CPU_SHARE = 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """The measured speed of the client on this machine."""

    streams: int  # requests in flight
    requests: int  # and tokens: how many came
    tokens: int
    ttft_ms: float  # mean TTFT that the client reports, from the moment of sending
    # the same by the server's own stamps: first write − receipt of the request
    server_ttft_ms: float
    bias_ms: float  # mean of (the client's stamp of the first token − the server's of its write)
    bias_p99_ms: float  # its 99th percentile
    last_bias_ms: float  # the same mean for the last token
    cpu_us_per_token: float  # CPU of the client process, parsing and writing included
    ceiling_tokens_per_second: float  # tokens/s at which that would take 85 % of a core
    lateness_mean_ms: float  # of the event loop

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name."""
        return asdict(self)


def self_test(*, streams: int = 64, requests: int = 0) -> SelfTest:
    """Compare the client with what the exact server wrote down; by default three requests per
    stream, 50 ms and 10 ms a token.

    Raises KeyboardInterrupt: Ctrl-C or SIGTERM ended it.
    """
    count = requests or 3 * streams
    with exact_server(Schedule()) as url, tempfile.TemporaryDirectory() as folder:
        target, endpoint = parse_url(url), find_endpoint("chat", model="exact")
        setup = Setup(
            target=target,
            endpoint=endpoint,
            prompts=prompts(seed=0, tokenizer=None),
            head=request_head(target, endpoint.path),
        )
        lengths = Lengths(mean=200), Lengths(mean=TOKENS)
        question = Question(
            isl=lengths[0], osl=lengths[1], arrivals=ClosedLoop(concurrency=streams), requests=count
        )
        writer = RunWriter(Path(folder) / "run")
        try:
            observed = measure(setup, question.draw(), writer)
            record = writer.finish()
        finally:
            writer.discard()
        if observed.interrupted:
            raise KeyboardInterrupt  # nothing is measured after it
        return _compared(streams, record, observed, server_log(url))


def server_log(url: str) -> np.typing.NDArray[np.int64]:
    """What the exact server wrote down since: int64 (requests, 5) of number, ns of receipt, first
    and last write, and tokens.
    """
    parts = urlsplit(url)
    with contextlib.closing(
        http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    ) as connection:
        connection.request("GET", "/log")
        rows = json.loads(connection.getresponse().read())["requests"]
    return np.array(rows, dtype=np.int64).reshape(-1, 5)


def _compared(
    streams: int, record: Requests, observed: Observed, log: np.typing.NDArray[np.int64]
) -> SelfTest:
    number, received, first, last = log[log[:, 0] >= 0].T[:4]
    lag = (record.first_token_ns[number] + observed.start_ns - first) / 1e6
    last_lag = (record.last_token_ns[number] + observed.start_ns - last) / 1e6
    tokens = int(record.osl.sum())
    per_token = 1e6 * observed.cpu_s / max(tokens, 1)
    return SelfTest(
        streams=streams,
        requests=len(record),
        tokens=tokens,
        ttft_ms=summarize(record).ttft_from_send_ms.mean or 0.0,
        server_ttft_ms=float((first - received).mean()) / 1e6,
        bias_ms=float(lag.mean()),
        bias_p99_ms=float(np.percentile(lag, 99)),
        last_bias_ms=float(last_lag.mean()),
        cpu_us_per_token=per_token,
        ceiling_tokens_per_second=CPU_SHARE * 1e6 / per_token,
        lateness_mean_ms=float(np.mean(observed.lateness_ns)) / 1e6
        if len(observed.lateness_ns)
        else 0.0,
    )
