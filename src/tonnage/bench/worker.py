"""One of several client processes: takes its share of a load, waits for the common start, leaves its run in a folder.

The job comes pickled over standard input from the process that started it, since it holds the key of the server; what was seen of the
run goes back the same way, over a file in the folder.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from tonnage.bench.load import Load
from tonnage.bench.measure import measure
from tonnage.bench.setup import Setup
from tonnage.bench.tls import tls_context
from tonnage.results.batches import RunWriter

READY = "ready"
SEEN = "seen.pickle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one worker does.

    Attributes:
        setup: the server and the prompts, with the worker's own place among all.
        load: its share.
        folder: where its run and what was seen of it go.
    """

    setup: Setup
    load: Load
    folder: Path


def work(job: Job) -> None:
    """Do the job; the common start comes as a line of standard input once "ready" was printed."""

    def gate() -> int:
        print(READY, flush=True)
        return int(sys.stdin.buffer.readline())

    setup = replace(job.setup, tls=tls_context(job.setup.ca_file) if job.setup.target.tls else None)
    writer = RunWriter(job.folder / "run")
    try:
        observed = measure(setup, job.load, writer, gate=gate)
        writer.finish()
        writer.close(scenario={}, summary={}, provenance={}, run={})
    finally:
        writer.discard()
    (job.folder / SEEN).write_bytes(pickle.dumps(observed))


if __name__ == "__main__":
    work(pickle.load(sys.stdin.buffer))
