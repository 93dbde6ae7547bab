"""What is refused on purpose names its reason, and nothing that is there is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tonnage.cli.main import VERBS, flag
from tonnage.scope import REFUSED, refused
from tonnage.spec.catalog.entries import engine_shelf, gpu_shelf, model_shelf
from tonnage.spec.precision import ALIASES, PRECISIONS
from tonnage.spec.scenario import leaves

PAGE = (Path(__file__).parents[1] / "docs" / "scope.md").read_text(encoding="utf-8")
THERE = {
    "precision": [*PRECISIONS, *ALIASES],
    "GPU": [*gpu_shelf().by_name, *gpu_shelf().aliases],
    "engine": [*engine_shelf().by_name, *engine_shelf().aliases],
    "model": [*model_shelf().by_name, *model_shelf().aliases],
    "command": list(VERBS),
    "option": [flag(leaf.path) for leaf in leaves()],
}


@pytest.mark.parametrize("kind", THERE)
def test_nothing_that_is_there_is_refused(kind: str) -> None:
    assert [name for name in THERE[kind] if refused(kind, name)] == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("precision", name) for name in ("fp32", "TF32", "float32")),
        *(("GPU", name) for name in ("H100 MIG 1g.10gb", "a100-3g.40gb", "jetson-orin-nano")),
        *(("model", name) for name in ("google-bert/bert-base-uncased", "BAAI/bge-m3", "openai/whisper-large-v3", "stable-diffusion-xl")),
        *(("option", name) for name in ("--lora", "--enable-lora", "--cpu-offload-gb", "--swap-space", "--mig-profile", "--bls")),
        *(("command", name) for name in ("train", "distill", "prune", "quantize")),
    ],
)
def test_what_is_asked_for_by_its_usual_names_is_refused(kind: str, name: str) -> None:
    assert refused(kind, name).endswith("(docs/scope.md)")


def test_the_page_shows_most_reasons_as_the_error_that_one_gets() -> None:
    shown = " ".join(re.findall(r"is not covered: (.*)", PAGE))
    reasons = {why for rows in REFUSED.values() for _, why in rows}
    assert len({why for why in reasons if why in shown}) >= 13
