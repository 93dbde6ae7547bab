"""A line for each request: who, what, where to, how it ended and how long it took; never a prompt, an answer or a key."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import IO

from tonnage.errors import InputError, option

MOST_TARGET = 200
"""Bytes of a target that are written."""


class AccessLog:
    """Appends JSON lines to a file; without one it does nothing. A file that was moved away is made anew within a second."""

    def __init__(self, path: Path | None) -> None:
        """Open the file.

        Raises:
            InputError: it cannot be written.
        """
        self._path = path
        self._file: IO[str] | None = None
        if path is not None:
            try:
                self._file = path.open("a", encoding="utf-8")
            except OSError as error:
                raise InputError(f"{option('access_log')}: {path} cannot be written ({error.strerror})") from None

    def write(self, *, key: str, model: str, method: bytes, target: bytes, backend: str, status: int, outcome: str, seconds: float) -> None:
        """Add a request that is over.

        Args:
            key: the name of its key; "" without one.
            model: that it named.
            method, target: as the client wrote them, the query left out.
            backend: where it was sent last; "" for nowhere.
            status: of the response; 0 for none.
            outcome: as in ``backend.OUTCOMES``, or "refused" by the gateway.
            seconds: from the whole request to the end of the response.
        """
        if self._file is None:
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
        self._file.write(json.dumps(line) + "\n")

    def flush(self) -> None:
        """Write what is held, and go on in a new file if the old one is no longer in its place; called a few times a second."""
        if self._file is None or self._path is None:
            return
        self._file.flush()
        if not self._path.exists():
            self._file.close()
            self._file = self._path.open("a", encoding="utf-8")

    def close(self) -> None:
        """Write what is held."""
        if self._file is not None:
            self._file.close()
            self._file = None
