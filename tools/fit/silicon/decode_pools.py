"""The disaggregated rows of ``silicon_sample.csv``, as far as steps alone predict them: tokens of
their decode pools.

A disaggregated deployment has workers that take prompts and others that decode. How long requests
wait between the two is the matter of a simulator of both, which does not exist yet. Once all
clients of a decode worker decode, a token takes one of its steps, so TPOT is scored, and TTFT is
not. No such row is in a fit, nor are most of their GPUs (GB200, GB300) and numbers of GPUs.

The rules of ``decode_pools.yaml`` say which rows are used; models and formats are those of
``moe.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tonnage.spec.catalog import find_gpu, system_of
from tools.fit.evidence import LeftOutLines
from tools.fit.rules import read_rules, settings
from tools.fit.silicon import moe_rows
from tools.fit.silicon.sample import Row, SampleRules, Selection, measured_of, read_sample

SPREAD = 0.2
"""InferenceMAX draws lengths uniformly from (1 − SPREAD … 1) × nominal."""

OWN = read_rules(Path(__file__).with_name("decode_pools.yaml"), SampleRules)
SHARED = moe_rows.RULES
RULES = replace(
    OWN,
    models=SHARED.models | OWN.models,
    gpus=SHARED.gpus | OWN.gpus,
    formats=SHARED.formats + OWN.formats,
)

WORKERS, SPLIT = (
    "decode_num_workers",
    ("decode_tp_size", "decode_attention_dp_size", "decode_moe_ep_size"),
)


def select_decode_pools(file: Path) -> Selection:
    """The usable rows of the file; ``concurrency`` is the clients of one decode worker.

    Raises:
        InputError: it cannot be read, or is no such file.
    """
    others = LeftOutLines()
    rows: list[Row] = []
    for line in read_sample(file):
        if line["mode"] == "agg":
            continue
        facts = _facts(line)
        verdict = RULES.unusable(facts)
        if verdict is None:
            rows.append(_row(line, facts))
        else:
            others.count(verdict.reason, verdict.evidence)
    return Selection.of(rows, others)


def _facts(line: Mapping[str, str]) -> Row:
    """What the rules see of a line: ``workers``; ``joined``, the GPUs that NVLink joins;
    ``waiting``, the share before the first token.
    """
    tp, dp, ep = (int(line.get(name) or 1) for name in SPLIT)
    found = RULES.facts(line, tp, dp, ep)
    ttft, tpot = measured_of(line).values()
    return found | {
        "workers": int(line.get(WORKERS) or 0),
        "joined": system_of(find_gpu(found["gpu"])).gpus if found["gpu"] else 0,
        "waiting": ttft / (ttft + tpot * _mean(found["osl"])) if found["measured"] else 0.0,
    }


def _mean(nominal: int) -> float:
    """Mean tokens of InferenceMAX's lengths."""
    return nominal * (1 - SPREAD / 2)


def _row(line: Mapping[str, str], facts: Row) -> Row:
    """The columns of a measured table, of one decode worker; lengths are the means of the run."""
    row = {name: facts[name] for name in ("model", "gpu", "tp", "dp", "ep")}
    lengths = {name: round(_mean(facts[name])) for name in ("isl", "osl")}
    return row | lengths | {"itl_ms": measured_of(line)["itl_ms"]} | settings(RULES.rows, facts)
