"""Released clients against an engine that is called "tiny"; run by the Python of the clients'
environment.

python clients.py URL            prints an object: what went wrong, by the name of the client and what it did; "" for nothing
"""

import json
import sys
import traceback
from typing import Any, Literal

import anthropic
import instructor
import litellm
import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

SAYS: Any = [{"role": "user", "content": "what is the weather in Oslo?"}]
PLACE = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: Any = {
    "type": "function",
    "function": {"name": "weather", "description": "of a city", "parameters": PLACE},
}
ANTHROPIC: Any = {"name": "weather", "description": "of a city", "input_schema": PLACE}
URL = sys.argv[1]
OPENAI = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
ANTHROPICS = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)


class Weather(BaseModel):
    """Of a city."""

    city: Literal["Oslo", "Rome"]
    days: int


def openai_chat() -> None:
    got = OPENAI.chat.completions.create(
        model="tiny", messages=SAYS, max_tokens=5, logprobs=True, top_logprobs=2
    )
    assert got.choices[0].finish_reason == "length"
    assert got.choices[0].message.content
    assert got.usage
    assert got.usage.completion_tokens == 5
    assert got.choices[0].logprobs
    assert len(got.choices[0].logprobs.content or []) == 5
    assert OPENAI.models.list().data[0].id == "tiny"
    raw = OPENAI.chat.completions.with_raw_response.create(
        model="tiny", messages=SAYS, max_tokens=5
    )
    assert raw.parse().choices[0].message.role == "assistant"


def openai_stream() -> None:
    with OPENAI.chat.completions.stream(
        model="tiny", messages=SAYS, stream_options={"include_usage": True}
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "content.done" in kinds
    assert final.choices[0].finish_reason == "stop"
    assert final.usage
    # the role's has no token, and the token that ends it no delta
    assert final.usage.completion_tokens == kinds.count("content.delta")
    chunks = list(
        OPENAI.chat.completions.create(model="tiny", messages=SAYS, max_tokens=3, stream=True, n=2)
    )
    assert {choice.index for chunk in chunks for choice in chunk.choices} == {0, 1}


def openai_parse() -> None:
    got = OPENAI.chat.completions.parse(
        model="tiny", messages=SAYS, response_format=Weather, max_tokens=300
    )
    assert isinstance(got.choices[0].message.parsed, Weather)
    with OPENAI.chat.completions.stream(
        model="tiny", messages=SAYS, response_format=Weather, max_tokens=300
    ) as stream:
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Weather)


def openai_tools() -> None:
    messages = list(SAYS)
    got = OPENAI.chat.completions.create(
        model="tiny", messages=messages, tools=[TOOL], max_tokens=100
    ).choices[0]
    assert got.finish_reason == "tool_calls"
    (call,) = got.message.tool_calls or []
    assert json.loads(call.function.arguments)["city"] in ("Oslo", "Rome")
    messages += [got.message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    then = OPENAI.chat.completions.create(
        model="tiny", messages=messages, tools=[TOOL], max_tokens=100
    ).choices[0]
    assert then.message.content
    assert not then.message.tool_calls
    with OPENAI.chat.completions.stream(
        model="tiny", messages=SAYS, tools=[TOOL], tool_choice="required", max_tokens=100
    ) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
    assert done[0].name == "weather"
    assert json.loads(done[0].arguments)["city"] in ("Oslo", "Rome")


def openai_completions() -> None:
    got = OPENAI.completions.create(
        model="tiny", prompt=["a tale", "another"], max_tokens=4, logprobs=1, n=2
    )
    assert [one.index for one in got.choices] == [0, 1, 2, 3]
    assert (
        len(
            list(
                OPENAI.completions.create(model="tiny", prompt="a tale", max_tokens=4, stream=True)
            )
        )
        == 4
    )


def openai_errors() -> None:
    for error, asked in (
        (openai.NotFoundError, {"model": "other"}),
        (openai.BadRequestError, {"model": "tiny", "temperature": 9}),
    ):
        words = ""
        try:
            OPENAI.chat.completions.create(messages=SAYS, **asked)
        except error as found:
            words = found.body["message"]
        assert words, f"{asked} is not refused"


def openai_responses() -> None:
    got = OPENAI.responses.create(model="tiny", input="a tale", max_output_tokens=5)
    assert got.output_text
    assert got.status == "incomplete"
    with OPENAI.responses.stream(model="tiny", input="a tale", max_output_tokens=5) as stream:
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_text
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    parsed = OPENAI.responses.parse(
        model="tiny", input="a tale", text_format=Weather, max_output_tokens=300
    )
    assert isinstance(parsed.output_parsed, Weather)
    tool: Any = {"type": "function", "name": "weather", "parameters": PLACE, "strict": True}
    called = OPENAI.responses.create(
        model="tiny", input="weather?", tools=[tool], tool_choice="required", max_output_tokens=100
    )
    (call,) = called.output
    assert call.type == "function_call"
    assert json.loads(call.arguments)["city"] in ("Oslo", "Rome")
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    asked: Any = [{"role": "user", "content": "weather?"}, call, result]
    assert OPENAI.responses.create(
        model="tiny", input=asked, tools=[tool], max_output_tokens=50
    ).output_text


def anthropic_messages() -> None:
    got = ANTHROPICS.messages.create(model="tiny", max_tokens=5, messages=SAYS, system="be brief")
    assert got.stop_reason == "max_tokens"
    assert got.content[0].type == "text"
    assert got.usage.output_tokens == 5
    assert ANTHROPICS.messages.count_tokens(model="tiny", messages=SAYS).input_tokens > 0
    called = ANTHROPICS.messages.create(
        model="tiny", max_tokens=100, messages=SAYS, tools=[ANTHROPIC], tool_choice={"type": "any"}
    )
    call = called.content[-1]
    assert called.stop_reason == "tool_use"
    assert call.type == "tool_use"
    assert call.input["city"] in ("Oslo", "Rome")
    result = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}],
    }
    messages: Any = [*SAYS, {"role": "assistant", "content": called.content}, result]
    then = ANTHROPICS.messages.create(
        model="tiny", max_tokens=100, messages=messages, tools=[ANTHROPIC]
    )
    assert then.stop_reason in ("end_turn", "max_tokens")


