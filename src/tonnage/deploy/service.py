"""What is deployed, as every target needs it: derived from the plan's choice and the catalog."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tonnage.deploy.checkpoint import checkpoint_of
from tonnage.deploy.signals import SIGNALS, Signals
from tonnage.errors import InputError, option
from tonnage.plan.autoscaling import Proposal
from tonnage.plan.candidate import Candidate
from tonnage.plan.launch import Command, listening, needs_drafter, with_drafter, with_metrics
from tonnage.plan.plan import Plan
from tonnage.plan.pool import Pool
from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.catalog.images import find_image
from tonnage.spec.hardware import Gpu

PORT = 8000
"""Of every engine, inside its container."""

FETCH_BYTES_S = 200e6
READ_BYTES_S = 1e9
READY_S = 180
"""What a start is given: the checkpoint fetched once at 200 MB/s and read at 1 GB/s, and three minutes for everything else that an engine
does before it answers (imports, compilation, CUDA graphs). These are allowances, not measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The choice of a plan, ready to be written for a target.

    Attributes:
        plan: which chose it.
        choice, pool: what it chose.
        family: of the engine, such as "vllm".
        image: of its container, with the tag of the preset's version.
        image_source: where the image's name comes from.
        checkpoint: what the engine loads.
        gpu: that it runs on.
        signals: the metrics that the engine publishes.
    """

    plan: Plan
    choice: Candidate
    pool: Pool
    family: str
    image: str
    image_source: str
    checkpoint: str
    gpu: Gpu
    signals: Signals

    @property
    def name(self) -> str:
        """A DNS label: lower-case letters, digits and hyphens, at most 40."""
        return re.sub(r"[^a-z0-9]+", "-", self.pool.model.lower()).strip("-")[:40].strip("-") or "model"

    @property
    def served(self) -> str:
        """The name of the model that clients use; TensorRT-LLM knows no other than the checkpoint's last part."""
        return self.checkpoint.rstrip("/").rsplit("/", 1)[-1] if self.family == "tensorrt-llm" else self.pool.model

    @property
    def argv(self) -> tuple[str, ...]:
        """The plan's command with the checkpoint in place of the catalog's id, and where the engine listens."""
        words = [self.checkpoint if word == self.pool.model else word for word in self.pool.launch]
        words = ["python3", *words[1:]] if words[0] == "python" else words
        return (*words, *listening(self.family, host="0.0.0.0", port=PORT, name=self.served))

    @property
    def file(self) -> dict[str, Any]:
        """The engine's configuration file; empty where it needs none."""
        return with_metrics(self.pool.launch_file)

    @property
    def gpus(self) -> int:
        """GPUs of an instance."""
        return self.pool.parallelism.gpus

    @property
    def weight_bytes(self) -> int:
        """Weights of an instance, over all its GPUs."""
        return self.gpus * sum(part.bytes_per_gpu for part in self.pool.memory if part.part in ("weights", "drafter"))

    @property
    def startup_seconds(self) -> int:
        """Seconds that a start may take, in tens: the checkpoint fetched and read, and the engine made ready."""
        seconds = self.weight_bytes / FETCH_BYTES_S + self.weight_bytes / READ_BYTES_S + READY_S
        return 10 * math.ceil(seconds / 10)

    @property
    def shared_memory_gib(self) -> int:
        """/dev/shm of an instance in GiB: NCCL and the engine's processes share buffers there."""
        return 4 + 2 * self.gpus

    @property
    def memory_gib(self) -> int:
        """Main memory of an instance in GiB: the weights on their way to the GPUs, 16 GiB for the processes, and shared memory."""
        return math.ceil(self.weight_bytes / 2**30) + 16 + self.shared_memory_gib

    @property
    def cpus(self) -> int:
        """CPU cores of an instance: two for each front end, one for the scheduler and one for each GPU's process."""
        return 2 * (self.pool.knobs.front_ends if self.pool.knobs else 1) + 1 + self.gpus

    @property
    def cache_gib(self) -> int:
        """Room for the checkpoint in GiB: half as much again as the weights, since checkpoints come in several forms, and 10 GiB."""
        return math.ceil(1.5 * self.weight_bytes / 2**30) + 10

    @property
    def drain_seconds(self) -> int:
        """Seconds that running requests get when an instance ends: the p99 of E2E at the limit, at least 30 and at most 600."""
        return min(600, max(30, math.ceil((self.choice.e2e_ms.p99 or 0) / 1e3)))

    @property
    def capacity(self) -> float:
        """Requests per second that all instances carry inside the limits, as the plan counts on them."""
        return self.choice.sized_rate * self.pool.instances

    @property
    def scaling(self) -> Proposal | None:
        """The plan's rule on requests in flight, which engines publish; they publish no arrivals, so that another rule is of no use."""
        return None if self.plan.autoscaling is None else self.plan.autoscaling.by("outstanding")

    @property
    def scale_down_seconds(self) -> int:
        """Seconds for which the highest number of instances is kept: as the plan's rule says, else as long as one takes to come back."""
        return max(300, self.startup_seconds) if self.scaling is None else math.ceil(self.scaling.hold_s)

    @property
    def target_in_flight(self) -> int | None:
        """Requests in flight of one instance from which another one is wanted; None where the plan knows no concurrency.

        Where the plan proposes a rule on requests in flight, it is that rule's target. Else the plan counts on less than the highest load
        inside the limits where a confidence was asked for, and its curve says how many requests are in flight at that load.
        """
        if self.scaling is not None:
            return max(1, math.floor(self.scaling.target))
        most = self.choice.concurrency_per_instance
        if most is None:
            return None
        points = sorted(self._inside())
        counted, highest = self.choice.sized_rate, self.choice.requests_per_second_per_instance
        for (low, least), (high, many) in pairwise(points):
            if low <= counted <= high:
                share = (counted - low) / (high - low) if high > low else 1.0
                return max(1, math.floor(least + share * (many - least)))
        return max(1, math.floor(most * min(1.0, counted / highest)))

    def _inside(self) -> Iterator[tuple[float, float]]:
        """Loads of the curve inside the limits, each with the requests in flight; nothing at no load."""
        yield 0.0, 0.0
        for point in self.plan.curve:
            if point.inside_limits and point.concurrency_per_instance is not None:
                yield point.requests_per_second_per_instance, point.concurrency_per_instance
        if self.choice.concurrency_per_instance is not None:
            yield self.choice.requests_per_second_per_instance, self.choice.concurrency_per_instance

    @property
    def least_instances(self) -> int:
        """Instances that stay: as the plan's rule says, else those that carry the mean load, or the peak where the plan knows no mean."""
        if self.scaling is not None:
            return min(self.pool.instances, self.scaling.least + self.scaling.warm)
        demand = self.plan.demand
        rate = demand.mean_requests_per_second or demand.sizing_requests_per_second
        return min(self.pool.instances, max(1, math.ceil(round(rate / self.choice.sized_rate, 9))))


