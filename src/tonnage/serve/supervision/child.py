"""One child process behind its guard: started, asked whether it serves, killed, ended."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tonnage.errors import TonnageError
from tonnage.serve.supervision import guard

# What one child process runs.


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A server that is run as a child process.

    Attributes:
        name: of the child, in messages and as the name of its log.
        argv: the command.
        address: "host:port" where it answers HTTP.
        path: what is asked to see whether it serves; any status below 500 says that it does.
        environment: variables next to those of this process.
    """

    name: str
    argv: tuple[str, ...]
    address: str
    path: str = "/health"
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The address as a URL."""
        return f"http://{self.address}"


TAIL_LINES = 5
STARTS = "TONNAGE_STARTS"
"""Environment variable that tells a child how often it was started: 1 the first time."""


class Child:
    """A program that runs, or has run.

    Attributes:
        program: what it runs.
        log: the file that takes everything the program prints; it grows over restarts.
        starts: how often it was started.
        pid: process id of the program itself; 0 before its first start.
    """

    def __init__(self, program: Program, log: Path, *, grace_s: float) -> None:
        """Not started yet; ``log`` is a file in a folder that exists, ``grace_s`` the seconds from SIGTERM to SIGKILL."""
        self.program, self.log = program, log
        self.starts = self.pid = 0
        self.started_at = 0.0
        self._grace_s = grace_s
        self._guard: subprocess.Popen[bytes] | None = None
        self._lifeline = -1

    def start(self) -> None:
        """Start the program. Raises TonnageError: it cannot be run."""
        ends, self._lifeline = os.pipe()
        command = [sys.executable, "-I", guard.__file__, str(ends), str(self._grace_s), "--", *self.program.argv]
        environment = {**os.environ, **self.program.environment, STARTS: str(self.starts + 1)}
        try:
            with self.log.open("ab") as log:
                self._guard = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, pass_fds=(ends,), env=environment
                )
        finally:
            os.close(ends)
        said = _first_line(self._guard.stdout)
        self.starts += 1
        self.started_at = time.monotonic()
        if not said.isdigit():
            raise TonnageError(f"{self.program.name} cannot be started: {self.tail()}")
        self.pid = int(said)

    @property
    def exit_code(self) -> int | None:
        """The program's exit code, 128 and more for a signal; None while it runs or before it was started."""
        return None if self._guard is None else self._guard.poll()

    def serves(self, timeout_s: float = 1.0) -> bool:
        """Whether it answers HTTP without an error of its own."""
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
        """Send a signal to the program and all that it started; SIGKILL is how a crash is tried out."""
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
            lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
            if lines:
                return " / ".join(lines[-TAIL_LINES:])
        return "it printed nothing"


def _first_line(stream: IO[bytes] | None) -> str:
    return stream.readline().decode(errors="replace").strip() if stream is not None else ""
