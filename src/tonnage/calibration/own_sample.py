"""Terms of their own that explain eight or more loads of one deployment: the same least squares, from starts that the loads suggest.

What moves is the logarithm of a term over its start. The prior is wide, a factor of three to four either way: it holds only what the
loads cannot tell, such as how much of a step's constant part is weights and how much the host. Starts come from the lightest and the
heaviest load, so that the simulations, around which the rows are linear, begin near the measured machine. The turnaround is not
searched: it is small, and only keeps clients whose requests end together from sending the next ones at the same instant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.calibration.residuals import Terms, column
from tonnage.calibration.sample import Sample
from tonnage.perf.formats import matrix_rate
from tonnage.perf.own_terms import with_own_terms
from tonnage.spec.calibration import OWN_TERMS
from tonnage.validation.point import read_point

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

FEWEST_LOADS = 8
"""The number of different loads below which terms of their own are not fitted: there are eight of them."""

WIDTHS = {"attention": 0.7, "kv_bandwidth": 0.7}
WIDTH = 1.3
"""The prior's width of the logarithm of each term; attention is held nearer to the other shares of the datasheet."""

LEAST_SHARE, MOST_SHARE = 1e-5, 0.9
"""Between which a share of the datasheet's rates starts."""

CONSTANT, WEIGHTS, PROMPT, SEQUENCE, ONCE, TURNAROUND = 0.6, 0.3, 0.7, 0.5, 0.1, 0.02
"""Parts of the lightest load at which terms start: of a token the host and the weights; of the first token the prompt's
arithmetic; of what a further client adds to a token the host's part; of the first token the front end, the rest of a prefill, and the
turnaround."""


class OwnSample(Sample):
    """Measured rows of one engine preset on one GPU, explained by terms of their own."""

    def __init__(self, rows: Sequence[dict[str, Any]], terms: Terms, *, preset: str, gpu: str) -> None:
        """Look up the rows and find where the terms start.

        Args:
            rows: what was measured under load, of one GPU and preset; TTFT and TPOT are needed.
            terms: the groups of ``terms.json``.
            preset, gpu: the engine preset and the GPU of all rows.
        """
        super().__init__(rows, terms, preset=preset, gpu=gpu, widths={})
        self.start = starts(self.rows)
        absent = {"turnaround_s"} if any(row["tp"] > 1 for row in self.rows) else {"turnaround_s", "allreduce_s"}
        self.names = tuple(name for name in OWN_TERMS if name not in absent)
        self.widths = np.array([WIDTHS.get(name, WIDTH) for name in self.names])

    def values(self, x: Floats) -> dict[str, float]:
        """The terms of a vector, rounded to four digits as a file holds them."""
        return {name: float(f"{value:.4g}") for name, value in self._all(x).items()}

    def vector(self, values: Mapping[str, float]) -> Floats:
        """The vector of some terms."""
        return np.log([values[name] / self.start[name] for name in self.names])

    def at(self, x: Floats) -> Terms:
        """The groups of ``terms.json`` with the terms of a vector."""
        return with_own_terms(self.terms, self._all(x), self.preset)

    def shipped_errors(self, keep: NDArray[np.bool_]) -> dict[str, Floats]:
        """The errors of the kept rows with what would be transferred to this hardware."""
        return self.errors_with(self.terms, keep)

    def _all(self, x: Floats) -> dict[str, float]:
        """The terms of a vector, with the turnaround, which is not searched."""
        found = {name: self.start[name] * factor for name, factor in zip(self.names, np.exp(x).tolist(), strict=True)}
        return {**found, "turnaround_s": self.start["turnaround_s"]}


def starts(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Where the terms start: parts of what the lightest and the heaviest load took."""
    ttft, tpot, isl = (column([dict(row) for row in rows], name) for name in ("ttft_ms", "itl_ms", "isl"))
    load = np.array([float(row.get("concurrency") or (row.get("request_rate") or 0.0) * (row.get("e2e_ms") or 0.0) / 1e3) for row in rows])
    known = np.flatnonzero(np.isfinite(ttft) & np.isfinite(tpot))
    light, heavy = known[np.argmin(load[known])], known[np.argmax(load[known])]
    token, first = tpot[light] / 1e3, ttft[light] / 1e3
    more = (tpot[heavy] - tpot[light]) / 1e3 / max(load[heavy] - load[light], 1.0)
    d = read_point(rows[int(light)]).deployment
    precision, tp = d.gpu.executes(d.precision), d.parallelism.tp
    prompt = 2 * d.model.common_parameters * isl[light] / (tp * matrix_rate(d.gpu, precision))
    weights = d.model.common_parameters * precision.weight_bytes / (tp * d.gpu.memory_bandwidth_gb_s * 1e9)
    compute, memory = (float(np.clip(share, LEAST_SHARE, MOST_SHARE)) for share in (prompt / (PROMPT * first), weights / (WEIGHTS * token)))
    return {
        "compute": compute,
        "memory": memory,
        "attention": compute,
        "kv_bandwidth": memory,
        "allreduce_s": ONCE * token / max(d.model.layers, 1),
        "step_s": CONSTANT * token,
        "sequence_s": SEQUENCE * max(more, token / 1e3),
        "prefill_s": ONCE * first,
        "frontend_s": ONCE * first,
        "turnaround_s": TURNAROUND * first,
    }
