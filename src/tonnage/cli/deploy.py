"""``tonnage deploy``: the choice of a plan as files for what runs engines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def deploy(
    plan: Path,
    /,
    *,
    target: str,
    output: Path,
    checkpoint: str | None = None,
    drafter: str | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Write the files that deploy the choice of a plan: complete, commented with the plan's numbers, with a page that says how to go on.

    Nothing is started and nothing is fetched. The folder is written as a whole or not at all.

    Parameters
    ----------
    plan
        File with the plan's JSON, which tonnage size wrote with --output.
    target
        What runs the engines: compose or triton for one machine; kubernetes, kserve, llm-d, dynamo, ray-serve or nim for a cluster.
    output
        The folder to write; it must not exist, or be empty.
    checkpoint
        What the engines load: owner/name at a hub, or a folder inside the container (default: the model's published checkpoint, where
        it has the plan's number format). For nim the image, owner/name:tag.
    drafter
        Checkpoint of the drafter, where the plan decodes speculatively with one.
    json
        Print one JSON object.
    """
    from tonnage import api

    files = api.deploy(plan, target=target, output=output, checkpoint=checkpoint, drafter=drafter)
    if json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text({"folder": str(output), "target": target, "files": list(files)}))
        return
    print("\n".join(f"{output}/{name}" for name in files))
    print(f"{output}/README.md says how to start it, test it and compare it with the plan")
