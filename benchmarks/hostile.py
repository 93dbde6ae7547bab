"""What a gateway holds and how it answers while clients idle, drip, send too much, smuggle and leave.

    ./benchmark hostile [--idle 10000]

About 30 seconds. The backend is the exact server of bench selftest; the gateway is a process of its own, and memory is its resident set.
"""

from __future__ import annotations

import argparse
import asyncio

from tests.gateway.hostile import gateway_process, withstand
from tonnage.bench.exact_server import Schedule, exact_server


def main() -> None:
    """Print what it came through."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=int, default=10_000)
    asked = parser.parse_args()
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.005), seconds=300) as url, gateway_process("--backend", url) as (pid, port):
        found = asyncio.run(withstand(pid, port, asked.idle))
    per_connection = 1e3 * (found.during.memory_mb - found.before.memory_mb) / max(found.idle, 1)
    print(f"{found.idle:,} idle connections: {found.before.memory_mb:.0f} MB before, {found.during.memory_mb:.0f} MB with them "
          f"({per_connection:.1f} kB each), {found.after.memory_mb:.0f} MB when all had gone")  # fmt: skip
    print(f"descriptors: {found.before.descriptors:,}, {found.during.descriptors:,}, {found.after.descriptors:,}")
    print(f"a short request: {found.alone_ms:.1f} ms alone, {found.crowded_ms:.1f} ms beside them")
    print(f"200 that drip: statuses {dict(found.dripping)}; oversize: {dict(found.oversize)}; smuggled: {dict(found.smuggled)}")
    print(f"of these, backends were sent {found.reached}; of 300 that left, {found.left} still ran five seconds later")


if __name__ == "__main__":
    main()
