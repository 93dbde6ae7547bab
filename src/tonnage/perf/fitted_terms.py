"""The fitted terms, each described once: what ``coefficients/terms.json`` may hold, and what a
calibration may multiply.

A fitted term is an efficiency, a duration or another number that no datasheet says. It may be in
several groups of the file, and all that stand for a deployment are multiplied
(``perf.terms_file``). Which coefficients of a step a term is part of is said there
(``step_terms.StepTerm.fed_by``). A key of the file that no entry here allows is refused, so that a
misspelt key cannot leave its term at a default in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Group = Literal["shared", "architectures", "gpus", "links", "engines", "formats"]

GROUPS: tuple[Group, ...] = ("shared", "architectures", "gpus", "links", "engines", "formats")

FITTED_FORMATS = ("fp16", "bf16", "fp8")
"""Number formats whose efficiencies are the fitted ones themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedTerm:
    """One fitted term."""

    name: str  # what the term is called; without ``keys`` also its key in the file
    about: str  # what it stands for
    unit: str = "1"  # "1" for a share or another ratio
    groups: tuple[Group, ...] = ("engines",)  # the groups of the file that may hold it
    # its keys in the file. "{bits}" stands for the bits of a matrix product (8 or 16),
    # "{generation}" for a GPU generation, "{format}" for a number format, and "{gpus}" for a number
    # of GPUs.
    keys: tuple[str, ...] = ()
    # the factor of a calibration that multiplies the term, and the power of the factor that does
    factor: tuple[str, int] | None = None
    # whether it is part of a step's duration; otherwise it delays requests outside the engine
    in_step: bool = True


