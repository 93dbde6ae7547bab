"""Results of lm-evaluation-harness: the file ``results_*.json`` that ``lm_eval --output_path``
writes for a model.

The file has each task under its name, with metrics such as "acc,none" (metric, filter) next to
"acc_stderr,none"; a group such as mmlu has the mean of its tasks. Source: lm-eval 0.4.13, a file
that it wrote, and the tasks of its catalog (read 2026-11-25).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tonnage.errors import InputError
from tonnage.formats.table import files_below, inside, load_json, number_at

TASKS = {
    "MMLU": "mmlu",
    "MMLU-Pro": "mmlu_pro",
    "GSM8K": "gsm8k",
    "HumanEval": "humaneval",
    "ARC-Challenge": "arc_challenge",
    "HellaSwag": "hellaswag",
    "BoolQ": "boolq",
    "TriviaQA": "triviaqa",
    "Natural Questions": "nq_open",
    "DROP": "drop",
    "AGIEval": "agieval_en",
    "BIG-Bench Hard": "bbh",
}
"""The harness's name of each benchmark of ``accuracy.yaml``, whose names may go on with the number
of shots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskScore:
    """The score of a task."""

    metric: str  # with its filter, such as "exact_match,strict-match"
    # score, error: share of the questions, and its standard error
    score: float
    error: float


def task_scores(path: Path) -> dict[str, TaskScore]:
    """The first metric with a standard error of each task and group; the tasks of a group are left
    out.

    Args:
        path: the file, or a folder with it, whose last one counts.

    Raises InputError: no such file, or nothing in it has a standard error.
    """
    files = (
        sorted(files_below(path, "results_*.json"), key=lambda file: file.name)
        if path.is_dir()
        else [path]
    )
    if not files:
        raise InputError(f"{path}: holds no results_*.json; give what lm_eval wrote")
    document, where = load_json(files[-1]), str(files[-1])
    results, groups = inside(document, "results"), inside(document, "group_subtasks")
    parts = (
        {part for below in groups.values() for part in below} if isinstance(groups, dict) else set()
    )
    scores: dict[str, TaskScore] = {}
    for task, values in results.items() if isinstance(results, dict) else ():
        for metric in values if isinstance(values, dict) and task not in parts else ():
            name, _, kind = metric.partition(",")
            if (
                kind
                and isinstance(values.get(f"{name}_stderr,{kind}"), float)
                and task not in scores
            ):
                score, error = (
                    number_at(document, where, "results", task, key)
                    for key in (metric, f"{name}_stderr,{kind}")
                )
                scores[task] = TaskScore(metric=metric, score=score or 0.0, error=error or 0.0)
    if not scores:
        raise InputError(f"{where}: has no score with a standard error; give what lm_eval wrote")
    return scores
