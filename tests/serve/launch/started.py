"""Plans and profiles that are started on machines of the tests' own."""

from __future__ import annotations

from tonnage.api.running.serve_engine import EngineAsked, machine_profiles
from tonnage.serve.machine import Machine
from tonnage.serve.profiles import Profile

BIG = "llama-3.1-70b"


def found(machine: Machine, *, engine: str = "vllm", **asked: object) -> dict[str, Profile]:
    return {
        one.name: one
        for one in machine_profiles(EngineAsked(engine=engine, **{"model": BIG, **asked}), machine)
    }
