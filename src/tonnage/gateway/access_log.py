"""A line for each request: who, what, where to, how it ended and how long it took; never a prompt, an answer or a key."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

from tonnage.errors import InputError, option

MOST_TARGET = 200
"""Bytes of a target that are written."""

MOST_LINES = 256
"""Lines that are held at most."""


class AccessLog:
    """Appends JSON lines to a file; without one it does nothing. A file that was moved away is made anew within a second.

    Lines are written many at a time, in one call of the system, so that those of several workers do not mix.
    """

    def __init__(self, path: Path | None) -> None:
        """Open the file.

        Raises:
            InputError: it cannot be written.
        """
        self._path = path
        self._descriptor = -1
        self._lines: list[str] = []
        if path is not None:
            try:
                self._open(path)
            except OSError as error:
                raise InputError(f"{option('access_log')}: {path} cannot be written ({error.strerror})") from None

    def _open(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)

    def write(self, *, key: str, model: str, method: bytes, target: bytes, backend: str, status: int, outcome: str, seconds: float) -> None:
        """Add a request that is over.

        Args:
            key: the name of its key; "" without one.
            model: that it named.
            method, target: as the client wrote them, the query left out.
            backend: where it was sent last; "" for nowhere.
            status: of the response; 0 for none.
            outcome: as in ``counts.OUTCOMES``, or "refused" by the gateway.
            seconds: from the whole request to the end of the response.
        """
        if self._descriptor < 0:
            return
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "key": key,
            "method": method.decode("latin-1"),
            "path": target.partition(b"?")[0][:MOST_TARGET].decode("latin-1"),
            "model": model,
            "backend": backend,
            "status": status,
            "outcome": outcome,
            "seconds": round(seconds, 6),
        }
        self._lines.append(json.dumps(line) + "\n")
        if len(self._lines) >= MOST_LINES:
            self._write_out()

    def flush(self) -> None:
        """Write what is held, and go on in a new file if the old one is no longer in its place; called a few times a second."""
        if self._path is None or self._descriptor < 0:
            return
        self._write_out()
        with contextlib.suppress(OSError):
            if self._path.exists() and os.path.samestat(self._path.stat(), os.fstat(self._descriptor)):
                return
            before = self._descriptor
            self._open(self._path)
            os.close(before)

    def _write_out(self) -> None:
        """Lines that the disk does not take are lost, so that requests are served."""
        data, self._lines = "".join(self._lines).encode(), []
        with contextlib.suppress(OSError):
            os.write(self._descriptor, data)

    def close(self) -> None:
        """Write what is held."""
        if self._descriptor >= 0:
            self._write_out()
            os.close(self._descriptor)
            self._descriptor = -1
