"""Thirty questions of all kinds: are the first fourteen lines enough to act, and does any of their
numbers contradict the plan?

    ./benchmark first_lines [--only WORDS] [--show]

For each question the answer is printed as a terminal shows it (110 columns) and as JSON. The first
fourteen lines must hold the number of systems, the probability and the systems at each confidence,
the latencies at the peak (of a job, when it is done), the cost and the risk (of systems that exist,
what breaks first); each of these must be what the JSON says, and every other number in these lines
must stand somewhere in the JSON too.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tonnage import api
from tonnage.api.sizing import ask
from tonnage.plan.plan import Plan
from tonnage.report.numbers import dollars, number
from tonnage.report.plans.confidence import chance_text
from tonnage.report.plans.question import used_text
from tonnage.report.plans.screen import screen
from tonnage.report.writers.terminal import terminal

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
LINES = 14
CHAT: dict[str, Any] = {"model": "llama-3.1-8b", "isl": 2000, "osl": 200, "ttft": "p95<=500ms"}
H100: dict[str, Any] = {"gpu": "h100", "precision": "fp8"}

QUESTIONS: dict[str, dict[str, Any]] = {
    "dense, the default": {**CHAT, "peak_rps": 300, "tpot": "p95<=50ms"},
    "dense 70B": {**CHAT, "model": "llama-3.1-70b", "peak_rps": 30, "ttft": "p95<=2s"},
    "dense 405B": {
        **CHAT,
        **H100,
        "model": "llama-3.1-405b",
        "peak_rps": 5,
        "ttft": "p95<=5s",
        "tp": 8,
    },
    "dense on L40S": {**CHAT, "gpu": "l40s", "peak_rps": 20, "ttft": "p95<=2s"},
    "dense on A100": {**CHAT, "gpu": "a100-sxm-80gb", "peak_rps": 20},
    "dense on a GPU without rows": {**CHAT, "gpu": "mi300x", "peak_rps": 20},
    "SGLang": {**CHAT, **H100, "engine": "sglang", "peak_rps": 50},
    "mixture of experts": {
        **CHAT,
        **H100,
        "model": "mixtral-8x7b",
        "peak_rps": 50,
        "ttft": "p95<=1s",
    },
    "DeepSeek": {
        **CHAT,
        "model": "deepseek-v3",
        "gpu": "h200",
        "peak_rps": 10,
        "ttft": "p95<=3s",
        "tp": 8,
    },
    "gpt-oss": {**CHAT, "model": "gpt-oss-120b", "gpu": "h100", "peak_rps": 20, "ttft": "p95<=2s"},
    "long context": {**CHAT, **H100, "isl": 60_000, "osl": 500, "peak_rps": 1, "ttft": "p95<=20s"},
    "long answers": {**CHAT, **H100, "isl": 200, "osl": 2_000, "peak_rps": 20},
    "tiny load": {**CHAT, **H100, "peak_rps": 0.1},
    "a call an hour": {**CHAT, **H100, "calls_per_year": 8_760},
    "huge load": {**CHAT, **H100, "tp": 1, "engine": "vllm", "peak_rps": 20_000},
    "tiny model": {**CHAT, **H100, "model": "qwen2.5-0.5b", "peak_rps": 100},
    "no limits": {**CHAT, "ttft": None, "peak_rps": 100},
    "only E2E": {
        **CHAT,
        **H100,
        "ttft": None,
        "e2e": "p95<=8s",
        "mode": "sequential",
        "peak_rps": 50,
    },
    "single gaps": {**CHAT, **H100, "ttft": None, "itl": "p99<=100ms", "peak_rps": 50},
    "a tight limit": {**CHAT, **H100, "ttft": "p95<=120ms", "peak_rps": 100},
    "an impossible limit": {**CHAT, **H100, "ttft": "p95<=1ms", "peak_rps": 100},
    "very sure": {**CHAT, **H100, "peak_rps": 200, "confidence": 95},
    "even odds": {**CHAT, **H100, "peak_rps": 200, "confidence": 50},
    "a spare system": {**CHAT, **H100, "peak_rps": 200, "spare": 1},
    "closed loop": {**CHAT, **H100, "load": "closed", "tp": 1, "engine": "vllm", "peak_rps": 100},
    "bursty": {
        **CHAT,
        **H100,
        "tp": 1,
        "engine": "vllm",
        "arrivals": "gamma",
        "cv": 2,
        "peak_rps": 50,
    },
    "a profile: hybrid pays": {"scenario": EXAMPLES / "chat-day.yaml"},
    "a job": {"scenario": EXAMPLES / "nightly-job.yaml"},
    "a trace": {"scenario": EXAMPLES / "code-completion.yaml"},
    "systems that exist": {"scenario": EXAMPLES / "existing-fleet.yaml"},
}


def answered(asked: dict[str, Any]) -> Plan:
    """The plan of a question."""
    return api.answer(ask(**asked))[0]


def contradictions(plan: Plan) -> Iterator[str]:
    """What the first lines do not say, or say otherwise than the JSON."""
    lines = terminal(screen((plan,))).splitlines()[:LINES]
    head, document = " ".join(" ".join(lines).split()), plan.to_json()
    choice = document["choice"]
    if choice is None:
        yield from (f"lacks {name}" for name in ("Answer", "Reachable") if not _has(lines, name))
        return
    wanted = {"Answer": f"{choice['systems']:,} × {choice['system']}"} | (
        {} if document["existing"] else {"Risk": ""}
    )
    sure, peak = choice["confidence"], choice["at_peak"]
    counts = ", ".join(
        f"{share}%: {'none' if count is None else f'{count:,}'}"
        for share, count in sure["systems"].items()
    )
    wanted["Confidence"] = f"{chance_text(sure['meets'])} probability"
    wanted["Finish" if document["job"] else "Confidence "] = "" if document["job"] else counts
    if peak is not None:
        wanted["At the peak"] = used_text(peak["utilisation"])
        for limit in document["scenario"]["limits_that_count"]:
            value = peak[f"{limit['metric']}_ms"][limit["statistic"]]
            wanted[f"At the peak {limit['metric']}"] = (
                f"{limit['metric'].upper()} {limit['statistic']} {number(value)} ms"
            )
            if value > limit["milliseconds"]:
                yield f"the peak breaks a limit: {limit}"
    wanted["Cost"] = _cost(document["cost"])
    for name, text in wanted.items():
        label = (
            name.strip()
            if name.strip() in ("Answer", "Confidence", "Risk", "Cost", "Finish")
            else "At the peak"
        )
        if not _has(lines, label) or text not in head:
            yield f"lacks {name.strip()} {text!r}"
    if sure["systems"][f"{100 * sure['asked']:.4g}"] is not None and sure["meets"] < sure["asked"]:
        yield f"P {sure['meets']} is below the asked {sure['asked']}"
    if choice["systems"] < math.ceil(round(choice["systems_exact"], 6)):
        yield f"rounds {choice['systems_exact']} down to {choice['systems']}"
    yield from unknown_numbers(head, document)


def _has(lines: list[str], name: str) -> bool:
    return any(line.startswith(f"{name} ") for line in lines)


def _cost(cost: dict[str, Any] | None) -> str:
    """What the line of the cost must hold: the cheapest way, or a job on cloud GPUs."""
    if cost is None:
        return ""
    if cost["of"] == "job":
        return "" if cost["cloud_usd_per_job"] is None else dollars(cost["cloud_usd_per_job"])
    known = [way for way in cost["ways"] if way["total_usd_per_year"] is not None]
    cheapest = next(
        (way for way in known if way["where"] == cost["cheapest"]), known[0] if known else None
    )
    return (
        "no price" if cheapest is None else f"{dollars(cheapest['total_usd_per_year'])} USD a year"
    )


NUMBER = re.compile(r"(?<![\w.,-])(\d[\d,]*(?:\.\d+)?)(?![\w]*[a-zA-Z-]\d)")
SCALES = (1.0, 100.0, 1e-3, 1 / 60, 1 / 3600, 1e-6, 1e3)


def unknown_numbers(head: str, document: dict[str, Any]) -> Iterator[str]:
    """Numbers of the first lines that no value of the JSON is written as."""
    known = list(_leaves(document))
    for text in dict.fromkeys(NUMBER.findall(head)):
        value = float(text.replace(",", ""))
        digits = len(text.replace(",", "").split(".")[1]) if "." in text else 0
        close = max(0.5 * 10**-digits, 0.005 * value) * 1.001 + (
            0.5 if digits == 0 and value <= 100 else 0
        )
        if not any(abs(abs(one) * scale - value) <= close for one in known for scale in SCALES):
            yield f"{text} stands nowhere in the JSON"


def _leaves(value: Any) -> Iterator[float]:
    """Every number of the JSON, those inside of texts too."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(key)
            yield from _leaves(each)
    elif isinstance(value, list):
        yield float(len(value))
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, str):
        yield from (float(text) for text in re.findall(r"\d+(?:\.\d+)?", value))
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        yield float(value)


def main() -> int:
    """Print one line a question; 1 where one of them contradicts its plan."""
    parser = argparse.ArgumentParser(
        description="the first fourteen lines of the answer beside its JSON"
    )
    parser.add_argument("--only", default="", help="questions whose name holds these words")
    parser.add_argument("--show", action="store_true", help="print the first lines too")
    asked, failed, count = parser.parse_args(), 0, 0
    os.environ["COLUMNS"] = "110"
    for name, question in QUESTIONS.items():
        if asked.only not in name:
            continue
        plan = answered(question)
        found, count = list(contradictions(plan)), count + 1
        failed += bool(found)
        print(
            f"{'ok' if not found else 'NO':3} {name}"
            + "".join(f"\n      {each}" for each in found),
            flush=True,
        )
        if asked.show:
            print(
                "\n".join(
                    f"    | {line}" for line in terminal(screen((plan,))).splitlines()[:LINES]
                )
            )
    print(
        f"{count - failed} of {count} questions: the first {LINES} lines are enough, and contradict"
        " nothing"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
