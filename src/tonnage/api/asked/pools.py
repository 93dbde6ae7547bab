"""Understands what is asked of two pools: their numbers and the link between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError, option
from tonnage.units import parse_bytes

if TYPE_CHECKING:
    from tonnage.simulator.disaggregated import Disaggregated
    from tonnage.spec.deployment import Deployment
    from tonnage.spec.scenario import SearchAsked

MOST = 1_000


def pools_of(own: Mapping[str, Any], search: SearchAsked, deployment: Deployment) -> Disaggregated | None:
    """The two pools that are asked for, both of the one deployment; None where none are.

    Raises:
        InputError: numbers or a link that cannot be, or what pools do not go with.
    """
    from tonnage.simulator.disaggregated import Disaggregated

    asked = search.disaggregated
    if asked is None or asked is False:
        for name in ("kv_link", "kv_overlap"):
            if getattr(search, name) is not None:
                raise InputError(f"{option(name)}: is of two pools; add {option('disaggregated')} 1:2")
        return None
    if own.get("instances", 1) != 1 or own.get("window") is not None or deployment.knobs.scheduler == "static":
        raise InputError(f"{option('disaggregated')}: goes with in-flight batching, without {option('instances')} or {option('window')}")
    prefill, decode = _numbers(asked)
    return Disaggregated(
        prefill=deployment if deployment.speculation is None else replace(deployment, speculation=None),
        decode=deployment,
        prefill_instances=prefill,
        decode_instances=decode,
        link_bytes_s=link_asked(search.kv_link),
        overlap=bool(search.kv_overlap),
    )


def _numbers(asked: object) -> tuple[int, int]:
    parts = str(asked).split(":")
    if len(parts) != 2 or not all(part.isdecimal() and 1 <= int(part) <= MOST for part in parts):
        raise InputError(f"{option('disaggregated')}: '{asked}' is not two numbers of instances; write prefill:decode, such as 1:2")
    return int(parts[0]), int(parts[1])


def link_asked(asked: object) -> float | None:
    """Bytes per second that a GPU sends to the other pool, such as "50GB/s"; None where nothing is said.

    Raises:
        InputError: no such number.
    """
    if asked is None:
        return None
    found = parse_bytes(str(asked).strip().removesuffix("/s"), option("kv_link"))
    if found <= 0:
        raise InputError(f"{option('kv_link')}: '{asked}' is not possible; write bytes per second and GPU above 0, such as 50GB/s")
    return float(found)
