"""``silicon_sample.csv`` of the wheel aiconfigurator-core: its lines, and the rules by which they
are used.

Each kind of lines has a file of rules: ``dense.yaml``, ``moe.yaml`` and ``decode_pools.yaml``; what
InferenceMAX's scripts set stands in ``inferencemax.yaml``. Their conditions see the columns that
``facts`` gives.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from tonnage.errors import InputError
from tonnage.spec.catalog import find_gpu
from tools.fit.evidence import LeftOutLines
from tools.fit.rules import LeftOut, Rule, Verdict, settings, verdict_of

Row = dict[str, Any]

FILE = "silicon_sample.csv"
COLUMNS = (
    "mode",
    "model_path",
    "system",
    "backend",
    "precision",
    "tp_size",
    "batch_size",
    "isl",
    "osl",
    "silicon_data_source",
)
MEASURED = {"ttft_ms": "silicon_ttft_ms", "itl_ms": "silicon_tpot_ms"}

OF_INFERENCEMAX = re.compile(r"source_file=(\d{4}-\d\d-\d\d\.csv|kimi)|db-dump/")
"""How the source of a line begins that InferenceMAX measured; the others are NVIDIA's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRules:
    """The rules of one kind of lines.

    Attributes:
        models: the catalog's names by the last part of ``model_path``.
        gpus: the catalog's names by ``system``.
        formats: what sets ``format``, the catalog's name of a line's precision with the KV cache as
            the engine chooses it.
        left_out: which lines are not used.
        rows: what a line is in columns of a measured table, with the knobs of its run.
        drafted: further lines that are not used, by how many lines hold the same measurement
            (``dumps``).
        twins: rows of which, among several runs of the same, only the slowest is used.
        configs_with_ranks: configurations whose lines ran with a rank of attention per GPU.
        multiplied: parts of the source of lines whose parallel degrees are multiplied.
        disturbed: how many times as slow as another run of the same a run may be.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    models: dict[str, str]
    gpus: dict[str, str]
    formats: tuple[Rule, ...]
    left_out: tuple[LeftOut, ...]
    rows: tuple[Rule, ...]
    drafted: tuple[LeftOut, ...] = ()
    twins: tuple[LeftOut, ...] = ()
    configs_with_ranks: tuple[int, ...] = ()
    multiplied: tuple[str, ...] = ()
    disturbed: float = math.inf

    def facts(self, line: Mapping[str, str], tp: int, dp: int, ep: int) -> Row:
        """What the conditions of the rules see of a line.

        Args:
            line: its columns in the file.
            tp, dp, ep: the parallel degrees with which it ran.

        Returns:
            ``mode, system, backend, version, precision, source`` as the file has them; ``model,
            gpu, format`` in the catalog's names, empty where it has none; ``tp, dp, ep, pp``,
            ``gpus`` (tp × dp), ``batch, isl, osl, clients`` as whole numbers, 0 where not stated;
            ``lengths`` (such as 1024/8192), ``day``, ``dump`` (inferencemax or nvidia),
            ``blackwell`` and ``measured``.
        """
        source, isl, osl = line["silicon_data_source"], _whole(line["isl"]), _whole(line["osl"])
        gpu = self.gpus.get(line["system"], "")
        found: Row = {
            "mode": line["mode"],
            "model": self.models.get(line["model_path"].rsplit("/", 1)[-1], ""),
            "system": line["system"],
            "gpu": gpu,
            "blackwell": gpu != "" and find_gpu(gpu).arch.startswith("Blackwell"),
            "backend": line["backend"],
            "version": line.get("backend_version") or "",
            "precision": line["precision"],
            "format": "",
            "tp": tp,
            "dp": dp,
            "ep": ep,
            "pp": _whole(line.get("pp_size") or "1"),
            "gpus": tp * dp,
            "batch": _whole(line["batch_size"]),
            "isl": isl,
            "osl": osl,
            "lengths": f"{isl}/{osl}",
            "clients": clients_of(line),
            "source": source,
            "dump": "inferencemax" if OF_INFERENCEMAX.match(source) else "nvidia",
            "day": day_of(line),
            "measured": all(math.isfinite(v) and v > 0 for v in measured_of(line).values()),
        }
        return found | settings(self.formats, found)

    def unusable(self, facts: Row) -> Verdict | None:
        """Why a line is not used; None if it is."""
        return verdict_of(self.left_out, facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The lines of a file, sorted.

    Attributes:
        rows: those that are used.
        left_out: the number of the others by reason.
        evidence: the same number by the class of what is known against them.
        unexplained: those against which nothing is known but that predictions lie elsewhere:
            scored, and not fitted.
    """

    rows: list[Row]
    left_out: dict[str, int]
    evidence: dict[str, int] = field(default_factory=dict)
    unexplained: list[Row] = field(default_factory=list)

    @classmethod
    def of(cls, rows: Iterable[Row], others: LeftOutLines) -> Selection:
        """Rows that are used, and the other lines."""
        left_out, evidence = (
            dict(counter.most_common()) for counter in (others.reasons, others.classes)
        )
        return cls(
            rows=list(rows),
            left_out=left_out,
            evidence=evidence,
            unexplained=list(others.unexplained.values()),
        )


def installed_sample() -> Path | None:
    """The file in the installed wheel; None without the wheel."""
    spec = find_spec("aiconfigurator_core")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    files = (Path(place) / "systems" / FILE for place in places)
    return next((file for file in files if file.is_file()), None)


def read_sample(file: Path) -> list[dict[str, str]]:
    """The lines of the file by column.

    Raises:
        InputError: it cannot be read, or lacks a column.
    """
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            missing = [
                name
                for name in (*COLUMNS, *MEASURED.values())
                if name not in (reader.fieldnames or ())
            ]
            lines = [] if missing else list(reader)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file} cannot be read ({error}); give the file of the wheel aiconfigurator-core"
        ) from None
    if missing:
        raise InputError(
            f"{file} has no column '{missing[0]}'; give {FILE} of the wheel aiconfigurator-core"
        )
    return lines


def clients_of(line: Mapping[str, str]) -> int:
    """Clients that a line names; 0 where it names none."""
    found = re.search(r"silicon_concurrency=(\d+)", line["silicon_data_source"])
    return int(found[1]) if found else 0


def day_of(line: Mapping[str, str]) -> str:
    """The day of a measurement, such as 2026-03-25; empty where the line does not say it."""
    found = re.search(r"measured=(\d{4}-\d\d-\d\d)", line["silicon_data_source"])
    return found[1] if found else ""


def measured_of(line: Mapping[str, str]) -> dict[str, float]:
    """What a line measured, by the names of this package; NaN where it is empty."""
    return {name: float(line[column] or "nan") for name, column in MEASURED.items()}


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() else 0
