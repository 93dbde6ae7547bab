"""Everything that can be refused before a tool is started: format, engine, GPU, model, text, memory
and disk.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tonnage.compress.recipes import (
    FORMATS,
    LENGTH,
    LLM_COMPRESSOR,
    MODELOPT,
    SAMPLES,
    TOOLS,
    Format,
)
from tonnage.errors import InputError, UnknownName, option
from tonnage.plan.candidate import Pool
from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.catalog.checkpoints import HALF, find_method, reads
from tonnage.spec.config_json import read_config
from tonnage.spec.model import Model
from tonnage.spec.precision import find_precision

BASE_BYTES = 2 * 2**30  # Allowance for Python with torch and the tool's packages
# Weights with one scale in llm-compressor's schemes of INT4, and rows of a block of FP8
GROUP = 128

UNMAPPED = ("gemma2", "gemma3")
"""Kinds of model whose norms SmoothQuant of llm-compressor 0.14 scales wrongly: logits changed by
109 % on a random Gemma 2, 2026-11-25."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A checkpoint to be made."""

    form: Format  # and tool: the format, and the tool that writes it
    tool: str
    model: Path  # folder of the original
    spec: Model  # what its ``config.json`` says
    output: Path  # folder that is written
    # files by what they are for: "calibration", which is judged too, and "held_back"
    texts: dict[str, Path]

    @property
    def weight_bytes(self) -> int:
        """Bytes of the original's weights."""
        return sum(file.stat().st_size for file in self.model.glob("*.safetensors"))

    @property
    def reloaded(self) -> bool:
        """Whether transformers reads what the tool writes; engines alone read what Model Optimizer
        quantizes.
        """
        return self.tool != MODELOPT or self.form.methods[self.tool] == "none"

    @property
    def memory_bytes(self) -> int:
        """Host memory: original and result in 16 bits next to each other while they are judged, and
        what calibration keeps between layers.

        Calibration keeps the states of all windows before and after a layer, in 16 bits; a text has
        at most a token a byte.
        """
        calibration_bytes = 0
        if self.form.calibrated(self.tool):
            tokens = min(SAMPLES * LENGTH, self.texts["calibration"].stat().st_size)
            calibration_bytes = 2 * 2 * tokens * self.spec.hidden
        return BASE_BYTES + max(2 * self.weight_bytes, self.weight_bytes + calibration_bytes)


def asked_format(format: str | None, pools: Sequence[Pool]) -> Format:
    """The format that was named, or a plan's. Raises InputError: neither, two that differ, or one
    that no tool writes.
    """
    planned = {find_precision(pool.precision).name for pool in pools}
    if format is None and not planned:
        raise InputError(
            f"{option('format')}: is missing; write one of {', '.join(FORMATS)}, or give"
            f" {option('plan')}"
        )
    if format is not None and format not in FORMATS:
        raise UnknownName("format", format, FORMATS)
    if not planned:
        return FORMATS[str(format)]
    planned_precision = sorted(planned)[0]
    fitting = [form for form in FORMATS.values() if same_format(form.precision, planned_precision)]
    if len(planned) > 1 or not fitting:
        both = " and ".join(sorted(planned))
        raise InputError(
            f"{option('plan')}: assumes {both}, which no tool writes as one checkpoint; formats:"
            f" {', '.join(FORMATS)}"
        )
    if format is None:
        return fitting[0]
    if FORMATS[format] not in fitting:
        raise InputError(
            f"{option('format')}: {format} is not the plan's {planned_precision}; write"
            f" {option('format')} {fitting[0].name}, or size again with {option('precision')}"
            f" {FORMATS[format].precision}"
        )
    return FORMATS[format]


def same_format(checkpoint: str, planned: str) -> bool:
    """Whether a checkpoint in the one precision is what a plan in the other counts on; the KV cache
    is mostly the engine's choice.
    """
    precision, planned_precision = find_precision(checkpoint), find_precision(planned)
    if precision.weight_format in HALF:
        return planned_precision.weight_format in HALF and (precision.sparse, precision.kv) == (
            planned_precision.sparse,
            planned_precision.kv,
        )
    return precision.weights == planned_precision.weights


def asked_tool(tool: str | None, form: Format, pools: Sequence[Pool]) -> str:
    """The tool that was named, or the first whose checkpoint the plan's engine loads. Raises
    InputError: there is none.
    """
    if tool is not None and tool not in TOOLS:
        raise UnknownName("tool", tool, TOOLS)
    if tool is not None and tool not in form.methods:
        raise InputError(
            f"{option('tool')}: {tool} does not write {form.name}; use {' or '.join(form.methods)}"
        )
    reasons = []
    for method in form.methods if tool is None else (tool,):
        why = next((why for pool in pools if (why := _engine_lacks(form, method, pool))), "")
        if not why:
            return method
        reasons.append(why)
    raise InputError(
        f"{option('plan')}: {'; '.join(reasons)}; size again with another engine or format"
    )


def _engine_lacks(form: Format, tool: str, pool: Pool) -> str:
    """Why the engine of a pool cannot load what a tool writes; empty where it can."""
    engine = find_engine(pool.engine_preset or pool.engine)
    method = find_method(form.methods[tool])
    if not reads(method.engines, engine):
        return (
            f"{engine.name} does not load {method.name} checkpoints, which {tool} writes for"
            f" {form.name} ({method.source})"
        )
    return engine.lacks(find_precision(form.precision))


def check_gpu(form: Format, pools: Sequence[Pool]) -> None:
    """Refuse a format that a plan's GPU cannot compute in. Raises InputError: with what it
    lacks.
    """
    for pool in pools:
        why = _gpu_lacks(form, pool)
        if why:
            raise InputError(
                f"{option('format')}: {pool.gpu} of the plan has {why}, which {form.name} needs;"
                " choose another format or GPU"
            )


