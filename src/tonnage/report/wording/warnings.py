"""Rules of thumb that an answer runs against, one clause each."""

from __future__ import annotations

from typing import assert_never

from tonnage.plan import warning as warnings
from tonnage.report.wording.limits import limit_text


def warning_text(warning: warnings.Warning) -> str:
    """One warning with its numbers."""
    match warning:
        case warnings.PcieForLargeModel():
            return (
                f"{warning.model} has {warning.parameters / 1e9:.0f} billion parameters and {warning.gpu} joins its GPUs by PCIe: "
                f"all-reduces take {warning.value:.0%} of a decode step; above 13 billion prefer NVLink"
            )
        case warnings.WideOverPcie():
            share = f"all-reduces take {warning.value:.0%} of a decode step"
            return f"TP {warning.tp} over PCIe on {warning.gpu}: {share}; the course advises TP 2 at most"
        case warnings.InputTokensCheaper():
            return (
                f"an output token takes {warning.value:.1f} times the engine time of an input token "
                f"({1e6 * warning.output_token_s:.0f} and {1e6 * warning.input_token_s:.0f} µs at {warning.requests} "
                f"request{'' if warning.requests == 1 else 's'} at once)"
            )
        case warnings.LimitHalvesThroughput():
            return (
                f"{limit_text(warning.limit)} holds an instance to {warning.requests_per_second:.3g} requests/s; without it, it carries "
                f"{warning.requests_per_second_without:.3g}, {warning.value:.1f} times as many"
            )
        case warnings.BurstyTrace():
            return (
                f"the trace's gaps have a coefficient of variation of {warning.value:.3g}: a Poisson peak of its mean, "
                f"{warning.poisson_peak:g} requests in a second, is too low where {warning.peak_second} came"
            )
        case warnings.SmallerModel():
            return (
                f"{warning.other}, with {warning.other_parameters / 1e9:.3g} billion parameters to {warning.parameters / 1e9:.3g}, "
                f"publishes {warning.other_score:g} in {warning.benchmark} ({warning.setting}) to the {warning.score:g} of "
                f"{warning.model}: see whether it does"
            )
        case _:
            assert_never(warning)


UNITS = {
    "nvlink": "share of a decode step",
    "tp-over-pcie": "share of a decode step",
    "input-tokens-cheaper": "output token over input token",
    "limit-halves-throughput": "requests/s without the limit over with it",
    "bursty": "coefficient of variation",
    "smaller-model": "parameters over those of the smaller model",
}
"""What the ``value`` of each warning is."""
