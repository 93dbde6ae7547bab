"""The process that simulates and measures for the page: one job at a time, told as lines of JSON on
standard input.

The page stays responsive, a job can be cancelled, and whatever goes wrong in it ends this process
and not the page. Lines that are written: ``{"progress": [done, total, name]}``, ``{"live": {…}}``,
``{"decided": …}`` once, and last ``{"answer": …}``, ``{"faults": […]}`` or ``{"cancelled": true}``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tonnage import api
from tonnage.api.bench import prepare_bench, run_bench
from tonnage.api.compare import compare_plan
from tonnage.bench.measure import Live
from tonnage.errors import InputError, TonnageError, in_python
from tonnage.formats.measured_files import read_measured
from tonnage.page.fields import question_of
from tonnage.report.document import Document, Text, section
from tonnage.report.measured import run_and_plan
from tonnage.report.plans.plan_document import to_json
from tonnage.report.scored import calibrated, scored
from tonnage.report.simulated import timeline_page
from tonnage.report.verified import watched
from tonnage.report.workload import described
from tonnage.report.writers.html import fragment
from tonnage.results.store import json_text
from tonnage.sizing.planner import Runs

MOST_KEPT = 20_000  # runs that are kept between questions; beyond them the memory is emptied

# A question that takes every part of an answer once
SMALL = "model=llama-3.1-8b&isl=100&osl=10&peak_rps=1&ttft=p95<=500ms&gpu=h100-sxm-80gb&precision=fp8&tp=1&engine=vllm"  # noqa: E501

EVERY_S = 0.5  # seconds between two readings of a run


class Cancelled(Exception):
    """Nobody wants the answer any more."""


class Jobs:
    """The jobs that this process knows, and what they remember from one to the next."""

    def __init__(
        self, write: Callable[[dict[str, Any]], None], is_wanted: Callable[[], bool]
    ) -> None:
        """Take what writes a line, and what says whether the job is still wanted."""
        self.write, self.wanted = write, is_wanted
        self.runs: Runs | None = None

    def progress(self, done: int, total: int, name: str) -> None:
        """Tell how far the job is. Raises Cancelled: it is not wanted any more."""
        if not self.wanted():
            raise Cancelled
        self.write({"progress": [done, total, name]})

    def warm(self) -> None:
        """Compile and load what a question needs, by a small one."""
        self.size(arguments=question_of(SMALL), command="", today="2026-01-01")

    def size(
        self,
        *,
        arguments: dict[str, Any],
        scenario: dict[str, Any] | None = None,
        command: str,
        today: str,
    ) -> str:
        """The plan as the command writes it, after what is decided of it; of several classes of
        traffic the answer for all of them.
        """
        if "classes" in arguments:
            together = api.size_use_cases(
                () if scenario is None else (scenario,),
                progress=self.progress,
                command=command,
                today=date.fromisoformat(today),
                **arguments,
            )
            return json_text(together.to_json())
        understood = api.ask(scenario, **arguments)
        if self.runs is None or self.runs.kept > MOST_KEPT:
            self.runs = Runs()
        plans = api.answer(
            understood,
            progress=self.progress,
            command=command,
            today=date.fromisoformat(today),
            runs=self.runs,
            decided=lambda plan: self.write({"decided": json_text(to_json((plan,)))}),
        )
        return json_text(to_json(plans))

    def simulate(self, *, arguments: dict[str, Any], scenario: dict[str, Any] | None = None) -> str:
        """A deployment under load, as the command prints it."""
        runs = api.simulate_sweep(scenario, progress=self.progress, **arguments)
        return json_text(runs.to_json() if len(runs) > 1 or runs.left_out else runs[0].to_json())

    def timeline(self, *, arguments: dict[str, Any]) -> str:
        """The slots of one instance under load, step by step, as the sections of a page."""
        run = api.simulate(None, progress=self.progress, **arguments)
        return fragment(*timeline_page(api.run_timeline(run), "").sections)

    def bench(
        self, *, arguments: dict[str, Any], output: str, selftest: bool, provenance: dict[str, Any]
    ) -> str:
        """Measure an endpoint into a run folder, and tell twice a second how it goes; a job that is
        dropped ends as by Ctrl-C.
        """
        done, views = threading.Event(), [Live()]

        def tell() -> None:
            while not done.wait(EVERY_S):
                now = views[-1].reading()
                if not self.wanted():
                    os.kill(os.getpid(), signal.SIGINT)
                    return
                self.write({"live": {} if now is None else asdict(now)})

        def watch(words: str) -> Live:
            views.append(Live())
            return views[-1]

        prepared = prepare_bench(**arguments)
        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            run_bench(
                prepared, output=Path(output), selftest=selftest, provenance=provenance, watch=watch
            )
        finally:
            done.set()
            teller.join()
        return output

    def look(self, *, name: str) -> dict[str, Any]:
        """A file of measured points or of recorded requests: which of them it is, and what it says.
        Raises InputError: it is neither.
        """

        def points() -> Document:
            rows = read_measured(Path(name))
            question.update(
                {
                    key: rows[0][key]
                    for key in ("model", "gpu", "precision", "tp", "isl", "osl")
                    if rows and rows[0].get(key)
                }
            )
            return scored(api.score(name, worst=5, progress=self.progress))

        question: dict[str, Any] = {}
        fragments: dict[str, str] = {}
        why: list[str] = []
        shows: dict[str, Callable[[], Document]] = {
            "points": points,
            "trace": lambda: described(api.describe_workload(name)),
        }
        for kind, show in shows.items():
            try:
                fragments[kind] = fragment(*show().sections)
            except InputError as error:
                why.append(f"not {kind}: {str(error).splitlines()[0]}")
        if not fragments:
            raise InputError("\n".join(why))
        return {"kinds": list(fragments), "question": question, "html": "".join(fragments.values())}

    def predicted(self, *, runs: list[str], plan: str) -> str:
        """Each run next to what a plan's deployment is predicted to do with its requests, or why
        that cannot be said.
        """
        sections = []
        for place, run in enumerate(runs):
            if not self.wanted():
                raise Cancelled
            try:
                parts = run_and_plan(compare_plan(Path(run), Path(plan), instances=1), run).sections
            except InputError as error:
                parts = (section("run", run, Text(str(error), tone="warning")),)
            sections += [
                replace(part, key=f"{part.key}-{place}", title=part.title or run) for part in parts
            ]
        return fragment(*sections)

    def calibrate(self, *, runs: list[str], plan: str, output: str, today: str) -> str:
        """Factors fitted to runs of the deployment that a plan chose, in a file that a question
        names as coefficients.
        """
        report = api.calibrate(runs, plan=plan, output=output, date=today, progress=self.progress)
        return fragment(*calibrated(report).sections)

    def watch(self, *, urls: list[str], plan: str, every: str) -> str:
        """Look at a running deployment next to its plan until nobody wants to know any more."""

        def wait(seconds: float) -> None:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                if not self.wanted():
                    raise Cancelled
                time.sleep(min(0.2, seconds))

        for look in api.watch(urls, plan=plan, every=every, wait=wait):
            document = watched(look)
            self.write({"live": {"title": document.title, "html": fragment(*document.sections)}})
        return ""


def main() -> None:
    """Work until standard input ends."""
    os.nice(int(sys.argv[1]))
    lines: SimpleQueue[dict[str, Any]] = SimpleQueue()
    active_jobs: set[int] = set()
    lock = threading.Lock()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else prints does not come between the lines

    def write(number: int, event: dict[str, Any]) -> None:
        with lock:
            out.write(json.dumps({"job": number, **event}) + "\n")
            out.flush()

    def read() -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if "cancel" in message:
                active_jobs.discard(message["cancel"])
            else:
                active_jobs.add(message["job"])
                lines.put(message)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    number = 0
    jobs = Jobs(lambda message: write(number, message), lambda: number in active_jobs)
    while True:
        order = lines.get()
        number = order["job"]
        try:
            if number not in active_jobs:
                raise Cancelled
            write(number, {"answer": getattr(jobs, order["kind"])(**order["given"])})
        except (Cancelled, KeyboardInterrupt):
            write(number, {"cancelled": True})
        except TonnageError as error:
            write(number, {"faults": [in_python(line) for line in error.marked.splitlines()]})
        except Exception as error:
            print(f"tonnage: {type(error).__name__}: {error}", file=sys.stderr)
            write(
                number,
                {
                    "faults": [
                        f"this question failed inside Tonnage ({type(error).__name__}); please"
                        " report it"
                    ],
                    "broken": True,
                },
            )
        active_jobs.discard(number)


if __name__ == "__main__":
    main()
