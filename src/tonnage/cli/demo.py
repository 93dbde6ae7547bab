"""``tonnage demo``: the whole chain on GPUs that you do not have, in under a minute."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from tonnage.cli.printing import print_answer
from tonnage.cli.progress import compile_if_needed


def demo(
    *,
    seconds: Annotated[float, Parameter(help="Seconds under load; starting, comparing and ending take some more.")] = 30.0,
    seed: Annotated[int, Parameter(help="Seed of the arrivals.")] = 0,
    json: Annotated[bool, Parameter(help="Print one JSON object.", negative="")] = False,
) -> None:
    """Serve four simulated H100 behind the gateway, measure them, kill one under load, and compare with the prediction.

    Nothing is downloaded, nothing listens beyond this machine, and every process that was started has ended when the command does.
    """
    from tonnage import api
    from tonnage.cli.live_view import live_view
    from tonnage.report.measured import demonstrated
    from tonnage.simulator.kernel import warm_up

    compile_if_needed()
    warm_up()
    found = api.demo(seconds=seconds, seed=seed, told=_told, watch=live_view)
    print_answer(lambda: demonstrated(found), found.to_json, json=json)


def _told(line: str) -> None:
    print(f"tonnage: {line}", file=sys.stderr, flush=True)
