"""``tonnage compare``: two run folders, measured, simulated or imported; or a run next to a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError, option
from tonnage.results.metrics import Summary

if TYPE_CHECKING:
    from tonnage.bench.compare import Comparison
    from tonnage.evidence.replay import RunBesidePlan
    from tonnage.formats.measured_files import InvalidRuns
    from tonnage.results.store import Run


def compare_runs(first: Path, second: Path, *, include_invalid: bool = False) -> Comparison:
    """Compare two run folders by their records.

    Args:
        first, second: the folders.
        include_invalid: whether runs that their own client called INVALID are compared all the same, with a note; they are refused if not.

    Raises:
        InputError: one of them is no run folder, or is INVALID.
        DataError: one of their files is damaged.
    """
    from tonnage.bench.compare import compare
    from tonnage.formats.measured_files import InvalidRuns

    invalid = InvalidRuns(include=include_invalid)
    one, other = (_believed(folder, invalid) for folder in (first, second))
    found = compare(one.requests, other.requests)
    return replace(found, notes=(*found.notes, *invalid.sentences))


def _believed(folder: Path, invalid: InvalidRuns) -> Run:
    """The run of a folder.

    Raises:
        InputError: it is no run folder, or its own client called it INVALID, and such runs are not taken.
    """
    from tonnage.results.store import read_run

    run = read_run(folder)
    if not invalid.takes(folder, run.summary):
        invalid.check(())
    return run


def compare_plan(
    run: Path,
    plan: Path,
    *,
    instances: int | None = None,
    router: str | None = None,
    coefficients: str | Path | None = None,
    include_invalid: bool = False,
) -> RunBesidePlan:
    """Lay a run next to a plan: the run's requests are replayed on the deployment that the plan chose.

    Args:
        run: a run folder.
        plan: file with the plan's JSON.
        instances: how many instances of it were measured (default: as many as the plan has).
        router: what shares the requests among them, a name of ``simulator.router`` (default: least-outstanding).
        coefficients: file that ``calibrate`` wrote, in place of the calibration that the plan was made with.
        include_invalid: as in ``compare_runs``.

    Raises:
        InputError: no run folder, an INVALID one, no plan, or one that chose nothing or predicted nothing.
        DataError: a file of the run folder is damaged.
    """
    from tonnage.api.question.deployment import BY_CONTENT
    from tonnage.api.running.deploy import planned
    from tonnage.evidence.replay import ROUTER, beside_plan, replay
    from tonnage.formats.measured_files import InvalidRuns
    from tonnage.simulator.router import ROUTERS

    if instances is not None and instances < 1:
        raise InputError(f"{option('instances')}: {instances} is not possible; write 1 or more")
    if router is not None and (router not in ROUTERS or router in BY_CONTENT):
        known = ", ".join(name for name in ROUTERS if name not in BY_CONTENT)
        raise InputError(f"{option('router')}: '{router}' is none of {known}")
    invalid = InvalidRuns(include=include_invalid)
    found, choice = _believed(run, invalid), planned(plan, coefficients=coefficients)
    if not choice.plan.provenance.simulated:
        raise InputError(f"{plan}: rests on measured points and predicts nothing of its own; give a plan that was simulated")
    count, between = instances or choice.instances, router or ROUTER
    replayed = replay(found.requests, choice.deployment, gpus_per_system=choice.gpus_per_system, instances=count, router=between)
    clients = _clients(found.scenario)
    beside = beside_plan(found.requests, replayed, choice.deployment, instances=count, router=between, clients=clients)
    return replace(beside, notes=(*beside.notes, *invalid.sentences))


def _clients(scenario: Mapping[str, Any]) -> int | None:
    """Clients of the closed loop that a run folder's scenario says; None for an open loop, or where it says nothing."""
    arrivals = scenario.get("arrivals")
    clients = arrivals.get("concurrency") if isinstance(arrivals, dict) else None
    return clients if isinstance(clients, int) and clients > 0 else None


# ``tonnage import``: single requests of another tool's run, as a run folder.


def import_run(
    file: Path, output: Path, *, tokenizer: Path | None = None, provenance: dict[str, Any] | None = None
) -> list[tuple[Path, Summary]]:
    """Write the runs of a file as run folders: ``output`` itself, or one inside it for each where the file holds several.

    Args:
        file: AIPerf's ``profile_export.jsonl`` or GenAI-Perf's ``profile_export.json`` (or its folder), a result of vLLM's bench with
            details, or GuideLLM's JSON.
        output: the folder, which must not be in use.
        tokenizer: a local tokenizer.json, which counts the tokens of GenAI-Perf's texts where the server did not.
        provenance: what the folder says of where it came from.

    Raises:
        InputError: a file that is none of these, or a folder in use.
    """
    from tonnage.bench.benchmark import write_imported
    from tonnage.bench.prompts import TokenizerFile
    from tonnage.bench.reply import kept_answer
    from tonnage.formats.tool_format import Reading, read_requests
    from tonnage.results.store import check_free

    check_free(output)
    count = TokenizerFile(tokenizer).count if tokenizer is not None else None
    runs = read_requests(file, Reading(answer=kept_answer, count=count))
    folders = [output] if len(runs) == 1 else [output / f"run-{place}" for place in range(1, len(runs) + 1)]
    made = []
    for run, folder in zip(runs, folders, strict=True):
        summary, _ = write_imported(run, folder, source=file.name, provenance=provenance or {})
        made.append((folder, summary))
    return made
