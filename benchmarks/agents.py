"""Recorded sessions of a coding agent sized on nine pairs of GPU and model, and what the answers
claim asked directly.

    ./benchmark agents [--seeds 1,2,3] [--monotone] [--write] [--only h200/glm-4.6] [--sessions 400]
    ./benchmark agents --halves 8
    ./benchmark agents --replay [--aisimulate PYTHON]

The first prints the table of docs/tasks.md (``--write`` puts it there): systems, sessions of
a system with and without the memory below the KV cache, the share of prompt tokens that comes from
caches, and CPU seconds. With ``--seeds`` the whole fleet of each answer runs with other random
numbers, and the limits that it breaks are named. With ``--monotone`` looser limits, more memory and
more sessions are asked for the first pair.

``--halves`` draws as many halves of the recorded sessions and prints how far the table of
``size --session-tiers`` of one is from that of the other.

``--replay`` prints CPU seconds and memory of the recorded sessions read and simulated one after
another, and with ``--aisimulate`` those of AISimulate's replay of the same requests in the
environment of that Python.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import statistics
import subprocess
import tempfile
import time
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tonnage.sizing.search.deployment_capacity import Sized
    from tonnage.spec.recorded_sessions import RecordedSessions

ROOT = Path(__file__).resolve().parents[1]
SESSIONS = ROOT.parent / "shared" / "data" / "traces" / "agentic" / "claude_code_150.jsonl.gz"
PAGE = ROOT / "docs" / "tasks.md"
BEGIN, END = "<!-- agents -->\n", "<!-- end of agents -->\n"

GPUS, MODELS = ("h200", "b200", "gb300"), ("glm-4.6", "kimi-k2.5", "qwen3-coder-480b-a35b")
LIMITS = {"further_ttft": "p95<=10s", "slowdown": "p90<=1.5"}
HEAD = (
    "GPU",
    "model",
    "choice",
    "systems",
    "sessions a system",
    "KV cache alone",
    "from caches",
    "p90 slowdown",
    "CPU s",
)


def asked(gpu: str, model: str, sessions: float, **more: Any) -> dict[str, Any]:
    """The arguments of one sizing."""
    return {
        "model": model,
        "gpu": gpu,
        "engine": "vllm",
        "trace": str(SESSIONS),
        "sessions": sessions,
        **LIMITS,
        **more,
    }


def best_of(**question: Any) -> Sized | None:
    """The choice of a question, without what is said of it."""
    from tonnage.api.sizing import ask
    from tonnage.sizing.loads.runs import Runs
    from tonnage.sizing.search.search import Search

    return Search(question=ask(**question).questions[0], runs=Runs(), rows=False).answer().best


def row(gpu: str, model: str, sessions: float) -> tuple[str, ...]:
    """One line of the table."""
    from tonnage.api.sizing import size

    began = time.process_time()
    plan = size(**asked(gpu, model, sessions))
    took, best, held = time.process_time() - began, plan.choice, plan.sessions
    if best is None or held is None:
        return (gpu, model, "none holds the limits", *("-",) * 5, f"{took:.0f}")
    pool = best.pools[0]
    split = f"{pool.precision}, TP {pool.tp}" + "".join(
        f", {name.upper()} {n}" for name, n in (("dp", pool.dp), ("ep", pool.ep)) if n > 1
    )
    alone = (
        "-"
        if not held.tiers or held.tiers[0].per_system is None
        else f"{held.tiers[0].per_system:.1f}"
    )
    slow = "-" if held.slowdown_p90 is None else f"{held.slowdown_p90:.2f}"
    return (
        gpu,
        model,
        split,
        str(best.systems),
        f"{held.per_system:.1f}",
        alone,
        f"{held.hit_rate:.1%}",
        slow,
        f"{took:.0f}",
    )


def held_on(gpu: str, model: str, sessions: float, seeds: Sequence[int]) -> Iterator[str]:
    """What the fleet of an answer does with other random numbers."""
    best = best_of(**asked(gpu, model, sessions))
    if best is None:
        return
    peak = best.contender.at_peak(best.slowdown)
    for seed in seeds:
        pairs = peak.latencies_s(peak.seen(best.systems, seed=seed).summary)
        used = max((value / limit.seconds, str(limit)) for limit, value in pairs)
        yield f"{gpu} {model}, seed {seed}: {best.systems} systems, {used[0]:.1%} of {used[1]}"


def monotone(gpu: str, model: str, sessions: float) -> Iterator[str]:
    """Looser limits and more memory carry no less each; more sessions take no fewer systems."""
    by_limit = [
        best_of(**asked(gpu, model, sessions) | {"slowdown": f"p90<={limit}"})
        for limit in (1.2, 1.5, 2.0)
    ]
    by_memory = [
        best_of(**asked(gpu, model, sessions, kv_tiers=tiers)) for tiers in ("none", "host", "kvbm")
    ]
    by_load = [
        best_of(**asked(gpu, model, count)) for count in (sessions / 4, sessions, 4 * sessions)
    ]
    for name, found in (
        ("slowdown 1.2, 1.5, 2.0", by_limit),
        ("no memory, host, host and disk", by_memory),
    ):
        carried = [
            0.0 if one is None else one.rate / one.ready.trial.deployment.parallelism.gpus
            for one in found
        ]
        yield (
            f"{name}: {', '.join(f'{rate:.4f}' for rate in carried)} requests/s a GPU,"
            f" {_grows(carried)}"
        )
    systems = [0 if one is None else one.systems for one in by_load]
    yield (
        f"a quarter, all and four times the sessions: {', '.join(map(str, systems))} systems,"
        f" {_grows(systems)}"
    )


def _grows(values: Sequence[float]) -> str:
    return (
        "monotone"
        if all(one <= other * (1 + 1e-9) for one, other in pairwise(values))
        else "NOT MONOTONE"
    )


HALVED = {"precision": "fp8", "tp": "4"}
"""What the deployment of the halves is held to."""


def halves(draws: int, seed: int = 11) -> Iterator[tuple[dict[tuple[float, float], float], float]]:
    """For each of so many random halves of the recorded sessions: the logarithm of what a cell of
    one half's table is over that of the other, for the cells that both have, and the share of cells
    that are as near as their intervals say in 80 % of all halves.
    """
    import math

    import numpy as np

    best = best_of(**asked("h200", "glm-4.6", 400, **HALVED))
    if best is None:
        raise SystemExit("the question of the halves has no answer")
    recorded = best.contender.instance.recorded_sessions
    if recorded is None:
        raise SystemExit(f"{SESSIONS}: holds no sessions")
    rng = np.random.default_rng(seed)
    for _ in range(draws):
        order = rng.permutation(len(recorded))
        first, second = (_cells(best, recorded.some(order[place::2])) for place in (0, 1))
        both = [cell for cell in first if first[cell][0] and second[cell][0]]
        apart = {cell: math.log(first[cell][0] / second[cell][0]) for cell in both}
        inside = [
            abs(apart[cell]) < math.hypot(_half_width(first[cell]), _half_width(second[cell]))
            for cell in both
        ]
        yield apart, sum(inside) / len(inside)


def _half_width(cell: tuple[float, float, float]) -> float:
    import math

    _, least, most = cell
    return math.log(most / least) / 2 if least else math.inf


def _cells(best: Sized, recorded: RecordedSessions) -> dict[tuple[float, float], Any]:
    """Sessions on an instance of a deployment at each cell of the table, and between which numbers
    they are, were these the recorded sessions.
    """
    from dataclasses import replace

    from tonnage.sizing.loads.runs import Runs
    from tonnage.sizing.session_tiers import (
        FIRST_TOKENS_S,
        SLOWDOWNS,
        curve_of,
        sampling_errors,
        tier_limits,
    )

    contender, runs = best.contender, Runs()
    traffic = contender.instance.traffic
    sharing = traffic.sharing and replace(traffic.sharing, recorded=recorded)
    instance = runs.instance(contender.instance.deployment, replace(traffic, sharing=sharing))
    ready = replace(contender.ready, instance=instance)
    curve = curve_of(replace(best, contender=replace(contender, runs=runs, ready=ready)))
    errors = sampling_errors(recorded, instance)
    return {
        (slowdown, seconds): curve.between(
            best.slowdown.tightened(tier_limits(slowdown, seconds)), *errors
        )
        for slowdown, seconds in product(SLOWDOWNS, FIRST_TOKENS_S)
    }


DEPLOYED = {
    "model": "kimi-k2.5",
    "gpu": "b200",
    "precision": "int4",
    "tp": 8,
    "ep": 8,
    "engine": "vllm",
}
LANES = 16
"""Sessions at once of the replays."""


def replay() -> str:
    """CPU seconds and memory of reading and simulating the recorded requests, compilation not
    counted.
    """
    import numpy as np

    from tonnage.api.question.simulation import simulation_of
    from tonnage.formats.sessions import read_sessions
    from tonnage.simulator.kernel import warm_up
    from tonnage.simulator.simulate import run
    from tonnage.simulator.spec import spec_of

    deployment = simulation_of(
        {}, {**DEPLOYED, "isl": 9, "osl": 9, "concurrency": 1, "requests": 1}
    ).deployment
    warm_up(shares=True)
    began = time.process_time()
    sessions = read_sessions(str(SESSIONS), "trace")
    read = time.process_time()
    if sessions is None:
        raise SystemExit(f"{SESSIONS}: holds no sessions")
    fitting = sessions.within(deployment.model.max_context)
    record = run(spec_of(deployment), fitting.chosen(np.arange(len(fitting)), concurrency=LANES))
    ran, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    tokens = record.isl.sum() / 1e9
    took = (
        f"read in {read - began:.2f} CPU s, simulated in {ran - read:.2f}, {memory:.2f} GB at most"
    )
    return (
        f"Tonnage: {len(record):,} of {len(sessions.isl):,} requests fit the context, {tokens:.2f}"
        f" billion prompt tokens: {took}"
    )


THEIRS = """
import json, resource, sys, time
from importlib.metadata import version
from aisimulate.config.cli import CorePredictionConfig
from aisimulate.predict import run_prediction
from aisimulate.stack import resolve_runner_factory

