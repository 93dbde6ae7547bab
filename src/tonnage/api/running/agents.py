"""``tonnage mcp``: the questions of the command as tools of the Model Context Protocol, over
standard input and output.

A tool answers in Markdown, in the words of the report, and in JSON. An error says what to ask
instead, so that an agent can.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_type_hints

from tonnage.api.facts import catalog, memory
from tonnage.api.question.confined_paths import check_inside, files_named
from tonnage.api.question.typed_arguments import SimulateArguments
from tonnage.api.simulation import simulate_sweep
from tonnage.api.sizing import answer, ask
from tonnage.csv_file import COLUMN
from tonnage.errors import InputError, TonnageError, option
from tonnage.report.document import Document, document
from tonnage.report.facts import catalogued
from tonnage.report.facts import memory as memory_document
from tonnage.report.plans.diff import diff_json, diff_text, differences
from tonnage.report.plans.plan_document import first_page, report, to_json
from tonnage.report.simulated import simulated
from tonnage.report.writers.terminal import markdown
from tonnage.sizing.planner import Progress
from tonnage.spec.scenario import simulated_leaves
from tonnage.spec.scenario_file import json_schema
from tonnage.spec.typed_values import bounded
from tonnage.version import VERSION

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp_types import (
        CallToolRequestParams,
        CallToolResult,
        ListToolsResult,
        PaginatedRequestParams,
    )


INSTRUCTIONS = (
    "Sizes GPU systems for LLM traffic by simulation. Begin with size; simulate shows one"
    " deployment under a load, memory what a GPU holds, catalog the names that the others take."
    " Every answer states its assumptions: repeat them to the user."
)
Answer = tuple[Document, Any]  # What a tool says in words and as JSON


@dataclass(frozen=True, slots=True)
class Question:
    """One tool: its purpose, the JSON Schema of its arguments, and the function that answers."""

    about: str
    schema: Callable[[], dict[str, Any]]
    answer: Callable[[dict[str, Any], Progress], Answer]


def agents_server() -> Server[Any]:
    """The server of all tools. Raises TonnageError: the SDK is not installed."""
    try:
        import mcp_types as types
        from mcp.server.lowlevel import Server
    except ImportError:
        raise TonnageError("the mcp SDK is not installed; pip install 'tonnage[mcp]'") from None

    async def listed(
        context: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        hints = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
        tools = [
            types.Tool(
                name=name, description=tool.about, input_schema=tool.schema(), annotations=hints
            )
            for name, tool in QUESTIONS.items()
        ]
        return types.ListToolsResult(tools=tools)

    return Server(
        "tonnage",
        version=VERSION,
        instructions=INSTRUCTIONS,
        on_list_tools=listed,
        on_call_tool=_called,
    )


async def _called(
    context: ServerRequestContext[Any], params: CallToolRequestParams
) -> CallToolResult:
    """The answer of a tool, worked out in a thread, which tells its progress meanwhile."""
    import anyio
    import anyio.lowlevel
    import mcp_types as types

    here = anyio.lowlevel.current_token()

    def progress(done: int, total: int, name: str) -> None:
        anyio.from_thread.run(
            context.session.report_progress, float(done), float(total), name, token=here
        )

    question = QUESTIONS.get(params.name)
    if question is None:
        words, values, failed = (
            f"there is no tool '{params.name[:40]}'; the tools are {', '.join(QUESTIONS)}",
            None,
            True,
        )
    else:
        try:
            arguments = dict(params.arguments or {})
            check_inside(bounded(arguments, "arguments"), Path())
            document, values = await anyio.to_thread.run_sync(
                partial(question.answer, arguments, progress)
            )
            words, failed = markdown(document), False
        except TonnageError as error:
            words, values, failed = (
                _without_contents(str(error), params.arguments or {}),
                None,
                True,
            )
    return types.CallToolResult(
        content=[types.TextContent(text=words)], structured_content=values, is_error=failed
    )


MOST_QUOTED = 10**7  # characters of a file that are compared with an error
_QUOTED = re.compile(r"""(['"])(.+?)\1""")


def _without_contents(message: str, question: Mapping[str, Any]) -> str:
    """An error without what it quotes of a file that the question names, but for columns of a
    table.
    """
    texts = [
        path.read_text(encoding="utf-8", errors="replace")[:MOST_QUOTED]
        for path in files_named(question, Path())
    ]
    arguments = json.dumps(question, ensure_ascii=False)

    def shown(quoted: re.Match[str]) -> str:
        words = quoted[2].removesuffix("…")
        secret = words not in arguments and any(
            words in text and not _is_column(words, text) for text in texts
        )
        return "'…'" if secret else quoted[0]

    return _QUOTED.sub(shown, message)


def _is_column(words: str, text: str) -> bool:
    cells = [cell.strip() for cell in text.partition("\n")[0].lower().split(",")]
    return len(cells) > 1 and COLUMN.fullmatch(words.lower()) is not None and words.lower() in cells


def serve_agents(root: Path) -> None:
    """Answer over standard input and output until the client closes them; questions may name files
    below ``root`` alone.

    Raises TonnageError: the SDK is not installed; InputError: there is no such folder.
    """
    server = agents_server()
    if not root.is_dir():
        raise InputError(
            f"{option('root')}: {root} is no folder; name the one whose files a question may name"
        )
    os.chdir(root)
    import anyio
    from mcp.server.stdio import stdio_server

    async def run() -> None:
        lines = Lines()
        async with stdio_server(stdin=cast("Any", lines)) as (read, write):
            lines.begin(write)
            await server.run(read, write, server.create_initialization_options())

    anyio.run(run)


LONGEST_MESSAGE = 2**24  # characters
_ID = re.compile(r'"id"\s*:\s*(-?(?:0|[1-9][0-9]{0,14})(?![0-9.eE])|"[\w-]{1,100}")')
"""What of a line that is no message names the request: a whole number or a text of JSON."""


class Lines:
    """The lines of standard input that hold a message. The SDK answers no other line: such a one is
    answered here, by an error.
    """

    def __init__(self) -> None:
        """Take standard input away from whatever else this process starts."""
        import anyio

        self._file = os.fdopen(os.dup(0), encoding="utf-8", errors="replace")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        self._write: Any = None
        self._begun = anyio.Event()

    def begin(self, write: Any) -> None:
        """Answer to the stream of messages ``write`` from now on."""
        self._write = write
        self._begun.set()

    async def __aiter__(self) -> AsyncIterator[str]:
        """The lines, to their end."""
        import anyio
        from mcp_types import JSONRPCNotification, jsonrpc_message_adapter

        await self._begun.wait()
        while line := await anyio.to_thread.run_sync(
            self._file.readline, LONGEST_MESSAGE, abandon_on_cancel=True
        ):
            if not line.strip():
                continue
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                # the SDK takes a request whose id is no whole number and no text for a notification
                if isinstance(message, JSONRPCNotification) and "id" in json.loads(line):
                    raise ValueError
            except ValueError:
                await self._refuse(line)
                while not line.endswith("\n") and (
                    line := await anyio.to_thread.run_sync(self._file.readline, LONGEST_MESSAGE)
                ):
                    pass  # the rest of a line that is too long
            else:
                yield line

    async def _refuse(self, line: str) -> None:
        import mcp_types as types
        from mcp.shared.message import SessionMessage

        match = _ID.search(line)
        number = None if match is None else json.loads(match[1])
        what = (
            f"the message is no JSON-RPC in UTF-8 of at most {LONGEST_MESSAGE:,} characters; send"
            " one JSON object a line"
        )
        error = types.JSONRPCError(
            jsonrpc="2.0", id=number, error=types.ErrorData(code=types.PARSE_ERROR, message=what)
        )
        await self._write.send(SessionMessage(error))


def _size(arguments: dict[str, Any], progress: Progress) -> Answer:
    full = bool(arguments.pop("full", False))
    plans = answer(ask(arguments), progress=progress)
    if full:
        return report(*plans), to_json(plans)
    short = []  # what a caller can reckon with; a whole plan has some 50 kB
    for plan in plans:
        values = plan.to_json()
        short.append(
            {
                "model": plan.scenario.model,
                **{name: values[name] for name in ("choice", "demand", "warnings")},
            }
        )
    return document(*map(first_page, plans)), {"plans": short}


def _simulate(arguments: dict[str, Any], progress: Progress) -> Answer:
    runs = simulate_sweep(progress=progress, **_checked_arguments(arguments, "simulate"))
    return simulated(runs), runs.to_json()


def _memory(arguments: dict[str, Any], progress: Progress) -> Answer:
    known = _checked_arguments(arguments, "memory")
    memory_report = memory(**{name: value for name, value in known.items() if value is not None})
    return memory_document(memory_report.lines()), memory_report.to_json()


def _compare(arguments: dict[str, Any], progress: Progress) -> Answer:
    # both are read before either is answered, which may take a minute
    questions = [
        ask(_checked_arguments(arguments, "compare")[name]) for name in ("first", "second")
    ]
    first, second = (answer(question, progress=progress) for question in questions)
    if len(first) > 1 or len(second) > 1:
        raise TonnageError("first, second: a question names several models; give each one model")
    changes = differences(first[0], second[0])
    return diff_text(changes, ("first", "second")), diff_json(changes)


def _catalog(arguments: dict[str, Any], progress: Progress) -> Answer:
    listing = catalog(str(_checked_arguments(arguments, "catalog").get("text", "")))
    return catalogued(listing), {kind: entries for kind, entries in listing.items() if entries}


def _checked_arguments(arguments: dict[str, Any], tool: str) -> dict[str, Any]:
    """The arguments, refused where one is unknown or of another kind. Raises TonnageError: naming
    what is wrong with each.
    """
    from jsonschema import Draft202012Validator

    faults = sorted(Draft202012Validator(QUESTIONS[tool].schema()).iter_errors(arguments), key=str)
    if faults:
        raise TonnageError(
            "; ".join(
                f"{'.'.join(map(str, fault.path)) or tool}: {fault.message[:200]}"
                for fault in faults[:5]
            )
        )
    return arguments


def _scenario_and_full() -> dict[str, Any]:
    schema = json_schema()
    full = {
        "type": "boolean",
        "description": (
            "Whether the answer is the whole report and plan (some 50 kB), not its first page."
        ),
    }
    return {**schema, "properties": {**schema["properties"], "full": full}}


def _two() -> dict[str, Any]:
    scenario = json_schema()
    definitions = scenario.pop("$defs", {})
    properties = {name: {"$ref": "#/$defs/Scenario"} for name in ("first", "second")}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        "$defs": {**definitions, "Scenario": scenario},
    }


def _text() -> dict[str, Any]:
    about = (
        "What to look for, such as h100 or llama; or a kind: models, gpus, systems, engines,"
        " prices, quality or checkpoints."
    )
    return {
        "type": "object",
        "properties": {"text": {"type": "string", "description": about}},
        "additionalProperties": False,
    }


def _arguments(names: Iterable[str] = ()) -> dict[str, Any]:
    """The arguments of ``simulate``, or those of these names of ``memory``, each with what it says:
    the model is needed.
    """
    from pydantic import ConfigDict, Field, create_model

    about = {leaf.name: leaf.about for leaf in simulated_leaves()}
    fields: dict[str, Any] = {
        name: (hint | None, Field(None, description=about.get(name)))
        for name, hint in get_type_hints(memory if names else SimulateArguments).items()
        if name in names or not names
    }
    fields["model"] = (str, Field(description=about["model"]))
    schema: dict[str, Any] = create_model(
        "Arguments", __config__=ConfigDict(extra="forbid"), **fields
    ).model_json_schema()
    return schema


MEMORY = (
    "model",
    "gpu",
    "precision",
    "tp",
    "dp",
    "ep",
    "engine",
    "isl",
    "osl",
    "speculation",
    "lora",
)
# What an agent reads of each tool
SIZE = (
    "How many GPU systems an LLM's traffic needs inside latency limits, with confidence, cost and"
    " alternatives. Takes seconds to minutes. Name the model, prompt and output lengths, the demand"
    ' (such as demand.peak_rps) and limits (such as limits.ttft "p95<=500ms").'
)
SIMULATE = (
    "TTFT, ITL, TPOT, E2E and throughput of one deployment under one load or several: give"
    " request_rate or concurrency."
)
MEMORIES = (
    "Where the memory of an instance's GPUs goes, with the arithmetic, and how many requests fit at"
    " once."
)
COMPARE = (
    "Two questions sized, and what differs: in the question, the answer, its cost and the prices"
    " behind it."
)

QUESTIONS = {
    "size": Question(SIZE, _scenario_and_full, _size),
    "simulate": Question(SIMULATE, _arguments, _simulate),
    "memory": Question(MEMORIES, partial(_arguments, MEMORY), _memory),
    "compare": Question(COMPARE, _two, _compare),
    "catalog": Question(
        "Models, GPUs, systems, engines and prices known by name.", _text, _catalog
    ),
}
