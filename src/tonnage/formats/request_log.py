"""Access logs with one JSON object a request: LiteLLM, Kong, Envoy, nginx, HAProxy, Langfuse,
Cloudflare, and logged responses of OpenAI's.

A line has a moment (``startTime``, ``started_at``, ``timestamp``, ``created`` and others: ISO,
nginx's and HAProxy's own forms, unix time down to nanoseconds, or a number that counts from the
beginning of the log) and counts of tokens, at any depth, under the names of OpenAI, Anthropic,
OpenTelemetry or Langfuse, in snake_case or camelCase, as numbers or as text. Where it also has an
end or a duration, ``import`` has latencies; TTFT and TPOT only where the line says when the first
token came. Envoy's and nginx's fields have the names that their configuration gives them.

HAProxy's and other logs in text have no counts of tokens and are refused by their kind.

Sources: docs.litellm.ai, StandardLoggingPayload and logs; platform.openai.com, the usage of a
response; developer.konghq.com, AI Gateway audit log reference; langfuse.com, fields of the blob
storage export; developers.cloudflare.com, AI Gateway logs; nginx.org, variables of
ngx_http_log_module (both read 2026-11-25, the others 2026-11-28); HAProxy's configuration manual,
section 8.2 (recalled).
"""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tonnage.errors import InputError
from tonnage.formats.table import shown
from tonnage.formats.tool_format import ImportedRequest, ImportedRun, Reading, Requests, ToolFormat
from tonnage.results.outcomes import failure_of
from tonnage.spec.recording import LEAST_RPS, MOST_RPS

