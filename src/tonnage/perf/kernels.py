"""Step times from operations that were timed alone: a second opinion next to the fitted terms
(``--step-model kernels``).

``coefficients/kernels.json`` describes each operation by a few numbers per GPU, engine and number
format, with its source and licence. Here the operations of a model add up to steps;
``perf.measured_steps`` reduces these to the array that the simulator reads. Times are in
microseconds, arithmetic in FLOP/µs and traffic in bytes/µs, each on one GPU.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError, option
from tonnage.perf import shipped_json
from tonnage.perf.aiconfigurator import BATCHES, PACKS, PROMPTS
from tonnage.perf.links import largest_of
from tonnage.perf.matrices import BITS_8, dense_formats, scaled_by_blocks
from tonnage.perf.step import step_seconds
from tonnage.spec.attention_layers import CompressedLayer, FullAttention, SlidingAttention
from tonnage.spec.catalog import find_engine
from tonnage.spec.layers import GatedDeltaNet, Layers, Mixer
from tonnage.spec.precision import EXPERTS, Precision
from tonnage.spec.step_times import KERNELS, TimedStep

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.spec.deployment import Deployment

GPUS = {
    "b200-sxm-180gb": "b200",
    "b300-sxm-270gb": "b300",
    "h200-sxm-141gb": "h200",
    "h100-sxm-80gb": "h100",
}
"""The GPUs on which operations were timed, and their names in the file."""

GENERATIONS = {"b200": "b200", "b300": "b200", "h200": "h200", "h100": "h200"}
"""The GPU of the same generation on which whole modules and messages between ranks were timed."""

ENGINES = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm"}
"""The file's name of an engine's kernels, by its family."""

DENSE = {"fp16": "bfloat16", "bf16": "bfloat16", "fp8": "fp8", "nvfp4": "nvfp4"}
ROUTED = {
    "fp16": "bfloat16",
    "bf16": "bfloat16",
    "fp8": "fp8_block",
    "nvfp4": "nvfp4",
} | dict.fromkeys(("awq", "gptq", "int4-wo", "int4-g32", "int4-g64"), "int4_wo")
"""The file's formats of matrices and of routed experts."""

MODULES = {"sparse-latent": "DSA", "block-sparse": "MSA"}
"""Kinds of layers that were timed whole, with projections and indexer: nothing that was found for
other kinds is added to them."""

PRODUCTS = {
    "full": 2,
    "sliding": 2,
    "latent": 3,
    "gated-delta": 3,
    "sparse-latent": 3,
    "block-sparse": 2,
    "compressed": 3,
}
"""Matrix products of a layer's projections, by kind; latent attention has two batched ones more
(``BATCHED_US`` each)."""

BATCHED_US = 3.0
FUSED = {"fp8": (5.0, 0.3, 1.0), "nvfp4": (5.0, 0.3, 1.0)}
"""The most that floor (µs), row (ns) and passes come to where scales are static, since engines fuse
their narrowing with norms."""

SKEW, HEAD_DIM, WALK_FROM, BOUND, LEAST_RING = 0.05, 128, 256, 2048, 0.1
CONTEXTS = (128, 512, 1024, 2048, 4096, 8192, 16384, 65536)
MOST_TOKENS = 32_768

COMPARED = (1, 8, 64)
"""Decode sequences at which two step models are compared."""


@dataclass(frozen=True, slots=True)
class Step:
    """What is in a step of one attention rank."""

    prefill: int  # new tokens of prompts
    prompts: int  # prompts that these belong to
    decodes: int  # sequences that decode one token each
    context: int  # sum of their contexts

    @property
    def tokens(self) -> int:
        """Tokens that the step computes."""
        return self.prefill + self.decodes

    @property
    def walked(self) -> float:
        """How often the mean context doubles beyond ``WALK_FROM`` tokens."""
        return math.log2(1.0 + self.context / max(self.decodes, 1) / WALK_FROM)


@cache
def _file() -> dict[str, Any]:
    return shipped_json("kernels.json", "reinstall")


def _row(table: str, name: str) -> dict[str, float] | None:
    section = _file()[table]
    values = section["rows"].get(name)
    return None if values is None else dict(zip(section["columns"], values, strict=True))


def described(deployment: Deployment) -> str:
    """The tables that a deployment's step times come from, in words."""
    return f"kernels timed alone on {GPUS.get(deployment.gpu.name, '')} (aisimulate 0.13)"


