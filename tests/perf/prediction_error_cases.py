"""What the tests of prediction error share with others."""

from __future__ import annotations

import math
from typing import Any

from tonnage.perf.residuals import Regime

NOWHERE = {"known_gpu": False, "known_engine": False}


def regime(load: str = "light", mix: str = "prompt", family: str = "dense", **known: Any) -> Regime:
    return Regime(load=load, mix=mix, family=family, **known)


def width(bounds: tuple[float, float]) -> float:
    return math.log(bounds[1] / bounds[0])
