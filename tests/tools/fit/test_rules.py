from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from tonnage.errors import DataError
from tools.fit.evidence import CONTRADICTS, STATED, TWICE
from tools.fit.rules import LeftOut, Rule, Verdict, holds, read_rules, settings, valued, verdict_of
from tools.fit.silicon.decode_pools import RULES as POOLS
from tools.fit.silicon.dense_rows import RULES as DENSE
from tools.fit.silicon.inferencemax import RULES as SCRIPTS
from tools.fit.silicon.moe_rows import RULES as MOE

COLUMNS = {
    "model": "kimi",
    "gpu": "b200-sxm",
    "clients": 64,
    "tp": 8,
    "isl": 1000,
    "day": "2026-04-16",
    "source": "dump of dynamo",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules of a made data set."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    rows: tuple[Rule, ...]
    left_out: tuple[LeftOut, ...] = ()


def read(folder: Path, text: str) -> Rules:
    file = folder / "made.yaml"
    file.write_text(text, encoding="utf-8")
    return read_rules(file, Rules)


def test_conditions_and_formulas() -> None:
    for where, expected in [
        ({}, True),
        ({"model": ["qwen", "kimi"], "tp": 8}, True),
        ({"model": "kimi", "tp": 4}, False),
        ({"model": {"not": ["qwen", "kimi"]}}, False),
        ({"gpu": {"starts": ["h200", "b200"]}}, True),
        ({"source": {"contains": "dynamo"}}, True),
        ({"clients": {"above": 64}}, False),
        ({"clients": {"from": 64, "until": 64}}, True),
        ({"day": {"above": "", "below": "2026-04-16"}}, False),
        ({"clients": "=8 * tp"}, True),
        ({"isl": {"above": "=clients * 20"}}, False),
        ([{"tp": 4}, {"tp": 8}], True),
        ([{"tp": 4}, {"tp": 2}], False),
    ]:
        assert holds(where, COLUMNS) is expected
    for formula, worth in [
        ("=(clients + isl + 127) // 64 * 64", 1152),
        ("=max(isl - 999, 4)", 4),
        ("=ceil(isl / tp)", 125),
    ]:
        assert valued(formula, COLUMNS) == worth
        assert valued(formula[1:], COLUMNS) == formula[1:]


def test_later_rules_see_and_replace_what_earlier_ones_set(tmp_path: Path) -> None:
    rules = read(
        tmp_path,
        """
anchors:
  - &small {budget: 100, stream: 1}
rows:
  - {where: {}, set: *small}
  - {where: {budget: 100, clients: {from: 64}}, set: {<<: *small, budget: "=budget + isl"}}
  - {where: {tp: 8}, set: {tp: 1, dp: "=tp"}, reason: both are set at once}
  - {where: {tp: 8}, set: {stream: 9}}
""",
    )
    assert settings(rules.rows, COLUMNS) == {"budget": 1100, "stream": 1, "tp": 1, "dp": 8}
    assert settings(rules.rows, COLUMNS | {"clients": 1, "tp": 2}) == {"budget": 100, "stream": 1}
    for text, says in [
        ("rows: [{where: {}, sets: {a: 1}}]", "made.yaml: rows.0."),
        (
            "rows: [{where: {tp: {over: 8}}, set: {a: 1}}]",
            "'over' is no condition; write one of not, starts",
        ),
        (
            'rows: [{where: {}, set: {a: "=tp ** 2"}}]',
            "made.yaml: '=tp ** 2' is no formula: 'tp ** 2' is none; it may have columns",
        ),
        ("just words", "made.yaml: "),
    ]:
        with pytest.raises(DataError) as error:
            read(tmp_path, text)
        assert says in str(error.value)


def test_the_first_reason_counts_and_names_its_columns() -> None:
    rules = (
        LeftOut(reason="slow", where={"clients": {"from": 64}}, evidence=CONTRADICTS),
        LeftOut(reason="tp {tp}", where={"tp": {"above": 4}}, evidence=STATED),
        LeftOut(reason="kimi", where={"model": "kimi"}, evidence=TWICE),
    )
    few = COLUMNS | {"clients": 2}
    assert verdict_of(rules, few) == Verdict(reason="tp 8", evidence=STATED)
    assert verdict_of(rules, few | {"tp": 2}) == Verdict(reason="kimi", evidence=TWICE)
    assert verdict_of(rules, few | {"tp": 2, "model": "qwen"}) is None
    # what only contradicts us is the last resort
    assert verdict_of(rules, COLUMNS) == Verdict(reason="tp 8", evidence=STATED)
    assert verdict_of(rules, COLUMNS | {"tp": 2, "model": "qwen"}) == Verdict(
        reason="slow", evidence=CONTRADICTS
    )


def test_every_name_in_the_shipped_rules_is_in_a_catalog() -> None:
    from tonnage.spec.catalog import find_engine, find_gpu, find_model
    from tonnage.spec.precision import find_precision

    found = [rule for rules in (DENSE, MOE, POOLS) for rule in rules.rows] + list(SCRIPTS.runs)
    engines = {rule.set["engine"] for rule in found if "engine" in rule.set}
    assert {find_engine(name).name for name in engines} == engines
    for rules in (DENSE, MOE, POOLS):
        assert [find_model(name).name for name in rules.models.values()] == list(
            rules.models.values()
        )
        assert [find_gpu(name).name for name in rules.gpus.values()] == list(rules.gpus.values())
        for rule in rules.formats:
            find_precision(rule.set["format"])
    for rule in found:
        if not str(rule.set.get("precision", "=")).startswith("="):
            find_precision(rule.set["precision"])