def _gpu_lacks(form: Format, pool: Pool) -> str:
    gpu = find_gpu(pool.gpu)
    return gpu.lacks(
        find_engine(pool.engine_preset or pool.engine).runs(find_precision(form.precision), gpu)
    )


def check_model(model: Path) -> Model:
    """The model of a folder. Raises InputError: no safetensors in 16 bits; UnsupportedModel: of a
    kind that Tonnage does not know.
    """
    spec = read_config(model) if model.is_dir() else None
    if spec is None:
        raise InputError(
            f"model_dir: {model} is no folder; give the folder of a checkpoint, with config.json"
            " and safetensors"
        )
    files = sorted(model.glob("*.safetensors"))
    if not files:
        raise InputError(
            f"model_dir: {model} holds no *.safetensors; convert its weights first (transformers:"
            " save_pretrained)"
        )
    index = model / "model.safetensors.index.json"
    if index.is_file():
        try:
            absent = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()) - {
                file.name for file in files
            }
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"model_dir: {index} is damaged; download it again") from None
        if absent:
            raise InputError(
                f"model_dir: {model} lacks {', '.join(sorted(absent)[:3])}, which its index names;"
                " download it again"
            )
    if spec.released not in HALF:
        raise InputError(
            f"model_dir: {model} is in {spec.released or 'a format without a name'} already; give"
            " the checkpoint in 16 bits"
        )
    return spec


def check_plan_model(spec: Model, planned: Model) -> None:
    """Refuse a folder with another model than the plan's. Raises InputError: with both shapes."""
    shapes = [(model.layers, model.hidden, model.vocab, model.experts) for model in (spec, planned)]
    if shapes[0] != shapes[1]:
        descriptions = [
            "{} layers of {}, vocabulary {}, {} experts".format(*shape) for shape in shapes
        ]
        raise InputError(
            f"{option('plan')}: is for {planned.name} ({descriptions[1]}), and the folder holds"
            f" {descriptions[0]}; give the plan's model"
        )


def check_here(job: Job) -> None:
    """Refuse what the tool cannot do on this machine or with this model. Raises InputError: with
    the reason.
    """
    gpu, form = shutil.which("nvidia-smi") is not None, job.form
    if not gpu and (form.name, job.tool) == ("w4a16-awq", LLM_COMPRESSOR):
        raise InputError(
            f"{option('format')}: AWQ of llm-compressor needs a GPU; print the script by"
            f" {option('dry_run')} for one, or write {option('tool')} {MODELOPT} for TensorRT-LLM"
        )
    if not gpu and (form.name, job.tool) == ("nvfp4", MODELOPT):
        raise InputError(
            f"{option('format')}: NVFP4 of Model Optimizer needs a GPU; write {option('tool')}"
            f" {LLM_COMPRESSOR}"
        )
    if job.spec.experts > 1 and form.methods[job.tool] == "modelopt-int4":
        raise InputError(
            f"{option('format')}: AWQ of Model Optimizer does not write experts; write fp8"
        )
    if ("W4A" in form.modifiers or form.name == "fp8-block") and job.spec.hidden % GROUP:
        raise InputError(
            f"{option('format')}: {form.name} takes {GROUP} weights together, and rows have"
            f" {job.spec.hidden}; write nvfp4 or fp8"
        )
    kind = str(
        json.loads((job.model / "config.json").read_text(encoding="utf-8")).get("model_type", "")
    )
    if form.name == "int8" and kind.startswith(UNMAPPED):
        raise InputError(
            f"{option('format')}: SmoothQuant of {LLM_COMPRESSOR} ruins models of the kind {kind};"
            " write fp8 or w4a16-gptq"
        )


def check_texts(form: Format, tool: str, texts: dict[str, Path]) -> None:
    """Refuse texts that are absent or the same. Raises InputError: with what to give."""
    for name, path in texts.items():
        if not path.is_file() or not path.stat().st_size:
            raise InputError(
                f"{option(name if name == 'held_back' else 'text')}: {path} is no file with text"
            )
    if form.calibrated(tool) and "calibration" not in texts:
        alternative = (
            f", or {option('tool')} {LLM_COMPRESSOR}, which needs none"
            if tool == MODELOPT and form.scheme
            else ""
        )
        raise InputError(
            f"{option('text')}: {tool} calibrates {form.name}; give a file with text like that of"
            f" the service{alternative}"
        )
    if len({path.read_bytes() for path in texts.values()}) < len(texts):
        raise InputError(
            f"{option('held_back')}: is the text of {option('text')}; give one that the calibration"
            " does not see"
        )


def check_room(job: Job) -> None:
    """Refuse too little memory or disk. Raises InputError: with the arithmetic."""
    free = _memory_available()
    if job.memory_bytes > free:
        raise InputError(
            f"model_dir: needs {job.memory_bytes / 2**30:.1f} GiB of memory"
            f" ({job.weight_bytes / 2**30:.1f} of weights, twice as both are judged), and"
            f" {free / 2**30:.1f} are available; print the script with {option('dry_run')} and run"
            " it on a larger machine"
        )
    place = next(
        folder for folder in (job.output, *job.output.absolute().parents) if folder.is_dir()
    )
    room = shutil.disk_usage(place).free
    if job.weight_bytes > room:
        raise InputError(
            f"{option('output')}: needs up to {job.weight_bytes / 1e9:.1f} GB, and {place} has"
            f" {room / 1e9:.1f} GB free"
        )


def _memory_available() -> int:
    """Bytes of memory that Linux can give without swapping; more than any model needs where the
    system does not say.
    """
    if not Path("/proc/meminfo").is_file():
        return 1 << 62
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
