"""Files of recorded sessions, a module per form: WEKA's, the agentic forms of Mooncake's lines (Dynamo, AIPerf), OpenTelemetry spans."""
