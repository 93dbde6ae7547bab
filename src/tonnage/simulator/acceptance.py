"""Which guesses of a drafter are right: drawn by a hash of seed, request and output position.

So it does not matter when a guess is made or in what company: the same seed gives the same outputs in the
reference and the kernel, under any load. A position is judged at most once: the token after a wrong guess
is the model's own.

Source of the mixing: splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
"""

from __future__ import annotations

ONE = 1 << 53
"""A probability of 1, in the units of the draws."""

MASK = (1 << 64) - 1


def threshold(acceptance: float) -> int:
    """Draws below this are right guesses."""
    return round(acceptance * ONE)


def mixed(bits: int) -> int:
    """64 bits, thoroughly mixed."""
    bits = (bits + 0x9E3779B97F4A7C15) & MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & MASK
    return bits ^ (bits >> 31)


def draw(seed: int, request: int, position: int) -> int:
    """A whole number from 0 to ONE − 1 for that output token of that request, counted from 1."""
    return mixed(mixed(mixed(seed & MASK) ^ request) ^ position) >> 11


def accepted(seed: int, request: int, generated: int, drafted: int, below: int) -> int:
    """How many of the guesses for the output tokens ``generated`` + 1 … + ``drafted`` are right before the first wrong one."""
    count = 0
    while count < drafted and draw(seed, request, generated + count + 1) < below:
        count += 1
    return count
