"""SGLang's new-token ratio: the share of the outputs still to come that its admission reckons with.

Source: managers/schedule_policy.py and schedule_batch.py of SGLang 0.5.23; the names in brackets are its environment variables.
"""

from __future__ import annotations

RATIO = 3_000_000
"""Units of the ratio, so that all that is done with it is exact in whole numbers."""

RATIO_START = RATIO * 7 // 10
"""What a request is taken to generate of what it still may (``SGLANG_INIT_NEW_TOKEN_RATIO`` 0.7, conservativeness 1)."""

RATIO_LEAST = RATIO_START * 14 // 100
"""To which the ratio falls (``SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR`` 0.14) …"""

RATIO_DECAY = (RATIO_START - RATIO_LEAST) // 600
"""… over 600 decode steps (``SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS``)."""

RETRACT_STEPS = 20
"""Further tokens of each request that the ratio must cover after a retraction (``SGLANG_RETRACT_DECODE_STEPS``)."""

MOST_NEW = 4096
"""Longest output that admission reckons with (``SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION``)."""
