"""Forty drawn plans as files of every target: written or refused, and what `tonnage deploy verify`
finds in the written ones.
"""

from __future__ import annotations

import argparse
import random
import re
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.deploy.plans import dense, latencies, started
from tests.engines.test_launch_flags import read
from tests.engines.vllm_server import engines_python
from tests.plan.candidates import candidate
from tonnage import api
from tonnage.deploy.service import Service
from tonnage.deploy.targets import deployed, target_files
from tonnage.deploy.verify import read_files
from tonnage.errors import InputError
from tonnage.plan.candidate import Candidate
from tonnage.plan.launch import command
from tonnage.plan.plan import Plan
from tonnage.results.store import json_text
from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.deployment import Parallelism, Speculation
from tonnage.spec.engine import default_knobs
from tonnage.spec.targets import TARGETS

ENGINES = (
    "vllm-0.19",
    "vllm-0.21",
    "vllm-0.32",
    "sglang-0.5",
    "sglang-0.5.9",
    "tensorrt-llm-1.0",
    "tensorrt-llm-1.2",
)
ON_AMD = ("vllm-0.21", "vllm-0.32", "sglang-0.5.9")
SYSTEMS = {
    "h100-sxm-80gb": "dgx-h100",
    "h200-sxm-141gb": "dgx-h200",
    "b200-sxm-180gb": "dgx-b200",
    "l40s": "8xl40s",
    "mi300x": "8x mi300x",
    "mi355x": "8x mi355x",
}
MODELS = (
    "llama-3.1-8b",
    "llama-3.3-70b",
    "qwen3-32b",
    "mixtral-8x7b",
    "deepseek-v3",
    "gpt-oss-120b",
)
FORMATS = ("fp16", "fp8", "fp8+kv-fp16", "nvfp4", "awq", "int4-g32+experts", "mxfp4+rest-fp8")
SHAPES = {
    "one GPU": Parallelism(),
    "tensor-parallel": Parallelism(tp=4),
    "a whole system": Parallelism(tp=8, ep=8),
    "attention ranks": Parallelism(tp=1, dp=8, ep=8),
    "two stages": Parallelism(tp=2, pp=2),
    "two systems": Parallelism(tp=8, pp=2),
    "two pools": Parallelism(tp=2),
    "speculation": Parallelism(tp=2),
}


