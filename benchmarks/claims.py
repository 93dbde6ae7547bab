"""Every claim of a plan that can be asked directly, asked directly: how many are false.

    ./benchmark claims [--questions 40] [--seed 1] [--first 0] [--sensitivity]

Questions are drawn: models, GPUs, loads, limits, jobs, objectives. Whatever their plans say of
another question is asked as that question, with nothing remembered: every row of the sensitivity,
the relaxed limit, the runner-up, the numbers of systems for other confidences, in two pools and
behind other routers, the systems that exist, the end of a job and its cost with more time; and of
the answer itself, that more load and a tighter limit never take fewer GPUs, and that its fleet
holds the limits with other random numbers. ``--sensitivity`` asks only the rows of the sensitivity,
of six models.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tonnage.api.sizing import answer, ask
from tonnage.errors import InputError
from tonnage.plan.candidate import Candidate
from tonnage.plan.cost import JobCost
from tonnage.plan.limit import Limit, limit_of
from tonnage.plan.plan import Plan
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.planner import size
from tonnage.sizing.question import Pools, Question
from tonnage.sizing.search.search import Search
from tonnage.sizing.sensitivity import changed_question

EXACTLY = 0.1
"""Share by which systems before rounding may differ from what was said of them: the scatter of the
simulation."""

SEEDS = (11, 12, 13)
"""Added to the seed of a fleet that is simulated again."""

MORE = 1.3
"""Times the load, the limits and the time for a job."""

Arguments = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a plan says, what the question itself answers, and whether these agree."""

    what: str
    said: str
    found: str
    true: bool


MODELS = (
    "llama-3.1-8b",
    "qwen3-32b",
    "llama-3.1-70b",
    "gpt-oss-120b",
    "deepseek-v3.2",
    "kimi-k2.6",
    "qwen3-30b-a3b",
    "glm-4.6",
)
LARGE = {"deepseek-v3.2", "kimi-k2.6", "glm-4.6"}
GPUS = ("h100", "h200", "b200", "b300", "gb200", "mi355x")
SENSITIVITY: tuple[Arguments, ...] = (
    {
        "model": "kimi-k2",
        "isl": 8000,
        "osl": 800,
        "peak_rps": 5,
        "ttft": "p95<=3s",
        "tpot": "p95<=40ms",
    },
    {
        "model": "llama-3.1-8b",
        "gpu": "h100",
        "isl": 2000,
        "osl": 200,
        "peak_rps": 300,
        "ttft": "p95<=500ms",
    },
    {
        "model": "llama-3.3-70b",
        "gpu": "h200",
        "isl": 4000,
        "osl": 500,
        "peak_rps": 20,
        "ttft": "p95<=1.5s",
        "tpot": "p95<=50ms",
    },
    {
        "model": "gpt-oss-120b",
        "gpu": "b200",
        "isl": 3000,
        "osl": 600,
        "peak_rps": 200,
        "ttft": "p95<=1s",
    },
    {
        "model": "deepseek-v3.2",
        "gpu": "b300",
        "isl": 4000,
        "osl": 1000,
        "peak_rps": 20,
        "ttft": "p95<=2s",
        "tpot": "p95<=50ms",
    },
    {
        "model": "qwen3-30b-a3b",
        "gpu": "rtx-pro-6000",
        "isl": 1500,
        "osl": 400,
        "peak_rps": 40,
        "ttft": "p95<=800ms",
    },
)
"""The last is one for which short runs find a fifth more than the longest."""


def drawn(rng: np.random.Generator) -> Arguments:
    """The arguments of one question."""
    model = str(rng.choice(MODELS))
    isl, osl = (
        int(float(f"{10 ** rng.uniform(*np.log10(ends)):.2g}"))
        for ends in ((300, 12_000), (80, 1_500))
    )
    gpus = rng.choice(GPUS[2:5] if model in LARGE else GPUS, size=rng.integers(1, 3), replace=False)
    asked: Arguments = {
        "model": model,
        "gpu": ",".join(sorted(map(str, gpus))),
        "isl": isl,
        "osl": osl,
    }
    kind = str(rng.choice(["load", "load", "load", "load", "job", "latency", "cost", "users"]))
    if kind == "job":
        hours = int(rng.integers(2, 12))
        return {
            **asked,
            "mode": "offline",
            "requests": int(float(f"{10 ** rng.uniform(5, 6.5):.2g}")),
            "within": f"{hours}h",
        }
    rate = float(
        f"{10 ** rng.uniform(0.3, 2.3) * min(1.0, 3_000 / isl) * (0.2 if model in LARGE else 1.0):.2g}"
    )
    asked["ttft"] = (
        f"p{rng.choice([90, 95, 99])}<={10 ** rng.uniform(-0.3, 0.6) * max(1.0, isl / 6_000):.2g}s"
    )
    if rng.random() < 0.5:
        asked["tpot"] = f"p95<={10 ** rng.uniform(1.4, 2.0):.2g}ms"
    elif rng.random() < 0.4:
        asked["itl"] = f"p99<={10 ** rng.uniform(1.4, 2.4):.2g}ms"
    if kind == "users":
        return {**asked, "users": int(600 * rate), "requests_per_user_day": 20}
    if kind in ("latency", "cost"):
        asked["objective"] = kind
    return {**{name: value for name, value in asked.items() if value is not None}, "peak_rps": rate}


