"""LoRA adapters that requests use next to the model's weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tonnage.errors import InputError, option

On = Literal["all", "attention"]

EXAMPLE = '"rank=16 adapters=8", with on=attention where only attention is changed'
MOST_RANK, MOST = 1024, 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """Adapters in an engine's slots; every request uses one of them, all equally often.

    Attributes:
        rank: the highest rank, for which slots are made (vLLM ``max_lora_rank``).
        count: slots (vLLM ``max_loras``); loading others into them is not counted.
        on: the matrices that they change: those of attention and MLPs, or of attention alone.
    """

    rank: int
    count: int
    on: On = "all"

    def __str__(self) -> str:
        """As ``parse_adapters`` reads it."""
        return f"rank={self.rank} adapters={self.count}" + ("" if self.on == "all" else f" on={self.on}")


def parse_adapters(text: str | None) -> Adapters | None:
    """Read "rank=16 adapters=8 on=attention"; "none" and None are none. Raises InputError: not that form, or numbers out of range."""
    if text is None or text.strip().lower() == "none":
        return None
    given = dict(part.partition("=")[::2] for part in text.lower().split())
    rank, count, on = (given.pop(name, default) for name, default in (("rank", "0"), ("adapters", "1"), ("on", "all")))
    chosen = next((known for known in get_args(On) if known == on), None)
    within = all(part.isascii() and part.isdigit() and 1 <= int(part) <= most for part, most in ((rank, MOST_RANK), (count, MOST)))
    if given or chosen is None or not within:
        raise InputError(
            f"{option('lora')}: '{text}' is not a set of adapters; write {EXAMPLE}; ranks up to {MOST_RANK:,}, {MOST:,} adapters at most"
        )
    return Adapters(rank=int(rank), count=int(count), on=chosen)
