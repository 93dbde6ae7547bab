"""Records of runs as they should be, and servers that are timed."""

from __future__ import annotations

from array import array
from collections import Counter

import numpy as np

from tonnage.bench.load import Load
from tonnage.bench.measure import Observed
from tonnage.bench.recorder import Tally
from tonnage.bench.steady import find_steady
from tonnage.bench.validity import Validity, judge
from tonnage.results.metrics import summarize
from tonnage.results.requests import GAP_BINS, POSITION_BUCKETS, Requests

MS = 1_000_000


def record(
    e2e_ms: np.ndarray, *, every_ms: float = 10.0, due: np.ndarray | None = None
) -> Requests:
    """Requests due one after another, half of each E2E before the first token."""
    count = len(e2e_ms)
    due_ns = np.rint(np.arange(count) * every_ms * MS).astype(np.int64) if due is None else due
    e2e = np.rint(e2e_ms * MS).astype(np.int64)
    zeros = np.zeros(count, dtype=np.int64)
    return Requests(
        due_ns=due_ns,
        sent_ns=due_ns.copy(),
        first_token_ns=due_ns + e2e // 2,
        last_token_ns=due_ns + e2e,
        isl=zeros + 10,
        osl=zeros + 5,
        cached_tokens=zeros,
        instance=zeros.astype(np.int32),
        status=zeros.astype(np.int8),
        preemptions=zeros.astype(np.int32),
        gaps=np.zeros((POSITION_BUCKETS, GAP_BINS), dtype=np.int64),
    )


GOOD = record(np.full(600, 100.0))
OPEN = Load(isl=GOOD.isl, osl=GOOD.osl, due_ns=GOOD.due_ns, rate=100.0, pattern="constant")

SEEN = Observed(
    load=OPEN,
    sent=600,
    tally=Tally(outcomes=Counter({"": 600}), tokens=3000, events=3000),
    lateness_ns=array("q", [100_000] * 600),
    begun_lateness_ns=array("q", [50_000] * 600),
    cpu=array("d", [0.3] * 6),
    cpu_share=0.3,
    cpu_s=1.8,
    seconds=6.0,
    start_ns=0,
    started_unix_ns=0,
    connections=10,
    retries=0,
    interrupted=False,
)


def judged(
    observed: Observed = SEEN, requests: Requests = GOOD, percentiles: tuple[int, ...] = ()
) -> Validity:
    return judge(
        observed, requests, summarize(requests), find_steady(requests), percentiles=percentiles
    )
