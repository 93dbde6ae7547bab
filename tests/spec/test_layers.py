"""Layers by kind: bytes and arithmetic by the formulas of their makers, and how tensor parallelism
splits them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.spec.catalog import models
from tonnage.spec.layers import WITH_STATE
from tonnage.spec.model import Model

MIXED = [model for model in models() if model.mixers]


@pytest.mark.parametrize("model", MIXED, ids=lambda model: model.name)
@given(bits=st.sampled_from((8, 16)), tp=st.sampled_from((1, 2, 4, 8)))
def test_more_gpus_never_keep_or_compute_more_each(model: Model, bits: int, tp: int) -> None:
    for some in model.by_kind:
        if not some.mixer.splits(tp):
            continue
        one, each = some.mixer.cache(bits, 1), some.mixer.cache(bits, tp)
        assert each.token <= one.token
        assert each.sequence <= one.sequence
        assert some.mixer.work(bits, tp).sequence <= some.mixer.work(bits, 1).sequence
        assert some.mixer.work(bits, tp).token <= some.mixer.work(bits, 1).token
        assert (one.sequence > 0) == (some.mixer.kind in WITH_STATE)