def service_of(plan: Plan, *, checkpoint: str | None = None, drafter: str | None = None) -> Service:
    """What a plan deploys.

    Args:
        plan: whose choice is deployed.
        checkpoint: what the engine loads, a name at a hub or a folder inside the container; by default the model's published one.
        drafter: checkpoint of the drafter, where the plan decodes speculatively with one.

    Raises:
        InputError: the plan chose nothing, or something for which no command, image or checkpoint is known.
    """
    choice = plan.choice
    where = option("plan")
    if choice is None:
        raise InputError(f"{where}: chose nothing, because no deployment met its limits")
    if len(choice.pools) > 1:
        raise InputError(f"{where}: chose separate pools for prefill and decode, which no target is written for yet")
    pool = choice.pool
    engine = find_engine(pool.engine_preset or pool.engine)
    image = find_image(engine.name)
    if not pool.launch or engine.family not in SIGNALS or image is None:
        known = ", ".join(SIGNALS)
        raise InputError(f"{where}: its engine is {pool.engine}, for which no command or image is known; size with one of {known}")
    gpu = find_gpu(pool.gpu)
    if gpu.vendor != "NVIDIA":
        raise InputError(f"{where}: its GPUs are {gpu.name} by {gpu.vendor}; files are written for those of NVIDIA alone so far")
    if pool.parallelism.gpus > pool.gpus_per_system:
        raise InputError(f"{where}: an instance takes {pool.parallelism.gpus} GPUs of several systems; no target is written for that yet")
    loaded = checkpoint_of(pool.model, pool.precision, checkpoint)
    pool = _with_drafter(pool, drafter)
    return Service(
        plan=plan,
        choice=choice,
        pool=pool,
        family=engine.family,
        image=image.image,
        image_source=f"{image.source}, {image.date}",
        checkpoint=loaded,
        gpu=gpu,
        signals=SIGNALS[engine.family],
    )


def _with_drafter(pool: Pool, drafter: str | None) -> Pool:
    """The pool with its drafter's checkpoint in its command.

    Raises:
        InputError: one is needed and was not named, or the other way round.
    """
    started = Command(argv=pool.launch, file=pool.launch_file)
    if needs_drafter(started):
        if drafter is None:
            raise InputError(f"{option('drafter')}: the plan decodes speculatively ({pool.engine}); name the drafter's checkpoint")
        started = with_drafter(started, drafter)
    elif drafter is not None:
        raise InputError(f"{option('drafter')}: the plan's command takes none; leave it out")
    return replace(pool, launch=started.argv, launch_file=started.file)
