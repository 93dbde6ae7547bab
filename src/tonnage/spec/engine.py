"""Engines: the programs that run a model, with the defaults of one range of versions each."""

from __future__ import annotations

from dataclasses import fields, replace

from tonnage.spec.deployment import EngineKnobs
from tonnage.spec.hardware import ANY_VENDOR, Gpu, older_generations
from tonnage.spec.precision import Precision
from tonnage.spec.typed_values import Pairs, strict

# How an engine is started: the words of its command and the flag of each setting, which
# ``plan/launch`` puts together. Settings have the names of ``Parallelism`` and ``EngineKnobs``, and
# those of ``plan.launch.SETTINGS``.


MODEL = "{model}"  # Placeholder of the checkpoint in a command

# Placeholder of a command's flags; they follow the last word of a command without it
FLAGS = "{flags}"


@strict
class Switch:
    """The flags that enable and disable a setting; empty where the engine has none for that,
    because it is its default.
    """

    enable: str = ""
    disable: str = ""


# Placeholder of the drafter's checkpoint in the flags of speculative decoding
DRAFTER = "{drafter}"

GUESSES, ONE_MORE = "{k}", "{k+1}"  # Placeholders of the guesses of a step there, and of one more


@strict
class Drafting:
    """What one method of speculative decoding adds to a command, with ``DRAFTER`` and ``GUESSES``
    in it.
    """

    words: tuple[str, ...] = ()  # further words of the command
    # pairs of a key of the configuration file, with dots between the levels, and its value
    file: Pairs[str] = ()


@strict
class Launch:
    """The command that starts an engine."""

    command: tuple[str, ...]  # its words; one of them holds ``MODEL``, and one may be ``FLAGS``
    # pairs of a setting and the flag that its value follows; a flag that ends with "=" is one word
    # with it
    values: Pairs[str]
    # pairs of a setting that is on or off and its flags; a degree is on where it is above 1
    switches: Pairs[Switch] = ()
    file_flag: str = ""  # the flag of the configuration file; empty where everything has a flag
    # pairs of a setting that only the file has and its key, with dots between the levels; a leading
    # "not " turns it round
    file_keys: Pairs[str] = ()
    # pairs of a method of speculative decoding (``spec.deployment.METHODS``) and what it adds;
    # others cannot be started
    speculation: Pairs[Drafting] = ()
    # pairs of a number format and the arguments that make the engine quantise a 16-bit checkpoint
    # to it at start
    quantize: Pairs[tuple[str, ...]] = ()
    # source, date: where the names come from and when they were taken down
    source: str
    date: str

    def flag(self, setting: str) -> str | None:
        """The flag that a setting's value follows; None where it has none."""
        return dict(self.values).get(setting)

    def switch(self, setting: str) -> Switch | None:
        """The flags that turn a setting on and off; None where it has none."""
        return dict(self.switches).get(setting)

    def drafting(self, method: str) -> Drafting | None:
        """The words that a method of speculative decoding adds; None where the engine cannot be
        started with it.
        """
        return dict(self.speculation).get(method)

    def quantizing(self, weights: str) -> tuple[str, ...]:
        """The arguments that make the engine quantise to a number format at start; empty if it
        cannot.
        """
        return dict(self.quantize).get(weights, ())


@strict
class MemoryDefault:
    """Batch limits that an engine chooses on GPUs with at least ``min_gib`` GiB of memory."""

    min_gib: int
    excluded: str = ""  # GPUs whose id contains this text do not count; empty for none
    # max_batch_size, max_num_tokens: as in ``EngineKnobs``
    max_batch_size: int
    max_num_tokens: int
    # as in ``EngineKnobs``; None where it does not depend on the memory
    kv_fraction: float | None = None


@strict
class FrontEnd:
    """What keeps the one event loop of an API server busy apart from streaming, in µs of a core of
    the class ``cpu``.
    """

    enter_us: float  # to let a request in: HTTP, template, the message to the engine
    enter_token_us: float  # for each token of its prompt
    step_us: float  # to take up the tokens that one engine has made in a step
    cpu: str  # class of the core it was measured on (``host_cpus.yaml``)
    # source, date: where it was measured and when
    source: str
    date: str


UNPACKING = {8: "int8-wo", 4: "mxfp4 unpacked"}
"""The measured formats whose kernels unpack as many bits as Marlin does of FP8 and FP4."""


