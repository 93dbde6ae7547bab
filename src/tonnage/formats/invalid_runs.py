"""Measured runs and points that are not to be believed, or cannot be predicted: which are left out,
why, and what takes them all the same.

Left out are run folders that their own client called INVALID, whose latencies may be the client's;
runs of which more than ``ERROR_RATE`` of the requests failed, whose latencies are those of an
engine with less to do; and loads that the simulator does not run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tonnage.errors import InputError, option
from tonnage.results.outcomes import ERROR_RATE

INVALID = "INVALID"


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidRun:
    """One such run or point."""

    run: str  # its path, and where in it
    # the first of its client's reasons and how many more there are, or what failed, or what of its
    # load is not simulated
    why: str
    counts: bool  # whether it counts all the same
    option: str = "include_invalid"  # the option that decides, "" where none does

    @property
    def sentence(self) -> str:
        """The run, why it is not believed, and the option that decides; the option is not spelled
        yet (``errors.spelled``).
        """
        flag = option(self.option)
        if not self.option:
            return (
                f"{self.run}: {self.why}."
                if self.counts
                else f"{self.run} is left out: {self.why}."
            )
        if self.option == "allow_errors" and self.counts:
            return f"{self.run} counts, though {self.why}."
        client = f"its own client called it {INVALID}: " if self.option == "include_invalid" else ""
        if self.counts:
            return f"{self.run} counts because of {flag}, though {client}{self.why}."
        return f"{self.run} is left out, because {client}{self.why}; {flag} takes it all the same."


def why_invalid(summary: Mapping[str, Any]) -> str:
    """Why the client called the run of this ``summary.json`` INVALID; "" where it did not, or gave
    no verdict.
    """
    validity = summary.get("validity")
    if not isinstance(validity, Mapping) or validity.get("verdict") != INVALID:
        return ""
    raw_reasons = validity.get("reasons")
    reasons = [str(reason) for reason in raw_reasons] if isinstance(raw_reasons, list) else []
    further = f"; and {len(reasons) - 1} more reasons" if len(reasons) > 1 else ""
    return f"{reasons[0]}{further}" if reasons else "it does not say why"


class InvalidRuns:
    """Decides on such runs while measurements are read, and remembers them.

    Attributes:
        include: whether run folders count that their client called INVALID.
        allow_errors: whether runs count of which too many requests failed.
        met: the met ones, in order; also those of which a few requests failed, which count.
    """

    def __init__(self, *, include: bool = False, allow_errors: bool = False) -> None:
        self.include = include
        self.allow_errors = allow_errors
        self.met: list[InvalidRun] = []

    @property
    def sentences(self) -> tuple[str, ...]:
        """One on each; options are not spelled yet."""
        return tuple(run.sentence for run in self.met)

    def takes(self, folder: Path | str, summary: Mapping[str, Any]) -> bool:
        """Whether a run folder counts."""
        why = why_invalid(summary)
        if why:
            self.met.append(InvalidRun(run=str(folder), why=why, counts=self.include))
            return self.include
        judged = summary.get("validity")
        # by the share that its question let fail
        if isinstance(judged, Mapping) and judged.get("verdict") == "VALID":
            return True
        requests = summary.get("requests")
        counts = (
            {name: requests.get(name) or 0 for name in ("completed", "failed")}
            if isinstance(requests, Mapping)
            else {}
        )
        return self.takes_errors(str(folder), counts.get("failed", 0), sum(counts.values()))

    def takes_errors(self, where: str, failed: int, sent: int) -> bool:
        """Whether a run counts of whose ``sent`` requests some ``failed``."""
        if failed <= 0:
            return True
        share = failed / sent if sent else 1.0
        why, few = (
            f"{failed:,} of {sent:,} requests ({100 * share:.2g} %) failed",
            share <= ERROR_RATE,
        )
        counts = few or self.allow_errors
        self.met.append(
            InvalidRun(run=where, why=why, counts=counts, option="" if few else "allow_errors")
        )
        return counts

    def leave_out(self, where: str, why: str) -> None:
        """Leave out a point whose load the simulator does not run."""
        self.met.append(InvalidRun(run=where, why=why, counts=False, option=""))

    def remark(self, where: str, what: str) -> None:
        """Say what is to be known of a point that counts."""
        self.met.append(InvalidRun(run=where, why=what, counts=True, option=""))

    def check(self, rows: Sized) -> None:
        """Refuse measurements of which nothing is left. Raises InputError: nothing was taken, and
        what there was is left out.
        """
        left_out = [run for run in self.met if not run.counts]
        if len(rows) or not left_out:
            return
        more = f" Of {len(left_out) - 1} more runs it is the same." if len(left_out) > 1 else ""
        raise InputError(f"no valid measurement is left: {left_out[0].sentence}{more}")
