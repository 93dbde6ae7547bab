"""``tonnage verify``: running engines next to what their plan counts on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tonnage.cli.printing import print_answer
from tonnage.cli.progress import compile_if_needed

NOT_AS_PLANNED = 3


def verify(
    *url: str,
    plan: Path,
    seconds: float = 120,
    coefficients: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Ask running engines whether they run what their plan counts on, then send them the plan's load.

    Asked are /v1/models, /version, /server_info and the metrics: engine and version, model, context, degrees, number format, slots, step
    tokens, chunked prefill, KV cache and its blocks, prefix cache, number of instances. The load is that of the plan's peak, or the share
    of it that these instances get. The verdict is "as planned", or each difference with how far it is off; the exit code is then 3.

    Parameters
    ----------
    url
        The instances, such as 127.0.0.1:8000, or the gateway before them, whose backends are then asked.
    plan
        File with the plan's JSON, which tonnage size wrote with --output.
    seconds
        How long the plan's load is sent; 0 sends none.
    coefficients
        File that calibrate wrote, in place of the calibration that the plan was made with.
    json
        Print one JSON object.
    """
    from tonnage import api
    from tonnage.report.verified import verified

    compile_if_needed()
    found = api.verify(url, plan=plan, seconds=seconds, coefficients=coefficients)
    print_answer(lambda: verified(found.instances, found.findings, found.load), found.to_json, json=json)
    return NOT_AS_PLANNED if found.findings else 0