FITTED_TERMS: tuple[FittedTerm, ...] = (
    # matrices
    FittedTerm(
        name="compute",
        about="share of the datasheet's matrix rate that matrices reach",
        groups=("architectures", "gpus", "engines", "formats"),
        keys=("compute", "compute_{bits}", "compute_{generation}", "compute_{generation}_{format}"),
        factor=("compute", 1),
    ),
    FittedTerm(
        name="memory",
        about="share of the memory bandwidth that reading weights reaches",
        groups=("architectures", "gpus", "engines", "formats"),
        keys=("memory", "memory_{bits}"),
        factor=("memory", 1),
    ),
    FittedTerm(
        name="watts_compute",
        about="board power at which that share holds",
        unit="W/(TFLOP/s)",
        groups=("architectures",),
    ),
    FittedTerm(
        name="watts_memory",
        about="the same for the memory bandwidth",
        unit="W/(GB/s)",
        groups=("architectures",),
    ),
    FittedTerm(
        name="power_compute",
        about="exponent by which the matrix rate follows the power limit",
        groups=("shared",),
    ),
    FittedTerm(
        name="power_memory",
        about="exponent by which the memory bandwidth follows the power limit",
        groups=("shared",),
    ),
    FittedTerm(
        name="compute_blocks", about="share of the FP8 rate with a scale per block of weights"
    ),
    FittedTerm(
        name="norm",
        about="exponent of the norm that joins arithmetic and weight traffic",
        groups=("shared",),
    ),
    FittedTerm(
        name="activation", about="passes of the activations through memory", groups=("shared",)
    ),
    FittedTerm(
        name="gelu", about="elements that GELU reads and writes per element, in a separate kernel"
    ),
    # attention
    FittedTerm(
        name="attention",
        about="share of the 16-bit matrix rate that prefill attention reaches",
        groups=("shared", "architectures", "engines"),
    ),
    FittedTerm(
        name="kv_bandwidth",
        about="share of the memory bandwidth in decode attention",
        factor=("kv_bandwidth", 1),
    ),
    FittedTerm(
        name="kv_8bit",
        about="what of that share a cache of 8 bits reaches",
        keys=("kv_8bit", "kv_8bit_{generation}"),
    ),
    FittedTerm(name="kv_single", about="what of that share a KV head for every query head reaches"),
    FittedTerm(
        name="head_arithmetic",
        about=(
            "share of the 16-bit matrix rate in decode attention of one query head after another; 0"
            " where heads are taken together"
        ),
        groups=("architectures", "engines"),
        factor=("kv_bandwidth", 1),
    ),
    FittedTerm(name="head_8bit", about="what of that share a cache of 8 bits reaches"),
    FittedTerm(
        name="walk_s",
        about="latency of walking one context, per token and layer",
        unit="s",
        factor=("kv_bandwidth", -1),
    ),
    FittedTerm(
        name="latent_attention", about="prefill of latent attention, relative to that of full heads"
    ),
    FittedTerm(
        name="latent_arithmetic",
        about="arithmetic of latent decode attention, relative to prefill attention",
    ),
    FittedTerm(
        name="latent_bandwidth",
        about="bandwidth of latent decode attention, relative to that of full heads",
    ),
    FittedTerm(
        name="generation_kv",
        about="bandwidth of decode attention on a GPU generation, relative to others",
        groups=("architectures",),
        keys=("kv",),
    ),
    FittedTerm(
        name="gathered",
        about="bandwidth of reading chosen entries, relative to whole contexts",
        groups=("shared",),
    ),
    FittedTerm(
        name="index",
        about="share of the rate of 8-bit matrix products in an indexer's scores",
        groups=("shared",),
    ),
    FittedTerm(
        name="scan",
        about=(
            "share of the 16-bit matrix rate in chunks of linear attention and state-space layers"
        ),
        groups=("shared",),
    ),
    FittedTerm(
        name="state_bandwidth",
        about="share of the memory bandwidth in reading and writing states",
        groups=("shared",),
    ),
    FittedTerm(
        name="state_layer",
        about="launching a layer with a state, relative to others",
        groups=("shared",),
    ),
    FittedTerm(
        name="state_prefill_s",
        about="what a layer with a state launches in a step with prefill",
        unit="s",
        groups=("shared",),
    ),
    FittedTerm(
        name="sparse_layer",
        about="launching a layer with an indexer or compressed entries, relative to latent ones",
        groups=("shared",),
    ),
    # links
    FittedTerm(
        name="bridge",
        about="0 for a GPU that was measured without its NVLink bridge",
        groups=("gpus",),
    ),
    FittedTerm(
        name="link",
        about="share of the links' bandwidth, relative to Hopper",
        groups=("architectures", "gpus"),
    ),
    FittedTerm(
        name="efficiency",
        about="share of the links' bandwidth that large all-reduces reach",
        groups=("links",),
    ),
    FittedTerm(
        name="tp",
        about="correction of that share for a number of GPUs",
        groups=("links",),
        keys=("tp{gpus}",),
    ),
    FittedTerm(
        name="small",
        about="share of the links' bandwidth that small all-reduces reach",
        groups=("links",),
    ),
    FittedTerm(name="one_shot", about="the same where an engine brings its one-shot kernels"),
    FittedTerm(
        name="one_shot_tokens",
        about="tokens of a step up to which every all-reduce is a small one",
        unit="tokens",
    ),
    FittedTerm(
        name="allreduce_s",
        about="latency of a small all-reduce of two GPUs",
        unit="s",
        factor=("allreduce_s", 1),
    ),
    FittedTerm(
        name="latency",
        about="that latency, relative to NVLink and to Hopper",
        groups=("architectures", "links"),
    ),
    FittedTerm(
        name="power",
        about="exponent by which the latency grows with the further GPUs",
        groups=("links",),
    ),
    FittedTerm(
        name="large",
        about="latency of a large all-reduce, relative to a small one",
        groups=("links",),
    ),
    FittedTerm(
        name="block_bytes_s", about="rate of one block of the two-shot all-reduce", unit="bytes/s"
    ),
    FittedTerm(
        name="dispatch",
        about="latency of sending tokens to their experts, relative to a large all-reduce",
    ),
    # experts
    FittedTerm(
        name="expert_compute",
        about="share of dense matrices' rate that those of experts reach",
        groups=("shared", "architectures", "engines"),
        keys=("expert_compute", "expert_compute_{format}"),
    ),
    FittedTerm(name="expert_compute_wide", about="the same of experts as wide as Mixtral's"),
    FittedTerm(
        name="expert_generation",
        about="the same on a GPU generation, relative to others",
        keys=("expert_{generation}",),
    ),
    FittedTerm(
        name="expert_memory",
        about="share of dense matrices' bandwidth that those of experts reach",
        groups=("architectures", "engines"),
        keys=("expert_memory", "expert_memory_{format}"),
    ),
    FittedTerm(
        name="expert_spread",
        about="how independent the tokens' choices of experts are: 0 for all alike, 1 for random",
    ),
    FittedTerm(
        name="expert_first", about="experts that one token touches; 0 for as many as it chooses"
    ),
    FittedTerm(
        name="expert_skew",
        about="what the fullest GPU has above the mean, per doubling of the expert-parallel degree",
    ),
    FittedTerm(
        name="expert_rows", about="passes through memory of every token's copies for its experts"
    ),
    FittedTerm(
        name="expert_layer",
        about="launches of a layer of experts, relative to a dense layer",
        keys=("expert_layer", "expert_layer_{generation}", "expert_layer_{generation}_{format}"),
    ),
    FittedTerm(
        name="expert_layer_s", about="what a layer of experts takes longer in every step", unit="s"
    ),
    FittedTerm(
        name="expert_layer_4bit_s",
        about="what such a layer takes longer with weights of four bits",
        unit="s",
    ),
    FittedTerm(
        name="expert_each_s", about="what each expert of a layer adds to every step", unit="s"
    ),
    FittedTerm(
        name="expert_sequence",
        about="host seconds per sequence of a mixture of experts, relative to a dense model",
    ),
    FittedTerm(
        name="expert_prefill_s",
        about="what a layer of experts takes longer in a step with prefill",
        unit="s",
    ),
    # host
    FittedTerm(
        name="generation_layer",
        about="launching layers on a GPU generation, relative to others",
        groups=("architectures",),
        keys=("layer",),
    ),
    FittedTerm(
        name="generation_sequence",
        about="host seconds per sequence with a GPU generation, relative to others",
        groups=("architectures",),
        keys=("sequence",),
    ),
    FittedTerm(
        name="generation_blocks",
        about="what scaling by blocks takes longer on a GPU generation, relative to others",
        groups=("architectures",),
        keys=("blocks",),
    ),
    FittedTerm(
        name="generation_launch",
        about=(
            "what a step with prompts launches one by one on a GPU generation, relative to others"
        ),
        groups=("architectures",),
        keys=("launch",),
    ),
    FittedTerm(
        name="pcie_latency",
        about="latency of all-reduces over PCIe by NCCL, relative to an engine's kernels",
    ),
    FittedTerm(name="pcie_bytes", about="what their bandwidth is divided by"),
    FittedTerm(name="layer_s", about="launching a layer", unit="s", factor=("step_s", 1)),
    FittedTerm(name="layer_narrow_s", about="narrowing activations to 8 bits, per layer", unit="s"),
    FittedTerm(
        name="layer_fp4_s", about="what narrowing to 4 bits takes longer, per layer", unit="s"
    ),
    FittedTerm(
        name="layer_blocks_s", about="what scaling by blocks takes longer, per layer", unit="s"
    ),
    FittedTerm(
        name="layer_kv_8bit_s",
        about="narrowing for an 8-bit cache, per layer",
        unit="s",
        keys=("layer_kv_8bit_{generation}_s",),
    ),
    FittedTerm(name="layer_norms_s", about="normalising query and key heads, per layer", unit="s"),
    FittedTerm(
        name="latent_layer", about="launching a layer with latent attention, relative to others"
    ),
    FittedTerm(name="step_s", about="host seconds per step", unit="s", factor=("step_s", 1)),
    FittedTerm(
        name="schedule_s",
        about="scheduling that an engine does not do while the step before runs",
        unit="s",
    ),
    FittedTerm(
        name="sequence_s",
        about="host seconds per sequence of a step",
        unit="s",
        factor=("sequence_s", 1),
    ),
    FittedTerm(
        name="sequence_generation",
        about="the same with a GPU generation, relative to others",
        keys=("sequence_{generation}",),
    ),
    FittedTerm(
        name="prefill_s",
        about="host seconds of a step with prefill",
        unit="s",
        factor=("prefill_s", 1),
    ),
    FittedTerm(
        name="prefill_ranks_s",
        about="what such a step takes longer among several GPUs",
        unit="s",
        factor=("prefill_s", 1),
    ),
    FittedTerm(
        name="prefill_layer_s",
        about="what such a step takes longer per layer where no CUDA graph holds it",
        unit="s",
    ),
    FittedTerm(
        name="launch_layer_s",
        about=(
            "least seconds per layer of a step with prefill whose kernels are launched one by one"
        ),
        unit="s",
    ),
    FittedTerm(
        name="piece_layer_s",
        about="least seconds per layer of a step whose graphs end before attention",
        unit="s",
    ),
    FittedTerm(
        name="launch_layer",
        about="the same with a GPU generation, relative to others",
        keys=("launch_layer_{generation}",),
    ),
    FittedTerm(
        name="latent_prefill_s",
        about="what latent attention launches in such a step, per layer",
        unit="s",
    ),
    # front end and client
    FittedTerm(
        name="frontend_s",
        about="front end, once per request",
        unit="s",
        factor=("frontend_s", 1),
        in_step=False,
    ),
    FittedTerm(name="stream_s", about="front end, per sequence and step", unit="s", in_step=False),
    FittedTerm(
        name="response_s",
        about=(
            "seconds per sequence, of ``sequence_s``, in which the engine hands tokens to the"
            " front end"
        ),
        unit="s",
        factor=("sequence_s", 1),
        in_step=False,
    ),
    FittedTerm(
        name="turnaround_s",
        about="client, from answer to next request",
        unit="s",
        factor=("turnaround_s", 1),
        in_step=False,
    ),
)
"""Every fitted term."""


