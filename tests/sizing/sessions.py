"""Recorded sessions on instances."""

from __future__ import annotations


def _request(t, isl, osl, ids, think):
    times = {"t": t, "api_time": 3.0, "think_time": think}
    return {
        **times,
        "type": "n",
        "in": isl,
        "out": osl,
        "hash_ids": ids,
        "input_types": ["tool_result"],
    }
