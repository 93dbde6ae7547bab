"""``tonnage watch``: a running deployment next to its plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import InputError, TonnageError, option

if TYPE_CHECKING:
    from tonnage.watch.watched import Watched

SHORTEST_S, LONGEST_S = 0.5, 3_600.0


def watch(
    urls: Sequence[str],
    *,
    plan: str | Path,
    every: str = "10s",
    gpu_metrics: Sequence[str] = (),
    coefficients: str | Path | None = None,
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[Watched]:
    """Look at a deployment again and again; each look is over the stretch since the one before it.

    Args:
        urls: of its instances, or of the gateway before them.
        plan: file with the plan's JSON.
        every: time between two looks, such as "10s".
        gpu_metrics: pages of exporters of the GPUs.
        coefficients: file that ``calibrate`` wrote, in place of the calibration that the plan was made with.
        wait: waits so many seconds.

    Raises:
        InputError: no plan, one that predicts nothing, or something that is no address or no duration.
        TonnageError: nothing answers with the metrics of a known engine.
    """
    from tonnage.api.running.deploy import planned
    from tonnage.deploy.signals import SIGNALS
    from tonnage.spec.catalog import find_engine
    from tonnage.units import parse_duration
    from tonnage.watch.expected import Predictor
    from tonnage.watch.reading import PATH, Pages
    from tonnage.watch.watched import Watcher

    if not urls:
        raise InputError(f"{option('url')}: nothing to watch is given; name an instance or a gateway, such as http://127.0.0.1:8000")
    seconds = parse_duration(every, option("every"))
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise InputError(f"{option('every')}: {every} is not possible; write 0.5s to 1h")
    choice = planned(plan, coefficients=coefficients)
    if not choice.plan.provenance.simulated:
        raise InputError(f"{option('plan')}: {plan} rests on measured points and predicts nothing of its own; give one that was simulated")
    signals = SIGNALS.get(find_engine(choice.deployment.engine).family)
    pages = Pages(urls, gpus=gpu_metrics, path=PATH if signals is None else signals.path)
    predictor = Predictor(choice.plan, choice.deployment, gpus_per_system=choice.gpus_per_system)
    watcher = Watcher(plan=choice.plan, predictor=predictor, urls=pages.urls, plan_file=str(plan))
    before = pages.read()
    if not before.instances:
        raise TonnageError(f"{', '.join(pages.urls)}: no answer with the metrics of vLLM, SGLang or TensorRT-LLM; is the engine up?")
    while True:
        wait(seconds)
        now = pages.read()
        yield watcher.look(before, now)
        before = now
