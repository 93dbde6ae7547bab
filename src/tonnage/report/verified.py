"""Running engines next to what their plan counts on, as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.report.document import Document, Section, Table, items, section
from tonnage.report.numbers import ABSENT
from tonnage.report.watched import watched

if TYPE_CHECKING:
    from tonnage.deploy.verify.folder import Folder
    from tonnage.watch.settings import Instance, Value
    from tonnage.watch.watched import Watched

LEGEND = (
    "– is not published. vLLM publishes slots, step tokens, chunked prefill, degrees and the number format where it was started with "
    "VLLM_SERVER_DEV_MODE=1; TensorRT-LLM publishes none of its settings."
)


def verified(instances: Sequence[Instance], findings: Sequence[str], load: Watched | None) -> Document:
    """The settings of every instance, what was measured under load, and the verdict."""
    measured: tuple[Section, ...] = () if load is None else watched(load).sections
    verdict = items(tuple(findings), "warning") if findings else items(("As planned.",), "note")
    return Document(
        title="Not as planned" if findings else "As planned",
        subtitle="",
        sections=(
            section("settings", "", _settings(instances), items((LEGEND,), "note")),
            *(one for one in measured if one.key in ("load", "latencies")),
            section("verdict", "", verdict),
        ),
    )


def _settings(instances: Sequence[Instance]) -> Table:
    """A row for each setting; instances that agree share a column."""
    columns = {tuple(_shown(one.running) for one in each.settings): each.url for each in reversed(instances)}
    first = instances[0].settings
    rows = tuple(
        (setting.name, _shown(setting.planned), *(column[place] for column in columns), "DIFFERS" if _off(instances, place) else ABSENT)
        for place, setting in enumerate(first)
    )
    names = ("running",) if len(columns) == 1 else tuple(columns.values())
    return Table(caption="", header=("setting", "plan", *names, "verdict"), rows=rows)


def _off(instances: Sequence[Instance], place: int) -> bool:
    return any(each.settings[place].off for each in instances)


def _shown(value: Value) -> str:
    if value is None:
        return ABSENT
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def verified_folder(found: Folder) -> Document:
    """The parts of a written folder with the source that each was read against, the Secrets that it needs, and the verdict."""
    rows = tuple((one.file, one.name or ABSENT, one.against) for one in found.parts)
    needs = items(tuple(f"The cluster needs the Secret {one}." for one in found.needs), "note")
    verdict = items(found.faults, "warning") if found.faults else items(("No fault was found.",), "note")
    return Document(
        title="Faults in the files" if found.faults else "The files are in order",
        subtitle="",
        sections=(
            section("files", "", Table(caption="", header=("file", "holds", "read against"), rows=rows), needs),
            section("verdict", "", verdict),
        ),
    )