def covers(deployment: Deployment) -> bool:
    """Whether there are operation times of all that a deployment's steps consist of."""
    try:
        Kernels(deployment)
    except InputError:
        return False
    return True


def ratio_to(coefficients: NDArray[np.float64], deployment: Deployment) -> float:
    """How many times as long decodes of ``COMPARED`` sequences take by kernels as by a coefficient
    array; the geometric mean.
    """
    kernels, context = Kernels(deployment), min(BOUND, deployment.model.max_context)
    logs = [
        math.log(
            kernels.step_us(Step(0, 1, b, b * context))
            / (1e6 * step_seconds(coefficients, 0, 0, b, 0, b * context))
        )
        for b in COMPARED
    ]
    return math.exp(sum(logs) / len(logs))


def timed_steps(deployment: Deployment) -> tuple[TimedStep, ...]:
    """A grid of steps of a deployment. Raises InputError: operations of it were not timed."""
    kernels, max_context = Kernels(deployment), deployment.model.max_context
    steps = [
        step
        for step in _grid()
        if step.prefill + step.context // max(step.decodes, 1) <= max_context
    ]
    return tuple(
        TimedStep(
            prefill_tokens=step.prefill,
            prefill_sequences=step.prompts,
            past_tokens=0,
            decode_sequences=step.decodes,
            context_tokens=step.context,
            seconds=kernels.step_us(step) / 1e6,
        )
        for step in steps
    )


def _grid() -> Iterator[Step]:
    """Decodes alone, whole prompts, and a prompt among decodes of about its length."""
    for batch in (*BATCHES, 1024, 2048):
        for context in CONTEXTS:
            yield Step(0, 1, batch, batch * context)
    for prompt in PROMPTS:
        yield from (
            Step(prompt * pack, pack, 0, 0) for pack in (1, *PACKS) if prompt * pack <= MOST_TOKENS
        )
        yield from (Step(prompt, 1, batch, batch * prompt) for batch in BATCHES[::3])


