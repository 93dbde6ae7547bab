"""The clients of a trace: who sends its requests to an engine, and when."""

from __future__ import annotations

from collections.abc import Callable

from tonnage.simulator.request import Request
from tonnage.spec.workload import Trace


class Clients:
    """Drives an engine with a trace: it submits requests, and answers the ends of earlier ones.

    In an open loop a request is sent when it is due. In a closed loop the client program is serial: clients are free at time 0 and
    after each of their requests, and the program sends the next request, in order of ids, ``turnaround_ps`` after the client was free
    and the program had done with the one before, whichever is later. That is also when it is due. The client of a rejected request is
    free at once: when the request had reached the engine.
    """

    def __init__(self, trace: Trace, submit: Callable[[Request], None]) -> None:
        """Send what is sent whatever happens."""
        self.trace = trace
        self.submit = submit
        self.sent = 0
        self.program_free = 0
        if trace.concurrency:
            for _ in range(trace.concurrency):
                self.answer(0)
        else:
            for due in trace.due_ps:
                self._send(int(due))

    def answer(self, now: int) -> None:
        """A client of a closed loop is free and sends the next request, if there is one; an open loop has no clients."""
        if self.trace.concurrency and self.sent < len(self.trace):
            self.program_free = max(now, self.program_free) + self.trace.turnaround_ps
            self._send(self.program_free)

    def _send(self, due: int) -> None:
        number = self.sent
        self.sent += 1
        self.submit(Request(id=number, isl=int(self.trace.isl[number]), osl=int(self.trace.osl[number]), at=due))
