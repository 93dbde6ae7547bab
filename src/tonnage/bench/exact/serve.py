"""The exact server as a process of its own: ``tonnage bench selftest --serve``, and what a self-test starts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tonnage.bench.exact.schedule import Schedule
from tonnage.errors import TonnageError

LONGEST_S = 86_400.0


def serve(schedule: Schedule, *, host: str = "127.0.0.1", port: int = 0, seconds: float = LONGEST_S) -> None:
    """Serve until SIGINT or SIGTERM, or for ``seconds``; prints where it listens, once it does.

    Raises:
        OSError: the port is taken.
    """
    import uvloop

    async def run() -> None:
        from tonnage.bench.exact.server import ExactServer

        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        server = ExactServer(loop, schedule, host=host, port=port)
        print(f"listening on http://{host}:{server.port}", flush=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)
        server.close()

    uvloop.run(run())


@contextmanager
def exact_server(schedule: Schedule, *, seconds: float = 600.0) -> Iterator[str]:
    """The URL of an exact server in a process of its own, which ends with the block, or after ``seconds`` at the latest.

    Raises:
        TonnageError: it did not start.
    """
    command = [sys.executable, "-m", "tonnage.bench.exact.serve", json.dumps(asdict(schedule)), str(seconds)]
    here = str(Path(__file__).parents[3])  # found from any folder, also where PYTHONPATH is relative
    paths = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths})
    try:
        line = process.stdout.readline() if process.stdout else ""
        if not line.startswith("listening on "):
            raise TonnageError("the exact server did not start; let tonnage bench selftest serve it alone to see why")
        yield line.removeprefix("listening on ").strip()
    finally:
        process.terminate()
        process.wait(timeout=30)
        if process.stdout:
            process.stdout.close()


if __name__ == "__main__":
    serve(Schedule(**json.loads(sys.argv[1])), seconds=float(sys.argv[2]))
