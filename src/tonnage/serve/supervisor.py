"""Engines as child processes, each behind a guard: started, waited for, restarted, and never left
behind.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tonnage.errors import BAD_INPUT, InputError, TonnageError
from tonnage.serve import guard


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A server that is run as a child process."""

    name: str  # of the child, in messages and as the name of its log
    argv: tuple[str, ...]
    address: str  # "host:port" where it answers HTTP
    path: str = "/health"  # the address of the health check; any status below 500 says that it does
    # variables next to those of this process
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The address as a URL."""
        return f"http://{self.address}"


TAIL_LINES = 5
# Environment variable that tells a child how often it was started: 1 the first time
STARTS = "TONNAGE_STARTS"


class Child:
    """A program that runs, or has run."""

    def __init__(self, program: Program, log: Path, *, grace_s: float) -> None:
        """Prepare a process, without starting it; ``log`` is a file in a folder that exists,
        ``grace_s`` the seconds from SIGTERM to SIGKILL.
        """
        # program: what it runs; log: the file that takes everything the program prints; it grows
        # over restarts
        self.program, self.log = program, log
        # starts: how often it was started; pid: process id of the program itself; 0 before its
        # first start
        self.starts = self.pid = 0
        self.started_at = 0.0
        self._grace_s = grace_s
        self._guard: subprocess.Popen[bytes] | None = None
        self._lifeline = -1

    def start(self) -> None:
        """Start the program. Raises TonnageError: it cannot be run."""
        ends, self._lifeline = os.pipe()
        command = [
            sys.executable,
            "-I",
            guard.__file__,
            str(ends),
            str(self._grace_s),
            "--",
            *self.program.argv,
        ]
        environment = {**os.environ, **self.program.environment, STARTS: str(self.starts + 1)}
        try:
            with self.log.open("ab") as log:
                self._guard = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    pass_fds=(ends,),
                    env=environment,
                )
        finally:
            os.close(ends)
        first_line = (
            self._guard.stdout.readline().decode(errors="replace").strip()
            if self._guard.stdout is not None
            else ""
        )
        self.starts += 1
        self.started_at = time.monotonic()
        if not first_line.isdigit():
            raise TonnageError(f"{self.program.name} cannot be started: {self.tail()}")
        self.pid = int(first_line)

    @property
    def exit_code(self) -> int | None:
        """The program's exit code, 128 and more for a signal; None while it runs or before it was
        started.
        """
        return None if self._guard is None else self._guard.poll()

    def serves(self, timeout_s: float = 1.0) -> bool:
        """Whether it answers HTTP without a server error."""
        host, _, port = self.program.address.rpartition(":")
        connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout_s)
        try:
            connection.request("GET", self.program.path)
            return connection.getresponse().status < http.client.INTERNAL_SERVER_ERROR
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the program and all that it started; SIGKILL is how a crash is tried
        out.
        """
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def ask_to_end(self) -> None:
        """SIGTERM now and SIGKILL after the grace, by the guard; returns at once."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def wait(self) -> None:
        """Wait until the program has ended, which ``ask_to_end`` bounds by the grace."""
        self.ask_to_end()
        if self._guard is not None:
            self._guard.wait()
            if self._guard.stdout is not None:
                self._guard.stdout.close()

    def tail(self) -> str:
        """The last lines of the log that hold something, as one line."""
        with contextlib.suppress(OSError):
            lines = [
                line.strip()
                for line in self.log.read_text(errors="replace").splitlines()
                if line.strip()
            ]
            if lines:
                return " / ".join(lines[-TAIL_LINES:])
        return "it printed nothing"


LOOK_S = 0.05
# Pause before a restart: it doubles with every start that did not last, up to the longest
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0
# Linux gives outgoing connections ports from 32768 on, other systems from 49152 on
_PORTS, _TRIES = range(15_000, 32_768), 100
LASTED_S = 60.0  # A program that ran so long begins again with the first pause


class Supervisor:
    """Starts programs and keeps them running while its ``with`` block lasts."""

    def __init__(
        self,
        programs: Sequence[Program],
        logs: Path,
        *,
        grace_s: float = 10.0,
        announce: Callable[[str], None] | None = None,
        restarts: bool = True,
    ) -> None:
        """Start nothing yet; each program has a file of its name in ``logs``, and ``announce``
        takes a line about every restart.
        """
        logs.mkdir(parents=True, exist_ok=True)
        # one for each program, in order
        self.children = tuple(
            Child(program, logs / f"{program.name}.log", grace_s=grace_s) for program in programs
        )
        self._told = announce or (lambda line: None)
        self._restarts = restarts
        self._ending = threading.Event()
        self._watch = threading.Thread(target=self._keep_running, daemon=True)
        self._due: dict[Child, float] = {}
        self._pause = dict.fromkeys(self.children, FIRST_PAUSE_S)

    def __enter__(self) -> Self:
        try:
            for child in self.children:
                child.start()
        except BaseException:
            self._end()
            raise
        if self._restarts:
            self._watch.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        if self._watch.is_alive():
            self._watch.join()
        self._end()

    def wait_until_ready(
        self, *, timeout_s: float, on_ready: Callable[[int, int], None] | None = None
    ) -> None:
        """Wait until all serve; ``on_ready`` takes how many do, of how many. Raises InputError:
        exit code 2; TonnageError: one failed.
        """
        until, before = time.monotonic() + timeout_s, -1
        while True:
            serving = [child.serves() for child in self.children]
            if sum(serving) != before and on_ready is not None:
                before = sum(serving)
                on_ready(before, len(serving))
            if all(serving):
                return
            self._refuse_ended()
            if time.monotonic() > until:
                late = self.children[serving.index(False)]
                raise TonnageError(
                    f"{late.program.name} did not serve within {timeout_s:g} s; its last lines:"
                    f" {late.tail()}"
                )
            time.sleep(LOOK_S)

    def _refuse_ended(self) -> None:
        """A program that ends before it has served would only be restarted to end again."""
        for child in self.children:
            code = child.exit_code
            if code == BAD_INPUT:
                raise InputError(f"{child.program.name}: {child.tail().removeprefix('tonnage: ')}")
            if code is not None and child.starts == 1:
                raise TonnageError(
                    f"{child.program.name} ended with exit code {code} before it served; its last"
                    f" lines: {child.tail()}"
                )

    def _keep_running(self) -> None:
        while not self._ending.wait(LOOK_S):
            now = time.monotonic()
            for child in self.children:
                code = child.exit_code
                if code is None or code == BAD_INPUT:
                    continue
                if child not in self._due:
                    self._due[child] = now + self._next_pause(child, now)
                    self._told(
                        f"{child.program.name} ended with exit code {code}; it is started again"
                    )
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


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports on which no process listens at this moment, all different; another process may still
    take one before it is used.

    They are below the range from which systems give ports to outgoing connections: on a busy
    machine one of these would take a port within the seconds that a program needs to start.
    """
    tries = itertools.repeat(None, _TRIES * count)
    with ExitStack() as stack:
        sockets: list[socket.socket] = []
        while len(sockets) < count:
            try:
                sockets.append(
                    stack.enter_context(socket.create_server((host, random.choice(_PORTS))))
                )
            except OSError:
                if next(tries, 0) == 0:
                    raise
        return [int(bound.getsockname()[1]) for bound in sockets]