config, factory = CorePredictionConfig.model_validate(json.load(sys.stdin)), resolve_runner_factory("engine")
began = time.process_time()
found = run_prediction(config, stack="engine", runner_factory=factory).summary
took, memory = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
print(f"AISimulate {version('aisimulate')}: {found['completed_requests']:,} of {found['num_requests']:,} requests in {took:.2f} CPU s, "
      f"{memory:.2f} GB at most", file=sys.stderr)
"""


def theirs(python: str) -> str:
    """The same of AISimulate, in its environment; a session names all models of its requests, which
    it asks for.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sessions.jsonl"
        with gzip.open(SESSIONS, "rt") as lines, path.open("w") as out:
            for line in lines:
                session = json.loads(line)
                session["models"] = sorted({*session["models"], *_models(session["requests"])})
                out.write(json.dumps(session) + "\n")
        split = {
            "tensor": DEPLOYED["tp"],
            "attention_data": 1,
            "moe_expert": DEPLOYED["ep"],
            "moe_tensor": 1,
        }
        engine = {
            "mode": "aggregated",
            "model": "moonshotai/Kimi-K2.5",
            "hardware": "b200_sxm",
            "backend": "vllm",
        }
        traffic = {
            "source": {"type": "trace", "paths": [str(path)], "format": "weka"},
            "load": {"type": "trace_timestamps", "agentic_lanes": LANES},
        }
        config = {
            "traffic": traffic,
            "engine": {**engine, "workers": {"aggregated": {"parallelism": split}}},
        }
        done = subprocess.run(
            [python, "-c", THEIRS],
            input=json.dumps(config),
            capture_output=True,
            text=True,
            check=False,
        )
    return (done.stderr.strip().splitlines() or ["AISimulate said nothing"])[-1]


