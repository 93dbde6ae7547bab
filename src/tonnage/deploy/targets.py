"""The deployment targets, and the choice of one of the plan's deployments for each target."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from tonnage.deploy import (
    compose,
    dynamo,
    kserve,
    kubernetes,
    llm_d,
    nim,
    production_stack,
    ray_serve,
    triton,
)
from tonnage.deploy.plan_text import choice_line
from tonnage.deploy.service import Seat, Service, around, dns_label, obstacle, service_of
from tonnage.deploy.yaml_comments import yaml_text
from tonnage.errors import InputError, option
from tonnage.plan.candidate import Candidate
from tonnage.plan.launch import priority_words
from tonnage.plan.plan import Plan
from tonnage.plan.use_cases import Arrangement, Background, CaseAtPeak, UseCasePool, UseCases
from tonnage.results.metrics import Latencies
from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.precision import find_precision
from tonnage.spec.targets import TARGETS as RUNS
from tonnage.spec.targets import target_lacks, target_runs

TARGETS: dict[str, Callable[[Service], dict[str, str]]] = {
    "compose": compose.files,
    "kubernetes": kubernetes.files,
    "kserve": kserve.files,
    "llm-d": llm_d.files,
    "dynamo": dynamo.files,
    "production-stack": production_stack.files,
    "ray-serve": ray_serve.files,
    "nim": nim.files,
    "triton": triton.files,
}
"""Writes the text of each file, by its name; ``spec.targets`` says what a target runs."""

PREPARED = {
    "nim": nim.prepared,
    "production-stack": production_stack.prepared,
    "triton": triton.prepared,
}
"""Where a target has other checkpoints or metrics than its engines."""

REHEARSED = ("compose", "kubernetes", "kserve", "llm-d", "nim")
"""Targets that run an engine as an image with a command, in place of which they run the simulated
engine as well."""


class NothingRuns(InputError):
    """The target runs none of a plan's deployments; the same question may have another answer
    there.
    """


def target_files(service: Service, target: str) -> dict[str, str]:
    """The files of a deployment for a target that runs it."""
    return TARGETS[target](service)


def deployed(
    plan: Plan,
    target: str,
    *,
    checkpoint: str | None = None,
    drafter: str | None = None,
    simulated: bool = False,
) -> Service:
    """The deployment that a target runs: the plan's choice, or the nearest other deployment of the
    plan.

    Nearest means, in this order: the same GPU, the same number format, the first in the plan. With
    ``checkpoint``, only deployments in the choice's number format count, because the checkpoint is
    in that format. With ``simulated`` the simulated engine runs in its place. Raises InputError:
    unknown target, one that runs no simulated engine, or a plan without a choice; NothingRuns: no
    deployment of the plan runs on the target.
    """
    target_runs(target)
    choice = plan.choice
    if choice is None:
        return service_of(plan)
    if simulated and (target not in REHEARSED or len(choice.pools) > 1):
        what = "two pools" if len(choice.pools) > 1 else target
        raise InputError(
            f"{option('simulated')}: no simulated engine is written for {what}; it runs plans of"
            f" one pool on {', '.join(REHEARSED)}"
        )
    why = _why_not(target, choice)
    if not why:
        return _loaded(
            target, service_of(plan, checkpoint=checkpoint, drafter=drafter, simulated=simulated)
        )
    first = choice.pools[0]

    candidates = [
        candidate
        for candidate in plan.candidates
        if not _why_not(target, candidate)
        and (checkpoint is None or _same_format(candidate, choice))
    ]
    if not candidates:
        able = (
            [f"{option('target')} {name}" for name in RUNS if not _why_not(name, choice)]
            if len(choice.pools) > 1
            else []
        )
        instead = (
            f"; write {' or '.join(able)}"
            if able
            else f", and no other deployment of the plan runs on {target}"
        )
        raise NothingRuns(f"{option('target')}: {why}{instead}")
    nearest = min(
        candidates,
        key=lambda candidate: (
            candidate.pools[0].gpu != first.gpu,
            not _same_format(candidate, choice),
        ),
    )
    service = service_of(
        plan,
        checkpoint=checkpoint,
        drafter=drafter,
        candidate=nearest,
        why=why,
        simulated=simulated,
    )
    return _loaded(target, service)


def _loaded(target: str, service: Service) -> Service:
    return PREPARED[target](service) if target in PREPARED else service


def _same_format(first: Candidate, second: Candidate) -> bool:
    return (
        find_precision(first.pools[0].precision).weights
        == find_precision(second.pools[0].precision).weights
    )


def _why_not(target: str, candidate: Candidate) -> str:
    """The reason why a target cannot run a deployment, as a clause; empty if it can."""
    if len(candidate.pools) > 1 and not RUNS[target].pools:
        return f"{target} does not run two pools, prefill and decode"
    pool = candidate.pools[0]
    engine, gpu = find_engine(pool.engine_preset or pool.engine), find_gpu(pool.gpu)
    return obstacle(candidate) or target_lacks(
        target,
        engine=engine,
        gpu=gpu,
        split=pool.parallelism,
        gpus_per_system=pool.gpus_per_system,
        precision=pool.precision,
    )


# Several use cases side by side in one namespace: a folder for each, and what applies them
# together.

# Targets whose objects kubectl applies into a namespace
TOGETHER = ("kubernetes", "kserve", "llm-d", "dynamo", "production-stack", "nim")


def deployed_together(cases: UseCases, target: str, **given: Any) -> dict[str, Service]:
    """A deployment for each use case, by the name of its folder; ``given`` is as for ``deployed``.

    Raises InputError: a target without namespaces or that runs no deployment of one of the plans,
    use cases that share a pool or have none, or two whose names are alike.
    """
    alone = f"size each scenario alone with {option('output')}, and deploy each plan"
    if target not in (*TOGETHER, "compose"):
        target_runs(target)
        raise InputError(
            f"{option('target')}: {target} does not keep several use cases apart; write compose or"
            f" {' or '.join(TOGETHER)}, or {alone}"
        )
    if cases.separate is None or cases.chosen != "separate":
        why = (
            "share one pool, whose limits no rule could tell apart"
            if cases.chosen
            else "have no deployment inside their limits"
        )
        raise InputError(f"{option('plan')}: its use cases {why}; {alone}")
    services = {}
    for name, plan, pool in zip(cases.names, cases.plans, cases.separate.pools, strict=True):
        try:
            service = deployed(_with_instances(plan, pool), target, **given)
        except NothingRuns as refused:
            raise InputError(f"{refused.marked} (use case {name}); {alone}") from None
        services[dns_label(name)] = replace(service, case=name)
    begun = sorted(f"{service.name}-" for service in services.values())
    if len(services) < len(cases.names) or any(
        after.startswith(before) for before, after in pairwise(begun)
    ):
        raise InputError(
            f"{option('plan')}: the use cases {', '.join(cases.names)} get names that are alike;"
            " give them other titles"
        )
    return _seated(services, cases.separate) if target == "compose" else services


def _seated(services: Mapping[str, Service], arrangement: Arrangement) -> dict[str, Service]:
    """Each service with the machine and the GPUs of its instances, the widest first on each
    machine. Raises InputError: a plan of before 2026-11-28, systems of several machines, or a
    deployment that Compose does not run.
    """
    replaced = next((service for service in services.values() if service.instead_of), None)
    if replaced is not None:
        raise InputError(
            f"{option('target')}: {replaced.why} (use case {replaced.case}); size again with"
            f" {option('deploy_on')} compose"
        )
    racks = [
        service.pool.system
        for service in services.values()
        if service.machine_gpus != service.pool.gpus_per_system
    ]
    if racks or not arrangement.placement:
        why = f"{racks[0]} is several machines" if racks else "the plan places no instances"
        raise InputError(
            f"{option('target')}: compose places instances on machines, and {why}; write"
            f" {option('target')} kubernetes, or size again"
        )
    widths = [service.gpus for service in services.values()]
    seats: list[list[Seat]] = [[] for _ in services]
    machine = 0
    for part in arrangement.placement:
        for _ in range(part.systems):
            machine, gpu = machine + 1, 0
            for place in sorted(range(len(widths)), key=lambda place: -widths[place]):
                for _ in range(part.instances[place]):
                    seats[place].append(Seat(machine=machine, gpu=gpu))
                    gpu += widths[place]
    return {
        folder: replace(
            service,
            seats=tuple(seats[place][: service.pool.instances]),
            beside=place,
        )
        for place, (folder, service) in enumerate(services.items())
    }


def deployed_by_priority(cases: UseCases, target: str, **given: Any) -> Service:
    """The one pool of use cases that share it by priority; ``given`` is as for ``deployed``.

    Raises InputError: as ``deployed``, or a plan that no longer has the pool's deployment.
    """
    (pool,) = cases.shared.pools if cases.shared is not None else ()
    planned = next(
        (
            (plan, candidate)
            for _, plan in sorted(zip(cases.priorities or (), cases.plans, strict=True), key=_first)
            for candidate in plan.candidates
            if candidate.identity == pool.identity
        ),
        None,
    )
    if planned is None:
        raise InputError(f"{option('plan')}: holds no deployment of its shared pool; size again")
    plan, candidate = planned
    rate = math.fsum(case.requests_per_second for case in pool.cases)
    words = priority_words(find_engine(pool.engine_preset or pool.engine).launch)
    shared = replace(
        candidate.pool,
        instances=pool.instances,
        systems=math.ceil(pool.gpus / pool.gpus_per_system),
        knobs=pool.knobs,
        launch=(*candidate.pool.launch, *words),
    )
    demand = replace(
        plan.demand,
        peak_requests_per_second=rate,
        sizing_requests_per_second=rate,
        mean_requests_per_second=None,
        profile=None,
    )
    in_flight = math.fsum(
        case.requests_per_second * (case.e2e_ms.mean or 0.0) / 1e3 for case in pool.cases
    )
    slowest = max(pool.cases, key=lambda case: case.e2e_ms.p99 or 0.0)
    served = replace(
        candidate,
        pools=(shared,),
        requests_per_second_per_instance=rate / pool.instances,
        sized_requests_per_second_per_instance=None,
        concurrency_per_instance=in_flight / pool.instances,
        e2e_ms=slowest.e2e_ms,
        at_peak=None,
    )
    plan = replace(
        plan,
        demand=demand,
        scenario=replace(plan.scenario, limits=(), limits_that_count=()),
        candidates=tuple(further for further in plan.candidates if further is not candidate),
    )
    service = deployed(around(plan, served), target, **given)
    if service.instead_of is not None:
        raise InputError(
            f"{option('target')}: {service.why}; size the classes again with"
            f" {option('deploy_on')} {target}"
        )
    by_name = dict(zip(cases.names, cases.priorities or (), strict=True))
    served_cases = [*pool.cases, *map(_in_background, filter(None, [cases.background]))]
    ordered = sorted(
        ((case, by_name[case.name]) for case in served_cases), key=lambda pair: pair[1]
    )
    return replace(service, by_priority=tuple(ordered))


def _in_background(job: Background) -> CaseAtPeak:
    """A job in the background as a use case without limits, evenly over its time."""
    rate = job.requests / job.within_seconds
    nothing = Latencies()
    return CaseAtPeak(
        name=job.name,
        requests_per_second=rate,
        limits=(),
        ttft_ms=nothing,
        tpot_ms=nothing,
        e2e_ms=nothing,
    )


def _first(pair: tuple[int, Plan]) -> int:
    return pair[0]


def _with_instances(plan: Plan, pool: UseCasePool) -> Plan:
    """The plan of a use case with as many instances as its pool has on the systems of all."""
    choice = plan.choice if pool.alone is None else pool.alone
    if choice is None or (choice == plan.choice and choice.instances == pool.instances):
        return plan
    there = replace(
        choice.pool,
        instances=pool.instances,
        system=pool.system,
        gpus_per_system=pool.gpus_per_system,
        systems=math.ceil(pool.gpus / pool.gpus_per_system),
    )
    fewer = replace(choice, pools=(there,))
    return around(
        replace(
            plan,
            candidates=tuple(candidate for candidate in plan.candidates if candidate is not choice),
        ),
        fewer,
    )


APPLY = """\
The names of all objects begin with their use case, so that they share a namespace.

