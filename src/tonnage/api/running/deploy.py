"""``tonnage deploy``: the choice of a plan as files for what runs engines."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.api.running.gateway import gateway_from
from tonnage.api.running.plans import Planned, only_plan, planned
from tonnage.deploy.mixed import deployed_mixed, front
from tonnage.deploy.plan_text import bench_lengths, instead_line
from tonnage.deploy.service import PLAN, Service
from tonnage.deploy.targets import (
    NothingRuns,
    deployed,
    deployed_by_priority,
    deployed_together,
    target_files,
    together,
    write_folder,
)
from tonnage.deploy.verify import Folder, Part, read_folder
from tonnage.errors import InputError, TonnageError, option
from tonnage.formats.prometheus import SIGNALS
from tonnage.plan.plan import Plan
from tonnage.report.plans.answer import NO_ANSWER, answer_text
from tonnage.report.plans.candidates import left_out_texts
from tonnage.report.plans.plan_document import read_use_cases
from tonnage.results.store import json_text
from tonnage.spec.catalog import find_engine
from tonnage.spec.scenario import to_document
from tonnage.units import parse_duration

if TYPE_CHECKING:
    from tonnage.api.bench import Watch
    from tonnage.sizing.planner import Progress
    from tonnage.watch.deployment_status import Watched, Watcher
    from tonnage.watch.expected import Pages, Reading
    from tonnage.watch.settings import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """The result of ``deploy``."""

    files: tuple[str, ...]  # paths of the written files inside the folder
    checkpoint: str  # checkpoint that the engines load
    # sentences on the deployment, if it is not the plan's choice, on the checkpoint, and the
    # commands that create it
    notes: tuple[str, ...]


def deploy(
    plan: str | Path,
    *,
    target: str,
    output: str | Path,
    checkpoint: str | None = None,
    drafter: str | None = None,
    simulated: bool = False,
    progress: Progress | None = None,
) -> Deployed:
    """Write the files that deploy the choice of a plan, or the nearest other deployment of the plan
    that the target runs.

    Arguments as of ``tonnage deploy``; ``progress`` as in ``size``, which answers again where the
    target runs no deployment of the plan. Raises InputError: no plan, nothing that runs on the
    target, or a folder that cannot be written. Nothing is left behind.
    """
    options: dict[str, Any] = {"checkpoint": checkpoint, "drafter": drafter, "simulated": simulated}
    services, above = _services(plan, target, options, progress)
    files, notes = dict[str, str](), list[str]()
    for folder, service in services.items():
        texts = target_files(service, target)
        texts = {name: texts[name] for name in sorted(texts)} | {
            PLAN: json_text(service.plan.to_json())
        }
        files |= {f"{folder}/{name}" if folder else name: text for name, text in texts.items()}
        lines = (instead_line(service), service.loading.told, *service.loading.make)
        notes += [f"{folder}: {line}" if folder else line for line in lines if line]
    files |= above
    write_folder(Path(output), files)
    return Deployed(
        files=tuple(files),
        checkpoint=", ".join(
            {deployed_service.checkpoint: None for deployed_service in services.values()}
        ),
        notes=tuple(notes),
    )


def _services(
    path: str | Path, target: str, arguments: Mapping[str, Any], progress: Progress | None
) -> tuple[dict[str, Service], dict[str, str]]:
    """The deployments of a plan by the names of their folders, and the files above several."""
    cases = read_use_cases(path)
    if cases is not None and cases.priorities is not None and cases.chosen == "shared":
        return {"": deployed_by_priority(cases, target, **arguments)}, {}
    if cases is not None:
        services = deployed_together(cases, target, **arguments)
        return services, together(cases, services, target)
    plan = only_plan(path)
    if plan.mixed is not None and len(plan.mixed.groups) > 1:
        services = deployed_mixed(plan, plan.mixed, target, **arguments)
        return services, front(plan, plan.mixed, services, target)
    try:
        return {"": deployed(plan, target, **arguments)}, {}
    except NothingRuns as refused:
        raise InputError(f"{refused.marked}; {_nearest(plan, target, progress)}") from None


NARROW = (
    "engine",
    "disaggregated",
    "kv_link",
    "kv_overlap",
    "router",
    "precision",
    "tp",
    "pp",
    "dp",
    "ep",
)
# Leaves of a question's search that may leave nothing which a target runs; hardware is left out
# last
HARDWARE = ("gpu", "system")


def _nearest(plan: Plan, target: str, progress: Progress | None) -> str:
    """The answer of ``size`` for a target with its command: to the same question, then without its
    ``NARROW``, then on other hardware.

    Where there is none, the reason: the limits, with what comes nearest to them, or why the
    question cannot be asked again.
    """
    from tonnage.api.sizing import size

    if plan.asked is None or plan.choice is None:
        apart = plan.choice is not None and len(plan.choice.pools) > 1
        without = f" and without {option('disaggregated')}" if apart else ""
        return (
            f"size again with {option('deploy_on')} {target}{without}, which tries only what it"
            " runs"
        )
    document = to_document(plan.asked)
    search, none, failed = document.get("search", {}), "", ""
    for narrow in dict.fromkeys(
        tuple(name for name in names if name in search)
        for names in ((), NARROW, (*NARROW, *HARDWARE))
    ):
        narrowed_search = {name: value for name, value in search.items() if name not in narrow}
        without = f" without {', '.join(map(option, narrow))}" if narrow else ""
        try:
            nearest = size(
                {**document, "search": {**narrowed_search, "deploy_on": target}}, progress=progress
            )
        except TonnageError as fault:
            failed = (
                f"the nearest plan cannot be sized{without}: {'; '.join(fault.marked.splitlines())}"
            )
            continue
        if nearest.choice is not None:
            command = _command(plan.provenance.command, narrow, target)
            chosen = (
                f"nearest: {answer_text(nearest)}, {nearest.choice.systems} in place of the plan's"
                f" {plan.choice.systems}, sized{without}"
            )
            return f"{chosen}: {command}" if command else chosen
        none = f"nearest: none, {NO_ANSWER}{without}: {'; '.join(left_out_texts(nearest)[:MOST_TOLD])}".removesuffix(  # noqa: E501
            ": "
        )
    return none or failed


MOST_TOLD = 3  # GPUs whose nearest deployment a refusal names


def _command(typed: str, left_out: Sequence[str], target: str) -> str:
    """The command that made a plan, changed for a target; empty where it cannot be, because a file
    holds what is left out.
    """
    words, command_words, dropped = iter(shlex.split(typed)), list[str](), set[str]()
    for word in words:
        name, equals, _ = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if not word.startswith("--") or name not in (*left_out, "deploy_on", "output"):
            command_words.append(word)
            continue
        dropped.add(name)
        if not equals and name not in ("disaggregated", "kv_overlap"):
            next(words, "")
    if not command_words or not dropped.issuperset(left_out):
        return ""
    return shlex.join([*command_words, "--deploy-on", target, "--output", f"plan-{target}.json"])


def verify_folder(folder: str | Path) -> Folder:
    """Read again what ``deploy`` wrote: objects by their schemas, the engine's flags, files by each
    other. Raises InputError.
    """
    reading, gateway = read_folder(Path(folder)), Path(folder) / "gateway.yaml"
    if not gateway.is_file():
        return reading
    part, faults = (
        Part(file="gateway.yaml", name="settings", against="tonnage gateway"),
        reading.faults,
    )
    try:
        gateway_from(gateway, {})
    except InputError as fault:
        faults = (*faults, f"gateway.yaml: {fault}")
    return replace(
        reading,
        parts=tuple(
            part if earlier_part.file == part.file else earlier_part
            for earlier_part in reading.parts
        ),
        faults=faults,
    )


SHORTEST_S, LONGEST_S = 0.5, 3_600.0


def watch(
    urls: Sequence[str],
    *,
    plan: str | Path,
    every: str = "10s",
    gpu_metrics: Sequence[str] = (),
    coefficients: str | Path | None = None,
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[Watched]:
    """Look at a deployment again and again, each time over the stretch since the last; arguments as
    of ``tonnage watch``.

    Raises InputError: no plan, one that predicts nothing, no address or no duration; TonnageError:
    nothing answers with known metrics.
    """
    seconds = parse_duration(every, option("every"))
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise InputError(f"{option('every')}: {every} is not possible; write 0.5s to 1h")
    pages, watcher, _ = _watched(urls, plan, gpu_metrics=gpu_metrics, coefficients=coefficients)
    before = _first(pages)
    while True:
        wait(seconds)
        now = pages.read()
        yield watcher.look(before, now)
        before = now


def _watched(
    urls: Sequence[str],
    plan: str | Path,
    *,
    gpu_metrics: Sequence[str] = (),
    coefficients: str | Path | None = None,
) -> tuple[Pages, Watcher, Planned]:
    """The pages of a deployment, and what lays them next to its plan."""
    from tonnage.watch.deployment_status import Watcher
    from tonnage.watch.expected import PATH, Pages, Predictor

    if not urls:
        raise InputError(
            f"{option('url')}: no address is given; name an instance or a gateway, such as"
            " http://127.0.0.1:8000"
        )
    choice = planned(plan, coefficients=coefficients)
    if not choice.plan.provenance.simulated:
        raise InputError(
            f"{option('plan')}: {plan} rests on measured points and makes no prediction; give one"
            " that was simulated"
        )
    signals = SIGNALS.get(find_engine(choice.deployment.engine).family)
    pages = Pages(urls, gpus=gpu_metrics, path=PATH if signals is None else signals.path)
    predictor = Predictor(choice.plan, choice.deployment, gpus_per_system=choice.gpus_per_system)
    return (
        pages,
        Watcher(plan=choice.plan, predictor=predictor, urls=pages.urls, plan_file=str(plan)),
        choice,
    )


def _first(pages: Pages) -> Reading:
    """Read the metrics pages once; at least one instance must answer."""
    reading = pages.read()
    if not reading.instances:
        raise TonnageError(
            f"{', '.join(pages.urls)}: no answer with the metrics of vLLM, SGLang or TensorRT-LLM;"
            " is the engine up?"
        )
    return reading


LONGEST_LOAD_S = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of ``verify``."""

    instances: tuple[Instance, ...]  # what each instance runs, next to the plan
    planned: int  # instances of the plan
    # requests per second that were sent; None where no load was sent
    asked_rate: float | None = None
    # what was measured under the plan's load, next to its prediction; None where no load was sent
    load: Watched | None = None

    @property
    def findings(self) -> tuple[str, ...]:
        """The differences from the plan, one line each."""
        return tuple(self._findings())

    def _findings(self) -> Iterator[str]:
        if len(self.instances) != self.planned:
            yield f"instances: {len(self.instances)} in place of {self.planned}"
        for instance in self.instances:
            yield from (
                f"{instance.url} {setting.name}: {setting.told}" for setting in instance.off
            )
        if self.load is not None and self.asked_rate is not None:
            present = self.load.present
            if present.requests_per_second < (1 - LOST) * self.asked_rate:
                yield (
                    f"requests/s: {present.requests_per_second:.4g} answered of"
                    f" {self.asked_rate:.4g} sent"
                )
            if present.error_share:
                yield f"failed requests: {present.error_share:.2%}"
            yield from (f"split: {sentence}" for sentence in self.load.uneven)
            yield from _off_latencies(self.load)

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name."""
        load = None if self.load is None else self.load.to_json()
        return {
            "as_planned": not self.findings,
            "findings": list(self.findings),
            "instances": [instance.to_json() for instance in self.instances],
            "planned_instances": self.planned,
            "sent_requests_per_second": self.asked_rate,
            "load": load,
        }


LOST = 0.1  # Share of the load that may still be in flight when the load ends


def _off_latencies(load: Watched) -> Iterator[str]:
    """Latencies outside of the prediction's interval, with how far, and broken limits."""
    for latency in load.latencies:
        name, (low, high) = f"{latency.metric.upper()} {latency.statistic}", latency.expected
        if latency.place in ("above", "below"):
            bound = high if latency.place == "above" else low
            share = abs(latency.measured / bound - 1)
            yield (
                f"{name}: {latency.measured:.4g} ms, {share:.0%} {latency.place} the plan's"
                f" interval of {low:.4g} to {high:.4g} ms"
            )
        if latency.broken:
            yield f"{name}: {latency.measured:.4g} ms breaks the limit of {latency.limit:.4g} ms"


