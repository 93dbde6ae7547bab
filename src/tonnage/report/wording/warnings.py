"""Rules of thumb that an answer runs against, one clause each."""

from __future__ import annotations

from typing import assert_never

from tonnage.plan import warning as warnings
from tonnage.report.numbers import number, percent, plain, whole
from tonnage.report.wording.limits import limit_text


def warning_text(warning: warnings.Warning) -> str:
    """One warning with its numbers."""
    match warning:
        case warnings.PcieForLargeModel():
            return (
                f"{warning.model} has {whole(warning.parameters / 1e9)} billion parameters and {warning.gpu} joins its GPUs by PCIe: "
                f"all-reduces take {percent(warning.value)} of a decode step; above 13 billion prefer NVLink"
            )
        case warnings.WideOverPcie():
            share = f"all-reduces take {percent(warning.value)} of a decode step"
            return f"TP {warning.tp} over PCIe on {warning.gpu}: {share}; the course advises TP 2 at most"
        case warnings.LengthToShorten():
            one, other = ("prompts", "answers") if warning.which == "isl" else ("answers", "prompts")
            share = f"{abs(100 * warning.change):.0f} % shorter"
            return (
                f"shorten {one} first: {share} they save {number(warning.saved)} systems before rounding, {other} "
                f"{number(warning.other_saved)}"
            )
        case warnings.LimitHalvesThroughput():
            return (
                f"{limit_text(warning.limit)} holds an instance to {number(warning.requests_per_second)} requests/s; without it, "
                f"it carries {number(warning.requests_per_second_without)}, {warning.value:.1f} times as many"
            )
        case warnings.BurstyTrace():
            return (
                f"the trace's gaps have a coefficient of variation of {number(warning.value)}: a Poisson peak of its mean, "
                f"{plain(warning.poisson_peak)} requests in a second, is too low where {warning.peak_second} came"
            )
        case warnings.SmallerModel():
            return (
                f"{warning.other}, with {number(warning.other_parameters / 1e9)} billion parameters to {number(warning.parameters / 1e9)}, "
                f"publishes {plain(warning.other_score)} in {warning.benchmark} ({warning.setting}) to the {plain(warning.score)} of "
                f"{warning.model}: see whether it does"
            )
        case _:
            assert_never(warning)


UNITS = {
    "nvlink": "share of a decode step",
    "tp-over-pcie": "share of a decode step",
    "length-to-shorten": "systems saved over those that the other length saves",
    "limit-halves-throughput": "requests/s without the limit over with it",
    "bursty": "coefficient of variation",
    "smaller-model": "parameters over those of the smaller model",
}
"""What the ``value`` of each warning is."""