def _models(requests: list[dict[str, Any]]) -> set[str]:
    inside = [_models(one["requests"]) for one in requests if one["type"] == "subagent"]
    return {one["model"] for one in requests if one.get("model")}.union(*inside)


def main() -> None:
    """Run as asked."""
    parser = argparse.ArgumentParser(
        description="Recorded sessions of an agent, sized on nine pairs of GPU and model"
    )
    parser.add_argument("--sessions", type=float, default=400.0)
    parser.add_argument("--only", default="", help="one pair, such as h200/glm-4.6")
    parser.add_argument("--seeds", default="")
    parser.add_argument("--monotone", action="store_true")
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    parser.add_argument("--halves", type=int, default=0, help="draws of half of the sessions")
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("--aisimulate", default="", help="a Python that has AISimulate")
    args = parser.parse_args()
    pairs = [pair for pair in product(GPUS, MODELS) if args.only in ("", "/".join(pair))]
    if args.replay:
        print(replay())
        print(theirs(args.aisimulate) if args.aisimulate else "")
        return
    if args.halves:
        medians, shares, asked_cell = [], [], []
        for apart, inside in halves(args.halves):
            medians.append(statistics.median(map(abs, apart.values())))
            shares.append(inside)
            asked_cell.append(abs(apart[1.5, 10.0]))
            print(
                f"median cell {medians[-1]:.1%} apart, limits of the question {asked_cell[-1]:.1%},"
                f" {inside:.0%} of cells within their intervals",
                flush=True,
            )
        print(
            f"median of {args.halves}: {statistics.median(medians):.1%}, limits of the question"
            f" {statistics.median(asked_cell):.1%}; {statistics.mean(shares):.0%} within"
        )
        return
    if args.monotone:
        for line in monotone(*pairs[0], args.sessions):
            print(line)
        return
    if args.seeds:
        for pair in pairs:
            for line in held_on(
                *pair, args.sessions, [int(seed) for seed in args.seeds.split(",")]
            ):
                print(line, flush=True)
        return
    rows = []
    for pair in pairs:
        rows.append(row(*pair, args.sessions))
        print(*rows[-1], sep=" | ", flush=True)
    if args.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        table = "".join(
            f"| {' | '.join(cells)} |\n" for cells in (HEAD, ("---",) * len(HEAD), *rows)
        )
        PAGE.write_text(before + BEGIN + table + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
