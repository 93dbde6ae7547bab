"""Deployments in words: what they are called, how requests reach them, where their memory goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.numbers import number, plain, whole
from tonnage.units import format_gb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tonnage.plan.identity import Identity
    from tonnage.plan.load import Load
    from tonnage.plan.memory import MemoryPart

MEMORY = {
    "weights": "weights",
    "drafter": "drafter",
    "activations": "activations",
    "reserve": "context, communication and graphs",
    "kv_cache": "KV cache",
    "unused": "unused",
}
"""What the memory of a GPU is used for."""


def deployment_text(deployment: Identity) -> str:
    """Such as "h100-sxm-80gb fp8 TP 4 tensorrt-llm"."""
    return f"{deployment.gpu} {deployment.precision} {deployment.parallelism} {deployment.engine}"


def load_text(load: Load) -> str:
    """How requests reach an instance, such as "open loop, Poisson arrivals at 15.9 requests/s"."""
    if load.measured:
        return f"{_measured(load)}, measured"
    if load.kind == "queued":
        return "all requests queued from the start"
    if load.kind == "trace":
        return f"its share of the trace, {number(load.requests_per_second)} requests/s on average"
    if load.kind == "closed":
        return f"closed loop of {whole(load.clients)} clients"
    process = "Poisson" if load.process == "poisson" else f"{load.process}"
    varied = "" if load.cv is None else f" (CV {plain(load.cv)})"
    return f"open loop, {process}{varied} arrivals at {number(load.requests_per_second)} requests/s"


def measured_load_text(load: Load) -> str:
    """The load of a measured point, such as "closed loop of 10 clients"."""
    return _measured(load)


def _measured(load: Load) -> str:
    if load.clients is None:
        return f"open loop at {plain(load.requests_per_second)} requests/s"
    return f"closed loop of {whole(load.clients)} client{'s' if load.clients > 1 else ''}"


def calibration_text(calibration: str) -> str:
    """How long a calibration takes: published minutes are those of no named model."""
    return f"{calibration}, longer for larger models" if "minutes" in calibration else calibration


def memory_text(parts: Sequence[MemoryPart], kv_tokens: int | None) -> str:
    """Where the memory of one GPU goes, in one line; "" where it is not known."""
    if not parts:
        return ""
    sizes = {part.part: part.bytes_per_gpu for part in parts}
    drafter = f"{format_gb(sizes['drafter'])} drafter + " if "drafter" in sizes else ""
    held = "" if kv_tokens is None else f" ({kv_tokens:,} tokens)"
    return (
        f"{format_gb(sizes['weights'])} weights + {drafter}{format_gb(sizes['activations'] + sizes['reserve'])} activations and reserve + "
        f"{format_gb(sizes['kv_cache'])} KV cache per GPU{held}"
    )
