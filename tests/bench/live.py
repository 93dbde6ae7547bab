"""A load against a server on this machine, measured in a few lines."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tonnage.bench.connection import Setup, parse_url, request_head
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.load import Question
from tonnage.bench.measure import Observed, measure
from tonnage.bench.prompts import prompts
from tonnage.results.requests import STATUS_NAMES, Requests
from tonnage.results.store import RunWriter
from tonnage.spec.workload import Arrivals, ClosedLoop, parse_lengths


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a load left behind, and by status how many requests."""

    observed: Observed
    requests: Requests

    @property
    def outcomes(self) -> dict[str, int]:
        return dict(self.observed.tally.outcomes)

    @property
    def statuses(self) -> dict[str, int]:
        counts = np.bincount(self.requests.status, minlength=len(STATUS_NAMES))
        return {name: int(n) for name, n in zip(STATUS_NAMES, counts, strict=True) if n}


def question(
    arrivals: Arrivals | None = None,
    *,
    isl: str = "20",
    osl: str = "5",
    requests: int | None = 12,
    **further: Any,
) -> Question:
    """A small closed loop unless told otherwise."""
    lengths = parse_lengths(isl, ""), parse_lengths(osl, "")
    return Question(
        isl=lengths[0],
        osl=lengths[1],
        arrivals=arrivals or ClosedLoop(concurrency=4),
        requests=requests,
        **further,
    )


def run(
    url: str,
    folder: Path,
    asked: Question,
    *,
    kind: str = "chat",
    streaming: bool = True,
    **setup: Any,
) -> Run:
    """Measure one load."""
    target, endpoint = parse_url(url), find_endpoint(kind, model="m", streaming=streaming)
    made = Setup(
        target=target,
        endpoint=endpoint,
        prompts=setup.pop("prompts", None) or prompts(seed=0, tokenizer=None),
        head=request_head(target, endpoint.path),
        **{"timeout_s": 30.0, **setup},
    )
    writer = RunWriter(folder)
    try:
        observed = measure(made, asked.draw(), writer)
        return Run(observed=observed, requests=writer.finish())
    finally:
        writer.discard()


@contextmanager
def scripted(*answers: Callable[[socket.socket], None]) -> Iterator[str]:
    """The URL of a server whose n-th connection is handed to the n-th answer, and then closed; it
    ends with the last."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)

        def serve() -> None:
            for answer in answers:
                try:
                    peer, _ = listening.accept()
                except OSError:
                    return
                with peer:
                    peer.settimeout(20)
                    answer(peer)
            listening.close()

        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield url
    thread.join(timeout=20)


def read_request(peer: socket.socket) -> bytes:
    """One request, head and body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += peer.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        body += peer.recv(65536)
    return head + b"\r\n\r\n" + body
