"""What is started: the exact command and environment of each instance, with the GPUs that it gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tonnage.plan.launch import FILE
from tonnage.serve.machine.machine import Device
from tonnage.serve.supervision.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """One instance.

    Attributes:
        argv: its command, with ``FILE`` where its configuration file stands.
        environment: variables beside those of this process.
        devices: its GPUs; none on a machine without.
        port: on 127.0.0.1.
        path: that says whether it serves.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    devices: tuple[Device, ...]
    port: int
    path: str

    def program(self, place: int, file: str) -> Program:
        """The instance as a child process.

        Args:
            place: number of the instance, from 0.
            file: path of the configuration file; "" where it needs none.
        """
        argv = tuple(file if word == FILE else word for word in self.argv) if file else self.argv
        return Program(
            name=f"instance-{place}", argv=argv, address=f"127.0.0.1:{self.port}", path=self.path, environment=dict(self.environment)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Everything.

    Attributes:
        engine: preset, or the family where there is none.
        model: the name that clients use.
        why: how engine, format and degree were chosen, as a sentence.
        instances: one or more.
        file: the configuration file that the commands name ``FILE``, as nested values; empty where they need none.
        startup_seconds: that an instance is given to serve.
        notes: what a reader must know, as sentences.
    """

    engine: str
    model: str
    why: str
    instances: tuple[Started, ...]
    startup_seconds: float
    file: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """By name."""
        each = [
            {"argv": list(one.argv), "environment": dict(one.environment), "gpus": [d.index for d in one.devices], "port": one.port}
            for one in self.instances
        ]
        return {
            "engine": self.engine,
            "model": self.model,
            "why": self.why,
            "instances": each,
            "file": dict(self.file),
            "startup_seconds": self.startup_seconds,
            "notes": list(self.notes),
        }
