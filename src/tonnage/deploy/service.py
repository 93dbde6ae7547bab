"""What is deployed, as every target needs it: derived from the plan's choice and the catalog."""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tonnage.deploy.checkpoint import Loading, loading
from tonnage.deploy.yaml_comments import yaml_text
from tonnage.errors import InputError, option
from tonnage.formats.prometheus import HISTORIES, Signals
from tonnage.plan.candidate import Candidate, Pool, Role
from tonnage.plan.fleet import Proposal
from tonnage.plan.launch import (
    FILE,
    Command,
    foreign_word,
    listening,
    needs_drafter,
    with_drafter,
    with_metrics,
    without_checkpoint,
)
from tonnage.plan.notes import FrontEnds, KnobsChanged, RestsOn
from tonnage.plan.plan import Plan
from tonnage.plan.use_cases import CaseAtPeak
from tonnage.results.store import json_text
from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.catalog.interfaces import Interface, find_interface
from tonnage.spec.hardware import Gpu
from tonnage.spec.precision import WIDE, find_precision
from tonnage.spec.targets import SPANNING, machine_gpus
from tonnage.version import VERSION


def without(words: Sequence[str], *left_out: str) -> list[str]:
    """The words of a command without some flags and the values behind them."""
    return [
        word
        for before, word in zip(("", *words), words, strict=False)
        if before not in left_out and word not in left_out
    ]


VARYING = frozenset({"--port", "--served-model-name"})
"""Options of the simulated engine whose values are not the same on each target."""


def simulated_options(words: Sequence[str]) -> dict[str, str]:
    """The options of a simulated engine's command, with or without its program. None where the
    words are another command, an option has no value, or one is there twice.
    """
    arguments = iter(words[1:] if words and words[0] == "tonnage" else words)
    if next(arguments, "") != "serve":
        return {}
    options: dict[str, str] = {}
    for word in arguments:
        flag, equals, value = word.partition("=")
        value = value if equals else next(arguments, "")
        if not flag.startswith("--") or flag in options or value[:1] in ("", "-"):
            return {}
        options[flag] = PLAN if value.endswith(f"/{PLAN}") else value
    return options


def is_simulated(options: Mapping[str, str], planned: Mapping[str, str]) -> bool:
    """Whether the options are those of the plan's simulated engine, in whatever order."""
    return options.keys() == planned.keys() and all(
        options[flag] == value or flag in VARYING for flag, value in planned.items()
    )


LEADER = "$(LWS_LEADER_ADDRESS)"
"""Address of the first pod of a group, which LeaderWorkerSet puts into the environment of each;
``WORKER`` is a pod's own place."""

# Set by LeaderWorkerSet from 0.6 on (its documentation and manifests, read 2026-11-25)
WORKER = "$(LWS_WORKER_INDEX)"


def node_words(family: str, *, nodes: int, rank: str) -> tuple[str, ...]:
    """The engine's own flags of one of several nodes of an instance; vLLM takes its mp executor for
    them, without Ray.
    """
    shared = ("--nnodes", str(nodes), "--node-rank", rank)
    if family == "sglang":
        return (*shared, "--dist-init-addr", f"{LEADER}:5000")
    return (
        *shared,
        "--master-addr",
        LEADER,
        "--distributed-executor-backend",
        "mp",
        *(() if rank == "0" else ("--headless",)),
    )


# What makes an engine one of two pools: the flags and the file by which prefill instances send
# their KV cache to decode instances.


NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
"""vLLM's connector (Dynamo's examples/backends/vllm/deploy/v1beta1/disagg.yaml, read 2026-11-23);
both sides take the role kv_both."""

CONTEXT = "--max_seq_len"  # The flag of TensorRT-LLM whose value the transfer's buffer has to hold


def transfer_words(family: str, role: Role) -> tuple[str, ...]:
    """The engine's own flags, none of TensorRT-LLM; SGLang's as in llm-d's guides/pd-disaggregation
    (read 2026-11-23).
    """
    if role == "serve":
        return ()
    if family == "sglang":
        return ("--disaggregation-mode", role, "--disaggregation-transfer-backend", "nixl")
    return ("--kv-transfer-config", NIXL) if family == "vllm" else ()


