"""Speculative decoding: which drafter proposes tokens, how many, and how often they are accepted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from tonnage.errors import InputError, option
from tonnage.spec.model import Model

Method = Literal["draft", "medusa", "redrafter", "eagle", "mtp", "ngram"]

METHODS: tuple[Method, ...] = get_args(Method)

MOST_TOKENS = 16
"""Guesses per step beyond which no engine goes."""

EXAMPLE = '"eagle k=3 acceptance=0.7" or "draft=llama-3.2-1b k=5 acceptance=0.8"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Speculative decoding with a chain of guesses.

    Attributes:
        method: who guesses. "draft": a smaller model. "eagle": one dense layer of the model's width behind a
            projection of twice that width, with the model's own head (EAGLE, arXiv 2401.15077). "mtp": one
            layer of the model itself, in the same way (DeepSeek-V3, arXiv 2412.19437, section 2.2). "medusa":
            per guess a residual block and an output head, all in one pass (arXiv 2401.10774). "redrafter": a recurrent
            cell of two matrices on twice the width and a head, a pass per guess (arXiv 2403.09919; sizes recalled).
            "ngram": looked up in the prompt, for nothing.
        tokens: guesses per sequence and step (k).
        acceptance: probability that a guess is right, where those before it were: a number of your own traffic.
        draft: the smaller model; None for the other methods.
    """

    method: Method
    tokens: int
    acceptance: float
    draft: Model | None = None

    @property
    def passes(self) -> int:
        """Passes of the drafter in a step, one after another."""
        return {"medusa": 1, "ngram": 0}.get(self.method, self.tokens)

    @property
    def label(self) -> str:
        """In short, such as "eagle k=3"."""
        return f"{self.method} k={self.tokens}"

    def __str__(self) -> str:
        """As ``parse_speculation`` reads it."""
        name = self.method if self.draft is None else f"draft={self.draft.name}"
        return f"{name} k={self.tokens} acceptance={self.acceptance:g}"

    def layers_of(self, model: Model) -> Model | None:
        """The drafter's own layers as a model; None where it has none. Its head is ``model``'s, but for a draft model."""
        if self.method == "draft":
            return self.draft
        if self.method == "mtp":
            return replace(model.part(1), dense_layers=0, mlp_layers=0)
        if self.method == "eagle":
            one = model.part(1)
            return replace(
                one,
                ffn=one.inner,
                experts=1,
                experts_per_token=1,
                shared_experts=0,
                shared_ffn=0,
                expert_latent=0,
                dense_layers=0,
                dense_ffn=0,
            )
        return None

    def projection_parameters(self, model: Model) -> int:
        """Weights that join hidden state and embedding before the drafter's layer."""
        return 2 * model.hidden**2 if self.method in ("eagle", "mtp") else 0

    def head_parameters(self, model: Model) -> int:
        """Weights of heads that only the drafter has, in 16 bits: all are read in a pass."""
        if self.method == "medusa":
            return self.tokens * (model.hidden**2 + model.head_parameters)
        return 4 * model.hidden**2 + model.head_parameters if self.method == "redrafter" else 0


def parse_speculation(text: str | None, where: str = option("speculation")) -> Speculation | None:
    """Read "eagle k=3 acceptance=0.7" or "draft=llama-3.2-1b k=5 acceptance=0.8"; "none" and None are none.

    Raises:
        InputError: no such method, or k or acceptance missing or out of range.
        UnknownName: no such draft model.
    """
    if text is None or text.strip().lower() == "none":
        return None
    first, *rest = text.split() or [""]
    method, _, drafter = first.partition("=")
    found = next((m for m in METHODS if m == method.lower()), None)
    given = dict(part.partition("=")[::2] for part in rest)
    if found is None or (found == "draft") != bool(drafter) or set(given) != {"k", "acceptance"}:
        raise InputError(f"{where}: '{text}' is not a speculation; write {EXAMPLE}, with one of {', '.join(METHODS)}")
    tokens, acceptance = given["k"], _number(given["acceptance"])
    if not (tokens.isascii() and tokens.isdigit() and 1 <= int(tokens) <= MOST_TOKENS):
        raise InputError(f"{where}: k={tokens} is not a number of guesses; write 1 to {MOST_TOKENS}")
    if not 0 <= acceptance <= 1:
        raise InputError(f"{where}: acceptance={given['acceptance']} is not a probability; write a number from 0 to 1, such as 0.7")
    return Speculation(method=found, tokens=int(tokens), acceptance=acceptance, draft=_model(drafter) if drafter else None)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


def _model(name: str) -> Model:
    from tonnage.spec.catalog import find_model

    return find_model(name)
