"""``tonnage bench``: a live endpoint measured, and the client's own self-test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from tonnage.bench.arguments import BenchArguments, ExactArguments, LoadArguments, ServerArguments, VerdictArguments
from tonnage.cli.flags import OUTPUT, flags_of, given, with_flags
from tonnage.cli.printing import print_answer
from tonnage.errors import DONE, NO_ANSWER, InputError, option
from tonnage.spec.typed_values import about

ACTION = "selftest measures the client itself against a server with a known schedule, instead of an endpoint."
LOAD = Group("Load", sort_key=1)
SERVER = Group("Server", sort_key=2)
VERDICT = Group("Verdict", sort_key=3)
TEST = Group("Self-test (tonnage bench selftest)", sort_key=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How the measurement goes, and what is kept and printed."""

    find_max: bool | None = about("Search the highest load inside the --slo, beginning at the one given; at most 12 runs.", negative=False)
    selftest: bool | None = about("Measure the client against the exact server first, for some seconds (default: on).")
    artifact_dir: Path | None = about(
        "Write a run folder with requests, gaps, tokens, summary, run, scenario and provenance; a sweep writes one per load."
    )
    report: Path | None = about("Write a page that shows the run to this file (HTML): figures, percentiles, lengths, verdict.")
    json: bool | None = about('Print one JSON object; a sweep prints {"points": […]}.', negative=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """How the client is tested."""

    serve: bool | None = about("Serve the exact server until Ctrl-C instead of testing.", negative=False)
    streams: str | None = about("Requests in flight of the self-test; several values with commas (default: 1,64,256).")


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
def bench(action: Annotated[Literal["selftest"] | None, Parameter(help=ACTION)] = None, /, **asked: Any) -> int:
    """Measure a live endpoint: latencies, throughput, and whether the measurement can be believed."""
    measured, course = _of(asked, BenchArguments), _of(asked, Course)
    json, output, page = bool(course.pop("json")), course["artifact_dir"], course["report"]
    if action == "selftest":
        _refuse(measured | course, "belongs to the measurement of an endpoint, not to the self-test")
        return _selftest(_of(asked, ExactArguments), _of(asked, SelfTest), json=json)
    _refuse(_of(asked, ExactArguments, SelfTest), "belongs to the self-test: tonnage bench selftest")
    if measured["export"] and output is None:
        raise InputError("--export: needs a folder to write to; add --artifact-dir")
    run = _find_max if asked.get("find_max") else _measure
    with _reported(page, output) as folder:
        return run(given(measured), folder, selftest=asked.get("selftest") is not False, json=json)


@contextmanager
def _reported(page: Path | None, output: Path | None) -> Iterator[Path | None]:
    """Where runs go; afterwards they are shown on the page, which is known to be possible before anything is measured."""
    if page is None:
        yield output
        return
    if not page.absolute().parent.is_dir() or page.is_dir():
        raise InputError(f"{option('report')}: cannot write '{page}'; name a file in a folder that exists")
    with tempfile.TemporaryDirectory() as scratch:
        folder = output or Path(scratch) / "run"
        yield folder
        from tonnage.report.runs.run_document import run_report
        from tonnage.report.runs.shown_run import read_shown_runs
        from tonnage.report.writers.html import write_page

        write_page(page, run_report(read_shown_runs(folder)))


def _of(asked: dict[str, Any], *kinds: type[Any]) -> dict[str, Any]:
    """The flags of these kinds."""
    return {one.name: asked.get(one.name) for kind in kinds for one in fields(kind)}


def _refuse(flags: dict[str, Any], why: str) -> None:
    for name, value in flags.items():
        if value is not None:
            raise InputError(f"--{name.replace('_', '-')}: {why}")


def _prepared(asked: dict[str, Any]) -> Any:
    missing = [f"--{name}" for name in ("url", "model") if name not in asked]
    if missing:
        raise InputError(f"{', '.join(missing)}: missing; for example --url http://127.0.0.1:8000 --model llama-3.1-8b")
    from tonnage.api import bench as api

    return api.prepare_bench(**asked)


def _find_max(asked: dict[str, Any], output: Path | None, *, selftest: bool, json: bool) -> int:
    if "request_count" not in asked:
        asked.setdefault("benchmark_duration", "20s")
    prepared = _prepared(asked)
    from tonnage.api import bench as api
    from tonnage.cli.live_view import live_view
    from tonnage.cli.printing import provenance
    from tonnage.report.measured import maximum

    found = api.run_find_max(prepared, output=output, selftest=selftest, provenance=provenance(asked.get("seed", 0)), watch=live_view)
    print_answer(lambda: maximum(found), found.to_json, json=json)
    return DONE if found.load == found.load and not found.client_limited else NO_ANSWER


def _measure(asked: dict[str, Any], output: Path | None, *, selftest: bool, json: bool) -> int:
    prepared = _prepared(asked)
    from tonnage.api import bench as api
    from tonnage.cli.live_view import live_view
    from tonnage.cli.printing import provenance
    from tonnage.report.measured import measured

    runs = api.run_bench(prepared, output=output, selftest=selftest, provenance=provenance(asked.get("seed", 0)), watch=live_view)
    points = [run.to_json() for run in runs]
    print_answer(lambda: measured(runs), lambda: points[0] if len(points) == 1 else {"points": points}, json=json)
    return NO_ANSWER if any(run.validity.reasons for run in runs) else DONE


def _selftest(server: dict[str, Any], test: dict[str, Any], *, json: bool) -> int:
    from tonnage.api import bench as api

    if test["serve"]:
        _refuse({"streams": test["streams"]}, "belongs to the test; leave it out or leave out --serve")
        api.serve_exactly(**given(server))
        return DONE
    _refuse(server, "belongs to the server; add --serve")
    from tonnage.report.measured import selftest

    tests = api.bench_selftest(streams=test["streams"] or "1,64,256")
    print_answer(lambda: selftest(tests), lambda: {"selftests": [one.to_json() for one in tests]}, json=json)
    return DONE
