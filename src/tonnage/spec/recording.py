"""Recorded traffic: when each request came and how long it was, read from the trace files that
people have.

Formats, told apart by their columns:

- Azure's LLM inference traces: CSV with ``TIMESTAMP,ContextTokens,GeneratedTokens`` (ISO time,
  tokens, tokens);
- Mooncake's: JSON lines with ``timestamp`` in milliseconds, ``input_length`` and ``output_length``,
  and where prompts share blocks of tokens the ids of each one's blocks in ``hash_ids``; Qwen's
  traces of Bailian are such lines in seconds, with ``chat_id`` and ``turn``;
- BurstGPT's: CSV with ``Timestamp`` in seconds, ``Request tokens`` and ``Response tokens``; its
  lines with 0 response tokens are requests that failed (github.com/HPMLL/BurstGPT), which are left
  out and counted;
- plain CSV with ``timestamp`` (seconds, or ISO time) and, unless lengths are given apart, ``isl``
  and ``osl``.

Where times in a format's unit make a rate that nobody has, they are in another unit: it is taken
where only one is possible, and asked for where several are.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from tonnage.csv_file import named_rows, text_lines
from tonnage.errors import InputError, InputErrors, UnknownName, option
from tonnage.spec.lengths import Pairs, number, tokens
from tonnage.spec.sessions import Contents, block_tokens, of_blocks
from tonnage.units import NS_PER_S

NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Requests as they arrived."""

    due_ns: tuple[int, ...]  # when each request came, in nanoseconds since the first; never falling
    # isl, osl: tokens of each; empty where the file does not say them
    isl: tuple[int, ...] = ()
    osl: tuple[int, ...] = ()
    source: str = ""  # the file
    change: str = ""  # what was done to its times, in words
    unit: str = ""  # the unit that its times are in, in a word; "" of dates
    failed: int = 0  # requests of the file that are left out, because it says that they failed
    # for each request the ids of its prompt's blocks (``hash_ids``); empty where the file has none
    blocks: tuple[tuple[int, ...], ...] = field(default=(), repr=False)
    # the moment of the first request by the file's own clock, which is unix time where the file has
    # dates
    began_ns: int = 0

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.due_ns)

    @property
    def seconds(self) -> float:
        """The time from the first request to the last, plus one mean gap."""
        return self.due_ns[-1] / NS_PER_S * len(self) / (len(self) - 1)

    @property
    def mean_rps(self) -> float:
        """Requests per second, on average."""
        return len(self) / self.seconds

    @property
    def cv(self) -> float:
        """Standard deviation of the gaps between requests over their mean: 1 for Poisson arrivals,
        more for bursts.
        """
        gaps = [b - a for a, b in zip(self.due_ns, self.due_ns[1:], strict=False)]
        mean = math.fsum(gaps) / len(gaps)
        return math.sqrt(math.fsum((gap - mean) ** 2 for gap in gaps) / len(gaps)) / mean

    @property
    def peak_second(self) -> int:
        """Requests of the busiest second, seconds counted from the first request."""
        return max(self.counts(1.0))

    def counts(self, width_s: float) -> list[int]:
        """Requests of each interval of ``width_s`` seconds, from the first request to the last."""
        width = max(1, round(width_s * NS_PER_S))
        counts = [0] * (self.due_ns[-1] // width + 1)
        for due in self.due_ns:
            counts[due // width] += 1
        return counts

    def pairs(self) -> Pairs | None:
        """The lengths, kept together; None where the file does not say them."""
        return Pairs(isl=self.isl, osl=self.osl, source=self.source) if self.isl else None

    def contents(self, places: Sequence[int]) -> Contents | None:
        """The content that the requests at these places share; None where the file does not say."""
        size = block_tokens(self.blocks, self.isl) if self.blocks else None
        if size is None:
            return None
        return of_blocks(
            [self.blocks[place] for place in places], [self.isl[place] for place in places], size
        )

    def at_mean(self, rps: float) -> Recording:
        """The same requests with every gap stretched or shortened alike, so that their mean is
        ``rps``: the CV stays.
        """
        factor = self.mean_rps / rps
        return replace(
            self,
            due_ns=tuple(round(due * factor) for due in self.due_ns),
            change=f"{self.change}, stretched to a mean of {rps:g}/s",
        )

    def repeated(self, requests: int) -> Recording:
        """The recording, one copy after another until it has at least so many requests.

        A prefix that goes on in ``BRANCHES`` ways or more, such as a system prompt, is the same in
        all copies. Other blocks are new in each copy, so that a repeated prompt does not find
        itself in a cache.
        """
        copies = math.ceil(requests / len(self))
        if copies <= 1:
            return self
        period = round(self.seconds * NS_PER_S)
        due = tuple(moment + copy * period for copy in range(copies) for moment in self.due_ns)
        return replace(
            self,
            due_ns=due,
            isl=self.isl * copies,
            osl=self.osl * copies,
            blocks=_repeated_blocks(self.blocks, copies),
        )


# Different blocks that follow one and the same, where it ends a prefix of many conversations and
# not of one
BRANCHES = 3


def _repeated_blocks(
    blocks: tuple[tuple[int, ...], ...], copies: int
) -> tuple[tuple[int, ...], ...]:
    """The ids of each prompt's blocks in all copies of a recording (``Recording.repeated``)."""
    following: dict[int, set[int]] = {}
    for ids in blocks:
        for block, after in pairwise(ids):
            following.setdefault(block, set()).add(after)
    shared: set[int] = set()
    for ids in blocks:
        branching = [
            place for place, block in enumerate(ids) if len(following.get(block, ())) >= BRANCHES
        ]
        shared.update(ids[: max(branching, default=-1) + 1])
    apart = 1 + max(map(max, filter(None, blocks)), default=0)
    copied = (
        tuple(block if block in shared else block + copy * apart for block in ids)
        for copy in range(copies)
        for ids in blocks
    )
    return tuple(copied)


UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}  # Nanoseconds
WORDS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
# From which time on a first one is unix time in the unit
EPOCH = {"ns": 1e17, "us": 1e14, "ms": 1e11, "s": 1e9}
LEAST_RPS, MOST_RPS = 0.01, 200.0  # Between these a recorded rate is usual
FEWEST = 10  # Requests from which on a rate says something


def _unit_of(
    times: Sequence[int], native: str, *, seconds: bool, fractions: bool, where: str
) -> str:
    """The unit of the times of a file, given as nanoseconds if they were in its format's own unit.
    Raises InputError: it is not clear.
    """
    first, span = times[0] / UNITS[native], (times[-1] - times[0]) / UNITS[native]
    if first >= EPOCH["s"]:
        return next(unit for unit, least in EPOCH.items() if first >= least)
    if seconds:
        return "s"
    rates = (
        {unit: len(times) / span * NS_PER_S / size for unit, size in UNITS.items()} if span else {}
    )
    possible = [unit for unit in ("s", "ms") if LEAST_RPS <= rates.get(unit, 0.0) <= MOST_RPS]
    clear = native in possible and (native == "s" or not fractions or len(possible) == 1)
    if clear or (len(times) < FEWEST and not (fractions and possible)) or not possible:
        return native
    if fractions and len(possible) == 1:
        return possible[0]
    readings = " or ".join(
        f"{WORDS[unit]} ({rates[unit]:,.3g} requests/s)"
        for unit in UNITS
        if unit in {native, *possible}
    )
    raise InputError(f"{where}: its times may be {readings}; give {option('trace_unit')} s or ms")


def read_recording(path: str, where: str, unit: str | None = None) -> Recording:
    """A trace from a file of one of the formats above; a name that ends in ".jsonl" or ".json"
    holds JSON lines.

    ``unit`` is that of times that are numbers, "s", "ms", "us" or "ns", where the file does not
    make it clear.

    Raises InputError: the file cannot be read as that; every bad line is named.
    """
    if unit is not None and unit not in UNITS:
        raise UnknownName("trace unit", unit, UNITS)
    errors: list[str] = []
    reader = _mooncake if path.lower().endswith((".jsonl", ".json")) else _table
    due: list[int] = []
    isl: list[int] = []
    osl: list[int] = []
    failed = 0
    for line, moment, lengths in reader(path, where, errors):
        if lengths == FAILED:
            failed += 1
            continue
        if due and moment < due[-1]:
            errors.append(
                f"{where}: {path}:{line}: time goes back by {(due[-1] - moment) / NS_PER_S:g} s;"
                " sort the lines by time"
            )
        due.append(moment)
        if lengths is not None:
            isl.append(lengths[0])
            osl.append(lengths[1])
    if not errors and len(due) < 2:
        errors.append(
            f"{where}: {path} holds {len(due)} request{'s'[: len(due) != 1]}; a trace has two or"
            " more"
        )
    if not errors and due[-1] == due[0]:
        errors.append(
            f"{where}: {path}: all {len(due)} requests come at the same moment; a trace has times"
            " that differ"
        )
    InputErrors.raise_if(errors)
    blocks = _blocks(path, where) if reader is _mooncake else ()
    native, marks = ("ms" if reader is _mooncake else "s"), _marks(path, where)
    if marks["numbers"]:
        file_unit = "s" if marks["burstgpt"] else _unit_of_column(path, where)
        chosen = (
            unit
            or file_unit
            or _unit_of(
                due,
                native,
                seconds=marks["chats"],
                fractions=marks["fractions"],
                where=f"{where}: {path}",
            )
        )
        due = [moment * UNITS[chosen] // UNITS[native] for moment in due]
        word, change = WORDS[chosen], f", times read as {WORDS[chosen]}" if chosen != native else ""
    else:
        word = change = ""
    moments = tuple(moment - due[0] for moment in due)
    return Recording(
        due_ns=moments,
        isl=tuple(isl),
        osl=tuple(osl),
        source=path,
        failed=failed,
        blocks=blocks,
        began_ns=due[0],
        unit=word,
        change=change,
    )


# Line number, moment in nanoseconds, and lengths where there are any
Row = tuple[int, int, tuple[int, int] | None]

FAILED = (0, 0)  # Lengths of a request that the file marks as failed


BURSTGPT = ("request tokens", "response tokens")  # The columns of lengths in BurstGPT's files


# names of the columns of moments, of prompts and of outputs, as traces and logs have them
TIMES = (
    *("timestamp", "arrival_time", "arrived_at", "arrival", "start_time", "started_at"),
    *("request_time", "received_at", "created_at", "created", "datetime", "time", "start", "ts"),
)
PROMPTS = (
    *("contexttokens", "request tokens", "isl", "input_length", "prompt_tokens", "input_tokens"),
    *("prompt_length", "prompt_len", "input_len", "num_prefill_tokens", "context_tokens"),
)
OUTPUTS = (
    *("generatedtokens", "response tokens", "osl", "output_length", "completion_tokens"),
    *("output_tokens", "output_len", "num_decode_tokens", "generated_tokens"),
)
SAID_UNIT = re.compile(r"(.+?)[ _]\(?(?:in )?(s|sec|secs|seconds|ms|us|ns)\)?")


def _time_column(names: Iterable[str]) -> tuple[str, str | None]:
    """The column of moments, and the unit that its name says; empty where there is none."""
    split = {name: SAID_UNIT.fullmatch(name) for name in names}
    stems = {name: match[1] if match else name for name, match in split.items()}
    column = next((name for time in TIMES for name in stems if stems[name] == time), "")
    match = split.get(column)
    unit = match[2] if match else None
    return column, "s" if unit and unit.startswith("s") else unit


def _timed_rows(path: str, where: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a table with their moment as "timestamp", of a date and a time in two columns."""
    column = ""
    for line, row in named_rows(path, where, ()):
        column, _ = _time_column(row)
        if not column:
            break
        day = row.get("date", "") if column == "time" else ""
        yield line, row | {"timestamp": f"{day} {row[column]}".strip()}
    if not column:  # refused with what the file has in its place
        yield from named_rows(path, where, ("timestamp",))


def _table(path: str, where: str, errors: list[str]) -> Iterator[Row]:
    for line, row in _timed_rows(path, where):
        at = f"{where}: {path}:{line}"
        moment = _moment(row["timestamp"])
        if moment is None:
            errors.append(
                f"{at}: timestamp '{row['timestamp']}' is not a time; write seconds or such as"
                " 2023-11-16 18:17:03.98"
            )
        columns = PROMPTS, OUTPUTS
        pair = [next((name for name in words if name in row), "") for words in columns]
        names = (pair[0], pair[1]) if all(pair) else None
        if names == BURSTGPT and number(row[BURSTGPT[1]]) == 0:
            yield line, moment or 0, FAILED
            continue
        lengths = (
            None
            if names is None
            else (
                tokens(row[names[0]], names[0], at, errors),
                tokens(row[names[1]], names[1], at, errors),
            )
        )
        if moment is not None:
            yield line, moment, lengths


def _mooncake(path: str, where: str, errors: list[str]) -> Iterator[Row]:
    import json

    for line, text in enumerate(text_lines(path, where), start=1):
        if not text.strip():
            continue
        at = f"{where}: {path}:{line}"
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            errors.append(
                f"{at}: is not JSON; write one object with timestamp, input_length and"
                " output_length a line"
            )
            continue
        missing = [
            n
            for n in ("timestamp", "input_length", "output_length")
            if not isinstance(row, dict) or n not in row
        ]
        if missing:
            errors.append(f"{at}: has no {' and no '.join(missing)}")
            continue
        lengths = tuple(
            tokens(row[name], name, at, errors) for name in ("input_length", "output_length")
        )
        moment = number(str(row["timestamp"]))
        dated = None if moment is not None else _moment(str(row["timestamp"]))
        if dated is not None:
            yield line, dated, (lengths[0], lengths[1])
            continue
        if moment is None or abs(moment) > 1e19:
            errors.append(f"{at}: timestamp '{row['timestamp']}' is not a time; write milliseconds")
            continue
        yield line, round(moment * NS_PER_MS), (lengths[0], lengths[1])


def _blocks(path: str, where: str) -> tuple[tuple[int, ...], ...]:
    """The ``hash_ids`` of Mooncake's format; empty where a line has none. Raises InputError: ids
    that are no list of whole numbers.
    """
    import json

    blocks = []
    for line, text in enumerate(text_lines(path, where), start=1):
        if not text.strip():
            continue
        ids: Any = json.loads(text).get("hash_ids")
        if ids is None:
            return ()
        if not isinstance(ids, list) or any(
            isinstance(identifier, bool) or not isinstance(identifier, int) for identifier in ids
        ):
            raise InputError(
                f"{where}: {path}:{line}: hash_ids is not a list of whole numbers; write the ids of"
                " the prompt's blocks"
            )
        blocks.append(tuple(ids))
    return tuple(blocks) if any(blocks) else ()


_DATE = re.compile(r"([^.,]*?)(?:[.,](\d+))?(Z|[+-]\d\d:?\d\d)?", re.ASCII | re.IGNORECASE)


def _marks(path: str, where: str) -> dict[str, bool]:
    """What the times of a file look like: numbers in place of dates, with fractions; and whether
    its columns are a known format's.
    """
    lines = text_lines(path, where)
    if path.lower().endswith((".jsonl", ".json")):
        import json

        rows = [json.loads(line) for line in lines if line.strip()]
        texts, names = [str(row["timestamp"]) for row in rows], set(rows[0])
    else:
        named = [row for _, row in _timed_rows(path, where)]
        texts, names = [row["timestamp"] for row in named], set(named[0])
    values = [number(text) for text in texts]
    return {
        "numbers": all(value is not None for value in values),
        "fractions": any(value is not None and not value.is_integer() for value in values),
        "chats": {"chat_id", "turn"} <= names,
        "burstgpt": set(BURSTGPT) <= names,
    }


def _unit_of_column(path: str, where: str) -> str | None:
    """The unit that the name of a table's column of times says."""
    if path.lower().endswith((".jsonl", ".json")):
        return None
    return next((_time_column(row)[1] for _, row in named_rows(path, where, ())), None)


def _moment(text: str) -> int | None:
    """Seconds, or an ISO time with up to nine decimals, as nanoseconds; None where it is
    neither.
    """
    seconds = number(text)
    if seconds is not None:
        return round(seconds * NS_PER_S) if abs(seconds) < 1e19 else None
    from datetime import UTC, datetime

    parts = _DATE.fullmatch(text.strip())
    if parts is None:
        return None
    fraction = parts[2] or ""
    try:
        parsed = datetime.fromisoformat(f"{parts[1]}{(parts[3] or '').upper()}")
    except ValueError:
        return None
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=UTC)
    return round(parsed.timestamp()) * NS_PER_S + int(fraction[:9].ljust(9, "0") or 0)


_REGION = re.compile(
    r"^\s*([\w-]{2,})\s*:\s*(\S.*?)(?:@\s*(?:utc)?([+-]\d{1,2})h?)?\s*$", re.IGNORECASE
)
REGION_EXAMPLE = "eu:eu.csv@+1,us:us.csv@-5"


def load_regions(text: str, where: str) -> dict[str, tuple[float, ...]]:
    """The hourly loads of several regions, in hours of UTC: "eu:eu.csv@+1,us:us.csv@-5", a file for
    each with the hours by which its clock is ahead of UTC; empty where the text is no such list.

    Raises InputError: a region that is named twice, files of unlike length, or no file.
    """
    parts = [_REGION.match(part) for part in text.split(",")]
    if parts[0] is None or os.path.exists(text):
        return {}
    regions = dict[str, tuple[float, ...]]()
    for part, match in zip(text.split(","), parts, strict=True):
        if match is None or match[1] in regions or abs(int(match[3] or 0)) > 14:
            raise InputError(
                f"{where}: '{part.strip()}' is not a further region; write each once, with its"
                f" file and the hours of its clock from UTC, such as {REGION_EXAMPLE}"
            )
        hours, ahead = load_profile(match[2], where), int(match[3] or 0)
        regions[match[1]] = tuple(hours[(hour + ahead) % len(hours)] for hour in range(len(hours)))
    if len(lengths := {len(hours) for hours in regions.values()}) > 1:
        raise InputError(
            f"{where}: the regions have {' and '.join(map(str, sorted(lengths)))} values; write 24"
            " for each, or 168"
        )
    return regions


def in_folder(folder: str, profile: str) -> str:
    """The profile of a scenario file with its path, or those of its regions, from that folder."""
    parts = [_REGION.match(part) for part in profile.split(",")]
    if None in parts:
        return os.path.join(folder, profile)
    return ",".join(
        f"{part[1]}:{os.path.join(folder, part[2])}{f'@{part[3]}' if part[3] else ''}"
        for part in parts
        if part is not None
    )


def profile_hours(profile: str | Sequence[float], where: str) -> Sequence[float]:
    """The hourly loads of a profile, those of several regions added up. Raises InputError."""
    if not isinstance(profile, str):
        return profile
    regions = load_regions(profile, where)
    if not regions:
        return load_profile(profile, where)
    return tuple(map(math.fsum, zip(*regions.values(), strict=True)))


def load_profile(path: str, where: str) -> tuple[float, ...]:
    """The hourly values of a file: one a line or separated by commas, or the column
    ``requests_per_second`` of a CSV.

    Raises InputError: the file cannot be read as that; every bad value is named with its line.
    """
    if not os.path.exists(path):
        named = path if len(path) <= 60 else f"{path[:60]}…"
        raise InputError(
            f"{where}: '{named}' is no file and no list of numbers; write 24 or 168 hourly loads"
            " such as 3,2,2,…, or a .csv"
        )
    text = text_lines(path, where)
    header = [cell.strip().lower() for cell in text[0].split(",")] if text else []
    name = next((n for n in ("requests_per_second", "rps", "share", "value") if n in header), None)
    if name is not None:
        cells = [(line, row[name]) for line, row in named_rows(path, where, (name,))]
    else:
        cells = [
            (line, cell.strip())
            for line, row in enumerate(text, start=1)
            for cell in row.split(",")
            if cell.strip()
        ]
    values = [(line, cell, number(cell)) for line, cell in cells]
    errors = [
        f"{where}: {path}:{line}: '{cell}' is not a load; write requests per second, or shares, 0"
        " or more"
        for line, cell, value in values
        if value is None or value < 0
    ]
    InputErrors.raise_if(errors)
    if not values:
        raise InputError(
            f"{where}: {path} is empty; write 24 values for the hours of a day, or 168 for a week"
        )
    return tuple(value for _, _, value in values if value is not None)
