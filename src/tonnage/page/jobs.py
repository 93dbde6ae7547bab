"""Jobs of the page: run one after another in a second process, followed as they go, and cancelled when nobody waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

LONGEST_LINE = 64 * 2**20
"""Bytes of an answer."""
ENDS_S = 5.0
"""Seconds that a cancelled job has to end by itself; then its process is killed, and the next job starts another one."""


UNDER_WAY = {"progress", "live", "decided"}
"""What a job says before its end."""


class Worker:
    """A process that does one job at a time (``page.worker``)."""

    def __init__(self, folder: Path, *, nice: int) -> None:
        """Work in a folder, whose files jobs may name, with that niceness."""
        self.folder, self.nice = folder, nice
        self._numbers = itertools.count(1)
        self._busy = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._ending: asyncio.Future[None] | None = None

    async def run(self, kind: str, **given: Any) -> AsyncGenerator[dict[str, Any]]:
        """What a job says, its end last; closing the iterator cancels the job.

        Args:
            kind: a method of ``worker.Jobs``.
            given: its arguments.
        """
        async with self._busy:
            if self._ending is not None:
                await self._ending
            number = next(self._numbers)
            process = await self._started()
            ended = False
            try:
                self._tell(process, {"job": number, "kind": kind, "given": given})
                while not ended:
                    said = await self._said(process, number)
                    ended = not UNDER_WAY & said.keys()
                    yield said
            finally:
                self._ending = None if ended else asyncio.ensure_future(self._cancelled(process, number))

    async def answer(self, kind: str, **given: Any) -> dict[str, Any]:
        """The end of a job."""
        last: dict[str, Any] = {}
        async with contextlib.aclosing(self.run(kind, **given)) as run:
            async for said in run:
                last = said
        return last

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-P", "-m", "tonnage.page.worker", str(self.nice)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd=self.folder,
                limit=LONGEST_LINE,
            )
        return self._process

    @staticmethod
    def _tell(process: asyncio.subprocess.Process, told: dict[str, Any]) -> None:
        if process.stdin is not None:
            process.stdin.write(json.dumps(told).encode() + b"\n")

    @staticmethod
    async def _said(process: asyncio.subprocess.Process, number: int) -> dict[str, Any]:
        """The next line of a job; that its process ended where it did."""
        while process.stdout is not None and (line := await process.stdout.readline()):
            said: dict[str, Any] = json.loads(line)
            if said.pop("job") == number:
                return said
        return {"faults": ["the process that simulates has ended; ask again"], "broken": True}

    async def _cancelled(self, process: asyncio.subprocess.Process, number: int) -> None:
        """Let a job end, by force where it does not."""
        self._tell(process, {"cancel": number})
        try:
            async with asyncio.timeout(ENDS_S):
                while UNDER_WAY & (await self._said(process, number)).keys():
                    pass
        except TimeoutError:
            process.kill()
            await process.wait()

    async def close(self) -> None:
        """End the process."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
