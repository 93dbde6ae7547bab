"""The usable rows of dense models in ``silicon_sample.csv``, by the rules of ``dense.yaml``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tools.fit.rules import read_rules, settings
from tools.fit.silicon.sample import Row, SampleRules, Selection, measured_of, read_sample

RULES = read_rules(Path(__file__).with_name("dense.yaml"), SampleRules)

GPUS = RULES.gpus


def select(file: Path) -> Selection:
    """The usable rows of the file, each measurement once.

    Raises:
        InputError: it cannot be read, or is no such file.
    """
    reasons: Counter[str] = Counter()
    rows: dict[tuple[Any, ...], Row] = {}
    for line in read_sample(file):
        facts = RULES.facts(line, tp=int(line["tp_size"] or 1), dp=int(line.get("attention_dp_size") or 1), ep=1)
        reason = RULES.unusable(facts)
        if reason:
            reasons[reason] += 1
            continue
        names = ("model", "gpu", "tp", "isl", "osl")
        row = {name: facts[name] for name in names} | measured_of(line) | settings(RULES.rows, facts)
        if tuple(row.values()) in rows:
            reasons["same measurement in another dump"] += 1
        else:
            rows[tuple(row.values())] = row
    return Selection(rows=list(rows.values()), left_out=dict(reasons.most_common()))
