"""``tonnage serve``: the OpenAI API of a model, on simulated GPUs, on this machine's CPU, or by an
engine on its GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from tonnage import api
from tonnage.cli.flags import flags_of, given, with_flags
from tonnage.cli.printing import print_answer, say
from tonnage.errors import InputError
from tonnage.report.facts import listing, starting
from tonnage.serve.arguments import (
    FleetArguments,
    OpenvinoArguments,
    ServedArguments,
    SimulatedArguments,
)
from tonnage.spec.typed_values import about

if TYPE_CHECKING:
    from tonnage.serve.server import Servable


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """Instances in their own processes."""

    processes: bool | None = about(
        "Run each instance in a process of its own, behind the gateway.", negative=False
    )
    logs: Path | None = about("Folder for what these processes print.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """Flags of an engine that is started on this machine."""

    checkpoint: str | None = about(
        "Checkpoint that the engine loads, a folder or owner/name (default: the published one, in"
        " its format)."
    )
    drafter: str | None = about("Checkpoint of the drafter, for a plan with speculative decoding.")
    profile: str | None = about(
        "Profile of --list-profiles to run (default: the first, by NIM's order)."
    )
    gpus: str | None = about(
        "Numbers of the GPUs to use, such as 0,1 (default: those that nobody uses)."
    )
    engine_path: Path | None = about(
        "Folder of the engine's environment (default: its program is looked for along the PATH)."
    )
    engine_env: list[str] | None = about(
        "A further variable of the engine, NAME=VALUE; may be repeated.", negative=False
    )
    machine: Path | None = about(
        "YAML file that describes a machine, in place of this one; for --list-profiles and"
        " --dry-run."
    )
    list_profiles: bool | None = about(
        "Print every way to run the model on the machine, and whether it can.", negative=False
    )
    dry_run: bool | None = about(
        "Print the machine, the choice and every command, and start nothing.", negative=False
    )
    json: bool | None = about(
        "With --list-profiles or --dry-run, print one JSON object.", negative=False
    )


ENGINE = (
    "What answers: simulated; openvino for a real model on this machine's CPU (the extra openvino);"
    " or an engine that is started on its GPUs: vllm, tensorrt-llm, sglang, triton, nim, or auto"
    " for the first of them that runs the model."
)
KINDS: dict[type, Group | None] = {
    ServedArguments: None,
    FleetArguments: Group("Instances", sort_key=1),
    Apart: Group("Instances", sort_key=1),
    SimulatedArguments: Group("Simulated engine", sort_key=2),
    OpenvinoArguments: Group("Real model", sort_key=3),
    Launched: Group("Engine on this machine", sort_key=4),
}
FLAGS = tuple(flag for kind, group in KINDS.items() for flag in flags_of(kind, group))
FRONT = ("router", "host", "port", "logs")
SHOWN = ("machine", "list_profiles", "dry_run", "json")
Engine = Literal["simulated", "openvino", "auto", "vllm", "tensorrt-llm", "sglang", "triton", "nim"]


def _of(*kinds: type) -> set[str]:
    return {field.name for kind in kinds for field in fields(kind)}


@with_flags(*FLAGS)
def serve(
    *,
    engine: Annotated[Engine, Parameter(help=ENGINE, show_default=False)] = "simulated",
    **asked: Any,
) -> None:
    """Serve the OpenAI API of a model on GPUs that are not there, by a real engine on this
    machine's, or on the CPU.

    Chat completions, completions (texts or token ids), models, health and Prometheus metrics by
    vLLM's names. The tokens of a simulated engine arrive when the simulator makes them, and its
    words mean nothing. Ends on Ctrl-C or SIGTERM, when running streams have ended or after 10
    seconds.
    """
    flags = given(asked)
    _check_flags(engine, flags)
    if engine not in ("simulated", "openvino"):
        _launched(engine, flags)
        return
    apart = bool(flags.pop("processes", None)) or (
        engine == "openvino" and flags.get("instances", 1) > 1
    )
    logs = flags.pop("logs", None)
    if apart:
        _apart(engine, flags, logs)
        return
    if logs is not None:
        raise InputError("--logs: belongs to instances in processes of their own; add --processes")
    _together(engine, flags)


def _check_flags(engine: str, flags: dict[str, Any]) -> None:
    from tonnage.api.running.serve_engine import EngineAsked

    flags_by_engine = {
        "simulated": _of(SimulatedArguments, Apart),
        "openvino": _of(OpenvinoArguments, FleetArguments, Apart),
    }
    launched = _of(EngineAsked) | _of(Launched) | {*FRONT}
    for name in flags:
        if name not in flags_by_engine.get(engine, launched):
            raise InputError(
                f"--{name.replace('_', '-')}: says nothing to --engine {engine}; leave it out"
            )


def _launched(engine: str, flags: dict[str, Any]) -> None:
    front = {name: flags.pop(name) for name in FRONT if name in flags}
    shown = {name: flags.pop(name) for name in SHOWN if name in flags}
    engine_asked = api.EngineAsked(engine=engine, **flags)
    listed, dry, json = (bool(shown.get(name)) for name in SHOWN[1:])
    if not (listed or dry) and (json or "machine" in shown):
        raise InputError(
            f"--{'json' if json else 'machine'}: belongs to --list-profiles or --dry-run; add one"
            " of them"
        )
    machine = api.this_machine(shown.get("machine"))
    if listed:
        profiles = api.machine_profiles(engine_asked, machine)
        print_answer(
            lambda: listing(machine, profiles),
            lambda: {
                "machine": machine.to_json(),
                "profiles": [profile.to_json() for profile in profiles],
            },
            json=json,
        )
        return
    start = api.prepare_engine(engine_asked, machine, dry=dry)
    if dry:
        print_answer(
            lambda: starting(machine, start),
            lambda: {"machine": machine.to_json(), **start.to_json()},
            json=json,
        )
        return
    say(start.why)
    api.serve_engine(start, **front, announce=say)


def _together(engine: str, flags: dict[str, Any]) -> None:
    from tonnage.serve.server import serve as run

    served: Servable
    if engine == "openvino":
        flags.pop("instances", None)
        if "router" in flags:
            raise InputError("--router: there is one instance; add --instances")
        served = api.serve_openvino(**flags)
        what = f"{served.model} by OpenVINO"
    else:
        served = api.serve_simulated(**flags)
        kind = "instance" if served.instances == 1 else f"instances behind {served.router}"
        what = f"{served.instances} simulated {kind} of {served.model}"
        if served.rank_ports:
            what = (
                f"{len(served.endpoints)} simulated engines of {served.model}, on a port each, the"
                " first"
            )
    run(served, lambda port: say(f"{what} on http://{served.host}:{port}/v1"))


def _apart(engine: str, flags: dict[str, Any], logs: Path | None) -> None:
    """Run every instance in a separate process, with the flags that describe one instance."""
    if "plan" in flags and "instances" not in flags:
        from tonnage.api.running.plans import planned

        flags["instances"] = planned(
            flags["plan"], coefficients=flags.get("coefficients")
        ).instances
    fleet = {
        name: flags.pop(name) for name in ("instances", "router", "host", "port") if name in flags
    }
    faults = flags.pop("fault", ())
    words = ["--engine", engine]
    if "plan" in flags:
        words += ["--instances", "1"]
    for name, value in flags.items():
        flag = name.replace("_", "-")
        words += (
            [f"--{flag}" if value else f"--no-{flag}"]
            if isinstance(value, bool)
            else [f"--{flag}", str(value)]
        )
    api.serve_apart(words, faults=faults, **fleet, logs=logs, announce=say)
