"""The text of simulated answers: one common English word for each token, the same for the same request."""

from __future__ import annotations

from tonnage.simulator.router import draw

_TEXT = """
time year people way day man thing woman life child world school state family student group country problem hand part place case
week company system program question work government number night point home water room mother area money story fact month lot
right study book eye job word business issue side kind head house service friend father power hour game line end
"""
WORDS = tuple(_TEXT.split())


def word(request: int, token: int) -> str:
    """The text of an output token, counted from 0; every one but the first begins with a space."""
    chosen = WORDS[draw(0, request, token) % len(WORDS)]
    return chosen if token == 0 else " " + chosen