def acts_on() -> dict[str, tuple[tuple[str, int], ...]]:
    """The engine terms that each factor of a calibration multiplies, with the power of the
    factor.
    """
    terms_by_factor: dict[str, list[tuple[str, int]]] = {}
    for term in FITTED_TERMS:
        if term.factor is not None:
            factor, power = term.factor
            terms_by_factor.setdefault(factor, []).append((term.name, power))
    return {factor: tuple(terms) for factor, terms in terms_by_factor.items()}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The keys that each group of a file may hold."""

    # by group, the pattern of each key and its term
    patterns: Mapping[str, tuple[tuple[re.Pattern[str] | str, FittedTerm], ...]]

    def term(self, group: str, key: str) -> FittedTerm | None:
        """The term that a key of a group stands for; None where there is none."""
        return next(
            (
                term
                for pattern, term in self.patterns[group]
                if (pattern == key if isinstance(pattern, str) else pattern.fullmatch(key))
            ),
            None,
        )


def vocabulary(generations: Iterable[str], formats: Iterable[str]) -> Vocabulary:
    """The keys of a file with these GPU generations and number formats."""
    values = {
        "bits": "8|16",
        "generation": "|".join(
            re.escape(name) for name in sorted({name.split()[0].lower() for name in generations})
        ),
        "format": "|".join(re.escape(name) for name in sorted(formats, key=len, reverse=True)),
        "gpus": "[1-9][0-9]*",
    }

    def pattern(key: str) -> re.Pattern[str] | str:
        if "{" not in key:
            return key
        return re.compile(
            re.sub(
                r"\\\{(\w+)\\\}",
                lambda placeholder: f"(?:{values[placeholder[1]]})",
                re.escape(key),
            )
        )

    return Vocabulary(
        patterns={
            group: tuple(
                (pattern(key), term)
                for term in FITTED_TERMS
                if group in term.groups
                for key in term.keys or (term.name,)
            )
            for group in GROUPS
        }
    )


def known_keys(group: str) -> tuple[str, ...]:
    """Keys of a group as they are described, for suggestions."""
    return tuple(
        key for term in FITTED_TERMS if group in term.groups for key in term.keys or (term.name,)
    )


def terms_by_key(
    document: Mapping[str, Any], words: Vocabulary
) -> Iterable[tuple[str, str, str, FittedTerm | None]]:
    """Every number of a file: its group, its owner in the group, its key, and the term that it is
    of, None for an unknown key.
    """
    for group in GROUPS:
        owners = {"": document[group]} if group == "shared" else document[group]
        for owner, terms in owners.items():
            for key in terms:
                yield group, owner, key, words.term(group, key)
