"""``tonnage import``: single requests of another tool's run, as a run folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def import_run(
    file: Path,
    /,
    *,
    output: Path,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Make run folders of a file with single requests: AIPerf's profile_export.jsonl, vLLM bench's or GuideLLM's JSON.

    Parameters
    ----------
    file
        The file, or AIPerf's artifact folder.
    output
        The run folder to write; a file with several runs makes one for each inside it.
    json
        Print one JSON object.
    """
    from tonnage.api.import_run import import_run as make
    from tonnage.cli.provenance import provenance

    made = make(file, output, provenance=provenance(0))
    if json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text({"runs": [{"folder": str(folder), **summary.to_json()} for folder, summary in made]}))
        return
    from tonnage.cli.table import number, table

    header = ("run", "requests", "TTFT ms", "from send", "TPOT ms", "E2E ms", "requests/s", "tokens/s")
    rows = []
    for folder, s in made:
        latencies = (s.ttft_ms.mean, s.ttft_from_send_ms.mean, s.tpot_ms.mean, s.e2e_ms.mean)
        rates = (s.requests_per_second, s.output_tokens_per_second)
        rows.append((folder.name, str(s.counted), *(number(value) for value in (*latencies, *rates))))
    print(table(header, rows))