def anthropic_stream() -> None:
    with ANTHROPICS.messages.stream(model="tiny", max_tokens=8, messages=SAYS) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text
    assert final.content[0].text == text
    assert final.usage.output_tokens == 8
    with ANTHROPICS.messages.stream(
        model="tiny",
        max_tokens=100,
        messages=SAYS,
        tools=[ANTHROPIC],
        tool_choice={"type": "tool", "name": "weather"},
    ) as stream:
        (call,) = stream.get_final_message().content
    assert call.type == "tool_use"
    assert call.input["city"] in ("Oslo", "Rome")
    try:
        ANTHROPICS.messages.create(model="other", max_tokens=5, messages=SAYS)
    except anthropic.NotFoundError:
        pass
    else:
        raise AssertionError("another model is not refused")


def litellm_completion() -> None:
    asked: Any = {
        "model": "hosted_vllm/tiny",
        "api_base": f"{URL}/v1",
        "api_key": "none",
        "messages": SAYS,
        "max_tokens": 60,
    }
    assert litellm.completion(**asked).choices[0].message.content
    chunks = list(litellm.completion(**asked, stream=True, stream_options={"include_usage": True}))
    assert litellm.stream_chunk_builder(chunks, messages=SAYS).usage.completion_tokens > 0
    called = (
        litellm.completion(**asked, tools=[TOOL], tool_choice="required")
        .choices[0]
        .message.tool_calls
    )
    assert json.loads(called[0].function.arguments)["city"] in ("Oslo", "Rome")
    given = (
        litellm.completion(**{**asked, "max_tokens": 300}, response_format=Weather)
        .choices[0]
        .message.content
    )
    Weather.model_validate_json(given)
    assert litellm.text_completion(
        model="text-completion-openai/tiny",
        prompt="a",
        api_base=f"{URL}/v1",
        api_key="none",
        max_tokens=3,
    )
    try:
        litellm.completion(
            **{**asked, "messages": [{"role": "user", "content": "a b c d " * 9_000}]}
        )
    except litellm.ContextWindowExceededError:
        pass
    else:
        raise AssertionError("a prompt beyond the context is not refused as such")


def langchain() -> None:
    model = ChatOpenAI(
        model="tiny", base_url=f"{URL}/v1", api_key="none", max_tokens=300, max_retries=0
    )
    assert model.invoke("a tale").content
    assert "".join(str(chunk.content) for chunk in model.stream("a tale"))
    bound = model.bind_tools([TOOL], tool_choice="any")
    asked = HumanMessage("weather?")
    answer = bound.invoke([asked])
    (call,) = answer.tool_calls
    assert call["args"]["city"] in ("Oslo", "Rome")
    assert (
        model.bind_tools([TOOL])
        .invoke([asked, answer, ToolMessage("rain", tool_call_id=call["id"])])
        .content
    )
    gathered = None
    for chunk in bound.stream([asked]):
        gathered = chunk if gathered is None else gathered + chunk
    assert gathered.tool_calls[0]["args"]["city"] in ("Oslo", "Rome")


def langchain_structured() -> None:
    model = ChatOpenAI(
        model="tiny", base_url=f"{URL}/v1", api_key="none", max_tokens=300, max_retries=0
    )
    for method in ("json_schema", "function_calling", "json_mode"):
        schema = Weather if method != "json_mode" else None
        found = model.with_structured_output(schema, method=method).invoke("weather?")
        assert isinstance(found, Weather if schema else dict), (method, found)


def instructor_modes() -> None:
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS_STRICT):
        client = instructor.from_openai(OPENAI, mode=mode)
        found = client.chat.completions.create(
            model="tiny", messages=SAYS, response_model=Weather, max_tokens=300, max_retries=0
        )
        assert isinstance(found, Weather), mode
        partial = list(
            client.chat.completions.create_partial(
                model="tiny", messages=SAYS, response_model=Weather, max_tokens=300
            )
        )
        assert partial[-1].city in ("Oslo", "Rome"), mode


CHECKS = (
    *(
        openai_chat,
        openai_stream,
        openai_parse,
        openai_tools,
        openai_completions,
        openai_errors,
        openai_responses,
    ),
    *(
        anthropic_messages,
        anthropic_stream,
        litellm_completion,
        langchain,
        langchain_structured,
        instructor_modes,
    ),
)


def main() -> None:
    """Do all of them."""
    found = {}
    for check in CHECKS:
        try:
            check()
        except Exception:
            found[check.__name__] = traceback.format_exc()
        else:
            found[check.__name__] = ""
    print(json.dumps(found))


if __name__ == "__main__":
    main()
