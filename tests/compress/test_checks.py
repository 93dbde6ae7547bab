"""What is refused before a tool is started: machine, folder, memory and disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.compress.refused import CONFIG, refused
from tonnage.compress import checks
from tonnage.compress.recipes import MODELOPT

if TYPE_CHECKING:
    import pytest


def test_the_folder_must_hold_a_whole_checkpoint_in_16_bits(model: Path, tmp_path: Path) -> None:
    assert "no folder" in refused(tmp_path / "absent", format="fp8")
    (model / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "other.safetensors"}}', encoding="utf-8"
    )
    assert "lacks other.safetensors" in refused(model, format="fp8")
    (model / "model.safetensors.index.json").write_text("[", encoding="utf-8")
    assert "is damaged" in refused(model, format="fp8")
    (model / "model.safetensors.index.json").unlink()
    (model / "config.json").write_text(
        json.dumps({**CONFIG, "quantization_config": {"quant_method": "fp8"}}), encoding="utf-8"
    )
    assert "already; give the checkpoint in 16 bits" in refused(model, format="fp8")


def test_what_this_machine_or_the_model_cannot_do(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    text = model.parent / "text.txt"
    assert "needs a GPU" in refused(model, format="w4a16-awq", text=text)
    assert "needs a GPU" in refused(model, format="nvfp4", tool=MODELOPT, text=text)
    (model / "config.json").write_text(
        json.dumps({**CONFIG, "hidden_size": 576, "head_dim": 64}), encoding="utf-8"
    )
    for form in ("w4a16-gptq", "fp8-block"):
        assert f"{form} takes 128 weights together, and rows have 576" in refused(
            model, format=form, text=text
        )
    monkeypatch.setattr(checks, "_memory_available", lambda: 1_000)
    assert "GiB of memory" in refused(model, format="fp8")
    (model / "config.json").write_text(
        json.dumps(
            {
                **CONFIG,
                "model_type": "gemma2",
                "head_dim": 64,
                "architectures": ["Gemma2ForCausalLM"],
            }
        ),
        encoding="utf-8",
    )
    assert "ruins models of the kind gemma2" in refused(model, format="int8", text=text)
