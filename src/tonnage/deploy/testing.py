"""The commands that test a deployment against its plan, as every target's page gives them."""

from __future__ import annotations

import re
import shlex

from tonnage.deploy.service import Service

RUN = "run"
PLAN = "plan.json"
_TAKEN = re.compile(r"\d+|\d+\+-\d+|(lognormal|uniform):[\d,-]+")
"""Lengths that ``bench`` takes in the form in which the plan has them."""


def bench_command(service: Service, url: str, *, instances: int) -> str:
    """The plan's peak, or the share of it that so many instances get, for five minutes."""
    rate = service.plan.demand.sizing_requests_per_second * instances / service.pool.instances
    scenario = service.plan.scenario
    lengths = {"--isl": (scenario.isl, scenario.mean_isl), "--osl": (scenario.osl, scenario.mean_osl)}
    words = ["tonnage", "bench", "--url", url, "--model", service.served]
    for flag, (text, mean) in lengths.items():
        words += [flag, text if _TAKEN.fullmatch(text) else str(round(mean))]
    words += ["--request-rate", f"{rate:.6g}", "--benchmark-duration", "300s"]
    for limit in scenario.limits_that_count:
        words += ["--slo", f"{limit.metric} {limit.statistic}<={limit.milliseconds:g}ms"]
    return _folded([*words, "--artifact-dir", RUN])


def compare_command(*, instances: int | None) -> str:
    """What was measured beside what the plan predicts for the same requests; None for all of the plan's instances."""
    return f"tonnage compare {RUN} {PLAN}" + (f" --instances {instances}" if instances else "")


def _folded(words: list[str]) -> str:
    """The command on lines of at most 110 columns, broken before flags."""
    lines, line = [], ""
    for place, word in enumerate(words):
        text = word if word.startswith('"') else shlex.quote(word)  # with a variable of the shell in it
        if line and word.startswith("--") and len(" ".join([line, text, *words[place + 1 : place + 2]])) > 105:
            lines.append(line + " \\")
            line = f"    {text}"
        else:
            line = f"{line} {text}".lstrip() if not line.startswith("    ") else f"{line} {text}"
    return "\n".join([*lines, line])
