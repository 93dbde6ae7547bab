"""Recorded sessions over the wire."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ASKED: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "selftest": False,
    "metrics_url": ["none"],
    "endpoint_type": "completions",
}


def write(path: Path, *, pause: float, sessions: int = 4, turns: int = 5, begins: int = 20) -> str:
    """Sessions whose prompts grow by some blocks of 64 tokens and a part of one, with a sub-agent
    behind the second request."""
    lines = []
    for number in range(sessions):
        requests, ids = [], list(range(begins + 3 * number))
        for turn in range(turns):
            own = [10_000 * (turn + 1) + k for k in range(2 + turn)]
            ids = ids[: len(ids) - turn % 2] + own
            times = {"t": 10.0 * turn, "api_time": 1.0, "think_time": pause if turn else 0.0}
            requests.append(
                {
                    **times,
                    "type": "n",
                    "in": 64 * len(ids) + 13 + turn,
                    "out": 20 + turn,
                    "hash_ids": ids,
                }
            )
            if turn == 1:
                sub = [
                    {
                        "t": 5.0 * k,
                        "api_time": 1.0,
                        "think_time": pause,
                        "type": "n",
                        "in": 700 + 64 * k,
                        "out": 9,
                    }
                    for k in range(2)
                ]
                requests.append(
                    {
                        "t": 11.0,
                        "type": "subagent",
                        "requests": [
                            {**one, "hash_ids": [7, *range(90, 99 + k)]}
                            for k, one in enumerate(sub)
                        ],
                    }
                )
        lines.append(
            {"id": f"s{number}", "block_size": 64, "hash_id_scope": "local", "requests": requests}
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)
