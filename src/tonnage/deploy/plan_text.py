"""What the files say of the plan in their comments and pages."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Sequence

from tonnage.deploy.checkpoint import FOLDER
from tonnage.deploy.service import PLAN, Service
from tonnage.plan.candidate import Candidate, Pool
from tonnage.plan.plan import Plan

WIDTH = 130


def choice_line(service: Service) -> str:
    """Describe the deployment in a line."""
    return _line(service.choice)


def instances_words(pools: Sequence[Pool], noun: str = "instance") -> str:
    """Such as "8 instances", or "3 prefill and 5 decode instances"."""
    if len(pools) == 1:
        return f"1 {noun}" if pools[0].instances == 1 else f"{pools[0].instances} {noun}s"
    return f"{' and '.join(f'{pool.instances} {pool.role}' for pool in pools)} {noun}s"


def _line(choice: Candidate) -> str:
    pool = choice.pools[0]
    names = {"PP": pool.pp, "DP": pool.dp, "EP": pool.ep}
    split = ", ".join(
        [f"TP {pool.tp}", *(f"{name} {value}" for name, value in names.items() if value > 1)]
    )
    where = f"{pool.engine} on {pool.gpu}, {choice.systems} × {pool.system}"
    return f"{instances_words(choice.pools)} of {pool.model} in {pool.precision}, {split}, {where}"


def instead_line(service: Service) -> str:
    """The reason why this is not the plan's choice, and the difference in systems; empty if it is
    the choice.
    """
    choice, pool = service.instead_of, service.pool
    if choice is None:
        return ""
    more = pool.systems - choice.systems
    than = f"{abs(more)} {'more' if more > 0 else 'fewer'} than" if more else "as many as"
    text = (
        f"These files do not deploy the plan's choice ({_line(choice)}): {service.why}. They deploy"
        f" the nearest other deployment of the plan: {_line(service.choice)}. It needs"
        f" {pool.systems} system{'' if pool.systems == 1 else 's'}, {than} the choice."
    )
    if not service.choice.checked:
        text += (
            " The number of systems is an estimate, because only the choice's fleet was simulated;"
            " to check it, size again with "
        )
        text += f"`--gpu {pool.gpu} --engine {pool.engine_preset}`."
    return text


def paragraph(text: str) -> str:
    """A paragraph of a page, wrapped."""
    return textwrap.fill(text, WIDTH, break_on_hyphens=False, break_long_words=False)


def summary(service: Service) -> str:
    """The first paragraphs of every page: deployment, limits, capacity and checkpoint."""
    paragraphs = [
        f"{choice_line(service)}.",
        f"Limits: {limits_line(service)}.",
        carries_line(service),
    ]
    if service.by_priority:
        paragraphs = [
            f"{choice_line(service)}.",
            carries_line(service),
            "",
            priorities_text(service),
        ]
    instead = instead_line(service)
    commands = (
        ["", *(f"    {line}" for line in service.loading.make)] if service.loading.make else []
    )
    return "\n".join(
        [
            *paragraphs,
            *(["", paragraph(instead)] if instead else []),
            "",
            paragraph(service.loading.told),
            *commands,
        ]
    )


def priorities_text(service: Service) -> str:
    """Explain how clients send the priority of a request, and list the use cases with theirs."""
    rows = "\n".join(
        f"| {case.name} | `{json.dumps({'priority': priority})}` |"
        f" {case.requests_per_second:.4g} | {'; '.join(str(use.limit) for use in case.limits)} |"
        for case, priority in service.by_priority
    )
    told = paragraph(
        "Several classes of traffic share these instances, and the engines serve waiting requests"
        " by priority, the lowest first. Each request must carry its priority in the JSON body; one"
        " without it counts as 0. The gateway and the routers pass it on as it is. No rule watches"
        " the limits, because the metrics of the engines do not tell the classes apart."
    )
    return f"{told}\n\n| class | in the body | requests/s | limits |\n|---|---|---|---|\n{rows}"


def gpu_words(service: Service) -> str:
    """Such as "8 GPUs"."""
    if service.simulated:
        return "no GPU"
    return "1 GPU" if service.gpus == 1 else f"{service.gpus} GPUs"


def carries_line(service: Service) -> str:
    """State the load that the fleet carries, in a line."""
    choice = service.choice
    subject = (
        "One instance" if len(choice.pools) == 1 else "One instance of either pool, on average,"
    )
    in_flight = (
        f", {choice.concurrency_per_instance:,.0f} requests in flight"
        if choice.concurrency_per_instance
        else ""
    )
    return (
        f"{subject} carries {choice.requests_per_second_per_instance:.4g} requests/s inside the"
        f" limits{in_flight}; the plan counts on {choice.sized_rate:.4g}, all instances together on"
        f" {service.capacity:.4g}. The peak is"
        f" {service.plan.demand.sizing_requests_per_second:.4g}."
    )


def limits_line(service: Service) -> str:
    """The limits, in a line."""
    limits = service.plan.scenario.limits_that_count
    return (
        "; ".join(
            (
                str(limit)
                if limit.share
                else f"{limit.metric.upper()} {limit.statistic} ≤ {limit.milliseconds:,g} ms"
            )
            for limit in limits
        )
        or "none"
    )


def head(service: Service) -> str:
    """The comment at the beginning of a target's first file."""
    provenance = service.plan.provenance
    written = (
        f"Written by tonnage {provenance.tonnage} deploy from a plan"
        + (f" of {provenance.date}" if provenance.date else "")
        + "."
    )
    lines = [
        written,
        f"{choice_line(service)}.",
        instead_line(service),
        f"Limits: {limits_line(service)}.",
        carries_line(service),
    ]
    return "\n".join(line for line in lines if line)


