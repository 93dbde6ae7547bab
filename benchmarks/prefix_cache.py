"""How fast the compiled loop is where prompts share something, beside where they share nothing, in
CPU seconds of one core.

    ./benchmark prefix_cache [--requests N]

Llama-2-7B on an A100 under vLLM at 4 requests/s: 512 tokens in and 128 out; and conversations of
four turns over ten system prompts of 500 tokens, 100 tokens in and 128 out a turn, 30 s apart. The
first run on a machine compiles both loops, which is not counted.
"""

from __future__ import annotations

import argparse
import time

from tonnage.api.question.deployment import deployment_of
from tonnage.perf.memory import memory_plan
from tonnage.perf.terms import step_model
from tonnage.simulator.kernel import run, warm_up
from tonnage.spec.sessions import Pause, Sessions
from tonnage.spec.workload import Lengths, OpenLoop, Workload

CHATS = Sessions(
    prefix_tokens=500,
    prefixes=10,
    turns=Lengths(mean=4.0),
    think=Pause(mean_s=30.0, exponential=True),
)


def main() -> None:
    """Print a line for each loop."""
    parser = argparse.ArgumentParser(
        description="the compiled loop with and without a prefix cache"
    )
    parser.add_argument("--requests", type=int, default=200_000, help="requests of each run")
    count = parser.parse_args().requests
    d = deployment_of(
        model="llama-2-7b", gpu="a100-sxm-80gb", precision="fp16", tp=1, engine="vllm"
    )
    memory, step = memory_plan(d), step_model(d)
    for title, isl, sessions in (("nothing shared", 512.0, None), ("conversations", 100.0, CHATS)):
        warm_up(shares=sessions is not None)
        workload = Workload(
            isl=Lengths(mean=isl),
            osl=Lengths(mean=128.0),
            arrivals=OpenLoop(rate=4.0),
            requests=count,
            sessions=sessions,
        )
        trace = workload.trace(0)
        began = time.process_time()
        record = run(trace, step, d.knobs, memory.blocks)
        took = time.process_time() - began
        found = record.cached_tokens.sum() / record.isl.sum()
        print(
            f"{title:15} {count / took:12,.0f} requests per CPU second, {found:.1%} of the prompt"
            " tokens found"
        )


if __name__ == "__main__":
    main()
