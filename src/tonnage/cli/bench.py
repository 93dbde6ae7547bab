"""``tonnage bench``: a live endpoint measured, and the client's own self-test."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter
from rich.live import Live as Drawn
from rich.table import Table

from tonnage.api import bench as api
from tonnage.bench.arguments import (
    BenchArguments,
    ExactArguments,
    LoadArguments,
    ServerArguments,
    VerdictArguments,
)
from tonnage.bench.client import Client
from tonnage.bench.conductor import Conductor, TalkConductor
from tonnage.bench.measure import Live
from tonnage.cli.flags import OUTPUT, flags_of, given, refuse, with_flags
from tonnage.cli.printing import print_answer, provenance, write_page
from tonnage.errors import DONE, NO_ANSWER, InputError, TonnageError, option
from tonnage.spec.typed_values import about
from tonnage.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from tonnage.bench.benchmark import Measured

ACTION = (
    "selftest measures the client itself against a server with a known schedule, instead of an"
    " endpoint."
)
LOAD = Group("Load", sort_key=1)
SERVER = Group("Server", sort_key=2)
VERDICT = Group("Verdict", sort_key=3)
TEST = Group("Self-test (tonnage bench selftest)", sort_key=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Options of the course of a measurement, and of what is kept and printed."""

    find_max: bool | None = about(
        "Search the highest load inside the --slo, beginning at the one given; at most 12 runs.",
        negative=False,
    )
    selftest: bool | None = about(
        "Measure the client against the exact server first, for some seconds (default: on)."
    )
    artifact_dir: Path | None = about(
        "Write a run folder with requests, gaps, tokens, summary, run, scenario and provenance; a"
        " sweep writes one per load."
    )
    report: Path | None = about(
        "Write a page that shows the run to this file (HTML): figures, percentiles, lengths,"
        " verdict."
    )
    json: bool | None = about(
        'Print one JSON object; a sweep prints {"points": […]}.', negative=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """Options of the test of the client."""

    serve: bool | None = about(
        "Serve the exact server until Ctrl-C instead of testing.", negative=False
    )
    streams: str | None = about(
        "Requests in flight of the self-test; several values with commas (default: 1,64,256)."
    )


FLAGS = (
    *flags_of(ServerArguments, SERVER),
    *flags_of(LoadArguments, LOAD),
    *flags_of(VerdictArguments, VERDICT),
    *flags_of(BenchArguments, OUTPUT),
    *flags_of(Course, OUTPUT),
    *flags_of(ExactArguments, TEST),
    *flags_of(SelfTest, TEST),
)


@with_flags(*FLAGS)
def bench(
    action: Annotated[Literal["selftest"] | None, Parameter(help=ACTION)] = None, /, **asked: Any
) -> int:
    """Measure a live endpoint: latencies, throughput, and whether the measurement can be
    believed.
    """
    measured, course = _of(asked, BenchArguments), _of(asked, Course)
    json, output, page = bool(course.pop("json")), course["artifact_dir"], course["report"]
    if action == "selftest":
        refuse(measured | course, "belongs to the measurement of an endpoint, not to the self-test")
        return _selftest(_of(asked, ExactArguments), _of(asked, SelfTest), json=json)
    refuse(_of(asked, ExactArguments, SelfTest), "belongs to the self-test: tonnage bench selftest")
    if measured["export"] and output is None:
        raise InputError("--export: needs a folder to write to; add --artifact-dir")
    run = _find_max if asked.get("find_max") else _measure
    with _reported(page, output) as folder:
        return run(given(measured), folder, selftest=asked.get("selftest") is not False, json=json)


@contextmanager
def _reported(page: Path | None, output: Path | None) -> Iterator[Path | None]:
    """Where runs go; afterwards they are shown on the page, which is known to be possible before
    anything is measured.
    """
    if page is None:
        yield output
        return
    if not page.absolute().parent.is_dir() or page.is_dir():
        raise InputError(
            f"{option('report')}: cannot write '{page}'; name a file in a folder that exists"
        )
    with tempfile.TemporaryDirectory() as scratch:
        folder = output or Path(scratch) / "run"
        yield folder
        from tonnage.report.runs.run_document import run_report
        from tonnage.report.runs.shown_run import read_shown_runs

        write_page(page, lambda: run_report(read_shown_runs(folder)))


def _of(flags: dict[str, Any], *kinds: type[Any]) -> dict[str, Any]:
    return {field.name: flags.get(field.name) for kind in kinds for field in fields(kind)}


def _prepared(flags: dict[str, Any]) -> Any:
    missing = [f"--{name}" for name in ("url", "model") if name not in flags]
    if missing:
        raise InputError(
            f"{', '.join(missing)}: missing; for example --url http://127.0.0.1:8000 --model"
            " llama-3.1-8b"
        )
    return api.prepare_bench(**flags)


def _find_max(flags: dict[str, Any], output: Path | None, *, selftest: bool, json: bool) -> int:
    if "request_count" not in flags:
        flags.setdefault("benchmark_duration", "20s")
    prepared = _prepared(flags)
    from tonnage.report.measured import maximum

    highest = api.run_find_max(
        prepared,
        output=output,
        selftest=selftest,
        provenance=provenance(flags.get("seed", 0)),
        watch=live_view,
    )
    print_answer(lambda: maximum(highest), highest.to_json, json=json)
    _refuse_unwritten([trial.measured for trial in highest.trials])
    return DONE if highest.load == highest.load and not highest.client_limited else NO_ANSWER


def _measure(flags: dict[str, Any], output: Path | None, *, selftest: bool, json: bool) -> int:
    prepared = _prepared(flags)
    from tonnage.report.measured import measured

    runs = api.run_bench(
        prepared,
        output=output,
        selftest=selftest,
        provenance=provenance(flags.get("seed", 0)),
        watch=live_view,
    )
    points = [run.to_json() for run in runs]
    print_answer(
        lambda: measured(runs),
        lambda: points[0] if len(points) == 1 else {"points": points},
        json=json,
    )
    _refuse_unwritten(runs)
    return NO_ANSWER if any(run.validity.reasons for run in runs) else DONE


def _refuse_unwritten(runs: Sequence[Measured]) -> None:
    """Say, below the figures, which run folders could not be written. Raises TonnageError."""
    if unwritten := [run.unwritten for run in runs if run.unwritten]:
        raise TonnageError("; ".join(unwritten))


def _selftest(server: dict[str, Any], test: dict[str, Any], *, json: bool) -> int:
    if test["serve"]:
        refuse(
            {"streams": test["streams"]}, "belongs to the test; leave it out or leave out --serve"
        )
        api.serve_exactly(**given(server))
        return DONE
    refuse(server, "belongs to the server; add --serve")
    from tonnage.report.measured import selftest

    tests = api.bench_selftest(streams=test["streams"] or "1,64,256")
    print_answer(
        lambda: selftest(tests),
        lambda: {"selftests": [finished_test.to_json() for finished_test in tests]},
        json=json,
    )
    return DONE


EVERY_S = 0.5


def live_view(words: str) -> LiveView | None:
    """A view of one load, or None where standard error is not a terminal."""
    return LiveView(words) if sys.stderr.isatty() else None


class LiveView(Live):
    """A table that a separate thread draws twice a second; the loop only adds numbers to it."""

    def __init__(self, words: str, console: Console | None = None) -> None:
        """Set up for a load, described in words."""
        super().__init__()
        self._words = words
        self._console = console
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, conductor: Conductor | TalkConductor, client: Client) -> None:
        """Start drawing."""
        super().begin(conductor, client)
        self._thread = threading.Thread(target=self._draw, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Draw no more, and leave the terminal as it was."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _draw(self) -> None:
        from rich.console import Console

        console = self._console or Console(stderr=True)
        with Drawn(self.picture(), console=console, transient=True, auto_refresh=False) as drawn:
            while not self._stop.wait(EVERY_S):
                drawn.update(self.picture(), refresh=True)

    def picture(self) -> RenderableType:
        """The current table."""
        table = Table(title=self._words, title_justify="left", box=None, pad_edge=False)
        for name in (
            "sent",
            "in flight",
            "requests/s",
            "TTFT p50",
            "TTFT p95",
            "TPOT p50",
            "TPOT p95",
            "failed",
            "left",
        ):
            table.add_column(name, justify="right")
        table.add_row(*self._cells())
        return table

    def _cells(self) -> list[str]:
        now = self.reading()
        if now is None:
            return ["–"] * 9
        rate = "–" if now.requests_per_second is None else f"{now.requests_per_second:,.1f}"
        latencies = [
            text
            for pair in (now.ttft_s, now.tpot_s)
            for text in (("–", "–") if pair is None else map(format_duration, pair))
        ]
        remaining = "–" if now.left_s is None else format_duration(now.left_s)
        return [
            f"{now.sent:,}",
            f"{now.in_flight:,}",
            rate,
            *latencies,
            f"{now.failed:,}",
            remaining,
        ]
