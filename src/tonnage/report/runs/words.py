"""A run in words: what ran, under which load, and what a reader must know of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tonnage.report.numbers import counted, plain

if TYPE_CHECKING:
    from tonnage.report.runs.shown_run import ShownRun

NO_TOKENS = (
    "The dots of single gaps need tokens.parquet, which this run folder does not hold: a simulated run has none, and a measurement can "
    "leave it out. The lines come from the histogram of all gaps."
)
NO_GAPS = (
    "Token-to-token latencies need tokens.parquet, which this run folder does not hold: the tool that made the run kept no single tokens."
)
PROCESSES = {"poisson": "Poisson arrivals", "constant": "evenly spaced arrivals", "gamma": "gamma arrivals"}


def load_words(run: ShownRun) -> str:
    """The load: "8 clients", "4 requests/s, Poisson arrivals"."""
    arrivals = run.scenario.get("arrivals")
    said: Mapping[str, Any] = arrivals if isinstance(arrivals, Mapping) else {}
    talk = run.scenario.get("conversations")
    unit = "conversations/s" if talk else "requests/s"
    turns = f", {talk['turns']} turns each" if isinstance(talk, Mapping) and talk.get("turns") else ""
    if said.get("concurrency"):
        return counted(int(said["concurrency"]), "client") + (f" with conversations{turns}" if talk else "")
    if said.get("trace"):
        return f"recorded arrivals of {said['trace']}"
    if said.get("rate"):
        burst = f", bursts of {said['burst']}" if said.get("burst") else ""
        process = PROCESSES.get(str(said.get("process", "")), "")
        cv = f" with a CV of {plain(said['cv'])}" if said.get("process") == "gamma" else ""
        return f"{plain(float(said['rate']))} {unit}{turns}{f', {process}{cv}' if process and not burst else burst}"
    return "recorded arrivals"


def name(run: ShownRun) -> str:
    """What answered: the model, and where it is known the GPUs and the engine."""
    s = run.scenario
    model = str(s.get("model") or run.facts.get("endpoint", {}).get("model") or "an unnamed model")
    gpus = int(s.get("tp") or 1) * int(s.get("pp") or 1) * int(s.get("dp") or 1)
    form = f" {str(s['precision']).upper()}" if s.get("precision") else ""
    where = f" on {gpus} × {s['gpu']}" if s.get("gpu") else ""
    engine = f", {s['engine']}" if s.get("engine") else ""
    return f"{model}{form}{where}{engine}"


def verdict(run: ShownRun) -> str:
    """VALID, INVALID, NOT JUDGED; "simulated" for a run that nobody measured."""
    return str(run.facts.get("validity", {}).get("verdict", "simulated"))


def reasons(run: ShownRun) -> tuple[str, ...]:
    """What speaks against the run's numbers, one sentence each."""
    return tuple(map(str, run.facts.get("validity", {}).get("reasons", ())))


def remarks(run: ShownRun) -> tuple[str, ...]:
    """What a reader should know of the run and what makes nothing invalid."""
    s = run.summary
    failed = tuple(
        f"{counted(count, 'request')} {kind}; the latencies are those of the {s.counted:,} completed"
        for kind, count in s.requests.items()
        if kind != "completed" and count
    )
    return (*failed, *map(str, run.facts.get("validity", {}).get("notes", ())), *map(str, run.scenario.get("marks", ())))
