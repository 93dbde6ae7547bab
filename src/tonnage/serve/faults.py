"""Faults on demand: what goes wrong in a simulated deployment, when, and by which rule.

    slow factor=5 [instance=1] [from=10s] [to=30s]     its time runs slower by the factor
    stall for=2s [instance=1] [from=10s]               its time stands still
    crash from=10s [instance=1]                        its process ends as if it were killed
    start for=30s [instance=1]                         its process takes no connections for so long after its start
    429 share=0.1 [from=10s] [to=30s]                  that share of the requests is refused
    500 share=0.1 …                                    that share fails
    cut share=0.1 [after=5] …                          that share of the streams breaks off after so many tokens

Times count from the first request to the server, of faults that ``/faults`` sets from then on.
Which requests are meant is drawn from their number and the seed, so that the same ones are met
again. A request may bring its own in the header ``x-fault``: 429, 500, cut, or a stall before it
reaches the engine.
"""  # noqa: E501

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from tonnage.errors import InputError, option
from tonnage.serve.dialect import Refused
from tonnage.simulator.router import draw
from tonnage.units import parse_duration

Kind = Literal["slow", "stall", "crash", "start", "429", "500", "cut"]
KINDS: tuple[Kind, ...] = get_args(Kind)
OF_REQUESTS = ("429", "500", "cut")
NEEDED = {
    "slow": ("factor",),
    "stall": ("for",),
    "crash": ("from",),
    "start": ("for",),
    **dict.fromkeys(OF_REQUESTS, ("share",)),
}
ALLOWED = {
    "slow": ("factor", "instance", "from", "to"),
    "stall": ("for", "instance", "from"),
    "crash": ("from", "instance"),
    "start": ("for", "instance"),
    "429": ("share", "from", "to"),
    "500": ("share", "from", "to"),
    "cut": ("share", "after", "from", "to"),
}
HEADER = "x-fault"
_BITS = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault to inject."""

    kind: Kind
    instance: int | None = None  # where; None for everywhere
    start_s: float = 0.0  # and end_s: from when to when, in seconds from the first request
    end_s: float = math.inf
    factor: float = 1.0  # by which an instance is slower
    share: float = 0.0  # of the requests
    after: int = 1  # tokens after which a stream breaks off

    def words(self) -> str:
        """Write the fault without its instance."""
        times = (f" from={self.start_s}s" if self.start_s else "") + (
            f" to={self.end_s}s" if math.isfinite(self.end_s) else ""
        )
        if self.kind == "stall":
            return f"stall for={self.end_s - self.start_s}s from={self.start_s}s"
        if self.kind in ("crash", "start"):
            return (
                f"crash from={self.start_s}s"
                if self.kind == "crash"
                else f"start for={self.end_s}s"
            )
        parameters = {
            "slow": f" factor={self.factor}",
            "cut": f" share={self.share} after={self.after}",
        }.get(self.kind, f" share={self.share}")
        return self.kind + parameters + times


def parse_fault(text: str) -> Fault:
    """Read a fault. Raises InputError: anything that is not one, in one line."""
    where = option("fault")
    kind, *words = text.split() or [""]
    if kind not in KINDS:
        raise InputError(
            f'{where}: "{text}" begins with no fault that there is; write {", ".join(KINDS)}, such'
            ' as "slow factor=5 from=10s"'
        )
    parameters = dict(word.partition("=")[::2] for word in words)
    wrong = [word for word in parameters if word not in ALLOWED[kind]] + [
        word for word in NEEDED[kind] if word not in parameters
    ]
    if wrong or len(parameters) < len(words):
        needed, free = NEEDED[kind], [word for word in ALLOWED[kind] if word not in NEEDED[kind]]
        raise InputError(
            f'{where}: "{text}": {kind} takes {" and ".join(f"{w}=" for w in needed)}, and if'
            f" wanted {', '.join(free)}"
        )
    start = parse_duration(parameters["from"], where) if "from" in parameters else 0.0
    end = start + parse_duration(parameters["for"], where) if "for" in parameters else math.inf
    end = parse_duration(parameters["to"], where) if "to" in parameters else end
    if end <= start:
        raise InputError(f'{where}: "{text}" ends before it begins')
    return Fault(
        kind=next(known_kind for known_kind in KINDS if known_kind == kind),
        instance=(
            int(_number(parameters["instance"], text, least=0, highest=1e6, whole=True))
            if "instance" in parameters
            else None
        ),
        start_s=start,
        end_s=end,
        factor=_number(parameters.get("factor", "1"), text, least=1e-3, highest=1e6),
        share=_number(parameters.get("share", "0"), text, least=0, highest=1),
        after=int(_number(parameters.get("after", "1"), text, least=0, highest=1e9, whole=True)),
    )


def _number(word: str, text: str, *, least: float, highest: float, whole: bool = False) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not least <= value <= highest or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        raise InputError(
            f'{option("fault")}: "{text}": {word} is not possible; write {kind} from {least:g} to'
            f" {highest:g}"
        )
    return value


def of_header(text: str) -> Fault:
    """The fault that a request brings; without a share it is certain. Raises Refused: no fault of a
    single request.
    """
    kind, *more = text.split() or [""]
    share = (
        ["share=1"]
        if kind in OF_REQUESTS and not any(word.startswith("share=") for word in more)
        else []
    )
    try:
        fault = parse_fault(" ".join([kind, *more, *share]))
    except InputError as error:
        raise Refused(str(error)) from None
    if fault.kind not in (*OF_REQUESTS, "stall"):
        raise Refused(
            f"{HEADER}: {kind} is no fault of one request; write 429, 500, cut or stall, or set it"
            " at /faults"
        )
    return fault


def clock_changes(faults: Sequence[Fault], instance: int) -> tuple[tuple[float, float], ...]:
    """(Seconds from now, factor by which an instance is slower from then on); infinity stops it,
    faults that overlap multiply.
    """
    clock_faults = [
        fault
        for fault in faults
        if fault.kind in ("slow", "stall") and fault.instance in (None, instance)
    ]
    moments = {
        0.0,
        *(
            moment
            for fault in clock_faults
            for moment in (fault.start_s, fault.end_s)
            if 0 < moment < math.inf
        ),
    }
    changes = []
    for moment in sorted(moments):
        active = [fault for fault in clock_faults if fault.start_s <= moment < fault.end_s]
        changes.append(
            (
                moment,
                math.prod(math.inf if fault.kind == "stall" else fault.factor for fault in active),
            )
        )
    return tuple(changes)


class Faults:
    """The faults of a server, from its first request on or set while it runs."""

    def __init__(
        self,
        faults: Sequence[Fault],
        apply: Callable[[list[Fault]], None],
        *,
        seed: int,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``apply`` gets the faults that are not about requests, with times from now, at the first
        request and at every change.
        """
        self._faults, self._set = tuple(faults), tuple[Fault, ...]()
        self._apply, self._seed, self._now_s = apply, seed, now_s
        self._numbers = itertools.count()
        self._pauses: dict[str, Fault] = {}
        self._begun = False

    def next(self, header: str = "") -> Fault | None:
        """What happens to the next request, by a header or by itself; None for nothing. Raises
        Refused: no fault of a single request.
        """
        number, now = next(self._numbers), self._now_s()
        if not self._begun:
            self._begun, self._faults = True, tuple(_moved(fault, now) for fault in self._faults)
            if self._faults:
                self._change(now)
        faults: tuple[Fault, ...] = (_moved(of_header(header), now),) if header else ()
        for place, candidate in enumerate((*self._faults, *self._set, *faults)):
            if (
                candidate.share
                and candidate.start_s <= now < candidate.end_s
                and draw(self._seed, number, place) < candidate.share * _BITS
            ):
                return candidate
        return next((fault for fault in faults if fault.kind == "stall"), None)

    def set(self, faults: Sequence[Fault]) -> None:
        """Replace the faults that were set while the server runs; their times count from now."""
        now = self._now_s()
        self._set = tuple(_moved(fault, now) for fault in faults)
        self._change(now)

    def written(self) -> list[str]:
        """The faults that were set, with times from now."""
        now = self._now_s()
        faults = [_moved(fault, -now) for fault in self._set if fault.end_s > now]
        return [replace(fault, start_s=max(fault.start_s, 0.0)).words() for fault in faults]

    def pause(self, name: str, seconds: float = math.inf) -> None:
        """Stop the time of all instances for so long; a pause replaces an earlier one of the same
        name, and 0 ends it.
        """
        now = self._now_s()
        self._pauses[name] = Fault(kind="stall", start_s=now, end_s=now + seconds)
        self._change(now)

    def _change(self, now: float) -> None:
        begun = self._faults if self._begun else ()
        self._pauses = {name: fault for name, fault in self._pauses.items() if fault.end_s > now}
        self._apply(
            [
                _moved(fault, -now)
                for fault in (*begun, *self._set, *self._pauses.values())
                if not fault.share
            ]
        )


def _moved(fault: Fault, seconds: float) -> Fault:
    return replace(fault, start_s=fault.start_s + seconds, end_s=fault.end_s + seconds)