def planned(arguments: Arguments) -> tuple[Question, Plan]:
    """A question, and the whole plan of what was asked."""
    understood = ask(**arguments)
    (plan,) = answer(understood)
    return understood.questions[0], plan


def asked_again(question: Question) -> Candidate | None:
    """What a question is answered when it is asked by itself, with nothing remembered."""
    return size(replace(question, deepen=False, have=(), growth_per_month=None)).choice


def _gpus(choice: Candidate | None) -> float:
    """GPUs of an answer; more than any number where nothing meets the limits."""
    return math.inf if choice is None else choice.gpus


def claims(arguments: Arguments) -> Iterator[Claim]:
    """Every claim of the plan of a question.

    Raises:
        InputError: the question is refused.
    """
    question, plan = planned(arguments)
    if plan.choice is None:
        return
    if plan.demand.offline_requests is not None:
        yield from _of_a_job(arguments, plan)
        return
    yield from of_the_sensitivity(question, plan)
    if question.objective == "latency":
        return
    yield from _of_the_answer(question, plan)
    yield from _of_the_confidence(question, plan)
    yield from _of_the_tail(question, plan)
    yield from _of_two_pools(question, plan)
    yield from _of_the_routers(question, plan)
    yield from _of_what_exists(arguments, plan)


def of_the_sensitivity(question: Question, plan: Plan) -> Iterator[Claim]:
    """Every row, and the relaxed limit."""
    found = plan.sensitivity
    if found is None or plan.choice is None:
        return
    for swing in found.swings:
        for row in (swing.low, swing.high):
            direct = asked_again(changed_question(question, swing.input, row.change))
            direct = None if direct is None or _surer(plan.choice, direct) else direct
            gpus = None if row.systems is None else row.gpus
            yield _compared(
                f"{swing.input} {row.change:+.0%}", gpus, row.systems_exact, row.systems, direct
            )
    if found.relaxed is not None:
        relaxed = found.relaxed
        gpus = _gpus(asked_again(_with_limit(question, relaxed.limit, relaxed.to_ms)))
        true = gpus <= relaxed.gpus < plan.choice.gpus
        yield Claim(
            what=f"relaxed to {relaxed.to_ms:g} ms",
            said=f"{relaxed.gpus} GPUs",
            found=f"{gpus} GPUs",
            true=true,
        )


def _surer(one: Candidate, other: Candidate) -> bool:
    """Whether the first reaches the confidence that was asked for, and the other does not."""
    reached = [each.confidence is None or each.confidence.reached for each in (one, other)]
    return reached == [True, False]


def _compared(
    what: str, gpus: int | None, exact: float | None, systems: int | None, direct: Candidate | None
) -> Claim:
    """GPUs that were said, against the answer to the question: within one system, and the exact
    number within ``EXACTLY``.
    """
    said = "nothing meets the limits" if gpus is None else f"{gpus} GPUs ({exact:.3g} systems)"
    if direct is None or gpus is None or systems is None or exact is None:
        found = (
            "nothing meets the limits"
            if direct is None
            else f"{direct.gpus} GPUs ({direct.systems_exact:.3g} systems)"
        )
        return Claim(what=what, said=said, found=found, true=direct is None and gpus is None)
    size_said, size_found = gpus / systems, direct.gpus / direct.systems
    one = max(size_said, size_found)
    close = abs(exact * size_said / (direct.systems_exact * size_found) - 1) <= EXACTLY
    near = abs(gpus - direct.gpus) <= one
    return Claim(
        what=what,
        said=said,
        found=f"{direct.gpus} GPUs ({direct.systems_exact:.3g} systems)",
        true=near and close,
    )