class Kernels:
    """The operations of one deployment.

    Raises InputError: they were not timed for its GPU, engine, format or kinds of layers.
    """

    def __init__(self, deployment: Deployment) -> None:
        """Look up the numbers of all operations."""
        self.deployment, self.model, self.split = (
            deployment,
            deployment.model,
            deployment.parallelism,
        )
        self.precision = deployment.gpu.executes(deployment.precision)
        self.gpu = self._of(GPUS, deployment.gpu.name, "GPU")
        engine = find_engine(deployment.engine)
        self.engine = self._of(ENGINES, engine.family, "engine")
        self.host = self._of(_file()["host"]["rows"], engine.coefficients, "engine")
        self.rate = deployment.gpu.fp16_tflops * 1e6  # FLOP/µs in 16 bits
        self.bandwidth = deployment.gpu.memory_bandwidth_gb_s * 1e3  # bytes/µs
        self.cache = "fp8" if self.precision.kv_bits == BITS_8 else "bfloat16"
        for layer_group in self.model.by_kind:
            self._of(PRODUCTS, layer_group.mixer.kind, "kind of layers")
        self.dense = {
            form.name: (weights / self.split.tp, form, self._dense(form))
            for weights, form in dense_formats(self.model, self.precision)
        }
        self.experts = self._experts() if self.model.is_moe else {}

    def _of(self, table: Any, name: str, what: str) -> Any:
        if name not in table:
            raise self._untimed(f"the {what} {name}")
        return table[name]

    def _untimed(self, what: str) -> InputError:
        return InputError(
            f"{option('step_model')}: {KERNELS} has no operation times of {what}; choose"
            f" {option('step_model')} fitted"
        )

    def _times(self, table: str, *names: str) -> dict[str, float]:
        """The numbers of an operation. Raises InputError: it was not timed."""
        numbers = _row(table, " ".join(names))
        if numbers is None:
            raise self._untimed(" ".join(names))
        return numbers

    def _form(self, table: dict[str, str], form: Precision) -> str:
        name = self._of(table, form.weight_format, "format")
        return "fp8_block" if name == "fp8" and scaled_by_blocks(self.model, form) else name

    def _mostly(self, group: str) -> Precision:
        """The format of most weights of a group of matrices."""
        return max(self.precision.forms(group, self.model.is_moe), key=lambda part: part[0])[1]

    def _dense(self, form: Precision) -> dict[str, float]:
        name = self._form(DENSE, form)
        numbers = self._times("dense", self.gpu, self.engine, name)
        fused = zip(("floor_us", "row_ns", "passes"), FUSED.get(name, ()), strict=False)
        return numbers | {key: min(numbers[key], bound) for key, bound in fused}

    def _experts(self) -> dict[str, float]:
        form = self.deployment.gpu.executes(self._mostly(EXPERTS))
        if form.weight_format == "mxfp4":
            name = "w4a16_mxfp4" if form.unpacked else "w4a8_mxfp4_mxfp8"
        else:
            name = self._of(ROUTED, form.weight_format, "format")
        return self._times("experts", self.gpu, self.engine, name) | {
            "bytes": form.weight_bytes,
            "rate": self._rate(form),
        }

    def _rate(self, form: Precision) -> float:
        return (
            self.deployment.gpu.flops(form.arithmetic) or self.deployment.gpu.fp16_tflops * 1e12
        ) / 1e6

    def step_us(self, step: Step) -> float:
        """Microseconds of a step."""
        model, layers, host = (
            self.model,
            _file()["layers"],
            dict(zip(_file()["host"]["columns"], self.host, strict=True)),
        )
        gpu = self._matrices(step) + self._head(step) + self._sums(step)
        gpu += sum(
            layer_group.layers * self._mixing(layer_group, step) for layer_group in model.by_kind
        )
        gpu += model.layers * layers["layer_us"]
        if model.is_moe:
            gpu += model.expert_layers * (
                self._routed(step) + layers["expert_layer_us"] + self._sent(step)
            )
        if model.residual_streams > 1:
            gpu += model.layers * (layers["streams_us"] + layers["streams_token_us"] * step.tokens)
        seconds = (
            host["factor"] * gpu
            + host["step_us"]
            + host["sequence_us"] * (step.decodes + (step.prompts if step.prefill else 0))
        )
        return float(seconds + (host["prefill_layer_us"] * model.layers if step.prefill else 0.0))

    def _products(self, step: Step) -> Iterator[tuple[str, int, float]]:
        """The group of matrices, the number of products, and the mean inner width of each kind of
        products in a step.
        """
        model, tp = self.model, self.split.tp
        for layer_group in model.by_kind:
            if not self._whole(layer_group, step):
                yield (
                    "attention",
                    PRODUCTS[layer_group.mixer.kind] * layer_group.layers,
                    (model.hidden + layer_group.mixer.width / tp) / 2,
                )
        plain = model.dense_layers if model.is_moe else model.inner_layers
        if plain:
            yield "mlp", 2 * plain, (model.hidden + (model.dense_ffn or model.ffn) / tp) / 2

    def _whole(self, layers: Layers, step: Step) -> bool:
        """Whether a kind of layers is taken as a module that was timed whole, as decodes alone
        were.
        """
        return step.prefill == 0 and layers.mixer.kind in (*MODULES, "compressed")

    def _matrices(self, step: Step) -> float:
        """The products of all layers: their launches one by one, their weights and arithmetic
        together.
        """
        m, total = step.tokens, 0.0
        for group, count, width in self._products(step):
            form = self._mostly(group)
            times = self.dense[form.name][2] if form.name in self.dense else self._dense(form)
            total += count * (
                times["floor_us"] + times["depth_us"] * width / 1e3 + times["row_ns"] * m / 1e3
            )
            total += count * times["passes"] * 2 * m * width / self.bandwidth
        inside = sum(
            layer_group.layers * layer_group.mixer.parameters(self.model.hidden)
            for layer_group in self.model.by_kind
            if self._whole(layer_group, step)
        )
        attention = self._mostly("attention").name
        for name, (weights, form, times) in self.dense.items():
            rest = weights - (inside / self.split.tp if name == attention else 0.0)
            if rest > 0:
                read = (form.weight_bytes * rest) / (self.bandwidth * times["memory"])
                computed = 2 * max(m, times["fill"]) * rest / (self._rate(form) * times["compute"])
                total += _joined(read, computed, times["norm"])
        return total

    def _head(self, step: Step) -> float:
        times = self._times("dense", self.gpu, self.engine, "bfloat16")
        weights, rows = (
            self.model.head_parameters / self.split.tp,
            step.decodes + step.prompts * (step.prefill > 0),
        )
        read, computed = (
            2 * weights / (self.bandwidth * times["memory"]),
            2 * rows * weights / (self.rate * times["compute"]),
        )
        return (
            times["floor_us"]
            + times["depth_us"] * self.model.hidden / 1e3
            + _joined(read, computed, times["norm"])
        )

    def _routed(self, step: Step) -> float:
        """One layer of routed experts on the fullest GPU."""
        model, split, times = self.model, self.split, self.experts
        tokens, chosen, wide = (
            step.tokens * split.dp,
            model.experts_per_token / model.experts,
            model.ffn / split.moe_tp,
        )
        touched = 1.0 - (1.0 - chosen) * (1.0 - chosen) ** (times["spread"] * (tokens - 1))
        uneven = (
            largest_of(split.ep)
            * math.sqrt(split.ep / model.experts)
            * math.sqrt(max(touched * (1.0 - touched), 0.0))
        )
        fullest = model.experts / split.ep * min(touched + uneven, 1.0)
        rows = tokens * model.experts_per_token / split.ep * (1.0 + SKEW * math.log2(split.ep))
        h = model.expert_width
        read = 3 * fullest * h * wide * times["bytes"] / (self.bandwidth * times["memory"])
        padded = max(fullest * times["tile"], rows + fullest * times["tile"] / 2)
        computed = 6 * h * wide * padded / (times["rate"] * times["compute"])
        launched = (
            times["floor_us"]
            + times["each_ns"] * fullest / 1e3
            + times["depth_us"] * (h + wide) / 1e3
        )
        moved = (
            times["row_ns"] * rows / 1e3
            + times["passes"] * 2 * rows * (2 * h + 3 * wide) / self.bandwidth
        )
        return float(times["factor"] * (launched + moved + _joined(read, computed, times["norm"])))

    def _mixing(self, layers: Layers, step: Step) -> float:
        """One layer of attention, or of linear attention, beyond its projections; with them where
        the module was timed whole.
        """
        mixer = layers.mixer
        if isinstance(mixer, GatedDeltaNet):
            return self._state(mixer, step)
        decoded = self._decoded(mixer, step) if step.decodes else 0.0
        return decoded + (self._prefilled(mixer, step) if step.prefill else 0.0)

    def _state(self, mixer: GatedDeltaNet, step: Step) -> float:
        layers = _file()["layers"]
        heads = mixer.value_heads / self.split.tp / layers["state_heads"]
        decoded = (
            layers["state_us"] + layers["state_sequence_us"] * heads * step.decodes
            if step.decodes
            else 0.0
        )
        return decoded + (
            layers["state_prefill_us"] + layers["state_token_us"] * heads * step.prefill
            if step.prefill
            else 0.0
        )

    def _decoded(self, mixer: Mixer, step: Step) -> float:
        work, kind = mixer.work(self.precision.kv_bits, self.split.tp), mixer.kind
        heads = getattr(mixer, "heads", 1) / self.split.tp
        if kind == "compressed" and isinstance(mixer, CompressedLayer):
            engine = "sglang" if self.engine == "sglang" else "vllm"
            narrow, wide, few, many = _file()["compressed"]["rows"][
                f"{'CSA' if mixer.index_heads else 'HCA'} {engine}"
            ]
            share = (heads - 16) / (128 - 16)
            read = (work.context_bytes + work.index_bytes) * step.context / self.bandwidth
            floor = narrow + (wide - narrow) * share + _file()["layers"]["compressed_layer_us"]
            return float(floor + (few + (many - few) * share) * step.decodes + read)
        if kind in MODULES:
            return self._module(MODULES[kind], heads, step)
        if kind == "latent":
            times = self._times("latent", self.gpu, self._latent(), self.cache)
            joined = _joined(
                step.context * work.context_bytes / (self.bandwidth * times["kv"]),
                step.context * work.context / (self.rate * times["arithmetic"]),
                times["norm"],
            )
            return times["floor_us"] + times["walk_us"] * step.walked + joined + 2 * BATCHED_US
        times = self._times("heads", self.gpu, self.engine, self.cache)
        read = step.context * work.context_bytes
        if isinstance(mixer, SlidingAttention):
            read = (
                min(step.context, step.decodes * mixer.window) * work.sequence_bytes / mixer.window
            )
        return (
            times["floor_us"]
            + times["walk_us"] * step.walked
            + times["head_ns"] * step.decodes * heads / 1e3
            + read / (self.bandwidth * times["kv"])
        )

    def _latent(self) -> str:
        """Whose kernels of latent attention: vLLM's were timed as modules only, and SGLang unpacks
        an 8-bit cache on Hopper.
        """
        unpacks = self.cache == "fp8" and GENERATIONS[self.gpu] == "h200"
        return "sglang" if self.engine == "sglang" and not unpacks else "trtllm"

    def _module(self, name: str, heads: float, step: Step) -> float:
        engine, gpu = "sglang" if self.engine == "sglang" else "vllm", GENERATIONS[self.gpu]
        form = self._form(DENSE, self._mostly("attention"))
        rows = {
            key: key.split()[-1]
            for key in _file()["modules"]["rows"]
            if key.startswith(f"{name} {gpu} {engine} ")
        }
        if not rows:
            raise self._untimed(f"{name} on {gpu} in {engine}")
        times = self._times(
            "modules", min(rows, key=lambda key: (rows[key] != form, rows[key] != "fp8_block"))
        )
        both, bounded = step.decodes * heads, min(step.context, BOUND * step.decodes)
        parts = (
            times["heads"] * heads / 64
            + times["sequences"] * step.decodes / 64
            + times["both"] * both / 4096
        )
        parts += (times["context"] + times["context_heads"] * heads / 64) * step.context / 1e6
        return times["floor_us"] + parts + times["bounded"] * bounded / 1e5 * math.sqrt(heads / 64)

    def _prefilled(self, mixer: Mixer, step: Step) -> float:
        work, prompt = (
            mixer.work(self.precision.kv_bits, self.split.tp),
            step.prefill / step.prompts,
        )
        pairs = step.prompts * prompt * (prompt + WALK_FROM) / 2
        attended = work.pair * pairs
        if work.pair_most > 0.0:
            attended = min(attended, work.pair_most * step.prefill)
        attended += work.index_pair * pairs + (
            0.0 if isinstance(mixer, SlidingAttention) else work.token * step.prefill
        )
        if isinstance(mixer, SlidingAttention):
            attended = work.sequence * min(step.prefill, pairs / mixer.window)
        if not isinstance(mixer, FullAttention | SlidingAttention):
            return attended / (
                self.rate * self._times("latent", self.gpu, self._latent(), self.cache)["prefill"]
            )
        times = self._times("heads", self.gpu, self.engine, self.cache)
        moved = (
            step.prefill * 2 * (mixer.heads + mixer.kv_heads) / self.split.tp * 2 * mixer.head_dim
        )
        return (
            times["prefill_floor_us"]
            + times["prefill_walk_us"] * prompt / 1e3
            + attended / (self.rate * times["prefill"])
            + times["io"] * moved / self.bandwidth
        )

    def _sums(self, step: Step) -> float:
        """The all-reduces of all layers."""
        gpus, model = self.split.tp, self.model
        if gpus == 1:
            return 0.0
        engine = (
            "trtllm" if self.engine == "vllm" and GENERATIONS[self.gpu] == "b200" else self.engine
        )
        times, link = (
            self._times("sums", self.gpu, engine),
            self.deployment.gpu.tp_link_bytes_s(gpus) / 1e6,
        )
        size, around = 2.0 * model.hidden * step.tokens, 2 * (gpus - 1) / gpus
        ways = [
            (gpus - 1) * size / (link * times["one_shot"]),
            times["second_us"] + around * size / (link * times["two_shot"]),
        ]
        if times["ring"] >= LEAST_RING:
            ways.append(times["large_us"] + around * size / (link * times["ring"]))
        sums = (
            model.mixing_layers
            + model.inner_layers
            - (model.expert_layers if self.split.dp > 1 else 0)
        )
        return sums * (times["floor_us"] + times["step_us"] * math.log2(gpus) + min(ways))

    def _sent(self, step: Step) -> float:
        """Dispatch and combine of one layer of experts: tokens of all attention ranks are gathered,
        and their sums scattered.
        """
        if self.split.dp == 1:
            return 0.0
        points = _file()["sent"]["rows"][GENERATIONS[self.gpu]]
        return 2 * _between(points, 2.0 * self.model.expert_width * step.tokens * self.split.dp)


def _between(points: list[list[float]], size: float) -> float:
    """Linear between the points, constant below the first, in proportion beyond the last."""
    if size <= points[0][0]:
        return points[0][1]
    place = bisect_left(points, [size, 0.0])
    if place == len(points):
        return points[-1][1] * size / points[-1][0]
    (low, least), (high, greatest) = points[place - 1], points[place]
    return least + (greatest - least) * (size - low) / (high - low)


def _joined(read: float, computed: float, norm: float) -> float:
    return float((read**norm + computed**norm) ** (1 / norm))
