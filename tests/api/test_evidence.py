from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.spec.catalog.repositories_cases import needs_field
from tonnage import api


def test_a_layout_may_be_named_where_a_row_names_a_file_whose_fields_leave_it_open(
    tmp_path: Path,
) -> None:
    """As in ``memory``, ``size`` and ``simulate``; ``calibrate`` reads the same rows."""
    sizes = {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
    }
    config = {
        "architectures": ["UnheardOfForCausalLM"],
        "hidden_act": "gelu",
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
        **sizes,
    }
    file, table = tmp_path / "config.json", tmp_path / "points.csv"
    file.write_text(json.dumps(config), encoding="utf-8")
    heads = "model,gpu,precision,tp,isl,osl,concurrency,requests,engine,itl_ms\n"
    table.write_text(
        heads + f"{file},h100-sxm-80gb,fp16,1,200,20,4,20,vllm,7.0\n", encoding="utf-8"
    )
    (skipped,) = api.score(table).skipped
    assert "hidden_act" in skipped.reason
    named = api.score(table, layout="LlamaForCausalLM")
    table.write_text(
        table.read_text(encoding="utf-8").replace(str(file), "llama-3-8b"), encoding="utf-8"
    )
    assert (named.predicted, named.overall["itl_ms"].bias) == (
        1,
        pytest.approx(api.score(table).overall["itl_ms"].bias, abs=0.5),
    )


FIELD = Path(__file__).resolve().parents[3] / "shared" / "field"


@needs_field
@pytest.mark.parametrize("file", ["catalog_checkpoint_names", "hf_names"])
def test_score_knows_every_name_of_the_field(file: str) -> None:
    assert api.score(FIELD / f"{file}.csv").unknown == {}
