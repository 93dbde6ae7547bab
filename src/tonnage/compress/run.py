"""One checkpoint made: the tool's environment of pinned packages and its process, the folder that
becomes whole at once, the manifest.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tonnage.compress.checks import Job
from tonnage.compress.recipes import LLM_COMPRESSOR, MODELOPT, TOOLS, script
from tonnage.csv_file import read_text
from tonnage.deploy.checkpoint import MANIFEST
from tonnage.errors import InputError, TonnageError, option
from tonnage.formats.lm_eval import task_scores
from tonnage.results.store import write_json
from tonnage.spec.typed_values import parse_json

PINS = "pins.txt"


def pins(tool: str) -> str:
    """The packages of a tool, each with its version; torch brings what its own build needs."""
    return Path(__file__).with_name(f"{tool}.txt").read_text(encoding="utf-8")


def version(tool: str) -> str:
    """The pinned version of a tool."""
    return next(
        line.partition("==")[2]
        for line in pins(tool).splitlines()
        if line.startswith(f"{TOOLS[tool]}==")
    )


def folder(tool: str) -> Path:
    """The folder of a tool's environment: in ``TONNAGE_TOOLS``, or in ``tonnage`` of the user's
    cache.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("TONNAGE_TOOLS") or Path(cache) / "tonnage") / tool


def python_of(tool: str, announce: Callable[[str], None]) -> Path:
    """The Python of a tool's environment, which is made first where it is absent or of other pins.

    A copy of the pins is written last, so that an environment whose making was interrupted is made
    again. Raises TonnageError: pip cannot install the packages; its last lines are in the message.
    """
    place, requirements = folder(tool), pins(tool)
    python = place / "bin" / "python"
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / f"{tool}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (
            (place / PINS).is_file()
            and (place / PINS).read_text(encoding="utf-8") == requirements
            and python.exists()
        ):
            return python
        announce(
            f"making the environment of {tool} in {place}, once; torch and"
            f" {len(requirements.splitlines())} packages …"
        )
        shutil.rmtree(place, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(place)], tool)
        _run(
            [
                str(python),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-input",
                "-r",
                str(Path(__file__).with_name(f"{tool}.txt")),
            ],
            tool,
        )
        (place / PINS).write_text(requirements, encoding="utf-8")
    return python


