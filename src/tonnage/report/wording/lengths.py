"""Lengths in words: "2,000 tokens", "600 ± 400 tokens (lognormal)"."""

from __future__ import annotations

import re

from tonnage.report.numbers import plain

_SPREAD = re.compile(r"(normal|lognormal|uniform):(\d+(?:\.\d+)?),(\d+(?:\.\d+)?)")
_EITHER = re.compile(r"(\d+(?:\.\d+)?)\+-(\d+(?:\.\d+)?)")
_OTHERWISE = re.compile(r"(\d+(?:\.\d+)?)(words|chars)")
_WITHIN = re.compile(r"(.+)\+-(\d+(?:\.\d+)?%)(?:\+(\d+(?:\.\d+)?))?")
_RANGE = re.compile(r"uniform:(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)")


def length_text(written: str) -> str:
    """A length as a question writes it, in words; a form that has none, such as the name of a file, as it stands."""
    if (found := _WITHIN.fullmatch(written)) is not None:
        return f"{length_text(found[1])} ± {found[2]}{f' + {found[3]}' if found[3] else ''}"
    if written.startswith("exact:"):
        return f"exactly {length_text(written.removeprefix('exact:'))}"
    if re.fullmatch(r"\d+(\.\d+)?", written):
        return f"{plain(float(written))} tokens"
    if (found := _RANGE.fullmatch(written)) is not None:
        return f"{plain(float(found[1]))} to {plain(float(found[2]))} tokens"
    if (found := _EITHER.fullmatch(written)) is not None:
        return f"{plain(float(found[1]))} ± {plain(float(found[2]))} tokens (normal)"
    if (found := _SPREAD.fullmatch(written)) is not None:
        return f"{plain(float(found[2]))} ± {plain(float(found[3]))} tokens ({found[1]})"
    if (found := _OTHERWISE.fullmatch(written)) is not None:
        return f"{plain(float(found[1]))} {'words' if found[2] == 'words' else 'characters'}"
    return f"{written} tokens"


def as_written(written: str) -> str:
    """A length as it was written, a plain number with its thousands separated: "2,000", "uniform:500-3500"."""
    if (found := _WITHIN.fullmatch(written)) is not None:
        return f"{as_written(found[1])} ± {found[2]}{f' + {plain(float(found[3]))}' if found[3] else ''}"
    return f"{int(written):,}" if written.isascii() and written.isdigit() else written


def in_tokens(written: str, mean: float) -> str:
    """A length as it was written, in tokens: "2,000", "uniform:500-3500"; "2,000 (8000chars)" where it was written in something else."""
    return f"{mean:,.0f} ({written})" if written.endswith(("chars", "words")) else as_written(written)
