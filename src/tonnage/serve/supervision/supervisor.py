"""Several child processes kept running: readiness with progress, restart with back-off, an end without orphans."""

from __future__ import annotations

import itertools
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tonnage.errors import BAD_INPUT, InputError, TonnageError
from tonnage.serve.supervision.child import Child, Program

LOOK_S = 0.05
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0
"""Pause before a restart: it doubles with every start that did not last, up to the longest."""
_PORTS, _TRIES = range(15_000, 32_768), 100
"""Linux gives outgoing connections ports from 32768 on, other systems from 49152 on."""
LASTED_S = 60.0
"""A program that ran so long begins again with the first pause."""


class Supervisor:
    """Starts programs and keeps them running while its ``with`` block lasts.

    Attributes:
        children: one for each program, in order.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        logs: Path,
        *,
        grace_s: float = 10.0,
        told: Callable[[str], None] | None = None,
        restarts: bool = True,
    ) -> None:
        """Start nothing yet; each program has a file of its name in ``logs``, and ``told`` takes a line about every restart."""
        logs.mkdir(parents=True, exist_ok=True)
        self.children = tuple(Child(program, logs / f"{program.name}.log", grace_s=grace_s) for program in programs)
        self._told = told or (lambda line: None)
        self._restarts = restarts
        self._ending = threading.Event()
        self._watch = threading.Thread(target=self._keep_running, daemon=True)
        self._due: dict[Child, float] = {}
        self._pause = dict.fromkeys(self.children, FIRST_PAUSE_S)

    def __enter__(self) -> Self:
        """Start every program."""
        try:
            for child in self.children:
                child.start()
        except BaseException:
            self._end()
            raise
        if self._restarts:
            self._watch.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End every program, all at once, and wait for them."""
        self._ending.set()
        if self._watch.is_alive():
            self._watch.join()
        self._end()

    def wait_until_ready(self, *, timeout_s: float, seen: Callable[[int, int], None] | None = None) -> None:
        """Wait until every program serves; ``seen`` takes how many do, and of how many, whenever that number changes.

        Raises InputError: a program refused what it was given (exit code 2), in its words; TonnageError: one ended, or the time is over.
        """
        until, before = time.monotonic() + timeout_s, -1
        while True:
            serving = [child.serves() for child in self.children]
            if sum(serving) != before and seen is not None:
                before = sum(serving)
                seen(before, len(serving))
            if all(serving):
                return
            self._refuse_ended()
            if time.monotonic() > until:
                late = self.children[serving.index(False)]
                raise TonnageError(f"{late.program.name} did not serve within {timeout_s:g} s; its last lines: {late.tail()}")
            time.sleep(LOOK_S)

    def _refuse_ended(self) -> None:
        """A program that ends before it has served would only be restarted to end again."""
        for child in self.children:
            code = child.exit_code
            if code == BAD_INPUT:
                raise InputError(f"{child.program.name}: {child.tail().removeprefix('tonnage: ')}")
            if code is not None and child.starts == 1:
                raise TonnageError(f"{child.program.name} ended with exit code {code} before it served; its last lines: {child.tail()}")

    def _keep_running(self) -> None:
        while not self._ending.wait(LOOK_S):
            now = time.monotonic()
            for child in self.children:
                code = child.exit_code
                if code is None or code == BAD_INPUT:
                    continue
                if child not in self._due:
                    self._due[child] = now + self._next_pause(child, now)
                    self._told(f"{child.program.name} ended with exit code {code}; it is started again")
                elif now >= self._due[child]:
                    del self._due[child]
                    self._start_again(child)

    def _next_pause(self, child: Child, now: float) -> float:
        if now - child.started_at >= LASTED_S:
            self._pause[child] = FIRST_PAUSE_S
        pause = self._pause[child]
        self._pause[child] = min(2 * pause, LONGEST_PAUSE_S)
        return pause

    def _start_again(self, child: Child) -> None:
        child.wait()
        try:
            child.start()
        except TonnageError as error:
            self._told(str(error))

    def _end(self) -> None:
        for child in self.children:
            child.ask_to_end()
        for child in self.children:
            child.wait()


# Free ports for child processes.


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports that nobody listens on at this moment, all different; another process may still take one before it is used.

    They are below the range from which systems give ports to outgoing connections: on a busy machine one of these would take a port within
    the seconds that a program needs to start.
    """
    tries = itertools.repeat(None, _TRIES * count)
    with ExitStack() as stack:
        held: list[socket.socket] = []
        while len(held) < count:
            try:
                held.append(stack.enter_context(socket.create_server((host, random.choice(_PORTS)))))
            except OSError:
                if next(tries, 0) == 0:
                    raise
        return [int(one.getsockname()[1]) for one in held]
