"""A request as an engine is given it, whoever drives the engine."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request.

    Attributes:
        id: its number, 0 or more; no two requests of an engine have the same one. With speculative decoding it decides, together
            with the engine's seed, which guesses are right.
        isl: prompt tokens.
        osl: output tokens.
        at: when it is sent, in picoseconds; the engine has it ``frontend_s`` later.

    Raises:
        InputError: a length below one token, or a number or an instant below 0.
    """

    id: int
    isl: int
    osl: int
    at: int

    def __post_init__(self) -> None:
        if self.isl < 1 or self.osl < 1:
            raise InputError(f"request {self.id}: a prompt and an output have one token or more, not {self.isl} and {self.osl}")
        if self.id < 0 or self.at < 0:
            raise InputError(f"request {self.id}, sent at {self.at} ps: its number and its instant are 0 or more")
