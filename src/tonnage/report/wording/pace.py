"""How the gaps between tokens compare with the speed of reading, in words."""

from __future__ import annotations

from tonnage.report.numbers import whole
from tonnage.spec.use_cases import FAST_READING_S, READING_P99_S, READING_S


def pace_text(itl_mean_s: float, itl_p99_s: float) -> str:
    """Such as "faster than a fast reader (90 ms per token), and p99 is within the 250 ms that readers accept"; both in seconds."""
    fast, usual = (f"{whole(1e3 * seconds)} ms" for seconds in (FAST_READING_S, READING_S))
    if itl_mean_s <= FAST_READING_S:
        than = f"faster than a fast reader ({fast} per token)"
    elif itl_mean_s <= READING_S:
        than = f"faster than an average reader ({usual} per token), slower than a fast one ({fast})"
    else:
        than = f"slower than an average reader ({usual} per token)"
    inside = "within" if itl_p99_s <= READING_P99_S else "beyond"
    return f"{than}, and p99 is {inside} the {whole(1e3 * READING_P99_S)} ms that readers accept"