def transfer_file(role: Role, launch: Sequence[str]) -> Mapping[str, Any]:
    """What TensorRT-LLM's file holds in addition (Dynamo's
    trtllm/engine_configs/deepseek-r1/disagg, read 2026-11-23).
    """
    if role == "serve":
        return {}
    tokens = (
        {"max_tokens_in_buffer": int(launch[launch.index(CONTEXT) + 1])}
        if CONTEXT in launch
        else {}
    )
    return {
        "disable_overlap_scheduler": role == "prefill",
        "cache_transceiver_config": {"backend": "UCX", **tokens},
    }


PORT = 8000  # Of every engine that nothing is before, inside its container
BEHIND = 8200  # Of an engine behind llm-d's routing sidecar, which takes ``PORT``

FETCH_BYTES_S = 200e6
READ_BYTES_S = 1e9
READY_S = 180
"""What a start is given: the checkpoint fetched once at 200 MB/s and read at 1 GB/s, and three
minutes for everything else that an engine does before it answers (imports, compilation, CUDA
graphs). These are allowances, not measurements."""


PLAN = "plan.json"
SIMULATED = f"tonnage-simulated:{VERSION}"  # Image of the simulated engine (``Containerfile``)

NO_CHECKPOINT = (
    "The engines are simulated: each is `tonnage serve` with this plan, asks for no GPU and loads"
    " no checkpoint. Router, scraping, rules, probes and autoscaling are those of the plan. The"
    f" image is `{SIMULATED}`, which Tonnage's Containerfile builds."
)

INSIDE = {"nim": "tensorrt-llm-1.1"}
"""The engine that reads the checkpoint, by family of what runs it (NIM 1.15, whose CUDA is 13 as
that of TensorRT-LLM 1.1; recalled)."""