def verify(
    urls: Sequence[str],
    *,
    plan: str | Path,
    seconds: float = 120,
    coefficients: str | Path | None = None,
    watch: Watch | None = None,
) -> Verified:
    """Ask running engines whether they run what a plan counts on, then send them its load;
    arguments as of ``tonnage verify``.

    Raises InputError: no plan, one that predicts nothing, no address or no time; TonnageError:
    nothing answers with known metrics.
    """
    from tonnage.watch.settings import instance

    if not 0 <= seconds <= LONGEST_LOAD_S:
        raise InputError(
            f"{option('seconds')}: {seconds:g} is not possible; write 0 to {LONGEST_LOAD_S}"
        )
    pages, watcher, choice = _watched(urls, plan, coefficients=coefficients)
    before = _first(pages)
    verified = Verified(
        instances=tuple(instance(url, choice.pool) for url in before.instances),
        planned=choice.instances,
    )
    if not seconds:
        return verified
    rate = choice.plan.demand.sizing_requests_per_second * len(before.instances) / choice.instances
    _send(
        pages.urls,
        choice,
        rate=rate,
        seconds=seconds,
        model=verified.instances[0].served,
        watch=watch,
    )
    return replace(verified, asked_rate=rate, load=watcher.look(before, pages.read()))


def _send(
    urls: Sequence[str],
    choice: Planned,
    *,
    rate: float,
    seconds: float,
    model: str,
    watch: Watch | None,
) -> None:
    """Send the plan's load, spread evenly over the addresses, from a thread for each."""
    from concurrent.futures import ThreadPoolExecutor

    from tonnage.api.bench import prepare_bench, run_bench

    def one(url: str) -> None:
        bench = prepare_bench(
            url=url,
            model=model,
            request_rate=rate / len(urls),
            benchmark_duration=f"{seconds:g}s",
            **bench_lengths(choice.plan),
        )
        run_bench(
            bench,
            output=None,
            selftest=False,
            provenance={},
            **({} if watch is None else {"watch": watch}),
        )

    with ThreadPoolExecutor(max_workers=len(urls)) as pool:
        list(pool.map(one, urls))
