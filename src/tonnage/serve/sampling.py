"""How the tokens of an answer are chosen, as a request of the OpenAI API says it, with vLLM's further fields and defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tonnage.serve.refused import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling parameters.

    Attributes:
        temperature: 0 for the most likely token always.
        top_p, top_k, min_p: what the choice is among; 1, 0 and 0 for all tokens.
        presence_penalty, frequency_penalty, repetition_penalty: 0, 0 and 1 for none.
        seed: None for any.
        min_tokens: before these an answer does not end by itself.
        ignore_eos: it does not end by itself at all.
        stop_token_ids: tokens at which it ends.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()


BOUNDS: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 2.0),
    "top_p": (1e-6, 1.0),
    "min_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "repetition_penalty": (1e-6, 10.0),
}
WHOLE: Mapping[str, tuple[int, int]] = {"top_k": (-1, 2**31 - 1), "seed": (-(2**63), 2**63 - 1), "min_tokens": (0, 2**31 - 1)}
MOST_STOP_IDS = 4_096


def sampling_of(body: Mapping[str, Any], osl: int) -> Sampling:
    """Read the sampling parameters of a request.

    Args:
        body: of the request.
        osl: output tokens at most.

    Raises:
        Refused: a value that is none, or out of range.
    """
    said: dict[str, Any] = {name: _number(name, body[name], *bounds) for name, bounds in BOUNDS.items() if body.get(name) is not None}
    said |= {name: _whole(name, body[name], *bounds) for name, bounds in WHOLE.items() if body.get(name) is not None}
    said["top_k"] = max(said.get("top_k", 0), 0)  # vLLM's −1 is no limit, too
    if body.get("ignore_eos") is not None:
        if not isinstance(body["ignore_eos"], bool):
            raise Refused(f"ignore_eos: true or false is needed, not {body['ignore_eos']!r}", param="ignore_eos")
        said["ignore_eos"] = body["ignore_eos"]
    if said.get("min_tokens", 0) > osl:
        raise Refused(f"min_tokens must be less than or equal to max_tokens={osl}, got {said['min_tokens']}.", param="min_tokens")
    ids = body.get("stop_token_ids") or []
    if not isinstance(ids, list) or len(ids) > MOST_STOP_IDS:
        raise Refused(f"stop_token_ids: a list of at most {MOST_STOP_IDS} token ids is needed", param="stop_token_ids")
    said["stop_token_ids"] = tuple(_whole("stop_token_ids", one, 0, 2**31 - 1) for one in ids)
    return Sampling(**said)


def _number(name: str, value: Any, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not least <= value <= most:
        raise Refused(f"{name}: a number from {max(least, 0) if least > -1 else least:g} to {most:g} is needed, not {value!r}", param=name)
    return float(value)


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Refused(f"{name}: a whole number from {least} to {most} is needed, not {value!r}", param=name)
    return value
