"""Files of recorded sessions."""

from __future__ import annotations

import json
from pathlib import Path

from tests.deployments import knobs_of
from tests.strategies import coefficient_array
from tonnage.perf.step import StepModel
from tonnage.spec.lengths import Lengths

STEP = StepModel(coefficients=coefficient_array(host_step=0.001, norm=1.0), frontend_s=0.0)


ENGINE = knobs_of(64, 8192)


NS = 1_000_000_000


def write(path: Path, *lines: object) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def request(t, isl, ids, think=0.0, out=10, **more):
    return {
        "t": t,
        "type": "n",
        "in": isl,
        "out": out,
        "hash_ids": ids,
        "api_time": 2.0,
        "think_time": think,
        **more,
    }


def session(*requests, **more):
    return {
        "id": "one",
        "block_size": 64,
        "hash_id_scope": "local",
        "requests": list(requests),
        **more,
    }


ANY = Lengths(mean=1.0)
