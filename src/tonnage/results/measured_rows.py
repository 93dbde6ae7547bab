"""Measured points as rows of plain values, with one key per column; ``score`` and ``calibrate`` work on these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tonnage.errors import InputError
from tonnage.results.measured_files import LOADS, MEASURED, REQUIRED, InvalidRuns, Measurement, Values, measurements
from tonnage.spec.catalog import find_gpu
from tonnage.spec.hardware import is_hardware_file

KEYS = (*REQUIRED, *LOADS, "engine", "source", "run", "requests", "window_s", *MEASURED)


def read_measured(path: Path | str, given: Values | None = None, invalid: InvalidRuns | None = None) -> list[dict[str, Any]]:
    """Read the points of a file or folder of any format: one dictionary each, with every key in every one of them.

    Keys and types, ``None`` where nothing was said:

    - ``line`` (int): in the file, from 1; where there are no lines, the number of the point;
    - ``model, gpu, precision`` (str, as written); ``tp, isl, osl`` (int): never None;
    - ``pp, ep, dp`` (int, 1 where absent); ``engine, source`` (str or None);
    - exactly one of ``batch`` (int, static), ``concurrency`` (int, closed loop), ``request_rate`` (float, Poisson) is not None;
    - ``run`` (str or None): the run folder, where the row is of one;
    - ``requests`` (int or None), ``window_s`` (float or None);
    - measured (float above 0 or None): ``ttft_ms``, ``ttft_p50_ms`` … ``ttft_p99_ms``, the same for ``itl``, ``tpot`` and
      ``e2e``; ``requests_s``, ``output_tok_s``, ``peak_gpu_memory_gb``. ``itl_ms`` is the mean TPOT where the
      report of a run tells it apart from single gaps, or a table has no other (they are one number at a fixed output length).

    Names of models and GPUs are not looked up here. Columns that are not known are left alone.

    Args:
        path: the file or folder.
        given: model, gpu, precision, tp, pp, isl, osl, engine where the source does not say them; the model stands in place
            of the name that the report of one run gives, which often is a path, and a file that describes hardware in place of its name.
        invalid: as in ``measurements``.

    Raises:
        InputError: naming file, line or key, and what would be right.
    """
    known = dict(given or {})
    return [_row(measurement, known) for measurement in measurements(path, known, invalid)]


def _row(measurement: Measurement, given: Values) -> dict[str, Any]:
    merged = measurement.completed(given)
    if measurement.whole_run and "model" in given:
        merged["model"] = given["model"]
    if measurement.whole_run and is_hardware_file(file := str(given.get("gpu", ""))) and find_gpu(file).name == merged["gpu"]:
        merged["gpu"] = file
    row: dict[str, Any] = {"line": measurement.line, **{name: merged.get(name) for name in KEYS}}
    row |= {name: merged.get(name, 1) for name in ("pp", "ep", "dp")}
    first, second = ("tpot_ms", "itl_ms") if measurement.whole_run else ("itl_ms", "tpot_ms")
    row["itl_ms"] = row[second] if row[first] is None else row[first]
    if measurement.whole_run and all(row[name] is None for name in MEASURED):
        raise InputError(f"{measurement.where}: nothing that was measured; it needs one such as ttft_ms, tpot_ms, e2e_ms or requests_s")
    return row
