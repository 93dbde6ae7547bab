"""The Python interface: ``tonnage.size``, ``simulate``, ``score`` and ``calibrate``, and what the command needs next to them.

Each function takes what the command of the same name takes, with the same meaning, and returns values
instead of printing them.
"""

from tonnage.api.compare import describe_workload, fit_workload
from tonnage.api.compress import compress
from tonnage.api.evidence import calibrate, score, score_models, several_models
from tonnage.api.facts import MemoryReport, PrecisionReport, catalog, lesson, lesson_sweep, memory, precisions
from tonnage.api.question.aims import prices_of
from tonnage.api.question.arguments import check_given, slo
from tonnage.api.question.deployment import deployment_of
from tonnage.api.running.deploy import deploy, verify, verify_folder, watch
from tonnage.api.running.gateway import gateway_from, gateway_settings, planned_backends, proxy_command
from tonnage.api.running.processes import serve_apart, served
from tonnage.api.running.rehearse import demo, rehearse
from tonnage.api.running.serve import serve_openvino, serve_simulated
from tonnage.api.running.serve_engine import EngineAsked, machine_profiles, prepare_engine, serve_engine, this_machine
from tonnage.api.services import calibrate_service, deploy_service, simulate_service, size_servers
from tonnage.api.simulate import (
    answers_soon,
    check_timeline,
    lesson_timeline,
    loop_asked,
    run_timeline,
    simulate,
    simulate_sweep,
    write_timeline,
)
from tonnage.api.size import Asked, answer, ask, size, size_measured, size_models, size_use_cases
from tonnage.api.sweep import read_grid, sweep
from tonnage.report.notebook import figures, plot
from tonnage.simulator.simulated_run import SimulatedRun, write_runs

__all__ = [
    "Asked",
    "EngineAsked",
    "MemoryReport",
    "PrecisionReport",
    "SimulatedRun",
    "answer",
    "answers_soon",
    "ask",
    "calibrate",
    "calibrate_service",
    "catalog",
    "check_given",
    "check_timeline",
    "compress",
    "demo",
    "deploy",
    "deploy_service",
    "deployment_of",
    "describe_workload",
    "figures",
    "fit_workload",
    "gateway_from",
    "gateway_settings",
    "lesson",
    "lesson_sweep",
    "lesson_timeline",
    "loop_asked",
    "machine_profiles",
    "memory",
    "planned_backends",
    "plot",
    "precisions",
    "prepare_engine",
    "prices_of",
    "proxy_command",
    "read_grid",
    "rehearse",
    "run_timeline",
    "score",
    "score_models",
    "serve_apart",
    "serve_engine",
    "serve_openvino",
    "serve_simulated",
    "served",
    "several_models",
    "simulate",
    "simulate_service",
    "simulate_sweep",
    "size",
    "size_measured",
    "size_models",
    "size_servers",
    "size_use_cases",
    "slo",
    "sweep",
    "this_machine",
    "verify",
    "verify_folder",
    "watch",
    "write_runs",
    "write_timeline",
]
