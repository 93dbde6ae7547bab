"""CPU time that a simulated server takes for a token: of words, of calls and JSON, from many
streams at once; and against another checkout.

    ./benchmark served_cpu                                     200 streams of each kind, three rounds
    ./benchmark served_cpu --against ../before                 the same streams from that checkout's src as well, by turns
    ./benchmark served_cpu --against ../before --only words    from one that has neither calls nor JSON

User and system seconds of the server's process between two reads of /proc, divided by the tokens
that its usage counts; the median of the rounds. What the clients take is not in it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MODEL = "llama-3.1-8b"
OSL = 200
FORM = {
    "type": "object",
    "properties": {
        "place": {"enum": ["Oslo", "Rome"]},
        "days": {
            "type": "array",
            "items": {"type": "integer", "minimum": 1, "maximum": 31},
            "minItems": 1,
            "maxItems": 5,
        },
        "note": {"type": "string", "maxLength": 40},
    },
    "required": ["place", "days", "note"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": FORM}}
SAYS = {"messages": [{"role": "user", "content": "tell a tale"}], "max_tokens": OSL}
KINDS: dict[str, dict[str, Any]] = {
    "words": {**SAYS, "ignore_eos": True},
    "calls": {**SAYS, "tools": [TOOL], "tool_choice": "required"},
    "JSON": {
        **SAYS,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": FORM}},
    },
}


@contextmanager
def serving(checkout: Path) -> Iterator[tuple[int, int]]:
    """The server of a checkout: its process and its port."""
    command = [
        sys.executable,
        "-m",
        "tonnage",
        "serve",
        "--model",
        MODEL,
        "--speed",
        "4",
        "--port",
        "0",
    ]
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=checkout, env=environment
    ) as process:
        try:
            address = next(line.split()[-1] for line in process.stderr or () if "http://" in line)
            yield process.pid, int(address.removesuffix("/v1").rpartition(":")[2])
        finally:
            process.terminate()


def cpu_s(process: int) -> float:
    """Seconds that a process has computed."""
    user, system = (
        Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
    )
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def tokens(port: int, body: dict[str, Any]) -> int:
    """Output tokens of a stream, by its usage."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    asked = {**body, "model": MODEL, "stream": True, "stream_options": {"include_usage": True}}
    connection.request(
        "POST", "/v1/chat/completions", json.dumps(asked), {"content-type": "application/json"}
    )
    events = connection.getresponse().read().decode().split("\n\n")
    connection.close()
    return int(json.loads(events[-3].removeprefix("data: "))["usage"]["completion_tokens"])


def per_token_us(checkout: Path, body: dict[str, Any], streams: int) -> float:
    """Microseconds of CPU time for a token, after some streams that warm the server up."""
    with serving(checkout) as (process, port), ThreadPoolExecutor(streams) as many:
        list(many.map(lambda i: tokens(port, {**body, "seed": i}), range(8)))
        before = cpu_s(process)
        count = sum(many.map(lambda i: tokens(port, {**body, "seed": i}), range(streams)))
        return 1e6 * (cpu_s(process) - before) / count


def main() -> None:
    """Print a line for each kind."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=200, help="at once")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median is printed")
    parser.add_argument(
        "--against", type=Path, help="another checkout, such as a git worktree of an earlier commit"
    )
    parser.add_argument("--only", choices=list(KINDS), help="one kind")
    asked = parser.parse_args()
    checkouts = {"": ROOT, **({"earlier": asked.against.resolve()} if asked.against else {})}
    for kind, body in KINDS.items():
        if asked.only not in (None, kind):
            continue
        found: dict[str, list[float]] = {name: [] for name in checkouts}
        for _ in range(asked.rounds):
            for name, seen in found.items():
                seen.append(per_token_us(checkouts[name], body, asked.streams))
        medians = {name: statistics.median(seen) for name, seen in found.items()}
        line = (
            f"{kind:<6} {medians['']:6.0f} µs of CPU time per token ({asked.streams} streams at"
            " once)"
        )
        if "earlier" in medians:
            line += (
                f"; earlier {medians['earlier']:.0f} µs:"
                f" {100 * (medians[''] / medians['earlier'] - 1):+.0f} %"
            )
        print(line, flush=True)


if __name__ == "__main__":
    main()
