"""A scenario that reproduces recorded traffic: its distributions where they fit, else files of what
was seen.

What a file holds is next to the scenario: ``NAME.lengths.csv`` has pairs of lengths,
``NAME.isl.csv`` and ``NAME.osl.csv`` lengths with their weights, ``NAME.arrivals.csv`` the moments.
Of recorded sessions a few that stand for all are kept in ``NAME.sessions.jsonl.gz``.
"""

from __future__ import annotations

import os.path
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tonnage.spec.scenario import DemandAsked, LengthsAsked, Scenario, SearchAsked, to_document
from tonnage.units import NS_PER_S
from tonnage.workload.description import Description
from tonnage.workload.live_sessions import Chosen, chosen_sessions, written

CORRELATED = 0.1  # Rank correlation from which on prompts and outputs are drawn together


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A scenario and the files that it names."""

    description: Description  # of the traffic
    scenario: Scenario  # what reproduces it; its files are named relative to it
    files: dict[str, str] = field(default_factory=dict)  # their names with what they hold
    # "distributions", "pairs", or "weights" where at least one side is a file of lengths with
    # weights; "sessions" of sessions
    lengths: str
    chosen: Chosen | None = None  # the sessions that stand for all; None where the traffic has none

    def to_json(self) -> dict[str, Any]:
        """The scenario as its file holds it, the names of the files next to it, and what was
        fitted.
        """
        description = self.description
        return {
            "scenario": to_document(self.scenario),
            "files": sorted(self.files),
            "lengths": self.lengths,
            "isl": description.fitted_isl.to_json(),
            "osl": description.fitted_osl.to_json(),
            "arrivals": description.fitted_arrivals.to_json(),
            **(
                {}
                if self.chosen is None
                else {"sessions": len(self.chosen.recorded), "errors": self.chosen.errors}
            ),
        }


def fit(description: Description, stem: str, model: str | None = None) -> Fit:
    """The scenario of a description.

    Args:
        description: of the traffic.
        stem: what the names of the files next to the scenario begin with.
        model: of the scenario; None leaves it to anyone who asks.
    """
    files: dict[str, str] = {}
    recorded = description.traffic.recorded
    chosen = None if recorded is None else chosen_sessions(recorded)
    if chosen is not None:
        name = f"{stem}.sessions.jsonl.gz"
        files[name] = written(chosen.recorded)
        lengths, how, demand, search = (
            LengthsAsked(),
            "sessions",
            DemandAsked(trace=name),
            SearchAsked(),
        )
    else:
        lengths, how = _lengths(description, stem, files)
        demand, search = _arrivals(description, stem, files)
    source = os.path.basename(os.path.normpath(description.traffic.recording.source))
    title = f"Fitted to {source}"
    scenario = Scenario(title=title, model=model, lengths=lengths, demand=demand, search=search)
    return Fit(description=description, scenario=scenario, files=files, lengths=how, chosen=chosen)


def _lengths(
    description: Description, stem: str, files: dict[str, str]
) -> tuple[LengthsAsked, str]:
    recording = description.traffic.recording
    if description.correlation is not None and abs(description.correlation) >= CORRELATED:
        name = f"{stem}.lengths.csv"
        files[name] = "isl,osl\n" + "".join(
            f"{i},{o}\n" for i, o in zip(recording.isl, recording.osl, strict=True)
        )
        return LengthsAsked(pairs=name), "pairs"
    written = {}
    for side, fitted, values in (
        ("isl", description.fitted_isl, recording.isl),
        ("osl", description.fitted_osl, recording.osl),
    ):
        written[side] = fitted.written
        if not fitted.fits:  # all lengths, and how often each was seen
            written[side] = name = f"{stem}.{side}.csv"
            files[name] = "value,weight\n" + "".join(
                f"{value},{count}\n" for value, count in sorted(Counter(values).items())
            )
    return LengthsAsked(
        isl=written["isl"], osl=written["osl"]
    ), "weights" if files else "distributions"


def _arrivals(
    description: Description, stem: str, files: dict[str, str]
) -> tuple[DemandAsked, SearchAsked]:
    fitted = description.fitted_arrivals
    if fitted.process == "trace":
        name = f"{stem}.arrivals.csv"
        moments = (
            f"{due // NS_PER_S}.{due % NS_PER_S:09d}\n"
            for due in description.traffic.recording.due_ns
        )
        files[name] = "timestamp\n" + "".join(moments)
        return DemandAsked(trace=name), SearchAsked(arrivals="trace")
    rate = float(f"{fitted.rate:.6g}")
    cv = None if fitted.cv is None else float(f"{fitted.cv:.4g}")
    return DemandAsked(peak_rps=rate), SearchAsked(arrivals=fitted.process, cv=cv)
