#!/usr/bin/env python3
"""Clients of OpenAI's Responses API, unchanged and with their defaults, against a real daemon: openai, openai-agents and pydantic-ai.

    BELAY_BIN=target/debug/belay tests/clients/responses_client.py

Needs the packages of RESPONSES in tests/gate/install.py (tests/run.py installs them under build/responses). Prints a line for each
test and, as its last line, "N passed, N failed, N skipped".
"""

import asyncio
import os
import pathlib
import sys

import agents
import openai
import pydantic
import pydantic_ai
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from belay_process import judge  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("BELAY_BIN", ROOT / "target" / "debug" / "belay")
TOKEN = "token-of-the-client-test"
SUM = "calculate 17*23"
CALL = 'call get_weather {"city": "Oslo"}'
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
TOOL = {"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": True}

TESTS = []


def test(function):
    TESTS.append(function)
    return function


class Answer(pydantic.BaseModel):
    answer: str


class Case:
    """What each test gets: clients for the daemon."""

    def __init__(self, url):
        self.base = {"base_url": f"{url}/v1", "api_key": TOKEN, "max_retries": 0, "timeout": 30}
        self.responses = openai.OpenAI(**self.base).responses

    def later(self):
        """A client of its own for each event loop."""
        return openai.AsyncOpenAI(**self.base)


def equal(found, expected):
    assert found == expected, f"expected {expected!r}, found {found!r}"


def holds(text, part):
    assert part in (text or ""), f"expected {part!r} in {text!r}"


@test
def openai_a_response_is_created_and_retrieved(case):
    answer = case.responses.create(model="belay", input=SUM)
    holds(answer.output_text, "391")
    equal(answer.status, "completed")
    equal(case.responses.retrieve(answer.id).output_text, answer.output_text)
    holds(case.responses.input_items.list(answer.id).data[0].content[0].text, SUM)


@test
def openai_a_stream_has_the_same_answer(case):
    events = list(case.responses.create(model="belay", input=SUM, stream=True))
    equal([events[0].type, events[-1].type], ["response.created", "response.completed"])
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    equal(text, events[-1].response.output_text)
    with case.responses.stream(model="belay", input=SUM) as stream:
        holds(stream.get_final_response().output_text, "391")


@test
def openai_a_chain_and_a_parsed_answer(case):
    first = case.responses.create(model="belay", input=SUM)
    holds(case.responses.create(model="belay", input="calculate 6*7", previous_response_id=first.id).output_text, "42")
    holds(case.responses.parse(model="belay", input=SUM, text_format=Answer).output_parsed.answer, "391")


@test
def openai_a_function_is_called_and_its_result_goes_on(case):
    talk = [{"role": "user", "content": CALL}]
    asked = case.responses.create(model="belay", input=talk, tools=[TOOL])
    call = next(item for item in asked.output if item.type == "function_call")
    equal([call.name, call.arguments], ["get_weather", '{"city":"Oslo"}'])
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    talk += [*(item.model_dump(exclude_none=True) for item in asked.output), result]
    holds(case.responses.create(model="belay", input=talk, tools=[TOOL]).output_text, "rain")


@test
def openai_a_response_in_the_background_is_read_later_and_deleted(case):
    begun = case.responses.create(model="belay", input=SUM, background=True)
    holds("queued in_progress", begun.status)
    events = list(case.responses.retrieve(begun.id, stream=True, starting_after=1))
    holds(events[-1].response.output_text, "391")
    equal(case.responses.cancel(begun.id).status, "completed")
    case.responses.delete(begun.id)
    try:
        case.responses.retrieve(begun.id)
    except openai.NotFoundError:
        return
    raise AssertionError("it is still there")


@agents.function_tool
def get_weather(city: str) -> str:
    return f"rain in {city}"


def agent(case, **more):
    model = agents.OpenAIResponsesModel(model="belay", openai_client=case.later())
    return agents.Agent(name="test", instructions="be brief", model=model, **more)


@test
def openai_agents_answers_and_runs_a_tool(case):
    holds(asyncio.run(agents.Runner.run(agent(case), SUM)).final_output, "391")
    holds(asyncio.run(agents.Runner.run(agent(case, tools=[get_weather]), CALL)).final_output, "rain in Oslo")


@test
def openai_agents_streams_and_parses(case):
    async def stream():
        run = agents.Runner.run_streamed(agent(case, tools=[get_weather]), CALL)
        kinds = [event.data.type async for event in run.stream_events() if event.type == "raw_response_event"]
        return run.final_output, kinds

    output, kinds = asyncio.run(stream())
    holds(output, "rain in Oslo")
    equal(kinds.count("response.completed"), 2)
    holds(asyncio.run(agents.Runner.run(agent(case, output_type=Answer), SUM)).final_output.answer, "391")


def pydantic_agent(case, **more):
    return pydantic_ai.Agent(OpenAIResponsesModel("belay", provider=OpenAIProvider(openai_client=case.later())), **more)


@test
def pydantic_ai_answers_streams_and_runs_a_tool(case):
    holds(pydantic_agent(case).run_sync(SUM).output, "391")

    async def stream():
        async with pydantic_agent(case).run_stream(SUM) as run:
            return "".join([piece async for piece in run.stream_text(delta=True)])

    holds(asyncio.run(stream()), "391")
    with_tool = pydantic_agent(case)
    with_tool.tool_plain(lambda city: f"rain in {city}", name="get_weather")
    holds(with_tool.run_sync(CALL).output, "rain in Oslo")


def main():
    agents.set_tracing_disabled(True)
    return judge(BINARY, {"BELAY_TOKEN": TOKEN}, TESTS, lambda belay: Case(belay.url))


if __name__ == "__main__":
    sys.exit(main())
