"""A run as a report needs it: the record, its remarks, and single tokens where they were kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError
from tonnage.report.numbers import counted, plain
from tonnage.results.metrics import Summary, counted_rows, summarize
from tonnage.results.requests import Requests
from tonnage.results.store import (
    TOKENS,
    checked,
    parquet_table,
    read_mapping,
    read_run,
    read_tokens,
)
from tonnage.version import VERSION

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


FILE = "server_metrics.parquet"
# By name without labels: seconds of the run, and the values of all labels at that moment, one after
# the other
Readings = Mapping[str, tuple[tuple[float, float], ...]]


def read_server_metrics(folder: Path) -> Readings:
    """The readings of a run folder; empty where it holds none. Raises DataError: the file is
    damaged.
    """
    path = folder / FILE
    readings: Readings = checked(path, _readings, "measure again") if path.is_file() else {}
    return readings


def _readings(path: Path) -> Readings:
    import pyarrow as pa

    table = parquet_table(path)
    names = table.column("name").cast(pa.string()).to_pylist()
    by_name: dict[str, list[tuple[float, float]]] = {}
    for time_ns, name, value in zip(
        table.column("time_ns").to_pylist(), names, table.column("value").to_pylist(), strict=True
    ):
        by_name.setdefault(name.partition("{")[0], []).append((time_ns / 1e9, value))
    return {name: tuple(rows) for name, rows in by_name.items()}


RECORD = "requests.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The moments of all output tokens after ``sent_ns`` in nanoseconds, and how many belong to
    each request, in order of id.
    """

    offsets_ns: NDArray[np.int64]
    lengths: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRun:
    """One run."""

    name: str  # of its folder
    # requests, summary: what happened
    requests: Requests
    summary: Summary
    rows: NDArray[np.int64]  # the requests that the summary counts, int64
    # scenario, provenance: the inputs, and the version
    scenario: Mapping[str, Any]
    provenance: Mapping[str, Any]
    # ``run.json`` of a measured or imported run; empty for a simulated one
    facts: Mapping[str, Any]
    tokens: Tokens | None  # of a measured run that kept them
    # what the server said of itself meanwhile, by name of the metric: seconds and values; empty
    # where nothing was read
    server: Readings

    @property
    def ttft_ms(self) -> NDArray[np.float64]:
        """First token − due, of each counted request."""
        values: NDArray[np.float64] = (
            self.requests.first_token_ns[self.rows] - self.requests.due_ns[self.rows]
        ) / 1e6
        return values

    @property
    def e2e_ms(self) -> NDArray[np.float64]:
        """Last token − due, of each counted request."""
        values: NDArray[np.float64] = (
            self.requests.last_token_ns[self.rows] - self.requests.due_ns[self.rows]
        ) / 1e6
        return values

    @property
    def due_s(self) -> NDArray[np.float64]:
        """When each counted request was due, in seconds of the run."""
        values: NDArray[np.float64] = self.requests.due_ns[self.rows] / 1e9
        return values

    @property
    def isl(self) -> NDArray[np.int64]:
        """Prompt tokens of each counted request."""
        return self.requests.isl[self.rows]

    @property
    def osl(self) -> NDArray[np.int64]:
        """Output tokens of each counted request."""
        return self.requests.osl[self.rows]

    @property
    def kind(self) -> str:
        """The origin of the run: "measured", "imported" or "simulated"."""
        return "imported" if "imported" in self.facts else "measured" if self.facts else "simulated"


def read_shown_runs(folder: Path) -> tuple[ShownRun, ...]:
    """The run of a folder, or those of the folders inside it, as a sweep leaves them, the lightest
    load first.

    Raises InputError: no run folder, and none inside it; DataError: a file of it is damaged.
    """
    if (folder / RECORD).is_file():
        return (_read(folder),)
    inside = sorted(
        path.parent for path in folder.glob(f"*/{RECORD}") if not path.parent.name.startswith(".")
    )
    if not inside:
        raise InputError(
            f"{folder}: is no run folder, and none lies inside it (no {RECORD}); give a folder that"
            " bench or simulate wrote"
        )
    return tuple(sorted(map(_read, inside), key=_load))


def _read(folder: Path) -> ShownRun:
    run, path = read_run(folder), folder / "run.json"
    facts = checked(path, read_mapping, "measure again") if path.is_file() else {}
    tokens = None
    if (folder / TOKENS).is_file():
        offsets, lengths = read_tokens(folder)
        tokens = Tokens(offsets_ns=offsets, lengths=lengths)
    shown_run = shown(folder.resolve().name, run.requests, run.scenario, facts)
    return replace(
        shown_run, provenance=run.provenance, tokens=tokens, server=read_server_metrics(folder)
    )