```sh
kubectl apply --kustomize .
```

The page in each folder says what the cluster needs, what else starts it, and how to test it, one after another."""  # noqa: E501

ROOM = """\
The scheduler of Kubernetes spreads pods over nodes, so narrow instances can take GPUs of every node and leave no room for a wide one.
Start the wide ones first, in the order of the table, or give the scheduler the scoring strategy `MostAllocated` for the GPUs."""  # noqa: E501

MACHINES = """\
Replace `machine-1` and so on by the addresses of the machines, and start each folder as its page says. Machines are shared: their files
in different folders name different GPUs and ports. Each use case has a router, Prometheus, Grafana and exporters on separate ports; the
page in its folder names them."""  # noqa: E501


def together(cases: UseCases, services: Mapping[str, Service], target: str) -> dict[str, str]:
    """The files above the folders of several use cases: the page, and what applies them to a
    cluster, the widest instances first.
    """
    separate = cases.separate
    ordered = sorted(services, key=lambda folder: -services[folder].gpus)
    systems = " and ".join(
        f"{pool_systems.systems} × {pool_systems.system}"
        for pool_systems in (separate.systems if separate else ())
    )
    rows = "\n".join(
        f"| `{folder}` | {services[folder].case} | {choice_line(services[folder])} |"
        for folder in ordered
    )
    starting = MACHINES if target == "compose" else APPLY
    if target != "compose" and len({service.gpus for service in services.values()}) > 1:
        starting = f"{starting}\n\n{ROOM}"
    page = f"""# {len(services)} use cases on {target}