def startup_line(service: Service) -> str:
    """State how long a start may take, and why."""
    return (
        f"{service.startup_seconds} s to start: {service.checkpoint_bytes / 1e9:,.0f} GB of weights"
        " fetched at 200 MB/s and read at 1 GB/s, and 180 s for the engine. These are allowances;"
        " measure your own."
    )


def argv_notes(service: Service) -> str:
    """Name the source of the engine's arguments."""
    if service.simulated:
        return (
            f"In place of {service.pool.engine} on {service.gpu.name}: its scheduler and step"
            " times, with the knobs of this plan."
        )
    knobs, scenario = service.pool.knobs, service.plan.scenario
    lines = [
        f"As it was simulated: prompts of {scenario.mean_isl:,.0f} tokens and outputs of"
        f" {scenario.mean_osl:,.0f} on the mean. A request that is longer than the context below is"
        " refused."
    ]
    if knobs is not None:
        lines.append(
            f"{knobs.max_batch_size:,} requests at once and {knobs.max_num_tokens:,} tokens a step"
            " are the knobs that the plan found best."
        )
    if service.interface.recalled:
        lines.append(
            f"The names of these flags are recalled for {service.interface.name}, not read in its"
            " source."
        )
    return "\n".join(lines)


def image_note(service: Service) -> str:
    """State what is known of the image."""
    if service.simulated:
        return "Built from Tonnage's Containerfile; no registry has it."
    interface = service.interface
    return (
        f"{interface.name};"
        f" {interface.amd_source if service.gpu.vendor == 'AMD' else interface.image_source}"
    )


def least_line(service: Service) -> str:
    """Why a least number of instances stays."""
    if service.scaling is not None:
        return "So many instances stay by the plan's rule" + (
            f", {service.scaling.warm} of them warm." if service.scaling.warm else "."
        )
    mean = service.plan.demand.mean_requests_per_second
    what = (
        f"the mean load of {mean:.4g} requests/s"
        if mean
        else "the peak, since the plan knows no mean"
    )
    return f"So many instances carry {what}."


RUN = "run"
# Lengths that ``bench`` takes in the form in which the plan has them
_TAKEN = re.compile(r"\d+|\d+\+-\d+|(lognormal|uniform):[\d,-]+")


def bench_command(service: Service, url: str, *, instances: int, triton: bool = False) -> str:
    """The command that measures the plan's peak, or the share of it that ``instances`` get, for
    five minutes; Triton has another name and path.
    """
    rate = service.plan.demand.sizing_requests_per_second * instances / service.pool.instances
    scenario = service.plan.scenario
    kind, model = (
        (("--endpoint-type", "generate"), service.name) if triton else ((), service.served)
    )
    words = ["tonnage", "bench", *kind, "--url", url, "--model", model]
    for name, text in bench_lengths(service.plan).items():
        words += [f"--{name}", text]
    words += ["--request-rate", f"{rate:.6g}", "--benchmark-duration", "300s"]
    for limit in scenario.limits_that_count:
        words += ["--slo", f"{limit.metric} {limit.statistic}<={limit.milliseconds:g}ms"]
    return _folded([*words, "--artifact-dir", RUN])


