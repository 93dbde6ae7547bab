"""What a deployment is called."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tonnage.plan.candidate import Identity
from tonnage.plan.reason import CannotRun, rejected
from tonnage.sizing.loads.trial import Trial, runs_on
from tonnage.spec.deployment import Parallelism


@pytest.mark.parametrize(
    ("speculation", "engine"),
    [(None, "vllm-0.32"), (SimpleNamespace(label="eagle k=3"), "vllm-0.32 + eagle k=3")],
)
def test_the_names_of_a_trial(speculation: object, engine: str) -> None:
    deployment = SimpleNamespace(
        gpu=SimpleNamespace(name="h100"),
        precision=SimpleNamespace(name="fp8"),
        parallelism=Parallelism(tp=4, pp=2),
        engine="vllm-0.32",
        speculation=speculation,
    )
    trial = Trial(deployment=deployment, system=None)
    assert runs_on(deployment) == engine
    assert trial.name == f"h100 fp8 TP 4 PP 2 {engine}"
    identity = Identity(
        gpu="h100", precision="fp8", tp=4, pp=2, engine=engine, engine_preset="vllm-0.32"
    )
    assert trial.identity == identity
    reason = CannotRun(error="no room")
    assert trial.rejected(reason) == rejected(identity, reason)