@strict
class EnginePreset(EngineKnobs):
    """The defaults of one engine over one range of versions: its knobs where no ``by_memory``
    applies, and what is no knob.
    """

    name: str  # lower-case id, such as "tensorrt-llm-0.15"
    family: str  # "tensorrt-llm", "nim", "vllm" or "sglang"
    since: str  # first version that these defaults speak for, such as "0.14"
    vendors: tuple[str, ...]  # makers of the accelerators that it runs on
    coefficients: str  # name of the fitted preset under ``perf/coefficients``
    replicated_embedding: bool  # every GPU of an instance keeps the whole embedding table
    # further activations per token of a full step and element of the residual stream, in bytes,
    # where weights are narrower than 16 bits
    narrow_activation_bytes_per_hidden: float
    # logits and sampling buffers per slot and row of the vocabulary, in bytes
    logit_bytes_per_vocabulary_row: float
    # workspaces and CUDA graphs in addition to context and communication, in bytes per GPU
    reserve_bytes: int
    # buffers between the first two GPUs of an instance, in bytes per GPU, and the exponent of their
    # growth; None where those measured on TensorRT-LLM stand for them
    communication_bytes: int | None = None
    communication_exponent: float | None = None
    # the same between GPUs that PCIe alone joins, where it was printed for these
    pcie_communication_bytes: int | None = None
    # it runs a full step and samples for all slots before it sizes its KV cache, and pays what
    # these took, and not its CUDA context
    profiled: bool = False
    # to which it fills up the hidden and the inner width of experts in MXFP4
    mxfp4_multiples: tuple[int, int] = (1, 1)
    # number formats whose experts need no buffers of a step's tokens
    without_workspace: tuple[str, ...] = ()
    # batch limits by GPU memory; the first that applies wins
    by_memory: tuple[MemoryDefault, ...] = ()
    without: tuple[str, ...] = ()  # number formats that it has no kernels for
    # formats that it unpacks to 16 bits on NVIDIA's generations without units for them, such as
    # "fp8 Ampere"
    unpacks: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()  # tools of ``Precision.method`` whose checkpoints it loads
    # None where its costs are not known: requests then enter without waiting for one another
    front_end: FrontEnd | None = None
    # an instance is run with a front end for each rank of data-parallel attention, not with one for
    # all
    front_ends_per_rank: bool = False
    # it refuses to start with more slots than tokens of a step, or than sequences whose states its
    # pool holds
    slots_bounded: bool = False
    # whether its versions are older than every one that was measured, so that its terms are those
    # of a later one
    before_rows: bool = False
    # oldest compute capability of NVIDIA's GPUs that its published builds run on, such as "8.0"; ""
    # where it runs on none of NVIDIA's
    capability: str = ""
    launch: Launch | None = None  # how its server is started; None where it is not known
    # source, date: where the defaults come from and when they were taken down
    source: str
    date: str
    notes: str = ""

    @property
    def knobs(self) -> EngineKnobs:
        """The knobs alone."""
        return EngineKnobs(**{part.name: getattr(self, part.name) for part in fields(EngineKnobs)})

    def excluded(self, gpu: Gpu) -> str:
        """The kind of GPU that it does not run on, such as "AMD" or "Volta"; empty where it runs on
        this one.
        """
        if gpu.vendor not in (ANY_VENDOR, *self.vendors):
            return gpu.vendor
        too_old = gpu.vendor == "NVIDIA" and gpu.arch in older_generations(self.capability)
        return gpu.arch if too_old else ""

    def runs(self, precision: Precision, gpu: Gpu) -> Precision:
        """The precision as the engine runs it on a GPU: what the GPU has no units for is unpacked
        where the engine has kernels for that.
        """
        parts = tuple(
            replace(part, form=self._unpacked(part.form, gpu)) for part in precision.parts
        )
        return replace(self._unpacked(precision, gpu), parts=parts)

    def _unpacked(self, form: Precision, gpu: Gpu) -> Precision:
        if (
            form.sparse
            or gpu.vendor != "NVIDIA"
            or f"{form.weight_format} {gpu.arch}" not in self.unpacks
        ):
            return form
        return replace(
            form,
            arithmetic="fp16",
            unpacked=True,
            block_scaled=False,
            kernels=UNPACKING[form.value_bits],
        )

    def lacks(self, precision: Precision) -> str:
        """Why the engine cannot run a precision, such as "vllm has no int8-wo"; empty where it
        can.
        """
        for form in (precision, *(part.form for part in precision.parts)):
            if form.weight_format in self.without or (
                form.method and form.method not in self.loads
            ):
                return f"{self.name} has no {form.weight_format}"
        return ""


def default_knobs(engine: EnginePreset, gpu: Gpu, ranks: int) -> EngineKnobs:
    """The knobs that an engine runs with on a GPU when its operator sets none; ``ranks`` of
    attention may each have a front end.
    """
    knobs = engine.knobs
    for default in engine.by_memory:
        if gpu.memory_bytes >= default.min_gib * 2**30 and not (
            default.excluded and default.excluded in gpu.name
        ):
            fraction = knobs.kv_fraction if default.kv_fraction is None else default.kv_fraction
            knobs = replace(
                knobs,
                max_batch_size=default.max_batch_size,
                max_num_tokens=default.max_num_tokens,
                kv_fraction=fraction,
            )
            break
    return replace(knobs, front_ends=ranks) if engine.front_ends_per_rank else knobs
