"""``tonnage watch``: a running deployment beside its plan, as a table that follows it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tonnage import api
from tonnage.cli.flags import flags_of, given, with_flags
from tonnage.cli.printing import print_answer, say
from tonnage.cli.progress import compile_if_needed
from tonnage.errors import InputError, option
from tonnage.gateway.settings import GatewayArguments, Settings
from tonnage.report.document import Table as Cells
from tonnage.report.verified import verified, watched
from tonnage.report.writers.terminal import terminal_block
from tonnage.spec.typed_values import about

if TYPE_CHECKING:
    from tonnage.watch.deployment_status import Watched


@with_flags()
def watch(
    *url: str,
    plan: Path,
    every: str = "10s",
    gpu_metrics: list[str] | None = None,
    coefficients: Path | None = None,
    once: bool = False,
    json: bool = False,
) -> None:
    """Follow a running deployment: its load, queue, latencies, failures and GPUs beside what its
    plan predicts for the same load.

    The metrics of the engines are read twice, and what lies between is shown, with the load that is
    left by simulation.

    Args:
        url: The instances, such as 127.0.0.1:8000, or the gateway before them, whose backends are
            then watched.
        plan: File with the plan's JSON, which tonnage size wrote with --output.
        every: Time between two looks, such as 10s; each look is over that stretch.
        gpu_metrics: A page of NVIDIA's DCGM exporter; may be repeated.
        coefficients: File that calibrate wrote, in place of the calibration that the plan was made
            with.
        once: Look once and end.
        json: Print one JSON object for each look, one a line; with --once one that is indented.
    """
    compile_if_needed()
    looks = api.watch(
        url, plan=plan, every=every, gpu_metrics=gpu_metrics or (), coefficients=coefficients
    )
    if once:
        look = next(looks)
        print_answer(lambda: watched(look), look.to_json, json=json)
    elif json:
        for look in looks:
            print(dumps(look.to_json(), ensure_ascii=False), flush=True)
    elif not sys.stdout.isatty():
        raise InputError(
            f"{option('once')}: the table that follows a deployment needs a terminal; add --once or"
            " --json"
        )
    else:
        with Live("Reading for the first time …", auto_refresh=False) as live:
            for look in looks:
                live.update(_drawn(look), refresh=True)


def _drawn(look: Watched) -> RenderableType:
    """The document of a look with its tables drawn by rich; a broken limit is red, a measurement
    outside its interval yellow.
    """
    document = watched(look)
    parts: list[RenderableType] = [Text(document.title, style="bold")]
    for section in document.sections:
        for block in section.blocks:
            if not isinstance(block, Cells):
                parts.append(
                    Text(terminal_block(block), style="yellow" if section.key == "verdict" else "")
                )
                continue
            table = Table(box=None, pad_edge=False)
            for name, numeric in zip(block.header, block.numeric, strict=True):
                table.add_column(name, justify="right" if numeric else "left")
            for row in block.rows:
                style = (
                    "red"
                    if "BROKEN" in row[-1]
                    else "yellow"
                    if row[-1].startswith(("above", "below"))
                    else ""
                )
                table.add_row(*row, style=style)
            parts.append(table)
    return Group(*parts)


NOT_AS_PLANNED = 3


@with_flags()
def verify(
    *url: str,
    plan: Path,
    seconds: float = 120,
    coefficients: Path | None = None,
    json: bool = False,
) -> int:
    """Ask running engines whether they run what their plan counts on, then send them the plan's
    load.

    Asked are /v1/models, /version, /server_info and the metrics: engine and version, model,
    context, degrees, number format, slots, step tokens, chunked prefill, KV cache and its blocks,
    prefix cache, number of instances. The load is that of the plan's peak, or the share of it that
    these instances get. The verdict is "as planned", or each difference with how far it is off; the
    exit code is then 3.

    Args:
        url: The instances, such as 127.0.0.1:8000, or the gateway before them, whose backends are
            then asked.
        plan: File with the plan's JSON, which tonnage size wrote with --output.
        seconds: How long the plan's load is sent; 0 sends none.
        coefficients: File that calibrate wrote, in place of the calibration that the plan was made
            with.
        json: Print one JSON object.
    """
    compile_if_needed()
    verification = api.verify(url, plan=plan, seconds=seconds, coefficients=coefficients)
    print_answer(
        lambda: verified(verification.instances, verification.findings, verification.load),
        verification.to_json,
        json=json,
    )
    return NOT_AS_PLANNED if verification.findings else 0


def demo(
    *,
    seconds: Annotated[
        float, Parameter(help="Seconds under load; starting, comparing and ending take some more.")
    ] = 30.0,
    seed: Annotated[int, Parameter(help="Seed of the arrivals.")] = 0,
    json: Annotated[bool, Parameter(help="Print one JSON object.")] = False,
) -> None:
    """Serve four simulated H100 behind the gateway, measure them, kill one under load, and compare
    with the prediction.

    Nothing is downloaded, nothing listens beyond this machine, and every process that was started
    has ended when the command does.
    """
    from tonnage.cli.bench import live_view
    from tonnage.report.measured import demonstrated
    from tonnage.simulator.kernel import warm_up

    compile_if_needed()
    warm_up()
    demonstration = api.demo(seconds=seconds, seed=seed, announce=say, watch=live_view)
    print_answer(lambda: demonstrated(demonstration), demonstration.to_json, json=json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Options of where the settings are, and which program balances."""

    config: Path | None = about("YAML file with all of this; flags override it.")
    proxy: str | None = about(
        "Program that balances: haproxy (the default where it is installed and has the policy),"
        " vllm-router, or embedded, which needs nothing and is for one machine."
    )


FLAGS = (
    *(
        replace(flag, name=flag.name.replace("backends", "backend"))
        for flag in flags_of(GatewayArguments)
    ),
    *flags_of(Place),
)


@with_flags(*FLAGS)
def gateway(**asked: Any) -> None:
    """Balance requests between instances, by HAProxy where it is installed, else by the simulator's
    routers in this process.

    A request goes to another instance where no connection can be made; one that was sent is never
    sent again. The embedded gateway ends on Ctrl-C or SIGTERM, when running requests have ended or
    after 10 seconds.
    """
    from tonnage.gateway.server import serve

    config, proxy = asked.pop("config", None), asked.pop("proxy", None)
    values = {
        "backends" if name == "backend" else name: value for name, value in given(asked).items()
    }
    settings = (
        api.gateway_settings(**values) if config is None else api.gateway_from(config, values)
    )
    # in place of this process: signals reach the proxy, without one in between
    if command := api.proxy_command(proxy, settings):
        say(f"{os.path.basename(command[0])} takes over: {' '.join(command)}")
        os.execv(command[0], command)
    serve(settings, lambda port, faults: _report_start(settings, port, faults))


def _report_start(settings: Settings, port: int, faults: Mapping[str, str]) -> None:
    kind = "backend" if len(faults) == 1 else "backends"
    up = sum(not fault for fault in faults.values())
    say(
        f"{settings.policy} before {len(faults)} {kind}, {up} up, on"
        f" http://{settings.host}:{port}/v1, by the embedded gateway"
    )
    for name, fault in faults.items():
        if fault:
            say(f"{name} is not up: {fault}")
