"""``tonnage.api.bench.bench``: a live endpoint under one load or several, measured."""

from __future__ import annotations

import itertools
import os
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tonnage.api.question.arguments import Many, whole_numbers
from tonnage.api.question.bench import Bench, checked_count, prepare_bench
from tonnage.bench.arguments import ExactArguments
from tonnage.bench.benchmark import Measured, benchmark, environment
from tonnage.bench.connection import more_descriptors
from tonnage.bench.exact_server import Schedule, serve
from tonnage.bench.find_max import Maximum, find_max
from tonnage.bench.load import Question
from tonnage.bench.measure import Watcher
from tonnage.bench.prompts import Prompts
from tonnage.bench.scrape import Scraper
from tonnage.bench.selftest import SelfTest, self_test
from tonnage.errors import InputError, option
from tonnage.formats.tool_format import export
from tonnage.results.store import check_free
from tonnage.spec.workload import ClosedLoop, OpenLoop, TraceArrivals
from tonnage.units import parse_duration

__all__ = ["bench", "bench_selftest", "prepare_bench", "run_bench", "run_find_max", "serve_exactly"]

# streams of the short self-test before a run at most; a load of fewer clients is tested at its own
# number
SELF_TEST_STREAMS = 256

# makes who looks on at a load, described in words; None for nobody
Watch = Callable[[str], Watcher | None]


def bench(
    *,
    output: Path | None = None,
    selftest: bool = True,
    provenance: dict[str, Any] | None = None,
    **asked: Any,
) -> list[Measured]:
    """Measure a live endpoint under one load or several, as ``tonnage bench`` does; kept only with
    an ``output``. Raises InputError.
    """
    return run_bench(
        prepare_bench(**asked), output=output, selftest=selftest, provenance=provenance or {}
    )


def run_bench(
    bench: Bench,
    *,
    output: Path | None,
    selftest: bool,
    provenance: dict[str, Any],
    watch: Watch = lambda words: None,
) -> list[Measured]:
    """Run what ``prepare_bench`` made; a run that Ctrl-C ends is the last. Raises InputError: a
    folder in use.
    """
    for question in bench.questions if output is not None else ():
        check_free(bench.folder(output or Path(), question))
    _check_descriptors(bench)
    facts = _facts(bench, selftest)
    done: list[Measured] = []
    with tempfile.TemporaryDirectory() as scratch:
        for place, question in enumerate(bench.questions):
            folder = None if output is None else bench.folder(output, question)
            done.append(
                _measure_load(
                    bench,
                    question,
                    folder=folder,
                    scratch=Path(scratch) / str(place),
                    facts=facts,
                    provenance=provenance,
                    watch=watch,
                )
            )
            if done[-1].observed.interrupted:
                break
    return done


def run_find_max(
    bench: Bench,
    *,
    output: Path | None,
    selftest: bool,
    provenance: dict[str, Any],
    watch: Watch = lambda words: None,
) -> Maximum:
    """Search the highest load inside the limits, beginning at the requested one. Raises
    InputError.
    """
    if not bench.wanted.slo:
        raise InputError(
            f'{option("find_max")}: needs a limit; add {option("slo")} such as "ttft p95<=500ms"'
        )
    question = bench.questions[0]
    load = question.arrivals
    if len(bench.questions) > 1 or isinstance(load, TraceArrivals):
        raise InputError(
            f"{option('find_max')}: begins at one load; give one {option('concurrency')} or one"
            f" {option('request_rate')}"
        )
    if output is not None:
        check_free(output)
    _check_descriptors(bench)
    if isinstance(load, OpenLoop) and load.in_flight:
        raise InputError(
            f"{option('concurrency')}: caps the requests in flight, so that a higher rate breaks no"
            " limit; leave it out"
        )
    facts = _facts(bench, selftest)
    closed = isinstance(load, ClosedLoop)
    with tempfile.TemporaryDirectory() as scratch:
        counter = itertools.count()

        def run(value: float) -> Measured:
            place = next(counter)
            folder = (
                None
                if output is None
                else output / f"{place:02}-{'concurrency' if closed else 'rate'}-{value:.4g}"
            )
            at = question.at(value)
            return _measure_load(
                bench,
                at,
                folder=folder,
                scratch=Path(scratch) / str(place),
                facts=facts,
                provenance=provenance,
                watch=watch,
            )

        start = float(load.concurrency) if isinstance(load, ClosedLoop) else load.rate
        return find_max(run, bench.wanted.slo, start=start, whole=closed)


