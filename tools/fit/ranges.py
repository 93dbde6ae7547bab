"""What was measured: lengths, loads and hardware of the rows that the fit reads, for the answers
that leave them (``perf.ranges``).

Written to ``ranges.json`` beside the terms, by ``./fit`` and, alone and in seconds, by ``./fit
ranges``. A row under load counts with the requests that its instance can have held at once: its
clients, or fewer where slots or KV cache were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tonnage.evidence.predict import Point, read_point
from tonnage.perf.matrices import fitted_bits
from tonnage.perf.memory import memory_plan
from tonnage.perf.ranges import kind_of
from tonnage.spec.catalog import find_engine
from tools.fit.data import CURVE_SOURCE, FILES, curve_rows, read_data
from tools.fit.modern.rows import FILE as AGG
from tools.fit.modern.rows import SUBMITTED, select_modern, select_submitted
from tools.fit.silicon.dense_rows import select
from tools.fit.silicon.moe_rows import select_moe
from tools.fit.silicon.sample import FILE as SAMPLE
from tools.fit.silicon.silicon_rows import point_of
from tools.fit.terms import DERIVED


def ranges(
    data: Path, silicon: Path, modern: Path, *, origins: Mapping[str, Any]
) -> dict[str, Any]:
    """The content of ``ranges.json``.

    Args:
        data: the folder with the files of ``data.FILES``.
        silicon: ``silicon_sample.csv``.
        modern: ``agg.csv.gz``.
        origins: those of ``terms.json``, which say whose engine terms are corrections of one value
            that all versions share.

    Raises:
        InputError: a file is missing or damaged.
    """
    read = {FILES[engine]: rows for engine, rows in read_data(data).items()} | {
        CURVE_SOURCE: curve_rows()
    }
    points = [read_point(row) for rows in read.values() for row in rows]
    later = {
        SAMPLE: [*select(silicon).rows, *select_moe(silicon).rows],
        AGG: select_modern(modern).rows,
    }
    later |= {SUBMITTED: select_submitted(data / SUBMITTED)} if (data / SUBMITTED).is_file() else {}
    read |= later
    points += [point_of(row) for rows in later.values() for row in rows]
    presets = sorted(
        {_preset(point) for point in points} | set(origins["engine_rows"]) | set(DERIVED)
    )
    engines = {preset: generation(preset, origins) for preset in presets}
    return {
        "date": origins["date"],
        "rows": {name: len(part) for name, part in read.items()},
        "gpus": _bits(points),
        "engines": engines,
        "loads": _loads(points, engines),
    }


def generation(preset: str, origins: Mapping[str, Any]) -> str:
    """The engines whose rows speak for a preset: all current versions of its family, or those from
    which its terms are taken.
    """
    return (
        find_engine(preset).family
        if preset in origins["engine_rows"]
        else DERIVED[preset][0]
        if preset in DERIVED
        else preset
    )


def _preset(point: Point) -> str:
    return find_engine(point.deployment.engine).coefficients


def _bits(points: Iterable[Point]) -> dict[str, dict[str, int]]:
    """The rows of each GPU, of any engine, by the bits of the arithmetic that it was measured in
    ("8" or "16").
    """
    found: dict[str, Counter[str]] = {}
    for point in points:
        gpu = point.deployment.gpu
        found.setdefault(gpu.name, Counter())[
            fitted_bits(gpu.executes(point.deployment.precision))
        ] += 1
    return {gpu: dict(sorted(bits.items())) for gpu, bits in sorted(found.items())}


def _loads(
    points: Iterable[Point], engines: Mapping[str, str]
) -> dict[str, dict[str, dict[str, Any]]]:
    """The ranges by generation of engines and kind of model."""
    parts: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        parts.setdefault((engines[_preset(point)], kind_of(point.deployment.model)), []).append(
            point
        )
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for (engine, kind), mine in sorted(parts.items()):
        found.setdefault(engine, {})[kind] = dict(_range_of(mine))
    return found


def _range_of(points: list[Point]) -> Iterator[tuple[str, Any]]:
    yield "rows", dict(sorted(Counter(point.deployment.gpu.name for point in points).items()))
    for name in ("isl", "osl"):
        values = [getattr(point, name) for point in points]
        yield name, [min(values), max(values)]
    yield "context", max(point.isl + point.osl for point in points)
    yield "in_flight", max(map(_in_flight, points))
    yield "gpus", max(point.deployment.parallelism.gpus for point in points)


def _in_flight(point: Point) -> int:
    """Requests that an attention rank can have held at once."""
    own = point.of_rank
    if own.batch is not None:
        return own.batch
    return min(
        own.concurrency or 1,
        max(memory_plan(own.deployment).concurrent_requests(own.isl, own.osl), 1),
    )
