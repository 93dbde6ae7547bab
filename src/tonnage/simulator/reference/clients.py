"""The clients of a trace: who sends its requests to an engine, and when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tonnage.simulator.request import Request
from tonnage.spec.workload import Trace


class Waiting:
    """The requests of a trace that wait for others to end, and the sessions that are not over."""

    def __init__(self, trace: Trace) -> None:
        """Nothing has ended."""
        graph = trace.graph()
        self.starts, self.rows, self.waits = graph.starts.tolist(), graph.rows.tolist(), graph.waits.tolist()
        self.pause = [0] * len(trace) if trace.pause_ps is None else trace.pause_ps.tolist()
        self.ready = [0] * len(trace)
        self.session = trace.session().tolist()
        self.left = Counter(self.session)

    def ended(self, number: int, now: int) -> list[tuple[int, int]]:
        """The requests that waited for one alone, or for it last, and when each is sent."""
        self.left[self.session[number]] -= 1
        free = []
        for row in self.rows[self.starts[number] : self.starts[number + 1]]:
            self.waits[row] -= 1
            self.ready[row] = max(self.ready[row], now)
            if self.waits[row] == 0:
                free.append((row, self.ready[row] + self.pause[row]))
        return free

    def over(self, number: int) -> bool:
        """Whether all requests of a request's session have ended."""
        return self.left[self.session[number]] == 0


class Clients:
    """Drives an engine with a trace: it submits requests, and answers the ends of earlier ones.

    In an open loop a request is sent when it is due. In a closed loop the client program is serial: clients are free at time 0 and
    after each of their requests, and the program sends the next request, in order of ids, ``turnaround_ps`` after the client was free
    and the program had done with the one before, whichever is later. That is also when it is due. The client of a rejected request is
    free at once: when the request had reached the engine.

    A first request may say when it is due at the earliest, so that a run begins with sessions that are under way.

    Of a session only the first request is sent like that. Each further one is sent its pause after the end of the last that it waits for,
    and the client of a closed loop is free when all of the session have ended.
    """

    def __init__(self, trace: Trace, submit: Callable[[Request], None]) -> None:
        """Send what is sent whatever happens."""
        self.trace = trace
        self.submit = submit
        self.waiting = Waiting(trace)
        self.begun = 0
        self.program_free = 0
        self.firsts = trace.firsts().tolist()
        if trace.concurrency:
            for _ in range(trace.concurrency):
                self.begin(0)
        else:
            for number in self.firsts:
                self._send(number, int(trace.due_ps[number]))

    def answer(self, number: int, now: int) -> None:
        """A request has ended: the session goes on, or its client is free."""
        for row, at in self.waiting.ended(number, now):
            self._send(row, at)
        if self.waiting.over(number):
            self.begin(now)

    def begin(self, now: int) -> None:
        """A client of a closed loop is free and sends the next first turn, if there is one; an open loop has no clients."""
        if self.trace.concurrency and self.begun < len(self.firsts):
            self.program_free = max(now, self.program_free) + self.trace.turnaround_ps
            first = self.firsts[self.begun]
            self._send(first, max(self.program_free, int(self.trace.due_ps[first])))
            self.begun += 1

    def _send(self, number: int, due: int) -> None:
        trace = self.trace
        priority = 0 if trace.priority is None else int(trace.priority[number])
        ttft_ps = -1 if trace.ttft_ps is None else int(trace.ttft_ps[number])
        isl, osl = int(trace.isl[number]), int(trace.osl[number])
        self.submit(Request(id=number, isl=isl, osl=osl, at=due, priority=priority, ttft_ps=ttft_ps))
