"""``tonnage import``: single requests of another tool's run, as a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tonnage.cli.printing import print_answer


def import_run(
    file: Path,
    /,
    *,
    output: Path,
    tokenizer: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Make run folders of a file with single requests: AIPerf's or GenAI-Perf's profile_export, vLLM bench's or GuideLLM's JSON.

    Parameters
    ----------
    file
        The file, or the artifact folder of AIPerf or GenAI-Perf.
    output
        The run folder to write; a file with several runs makes one for each inside it.
    tokenizer
        A local tokenizer.json, which counts the tokens of GenAI-Perf's texts where the server did not.
    json
        Print one JSON object.
    """
    from tonnage.api.compare import import_run as make
    from tonnage.cli.printing import provenance
    from tonnage.report.measured import imported

    made = make(file, output, tokenizer=tokenizer, provenance=provenance(0))
    runs = [{"folder": str(folder), **summary.to_json()} for folder, summary in made]
    print_answer(lambda: imported(made), lambda: {"runs": runs}, json=json)
