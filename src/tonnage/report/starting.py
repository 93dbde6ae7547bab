"""What an engine would be started as, and the profiles of a machine, as documents."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.report.blocks import items, section
from tonnage.report.document import Document, Facts, Lines

if TYPE_CHECKING:
    from tonnage.serve.launch.profile import Profile
    from tonnage.serve.launch.start import Start, Started
    from tonnage.serve.machine.machine import Machine

LEGEND = (
    "A runnable profile holds a request of the model's whole context, or of --max-model-len; GB are those that each GPU must have for "
    "that. The first one with a checkpoint is what --engine auto starts."
)
TITLES = {"runnable": "Runs here", "low memory": "Runs here with a shorter context", "incompatible": "Does not run here"}


def listing(machine: Machine, found: Sequence[Profile]) -> Document:
    """The profiles of a machine, those that run here first."""
    sections = []
    for kind, title in TITLES.items():
        these = [one for one in found if one.kind == kind]
        width = max((len(one.name) for one in these), default=0)
        sections.append(section(kind, title if these else "", Lines(text="\n".join(_line(one, width) for one in these)) if these else None))
    return Document(title=machine.label, subtitle="", sections=(*sections, section("notes", "", items((LEGEND, *machine.notes), "note"))))


def _line(one: Profile, width: int) -> str:
    """Such as "  vllm-fp8-tp1-pp1-throughput   24 GB  owner/name"."""
    needs = f"{one.needs_bytes / 1e9:,.0f} GB" if one.needs_bytes else ""
    context = f"--max-model-len {one.context}: " if one.kind == "low memory" else ""
    told = f"{context}{one.why}" if one.why else one.checkpoint or f"name a --checkpoint in {one.precision}"
    return f"  {one.name.ljust(width)}  {needs:>8}  {told}"


def starting(machine: Machine, start: Start) -> Document:
    """Everything that would be started."""
    facts = Facts(rows=(("machine", machine.label), ("engine", start.engine), ("served as", start.model), ("chosen", start.why)))
    return Document(
        title="",
        subtitle="",
        sections=(
            section("choice", "", facts),
            *(section(f"instance-{place}", _heading(place, one), Lines(text=_command(one))) for place, one in enumerate(start.instances)),
            section("file", "engine.yaml", Lines(text=_file(start))) if start.file else section("file", ""),
            section("notes", "", items(start.notes, "note")),
        ),
    )


def _heading(place: int, one: Started) -> str:
    numbers = ", ".join(str(device.index) for device in one.devices)
    gpus = f"{'GPU' if len(one.devices) == 1 else 'GPUs'} {numbers}" if one.devices else "no GPU"
    return f"instance {place}: {gpus}, port {one.port}, ready when {one.path} answers"


def _command(one: Started) -> str:
    """The environment, then the command with one flag a line."""
    words = [f"{name}={shlex.quote(value)}" for name, value in one.environment.items()]
    lines, line = [" ".join(words)] if words else [], ""
    for word in one.argv:
        if word.startswith("--") and line:
            lines.append(line)
            line = ""
        line = f"{line} {shlex.quote(word)}".strip()
    return " \\\n".join(f"  {text}" if not place else f"    {text}" for place, text in enumerate([*lines, line]))


def _file(start: Start) -> str:
    import yaml

    return "\n".join(f"  {line}" for line in yaml.safe_dump(dict(start.file), sort_keys=False).rstrip().splitlines())
