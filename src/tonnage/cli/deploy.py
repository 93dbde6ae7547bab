"""``tonnage deploy`` and ``compress``: the choice of a plan as files for what runs engines, and the
checkpoint that it assumes.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import asdict
from functools import cache
from pathlib import Path

from cyclopts import App

from tonnage import api
from tonnage.cli.flags import with_flags
from tonnage.cli.printing import print_answer, say
from tonnage.cli.progress import progress_bar
from tonnage.cli.services import is_service, refuse_given

FAULTS = 3  # exit code where a written folder has faults, or its rehearsal shows some

# the verb, and ``verify`` and ``rehearse`` below it
app = App(name="deploy", help_format="plaintext")


@app.default
@with_flags()
def deploy(
    plan: Path,
    /,
    *,
    target: str,
    output: Path,
    checkpoint: str | None = None,
    drafter: str | None = None,
    simulated: bool = False,
    json: bool = False,
) -> None:
    """Write the files that deploy a plan: complete, commented with the plan's numbers, with a
    README that lists the next steps.

    Nothing is started and nothing is fetched. The folder is written as a whole or not at all.

    Args:
        plan: File with the plan's JSON, which tonnage size wrote with --output (of several use
            cases each gets a folder); or with a service of models that are not LLMs
            (docs/services.md), which is sized first, for triton or kserve.
        target: Target: compose or triton for single machines; kubernetes, kserve, llm-d, dynamo,
            production-stack, ray-serve or nim for a cluster. If the target cannot run the plan's
            choice, deploy writes the nearest other deployment of the plan and prints how many
            systems it needs.
        output: The folder to write; it must not exist, or be empty.
        checkpoint: Checkpoint that the engines load: owner/name on Hugging Face, or a folder inside
            the instance (default: the published checkpoint in the plan's number format, or the
            16-bit one, which the engine quantises at start). For nim also an image, owner/name:tag.
        drafter: Checkpoint of the drafter, where the plan decodes speculatively with one.
        simulated: Run the simulated engine (tonnage serve) in place of the plan's, without GPUs: a
            rehearsal of the deployment on compose, kubernetes, kserve, llm-d or nim.
        json: Print one JSON object.
    """
    if plan.suffix != ".json" and is_service(plan):
        refuse_given({"checkpoint": checkpoint, "drafter": drafter, "simulated": simulated or None})
        deployed = api.deploy_service(plan, target=target, output=output)
    else:
        with ExitStack() as stack:
            bar = cache(
                lambda: stack.enter_context(progress_bar(f"Sizing for {target}", quiet=json))
            )

            def sized(done: int, total: int, name: str) -> None:
                bar()(done, total, name)

            deployed = api.deploy(
                plan,
                target=target,
                output=output,
                checkpoint=checkpoint,
                drafter=drafter,
                simulated=simulated,
                progress=sized,
            )
    if json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text({"folder": str(output), "target": target, **asdict(deployed)}))
        return
    print("\n".join(f"{output}/{name}" for name in deployed.files))
    print("\n".join(deployed.notes))
    print(f"{output}/README.md says how to start it, test it and compare it with the plan")


@app.command
@with_flags()
def verify(folder: Path, /, *, json: bool = False) -> int:
    """Read the files that deploy wrote again, after you changed them; it starts nothing and asks no
    cluster.

    Objects are read against the fields that their projects declare (catalog/objects.yaml) and,
    after pip install kubernetes-validate, against Kubernetes' own schema; the engine's flags,
    metrics and image against those of the plan's version; selectors, volumes, ports, scale targets,
    GPUs and numbers of instances against each other. The exit code is 3 where there are faults.

    Args:
        folder: The folder that deploy wrote.
        json: Print one JSON object.
    """
    from tonnage.report.verified import verified_folder

    checked_folder = api.verify_folder(folder)
    print_answer(lambda: verified_folder(checked_folder), lambda: asdict(checked_folder), json=json)
    return FAULTS if checked_folder.faults else 0


@app.command
@with_flags()
def rehearse(
    folder: Path,
    /,
    *,
    duration: str = "60s",
    request_rate: float | None = None,
    proxy: str = "embedded",
    json: bool = False,
) -> int:
    """Start a folder of deploy --target compose --simulated on this machine, as processes, under
    the plan's load.

    The gateway and the alert rules are those of the folder. One instance is killed in the middle
    and stays down: the answer says which requests were lost, whether the plan's limits held before,
    and, where promtool is installed, whether the alert fires. The exit code is 3 where something is
    not as planned.

    Args:
        folder: The folder that deploy wrote.
        duration: How long the load lasts.
        request_rate: Requests/s (default: the plan's peak).
        proxy: Program that balances: embedded, or haproxy where it is installed.
        json: Print one JSON object.
    """
    from tonnage.report.verified import rehearsed

    rehearsal = api.rehearse(
        folder, duration=duration, request_rate=request_rate, proxy=proxy, announce=say
    )
    print_answer(
        lambda: rehearsed(rehearsal),
        lambda: {**asdict(rehearsal), "as_planned": rehearsal.as_planned},
        json=json,
    )
    return 0 if rehearsal.as_planned else FAULTS


@with_flags()
def compress(
    model_dir: Path,
    /,
    *,
    output: Path,
    format: str | None = None,
    plan: Path | None = None,
    tool: str | None = None,
    text: Path | None = None,
    held_back: Path | None = None,
    lm_eval: tuple[Path, Path] | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Make the checkpoint that a plan assumes from one in 16 bits, by llm-compressor or Model
    Optimizer, and judge it next to the original.

    The first use makes an environment for the tool, apart from Tonnage's own. The folder is written
    as a whole or not at all, with a manifest: tool, version, recipe, hashes, and what was measured.

    Args:
        model_dir: Folder of the original: config.json, safetensors in 16 bits, tokenizer.
        output: The folder to write.
        format: fp8, fp8-block, int8, w4a16-awq, w4a16-gptq, w4a8, nvfp4, mxfp4, kv-fp8 or 2:4
            (default: the plan's).
        plan: File with the plan's JSON, which tonnage size wrote with --output: its format, and a
            check of its GPU, engine and model.
        tool: llm-compressor or modelopt (default: the first that writes the format for the plan's
            engine).
        text: File with text like that of the service, for calibration; both checkpoints are judged
            on it.
        held_back: File with further text, to judge both on what the calibration did not see.
        lm_eval: Results of lm_eval for the original and for OUTPUT, two files or folders: they are
            judged and kept in OUTPUT, nothing is made.
        dry_run: Print the tool's own script, to be run where the GPU is.
        json: Print one JSON object.
    """
    from tonnage.report.facts import compressed

    compression = api.compress(
        model_dir,
        output=output,
        format=format,
        plan=plan,
        tool=tool,
        text=text,
        held_back=held_back,
        lm_eval=lm_eval,
        dry_run=dry_run,
        announce=say,
    )
    if isinstance(compression, str):
        sys.stdout.write(compression)
        return
    manifest = compression.manifest
    print_answer(
        lambda: compressed(str(compression.folder), manifest),
        lambda: {"folder": str(compression.folder), **manifest},
        json=json,
    )
