"""The simulator as it runs: the rules of ``reference/`` on arrays, in one loop that numba
compiles.
"""

from tonnage.simulator.kernel.driven import is_compiled
from tonnage.simulator.kernel.run import run, run_instance, run_ranks, run_recorded, warm_up

__all__ = ["is_compiled", "run", "run_instance", "run_ranks", "run_recorded", "warm_up"]
