"""``trade_offs.yaml`` is a published table of what number formats cost in accuracy and in calibration."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from tonnage.spec.catalog.entries import shipped_yaml
from tonnage.spec.precision import BITS, SPARSE
from tonnage.spec.typed_values import read_entries, strict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tonnage.spec.precision import Precision


NATIVE = "none"
"""Accuracy impact and calibration of the format in which the model itself is published."""


@strict
class TradeOff:
    """What has been published about one number format.

    Attributes:
        name: the format, or "2:4".
        gain_small, gain_large: speed over 16 bits at batch 4 and less, and at 16 and more: "none", "medium" or "high"; "" where unsaid.
        accuracy_impact: from "very low" to "high".
        calibration: how long it takes, in words; minutes are of no named model, and grow with its size.
        source, date: where that is given, and when it was taken down.
    """

    name: str
    gain_small: str
    gain_large: str
    accuracy_impact: str
    calibration: str
    source: str
    date: str


@cache
def _trade_offs() -> Mapping[str, TradeOff]:
    made = read_entries(TradeOff, shipped_yaml("trade_offs.yaml"), "catalog/trade_offs.yaml")
    return MappingProxyType({one.name: one for one in made})


def trade_offs(precision: Precision) -> tuple[TradeOff, ...]:
    """What is published of a precision's weight format, and of sparsity where it is sparse; empty where nothing is.

    Raises:
        DataErrors: ``trade_offs.yaml`` is damaged.
    """
    names = (precision.weight_format, *((SPARSE,) if precision.sparse else ()))
    return tuple(_trade_offs()[name] for name in names if name in _trade_offs())


def accuracy_and_calibration(precision: Precision, released: str = "") -> tuple[str, str]:
    """Accuracy impact and calibration of a precision, such as ("very low", "minutes"); ("", "") where nothing is published.

    Args:
        precision: what runs.
        released: the format of the model's own checkpoint: to run that costs neither.
    """
    found = trade_offs(precision)
    if released and not precision.sparse and precision.weight_format == released.partition("+")[0]:
        return ("", "") if precision.value_bits == BITS["fp16"] else (NATIVE, NATIVE)
    if len(found) < 2:
        return (found[0].accuracy_impact, found[0].calibration) if found else ("", "")
    impact, calibration = ([f"{getattr(one, key)} ({one.name})" for one in found] for key in ("accuracy_impact", "calibration"))
    return " and ".join(impact), " and ".join(calibration)
