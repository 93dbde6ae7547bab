"""The Python interface: ``tonnage.size``, ``simulate``, ``score`` and ``calibrate``, and what the
command needs next to them.

Each function takes what the command of the same name takes, with the same meaning, and returns
values instead of printing them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tonnage.spec.model_hubs import look_also

if TYPE_CHECKING:
    from tonnage.api.compare import describe_workload, fit_workload
    from tonnage.api.compression import compress
    from tonnage.api.evidence import calibrate, score, score_models, several_models
    from tonnage.api.facts import (
        MemoryReport,
        PrecisionReport,
        catalog,
        lesson,
        lesson_sweep,
        memory,
        precisions,
    )
    from tonnage.api.grids import read_grid, sweep
    from tonnage.api.question.arguments import check_given, slo
    from tonnage.api.question.classes import by_class
    from tonnage.api.question.deployment import deployment_of
    from tonnage.api.question.objectives import prices_of
    from tonnage.api.question.simulation import simulation_of
    from tonnage.api.question.sweeps import simulations_of
    from tonnage.api.running.demo import demo, rehearse
    from tonnage.api.running.deploy import deploy, verify, verify_folder, watch
    from tonnage.api.running.gateway import (
        gateway_from,
        gateway_settings,
        planned_backends,
        proxy_command,
    )
    from tonnage.api.running.processes import serve_apart, served
    from tonnage.api.running.serve import serve_openvino, serve_simulated
    from tonnage.api.running.serve_engine import (
        EngineAsked,
        machine_profiles,
        prepare_engine,
        serve_engine,
        this_machine,
    )
    from tonnage.api.services import (
        calibrate_service,
        deploy_service,
        simulate_service,
        size_servers,
    )
    from tonnage.api.simulation import (
        answers_soon,
        check_timeline,
        loop_asked,
        run_timeline,
        simulate,
        simulate_sweep,
        simulated,
        write_timeline,
    )
    from tonnage.api.sizing import (
        Asked,
        answer,
        ask,
        size,
        size_measured,
        size_models,
        size_use_cases,
    )
    from tonnage.report.notebook import figures, plot
    from tonnage.report.simulated import lesson_slots
    from tonnage.simulator.simulated_run import SimulatedRun, SimulatedSweep, write_runs
    from tonnage.simulator.timeline import lesson_timeline
    from tonnage.spec.model import Model

_PLACES = {
    "api.compare": ("describe_workload", "fit_workload"),
    "api.compression": ("compress",),
    "api.evidence": ("calibrate", "score", "score_models", "several_models"),
    "api.facts": (
        "MemoryReport",
        "PrecisionReport",
        "catalog",
        "lesson",
        "lesson_sweep",
        "memory",
        "precisions",
    ),
    "api.question.objectives": ("prices_of",),
    "api.question.arguments": ("check_given", "slo"),
    "api.question.classes": ("by_class",),
    "api.question.deployment": ("deployment_of",),
    "api.question.simulation": ("simulation_of",),
    "api.question.sweeps": ("simulations_of",),
    "api.running.demo": ("demo", "rehearse"),
    "api.running.deploy": ("deploy", "verify", "verify_folder", "watch"),
    "api.running.gateway": (
        "gateway_from",
        "gateway_settings",
        "planned_backends",
        "proxy_command",
    ),
    "api.running.processes": ("serve_apart", "served"),
    "api.running.serve": ("serve_openvino", "serve_simulated"),
    "api.running.serve_engine": (
        "EngineAsked",
        "machine_profiles",
        "prepare_engine",
        "serve_engine",
        "this_machine",
    ),
    "api.services": ("calibrate_service", "deploy_service", "simulate_service", "size_servers"),
    "api.simulation": (
        "answers_soon",
        "check_timeline",
        "loop_asked",
        "run_timeline",
        "simulate",
        "simulate_sweep",
        "simulated",
        "write_timeline",
    ),
    "api.sizing": (
        "Asked",
        "answer",
        "ask",
        "size",
        "size_measured",
        "size_models",
        "size_use_cases",
    ),
    "api.grids": ("read_grid", "sweep"),
    "report.notebook": ("figures", "plot"),
    "report.simulated": ("lesson_slots",),
    "simulator.simulated_run": ("SimulatedRun", "SimulatedSweep", "write_runs"),
    "simulator.timeline": ("lesson_timeline",),
}
"""Where each function is: its module loads when the function is first asked for."""

__all__ = [name for names in _PLACES.values() for name in names]


def _at_the_hub(name: str, layout: str) -> Model | str:
    """The model of a repository that the catalog does not have, from the hub; or why there is none,
    as a clause.
    """
    from tonnage.api.hub import read_from_hub

    return read_from_hub(name, layout)


look_also(_at_the_hub)


def __getattr__(name: str) -> object:
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"tonnage.{module}"), name)
    raise AttributeError(f"module 'tonnage.api' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
