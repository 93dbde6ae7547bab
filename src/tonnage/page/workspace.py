"""What the page holds while it runs: its folder, its token, the processes that work for it, and the
answers that it keeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
import sys
import tempfile
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tonnage.api import Asked, ask, by_class
from tonnage.api.question.confined_paths import check_inside
from tonnage.errors import InputError
from tonnage.page.fields import command_of, query_of, question_of
from tonnage.plan.plan import Plan
from tonnage.report.plans.plan_document import plans_of, read_plans
from tonnage.sizing.estimate import Estimate, estimates
from tonnage.sizing.planner import Runs

LONGEST_LINE = 64 * 2**20  # bytes of an answer
# seconds that a cancelled job has to end by itself; then its process is killed, and the next job
# starts another one
ENDS_S = 5.0


UNDER_WAY = {"progress", "live", "decided"}  # what a job says before its end


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
        """What a job (a method of ``worker.Jobs``) says, its end last; closing the iterator cancels
        the job.
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
                    message = await self._next_line(process, number)
                    ended = not UNDER_WAY & message.keys()
                    yield message
            finally:
                self._ending = (
                    None if ended else asyncio.ensure_future(self._cancelled(process, number))
                )

    async def answer(self, kind: str, **given: Any) -> dict[str, Any]:
        """The end of a job."""
        last: dict[str, Any] = {}
        async with contextlib.aclosing(self.run(kind, **given)) as run:
            async for message in run:
                last = message
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
    def _tell(process: asyncio.subprocess.Process, event: dict[str, Any]) -> None:
        if process.stdin is not None:
            process.stdin.write(json.dumps(event).encode() + b"\n")

    @staticmethod
    async def _next_line(process: asyncio.subprocess.Process, number: int) -> dict[str, Any]:
        """The next line of a job; that its process ended where it did."""
        while process.stdout is not None and (line := await process.stdout.readline()):
            message: dict[str, Any] = json.loads(line)
            if message.pop("job") == number:
                return message
        return {"faults": ["the process that simulates has ended; ask again"], "broken": True}

    async def _cancelled(self, process: asyncio.subprocess.Process, number: int) -> None:
        """Let a job end, by force where it does not."""
        self._tell(process, {"cancel": number})
        try:
            async with asyncio.timeout(ENDS_S):
                while UNDER_WAY & (await self._next_line(process, number)).keys():
                    pass
        except TimeoutError:
            process.kill()
            await process.wait()

    async def close(self) -> None:
        """End the process."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


MOST_KEPT = 64  # answers that are kept; the least recently used goes first
LARGEST_READ = 8 * 2**20  # bytes of a JSON file whose kind is looked at
NICE = 5  # how far a simulation steps back behind the page's own process; a measurement does not
MOST_PREPARED = 4_000  # closed forms that are kept


def kind_of(path: Path) -> str:
    """The kind of a file: "plan", "calibration", "config.json" of a model, or "" for any other."""
    if path.suffix.lower() != ".json" or path.stat().st_size > LARGEST_READ:
        return ""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return ""
    schema = str(document.get("schema", "")) if isinstance(document, dict) else ""
    if schema.startswith(("tonnage-", "tonnage.")):
        return schema[len("tonnage-") :].partition("/")[0]
    return "config.json" if isinstance(document, dict) and "architectures" in document else ""


class Desk:
    """One page server."""

    def __init__(self, folder: Path, token: str = "") -> None:
        """Work in a folder, which is made if it is not there. Raises InputError: it cannot be made
        or written.
        """
        self.folder = folder.resolve()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.folder).close()
        except OSError as error:
            raise InputError(
                f"{folder}: cannot be written ({error.strerror}); name a folder that can, tonnage"
                " ui FOLDER"
            ) from None
        self.token = token or secrets.token_urlsafe(24)
        self.worker = Worker(self.folder, nice=NICE)
        self.bench = Worker(self.folder, nice=0)
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._prepared = Runs()

    def files(self, *endings: str) -> tuple[str, ...]:
        """Names of the files in the folder, those with certain endings, or all."""
        names = sorted(
            path.name
            for path in self.folder.iterdir()
            if path.is_file() and not path.name.startswith(".")
        )
        return tuple(name for name in names if not endings or name.lower().endswith(endings))

    def understood(self, question: Mapping[str, Any]) -> Asked:
        """The question of a form. Raises InputErrors: everything that is wrong with it."""
        check_inside(question, self.folder)
        return ask(None, **question)

    def estimated(self, question: Mapping[str, Any]) -> tuple[Estimate, ...]:
        """What closed forms say of the question, of its first model. Raises InputErrors: everything
        that is wrong with it. Of several classes of traffic closed forms say nothing.
        """
        if "classes" in question:
            check_inside(question, self.folder)
            for traffic_class in by_class(None, question):
                ask(None, **traffic_class)
            return ()
        if self._prepared.kept > MOST_PREPARED:
            self._prepared = Runs()
        return estimates(self.understood(question).questions[0], self._prepared)

    async def sized(self, question: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """The progress of an answer, and last the answer, as the plan's JSON text."""
        check_inside(question, self.folder)
        key = query_of(question)
        if key in self._kept:
            self._kept.move_to_end(key)
            yield {"answer": self._kept[key]}
            return
        today = datetime.now(tz=UTC).date().isoformat()
        async with aclosing(
            self.worker.run(
                "size", arguments=dict(question), command=command_of(question), today=today
            )
        ) as run:
            async for message in run:
                if "answer" in message:
                    self._kept[key] = message["answer"]
                    while len(self._kept) > MOST_KEPT:
                        self._kept.popitem(last=False)
                yield message

    async def plan_text(self, question: Mapping[str, Any]) -> str:
        """The plan's JSON text. Raises InputError: the question cannot be answered."""
        last: dict[str, Any] = {}
        async for message in self.sized(question):
            last = message
        if "answer" not in last:
            raise InputError("\n".join(last.get("faults", ["cancelled"])))
        return str(last["answer"])

    async def plans(self, question: Mapping[str, Any]) -> tuple[Plan, ...]:
        """The plans of a question, one for each model."""
        return plans_of(json.loads(await self.plan_text(question)), "the answer")

    def plan_files(self) -> tuple[str, ...]:
        """Names of the files of the folder that hold a plan."""
        return tuple(name for name in self.files(".json") if kind_of(self.folder / name) == "plan")

    def run_folders(self) -> tuple[str, ...]:
        """Names of the run folders of the folder, the newest first."""
        folders = [
            path
            for path in self.folder.iterdir()
            if path.is_dir() and not path.is_symlink() and self.runs_in(path.name)
        ]
        return tuple(
            path.name
            for path in sorted(folders, key=lambda folder: folder.stat().st_mtime, reverse=True)
        )

    def runs_in(self, name: str) -> list[str]:
        """The run folders that a folder is, or of a sweep holds, as paths below the run folder."""
        if name.startswith("."):
            return []
        if (self.folder / name / "summary.json").is_file():
            return [name]
        return sorted(
            f"{name}/{path.parent.name}" for path in (self.folder / name).glob("*/summary.json")
        )

    async def plan_at(self, place: str) -> Plan:
        """The plan of a link's query, or of a file of the run folder ("@plan.json"). Raises
        InputError: none, or several.
        """
        if place.startswith("@"):
            check_inside(place[1:], self.folder, "plan")
            plans = read_plans(self.folder / place[1:])
        else:
            plans = await self.plans(question_of(place))
        if len(plans) != 1:
            raise InputError("a comparison takes plans of one model each")
        return plans[0]

    async def close(self) -> None:
        """End the processes."""
        await self.worker.close()
        await self.bench.close()
