"""Sessions of OpenTelemetry spans."""

from __future__ import annotations

import json

from tests.spec.session_files import NS
from tonnage.formats.sessions import read_sessions


def test_spans_are_requests_and_agents_inside_of_agents_are_sub_agents(tmp_path):
    def span(own, parent, begins, ends, **attributes):
        values = [
            {"key": key, "value": {"intValue" if isinstance(v, int) else "stringValue": str(v)}}
            for key, v in attributes.items()
        ]
        times = {"startTimeUnixNano": str(begins * NS), "endTimeUnixNano": str(ends * NS)}
        return {
            "traceId": "t",
            "spanId": own,
            "parentSpanId": parent,
            **times,
            "attributes": values,
        }

    def chat(own, parent, begins, isl, osl):
        usage = {
            "gen_ai.usage.input_tokens": isl,
            "gen_ai.usage.output_tokens": osl,
            "gen_ai.operation.name": "chat",
        }
        return span(own, parent, begins, begins + 1, **usage)

    spans = [
        span(
            "root",
            "",
            0,
            99,
            **{"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "c"},
        ),
        chat("1", "root", 0, 100, 10),
        span("sub", "root", 2, 8, **{"gen_ai.operation.name": "invoke_agent"}),
        chat("2", "sub", 3, 50, 5),
        span("tool", "sub", 4, 6, **{"gen_ai.operation.name": "execute_tool"}),
        chat("3", "sub", 6, 60, 5),
        chat("4", "root", 10, 130, 10),
    ]
    document = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    path = tmp_path / "o.json"
    path.write_text(json.dumps(document, indent=1))
    found = read_sessions(str(path), "trace")
    assert (len(found), found.agent.tolist()) == (1, [0, 1, 1, 0])
    assert found.pause_ns.tolist() == [-1, 2 * NS, 2 * NS, 3 * NS]
    assert found.tool.tolist() == [False, False, True, False]
    assert found.follows.waits.tolist() == [0, 1, 1, 2]
    assert found.found_tokens().tolist() == [0, 0, 54, 109]
