"""Running engines next to what their plan counts on, as a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.report.document import Document, Section, Table, items, section
from tonnage.report.numbers import ABSENT
from tonnage.report.watched import watched

if TYPE_CHECKING:
    from tonnage.deploy.verify import Folder
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What happened under load while one instance was killed and stayed down."""

    instances: int  # that were started
    # sent, completed: requests of the whole run
    sent: int
    completed: int
    lost: int  # failed requests that were in flight when the instance was killed, which had been sent to it
    lost_after: int  # failed requests that were sent later: the gateway gave them to an instance that was gone
    # each limit of the plan in words, with its value in milliseconds before the kill; None where nothing completed
    limits: tuple[tuple[str, float | None], ...]
    within: bool  # whether every limit held before the kill
    fired: bool | None  # whether the written rule on missing instances fires for what was seen; None without promtool
    invalid: tuple[str, ...]  # why the load client's figures cannot be believed; empty where they can

    @property
    def as_planned(self) -> bool:
        """Whether nothing was lost but what ran in the killed instance, the limits held, and the alert fires where it could be tried."""
        return not self.lost_after and self.within and self.fired is not False and not self.invalid


def rehearsed(found: Rehearsal) -> Document:
    """What a rehearsal showed, and the verdict."""
    limits = tuple((name, ABSENT if value is None else f"{value:,.1f} ms") for name, value in found.limits)
    alert = {True: "fires", False: "does not fire", None: "was not tried: promtool is not installed"}[found.fired]
    facts = (
        f"{found.instances} instances, one of them killed in the middle of the run.",
        f"{found.sent:,} requests were sent and {found.completed:,} completed.",
        f"{found.lost:,} were lost in the killed instance, and {found.lost_after:,} that were sent later.",
        f"The alert on missing instances {alert}.",
    )
    return Document(
        title="As planned" if found.as_planned else "Not as planned",
        subtitle="",
        sections=(
            section("run", "", items(facts), items(tuple(f"The load client: {one}" for one in found.invalid), "warning")),
            section("limits", "", Table(caption="", header=("limit", "before the kill"), rows=limits)),
        ),
    )
