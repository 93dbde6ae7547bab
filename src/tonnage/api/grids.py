"""A grid of simulations over all cores, or over a Ray cluster; written points are kept, and the
next run does the rest.

    base: {model: llama-3.1-8b, isl: 2000, osl: 200, requests: 500}
    over:
      tp: [1, 2, 4]
      engine: [vllm, tensorrt-llm]
      request_rate: [1, 2, 5, 10]

Every combination is a point, named by its values. Its run folder appears whole or not at all, so
that a sweep that was killed loses only the points that were being simulated, and no point is
written twice. A point that cannot be (a model that does not fit) is noted in ``left-out``, and is
not tried again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from tonnage.api.question.typed_arguments import SimulateArguments
from tonnage.csv_file import read_text
from tonnage.errors import InputError, InputErrors, TonnageError, UnknownName, option
from tonnage.simulator.simulated_run import folder_name, write_runs
from tonnage.spec.typed_values import parse_yaml, read_as, strict

if TYPE_CHECKING:
    from tonnage.sizing.planner import Progress

Where = Literal["processes", "ray"]

LEFT_OUT = "left-out"  # folder of the points that could not be, a file each that says why

MOST_POINTS = 100_000

Value = str | int | float | bool


@strict
class Grid:
    """The values of each swept argument."""

    # values by the names of ``SimulateArguments``; every combination is a point
    over: dict[str, list[Value]]
    base: dict[str, Value]  # what all points have in common

    def points(self) -> Iterator[tuple[str, dict[str, Value]]]:
        """Every point: its folder's name, such as "tp-2,engine-vllm,request_rate-5", and the
        arguments of ``simulate``.
        """
        names = list(self.over)
        for values in product(*self.over.values()):
            chosen = dict(zip(names, values, strict=True))
            parts = (f"{name}-{folder_name(str(value))}" for name, value in chosen.items())
            yield ",".join(parts) or "point", self.base | chosen


def read_grid(path: Path | str) -> Grid:
    """The grid of a YAML or JSON file. Raises InputErrors: everything in it that cannot be used."""
    where = str(path)
    grid = read_as(Grid, parse_yaml(read_text(where, "grid"), where), where, InputErrors)
    argument_types = get_type_hints(SimulateArguments)
    for name in (*grid.over, *grid.base):
        if name not in argument_types:
            raise UnknownName("argument", name, argument_types)
    faults = [
        f"{where}: over.{name}: is empty; write one value or more"
        for name, values in grid.over.items()
        if not values
    ]
    faults += [
        f"{where}: {name}: is in base and in over; leave one out"
        for name in grid.over
        if name in grid.base
    ]
    points = 1
    for values in grid.over.values():
        points *= len(values)
    if points > MOST_POINTS:
        faults.append(
            f"{where}: {points:,} points are more than {MOST_POINTS:,}; make several sweeps"
        )
    if len({name for name, _ in grid.points()}) < points:
        faults.append(f"{where}: over: it has a value twice; every point is written once")
    InputErrors.raise_if(faults)
    return grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The result of a sweep."""

    points: int  # of the grid
    done: int  # that this call simulated
    left_out: dict[str, str]  # that could not be, with the reason, of this call and earlier ones

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON values."""
        return {"points": self.points, "done": self.done, "left_out": self.left_out}


def sweep(
    grid: Grid,
    folder: Path,
    provenance: Mapping[str, Any],
    *,
    on: Where = "processes",
    workers: int | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Simulate the points of a grid that ``folder`` does not have yet, each into a run folder of
    its name.

    Args:
        on: "processes" of this machine, or "ray", which connects to the cluster of the environment,
            or starts one on this machine.
        workers: processes; one per core if not given. Ray decides for itself.

    Raises InputError: a folder that cannot be made, or Ray that is not installed.
    """
    folder = folder.absolute()
    try:
        (folder / LEFT_OUT).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{option('output')}: {folder} cannot be made ({error.strerror}); name another folder"
        ) from None
    points = list(grid.points())
    todo = [
        (name, arguments)
        for name, arguments in points
        if not (folder / name).exists() and not (folder / LEFT_OUT / f"{name}.json").exists()
    ]
    before = len(points) - len(todo)
    run = _on_ray if on == "ray" else _on_processes
    for done, name in enumerate(run(todo, str(folder), dict(provenance), workers), before + 1):
        if progress is not None:
            progress(done, len(points), name)
    names = {name for name, _ in points}
    reasons = {
        file.stem: json.loads(read_text(file))["reason"]
        for file in sorted((folder / LEFT_OUT).glob("*.json"))
    }
    return Sweep(
        points=len(points),
        done=len(todo),
        left_out={name: reason for name, reason in reasons.items() if name in names},
    )


def write_point(
    name: str, arguments: dict[str, Any], folder: str, provenance: dict[str, Any]
) -> str:
    """Simulate one point and write it, unless another process has meanwhile; its name."""
    from tonnage.api.simulation import simulate

    target = Path(folder) / name
    try:
        run = simulate(**arguments)
        if not target.exists():
            write_runs(target, [run], provenance)
    except TonnageError as error:
        reason = Path(folder) / LEFT_OUT / f"{name}.json"
        partial = reason.with_name(f".{name}.{os.getpid()}")
        partial.write_text(json.dumps({"point": arguments, "reason": str(error)}), encoding="utf-8")
        partial.replace(reason)
    return name


def _on_processes(
    todo: list[tuple[str, dict[str, Any]]],
    folder: str,
    provenance: dict[str, Any],
    workers: int | None,
) -> Iterator[str]:
    """The points in processes of this machine, as they are done; no process waits for a compiler
    but the first.
    """
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    from tonnage.simulator.kernel import warm_up

    if not todo:
        return
    warm_up()
    processes = min(workers or os.cpu_count() or 1, len(todo))
    with ProcessPoolExecutor(max_workers=processes, mp_context=get_context("spawn")) as pool:
        futures = [
            pool.submit(write_point, name, arguments, folder, provenance)
            for name, arguments in todo
        ]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _on_ray(
    todo: list[tuple[str, dict[str, Any]]],
    folder: str,
    provenance: dict[str, Any],
    workers: int | None,
) -> Iterator[str]:
    """The points on Ray, as they are done; ``folder`` is one that all its machines see."""
    try:
        import ray
    except ImportError:
        raise InputError(
            f"{option('on')}: ray is not installed here; pip install ray, or leave it out"
        ) from None
    del workers
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    task = ray.remote(num_cpus=1)(write_point)
    waiting = [task.remote(name, arguments, folder, provenance) for name, arguments in todo]
    while waiting:
        done, waiting = ray.wait(waiting, num_returns=1)
        yield str(ray.get(done[0]))
