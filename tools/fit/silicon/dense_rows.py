"""The usable rows of dense models in ``silicon_sample.csv``, by the rules of ``dense.yaml``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.fit.evidence import CONTRADICTS, TWICE, LeftOutLines
from tools.fit.rules import read_rules, settings
from tools.fit.silicon.sample import Row, SampleRules, Selection, measured_of, read_sample

RULES = read_rules(Path(__file__).with_name("dense.yaml"), SampleRules)

GPUS = RULES.gpus


def select(file: Path) -> Selection:
    """The usable rows of the file, each measurement once.

    Raises:
        InputError: it cannot be read, or is no such file.
    """
    others = LeftOutLines()
    rows: dict[tuple[Any, ...], Row] = {}
    for line in read_sample(file):
        facts = RULES.facts(
            line, tp=int(line["tp_size"] or 1), dp=int(line.get("attention_dp_size") or 1), ep=1
        )
        verdict = RULES.unusable(facts)
        if verdict is not None and verdict.evidence != CONTRADICTS:
            others.count(verdict.reason, verdict.evidence)
            continue
        names = ("model", "gpu", "tp", "isl", "osl")
        row = (
            {name: facts[name] for name in names} | measured_of(line) | settings(RULES.rows, facts)
        )
        if verdict is not None:
            others.keep(tuple(row.values()), row, verdict.reason)
        elif tuple(row.values()) in rows:
            others.count("same measurement in another dump", TWICE)
        else:
            rows[tuple(row.values())] = row
    return Selection.of(rows.values(), others)
