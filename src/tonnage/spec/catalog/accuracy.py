"""The published quality of models: ``accuracy.yaml`` holds benchmark scores, each with its source,
its date and how it was measured.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from tonnage.errors import DataErrors, InputError
from tonnage.spec.catalog import find_model
from tonnage.spec.catalog.entries import shipped_yaml
from tonnage.spec.precision import BITS, SPARSE, Precision
from tonnage.spec.typed_values import read_as, read_entries, strict

if TYPE_CHECKING:
    from collections.abc import Mapping


# The benchmark that is shown where there is room for one: most models publish it
BENCHMARK = "MMLU"


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityScore:
    """The published score of a model in one benchmark."""

    benchmark: str  # such as "MMLU"
    score: float  # per cent of the questions that were answered correctly
    setting: str  # variant of the model, and how it was prompted
    source: str  # the publication; "(recalled)" at its end where it was not found again
    date: str  # of the publication, YYYY-MM-DD or YYYY-MM


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedScore(QualityScore):
    """A score with the model that it is of; some models are not in the catalog."""

    model: str


def listed_scores() -> tuple[ListedScore, ...]:
    """Every published score, by model. Raises DataErrors: ``accuracy.yaml`` is damaged."""
    return tuple(
        ListedScore(model=model, **asdict(score))
        for model, scores in _scores().items()
        for score in scores
    )


def find_quality(model_name: str) -> tuple[QualityScore, ...]:
    """The published scores of a model, by any of its spellings; empty where none are known, and for
    files.

    Raises DataErrors: ``accuracy.yaml`` is damaged.
    """
    if model_name.endswith(".json"):
        return ()
    try:
        name = find_model(model_name).name
    except InputError:
        return ()
    return _scores().get(name, ())


def find_score(model_name: str, benchmark: str = BENCHMARK) -> QualityScore | None:
    """The first published score of a model in one benchmark; None where none is known."""
    return next((score for score in find_quality(model_name) if score.benchmark == benchmark), None)


@strict
class ScoreTable:
    """One publication as ``accuracy.yaml`` writes it: scores in per cent by model and benchmark."""

    source: str
    date: str
    setting: str
    scores: dict[str, dict[str, float]]


@cache
def _scores() -> Mapping[str, tuple[QualityScore, ...]]:
    return read_scores(shipped_yaml("accuracy.yaml"))


def read_scores(tables: object) -> Mapping[str, tuple[QualityScore, ...]]:
    """Scores by model, of the content of ``accuracy.yaml``.

    Raises DataErrors: unknown keys; scores outside 0 to 100 or without source, date or setting; two
    of one model in one benchmark and one publication.
    """
    where = "catalog/accuracy.yaml"
    by_model: dict[str, dict[tuple[str, str, str], QualityScore]] = {}
    faults: list[str] = []
    for table in read_as(tuple[ScoreTable, ...], tables, where):
        for model, scores in table.scores.items():
            for benchmark, value in scores.items():
                score = QualityScore(
                    benchmark=benchmark,
                    score=value,
                    setting=table.setting,
                    source=table.source,
                    date=table.date,
                )
                score_key = (benchmark, table.source, table.setting)
                faults += [
                    f"{where}: {model}: {benchmark}: {fault}"
                    for fault in _faults(score, score_key in by_model.get(model, {}))
                ]
                by_model.setdefault(model, {})[score_key] = score
    DataErrors.raise_if(faults)
    return MappingProxyType({model: tuple(scores.values()) for model, scores in by_model.items()})


def _faults(score: QualityScore, is_known: bool) -> list[str]:
    """What is wrong with a score; ``is_known`` where the publication gives one of the same model
    and benchmark already.
    """
    checks = {
        "has no source, no date or no setting": not (score.source and score.date and score.setting),
        f"{score.score:g} is not between 0 and 100": not 0 < score.score <= 100,
        "stands there twice": is_known,
    }
    return [fault for fault, holds in checks.items() if holds]


# ``trade_offs.yaml`` is a published table of what number formats cost in accuracy and in
# calibration.


# Accuracy impact and calibration of the format in which the model itself is published
NATIVE = "none"


@strict
class Loss:
    """A published loss of score in a benchmark: relative to 16 bits, in per cent, by model; and
    where and when that was read.
    """

    benchmark: str
    percent: dict[str, float]
    source: str
    date: str


@strict
class TradeOff:
    """The published losses and gains of one number format."""

    name: str  # the format, "2:4", or "kv-fp8" of a KV cache
    # gain_small, gain_large: speed over 16 bits at batch 4 and less, and at 16 and more: "none",
    # "medium" or "high"; "" where unsaid
    gain_small: str
    gain_large: str
    accuracy_impact: str  # from "very low" to "high"
    # how long it takes, in words; minutes are of no named model, and grow with its size
    calibration: str
    # source, date: where that is given, and when it was taken down
    source: str
    date: str
    losses: tuple[Loss, ...] = ()  # what models lost in benchmarks


@cache
def _trade_offs() -> Mapping[str, TradeOff]:
    trade_offs = read_entries(TradeOff, shipped_yaml("trade_offs.yaml"), "catalog/trade_offs.yaml")
    return MappingProxyType({trade_off.name: trade_off for trade_off in trade_offs})


def trade_offs(precision: Precision) -> tuple[TradeOff, ...]:
    """What is published of a precision's weight format, and of sparsity where it is sparse; empty
    where nothing is.

    Raises DataErrors: ``trade_offs.yaml`` is damaged.
    """
    names = (precision.weight_format, *((SPARSE,) if precision.sparse else ()))
    return tuple(_trade_offs()[name] for name in names if name in _trade_offs())


def cache_losses() -> tuple[Loss, ...]:
    """Published losses with a KV cache in FP8 in place of 16 bits. Raises DataErrors:
    ``trade_offs.yaml`` is damaged.
    """
    return _trade_offs()["kv-fp8"].losses


def published_loss(
    precision: Precision, parameters: float, benchmark: str = BENCHMARK
) -> tuple[str, float] | None:
    """The model nearest in size that publishes what it lost in a precision, and how much, in per
    cent; None where none does.

    Args:
        parameters: how many the model in question has; sizes of the others are those in their
            names.
    """
    losses = [
        (
            abs(math.log(parameters / (1e9 * float(name.rpartition("-")[2].removesuffix("b"))))),
            name,
            percent,
        )
        for trade_off in trade_offs(precision)
        for loss in trade_off.losses
        if loss.benchmark == benchmark
        for name, percent in loss.percent.items()
    ]
    return (
        min(losses, key=lambda loss: loss[0])[1:]
        if losses and len(trade_offs(precision)) == 1
        else None
    )


def accuracy_and_calibration(precision: Precision, released: str = "") -> tuple[str, str]:
    """Accuracy impact and calibration of a precision, such as ("very low", "minutes"); ("", "")
    where nothing is published.

    ``released`` is the format of the model's own checkpoint: to run that costs neither.
    """
    figures = trade_offs(precision)
    if released and not precision.sparse and precision.weight_format == released.partition("+")[0]:
        return ("", "") if precision.value_bits == BITS["fp16"] else (NATIVE, NATIVE)
    if len(figures) < 2:
        return (figures[0].accuracy_impact, figures[0].calibration) if figures else ("", "")
    impact, calibration = (
        [f"{getattr(trade_off, key)} ({trade_off.name})" for trade_off in figures]
        for key in ("accuracy_impact", "calibration")
    )
    return " and ".join(impact), " and ".join(calibration)
