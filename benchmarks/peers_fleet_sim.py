"""One run of vllm-sr-sim's fleet simulator under the load of ``./benchmark peers``; prints a line
of JSON.

ENVIRONMENT/bin/python benchmarks/peers_fleet_sim.py REQUESTS
"""

from __future__ import annotations

import json
import random
import sys
import time
from importlib.metadata import version

from fleet_sim.core.fleet import Fleet, FleetConfig, PoolConfig  # type: ignore[import-not-found]
from fleet_sim.core.request import Request  # type: ignore[import-not-found]
from fleet_sim.gpu_profiles.profiles import A100_80GB  # type: ignore[import-not-found]

count, drawn, at = int(sys.argv[1]), random.Random(7), 0.0
arrivals = []
for number in range(count):
    at += drawn.expovariate(4.0)
    isl, osl = (max(1, round(drawn.gauss(mean, mean / 4))) for mean in (512, 128))
    arrivals.append((at, Request(req_id=number, arrival_time=at, l_in=isl, l_out=osl)))
pool = PoolConfig(pool_id="all", gpu=A100_80GB, n_gpus=1, max_ctx=4_096)
fleet = Fleet(FleetConfig(pools=[pool], router_type="RandomRouter"))
before = time.process_time()
found = fleet.run(arrivals)
seconds = time.process_time() - before
ends = [1e3 * (one.physical_end_time - one.arrival_time) for one in found.completed]
print(
    json.dumps(
        {
            "version": version("vllm-sr-sim"),
            "requests": len(ends),
            "cpu_s": seconds,
            "e2e_mean_ms": sum(ends) / len(ends),
        }
    )
)