def shown(
    name: str,
    requests: Requests,
    scenario: Mapping[str, Any],
    facts: Mapping[str, Any] | None = None,
) -> ShownRun:
    """A run in memory: its record, its scenario, and of a measured one the facts of
    ``run.json``.
    """
    return ShownRun(
        name=name,
        requests=requests,
        summary=summarize(requests),
        rows=counted_rows(requests),
        scenario=scenario,
        provenance={"tonnage": VERSION},
        facts=facts or {},
        tokens=None,
        server={},
    )


def _load(run: ShownRun) -> tuple[float, str]:
    """The load by which the runs of a sweep are sorted: clients or requests per second; runs that
    have neither come last.
    """
    arrivals = run.scenario.get("arrivals")
    load = arrivals if isinstance(arrivals, Mapping) else {}
    value = load.get("concurrency") or load.get("rate")
    return (float(value) if isinstance(value, int | float) else float("inf"), run.name)


NO_TOKENS = (
    "The dots of single gaps need tokens.parquet, which this run folder does not hold: a simulated"
    " run has none, and a measurement can leave it out. The lines come from the histogram of all"
    " gaps."
)
NO_GAPS = (
    "Token-to-token latencies need tokens.parquet, which this run folder does not hold: the tool"
    " that made the run kept no single tokens."
)
PROCESSES = {
    "poisson": "Poisson arrivals",
    "constant": "evenly spaced arrivals",
    "gamma": "gamma arrivals",
}


def load_words(run: ShownRun) -> str:
    """The load: "8 clients", "4 requests/s, Poisson arrivals"."""
    arrivals = run.scenario.get("arrivals")
    load: Mapping[str, Any] = arrivals if isinstance(arrivals, Mapping) else {}
    talk = run.scenario.get("conversations")
    unit = "conversations/s" if talk else "requests/s"
    turns = (
        f", {talk['turns']} turns each" if isinstance(talk, Mapping) and talk.get("turns") else ""
    )
    if load.get("concurrency"):
        return counted(int(load["concurrency"]), "client") + (
            f" with conversations{turns}" if talk else ""
        )
    if load.get("trace"):
        return f"recorded arrivals of {load['trace']}"
    if load.get("rate"):
        burst = f", bursts of {load['burst']}" if load.get("burst") else ""
        process = PROCESSES.get(str(load.get("process", "")), "")
        cv = f" with a CV of {plain(load['cv'])}" if load.get("process") == "gamma" else ""
        return (
            f"{plain(float(load['rate']))}"
            f" {unit}{turns}{f', {process}{cv}' if process and not burst else burst}"
        )
    return "recorded arrivals"


def name(run: ShownRun) -> str:
    """Name the model that answered, and where they are known its GPUs and engine."""
    s = run.scenario
    model = str(s.get("model") or run.facts.get("endpoint", {}).get("model") or "an unnamed model")
    gpus = int(s.get("tp") or 1) * int(s.get("pp") or 1) * int(s.get("dp") or 1)
    form = f" {str(s['precision']).upper()}" if s.get("precision") else ""
    where = f" on {gpus} × {s['gpu']}" if s.get("gpu") else ""
    engine = f", {s['engine']}" if s.get("engine") else ""
    return f"{model}{form}{where}{engine}"


def verdict(run: ShownRun) -> str:
    """VALID, INVALID, NOT JUDGED; "simulated" for a run that was not measured."""
    return str(run.facts.get("validity", {}).get("verdict", "simulated"))


def reasons(run: ShownRun) -> tuple[str, ...]:
    """List the reasons against the run's numbers, one sentence each."""
    return tuple(map(str, run.facts.get("validity", {}).get("reasons", ())))


def remarks(run: ShownRun) -> tuple[str, ...]:
    """List the remarks about the run that make nothing invalid."""
    s = run.summary
    failed = tuple(
        f"{counted(count, 'request')} {kind}; the latencies are those of the {s.counted:,}"
        " completed"
        for kind, count in s.requests.items()
        if kind != "completed" and count
    )
    return (
        *failed,
        *map(str, run.facts.get("validity", {}).get("notes", ())),
        *map(str, run.scenario.get("marks", ())),
    )