Each use case has its own instances, rules and dashboard. The plan's systems for all of them: {systems}. The table below has those of
each alone.

{starting}

| folder | use case | deployment |
|---|---|---|
{rows}
{_placement_table(cases, target) if separate else ""}"""  # noqa: E501
    if target == "compose":
        return {"README.md": page}
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ordered,
    }
    return {"kustomization.yaml": yaml_text(kustomization), "README.md": page}


def _placement_table(cases: UseCases, target: str) -> str:
    """Which system holds which instances, in Markdown; on a cluster they are numbers alone."""
    number = "machine-" if target == "compose" else ""
    arrangement, lines, before = cases.separate, list[str](), 0
    for part in arrangement.placement if arrangement else ():
        machines = f"{number}{before + 1}"
        before += part.systems
        machines += f" to {number}{before}" if part.systems > 1 else ""
        held = ", ".join(
            f"{count} × {cases.names[place]}" for place, count in enumerate(part.instances) if count
        )
        each = f", each on {part.spans} of them" if part.spans > 1 else ""
        lines.append(
            f"| {machines} | {part.system} | {held or 'nothing, on standby'}{each} |"
            f" {part.free_gpus} |"
        )
    if not lines:
        return ""
    head = "\n| machines | system | instances on each | free GPUs |\n|---|---|---|---|\n"
    return head + "\n".join(lines) + "\n"


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Write files into a folder that does not exist yet, or is empty.

    They are written next to it first and moved there when all of them are complete, so that a
    failure leaves nothing behind. Raises InputError: there is something at that place already, or
    it cannot be written.
    """
    where = option("output")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"{where}: {folder} is there already and not an empty folder; name a new one"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as fault:
        raise InputError(f"{where}: {folder} cannot be written: {fault.strerror}") from fault
    try:
        for name, text in files.items():
            path = beside / name
            if not path.resolve().is_relative_to(beside.resolve()):
                raise InputError(
                    f"{where}: {name[:100]!r} leads out of {folder}; give it a name without slashes"
                    " and dots"
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        beside.chmod(0o755)
        os.replace(beside, folder)
    except OSError as fault:
        raise InputError(f"{where}: {folder} cannot be written: {fault.strerror}") from fault
    finally:
        shutil.rmtree(beside, ignore_errors=True)