def _run(command: list[str], tool: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = " | ".join(done.stderr.strip().splitlines()[-4:])
        raise TonnageError(f"the environment of {tool} cannot be made: {last}")


SCHEMA = "tonnage-compress/1"
RECIPE = "recipe.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressed:
    """A checkpoint that was made."""

    folder: Path
    manifest: dict[str, Any]  # content of ``tonnage-compress.json``


def recipe_of(job: Job, *, output: Path) -> str:
    """The tool's own script for a job."""
    text = job.texts.get("calibration", Path("calibration.txt"))
    return script(
        job.form, job.tool, model=str(job.model), output=str(output), text=str(text), name=RECIPE
    )


def run(job: Job, announce: Callable[[str], None]) -> Compressed:
    """Make the checkpoint, judge it, and move it to its place when whole. Raises InputError:
    refused; TonnageError: the tool fails.
    """
    if job.output.exists():
        raise InputError(f"{option('output')}: {job.output} is there already; name another folder")
    python = python_of(job.tool, announce)
    path = job.output.with_name(f".{job.output.name}.{os.getpid()}.partial")
    path.mkdir(parents=True)
    try:
        recipe = recipe_of(job, output=path)
        figures = _worked(python, job, recipe, path, announce)
        manifest = _manifest(job, recipe.replace(str(path), str(job.output)), path, figures)
        write_json(path / MANIFEST, manifest)
        path.rename(job.output)
    finally:
        shutil.rmtree(path, ignore_errors=True)
    return Compressed(folder=job.output, manifest=manifest)


def with_tasks(folder: Path, original: Path, checkpoint: Path) -> Compressed:
    """Add the tasks that lm-evaluation-harness ran on both to the manifest. Raises InputError: no
    manifest, result or common task.
    """
    file = folder / MANIFEST
    if not file.is_file():
        raise InputError(
            f"{option('lm_eval')}: {folder} has no {MANIFEST}; make the checkpoint first, without"
            f" {option('lm_eval')}"
        )
    manifest = parse_json(read_text(file), str(file), "make the checkpoint again")
    before, after = task_scores(original), task_scores(checkpoint)
    common = [
        (name, score, after[name])
        for name, score in before.items()
        if name in after and after[name].metric == score.metric
    ]
    tasks = {
        name: {
            "metric": score.metric,
            "original": score.score,
            "original_error": score.error,
            "made": made_score.score,
            "error": made_score.error,
        }
        for name, score, made_score in common
    }
    if not tasks:
        raise InputError(
            f"{option('lm_eval')}: {original} and {checkpoint} have no task in common; run lm_eval"
            " with the same tasks on both"
        )
    manifest["figures"]["tasks"] = tasks
    write_json(file, manifest)
    return Compressed(folder=folder, manifest=manifest)


def _worked(
    python: Path, job: Job, recipe: str, checkpoint: Path, announce: Callable[[str], None]
) -> dict[str, Any]:
    """Read what the worker measured."""
    instructions = {
        "recipe": recipe,
        "model": str(job.model),
        "output": str(checkpoint),
        "texts": {name: str(path) for name, path in job.texts.items()},
        "needs": _needs(job),
        "reload": job.reloaded,
        "scaled": (
            "AWQ" in job.form.config
            if job.tool == MODELOPT
            else job.form.name in ("int8", "w4a16-awq")
        ),
    }
    report: dict[str, Any] = {}
    words = [str(python), str(Path(__file__).with_name("worker.py"))]
    with (checkpoint / "log").open("w+b") as log:
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps(instructions) + "\n")
                process.stdin.flush()
                for line in process.stdout:
                    if not line.startswith("{"):  # what a library writes past Python
                        continue
                    message = json.loads(line)
                    report |= message
                    if "step" in message:
                        announce(f"{message['step']} …")
            finally:
                process.kill()
        log.seek(0)
        last = " | ".join(log.read().decode("utf-8", "replace").strip().splitlines()[-4:])
    (checkpoint / "log").unlink()
    if "refused" in report:
        raise InputError(f"{option('format')}: {report['refused']}")
    if "figures" not in report:
        raise TonnageError(f"{job.tool} failed: {report.get('failed', last)}")
    return dict(report["figures"])


def _needs(job: Job) -> str:
    """The kind of calibration for which the tool must know the model; empty where it needs none."""
    named = {"w4a16-awq": "awq", "int8": "smoothquant"} if job.tool == LLM_COMPRESSOR else {}
    return named.get(job.form.name, "calibration") if job.form.calibrated(job.tool) else ""


def _manifest(job: Job, recipe: str, checkpoint: Path, figures: dict[str, Any]) -> dict[str, Any]:
    """The manifest of the checkpoint: its source, recipe, tools and figures."""
    files = sorted(file for file in checkpoint.rglob("*") if file.is_file())
    return {
        "schema": SCHEMA,
        "format": job.form.name,
        "precision": job.form.precision,
        "method": job.form.methods[job.tool],
        "tool": {"name": TOOLS[job.tool], "version": version(job.tool)},
        "recipe": recipe,
        "texts": {name: _hash(path) for name, path in job.texts.items()},
        "original": str(job.model),
        "parameters": job.spec.parameters,
        "original_bytes": job.weight_bytes,
        "bytes": sum(file.stat().st_size for file in files if file.suffix == ".safetensors"),
        "files": {str(file.relative_to(checkpoint)): _hash(file) for file in files},
        "judged": (
            "reloaded by transformers" if job.reloaded else "in memory, before it was written"
        ),
        "figures": figures,
    }


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
