"""The traffic of a deployment over days: read, made a scenario, and laid next to its plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from tonnage.watch.drift import Today
    from tonnage.workload.history import History
    from tonnage.workload.history_fit import HistoryFit

SHORTEST_S, LONGEST_S = 3_600.0, 400 * 86_400.0


def is_address(source: str) -> bool:
    """Whether a source is a server and no file."""
    return source.startswith(("http://", "https://"))


def is_history(source: str) -> bool:
    """Whether a source is a server, answers of one, or recorded requests, and no plan."""
    return is_address(source) or not source.lower().endswith(".json") or bool(_documents(source))


def read_history(source: str, *, range: str = "14d", select: str = "", header: Sequence[str] = (), save: Path | None = None) -> History:
    """The hours of a Prometheus, of a file of its answers, or of single requests.

    Args:
        source: the server's URL; or a file with answers of ``/api/v1/query_range``: one, a list of them, or one a line; or recorded
            requests, as ``describe_workload`` takes them.
        range: of a server, how long before the last whole hour, such as "14d".
        select: of a server, label matchers of the deployment.
        header: of a server, further headers.
        save: file that a server's answers are written to, to be read again.

    Raises:
        InputError: what cannot be read, in one line.
        TonnageError: a server that does not answer.
    """
    import json

    from tonnage.formats.prometheus import curves
    from tonnage.units import parse_duration
    from tonnage.watch.drift import Server
    from tonnage.workload.history import history_of, history_of_requests

    if is_address(source):
        seconds = parse_duration(range, option("range"))
        if not SHORTEST_S <= seconds <= LONGEST_S:
            raise InputError(f"{option('range')}: {range} is not possible; write 1h to 400d")
        server = Server(source, headers=header, select=select)
        answers = server.read(seconds)
        if save is not None:
            try:
                save.write_text("".join(json.dumps(one) + "\n" for one in answers), encoding="utf-8")
            except OSError as error:
                raise InputError(
                    f"{option('save')}: cannot write '{save}' ({error.strerror}); name a file in a folder that exists"
                ) from None
        return history_of(curves(answers, server.name), server.name)
    for name, given in (("select", select), ("header", header), ("save", save)):
        if given:
            raise InputError(f"{option(name)}: belongs to a server; {source} is a file")
    documents = _documents(source)
    if documents:
        return history_of(curves(documents, source), source)
    from tonnage.api.question.loads import traffic_from

    return history_of_requests(traffic_from(source, "the history").recording)


def _documents(source: str) -> list[object]:
    """The answers of a Prometheus that a file holds, as one JSON value or one a line; none where it is something else."""
    import json

    from tonnage.csv_file import read_text

    if not source.lower().endswith((".json", ".jsonl")) or not Path(source).is_file():
        return []
    text = read_text(source, "the history")
    for part in (text, f"[{','.join(line for line in text.splitlines() if line.strip())}]"):
        try:
            found = json.loads(part)
        except (ValueError, RecursionError):
            continue
        found = found if isinstance(found, list) else [found]
        return found if all(isinstance(one, dict) and {"status", "data"} <= one.keys() for one in found) else []
    return []


def fit_history(
    history: History,
    output: Path | None = None,
    *,
    model: str | None = None,
    isl: str | None = None,
    osl: str | None = None,
    plan: str | Path | None = None,
) -> HistoryFit:
    """A scenario of a history, with the files that it names.

    Args:
        history: the hours.
        output: the YAML file to write; None writes nothing.
        model: of the scenario.
        isl, osl: lengths where the history says none.
        plan: file with the plan that was deployed: NAME.hours.csv then has the hours as measured points of its choice.

    Raises:
        InputError: what cannot be used or written, in one line.
    """
    from tonnage.api.compare import scenario_target, write_scenario
    from tonnage.api.running.plans import planned
    from tonnage.watch.drift import measured_loads
    from tonnage.workload.history_fit import fit_history as fit

    target = scenario_target(output)
    found = fit(history, "scenario" if target is None else target.stem, model=model, isl=isl, osl=osl)
    if target is not None:
        files = dict(found.files)
        if plan is not None and (points := measured_loads(planned(plan).plan, found)):
            files[f"{target.stem}.hours.csv"] = points
        write_scenario(found.scenario, files, target)
    return found


def today(plan: str | Path, fit: HistoryFit, *, forecast: str | None = None, coefficients: str | Path | None = None) -> Today:
    """A plan next to a history of its deployment.

    Args:
        plan: file with the plan's JSON.
        fit: of the history.
        forecast: time ahead for which load and systems are predicted, such as "6mo".
        coefficients: file that ``calibrate`` wrote, in place of the calibration that the plan was made with.

    Raises:
        InputError: no plan, one that predicts nothing, or no duration.
    """
    from tonnage.api.running.plans import planned
    from tonnage.units import parse_duration
    from tonnage.watch.drift import today as beside

    choice = planned(plan, coefficients=coefficients)
    if not choice.plan.provenance.simulated:
        raise InputError(f"{option('plan')}: {plan} rests on measured points and predicts nothing; give one that was simulated")
    seconds = None if forecast is None else parse_duration(forecast, option("forecast"))
    return beside(choice.plan, choice.deployment, fit, gpus_per_system=choice.gpus_per_system, forecast_s=seconds)
