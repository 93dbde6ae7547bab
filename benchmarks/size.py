"""CPU seconds, and seconds on the clock, of a few questions to ``tonnage size``, compilation not
counted.

    ./benchmark size [--baseline PATH_TO_ANOTHER_CHECKOUT] [--rounds 3] [--only WORDS]

With ``--baseline`` both checkouts take turns in processes of their own, and the last column is new
over old. The CPU seconds are those of the whole command with all its threads; the clock says how
long a user waits, and means something on an idle machine alone.

The first four are the targets of the search on two idle cores: 2 s for the default question, 5 s
for mixtures of experts over four GPU types, 10 s at prompts of 100,000 tokens. The last six are
kinds of questions of 2026, for which 20 CPU seconds are the target.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.interleaved import measure, print_table

OVER_FOUR = (
    "--gpu h100,h200,b200,mi300x --isl 2000 --osl 500 --peak-rps 50 --ttft p95<=1s --tpot p95<=40ms"
)

QUESTIONS = {
    "default question": (
        "--model llama-3.1-8b --isl 2000 --osl 200 --peak-rps 300 --ttft p95<=500ms --tpot"
        " p95<=50ms"
    ),
    "MoE over four GPU types": f"--model gpt-oss-120b {OVER_FOUR}",
    "larger MoE over four GPU types": f"--model qwen3-235b-a22b {OVER_FOUR}",
    "100k tokens": "--model llama-3.1-70b --isl 100000 --osl 500 --peak-rps 5 --ttft p95<=20s",
    "one deployment": (
        "--model llama-3-8b --gpu h100-sxm-80gb --precision fp8 --tp 1 --engine vllm --isl 1000"
        " --osl 200 --peak-rps 100 --ttft p95<=500ms"
    ),
    "one GPU, every engine": (
        "--model llama-3.1-8b --gpu h100 --precision fp8 --isl 2000 --osl 200 --peak-rps 300 --ttft"
        " p95<=500ms --tpot p95<=50ms"
    ),
    "sglang with speculation": (
        "--model llama-3.1-8b --gpu h100 --precision fp8 --tp 1 --engine sglang --isl 1000 --osl"
        " 300 --peak-rps 20 --itl p99<=100ms --speculation"
    ),
    "closed loop": (
        "--model llama-3-8b --gpu h100-sxm-80gb --precision fp8 --tp 1 --isl 2000 --osl 200"
        " --engine nim-2024 --load closed --peak-rps 199.77 --ttft mean<=300ms"
    ),
    "conversations": (
        "--model qwen3-32b --isl 500 --osl 300 --peak-rps 5 --turns 6 --think-time 20s"
        " --shared-prefix 1500 --engine vllm"
    ),
    "a shared prompt": (
        "--model llama-3.1-8b --isl 3000 --osl 300 --peak-rps 50 --shared-prefix 2000"
    ),
    "two pools": (
        "--model deepseek-r1 --gpu gb200 --disaggregated --isl 4000 --osl 1000 --peak-rps 20 --ttft"
        " p95<=2s --tpot p95<=50ms"
    ),
    "tool calls": (
        "--model glm-5.3 --gpu b300 --isl 1000 --osl 300 --peak-rps 5 --turns 8 --tool-calls 3"
        " --ttft p95<=3s --tpot p95<=50ms"
    ),
    "wide MoE over three GPU types": (
        "--model deepseek-v3.2 --gpu h200,b200,b300 --isl 4000 --osl 1000 --peak-rps 20 --ttft"
        " p95<=2s --tpot p95<=50ms"
    ),
    "a trillion weights": (
        "--model kimi-k2 --isl 8000 --osl 800 --peak-rps 5 --ttft p95<=3s --tpot p95<=40ms"
    ),
}
GUESSES = "eagle k=3 acceptance=0.7"


def ask(question: str) -> tuple[float, float]:
    """CPU seconds of one command, and seconds on the clock; a question with no acceptable answer is
    one too (exit code 3).
    """
    words = question.split()
    words += [GUESSES] if words[-1] == "--speculation" else []
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "tonnage", "size", *words, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 3):
        raise SystemExit(f"tonnage size {' '.join(words)}: {done.stderr}")
    waited, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, waited


def main() -> None:
    """Run as asked, or as a child of such a run."""
    parser = argparse.ArgumentParser(description="CPU seconds of questions to tonnage size")
    parser.add_argument(
        "--baseline", type=Path, help="another checkout to compare with, run in turn"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="questions whose name holds these words")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        seconds = {
            name: ask(question) for name, question in QUESTIONS.items() if asked.only in name
        }
        clock = {f"{name}, on the clock": waited for name, (_, waited) in seconds.items()}
        print(json.dumps({**{name: busy for name, (busy, _) in seconds.items()}, **clock}))
        return
    print_table(
        measure(Path(__file__).resolve(), asked.baseline, asked.rounds, ["--only", asked.only])
    )


if __name__ == "__main__":
    main()