# Fields of a plan that do not depend on its choice
KEPT = ("scenario", "asked", "demand", "rejected", "provenance", "pareto", "aim")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where an instance is on machines that several use cases share."""

    machine: int  # from 1 on
    gpu: int  # its first GPU there, from 0 on


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A deployment of a plan, ready to be written for a target: its choice, or the next best that
    the target can run.
    """

    plan: Plan  # whose choice it is
    choice: Candidate  # what it chose
    # its instances; of two pools all of them, with the role "serve", and ``halves`` has each
    pool: Pool
    family: str  # of the engine, such as "vllm"
    interface: Interface  # flags, metrics and image of the preset's version
    loading: Loading
    gpu: Gpu  # that it runs on
    signals: Signals  # the metrics that the engine publishes
    # the plan's choice where this is another deployment, and why the target cannot run it, as a
    # clause
    instead_of: Candidate | None = None
    why: str = ""
    # whether ``tonnage serve`` runs in place of the engine, without GPUs and checkpoint
    emulated: str = ""  # engine that a simulated one answers as; "" for that of its family
    simulated: bool = False
    # its use case or kind of systems, which begins the names of its objects where several are
    # deployed side by side; empty for one
    case: str = ""
    # the name of the model that clients use where another deployment behind the same router sets it
    alias: str = ""
    # use cases that share it, each with its priority, the lowest first; empty where it serves first
    # come, first served
    by_priority: tuple[tuple[CaseAtPeak, int], ...] = ()
    # of each instance, where several use cases share the machines; empty where it has its own
    seats: tuple[Seat, ...] = ()
    # its place among these use cases, by which the ports that are not of its instances differ
    beside: int = 0

    @property
    def router(self) -> str:
        """The router that the plan's number of systems rests on; ``least-outstanding`` for a plan
        from measured points.
        """
        return self.plan.scenario.router or "least-outstanding"

    @property
    def checkpoint(self) -> str:
        """Hugging Face name of the checkpoint, or its folder inside the instance."""
        return self.loading.checkpoint

    @property
    def local(self) -> bool:
        """Whether the checkpoint is a folder, which the user fills."""
        return self.checkpoint.startswith("/")

    @property
    def halves(self) -> tuple[Service, ...]:
        """Each of two pools as a deployment, with its role and its instances; itself where
        instances do both.
        """
        pools = self.choice.pools
        if len(pools) == 1:
            return (self,)
        return tuple(
            replace(self, pool=replace(self.pool, role=pool.role, instances=pool.instances))
            for pool in pools
        )

    @property
    def port(self) -> int:
        """Where the engine listens inside its container: behind a sidecar that takes ``PORT`` where
        it decodes for others.
        """
        return BEHIND if self.pool.role == "decode" else PORT

    @property
    def name(self) -> str:
        """A DNS label: lower-case letters, digits and hyphens, at most 40."""
        return dns_label(f"{self.case}-{self.pool.model}")

    @property
    def served(self) -> str:
        """The name of the model that clients use; TensorRT-LLM knows no other than the checkpoint's
        last part.
        """
        return (
            self.checkpoint.rstrip("/").rsplit("/", 1)[-1]
            if self.family == "tensorrt-llm"
            else self.alias or self.pool.model
        )

    @property
    def argv(self) -> tuple[str, ...]:
        """The plan's command with the checkpoint in place of the catalog's id, or the simulated
        engine's, and where it listens.
        """
        if self.simulated:
            words = [
                "tonnage",
                "serve",
                "--plan",
                self.file_name,
                "--instances",
                "1",
                "--emulate",
                self.emulated or self.family,
            ]
            return (
                *words,
                "--host",
                "0.0.0.0",
                "--port",
                str(self.port),
                "--served-model-name",
                self.served,
            )
        words = [self.checkpoint if word == self.pool.model else word for word in self.pool.launch]
        words = ["python3", *words[1:]] if words[0] == "python" else words
        words += transfer_words(self.family, self.pool.role)
        return (*words, *listening(self.family, host="0.0.0.0", port=self.port, name=self.served))

    @property
    def file(self) -> dict[str, Any]:
        """The engine's configuration file; empty where it needs none."""
        return with_metrics(self.pool.launch_file)

    @property
    def file_name(self) -> str:
        """The name of the file in the command; every target replaces it with the path inside the
        instance.
        """
        return PLAN if self.simulated else FILE

    @property
    def file_text(self) -> str:
        """The text of that file; empty where the command needs none. The simulated engine's is the
        plan without what was not chosen.
        """
        if self.simulated:
            return json_text(
                replace(
                    around(self.plan, self.choice),
                    candidates=(self.choice,),
                    rejected=(),
                    pareto=(),
                ).to_json()
            )
        return yaml_text(self.file) if self.file else ""

    @property
    def image(self) -> str:
        """The container of the engine on the plan's GPUs, or of the simulated engine."""
        return SIMULATED if self.simulated else self.interface.image_on(self.gpu)

    @property
    def prerequisites(self) -> str:
        """What a cluster needs for the engines, at the beginning of a list; nothing where they are
        simulated.
        """
        groups = ", LeaderWorkerSet 0.6 or newer" if self.spans > 1 else ""
        groups += (
            ", NVIDIA's DRA driver with ComputeDomains (Kubernetes 1.33 or newer)"
            if self.racked
            else ""
        )
        return (
            ""
            if self.simulated
            else f"{self.gpu.vendor}'s GPU operator{groups}, a storage class with ReadWriteMany, "
        )

    @property
    def spans(self) -> int:
        """Machines of one instance."""
        return 1 if self.simulated else -(-self.gpus // self.machine_gpus)

    @property
    def racked(self) -> bool:
        """Whether NVLink joins the machines of an instance (MNNVL of GB200 and GB300), which then
        needs an IMEX channel.
        """
        return self.spans > 1 and self.machine_gpus < self.pool.gpus_per_system

    @property
    def machine_gpus(self) -> int:
        """GPUs of one machine, which for a rack is one of its trays."""
        return machine_gpus(self.pool.gpu, self.pool.gpus_per_system)

    @property
    def several(self) -> bool:
        """Whether the instances are on several machines."""
        return bool(self.case) or self.pool.systems > 1 or self.pool.instances > self.per_machine

    @property
    def gpus(self) -> int:
        """GPUs of an instance."""
        return self.pool.parallelism.gpus

    @property
    def per_machine(self) -> int:
        """Instances per machine; the last machine may have fewer."""
        return min(self.pool.instances, self.machine_gpus // self.gpus)

    def machine_of(self, place: int) -> str:
        """Host of an instance, counted from 0: a placeholder name, or 127.0.0.1 if the plan has one
        machine.
        """
        if self.seats:
            return f"machine-{self.seats[place].machine}"
        kind = f"{self.case}-" if self.case else ""
        return f"{kind}machine-{place // self.per_machine + 1}" if self.several else "127.0.0.1"

    def first_gpu(self, place: int) -> int:
        """The first GPU of an instance on its machine, both counted from 0."""
        if self.seats:
            return self.seats[place].gpu
        return place % self.per_machine * self.gpus

    def slot(self, place: int) -> int:
        """What tells an instance's port from those of the others on its machine."""
        return self.seats[place].gpu if self.seats else place % self.per_machine

    @property
    def weight_bytes(self) -> int:
        """Weights of an instance, over all its GPUs."""
        return self.gpus * sum(
            part.bytes_per_gpu for part in self.pool.memory if part.part in ("weights", "drafter")
        )

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of the checkpoint: the weights of all GPUs of an instance, or their 16-bit form if
        the engine quantises at start.
        """
        share = 16 / find_precision(self.pool.precision).weight_bits if self.loading.words else 1.0
        return math.ceil(share * self.weight_bytes)

    @property
    def startup_seconds(self) -> int:
        """Seconds that a start may take, in tens: the checkpoint fetched and read, and the engine
        made ready.
        """
        seconds = (
            self.checkpoint_bytes / FETCH_BYTES_S + self.checkpoint_bytes / READ_BYTES_S + READY_S
        )
        return 10 * math.ceil(seconds / 10)

    @property
    def shared_memory_gib(self) -> int:
        """/dev/shm of an instance in one system, in GiB: NCCL and the engine's processes share
        buffers there.
        """
        return 4 + 2 * self.gpus // self.spans

    @property
    def memory_gib(self) -> int:
        """Main memory of an instance in one system, in GiB: weights on their way to the GPUs, 16
        GiB for the processes, shared memory.
        """
        return (
            1
            if self.simulated
            else math.ceil(self.checkpoint_bytes / self.spans / 2**30) + 16 + self.shared_memory_gib
        )

    @property
    def cpus(self) -> int:
        """CPU cores of an instance in one system: two for each front end, one for the scheduler and
        one for each GPU's process.
        """
        return (
            1
            if self.simulated
            else 2 * (self.pool.knobs.front_ends if self.pool.knobs else 1)
            + 1
            + self.gpus // self.spans
        )

    @property
    def cache_gib(self) -> int:
        """Room for the checkpoint in GiB: half as much again as the weights, since checkpoints come
        in several forms, and 10 GiB.
        """
        return math.ceil(1.5 * self.checkpoint_bytes / 2**30) + 10

    @property
    def drain_seconds(self) -> int:
        """Seconds that running requests get when an instance ends: the p99 of E2E at the limit, at
        least 30 and at most 600.
        """
        return min(600, max(30, math.ceil((self.choice.e2e_ms.p99 or 0) / 1e3)))

    @property
    def capacity(self) -> float:
        """Requests per second that all instances carry inside the limits, as the plan counts on
        them.
        """
        return self.choice.sized_rate * self.pool.instances

    @property
    def scaling(self) -> Proposal | None:
        """The plan's rule on requests in flight, which engines publish; they publish no arrivals,
        so that another rule is of no use.
        """
        return None if self.plan.autoscaling is None else self.plan.autoscaling.by("outstanding")

    @property
    def scale_down_seconds(self) -> int:
        """Seconds for which the highest number of instances is kept: as the plan's rule says, else
        as long as one takes to come back.
        """
        return (
            max(300, self.startup_seconds)
            if self.scaling is None
            else math.ceil(self.scaling.hold_s)
        )

    @property
    def target_in_flight(self) -> int | None:
        """Requests in flight of one instance from which another one is wanted; None where the plan
        knows no concurrency, or has two pools.

        Where the plan proposes a rule on requests in flight, it is that rule's target. Else the
        plan counts on less than the highest load inside the limits where a confidence was
        requested, and its curve says how many requests are in flight at that load.
        """
        if len(self.choice.pools) > 1:
            return None
        if self.scaling is not None:
            return max(1, math.floor(self.scaling.target))
        concurrency = self.choice.concurrency_per_instance
        if concurrency is None:
            return None
        points = sorted(self._inside())
        counted, highest = self.choice.sized_rate, self.choice.requests_per_second_per_instance
        for (low, least), (high, many) in pairwise(points):
            if low <= counted <= high:
                share = (counted - low) / (high - low) if high > low else 1.0
                return max(1, math.floor(least + share * (many - least)))
        return max(1, math.floor(concurrency * min(1.0, counted / highest)))

    def _inside(self) -> Iterator[tuple[float, float]]:
        """Loads of the curve inside the limits, each with the requests in flight; nothing at no
        load.
        """
        yield 0.0, 0.0
        peak = self.choice.at_peak
        if (
            peak is not None
            and peak.e2e_ms.mean is not None
            and peak.requests_per_second_per_instance < self.choice.sized_rate
        ):
            yield (
                peak.requests_per_second_per_instance,
                peak.requests_per_second_per_instance * peak.e2e_ms.mean / 1e3,
            )
        for point in self.plan.curve:
            if point.inside_limits and point.concurrency_per_instance is not None:
                yield point.requests_per_second_per_instance, point.concurrency_per_instance
        if self.choice.concurrency_per_instance is not None:
            yield self.choice.requests_per_second_per_instance, self.choice.concurrency_per_instance

    @property
    def least_instances(self) -> int:
        """Instances that stay: as the plan's rule says, else enough for the mean load, or the peak
        where the plan knows no mean.
        """
        if self.scaling is not None:
            return min(self.pool.instances, self.scaling.least + self.scaling.warm)
        demand = self.plan.demand
        rate = demand.mean_requests_per_second or demand.sizing_requests_per_second
        return min(self.pool.instances, max(1, math.ceil(round(rate / self.choice.sized_rate, 9))))


def obstacle(candidate: Candidate) -> str:
    """The reason why no target can run a deployment, as a clause; empty if one can."""
    pool = candidate.pools[0]
    engine = find_engine(pool.engine_preset or pool.engine)
    interface = find_interface(engine.name)
    if find_precision(pool.precision).weight_format in WIDE:
        return f"no command is known that serves {pool.precision.upper()}"
    if not pool.launch or interface is None:
        return f"no command or image is known for {pool.engine}"
    if foreign := next(filter(None, map(foreign_word, candidate.pools)), ""):
        return f"its command holds {foreign!r:.100}, which Tonnage does not write for {engine.name}"
    gpu, family = find_gpu(pool.gpu), engine.family
    spans = pool.parallelism.gpus > machine_gpus(pool.gpu, pool.gpus_per_system)
    if not interface.image_on(gpu):
        return f"no image of {engine.name} is known for {gpu.name} by {gpu.vendor}"
    further = (
        *pool.launch,
        *(node_words(family, nodes=2, rank="0") if spans and family in SPANNING else ()),
    )
    if spans and len(candidate.pools) > 1:
        return (
            f"an instance of {pool.parallelism.gpus} GPUs of one of two pools spans several"
            " machines, which deploy does not write"
        )
    return interface.fault(further, pool.launch_file) or ""


def dns_label(text: str) -> str:
    """A text as a name in Kubernetes: lower-case letters, digits and hyphens, a letter first, at
    most 40 of them.

    A text with letters or symbols that no such name can hold ends with a hash of it, so that other
    texts have other names.
    """
    bare = "".join(
        sign
        for sign in unicodedata.normalize("NFKD", text.lower())
        if not unicodedata.combining(sign)
    )
    label = re.sub(r"[^a-z0-9]+", "-", bare).strip("-")[:40].strip("-")
    label = f"n{label}" if label[:1].isdigit() else label
    if label and not any(
        not sign.isascii() and unicodedata.category(sign)[0] in "LNS" for sign in bare
    ):
        return label[:40].strip("-")
    code = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{label[:33].strip('-') or 'n'}-{code}"


def service_of(
    plan: Plan,
    *,
    checkpoint: str | None = None,
    drafter: str | None = None,
    candidate: Candidate | None = None,
    why: str = "",
    simulated: bool = False,
) -> Service:
    """A deployment of a plan: its choice, or ``candidate`` with ``why`` as the reason against the
    choice.

    Args:
        checkpoint: Hugging Face name, or a folder inside the instance (default: from the catalog).
        drafter: checkpoint of the drafter, if the plan decodes speculatively with one.
        simulated: whether the simulated engine runs in place of the plan's.

    Raises InputError: the plan chose nothing, or something for which no command or image is known.
    """
    choice = plan.choice
    if choice is None:
        raise InputError(f"{option('plan')}: chose nothing, because no deployment met its limits")
    selected = candidate or choice
    if hindrance := obstacle(selected):
        raise InputError(
            f"{option('plan')}: cannot be deployed, because {hindrance}; size again for other GPUs"
            " or another engine"
        )
    whole = replace(
        selected.pools[0],
        role="serve" if len(selected.pools) > 1 else selected.pools[0].role,
        instances=selected.instances,
    )
    pool = whole if simulated else _with_drafter(whole, drafter)
    engine, gpu = find_engine(pool.engine_preset or pool.engine), find_gpu(pool.gpu)
    interface = find_interface(engine.name)
    if interface is None:  # which an obstacle is
        raise InputError(f"{option('plan')}: no image is known for {pool.engine}")
    loaded = loading(
        pool.model,
        pool.precision,
        INSIDE.get(engine.family, engine.name),
        vendor=gpu.vendor,
        named_checkpoint=checkpoint,
        planned=pool.launch,
    )
    weights = find_precision(pool.precision).weights
    bare = (
        pool.launch
        if engine.launch is None
        else without_checkpoint(pool.launch, engine.launch, pool.model, weights)
    )
    if simulated:
        loaded = replace(loaded, told=NO_CHECKPOINT, make=())
    return Service(
        plan=plan if selected is choice else around(plan, selected),
        choice=selected,
        pool=replace(pool, launch=(*bare, *loaded.words)),
        family=engine.family,
        interface=interface,
        loading=loaded,
        gpu=gpu,
        signals=HISTORIES[engine.family].of(interface),
        instead_of=None if selected is choice else choice,
        why=why,
        simulated=simulated,
    )


def around(plan: Plan, candidate: Candidate) -> Plan:
    """The plan with another deployment as its choice, without the results that hold only for the
    former choice.
    """
    candidates = tuple(
        alternative for alternative in plan.candidates if alternative is not candidate
    )
    notes = tuple(
        note for note in plan.notes if not isinstance(note, RestsOn | KnobsChanged | FrontEnds)
    )
    attributes = {name: getattr(plan, name) for name in KEPT}
    return Plan(candidates=(candidate, *candidates), notes=notes, **attributes)


def _with_drafter(pool: Pool, drafter: str | None) -> Pool:
    """The pool with its drafter's checkpoint in its command."""
    started = Command(argv=pool.launch, file=pool.launch_file)
    if needs_drafter(started):
        if drafter is None:
            raise InputError(
                f"{option('drafter')}: the plan decodes speculatively ({pool.engine}); name the"
                " drafter's checkpoint"
            )
        started = with_drafter(started, drafter)
    elif drafter is not None:
        raise InputError(f"{option('drafter')}: the plan's command takes none; leave it out")
    return replace(pool, launch=started.argv, launch_file=started.file)
