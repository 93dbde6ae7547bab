"""Understands what is asked of two pools: their numbers and the link between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError, option
from tonnage.units import parse_bytes

if TYPE_CHECKING:
    from tonnage.simulator.disaggregated import Disaggregated
    from tonnage.sizing.question import Pools
    from tonnage.spec.deployment import Deployment
    from tonnage.spec.scenario import ScalingAsked, Scenario, SearchAsked, StandbyAsked

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


def sized_pools(scenario: Scenario, *, mode: str, shares: bool) -> Pools | None:
    """How two pools are to be sized; None where none are asked for.

    Args:
        scenario: the question as it was written.
        mode: who waits for what.
        shares: whether prompts share something.

    Raises:
        InputError: a link that cannot be, or what is not sized in two pools.
    """
    from tonnage.simulator.pools import COUNTING
    from tonnage.sizing.question import Pools

    asked = scenario.search
    if not asked.disaggregated:
        return None
    away = f"drop {option('disaggregated')}, or"
    counting = f"choose from {', '.join(COUNTING)}"
    refused = (
        (mode == "offline", f"a job is not sized in two pools; {away} ask for a peak with latency limits"),
        (asked.load == "closed", f"a closed loop is not sized in two pools; {away} write {option('load')} open"),
        (scenario.demand.trace is not None, f"recorded arrivals are not sized in two pools; {away} describe them by {option('peak_rps')}"),
        (shares, f"prompts that share something are not sized in two pools; {away} leave out what they share"),
        (asked.speculation is not None, f"speculative decoding is not sized in two pools; {away} drop {option('speculation')}"),
        (scenario.benchmarks is not None, f"benchmarks measure instances that do both; {away} drop {option('benchmarks')}"),
        (asked.router not in (None, *COUNTING), f"a router of two pools counts requests; {option('router')}: {counting}"),
        (_any(scenario.standby), f"what stands by for failures is not sized in two pools; {away} add systems with {option('spare')}"),
        (_any(scenario.scaling), f"two pools are not scaled over hours; {away} drop {option('autoscale')}"),
    )
    said = next((why for found, why in refused if found), None)
    if said is not None:
        raise InputError(f"{option('disaggregated')}: {said}")
    return Pools(link_bytes_s=link_asked(asked.kv_link), overlap=bool(asked.kv_overlap))


def _any(part: StandbyAsked | ScalingAsked) -> bool:
    """Whether anything is said there."""
    return any(getattr(part, one.name) is not None for one in fields(part))


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
