"""One deployment of a plan: what it carries and how many of it are needed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from tonnage.plan.at_peak import AtPeak
from tonnage.plan.confidence import Confidence
from tonnage.plan.document import DERIVES, Shown
from tonnage.plan.identity import Identity
from tonnage.plan.limit import Bound
from tonnage.plan.load import Load
from tonnage.plan.pool import Pool
from tonnage.plan.standby import Standby
from tonnage.results.latencies import Latencies

if TYPE_CHECKING:
    from tonnage.plan.memory import MemoryPart
    from tonnage.spec.deployment import EngineKnobs, Parallelism


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Shown):
    """One deployment that can carry the load, and how many of it are needed.

    Where it has one pool, as is usual, the names of that pool can be read on the candidate itself, in Python and in JSON.

    Attributes:
        pools: what is deployed; one pool, or one for prefill and one for decode.
        systems_exact: systems at the asked confidence, without rounding and spare.
        requests_per_second_per_instance: highest load of one instance inside the limits; likewise per GPU and per 8 GPUs.
        output_tokens_per_second_per_8_gpus: at that load; None where not measured.
        saturation_requests_per_second_per_instance: what it completes when always busy.
        concurrency_per_instance: requests in flight at the highest load; None where not measured.
        sized_requests_per_second_per_instance: what the number of systems counts on: the load of one instance inside the limits when
            steps take as much longer as the asked confidence allows for; None where nothing was predicted.
        utilisation: load at the peak over what the systems carry inside the limits, spare ones left out.
        headroom_to_saturation: how much more than the peak they complete when always busy, as a share.
        at_peak: what requests see at the asked peak; None where there is none (a job, a closed loop, measured points).
        ttft_ms, itl_ms, tpot_ms, e2e_ms: latencies at the highest load, in milliseconds; of a job only the time per token is known,
            since every request waits in the queue of the whole.
        binds: what ends the load.
        load: how requests reach an instance at that load.
        marks: which parts of the prediction rest on something other than measurements of this GPU and engine, each with its source.
        accuracy_impact, calibration: what is published of the number format: "very low" to "high", and how long; "" where nothing is.
        confidence: how sure the number of systems is; None where nothing was predicted.
        standby: what stands by for failures; None where nothing was asked of it.
        checked: whether the whole fleet was simulated at this number of systems; otherwise the number is an estimate from the runs of one
            instance, which agrees with the check within a few percent.
    """

    __pydantic_config__ = DERIVES

    DERIVED: ClassVar[tuple[str, ...]] = (
        *("gpu", "system", "gpus_per_system", "precision", "tp", "pp", "dp", "ep", "engine", "engine_preset", "knobs"),
        *("instances", "systems", "memory", "kv_tokens", "launch", "launch_file"),
    )

    pools: tuple[Pool, ...]
    systems_exact: float
    requests_per_second_per_instance: float
    requests_per_second_per_gpu: float
    requests_per_second_per_8_gpus: float
    output_tokens_per_second_per_8_gpus: float | None
    saturation_requests_per_second_per_instance: float
    concurrency_per_instance: float | None
    utilisation: float
    headroom_to_saturation: float
    ttft_ms: Latencies
    itl_ms: Latencies
    tpot_ms: Latencies
    e2e_ms: Latencies
    binds: Bound
    load: Load
    marks: tuple[str, ...] = ()
    accuracy_impact: str = ""
    calibration: str = ""
    confidence: Confidence | None = None
    sized_requests_per_second_per_instance: float | None = None
    at_peak: AtPeak | None = None
    standby: Standby | None = None
    checked: bool = False

    def derived(self) -> tuple[str, ...]:
        """The names of the only pool; of several pools only what adds up."""
        return self.DERIVED if len(self.pools) == 1 else ("instances", "systems")

    @property
    def pool(self) -> Pool:
        """The only pool.

        Raises:
            ValueError: there are several.
        """
        if len(self.pools) != 1:
            raise ValueError(f"the deployment has {len(self.pools)} pools; look at each of them in pools")
        return self.pools[0]

    @property
    def identity(self) -> Identity:
        """What the deployment of the only pool is called."""
        return self.pool.identity

    @property
    def gpu(self) -> str:
        """GPU of the only pool, a catalog id."""
        return self.pool.gpu

    @property
    def system(self) -> str:
        """System of the only pool, a catalog id."""
        return self.pool.system

    @property
    def gpus_per_system(self) -> int:
        """GPUs in one system of the only pool."""
        return self.pool.gpus_per_system

    @property
    def precision(self) -> str:
        """Number format of the only pool."""
        return self.pool.precision

    @property
    def tp(self) -> int:
        """Tensor-parallel degree of the only pool."""
        return self.pool.tp

    @property
    def pp(self) -> int:
        """Pipeline-parallel degree of the only pool."""
        return self.pool.pp

    @property
    def dp(self) -> int:
        """Data-parallel attention ranks of the only pool."""
        return self.pool.dp

    @property
    def ep(self) -> int:
        """Expert-parallel degree of the only pool."""
        return self.pool.ep

    @property
    def engine(self) -> str:
        """Engine of the only pool, as users call it."""
        return self.pool.engine

    @property
    def engine_preset(self) -> str:
        """Engine preset of the only pool."""
        return self.pool.engine_preset

    @property
    def knobs(self) -> EngineKnobs | None:
        """Engine knobs of the only pool."""
        return self.pool.knobs

    @property
    def memory(self) -> tuple[MemoryPart, ...]:
        """Where the memory of a GPU of the only pool goes."""
        return self.pool.memory

    @property
    def kv_tokens(self) -> int | None:
        """Tokens that the KV cache of an instance of the only pool holds."""
        return self.pool.kv_tokens

    @property
    def launch(self) -> tuple[str, ...]:
        """The command that starts an instance of the only pool."""
        return self.pool.launch

    @property
    def launch_file(self) -> dict[str, Any]:
        """The configuration file that this command names."""
        return self.pool.launch_file

    @property
    def parallelism(self) -> Parallelism:
        """How an instance of the only pool is split."""
        return self.pool.parallelism

    @property
    def instances(self) -> int:
        """Instances of all pools, spare ones included."""
        return sum(pool.instances for pool in self.pools)

    @property
    def systems(self) -> int:
        """Whole systems of all pools, spare ones included."""
        return sum(pool.systems for pool in self.pools)

    @property
    def gpus(self) -> int:
        """GPUs bought."""
        return sum(pool.fleet.gpus for pool in self.pools)

    @property
    def sized_rate(self) -> float:
        """Requests per second of one instance that the number of systems counts on."""
        sized = self.sized_requests_per_second_per_instance
        return self.requests_per_second_per_instance if sized is None else sized

    def on(self, *, systems: int, instances: int) -> Candidate:
        """The same with another number of systems of the only pool."""
        return replace(self, pools=(replace(self.pool, systems=systems, instances=instances),))


def mean_latency(candidate: Candidate) -> float:
    """Mean E2E in milliseconds, mean TTFT where E2E was not measured, infinite where neither was.

    At the asked peak, so that deployments are compared at the same load; at the highest load inside the limits where no peak is known.
    """
    at = candidate if candidate.at_peak is None else candidate.at_peak
    value = at.ttft_ms.mean if at.e2e_ms.mean is None else at.e2e_ms.mean
    return math.inf if value is None else value


def by_gpus_needed(candidate: Candidate) -> tuple[bool, float, float, float]:
    """Sort key: first those that reach the asked confidence; then fewest whole GPUs, fewest exactly, lowest latency."""
    per_system, sure = candidate.gpus / candidate.systems, candidate.confidence
    return (sure is not None and not sure.reached, candidate.gpus, candidate.systems_exact * per_system, mean_latency(candidate))
