"""The usable rows of mixtures of experts in ``silicon_sample.csv``, by the rules of ``moe.yaml``
and ``inferencemax.yaml``.

The file has several dumps of the same measurements. Some multiply the parallel degrees, so a
measurement counts once, with the degrees of a dump that does not, where there is one.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tonnage.errors import DoesNotFit
from tonnage.perf.memory import memory_plan
from tools.fit.evidence import CONTRADICTS, TWICE, LeftOutLines
from tools.fit.rules import read_rules, settings, verdict_of
from tools.fit.silicon.inferencemax import run_of
from tools.fit.silicon.sample import Row, SampleRules, Selection, measured_of, read_sample
from tools.fit.silicon.silicon_rows import point_of

RULES = read_rules(Path(__file__).with_name("moe.yaml"), SampleRules)

DIGITS = 4
"""The same measurement agrees in so many digits between dumps."""

SAME = ("model", "gpu", "precision", "engine", "tp", "dp", "ep", "isl", "osl", "concurrency")
"""What two runs of the same have in common."""

Measurement = tuple[Any, ...]


def select_moe(file: Path) -> Selection:
    """The usable rows of the file.

    Raises:
        InputError: it cannot be read, or is no such file.
    """
    others = LeftOutLines()
    rows: dict[Measurement, Row] = {}
    lines = [(line, facts_of(line)) for line in sorted(read_sample(file), key=_is_multiplied)]
    dumps = Counter(
        _measurement(line, facts) for line, facts in lines if RULES.unusable(facts) is None
    )
    for line, facts in lines:
        same = _measurement(line, facts)
        verdict = RULES.unusable(facts) or verdict_of(RULES.drafted, facts | {"dumps": dumps[same]})
        if verdict is not None and verdict.evidence != CONTRADICTS:
            others.count(verdict.reason, verdict.evidence)
        elif same in rows:
            others.count("same measurement in another dump", TWICE)
        elif not _fits(row := _row(line, facts)):
            others.count("weights beyond the engine's default share of memory", CONTRADICTS)
        elif verdict is not None:
            others.keep(same, row, verdict.reason)
        else:
            rows[same] = row
    return Selection.of(_without_odd_runs(list(rows.values()), others), others)


def _without_odd_runs(rows: Sequence[Row], others: LeftOutLines) -> list[Row]:
    """The rows without those that another run of the same speaks against: faster ones of ``twins``,
    and far slower ones (``disturbed``).

    Of two runs that differ, nobody says which was not what it seems. So those that are not used
    count as unexplained.
    """
    runs: dict[Measurement, list[float]] = {}
    for row in rows:
        runs.setdefault(_same(row), []).append(row["itl_ms"])
    kept, fastest = [], dict.fromkeys(runs, math.inf)
    for row in rows:
        verdict = verdict_of(RULES.twins, row) if row["itl_ms"] != max(runs[_same(row)]) else None
        if verdict is None:
            kept.append(row)
            fastest[_same(row)] = min(row["itl_ms"], fastest[_same(row)])
        else:
            others.keep(_itself(row), row, verdict.reason)
    for row in kept:
        if row["itl_ms"] >= RULES.disturbed * fastest[_same(row)]:
            others.keep(_itself(row), row, "slowed by something else")
    return [row for row in kept if row["itl_ms"] < RULES.disturbed * fastest[_same(row)]]


def _itself(row: Row) -> Measurement:
    return (*_same(row), row["ttft_ms"], row["itl_ms"])


def _same(row: Row) -> Measurement:
    return tuple(row[name] for name in SAME)


def _fits(row: Row) -> bool:
    try:
        return memory_plan(point_of(row).deployment).blocks > 0
    except DoesNotFit:
        return False


def _is_multiplied(line: Mapping[str, str]) -> bool:
    return any(name in line["silicon_data_source"] for name in RULES.multiplied)


def degrees(line: Mapping[str, str]) -> tuple[int, int, int]:
    """tp, attention dp and ep of a line as it ran.

    A dump that multiplies has ep in tp or dp once more where experts are split by both, and in dp
    and ep where not.
    """
    tp, dp, moe_tp, ep = (
        int(line[name] or 1)
        for name in ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    )
    if _is_multiplied(line) and ep > 1 and tp * dp == moe_tp * ep:
        root = math.isqrt(tp * dp)
        if moe_tp == ep == root and 1 in (tp, dp):
            return (root, 1, root) if dp == 1 else (1, root, root)
        if moe_tp == 1 and tp == dp == root:
            return root, 1, root
    if not line["attention_dp_size"]:
        dp = max(1, moe_tp * ep // tp)
    return tp, dp, ep


def facts_of(line: Mapping[str, str]) -> Row:
    """What the rules see of a line, with attention ranks where only the number of its configuration
    tells them.
    """
    tp, dp, ep = degrees(line)
    config = re.search(r"config_id=(\d+)", line["silicon_data_source"])
    if config and int(config[1]) in RULES.configs_with_ranks:
        tp, dp = 1, tp
    return RULES.facts(line, tp, dp, ep)


def _measurement(line: Mapping[str, str], facts: Row) -> Measurement:
    values = (float(f"{value:.{DIGITS}g}") for value in measured_of(line).values())
    return (
        *(
            facts[name]
            for name in ("model", "system", "backend", "precision", "isl", "osl", "clients")
        ),
        *values,
    )


def _row(line: Mapping[str, str], facts: Row) -> Row:
    """The columns of a measured table, and ``spread``, ``slots`` and ``budget`` of the run."""
    names = ("model", "gpu", "tp", "dp", "ep", "isl", "osl")
    row = {name: facts[name] for name in names} | measured_of(line) | settings(RULES.rows, facts)
    return row if facts["dump"] == "nvidia" else row | run_of(row, facts["day"])
