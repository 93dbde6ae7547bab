"""The process that simulates and measures for the page: one job at a time, told as lines of JSON on standard input.

The page stays responsive, a job can be cancelled, and whatever goes wrong in it ends this process and not the page. Lines that are
written: ``{"progress": [done, total, name]}``, ``{"live": {…}}`` and last ``{"answer": …}``, ``{"faults": […]}`` or
``{"cancelled": true}``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from datetime import date
from queue import SimpleQueue
from typing import Any

from tonnage.errors import TonnageError, in_python

NICE = 5
"""How far a simulation steps back behind the page's own process."""
MOST_KEPT = 20_000
"""Runs that are kept between questions; beyond them the memory is emptied."""


class Cancelled(Exception):
    """Nobody wants the answer any more."""


class Jobs:
    """The jobs that this process knows, and what they remember from one to the next."""

    def __init__(self, write: Callable[[dict[str, Any]], None], wanted: Callable[[], bool]) -> None:
        """Take what writes a line, and what says whether the job is still wanted."""
        self.write, self.wanted = write, wanted
        self.runs: Any = None

    def progress(self, done: int, total: int, name: str) -> None:
        """Tell how far the job is.

        Raises:
            Cancelled: it is not wanted any more.
        """
        if not self.wanted():
            raise Cancelled
        self.write({"progress": [done, total, name]})

    def warm(self) -> None:
        """Compile and load the simulator."""
        from tonnage.simulator.kernel import warm_up

        warm_up()

    def size(self, *, asked: dict[str, Any], scenario: dict[str, Any] | None = None, command: str, today: str) -> str:
        """The plan as the command writes it."""
        from tonnage import api
        from tonnage.report.plans.plan_document import to_json
        from tonnage.results.store import json_text
        from tonnage.sizing.planner import Runs

        understood = api.ask(scenario, **asked)
        if self.runs is None or self.runs.kept > MOST_KEPT:
            self.runs = Runs()
        plans = api.answer(understood, progress=self.progress, command=command, today=date.fromisoformat(today), runs=self.runs)
        return json_text(to_json(plans))

    def simulate(self, *, asked: dict[str, Any], scenario: dict[str, Any] | None = None) -> str:
        """A deployment under load, as the command prints it."""
        from tonnage import api
        from tonnage.results.store import json_text

        points = [run.to_json() for run in api.simulate_sweep(scenario, progress=self.progress, **asked)]
        return json_text(points[0] if len(points) == 1 else {"points": points})


def main() -> None:
    """Work until standard input ends."""
    os.nice(NICE)
    lines: SimpleQueue[dict[str, Any]] = SimpleQueue()
    wanted: set[int] = set()
    lock = threading.Lock()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else prints does not come between the lines

    def write(number: int, said: dict[str, Any]) -> None:
        with lock:
            out.write(json.dumps({"job": number, **said}) + "\n")
            out.flush()

    def read() -> None:
        for line in sys.stdin:
            told = json.loads(line)
            if "cancel" in told:
                wanted.discard(told["cancel"])
            else:
                wanted.add(told["job"])
                lines.put(told)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    number = 0
    jobs = Jobs(lambda said: write(number, said), lambda: number in wanted)
    while True:
        told = lines.get()
        number = told["job"]
        try:
            if number not in wanted:
                raise Cancelled
            write(number, {"answer": getattr(jobs, told["kind"])(**told["given"])})
        except Cancelled:
            write(number, {"cancelled": True})
        except TonnageError as error:
            write(number, {"faults": [in_python(line) for line in error.marked.splitlines()]})
        except Exception as error:
            print(f"tonnage: {type(error).__name__}: {error}", file=sys.stderr)
            write(number, {"faults": [f"this question failed inside Tonnage ({type(error).__name__}); please report it"], "broken": True})
        wanted.discard(number)


if __name__ == "__main__":
    main()