def drawn(rng: random.Random, shape: str, *, gpu: str | None = None) -> Candidate:
    """A deployment of this shape, of some engine on some GPU."""
    model, precision, chip, split = (
        rng.choice(MODELS),
        rng.choice(FORMATS),
        gpu or rng.choice(list(SYSTEMS)),
        SHAPES[shape],
    )
    preset = rng.choice(ON_AMD if find_gpu(chip).vendor == "AMD" else ENGINES)
    engine = find_engine(preset)
    knobs = default_knobs(engine, find_gpu(chip), split.dp)
    made: dict[str, Any] = started(preset, model, split, knobs, kv_8bit=rng.random() < 0.5)
    if shape == "speculation" and engine.launch is not None and engine.launch.speculation:
        method = rng.choice([name for name, _ in engine.launch.speculation])
        words = command(
            engine.launch,
            checkpoint=model,
            parallelism=split,
            knobs=knobs,
            max_context=4_096,
            speculation=Speculation(method=method, tokens=3, acceptance=0.7),
        )
        made = {"launch": words.argv, "launch_file": words.file}
    pool = {
        "model": model,
        "gpu": chip,
        "system": SYSTEMS[chip],
        "precision": precision,
        "engine": preset,
        "engine_preset": preset,
    }
    degrees = {"tp": split.tp, "pp": split.pp, "dp": split.dp, "ep": split.ep}
    systems = max(2, -(-2 * split.gpus // 8))
    found = candidate(
        **pool,
        **degrees,
        **made,
        knobs=knobs,
        systems=systems,
        instances=systems * 8 // split.gpus,
        e2e_ms=latencies(6_000.0),
        concurrency_per_instance=64.0,
    )
    if shape != "two pools":
        return found
    half = found.pool.instances // 2
    halves = (
        replace(found.pool, role="prefill", instances=half),
        replace(found.pool, role="decode", instances=half),
    )
    return replace(found, pools=halves)


def plans(count: int, seed: int) -> list[tuple[str, Plan]]:
    """Plans by turns of every shape; each has three other deployments to fall back to."""
    rng = random.Random(seed)
    found = []
    for place in range(count):
        shape = list(SHAPES)[place % len(SHAPES)]
        choice = drawn(rng, shape)
        others = [
            drawn(rng, one, gpu=choice.pools[0].gpu)
            for one in rng.choices(
                [one for one in SHAPES if one not in ("two pools", "speculation")], k=3
            )
        ]
        found.append((shape, asked(replace(dense(), candidates=(choice, *others), curve=()))))
    return found


def asked(plan: Plan) -> Plan:
    """The plan with the question that it would answer, and the command that asks it."""
    pool = plan.candidates[0].pools[0]
    flags = {
        "model": pool.model,
        "gpu": pool.gpu,
        "precision": pool.precision,
        "engine": pool.engine_preset,
        **{name: str(getattr(pool, name)) for name in ("tp", "pp", "dp", "ep")},
        "isl": plan.scenario.isl,
        "osl": plan.scenario.osl,
        "peak_rps": plan.demand.sizing_requests_per_second,
        "ttft": "p95<=2s",
        "itl": "p95<=100ms",
    }
    words = [
        word
        for name, value in flags.items()
        for word in (f"--{name.replace('_', '-')}", f"{value}")
    ]
    apart = len(plan.candidates[0].pools) > 1
    typed = shlex.join(["./tonnage", "size", *words, *(["--disaggregated"] if apart else [])])
    scenario = api.ask(**flags, disaggregated=apart or None).scenario
    return replace(plan, asked=scenario, provenance=replace(plan.provenance, command=typed))


def refusal(saved: Path, target: str) -> str:
    """The line of ``tonnage deploy`` that refuses a plan, with the nearest plan that the target
    runs, or the reason why none is.
    """
    try:
        api.deploy(saved, target=target, output=saved.parent / "files")
    except InputError as refused:
        said = str(refused)
    if "\n" in said or not re.search("; nearest: (none, .|.*: ./tonnage size .*--deploy-on)", said):
        raise RuntimeError(f"a refusal without the nearest plan: {said}")
    return said


def written(plan: Plan, target: str) -> tuple[str, Service | None]:
    """Whether the target's files are written, and of which deployment; a refusal is one line."""
    drafter = (
        "a/drafter"
        if "{drafter}"
        in f"{plan.candidates[0].pools[0].launch}{plan.candidates[0].pools[0].launch_file}"
        else None
    )
    try:
        service = deployed(plan, target, drafter=drafter)
    except InputError:
        with TemporaryDirectory() as scratch:
            saved = Path(scratch) / "plan.json"
            saved.write_text(json_text(plan.to_json()), encoding="utf-8")
            return f"refused: {refusal(saved, target)}", None
    return ("written" if service.instead is None else "written, the nearest of the plan"), service


def main() -> None:
    """Print the counts, each fault, and whether vLLM's own parser takes the commands of its
    version.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=40)
    parser.add_argument("--seed", type=int, default=43)
    parser.add_argument("--refusals", action="store_true", help="print each of them")
    given = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    refused: list[str] = []
    faults: list[str] = []
    commands: dict[tuple[str, ...], None] = {}
    for place, (shape, plan) in enumerate(plans(given.plans, given.seed)):
        for target in TARGETS:
            outcome, service = written(plan, target)
            counts[target, outcome.partition(":")[0]] += 1
            if service is None:
                refused.append(f"plan {place} ({shape}): {outcome}")
                continue
            found = read_files(target_files(service, target), service)
            faults += [f"plan {place} ({shape}) on {target}: {one}" for one in found.faults]
            if service.interface.version == "0.32.0" and service.family == "vllm":
                commands[service.argv] = None
    outcomes = ("written", "written, the nearest of the plan", "refused")
    print(f"{given.plans} plans, seed {given.seed}, by {', '.join(SHAPES)}\n")
    print(f"{'target':<12}" + "".join(f"{outcome:>34}" for outcome in outcomes))
    for target in TARGETS:
        print(f"{target:<12}" + "".join(f"{counts[target, outcome]:>34}" for outcome in outcomes))
    print(f"\nfaults that deploy verify found: {len(faults)}")
    print("\n".join(faults))
    for name, count in Counter(map(nearest, refused)).most_common():
        print(f"{count:>4} of {len(refused)} refused: {name}")
    if given.refusals:
        print("", *refused, sep="\n")
    if engines_python() is not None:
        read([argv[2:] for argv in commands])
        print(f"\nvLLM 0.32's own parser takes all {len(commands)} commands of its version")


def nearest(refused: str) -> str:
    """What the nearest plan of a refusal needs."""
    if "; nearest: none" in refused:
        return "the target runs nothing that meets the limits"
    if found := re.search(r", sized without ([^:]+): ", refused):
        return (
            f"nearest plan on {'other GPUs' if 'gpu' in found[1].split(', ') else 'the same GPUs'}"
        )
    return "nearest plan with the same engine, format and split on the same GPUs"


if __name__ == "__main__":
    main()
