"""Names of metrics, errors and models as each engine has them."""

from __future__ import annotations

from tonnage.serve.dialect import DIALECTS


def test_models_belong_to_the_engine() -> None:
    cards = {name: one.model("m", 7, 1_000) for name, one in DIALECTS.items()}
    assert cards["sglang"] == {
        "id": "m",
        "object": "model",
        "created": 7,
        "owned_by": "sglang",
        "root": "m",
        "parent": None,
        "max_model_len": 1_000,
    }
    assert cards["tensorrt-llm"] == {
        "id": "m",
        "object": "model",
        "created": 7,
        "owned_by": "tensorrt_llm",
    }
    assert cards["vllm"]["permission"][0]["object"] == "model_permission"
