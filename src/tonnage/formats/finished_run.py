"""A run folder as the files of other tools need it: the record, single tokens, and the latencies as
other tools count them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.results.requests import COMPLETED, Requests
from tonnage.results.store import checked, read_mapping, read_run, read_tokens

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """What a run folder holds, with the completed requests' latencies from the moment of
    sending.
    """

    requests: Requests  # the record
    # offsets_ns, lengths: moments of all tokens after ``sent_ns``, and how many belong to each
    # request
    offsets_ns: NDArray[np.int64]
    lengths: NDArray[np.int64]
    run: dict[str, Any]  # ``run.json``
    scenario: dict[str, Any]  # ``scenario.yaml``

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The completed requests with at least one token."""
        import numpy as np

        return np.flatnonzero((self.requests.status == COMPLETED) & (self.lengths > 0))

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each request's tokens begin in ``offsets_ns``."""
        import numpy as np

        return np.concatenate([[0], np.cumsum(self.lengths)[:-1]]).astype(np.int64)

    def tokens(self, row: int) -> NDArray[np.int64]:
        """The moments of one request's tokens after it was sent, in nanoseconds."""
        start = self.starts[row]
        return self.offsets_ns[start : start + self.lengths[row]]

    def event_gaps_ms(self, row: int) -> NDArray[np.float64]:
        """The gaps between the events of one request, in milliseconds."""
        import numpy as np

        moments = np.unique(self.tokens(row)).astype(np.float64)
        return np.asarray(np.diff(moments) / 1e6, dtype=np.float64)

    @property
    def ttft_ms(self) -> NDArray[np.float64]:
        """First token − sent, by completed request."""
        ttft: NDArray[np.float64] = self.offsets_ns[self.starts[self.rows]] / 1e6
        return ttft

    @property
    def latency_ms(self) -> NDArray[np.float64]:
        """Last token − sent, by completed request."""
        latency: NDArray[np.float64] = (
            self.offsets_ns[(self.starts + self.lengths - 1)[self.rows]] / 1e6
        )
        return latency

    @property
    def osl(self) -> NDArray[np.int64]:
        """Output tokens by completed request."""
        return self.lengths[self.rows]

    @property
    def isl(self) -> NDArray[np.int64]:
        """Prompt tokens by completed request."""
        return self.requests.isl[self.rows]

    @property
    def decode_ms(self) -> NDArray[np.float64]:
        """(Latency − TTFT) / (tokens − 1) by completed request of two tokens or more."""
        several = self.osl > 1
        decode: NDArray[np.float64] = (self.latency_ms - self.ttft_ms)[several] / (
            self.osl[several] - 1
        )
        return decode

    @property
    def seconds(self) -> float:
        """From the first sending to the last token of all."""
        rows = self.rows
        if not rows.size:
            return float("nan")
        return (
            float(
                self.requests.last_token_ns[rows].max()
                - self.requests.sent_ns[self.requests.sent_ns >= 0].min()
            )
            / 1e9
        )

    @property
    def started_unix_ns(self) -> int:
        """When the run began, by the wall clock."""
        return int(self.run["load"]["started_unix_ns"])

    @property
    def failed(self) -> int:
        """Requests that did not complete."""
        return int((self.requests.status != COMPLETED).sum())


def read_finished(directory: Path) -> FinishedRun:
    """Read a measured run folder.

    Raises InputError: not a run folder, or one without the moments of single tokens; DataError: one
    of its files is damaged.
    """
    run_record = read_run(directory)
    offsets, lengths = read_tokens(directory)
    run = checked(directory / "run.json", read_mapping, "measure again")
    return FinishedRun(
        requests=run_record.requests,
        offsets_ns=offsets,
        lengths=lengths,
        run=run,
        scenario=run_record.scenario,
    )


def statistics(values: NDArray[Any], unit: str, *, counted: bool = False) -> dict[str, Any]:
    """One metric as GenAI-Perf and AIPerf write it: unit, avg, percentiles, min, max, std; AIPerf
    counts and sums, too.
    """
    import numpy as np

    if not values.size:
        return {"unit": unit}
    figures: dict[str, Any] = {"unit": unit, "avg": float(values.mean())}
    figures |= {
        f"p{p}": float(v)
        for p, v in zip(PERCENTILES, np.percentile(values, PERCENTILES), strict=True)
    }
    figures |= {"min": float(values.min()), "max": float(values.max()), "std": float(values.std())}
    return (
        {**figures, "count": int(values.size), "sum": float(values.sum())} if counted else figures
    )
