"""Run folders that their own client called INVALID: their latencies may be the client's, so they count only where that is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tonnage.errors import InputError, option

INVALID = "INVALID"


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidRun:
    """One such run folder.

    Attributes:
        run: its path.
        why: the first of its client's reasons, and how many more there are.
        counts: whether it counts all the same, because that was asked for.
    """

    run: str
    why: str
    counts: bool

    @property
    def sentence(self) -> str:
        """The run, why it is INVALID, and the option that decides; the option is not spelled yet (``errors.spelled``)."""
        flag = option("include_invalid")
        if self.counts:
            return f"{self.run} counts because of {flag}, though its own client called it {INVALID}: {self.why}."
        return f"{self.run} is left out, because its own client called it {INVALID}: {self.why}; {flag} takes it all the same."


def why_invalid(summary: Mapping[str, Any]) -> str:
    """Why the client called the run of this ``summary.json`` INVALID; "" where it did not, or where nobody judged it."""
    validity = summary.get("validity")
    if not isinstance(validity, Mapping) or validity.get("verdict") != INVALID:
        return ""
    found = validity.get("reasons")
    reasons = [str(reason) for reason in found] if isinstance(found, list) else []
    further = f"; and {len(reasons) - 1} more reasons" if len(reasons) > 1 else ""
    return f"{reasons[0]}{further}" if reasons else "it does not say why"


class InvalidRuns:
    """Decides on such runs while measurements are read, and remembers them.

    Attributes:
        include: whether they count all the same.
        met: those that were met, in order.
    """

    def __init__(self, *, include: bool = False) -> None:
        self.include = include
        self.met: list[InvalidRun] = []

    @property
    def sentences(self) -> tuple[str, ...]:
        """One on each; options are not spelled yet."""
        return tuple(run.sentence for run in self.met)

    def takes(self, folder: Path | str, summary: Mapping[str, Any]) -> bool:
        """Whether a run counts."""
        why = why_invalid(summary)
        if why:
            self.met.append(InvalidRun(run=str(folder), why=why, counts=self.include))
        return self.include or not why

    def check(self, taken: Sized) -> None:
        """Refuse measurements of which nothing is left.

        Raises:
            InputError: nothing was taken, and what there was is INVALID.
        """
        if len(taken) or self.include or not self.met:
            return
        more = f" Of {len(self.met) - 1} more runs it is the same." if len(self.met) > 1 else ""
        raise InputError(f"no valid measurement is left: {self.met[0].sentence}{more}")
