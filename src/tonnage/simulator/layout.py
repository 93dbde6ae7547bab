"""Where things lie in the arrays that the kernel works on.

All are int64, and all times are picoseconds.
"""

from __future__ import annotations

STATIC, TENSORRT_LLM, VLLM, SGLANG = 0, 1, 2, 3
"""Codes of the schedulers."""

# Places in the array of settings. SLOTS is how many sequences run at once. DRAFTED guesses of PASSES passes come
# with a decode; draws BELOW are right, of those from SEED, which is mixed already. A sequence of WINDOW_TOKENS or more
# holds WINDOW_BLOCKS for its sliding windows; WINDOW is one of time. The engine looks for arrivals every RECEIVE steps of decodes alone.
# Prompts beside decodes wait up to WAIT_STEPS for a step of WAIT_TOKENS. With OVERLAP a step holds what came before the last one began.
(SCHEDULER, SLOTS, MAX_TOKENS, CHUNKED, BLOCK_TOKENS, KV_BLOCKS, MAX_CONTEXT, FRONTEND, TURNAROUND, CONCURRENCY, WINDOW) = range(11)
(DRAFTED, PASSES, BELOW, SEED, STREAM, WINDOW_BLOCKS, WINDOW_TOKENS, RECEIVE) = range(11, 19)
WAIT_STEPS, WAIT_TOKENS, OVERLAP = 19, 20, 21
SETTINGS = 22

# Rows of the table of requests. What a decoding request has generated is ROUND − BASE, and its UNTIL is
# the round at which it ends or its output position enters the next BUCKET of the gap histogram.
# GENERATED, COMPUTED and LAST are kept for the others; BLOCKS as long as the prompt is computed (vLLM, SGLang) or
# to the end (TensorRT-LLM, and all with guesses); WINDOWS are those of them for sliding windows. A right guess moves BASE and
# UNTIL a round back.
(SENT, FIRST, LAST, GENERATED, COMPUTED, BLOCKS, STATUS, PREEMPTIONS, FIRST_STEP, LAST_STEP, BASE, UNTIL, BUCKET) = range(13)
WINDOWS = 13
REQUEST_ROWS = 14

# Places in the array of the engine's state. Every decoding request gets one token a round, so ROUND tells all
# their lengths at once: the number of steps done, less those of prompts alone (SGLang), which ALONE counts.
# CONTEXT is the sum of the decoding requests' contexts and NEXT_EVENT the lowest UNTIL. LAST_BIN is where the
# last step's duration lies in the gap histogram.
# SEEN is when clients have the tokens of the last step. UNHEARD counts the steps since the engine last looked for arrivals, WAITED
# those that prompts have waited to be batched.
# Of SGLang: FULL and RATIO as in ``sglang.py``; DECODED, when clients have those of the last round,
# and PAUSED, whether steps of prompts came after it.
(FREE, RUNNING, FILLING, HEAD, TAIL, STACK, NEXT_SEND, NEXT_ARRIVAL, PROGRAM_FREE) = range(9)
(BATCH, LONGEST, ROUND, DECODING, CONTEXT, NEXT_EVENT, LAST_BIN, ALONE, FULL, RATIO, DECODED, PAUSED, SEEN, UNHEARD) = range(9, 23)
WAITED = 23
STATE = 24

NEVER = 1 << 62
"""A round that does not come."""
