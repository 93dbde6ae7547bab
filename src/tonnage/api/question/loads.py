"""Makes the loads that an engine is simulated under: closed loops of clients, or open loops of
requests per second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from os.path import isdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.api.question.arguments import LengthsFound, Many, rates, whole_numbers
from tonnage.csv_file import read_text
from tonnage.errors import InputError, option
from tonnage.spec.recording import Recording, read_recording
from tonnage.spec.workload import (
    Arrivals,
    ClosedLoop,
    HourlyArrivals,
    ModulatedArrivals,
    OpenLoop,
    Process,
    Simulated,
    TraceArrivals,
    Workload,
    checked_cv,
)
from tonnage.units import LONGEST_S, parse_duration

if TYPE_CHECKING:
    from tonnage.formats.tool_format import ImportedRun
    from tonnage.spec.recorded_sessions import RecordedSessions
    from tonnage.spec.scenario import DemandAsked
    from tonnage.workload.traffic import Traffic


DEFAULT_REQUESTS = 1_000
WINDOW_REQUESTS = 1_000_000
MOST_TOKENS = 2e10
MOST_REQUESTS = 5_000_000
MOST_RATE = 1e9
# A state, such as "2/s for 60s"
_STATE = re.compile(r"^\s*(\d+(?:\.\d*)?|\.\d+)\s*/\s*s\s+for\s+(\S.*?)\s*$", re.IGNORECASE)

Rates = str | float | Iterable[float]


def loads_of(
    concurrency: Many | None,
    request_rate: Rates | None,
    process: Process,
    cv: float,
    turnaround_s: float,
) -> list[Arrivals]:
    """One load for every number of clients, or for every rate; with both every rate, of which so
    many requests are in flight at most.

    Raises InputError: neither is given, or one is no such number, or there are several caps.
    """
    clients = () if concurrency is None else whole_numbers(concurrency, option("concurrency"))
    if request_rate is None:
        if not clients:
            raise InputError(
                f"{option('concurrency')}, {option('request_rate')}: neither given; give one of"
                f" them, for example {option('concurrency')} 1,10,100, or a rate with the most"
                " requests in flight"
            )
        return [ClosedLoop(concurrency=n, turnaround_s=turnaround_s) for n in clients]
    if process == "gamma":
        checked_cv(cv)
    if len(clients) > 1:
        raise InputError(
            f"{option('concurrency')}: with {option('request_rate')} it caps the requests in"
            " flight; give one number"
        )
    cap = clients[0] if clients else 0
    return [
        OpenLoop(rate=rate, process=process, cv=cv, in_flight=cap)
        for rate in rates(request_rate, option("request_rate"))
    ]


def modulated_loads(text: str | None, arguments: Mapping[str, Any]) -> list[Simulated]:
    """Traffic of two states, as it is or with each mean that is given. Raises InputError: no such
    states, or a closed loop.
    """
    where, form = option("mmpp"), "2/s for 60s, 20/s for 10s"
    if text is None or arguments.get("concurrency") is not None:
        raise InputError(
            f"{option('arrivals')}: mmpp needs the two states of {where}, such as '{form}', and an"
            " open loop"
        )
    matches = [_STATE.match(part) for part in text.split(",")]
    states = [(float(match[1]), parse_duration(match[2], where)) for match in matches if match]
    if len(matches) != 2 or len(states) != 2:
        raise InputError(
            f"{where}: '{text}' is not two states; write rates and mean stays such as '{form}'"
        )
    (calm, first), (busy, second) = states
    if (
        max(calm, busy) <= 0
        or max(calm, busy) > MOST_RATE
        or not 0 < min(first, second) <= max(first, second) <= LONGEST_S
    ):
        raise InputError(
            f"{where}: '{text}' has no requests or no time in a state; write such as '{form}'"
        )
    once, rate = (
        ModulatedArrivals(rates=(calm, busy), stays_s=(first, second)),
        arguments.get("request_rate"),
    )
    return (
        [once]
        if rate is None
        else [once.at_mean(mean_rate) for mean_rate in rates(rate, option("request_rate"))]
    )


def window_of(text: str | None, loads: Sequence[Simulated]) -> float | None:
    """Seconds of the window in which completions count; None without one. Raises InputError."""
    if text is None:
        return None
    seconds = parse_duration(text, option("window"))
    if seconds <= 0:
        raise InputError(f"{option('window')}: '{text}' is empty; write for example 216s")
    if seconds > LONGEST_S:
        raise InputError(
            f"{option('window')}: '{text}' is longer than a simulated run may be; write at most"
            f" {LONGEST_S:,.0f}s (104 days)"
        )
    if not isinstance(loads[0], ClosedLoop):
        raise InputError(
            f"{option('window')}: belongs to a closed loop; give {option('concurrency')}, or"
            f" {option('requests')} for an open loop"
        )
    return seconds


def workload_of(
    lengths: LengthsFound, load: Simulated, requests: int | None, window_s: float | None
) -> Workload:
    """The requests of one load; if no number is given 1,000, in a closed loop at least 10 per
    client, of a trace all, in a window no end.

    Raises InputError: more requests or tokens than a run may have.
    """
    count = requests
    if count is None:
        count = (
            max(DEFAULT_REQUESTS, 10 * load.concurrency)
            if isinstance(load, ClosedLoop)
            else DEFAULT_REQUESTS
        )
        count = (
            len(load.recording)
            if isinstance(load, TraceArrivals)
            else load.most
            if isinstance(load, HourlyArrivals)
            else count
        )
        count = WINDOW_REQUESTS if window_s is not None else count
    if not 1 <= count <= MOST_REQUESTS:
        raise InputError(
            f"{option('requests')}: {count} is not possible; write 1 to {MOST_REQUESTS:,}"
        )
    if count * lengths.osl.mean > MOST_TOKENS and window_s is None:
        raise InputError(
            f"{option('requests')}: {count:,} × {lengths.osl.mean:,.0f} output tokens are more than"
            f" the {MOST_TOKENS:.0e} that a run may have; ask for fewer"
        )
    return Workload(
        isl=lengths.isl, osl=lengths.osl, pairs=lengths.pairs, arrivals=load, requests=count
    )


def recording_from(path: str, where: str, unit: str | None = None) -> Recording:
    """A trace in one of the formats of ``spec.recording`` (``unit`` likewise), a run folder, or a
    load client's file. Raises InputError.
    """
    from tonnage.formats.sessions import read_sessions

    if (sessions := read_sessions(path, where)) is not None:
        return sessions.recording
    if isdir(path) and not _is_clients(path, where):
        return traffic_from(path, where).recording
    return (
        _of_client(path, where) if _is_clients(path, where) else read_recording(path, where, unit)
    )


def sessions_of_file(demand: DemandAsked) -> RecordedSessions | None:
    """The recorded sessions that a demand names; None where its trace is none of sessions. Raises
    InputError: as ``read_sessions``.
    """
    if demand.trace is None:
        return None
    from tonnage.formats.sessions import read_sessions

    return read_sessions(demand.trace, option("trace"))


def traffic_from(path: str, where: str, unit: str | None = None) -> Traffic:
    """The same with what the file says of shared prefixes; it has lengths. Raises InputError: as
    above, or no lengths.
    """
    from tonnage.formats.sessions import read_sessions
    from tonnage.workload.traffic import Traffic, read_traffic

    if (sessions := read_sessions(path, where)) is not None:
        return Traffic(recording=sessions.recording, recorded=sessions)
    if not _is_clients(path, where):
        return read_traffic(path, where, unit)
    recording = _of_client(path, where)
    if not recording.isl:
        raise InputError(
            f"{where}: {path} holds texts and no counts of prompt tokens; import it with a"
            " tokenizer and name the run folder"
        )
    return Traffic(recording=recording)


def _is_clients(path: str, where: str) -> bool:
    """Whether a file, or a folder, is what a load client kept of single requests."""
    from tonnage.formats.tool_format import (
        csv_lines,
        first_document,
        holds_requests,
        listed_rows,
        request_file,
    )

    if isdir(path):
        return request_file(Path(path)) is not None
    if not path.lower().endswith((".json", ".jsonl", ".csv")):
        return False
    text = read_text(path, where)
    if path.lower().endswith(".csv"):
        if "timestamp" in text.partition("\n")[0].lower().split(","):
            return False
        text = csv_lines(text, path)
    document = first_document(text)
    if (
        isinstance(document, dict)
        and isinstance(document.get("data"), list)
        and "payloads" in str(document["data"][:1])
    ):
        raise InputError(
            f"{where}: {path} holds prompts and no times; name the profile_export file that the"
            " tool wrote for the same run"
        )
    rows = listed_rows(document)
    return holds_requests(document if rows is None else rows[0])


def _of_client(path: str, where: str) -> Recording:
    """The requests of the one run of a load client's file that were answered, at the moments at
    which they were due.
    """
    from tonnage.bench.reply import kept_answer
    from tonnage.formats.tool_format import Reading, read_requests

    runs = read_requests(Path(path), Reading(answer=kept_answer))
    if len(runs) > 1:
        raise InputError(
            f"{where}: {path} holds {len(runs)} runs; a trace is one: give a file with a single run"
        )
    return _recorded(runs[0], path, where)


def _recorded(run: ImportedRun, path: str, where: str) -> Recording:
    answered = sorted(
        (request for request in run.requests if not request.outcome and request.osl >= 1),
        key=lambda request: request.due_ns,
    )
    if len(answered) < 2 or answered[0].due_ns == answered[-1].due_ns:
        raise InputError(
            f"{where}: {path} holds {len(answered)} answered requests; a trace has two or more, at"
            " times that differ"
        )
    counted = all(imported_request.isl >= 1 for imported_request in answered)
    return Recording(
        due_ns=tuple(imported_request.due_ns - answered[0].due_ns for imported_request in answered),
        isl=tuple(imported_request.isl for imported_request in answered) if counted else (),
        osl=tuple(imported_request.osl for imported_request in answered) if counted else (),
        source=path,
        failed=len(run.requests) - len(answered),
        began_ns=answered[0].due_ns,
    )