SPARE_DESCRIPTORS = 64  # For the run's files, the server's metrics, and what Python itself holds


def _check_descriptors(bench: Bench) -> None:
    """Refuse more clients than this user may open connections for. Raises InputError."""
    clients = max(
        [q.arrivals.concurrency for q in bench.questions if isinstance(q.arrivals, ClosedLoop)],
        default=1,
    )
    needed, limit = -(-clients // bench.setup.workers) + SPARE_DESCRIPTORS, more_descriptors()
    if needed > limit:
        raise InputError(
            f"{option('concurrency')}: {clients} clients need {needed} open files in each client"
            f" process, and this user may open {limit}; raise that (`ulimit -n`), or share them out"
            f" with {option('workers')} {-(-clients // max(limit - SPARE_DESCRIPTORS, 1))}"
        )


def _measure_load(
    bench: Bench,
    question: Question,
    *,
    folder: Path | None,
    scratch: Path,
    facts: dict[str, Any],
    provenance: dict[str, Any],
    watch: Watch,
) -> Measured:
    """Measure one load, into a folder that is kept or into one that is not."""
    load = question.draw()
    watcher = watch(load.words)
    setup, prompts = bench.setup, bench.setup.prompts
    # that no earlier load has sent: a server's prefix cache would answer them sooner
    if isinstance(prompts, Prompts):
        setup = replace(setup, prompts=replace(prompts, salt=secrets.randbits(64)))
    items = (
        {"isl": None, "osl": None, "items": int(question.isl.mean)}
        if setup.endpoint.kind == "infer"
        else {}
    )
    measured = benchmark(
        setup,
        load,
        directory=folder or scratch,
        keep=folder is not None,
        report_options=bench.wanted,
        facts=facts,
        scenario={**bench.scenario, **_load(question), **items},
        provenance=provenance,
        watchers=() if watcher is None else (watcher,),
        metrics=(
            Scraper(bench.metrics_urls, gpus=bench.gpus)
            if bench.metrics_urls or bench.gpus is not None
            else None
        ),
    )
    if folder is not None and not measured.unwritten:
        for name in bench.exports:
            export(folder, name)
    return measured


def _facts(bench: Bench, selftest: bool) -> dict[str, Any]:
    """The machine, and a short self-test at the load's own number of clients."""
    clients = [
        q.arrivals.concurrency for q in bench.questions if isinstance(q.arrivals, ClosedLoop)
    ]
    streams = min(max(clients, default=64), SELF_TEST_STREAMS)
    return {
        "selftest": self_test(streams=streams).to_json() if selftest else None,
        "environment": environment(),
    }


def bench_selftest(*, streams: Many = "1,64,256") -> list[SelfTest]:
    """The client against the exact server on this machine, at several numbers of streams. Raises
    InputError.
    """
    return [
        self_test(streams=count, requests=max(4 * count, 40))
        for count in whole_numbers(streams, option("streams"))
    ]


def serve_exactly(**asked: Any) -> None:
    """Serve the exact server on 127.0.0.1 until Ctrl-C. Raises InputError: a schedule that cannot
    be, or a port that is taken.
    """
    a = ExactArguments(**asked)
    seconds = {
        name: parse_duration(getattr(a, name), option(name))
        for name in ("ttft", "itl", "freeze_at", "freeze_for")
    }
    schedule = Schedule(
        ttft_s=seconds["ttft"],
        itl_s=seconds["itl"],
        tokens_per_event=checked_count("tokens_per_event", a.tokens_per_event, least=1) or 1,
        slots=checked_count("slots", a.slots, least=0) or 0,
        freeze_at_s=seconds["freeze_at"],
        freeze_s=seconds["freeze_for"],
        fault=a.fault,
        fault_every=checked_count("fault_every", a.fault_every, least=0) or 0,
    )
    if not 0 <= a.port < 65_536:
        raise InputError(
            f"{option('port')}: {a.port} is not a port; write 1024 to 65535, or leave it out"
        )
    try:
        serve(schedule, port=a.port)
    except OSError as error:
        raise InputError(
            f"{option('port')}: {a.port} cannot be used ({error.strerror or error}); choose another"
        ) from None


def _load(question: Question) -> dict[str, Any]:
    """One load in the scenario of its run folder, in the shape that ``simulate`` writes."""
    load = question.arrivals
    if isinstance(load, TraceArrivals):
        return {"arrivals": {"trace": os.path.basename(load.recording.source), "rate": load.rate}}
    burst = {"burst": question.burst} if question.burst else {}
    return {"arrivals": {**asdict(load), **burst}}