def _with_limit(question: Question, limit: Limit, milliseconds: float) -> Question:
    """The question with one of its limits at another value."""
    slo = tuple(
        (
            replace(each, seconds=milliseconds / 1e3)
            if (each.metric, each.statistic) == (limit.metric, limit.statistic)
            else each
        )
        for each in question.slo
    )
    return replace(question, slo=slo)


def _of_the_answer(question: Question, plan: Plan) -> Iterator[Claim]:
    """More load, a tighter and a looser limit, the runner-up, and other random numbers."""
    choice = plan.choice
    if choice is None or question.objective != "gpus":
        return
    others = [(f"{MORE} times the load", False, changed_question(question, "rate", MORE - 1))]
    others.append((f"load over {MORE}", True, changed_question(question, "rate", 1 / MORE - 1)))
    for limit in question.slo:
        for factor in (MORE, 1 / MORE):
            other = _with_limit(question, limit_of(limit), 1e3 * factor * limit.seconds)
            others.append((f"{limit} times {factor:.3g}", factor > 1, other))
    for what, easier, other in others:
        gpus = _gpus(asked_again(other))
        true = gpus <= choice.gpus if easier else gpus >= choice.gpus
        yield Claim(
            what=what,
            said=f"at {'most' if easier else 'least'} {choice.gpus} GPUs",
            found=f"{gpus} GPUs",
            true=true,
        )
    if plan.runner_up is not None:
        near = plan.runner_up
        direct = asked_again(
            replace(
                question,
                gpus=tuple(gpu for gpu in question.gpus if gpu.name == near.deployment.gpu),
            )
        )
        yield _compared(
            f"runner-up {near.deployment.gpu}", near.gpus, near.systems_exact, near.systems, direct
        )
    yield from _of_other_draws(question)


def _of_other_draws(question: Question) -> Iterator[Claim]:
    """The fleet of the answer with other random numbers, and times longer by the confidence's
    factor.
    """
    best = Search(question=replace(question, deepen=False), runs=Runs(), rows=False).answer().best
    if best is None or not best.checked:
        return
    fleet = best.contender.at_peak(best.slowdown)
    for seed in SEEDS:
        run = fleet.run(best.systems, seeds=(seed,))
        over = "holds" if run.worst is None else f"{run.worst.limit} at {run.worst.value_ms:.0f} ms"
        yield Claim(what=f"the fleet with seed +{seed}", said="holds", found=over, true=run.holds)


def _of_the_confidence(question: Question, plan: Plan) -> Iterator[Claim]:
    """The systems of the same deployments for other confidences: what the search chooses there is
    at most as many GPUs.
    """
    choice = plan.choice
    if choice is None or choice.confidence is None or question.objective != "gpus":
        return
    for percent, systems in choice.confidence.systems.items():
        if systems is None:
            continue
        gpus, found = (
            systems * choice.gpus_per_system,
            _gpus(asked_again(replace(question, confidence=float(percent) / 100))),
        )
        yield Claim(
            what=f"{percent}% sure",
            said=f"{gpus} GPUs",
            found=f"{found} GPUs",
            true=found <= gpus + choice.gpus_per_system,
        )


def _of_the_tail(question: Question, plan: Plan) -> Iterator[Claim]:
    """What reaches the confidence that the choice does not: another deployment, or a looser
    limit.
    """
    tail = plan.tail
    if tail is None:
        return
    surer, instead = replace(question, confidence=tail.confidence), []
    if tail.other is not None:
        instead.append(("another deployment", surer, tail.other))
    if tail.relaxed is not None:
        instead.append(
            (
                f"{tail.relaxed.to_ms:g} ms",
                _with_limit(surer, tail.relaxed.limit, tail.relaxed.to_ms),
                tail.relaxed,
            )
        )
    for what, asked, said in instead:
        direct = asked_again(asked)
        one = said.gpus // said.systems
        true = (
            direct is not None
            and direct.confidence is not None
            and direct.confidence.reached
            and abs(direct.gpus - said.gpus) <= one
        )
        found = f"{_gpus(direct)} GPUs"
        yield Claim(
            what=f"{tail.confidence:.0%} sure by {what}",
            said=f"{said.gpus} GPUs",
            found=found,
            true=true,
        )


def _of_two_pools(question: Question, plan: Plan) -> Iterator[Claim]:
    """Two pools that would need fewer GPUs."""
    other = plan.pools_instead
    if other is not None:
        direct = asked_again(replace(question, pools=Pools()))
        yield _compared("in two pools", other.gpus, other.systems_exact, other.systems, direct)


