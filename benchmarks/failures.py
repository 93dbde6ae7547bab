"""One of three simulated workers, a process of its own, is killed or frozen under load behind the
gateway: what became of every request.

    ./benchmark failures                   both
    ./benchmark failures --seconds 30      with so much load before and after

24 clients stream 50 tokens each in a closed loop, and the workers take turns. A frozen worker (kill
-STOP) goes on after six seconds; a killed one is started again by its supervisor. The gateway cuts
a stream that is silent for three seconds (--idle-timeout 3).
"""

from __future__ import annotations

import argparse
import signal
import tempfile
from pathlib import Path

from tests.gateway.failing import fail_one
from tonnage.simulator.kernel import warm_up


def main() -> None:
    """Print what clients saw beside what the gateway counted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    asked = parser.parse_args()
    warm_up()
    for name, number in (("killed", signal.SIGKILL), ("frozen", signal.SIGSTOP)):
        with tempfile.TemporaryDirectory() as logs:
            found = fail_one(Path(logs), number, before_s=asked.seconds, after_s=asked.seconds)
        once = (
            found.counted["ok"] == found.seen["whole"]
            and found.counted["cut"] == found.seen["cut"]
            and not found.left
        )
        print(f"{name}: {found.asked:,} requests; clients saw {dict(found.seen)}")
        print(
            f"  gateway counted { ({k: v for k, v in found.counted.items() if v}) },"
            f" {found.retries} retries, {found.left} left"
        )
        print(
            f"  each counted once: {'yes' if once else 'NO'}; back {found.back_s:.2f} s after its"
            " return"
        )


if __name__ == "__main__":
    main()
