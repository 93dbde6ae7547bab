"""A service of models that are not LLMs, for ``tonnage simulate`` and ``tonnage size``: its file
says everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tonnage.cli.flags import refuse
from tonnage.cli.printing import print_answer, write_page
from tonnage.errors import DONE, NO_ANSWER

SIMULATED = ("requests", "seed", "json", "concurrency", "request_rate")
SIZED = ("requests", "seed", "json", "report")  # flags that a service takes with its file


def is_service(scenario: Path | None) -> bool:
    """Whether the file holds a service and no question about an LLM."""
    if scenario is None:
        return False
    from tonnage.spec.service import is_service as found

    return found(scenario)


def simulate_service(path: Path, flags: Mapping[str, Any], *, json: bool) -> None:
    """Print what a service does under its traffic, or under each of several loads."""
    from tonnage import api
    from tonnage.report.services import served, swept
    from tonnage.results.services import ServiceSweep

    refuse_given(flags, SIMULATED)
    result = api.simulate_service(
        path, **{name: value for name, value in flags.items() if name in SIMULATED}
    )
    print_answer(
        lambda: swept(result) if isinstance(result, ServiceSweep) else served(result),
        result.to_json,
        json=json,
    )


def size_service(path: Path, flags: Mapping[str, Any], *, json: bool) -> int:
    """Print how many servers a service needs; the exit code."""
    from tonnage import api
    from tonnage.report.services import sized

    refuse_given(flags, SIZED)
    requests, page = flags.get("requests"), flags.get("report")
    answer = api.size_servers(
        path,
        requests=None if requests is None else int(requests),
        seed=flags.get("seed"),
        curve=page is not None,
    )
    write_page(page, lambda: sized(answer))
    print_answer(lambda: sized(answer), answer.to_json, json=json)
    return DONE if answer.servers else NO_ANSWER


def is_inference(measured: Sequence[Path]) -> bool:
    """Whether measurements are of models that are not LLMs."""
    folders = [path for path in measured if path.is_dir()]
    if not folders:
        return False
    from tonnage.evidence.services import is_inference as found

    return any(map(found, folders))


def calibrate_service(
    measured: Sequence[Path], output: Path | None, flags: Mapping[str, Any], *, json: bool
) -> None:
    """Write the service file that measured inferences make, and print how well it predicts their
    loads.
    """
    from tonnage import api
    from tonnage.report.services import calibrated

    refuse_given(flags, ("include_invalid",))
    service_calibration = api.calibrate_service(
        measured, output=output, include_invalid=bool(flags.get("include_invalid"))
    )
    print_answer(
        lambda: calibrated(service_calibration, output), service_calibration.to_json, json=json
    )


def refuse_given(flags: Mapping[str, Any], accepted: tuple[str, ...] = ()) -> None:
    """Refuse flags that a service does not take. Raises InputError: naming the first."""
    unsupported = {name: value for name, value in flags.items() if name not in accepted}
    refuse(
        unsupported,
        "a service of models that are not LLMs has no such setting; its file says everything",
    )
