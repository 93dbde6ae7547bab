"""What the files say of the plan in their comments and pages."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tonnage.deploy.service import Service
from tonnage.plan.candidate import Candidate
from tonnage.plan.pool import Pool

WIDTH = 130


def choice_line(service: Service) -> str:
    """What is deployed, in a line."""
    return _line(service.choice)


def instances_words(pools: Sequence[Pool], noun: str = "instance") -> str:
    """Such as "8 instances", or "3 prefill and 5 decode instances"."""
    if len(pools) == 1:
        return f"1 {noun}" if pools[0].instances == 1 else f"{pools[0].instances} {noun}s"
    return f"{' and '.join(f'{pool.instances} {pool.role}' for pool in pools)} {noun}s"


def _line(choice: Candidate) -> str:
    pool = choice.pools[0]
    names = {"PP": pool.pp, "DP": pool.dp, "EP": pool.ep}
    split = ", ".join([f"TP {pool.tp}", *(f"{name} {value}" for name, value in names.items() if value > 1)])
    where = f"{pool.engine} on {pool.gpu}, {choice.systems} × {pool.system}"
    return f"{instances_words(choice.pools)} of {pool.model} in {pool.precision}, {split}, {where}"


def instead_line(service: Service) -> str:
    """The reason why this is not the plan's choice, and the difference in systems; empty if it is the choice."""
    if service.instead is None:
        return ""
    choice, pool = service.instead.choice, service.pool
    told = (
        f"These files do not deploy the plan's choice ({_line(choice)}): {service.instead.why}. They deploy "
        f"the nearest other deployment of the plan: {_line(service.choice)}. It needs {_against(pool.systems, choice.systems)}."
    )
    if not service.choice.checked:
        again = f"`--gpu {pool.gpu} --engine {pool.engine_preset}`"
        told += (
            f" The number of systems is an estimate, because only the choice's fleet was simulated; to check it, size again with {again}."
        )
    return told


def _against(systems: int, chosen: int) -> str:
    """The number of systems, compared with the choice."""
    more = systems - chosen
    than = f"{abs(more)} {'more' if more > 0 else 'fewer'} than" if more else "as many as"
    return f"{systems} system{'' if systems == 1 else 's'}, {than} the choice"


def paragraph(text: str) -> str:
    """A paragraph of a page, wrapped."""
    return textwrap.fill(text, WIDTH, break_on_hyphens=False, break_long_words=False)


def summary(service: Service) -> str:
    """The first paragraphs of every page: deployment, limits, capacity and checkpoint."""
    told = [f"{choice_line(service)}.", f"Limits: {limits_line(service)}.", carries_line(service)]
    instead = instead_line(service)
    made = ["", *(f"    {line}" for line in service.loading.make)] if service.loading.make else []
    return "\n".join([*told, *(["", paragraph(instead)] if instead else []), "", paragraph(service.loading.told), *made])


def gpu_words(service: Service) -> str:
    """Such as "8 GPUs"."""
    return "1 GPU" if service.gpus == 1 else f"{service.gpus} GPUs"


def carries_line(service: Service) -> str:
    """What it carries, in a line."""
    choice = service.choice
    one = "One instance" if len(choice.pools) == 1 else "One instance of either pool, on average,"
    in_flight = f", {choice.concurrency_per_instance:,.0f} requests in flight" if choice.concurrency_per_instance else ""
    return (
        f"{one} carries {choice.requests_per_second_per_instance:.4g} requests/s inside the limits{in_flight}; the plan counts on "
        f"{choice.sized_rate:.4g}, all instances together on {service.capacity:.4g}. The peak is "
        f"{service.plan.demand.sizing_requests_per_second:.4g}."
    )


def limits_line(service: Service) -> str:
    """The limits, in a line."""
    limits = service.plan.scenario.limits_that_count
    return (
        "; ".join(str(one) if one.share else f"{one.metric.upper()} {one.statistic} ≤ {one.milliseconds:,g} ms" for one in limits) or "none"
    )


def head(service: Service) -> str:
    """The comment at the beginning of a target's first file."""
    made = service.plan.provenance
    written = f"Written by tonnage {made.tonnage} deploy from a plan" + (f" of {made.date}" if made.date else "") + "."
    lines = [written, f"{choice_line(service)}.", instead_line(service), f"Limits: {limits_line(service)}.", carries_line(service)]
    return "\n".join(line for line in lines if line)


def startup_line(service: Service) -> str:
    """How long a start may take, and why."""
    return (
        f"{service.startup_seconds} s to start: {service.checkpoint_bytes / 1e9:,.0f} GB of weights fetched at 200 MB/s and read at "
        "1 GB/s, and 180 s for the engine. These are allowances; measure your own."
    )


def argv_notes(service: Service) -> str:
    """Where the engine's arguments come from."""
    knobs, scenario = service.pool.knobs, service.plan.scenario
    lines = [
        f"As it was simulated: prompts of {scenario.mean_isl:,.0f} tokens and outputs of {scenario.mean_osl:,.0f} on the mean. "
        "A request that is longer than the context below is refused."
    ]
    if knobs is not None:
        lines.append(
            f"{knobs.max_batch_size:,} requests at once and {knobs.max_num_tokens:,} tokens a step are the knobs that the plan found best."
        )
    return "\n".join(lines)


def least_line(service: Service) -> str:
    """Why so many instances stay."""
    if service.scaling is not None:
        return "So many instances stay by the plan's rule" + (f", {service.scaling.warm} of them warm." if service.scaling.warm else ".")
    mean = service.plan.demand.mean_requests_per_second
    what = f"the mean load of {mean:.4g} requests/s" if mean else "the peak, since the plan knows no mean"
    return f"So many instances carry {what}."
