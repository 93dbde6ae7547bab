"""The verdict on a run: whether its numbers are the server's, or partly the client's own.

A latency that was measured is the server's plus however late the client was. The verdict is INVALID
where that lateness, a lack of CPU, a load that was not reached, errors, or the lack of a steady
state could move what is reported; every reason is there with its number and its limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tonnage.bench.intervals import Integers, needed
from tonnage.bench.load import Load
from tonnage.bench.measure import Observed
from tonnage.bench.reply import CANCELLED, COMPLETED
from tonnage.bench.steady import Steady
from tonnage.errors import in_python, option
from tonnage.results.metrics import Summary
from tonnage.results.outcomes import ERROR_RATE, STEP_NS, came_at_once
from tonnage.results.requests import COMPLETED as ROW_COMPLETED
from tonnage.results.requests import Requests, gap_edges_ns
from tonnage.spec.workload import MANY_CLIENTS

# Mean lateness that is let pass: 2 ms, or 2 % of the mean TTFT where that is more
MEAN_MS, MEAN_SHARE = 2.0, 0.02
P99_MS, P99_SHARE = 10.0, 0.10  # Its 99th percentile: 10 ms, or 10 % of the p99 of TTFT
# Share of a core that one client process may take over the run; above it, queues inside it build up
CPU_SHARE = 0.85
CPU_PEAK, CPU_PEAKS = 0.95, 0.05  # No more than 5 % of the seconds may be above 95 % of a core
REACHED = 0.95  # Share of the concurrency, and of the request rate, that must have been reached


# How the names of those checks begin that are about the client itself
CLIENT = ("event_loop", "sending", "cpu")

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One number next to its limit."""

    name: str
    value: float  # and limit: in ``unit``; a value that could not be had is NaN and passes
    limit: float
    unit: str
    passed: bool  # whether it is on the right side
    words: str  # the whole as a sentence

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name."""
        return {"value": self.value, "limit": self.limit, "unit": self.unit, "passed": self.passed}


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """Whether a run can be believed."""

    reasons: tuple[str, ...]  # why not, one sentence each; none where it is valid
    # what a reader should know and what makes nothing invalid; options in them are not spelled yet
    notes: tuple[str, ...]
    checks: tuple[Check, ...]  # every number next to its limit
    steady: Steady  # where the run was steady
    # percentiles, and whether there were samples enough for each at a confidence of 0.99
    supported: dict[int, bool]

    @property
    def verdict(self) -> str:
        """VALID or INVALID."""
        return "INVALID" if self.reasons else "VALID"

    @property
    def client_reasons(self) -> tuple[str, ...]:
        """The reasons that are the client's own: its lateness, its CPU."""
        return tuple(
            check.words
            for check in self.checks
            if not check.passed and check.name.startswith(CLIENT)
        )

    @property
    def client_limited(self) -> bool:
        """Whether the client was too slow for the load."""
        return bool(self.client_reasons)

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name."""
        steady = self.steady
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "notes": list(map(in_python, self.notes)),
            "checks": {check.name: check.to_json() for check in self.checks},
            "steady": {
                "found": steady.found,
                "start_s": steady.start_s,
                "end_s": steady.end_s,
                "drift": steady.drift,
            },
            "percentiles": {
                f"p{p}": {"needed": needed(p), "enough": enough}
                for p, enough in self.supported.items()
            },
        }


def judge(
    observed: Observed,
    requests: Requests,
    summary: Summary,
    steady: Steady,
    *,
    percentiles: Sequence[int] = (),
    error_rate: float = ERROR_RATE,
) -> Validity:
    """The verdict on a run; too few samples for a percentile make it invalid, and more than
    ``error_rate`` failed requests.
    """
    checks = [
        *_lateness("event loop", observed.lateness_ns, summary),
        *_lateness("sending", observed.begun_lateness_ns, summary),
        *_cpu(observed),
        *_reached(observed, requests),
        _errors(observed, error_rate),
        *_outputs(observed, requests, error_rate),
    ]
    supported = {p: summary.counted >= needed(p) for p in PERCENTILES}
    reasons = [check.words for check in checks if not check.passed]
    if not summary.counted:
        reasons.append("no request completed")
    if steady.found is False:
        reasons.append(
            f"no steady state: the mean E2E still changed by {steady.drift:+.0%} over the second"
            " half of the run"
        )
    reasons += [
        f"p{p} was asked for and needs {needed(p)} completed requests, there were {summary.counted}"
        for p in percentiles
        if summary.counted < needed(p)
    ]
    notes = _notes(
        observed,
        requests,
        summary,
        steady,
        [p for p in PERCENTILES if not supported[p] and p not in percentiles],
    )
    notes += _of_replies(observed, requests, {check.name for check in checks if not check.passed})
    return Validity(
        reasons=tuple(reasons),
        notes=tuple(notes),
        checks=tuple(checks),
        steady=steady,
        supported=supported,
    )


def _check(
    name: str, value: float, limit: float, unit: str, what: str, *, least: bool = False
) -> Check:
    passed = math.isnan(value) or (value >= limit if least else value <= limit)
    words = (
        f"{what} {value:.3g} {unit}, {'at least' if least else 'at most'} {limit:.3g} {unit} would"
        " be right".replace(" %", "\u00a0%")
    )
    return Check(
        name=name,
        value=value,
        limit=limit,
        unit=unit,
        passed=passed,
        words=words.replace("\u00a0", " "),
    )


def _lateness(who: str, lateness_ns: Sequence[int], summary: Summary) -> list[Check]:
    """Mean and p99 of a lateness, next to what the latencies allow."""
    values = np.asarray(lateness_ns, dtype=np.float64) / 1e6
    mean, p99 = (
        (float(values.mean()), float(np.percentile(values, 99)))
        if values.size
        else (math.nan, math.nan)
    )
    ttft = summary.ttft_ms
    limits = [
        max(MEAN_MS, MEAN_SHARE * (ttft.mean or 0.0)),
        max(P99_MS, P99_SHARE * (ttft.p99 or 0.0)),
    ]
    key = who.replace(" ", "_")
    return [
        _check(
            f"{key}_lateness_mean_ms",
            mean,
            limits[0],
            "ms",
            f"the client's {who} was late by a mean of",
        ),
        _check(
            f"{key}_lateness_p99_ms",
            p99,
            limits[1],
            "ms",
            f"the client's {who} was late by a p99 of",
        ),
    ]


def _cpu(observed: Observed) -> list[Check]:
    slices = observed.cpu
    above = sum(share > CPU_PEAK for share in slices) / len(slices) if len(slices) else math.nan
    return [
        _check(
            "cpu_share_percent",
            100 * observed.cpu_share,
            100 * CPU_SHARE,
            "%",
            "the client took, of a core,",
        ),
        _check(
            "cpu_saturated_percent",
            100 * above,
            100 * CPU_PEAKS,
            "%",
            "seconds in which the client took a whole core:",
        ),
    ]


def _reached(observed: Observed, requests: Requests) -> list[Check]:
    """Mean requests in flight, or the rate, as a share of what was requested."""
    load = observed.load
    if load.conversations is not None:
        return _conversations(observed, requests)
    if load.due_ns is None:
        share = _concurrency(requests, _ends(observed, requests), load.concurrency, load.ramp_s)
        what = f"of {load.concurrency} requests in flight there were on average"
        return [_check("concurrency_percent", 100 * share, 100 * REACHED, "%", what, least=True)]
    if observed.held:  # the rate is then the server's, as in a closed loop
        return []
    sent = requests.sent_ns[requests.sent_ns >= 0]
    if observed.sent < 2 or sent.size < 2:
        return [_check("rate_percent", math.nan, 100 * REACHED, "%", "", least=True)]
    planned = int(load.due_ns[observed.sent - 1] - load.due_ns[0])
    span = int(sent.max() - sent.min())
    share = planned / span if span > 0 and planned > 0 else math.nan
    return [
        _check(
            "rate_percent",
            100 * share,
            100 * REACHED,
            "%",
            f"of {load.rate:g} requests/s were sent",
            least=True,
        )
    ]


def _conversations(observed: Observed, requests: Requests) -> list[Check]:
    """Mean conversations under way over the clients, pauses included; an open loop has the lateness
    of its sending instead.
    """
    load, log = observed.load, observed.turns
    if not load.concurrency or log is None:
        return []
    who = log.conversation[: len(requests)]
    ends = np.maximum(_ends(observed, requests), requests.due_ns)
    _, first = np.unique(who, return_index=True)
    begun, order = requests.due_ns[first], np.argsort(who, kind="stable")
    over = (
        np.maximum.reduceat(ends[order], np.flatnonzero(np.diff(who[order], prepend=-1)))
        if who.size
        else ends
    )
    share = math.nan
    if begun.size >= 2 * load.concurrency:
        start, stop = int(np.sort(begun)[load.concurrency - 1]), int(begun.max())
        inside = np.maximum(np.minimum(over, stop) - np.maximum(begun, start), 0)
        share = (
            float(inside.sum()) / (stop - start) / load.concurrency if stop > start else math.nan
        )
    what = f"of {load.concurrency} conversations there were under way on average"
    return [_check("concurrency_percent", 100 * share, 100 * REACHED, "%", what, least=True)]


def _ends(observed: Observed, requests: Requests) -> Integers:
    """When each reply was over, with the usage that may follow its last token; int64 nanoseconds of
    the run, -1 where none came.
    """
    ends = np.asarray(observed.ends_ns, dtype=np.int64)
    return ends if ends.size == len(requests) else requests.last_token_ns


def _concurrency(requests: Requests, ends: Integers, clients: int, ramp_s: float) -> float:
    """Mean requests in flight over the clients, between the last client's start and the last
    request sent; NaN if too short.
    """
    went = (requests.sent_ns >= 0) & (ends >= 0)
    begun, end = np.sort(requests.due_ns[went]), ends[went]
    if begun.size < 2 * clients or not (requests.status == ROW_COMPLETED).any():
        return math.nan
    start, stop = max(int(begun[clients - 1]), round(ramp_s * 1e9)), int(begun[-1])
    if stop <= start:
        return math.nan
    inside = np.minimum(end, stop) - np.maximum(requests.due_ns[went], start)
    return float(np.maximum(inside, 0).sum()) / (stop - start) / clients


def _errors(observed: Observed, limit: float) -> Check:
    outcomes = observed.tally.outcomes
    over = sum(outcomes.values()) - outcomes[CANCELLED]
    failed = over - outcomes[COMPLETED]
    kinds = ", ".join(f"{count} {outcome}" for outcome, count in observed.tally.failures.items())
    share = failed / over if over else math.nan
    return _check("error_percent", 100 * share, 100 * limit, "%", f"requests failed ({kinds}):")


def _outputs(observed: Observed, requests: Requests, limit: float) -> list[Check]:
    """Shares of the outputs that differ from the request, or whose tokens the client did not see
    when the engine made them.
    """
    endpoint, tally = observed.endpoint, observed.tally
    completed = tally.outcomes[COMPLETED]
    if endpoint is None or not endpoint.has_output or not completed:
        return []
    counts = [
        (
            "uncounted",
            tally.uncounted,
            "outputs are 0 tokens long by the server's count, which is wrong",
        ),
    ]
    if endpoint.pinned:
        mean = float(requests.osl[requests.status == ROW_COMPLETED].mean())
        target = float(observed.load.osl.mean())
        words = (
            f"outputs do not have the length at which they were pinned ({mean:.3g} tokens for"
            f" {target:.3g} on average)"
        )
        counts.append(("length", tally.osl_far, words))
    if endpoint.streaming:
        words = (
            "replies came with all their tokens at one moment, so that TTFT is E2E and TPOT means"
            " nothing"
        )
        counts.append(("at_once", int(came_at_once(requests).sum()), words))
    return [
        _check(
            f"{name}_percent",
            100 * count / completed,
            100 * limit,
            "%",
            f"{count} of {completed} {words}:",
        )
        for name, count, words in counts
    ]


def _in_step(load: Load) -> bool:
    """Whether requests of equal length may fall into step: all are equal, and an open loop or many
    clients send them.
    """
    if (
        load.conversations is not None
        or not len(load)
        or (load.due_ns is None and load.concurrency < MANY_CLIENTS)
    ):
        return False
    return all(int(column.min()) == int(column.max()) for column in (load.isl, load.osl))


def _notes(
    observed: Observed, requests: Requests, summary: Summary, steady: Steady, few: list[int]
) -> list[str]:
    tally, notes = observed.tally, []
    if few:
        names = ", ".join(f"p{p}" for p in few)
        notes.append(
            f"{names}: fewer samples ({summary.counted}) than 0.99 confidence needs"
            f" ({', '.join(str(needed(p)) for p in few)})"
        )
    if steady.found is None:
        notes.append("too few requests to look for a steady state")
    if observed.interrupted:
        notes.append(
            f"ended by Ctrl-C or SIGTERM with {tally.outcomes[CANCELLED]} requests in flight"
        )
    elif tally.outcomes[CANCELLED]:
        notes.append(
            f"{tally.outcomes[CANCELLED]} requests were in flight when the time and its grace were"
            " over: they are unfinished"
        )
    if tally.events and tally.tokens > 1.02 * tally.events:
        ratio = tally.tokens / tally.events
        notes.append(
            f"{ratio:.2f} tokens an event: TPOT reads low, tpot_by_event_ms in run.json does not"
        )
    if tally.several:
        notes.append(
            f"{tally.several} of {summary.counted} replies hold several outputs side by side (n):"
            " tokens, TPOT and ITL count all of them as they came, so that the TPOT of a single"
            " output is as many times longer"
        )
    if tally.tokens and tally.osl_off > 0.01 * max(summary.counted, 1):
        notes.append(f"{tally.osl_off} of {summary.counted} outputs have another length than asked")
    if tally.sources["events"]:
        notes.append(
            f"tokens of {tally.sources['events']} replies were counted as one an event, the server"
            " did not say how many"
        )
    if tally.tokens and _in_step(observed.load):
        isl, osl = (int(column[0]) for column in (observed.load.isl, observed.load.osl))
        notes.append(
            "all requests have the same length, so they may end together and wait for one another;"
            f" {option('isl')} {isl}+-20% {option('osl')} {osl}+-20% draws them, as those of real"
            " traffic are"
        )
    if observed.held:
        span_s = (int(requests.sent_ns.max()) - int(requests.due_ns.min())) / 1e9
        notes.append(
            f"{observed.held} of {observed.sent} requests waited at the client for one of"
            f" {observed.load.in_flight} in flight, and their latencies count from then:"
            f" {observed.sent / max(span_s, 1e-9):.3g} of {observed.load.rate:g} requests/s were"
            " sent"
        )
    if observed.waits:
        notes.append(
            f"{observed.waits} requests failed at once; their clients waited before the next one,"
            " longer after each in a row"
        )
    if observed.retries:
        notes.append(
            f"{observed.retries} requests were sent again: the server had closed their kept"
            " connection"
        )
    return notes


KINDS_SHOWN = 4  # Kinds of failures that notes show in the server's words


def _of_replies(observed: Observed, requests: Requests, failed: set[str]) -> list[str]:
    """What the server said of its failures, and what of the outputs was not seen as it was made;
    ``failed`` checks have reasons already.
    """
    endpoint, tally, notes = observed.endpoint, observed.tally, list[str]()
    first = {
        example["outcome"]: example["detail"]
        for example in reversed(tally.examples)
        if example["detail"]
    }
    for outcome in [outcome for outcome in tally.failures if outcome in first][:KINDS_SHOWN]:
        remedy = "" if endpoint is None else endpoint.remedy(first[outcome])
        notes.append(f"{outcome}: {first[outcome]}" + (f"; {remedy}" if remedy else ""))
    if "length_percent" in failed:
        notes.append(
            f"{option('no_pin_output')} measures outputs of the lengths that the server gives them"
        )
    if tally.hiding:
        notes.append(
            f"{tally.hidden} output tokens of {tally.hiding} replies were not sent (reasoning that"
            " stays hidden): they lengthen TTFT, and TPOT and tokens/s are of the tokens that came"
        )
    if endpoint is not None and endpoint.has_output and not endpoint.streaming:
        notes.append(
            "replies were not streamed, so that their tokens have no moments: E2E alone counts"
        )
    gaps = requests.gaps.sum(axis=0)
    together = int(gaps[gap_edges_ns() < STEP_NS].sum()) / max(int(gaps.sum()), 1)
    if together > 0.5 and not any(name.startswith(("at_once", *CLIENT)) for name in failed):
        notes.append(
            f"{together:.0%} of the tokens came together with the one before: ITL is that of"
            " batches that a server or proxy sends"
        )
    return notes
