from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.spec.config_files import PUBLISHED, values, write
from tonnage.errors import InputError
from tonnage.spec.catalog import models
from tonnage.spec.config_json import read_config
from tonnage.spec.model import Model

keys = st.sampled_from(
    sorted(
        set().union(*(config for config, _ in PUBLISHED))
        | {"quantization_config", "vision_config", "n_head_kv"}
    )
)


@settings(
    max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    st.sampled_from([config for config, _ in PUBLISHED]),
    st.dictionaries(keys, values, max_size=4),
    st.sets(keys, max_size=2),
)
def test_any_change_gives_a_model_or_one_line(
    tmp_path: Path, base: dict[str, Any], change: dict[str, Any], removed: set[str]
) -> None:
    config = {key: value for key, value in (base | change).items() if key not in removed}
    try:
        model = read_config(write(tmp_path, config))
    except InputError as error:
        message = str(error)
    else:
        message = ""
        assert isinstance(model, Model)
        assert model.parameters > 0
        assert model.heads % model.kv_heads == 0
        assert model.max_context >= 1
        assert model.experts >= model.experts_per_token >= 1
    assert "\n" not in message


PLAIN = [
    model
    for model in models()
    if model.latent is None
    and not model.shared_inner
    and not model.mixers
    and not model.dense_layers
]


@pytest.mark.parametrize("model", PLAIN, ids=lambda model: model.name)
def test_plain_models_are_counted_to_the_bit_as_before_mixed_ones_were_known(model: Model) -> None:
    attention = model.layers * model.hidden * model.head_dim * 2 * (model.heads + model.kv_heads)
    expert = model.layers * (3 if model.gated else 2) * model.hidden * model.ffn
    router = model.layers * model.hidden * model.experts if model.experts > 1 else 0
    assert model.common_parameters == attention + router + (expert if model.experts == 1 else 0)
    assert model.linear_parameters == attention + router + model.experts * expert
    assert model.active_parameters == attention + router + model.experts_per_token * expert
    assert model.inner == model.ffn * model.experts_per_token
    pairs = [
        some.layers * (some.mixer.work(16, 1).pair or some.mixer.work(16, 1).token / model.window)
        for some in model.by_kind
    ]
    assert sum(pairs) == 4 * model.layers * model.heads * model.head_dim
    for tp in (1, 2, 8, 64):
        kv = 2 * model.layers * max(model.kv_heads / tp, 1.0) * model.head_dim
        assert model.kv_elements_per_gpu(tp) == kv
    half = model.part(model.layers // 2)
    assert half == replace(
        model, layers=model.layers // 2, windowed_layers=model.windowed_layers // 2
    )