def bench_lengths(plan: Plan) -> dict[str, str]:
    """The plan's lengths as ``bench`` takes them: their means where it takes no such
    distribution.
    """
    understood = plan.scenario
    lengths = {
        "isl": (understood.isl, understood.mean_isl),
        "osl": (understood.osl, understood.mean_osl),
    }
    return {
        name: text if _TAKEN.fullmatch(text) else str(round(mean))
        for name, (text, mean) in lengths.items()
    }


def compare_command(*, instances: int | None) -> str:
    """What was measured next to what the plan predicts for the same requests; None for all of the
    plan's instances.
    """
    return f"tonnage compare {RUN} {PLAN}" + (f" --instances {instances}" if instances else "")


def _folded(words: list[str]) -> str:
    """The command on lines of at most 110 columns, broken before flags."""
    lines, line = [], ""
    for place, word in enumerate(words):
        # with a variable of the shell in it
        text = word if word.startswith('"') else shlex.quote(word)
        if (
            line
            and word.startswith("--")
            and len(" ".join([line, text, *words[place + 1 : place + 2]])) > 105
        ):
            lines.append(line + " \\")
            line = f"    {text}"
        else:
            line = f"{line} {text}".lstrip() if not line.startswith("    ") else f"{line} {text}"
    return "\n".join([*lines, line])


HALVES = (
    "An engine of either pool sees one half of a request, so the files have no rules on the plan's"
    " limits and no dashboard; bench measures whole requests. The numbers of both pools belong"
    " together, so nothing scales them."
)


Rows = Sequence[tuple[str, str]]  # File and what is in it


def page_text(
    service: Service,
    title: str,
    needs: str,
    commands: Sequence[str],
    *,
    rows: Rows,
    further: str = "",
) -> str:
    """The page in Markdown: a paragraph of what it ``needs`` (lines stay), ``commands``,
    ``further`` paragraphs, and ``rows`` of files.
    """
    needs, closing = (
        needs if "\n" in needs else paragraph(needs),
        f"\n{further}\n" if further else "",
    )
    block, table = (
        "\n".join(commands),
        "\n".join(f"| {name} | {what} |" for name, what in (*rows, ("`plan.json`", "the plan"))),
    )
    return (
        f"# {title}\n\n{summary(service)}\n\n{needs}\n\n```sh\n{block}\n```\n{closing}\n| file |"
        f" what |\n|---|---|\n{table}\n"
    )


def cluster_page(
    service: Service,
    *,
    runs_on: str,
    needs: str,
    commands: Sequence[str],
    url: str,
    instances: int,
    rows: Rows,
    further: str = "",
    scaled: str = "",
) -> str:
    """The page in Markdown: what the cluster ``needs``, three ``commands`` and two that test and
    compare, and ``rows`` of files.

    Bench sends its requests to ``url``, where so many ``instances`` get them; ``further`` is a
    paragraph behind the commands, and ``scaled`` what the instances are called that KEDA moves, ""
    where it moves none.
    """
    changed_instances = instances if instances != service.pool.instances else None
    if service.checkpoint.startswith(FOLDER):
        needs += (
            f" The claim `{service.name}-model-cache` is mounted at {FOLDER}: put the checkpoint's"
            " folder into it."
        )
    watched = WATCHED
    if len(service.halves) > 1:
        further, watched = f"{further} {HALVES}".strip(), WATCHED[:1]
    measured = (
        bench_command(service, url, instances=instances),
        compare_command(instances=changed_instances),
    )
    rows = [*rows, *(scaling_rows(service, scaled) if scaled else ()), *watched]
    closing = paragraph(further) if further else ""
    return page_text(
        service,
        f"{service.served} with {runs_on}",
        needs,
        [*commands, *measured],
        rows=rows,
        further=closing,
    )


WATCHED: Rows = (
    (
        "`pod-monitor.yaml`, `alerts.yaml`",
        "for the Prometheus operator: what is scraped, and the rules",
    ),
    ("`dashboard.json`", "for Grafana, with the plan's capacity and limits as dashed lines"),
)


def scaling_rows(service: Service, noun: str = "pods") -> Rows:
    """The row of the autoscaler's file; none where nothing follows the load."""
    note = f"{service.least_instances} to {service.pool.instances} {noun}, by KEDA"
    return [] if service.target_in_flight is None else [("`autoscaling.yaml`", note)]


def keda_too(service: Service) -> str:
    """The end of a list of what the cluster needs."""
    return "" if service.target_in_flight is None else ", and KEDA for the autoscaling"
