"""The held-out errors of the shipped fit in one small table, for README.md and the first page of docs/accuracy.md."""

from __future__ import annotations

from tonnage.perf.terms_file import shipped

OF_A_GROUP = "NIM, the other five curves of a group that was left out"
ROWS = {
    "a model on a GPU (NIM, under load)": "NIM, one group left out",
    "a model (TensorRT-LLM, one batch)": "static batches, a model left out",
    "a GPU (TensorRT-LLM, one batch)": "static batches, a GPU left out",
    "a model on vLLM, SGLang or TensorRT-LLM of 2025": "current engines, a model left out; TTFT where KV fits",
    "a mixture of experts on the same engines": "current engines, MoE, a model left out; TTFT where KV fits",
    "a model on a GPU, calibrated on one curve of it": f"{OF_A_GROUP}, calibrated on each curve in turn",
}
"""What was left out, as a planner would say it, and the name that the fit has for it."""

COLUMNS = {"mean TTFT": "ttft_ms", "p95 of TTFT": "ttft_p95_ms", "time per token": "itl_ms", "E2E": "e2e_ms", "requests/s": "requests_s"}


def held_out_in_short() -> list[str]:
    """The table in Markdown: mean absolute errors in percent on rows that their own fit had not seen."""
    means = {title: folds["mean"] for title, folds in shipped()["report"]["held_out"].items()}
    found = [f"| left out of the fit | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for said, title in ROWS.items():
        found.append(f"| {said} | {' | '.join(f'{means[title][m]:.1f}' if m in means[title] else '–' for m in COLUMNS.values())} |")
    return found
