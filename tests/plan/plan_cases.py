"""What the tests of plan share with others."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

from tests.strategies import examples

ANY = settings(
    examples(0.15),
    phases=(Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example],
)
