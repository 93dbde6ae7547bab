"""Runs against servers of this machine."""

from __future__ import annotations

import socket

import numpy as np

from tests.bench.corpus import HEAD, PLAIN, chunked, sse
from tests.bench.live import read_request
from tonnage.bench.exact_server import Schedule
from tonnage.results.requests import Requests

FAST = Schedule(ttft_s=0.01, itl_s=0.002)


def in_flight(requests: Requests) -> int:
    """The most requests that were in flight at once; one that ends makes room for one that begins
    at the same moment."""
    times = np.concatenate([requests.sent_ns, requests.last_token_ns])
    steps = np.concatenate([np.ones(len(requests), dtype=np.int64), np.full(len(requests), -1)])
    return int(steps[np.lexsort((steps, times))].cumsum().max())


def reply(peer: socket.socket) -> None:
    for _ in range(2):
        read_request(peer)
        for piece in (HEAD, *(chunked(sse(event), last=b"") for event in PLAIN), chunked()):
            peer.sendall(piece)
