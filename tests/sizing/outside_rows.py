"""Deployments beyond what was measured."""

from __future__ import annotations

from dataclasses import replace

from tests.questions import best, question
from tonnage.sizing.search.deployment_capacity import Sized


def found(**changed: object) -> Sized:
    return best(replace(question(**changed), tune=False))
