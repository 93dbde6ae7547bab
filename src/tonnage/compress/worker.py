"""Runs in the environment of a tool, never in Tonnage's: executes the recipe, then judges what it
wrote next to the original.

    python worker.py      one line of JSON on stdin: recipe, model, output, texts, needs, reload, scaled

On stdout a line of JSON for each step, ``{"step": …}``; at the end ``{"figures": …}``, or
``{"refused": …}`` with the reason. Other lines are the tool's own. It ends when stdin closes before
that: the asking process is gone. Its imports are those of the tool's environment.
"""  # noqa: E501

from __future__ import annotations

import json
import math
import os
import sys
import threading
import traceback
import warnings
from pathlib import Path
from typing import Any

WINDOW, WINDOWS = 512, 16  # Tokens of a window that is judged, and how many of a text are at most


class Refused(Exception):
    """The tool cannot do the job; the message is the reason."""


def say(**line: Any) -> None:
    """A line for the one who asked; what the tool prints goes to stderr."""
    print(json.dumps(line), file=sys.__stdout__, flush=True)


def check(job: dict[str, Any]) -> None:
    """Refuse a kind of model that the tool does not know, before anything is loaded."""
    if not job["needs"]:
        return
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    try:
        config = AutoConfig.from_pretrained(job["model"])
    except (ValueError, KeyError, OSError) as error:
        raise Refused(
            f"transformers does not know the model: {' '.join(str(error).split())[:300]}"
        ) from None
    if config.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise Refused(f"transformers has no language model of the kind {config.model_type}")
    names: list[str] = list(config.architectures or ())
    mappings: Any = ()
    if job["needs"] == "awq":
        from llmcompressor.modifiers.transform.awq.mappings import AWQ_MAPPING_REGISTRY

        mappings = AWQ_MAPPING_REGISTRY
    elif job["needs"] == "smoothquant":
        from llmcompressor.modifiers.transform.smoothquant.utils import MAPPINGS_REGISTRY

        mappings = MAPPINGS_REGISTRY
    if mappings and not set(names) & set(mappings):
        raise Refused(
            f"{job['needs']} of llm-compressor has no mapping for {', '.join(names)}; it knows"
            f" {', '.join(sorted(mappings))}"
        )


def loaded(folder: str) -> Any:
    """The model of a folder, ready to be asked; experts as matrices where it is quantized, so that
    these stay quantized.
    """
    from transformers import AutoModelForCausalLM

    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            folder, dtype="auto", output_loading_info=True
        )
    except Exception as error:
        raise Refused(
            f"transformers cannot load {folder}: {' '.join(str(error).split())[:300]}"
        ) from None
    if report["missing_keys"]:
        names = ", ".join(sorted(report["missing_keys"])[:3])
        raise Refused(
            f"transformers finds no weights for {names} in {folder}: the tool does not write this"
            " kind of model in this format"
        )
    return model.eval()


def windows(folder: str, text: str) -> list[list[int]]:
    """The first windows of a text, in tokens."""
    from transformers import AutoTokenizer

    ids = AutoTokenizer.from_pretrained(folder)(Path(text).read_text(encoding="utf-8"))["input_ids"]
    token_windows = [ids[start : start + WINDOW] for start in range(0, len(ids), WINDOW)][:WINDOWS]
    token_windows = [window for window in token_windows if len(window) > 1]
    if not token_windows:
        raise Refused(f"{text} has fewer than 2 tokens; give a longer text")
    return token_windows


def compared(original: Any, compressed: Any, prompts: list[list[int]]) -> dict[str, float]:
    """How the next token is predicted by both: perplexity, top-1 agreement, and KL(original ‖ made)
    in nats a token.
    """
    import torch

    tokens, same, divergence, losses = 0, 0, 0.0, [0.0, 0.0]
    for ids in prompts:
        row = torch.tensor([ids])
        with torch.no_grad():
            first, second = (
                model(row.to(model.device), use_cache=False)
                .logits[0, :-1]
                .float()
                .log_softmax(-1)
                .cpu()
                for model in (original, compressed)
            )
        target = row[0, 1:, None]
        tokens += len(target)
        same += int((first.argmax(-1) == second.argmax(-1)).sum())
        divergence += float((first.exp() * (first - second)).sum(-1).double().sum())
        for place, logs in enumerate((first, second)):
            losses[place] -= float(logs.gather(1, target).double().sum())
    before, after = (math.exp(min(loss / tokens, 700.0)) for loss in losses)
    return {
        "tokens": tokens,
        "perplexity_original": before,
        "perplexity": after,
        "top1_agreement": same / tokens,
        "kl_nats": divergence / tokens,
    }


def weight_errors(original: Any, compressed: Any) -> dict[str, float]:
    """Relative error of each matrix that differs: the Frobenius norm of the difference over that of
    the original.
    """
    import torch

    dense = dict(compressed.named_parameters())
    for name, module in compressed.named_modules():
        # of Model Optimizer, which quantizes in memory on request
        quantizer = getattr(module, "weight_quantizer", None)
        if quantizer is not None and getattr(quantizer, "is_enabled", False):
            with torch.no_grad():
                dense[f"{name}.weight"] = quantizer(module.weight)
    errors = {}
    for name, weight in original.named_parameters():
        made_weight = dense.get(name)
        if (
            weight.dim() < 2
            or made_weight is None
            or made_weight.shape != weight.shape
            or not made_weight.is_floating_point()
        ):
            continue
        a, b = weight.detach().cpu().double(), made_weight.detach().cpu().double()
        if not torch.equal(a, b) and float(a.norm()) > 0:
            errors[name] = float((a - b).norm() / a.norm())
    return errors


def work(job: dict[str, Any]) -> None:
    """Do the whole job."""
    check(job)
    texts = {name: windows(job["model"], path) for name, path in job["texts"].items()}
    say(step="loading and calibrating" if job["needs"] else "converting the safetensors")
    recipe: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(job["recipe"], "recipe.py", "exec"), recipe)
    recipe["OUTPUT"] = job["output"]
    model = recipe["compressed"]()
    figures: dict[str, Any] = {}
    if not job["reload"]:
        figures = judged(job, model.eval(), texts)
    say(step="writing the checkpoint")
    recipe["write"](model)
    if job["reload"]:
        del model
        say(step="reloading the checkpoint")
        figures = judged(job, loaded(job["output"]), texts)
    say(figures=figures)


def judged(
    job: dict[str, Any], compressed: Any, texts: dict[str, list[list[int]]]
) -> dict[str, Any]:
    """The figures of a model in the format, next to the original's."""
    original = loaded(job["model"])
    figures: dict[str, Any] = {}
    for name, rows in texts.items():
        say(step=f"judging on {name.replace('_', '-')} text")
        figures[name] = compared(original, compressed, rows)
    if not texts:
        # compressed weights are unpacked by the first forward pass
        compared(original, compressed, [[0, 1]])
    if not job["scaled"]:
        say(step="comparing weights")
        figures["weight_errors"] = weight_errors(original, compressed)
    return figures


def end_with_asker() -> None:
    """End at once when stdin closes."""
    while sys.stdin.readline():
        pass
    os._exit(3)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    warnings.filterwarnings("ignore")
    asked = json.loads(sys.stdin.readline())
    threading.Thread(target=end_with_asker, daemon=True).start()
    sys.stdout = sys.stderr
    try:
        work(asked)
    except Refused as refusal:
        say(refused=str(refusal))
    except Exception as error:
        traceback.print_exc()
        say(failed=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