def _of_the_routers(question: Question, plan: Plan) -> Iterator[Claim]:
    """The systems of the choice behind other routers; the search may find another deployment that
    needs fewer.
    """
    choice = plan.choice
    for row in plan.routers:
        if choice is None or row.systems is None or row.router == question.router:
            continue
        gpus, found = (
            (row.systems + question.spare) * choice.gpus_per_system,
            _gpus(asked_again(replace(question, router=row.router))),
        )
        yield Claim(
            what=f"behind {row.router}",
            said=f"{gpus} GPUs",
            found=f"{found} GPUs",
            true=found <= gpus + choice.gpus_per_system,
        )


def _of_what_exists(arguments: Arguments, plan: Plan) -> Iterator[Claim]:
    """The systems of the answer carry the load if they stand there, and one fewer does not."""
    choice = plan.choice
    if choice is None or arguments.get("objective") == "cost" or "peak_rps" not in arguments:
        return
    asked = {name: value for name, value in arguments.items() if name not in ("gpu", "objective")}
    load = plan.demand.sizing_requests_per_second
    for systems in (choice.systems, choice.systems - 1):
        if systems < 1:
            continue
        _, found = planned({**asked, "have": f"{systems}x{choice.system}"})
        carried = 0.0 if found.existing is None else found.existing.requests_per_second
        true = (carried >= load) == (systems >= choice.systems)
        yield Claim(
            what=f"have {systems} of {choice.systems} × {choice.system}",
            said=f"{'at least' if systems >= choice.systems else 'less than'} {load:.4g}/s",
            found=f"{carried:.4g}/s",
            true=true,
        )


def _of_a_job(arguments: Arguments, plan: Plan) -> Iterator[Claim]:
    """It is done in time, and with more time it never costs more."""
    if plan.job is not None:
        done, allowed = plan.job.finish_seconds, plan.job.allowed_seconds
        yield Claim(
            what="the job is done",
            said=f"within {allowed:.0f} s",
            found=f"{done:.0f} s",
            true=done <= allowed,
        )
    hours = float(str(arguments["within"]).removesuffix("h"))
    for factor in (MORE, 3.0):
        _, later = planned({**arguments, "within": f"{hours * factor:g}h"})
        for name in ("cloud_usd_per_job", "power_usd_per_job"):
            before, after = (
                getattr(each.cost, name, None) if isinstance(each.cost, JobCost) else None
                for each in (plan, later)
            )
            if before is not None:
                true = after is not None and after <= before * (1 + EXACTLY)
                yield Claim(
                    what=f"{name} with {factor:g} times the time",
                    said=f"at most {before:.0f}",
                    found=f"{after or 0:.0f}",
                    true=true,
                )
        if plan.choice is not None and later.choice is not None:
            yield Claim(
                what=f"GPUs with {factor:g} times the time",
                said=f"at most {plan.choice.gpus}",
                found=str(later.choice.gpus),
                true=later.choice.gpus <= plan.choice.gpus,
            )


def drawn_at(seed: int, place: int) -> Arguments:
    """The question at a place, from random numbers of its own."""
    return drawn(np.random.default_rng([seed, place]))


def main() -> None:
    """Ask, compare, and print."""
    parser = argparse.ArgumentParser(description="Claims of plans, asked directly")
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="place of the first question")
    parser.add_argument(
        "--sensitivity", action="store_true", help="the rows of the sensitivity of six models"
    )
    asked = parser.parse_args()
    places = range(asked.first, asked.first + asked.questions)
    listed = (
        enumerate(SENSITIVITY)
        if asked.sensitivity
        else ((place, drawn_at(asked.seed, place)) for place in places)
    )
    total = false = 0
    for place, arguments in listed:
        began = time.process_time()
        print(
            f"{place:3} "
            + " ".join(f"--{name.replace('_', '-')} {value}" for name, value in arguments.items()),
            flush=True,
        )
        try:
            found = list(
                of_the_sensitivity(*planned(arguments)) if asked.sensitivity else claims(arguments)
            )
        except InputError as error:
            print(f"    refused: {error}")
            continue
        for claim in found:
            if asked.sensitivity or not claim.true:
                print(
                    f"    {'' if claim.true else 'FALSE  '}{claim.what}: said {claim.said}; asked"
                    f" directly {claim.found}"
                )
        total, false = total + len(found), false + sum(not claim.true for claim in found)
        print(
            f"    {len(found)} claims, {sum(not claim.true for claim in found)} false,"
            f" {time.process_time() - began:.0f} s of CPU",
            flush=True,
        )
    print(f"\n{false} of {total} claims are false")


if __name__ == "__main__":
    main()
