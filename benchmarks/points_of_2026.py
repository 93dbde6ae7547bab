"""The points of 2026 on docs/accuracy.md: one entry for planners, and the section with the errors
that the fit stored.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping

from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import find_gpu
from tools.fit.modern.fit import FEWEST

COLUMNS = ("TPOT", "TPOT bias", "tokens/s", "median TTFT", "mean TTFT", "TPOT inside")
Figures = Mapping[str, float]

IN_SHORT = """\
- **Models and GPUs of 2026** ([below](#models-and-accelerators-of-2026)): the median error of the time per token is {models} % for models
that were left out, one by one, and {half} % or less for half of them. With a GPU of NVIDIA left out it is {nvidia}. A generation of AMD
tells little of another: {amd}. MI325X and MI350X share theirs with a measured one. Few points of 2026 state a TTFT; where at least
{fewest} points of a model do, its median error with that model left out is {ttft} %."""
WIDEST = 140

SECTION = """
## Models and accelerators of 2026

The points of `../shared/data/modern/agg.csv.gz` ([fit.md](fit.md#models-and-accelerators-of-2026)), without speculation. They are from
InferenceX (SemiAnalysis, Apache-2.0), aiconfigurator and cloudrift deplodock, and most are medians over many runs and engine versions.
`./fit ../shared/data --silicon silicon_sample.csv` computes these tables and stores them in `terms.json`, as it does those above. The
errors are medians of |predicted − measured| / measured over at most eight points of each model, GPU, engine and format, in percent; "bias"
is the median of the signed error, and "inside" the share of measured times per token in the 80 % interval that a user is given who asks for
a model, or a GPU, without rows ([intervals.md](intervals.md)). In the tables in sample it is the share in the interval of a model and a GPU
that have rows. The fit and these tables use points of *released* images alone. The other points come from branches, commits or nightly
builds of the first weeks in which an engine ran the model, format or GPU (*first support*). A fold leaves its model, with others
of the same sizes, or its GPU out of the older stages too; a fold repeats the stage of experts on every fifth row. With a GPU of AMD its
generation is left out. A model or a GPU with fewer than 20 points is not left out, and of such groups nothing is claimed. Where an error is
that of fewer points than the last column says, their number is in brackets.

Not explained, and in the tables all the same:

- DeepSeek V4 Pro on vLLM for AMD (nightly images, 32 points) takes more than twice as long a token as on SGLang or ATOM under the same load
  on MI355X. In an early image of SGLang for MI355X, at TP 8 in FP8 (six points), a token takes 11 to 21 times as long as in the later ones
  in FP4.
- AMD: SGLang's medians of outputs of 8,192 tokens, from before April 2026, take up to 2.4 times as long a token as predicted for the newest
  version (GLM-5 on eight MI355X: 56 ms for four clients, 23 predicted). They count as SGLang 0.5, which makes up for a part. Beyond that,
  models, engines and formats are off by a level each, more than on NVIDIA, and no term that they share makes up for it
  ([fit.md](fit.md#models-and-accelerators-of-2026)); "at the right level" in the first table shows what a measurement of one would.
- AMD at TP 8: with a model left out 45 % of all its error is there, in both directions. Llama 3.3 70B and gpt-oss on vLLM are predicted 31
  to 36 % too slow, and at TP 1 and 2 within 14 %. Kimi K2.5 on vLLM and Qwen3.5 on SGLang are predicted 10 to 38 % too fast: eight GPUs
  hardly take a token faster than four there (Kimi in INT4 at four clients: 12.1 ms on four, 16.7 on eight). What all of AMD share cannot
  be both. ATOM, whose kernels are all AMD's own, is within 10 %.
- MI300X: MiniMax M2.5 at four clients takes 4 to 5 ms longer a token on four GPUs than on two, and FP8 by blocks is slow in all three
  models. No point of MI355X shows either, so MI300X left out comes out too fast.
- GLM-4.5-Air and GLM-4.6 (cloudrift, vLLM 0.11 to 0.14, an 8-bit cache) take 4 to 35 ms a token longer than predicted with prompts and
  outputs of 8,000 tokens, in 27 of 28 runs, on every GPU and little more for more clients; Qwen3-Coder with a cache of 16 bits does not on
  H100, H200 and RTX PRO. GLM-4.6 in FP8 takes 3 to 4 ms longer on Hopper for one client with a prompt of 1,000 tokens too, and is slower
  there (15.0 ms on H200) than in 16 bits (13.2). GLM-4.5-Air ran as eight instances behind a proxy that did not spread clients evenly
  (TTFT of 54 s in the 99th percentile, median 4 s).
- Kimi K2.5 on SGLang 0.5.9 with its defaults (10 points on B200) takes 1.2 to 2 times as long a token as on vLLM 0.17 under the same load.
- MI350X: one point (Kimi K2.5, 73.6 ms a token), four times as slow as MI355X under a similar load.
- Attention ranks, with the model left out (123 released points of NVIDIA): mean error 19 %, bias +8. gpt-oss on TensorRT-LLM (17 points)
  and MiniMax on vLLM (9) are predicted 27 and 28 % too slow, DeepSeek V4 Pro on vLLM (45) 6 % too fast, R1 on TensorRT-LLM (21) is within
  9 %: what ranks share cannot be all of these. On AMD (34 points of V4 Pro on SGLang) they are predicted 25 % too fast. Their intervals
  are twice as wide."""


def of_2026_in_short() -> list[str]:
    """The entry for planners: what to expect of a model or a GPU of 2026 that nobody measured for
    this fit.
    """
    held_out = shipped()["report"]["modern"]["held_out"]
    models, gpus = held_out["model"], held_out["gpu"]
    errors = sorted(found["TPOT"] for found in models.values())
    nvidia = {
        name: found["TPOT"] for name, found in gpus.items() if find_gpu(name).vendor == "NVIDIA"
    }
    amd = [_too(name, found) for name, found in gpus.items() if find_gpu(name).vendor == "AMD"]
    ttft = [
        found[m]
        for found in models.values()
        for m in ("median TTFT", "mean TTFT")
        if found.get(f"{m} n", 0) >= FEWEST
    ]
    said = IN_SHORT.format(
        models=_range(errors),
        half=math.ceil(errors[(len(errors) - 1) // 2]),
        nvidia=_listed(
            [
                f"{error:.0f} % ({_short(name)})"
                for name, error in sorted(nvidia.items(), key=lambda one: one[1])
            ]
        ),
        amd=_listed(amd),
        fewest=FEWEST,
        ttft=_range(ttft),
    )
    return textwrap.wrap(
        said, WIDEST, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def of_2026() -> Iterator[str]:
    """The lines of the section."""
    report = shipped()["report"]["modern"]
    yield SECTION
    yield ""
    yield (
        f"{report['rows']:,} points are usable, {report['read']} of them are read, and"
        f" {report['free_terms']} terms are free."
    )
    yield ""
    yield "### Points of 2026, released images and first support, left out"
    yield ""
    yield "| time per token | mean error | median | bias | inside | points |"
    yield "|---|---|---|---|---|---|"
    for column, classes in report["apart"].items():
        for name, found in classes.items():
            errors = " | ".join(f"{found[figure]:.1f}" for figure in ("TPOT mean", "TPOT"))
            yield (
                f"| {name}, a {_column(column)} left out | {errors} | {found['TPOT bias']:+.1f} |"
                f" {found['TPOT inside']:.0f} | {found['n']} |"
            )
    tables = [
        (f"a {_column(column)} left out", report["held_out"][column]) for column in ("model", "gpu")
    ]
    tables += [
        (f"in sample, by {_column(column)}", report["in_sample"][column])
        for column in ("model", "gpu", "family")
    ]
    for title, table in tables:
        yield ""
        yield f"### Points of 2026, {title}"
        yield ""
        yield f"| | {' | '.join(COLUMNS)} | points |"
        yield "|---" * (len(COLUMNS) + 2) + "|"
        if title.endswith("left out"):
            points = sum(found["n"] for found in table.values())
            inside = sum(found["n"] * found["TPOT inside"] for found in table.values()) / points
            yield f"| all of them | | | | | | {inside:.1f} | {points} |"
        for name, found in table.items():
            yield (
                f"| {name} | {' | '.join(_cell(column, found) for column in COLUMNS)} |"
                f" {found['n']} |"
            )


def _cell(column: str, found: Figures) -> str:
    """One error, with the number of its points where it is not that of the row."""
    if column not in found:
        return "–"
    count = found.get(f"{column} n", found["n"])
    shown = f"{found[column]:+.1f}" if "bias" in column else f"{found[column]:.1f}"
    return shown if count == found["n"] else f"{shown} ({count})"


def _column(name: str) -> str:
    """A column's name as prose writes it."""
    return {"gpu": "GPU", "family": "engine"}.get(name, name)


def _listed(words: list[str]) -> str:
    """Words as a sentence lists them."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def _range(values: list[float]) -> str:
    """The least and the greatest of some figures, in whole percent."""
    return f"{min(values):.0f} to {max(values):.0f}"


def _short(name: str) -> str:
    """A GPU without its memory and socket, as people say it: B200, RTX PRO 6000."""
    words = name.upper().split("-")
    return " ".join(words[:3]) if words[0] == "RTX" else words[0]


def _too(name: str, found: Figures) -> str:
    """How far, and in which direction, the predictions for a GPU are off."""
    direction = "too fast" if found["TPOT bias"] < 0 else "too slow"
    return f"with {_short(name)} left out it is {found['TPOT']:.0f} % (mostly {direction})"