# Names of fields, in lower case and without what is neither letter, digit nor dot; the last parts
# of a path are enough.
BEGINS = (
    "starttime",
    "startedat",
    "startutc",
    "requeststarttime",
    "requestcreatedat",
    "receivedat",
    "requesttime",
    "start",
    "begin",
)
STAMPS = (
    "timestamp",
    "createtime",
    "acceptdate",
    "time",
    "ts",
    "msec",
    "timelocal",
    "timeiso8601",
    "created",
    "createdat",
    "datetime",
    "eventtime",
    "date",
)
ENDS = ("endtime", "endedat", "finishedat", "completedat", "responsecreatedat", "end")
FIRST = ("completionstarttime", "firsttokentime", "firsttokenat", "firsttoken")
TOOK = (
    *(
        "latencies.request",
        "duration",
        "latency",
        "requesttime",
        "requestduration",
        "responsetime",
        "elapsed",
        "totaltime",
        "e2elatency",
    ),
    *(
        "totalduration",
        "timetotal",
        "delay",
        "upstreamresponsetime",
        "llmlatency",
        "llmserviceduration",
    ),
    *("ta", "tt"),  # HAProxy's timers of a whole request
)
FIRST_TOOK = (
    "timetofirsttoken",
    "ttft",
    "firsttokenlatency",
    "llmfirsttokenduration",
    "firsttokentime",
)
TOKENS = {
    "isl": (
        *(
            "prompttokens",
            "inputtokens",
            "tokensin",
            "usagedetails.input",
            "usage.input",
            "inputtoken",
            "tokensprompt",
            "requnits",
        ),
        *("inputtokencount", "prompttokencount", "promptevalcount"),
    ),
    "osl": (
        *(
            "completiontokens",
            "outputtokens",
            "tokensout",
            "usagedetails.output",
            "usage.output",
            "outputtoken",
            "tokenscompletion",
        ),
        *("resunits", "outputtokencount", "candidatestokencount", "evalcount"),
    ),
}
STATUS = (
    *(
        "status",
        "statuscode",
        "responsecode",
        "httpstatus",
        "responsestatuscode",
        "level",
        "success",
        "issuccess",
        "finishreason",
    ),
    *("errormessage", "errorstr", "error.message", "error.type", "error"),
)
MODEL = (
    "model",
    "genai.request.model",
    "genai.response.model",
    "meta.requestmodel",
    "meta.responsemodel",
    "providedmodelname",
    "modelgroup",
)
# In a status
FAILURES = re.compile(
    r"fail|error|timeout|timed.?out|cancel|abort|denied|reject|exception|disconnect|incomplete"
)
NS_PER_S = 10**9
UNITS = {
    "": None,
    "ns": 1,
    "nanos": 1,
    "unixnano": 1,
    "us": 1_000,
    "micros": 1_000,
    "ms": 10**6,
    "msec": 10**6,
    "millis": 10**6,
}
UNITS |= dict.fromkeys(("s", "sec", "secs", "seconds"), NS_PER_S)
"""Nanoseconds by what the name of a field ends with."""
ABSOLUTE = ((1e17, 1), (1e14, 1_000), (1e11, 10**6), (1e8, NS_PER_S))
"""Nanoseconds per unit of a unix time from so large a number on: nanoseconds, microseconds,
milliseconds, seconds."""
WORDS = {1: "nanoseconds", 1_000: "microseconds", 10**6: "milliseconds", NS_PER_S: "seconds"}
FASTEST_NS, START_TOKENS = 500_000, 50
"""A request takes from 0.5 ms to 0.5 s for each of its tokens, 50 more for its start: so a duration
without a unit has only one."""
# How near, as a factor, a duration may be to the end of that range before Tonnage asks for its unit
EDGE = 2.0
DEPTH = 6
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")
_GO = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ns|us|µs|μs|ms|s|m|h)(?![a-zµμ])")
_GO_NS = {"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9, "m": 6e10, "h": 3.6e12}

Fields = Mapping[str, Any]


def is_access_log(document: Any) -> bool:
    """Whether a line is one of a request with its moment and its tokens."""
    fields = _fields(document)
    if any(_count(fields, side) is None for side in TOKENS):
        return False
    lasts = _moment(fields, ENDS, NS_PER_S) is not None or _duration(fields, TOOK) is not None
    return _stamp(fields) is not None or (lasts and _stamp(fields, NS_PER_S) is not None)


@dataclass(slots=True, kw_only=True)
class _Line:
    """One request of a log, while the units of its file are not known yet."""

    begin_ns: int
    stamped_last: bool  # whether that moment is when the line was written: at the end
    end_ns: int | None
    first_ns: int | None
    # took, first_took: the durations as they are written, with their nanoseconds per unit; 0 where
    # the name says none
    took: tuple[float, int] | None
    first_took: tuple[float, int] | None
    isl: int
    osl: int
    outcome: str


def access_log_runs(path: Path, text: str, _: Reading) -> list[ImportedRun]:
    """The requests of a log as one run. Raises InputError: no line is a request, or the unit of its
    durations is not clear.
    """
    left_out: Counter[str] = Counter()
    models: Counter[str] = Counter()
    remarks: list[str] = []
    records = [_record(line) for line in text.splitlines() if line.strip()]
    lines = list(_lines(records, _relative_unit(records, path, remarks), left_out, models))
    if not lines:
        first = f"; {left_out.most_common(1)[0][0]}" if left_out else ""
        raise InputError(
            f"{path}: no line is a request with a time{first}; give a line a request, with such as"
            " startTime"
        )
    unit = _unit(
        [
            (line.took, line.isl + line.osl if line.osl <= 1 else line.osl)
            for line in lines
            if line.took
        ],
        path,
        remarks,
    )
    requests = [
        _request(line, unit, first_unit)
        for first_unit in [_first_unit(lines, unit)]
        for line in lines
    ]
    unknown = sum(not request.streamed and not request.outcome for request in requests)
    if unknown and any(request.events_ns for request in requests):
        remarks.append(
            f"{unknown:,} of {len(requests):,} requests have no moment of a first token: they count"
            " in E2E, not in TTFT and TPOT."
        )
    if len(models) > 1:
        remarks.append(
            f"The log holds {len(models)} models:"
            f" {', '.join(shown(name) for name, _ in models.most_common(5))}."
        )
    requests.sort(key=lambda request: request.due_ns)
    name = models.most_common(1)[0][0] if models else ""
    run = ImportedRun(
        tool="an access log", model=name, concurrency=0, rate=0.0, requests=tuple(requests)
    )
    run.left_out.update(left_out)
    run.remarks.extend(remarks)
    return [run]


def _record(line: str) -> dict[str, Any]:
    """The values of a line; none where it is no JSON object."""
    try:
        return _fields(json.loads(line))
    except (ValueError, RecursionError):
        return {}


def _relative_unit(records: Sequence[Fields], path: Path, remarks: list[str]) -> int:
    """Nanoseconds of the unit of moments that count from the beginning of the log; 0 where they are
    dates or unix times.

    Raises InputError: two units are equally possible.
    """
    if any(_stamp(fields) for fields in records):
        return 0
    stamps = [
        (fields, *stamp) for fields in records if (stamp := _stamp(fields, NS_PER_S)) is not None
    ]
    # their names say the unit
    if all(_stamp(fields, 1) == (begin, last) for fields, begin, last in stamps):
        return NS_PER_S
    ends = [
        (_moment(fields, ENDS, NS_PER_S), begin, _count(fields, "osl") or 0)
        for fields, begin, _ in stamps
    ]
    took = [(((end - begin) / NS_PER_S, 0), osl) for end, begin, osl in ends if end is not None]
    if took:
        size = _unit(took, path, [])
        remarks.append(f"Moments read as {WORDS[size]} from the beginning of the log.")
        return size
    moments = sorted(begin for _, begin, _ in stamps)
    span_s = (moments[-1] - moments[0]) / NS_PER_S if moments else 0.0
    rates = (
        {unit: len(moments) / span_s * NS_PER_S / unit for unit in (NS_PER_S, 10**6)}
        if span_s
        else {NS_PER_S: 1.0}
    )
    possible = [unit for unit, rate in rates.items() if LEAST_RPS <= rate <= MOST_RPS]
    if len(possible) > 1 and any(moment % NS_PER_S for moment in moments):
        possible = [NS_PER_S]  # fractions of milliseconds are written by few, and of seconds by all
    if len(possible) != 1:
        raise InputError(
            f"{path}: its moments may be seconds or milliseconds; name the field timestamp_s or"
            " timestamp_ms"
        )
    remarks.append(f"Moments read as {WORDS[possible[0]]} from the beginning of the log.")
    return possible[0]


def _lines(
    records: Iterable[Fields], relative: int, left_out: Counter[str], models: Counter[str]
) -> Iterator[_Line]:
    for fields in records:
        stamp = _stamp(fields, relative)
        if stamp is None:
            left_out["no time" if fields else "no JSON object"] += 1
            continue
        isl, osl = (_count(fields, side) for side in TOKENS)
        outcome = _outcome(fields)
        if osl == 0:
            outcome = outcome or "no output"
        if not outcome and not (isl and osl):
            left_out["no counts of tokens"] += 1
            continue
        begin, last = stamp
        end, first = _moment(fields, ENDS, relative), _moment(fields, FIRST, relative)
        if end is not None and end <= begin:
            outcome = outcome or "an end not after its start"
        took, first_took = _duration(fields, TOOK), _duration(fields, FIRST_TOOK)
        if took and took[0] <= 0:
            outcome = outcome or "a duration not above 0"
        models[str(_value(fields, MODEL)[0] or "")] += 1
        yield _Line(
            begin_ns=begin,
            stamped_last=last,
            end_ns=end,
            first_ns=first,
            took=took,
            first_took=first_took,
            isl=isl or 0,
            osl=osl or 0,
            outcome=outcome,
        )
    del models[""]


def _request(line: _Line, unit: int, first_unit: int) -> ImportedRequest:
    """A request, once the units of its file are known."""
    begin, end, outcome = line.begin_ns, line.end_ns, line.outcome
    took = None if line.took is None else round(line.took[0] * (line.took[1] or unit))
    if (
        line.took
        and took is not None
        and not line.took[1]
        and took * EDGE < FASTEST_NS * (line.osl + START_TOKENS)
    ):  # of another unit than the others
        outcome = outcome or "a duration too short for its tokens"
    if line.stamped_last and took is not None:
        begin, end = begin - took, begin
    elif end is None and took is not None:
        end = begin + took
    first = line.first_ns
    if first is None and line.first_took is not None:
        first = begin + round(line.first_took[0] * (line.first_took[1] or first_unit))
    has_first_token = first is not None and end is not None and begin < first < end
    events = (
        ()
        if end is None or outcome
        else (first, end)
        if has_first_token and line.osl > 1
        else (end,)
    )
    return ImportedRequest(
        due_ns=begin,
        sent_ns=begin,
        events_ns=tuple(moment for moment in events if moment is not None),
        isl=line.isl,
        osl=line.osl,
        outcome=outcome,
        single=False,
        streamed=has_first_token and line.osl > 1,
    )


def _unit(
    took: Sequence[tuple[tuple[float, int] | None, int]], path: Path, remarks: list[str]
) -> int:
    """Nanoseconds of the unit of durations whose name says none. Raises InputError: two units are
    equally possible.
    """
    unnamed = [
        value[0] / (tokens + START_TOKENS)
        for value, tokens in took
        if value and not value[1] and value[0] > 0
    ]
    if not unnamed:
        return 1
    middle = statistics.median(unnamed)
    possible = [
        unit for unit in WORDS if FASTEST_NS / EDGE <= middle * unit < 1_000 * FASTEST_NS * EDGE
    ]
    if len(possible) != 1:
        choice = " or ".join(WORDS[unit] for unit in possible) or "no unit that is possible"
        raise InputError(
            f"{path}: its durations may be {choice}; name the field duration_ms, duration_s or"
            " duration_ns"
        )
    remarks.append(f"Durations read as {WORDS[possible[0]]}.")
    return possible[0]


def _first_unit(lines: Sequence[_Line], unit: int) -> int:
    """The same of the times to a first token: the largest unit with which most are inside their
    requests.
    """
    pairs = [
        (
            line.first_took[0],
            (
                line.took[0] * (line.took[1] or unit)
                if line.took
                else (line.end_ns or line.begin_ns) - line.begin_ns
            ),
        )
        for line in lines
        if line.first_took and line.first_took[0] > 0 and not line.outcome
    ]

    def fits(size: int) -> bool:
        return 2 * sum(first * size <= whole for first, whole in pairs) > len(pairs)

    return next((size for size in sorted(WORDS, reverse=True) if fits(size)), 1)


def _fields(document: Any) -> dict[str, Any]:
    """Every plain value of a line under the last parts of its path, whichever is nearest to the
    top.
    """
    flat_fields: dict[str, Any] = {}
    level: list[tuple[str, Any]] = [("", document)] if isinstance(document, dict) else []
    for _ in range(DEPTH):
        below: list[tuple[str, Any]] = []
        for path, value in level:
            if (
                isinstance(value, list)
                and value
                and all(
                    isinstance(pair, dict) and {"key", "value"} <= pair.keys() for pair in value
                )
            ):
                # OpenTelemetry's attributes
                below.append((path, {str(pair["key"]): _first_of(pair["value"]) for pair in value}))
                continue
            if isinstance(value, dict):
                below += [
                    (f"{path}.{_plain(name)}" if path else _plain(name), part)
                    for name, part in value.items()
                ]
                continue
            if isinstance(value, str) and value.startswith("{"):  # an object in a cell of a CSV
                below.append((path, _object(value)))
                continue
            parts = path.split(".")
            if value is not None and not isinstance(value, list):
                for place in range(len(parts)):
                    flat_fields.setdefault(".".join(parts[place:]), value)
        level = below
    return flat_fields


def _first_of(value: Any) -> Any:
    return next(iter(value.values()), None) if isinstance(value, dict) else value


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def _value(fields: Fields, names: Sequence[str]) -> tuple[Any, int]:
    """The first value under one of the names, and the nanoseconds of the unit that the name ends
    with; 0 where it says none.
    """
    for name in names:
        for ending, unit in UNITS.items():
            if fields.get(name + ending) not in (None, ""):
                return fields[name + ending], unit or 0
    return None, 0


def _number(value: Any) -> float | None:
    """A finite number, as such or as text, also with commas between thousands."""
    if isinstance(value, str) and _THOUSANDS.fullmatch(value.strip()):
        value = value.replace(",", "")
    try:
        number = float(value) if not isinstance(value, bool) else None
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number is not None and abs(number) < 1e19 else None


def _count(fields: Fields, side: str) -> int | None:
    number = _number(_value(fields, TOKENS[side])[0])
    return int(number) if number is not None and 0 <= number < 1e9 else None


def _duration(fields: Fields, names: Sequence[str]) -> tuple[float, int] | None:
    """A duration as it is written with its nanoseconds per unit; None where there is none. Text
    such as 1.1s or 1m2s says its unit.
    """
    for name in names:
        value, unit = _value(fields, (name,))
        number = _number(value)
        if number is not None and number < 1e8 * (1 if unit in (0, NS_PER_S) else 1e9):
            return number, unit
        if number is not None and name not in BEGINS and name not in FIRST:
            return number, unit
        text = str(value or "").strip().lower()
        parts = _GO.findall(text)
        if parts and not _GO.sub("", text).strip():
            return sum(float(count) * _GO_NS[letter] for count, letter in parts), 1
    return None


def _stamp(fields: Fields, relative: int = 0) -> tuple[int, bool] | None:
    """The moment of a line, and whether it is that of its end, as nginx's and Caddy's are; None
    where it has none.
    """
    begin = _moment(fields, [name for name in BEGINS if not relative or name not in TOOK], relative)
    if begin is not None:
        return begin, False
    stamp = _moment(fields, STAMPS, relative)
    ends = {"requesttime", "upstreamresponsetime"} & fields.keys() or {
        "ts",
        "duration",
    } <= fields.keys()
    return None if stamp is None else (stamp, bool(ends))


def _moment(fields: Fields, names: Sequence[str], relative: int = 0) -> int | None:
    """A moment in nanoseconds of unix time, or of the log's where it counts in units of
    ``relative`` ns; None where there is none.
    """
    for name in names:
        value, unit = _value(fields, (name,))
        number = _number(value)
        if number is not None:
            absolute = next((unit or size for least, size in ABSOLUTE if number >= least), None)
            if absolute and number * absolute < 1e19:
                return (
                    round(number * absolute)
                    if isinstance(value, float | str)
                    else int(number) * absolute
                )
            if relative and 0 <= number < ABSOLUTE[0][0]:
                return round(number * (unit or relative))
            continue
        parsed = _date(str(value)) if value is not None else None
        if parsed is not None:
            return (
                round((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1e6)
                * 1_000
            )
    return None


def _date(text: str) -> datetime | None:
    """A date of ISO, of nginx's ``$time_local`` or of HAProxy's ``%tr``."""
    for form in ("", "%d/%b/%Y:%H:%M:%S %z", "%d/%b/%Y:%H:%M:%S.%f"):
        try:
            return (
                datetime.strptime(text.strip(), form)
                if form
                else datetime.fromisoformat(text.strip())
            )
        except ValueError:
            continue
    return None


def _outcome(fields: Fields) -> str:
    """Why a request did not complete; "" where nothing says so."""
    for name in STATUS:
        value = fields.get(name)
        number = _number(value)
        if value is False and "success" in name:
            return "failed"
        if number is not None and "status" in name + ("status" if "code" in name else ""):
            if number >= 400 or number == 0:
                return f"HTTP {number:.0f}" if number else "no response"
            continue
        text = str(value or "").strip().lower() if not isinstance(value, bool) else ""
        if word := failure_of(value):
            return word
        if name.startswith("error") and text not in ("", "none", "null"):
            return " ".join(text.split())[:60]
        if match := FAILURES.search(text):
            return failure_of(match[0]) or text[:40]
    return ""


FORMAT = ToolFormat(
    name="access-log",
    tool="an access log",
    requests=Requests(recognises=is_access_log, read=access_log_runs, lines=True),
)
