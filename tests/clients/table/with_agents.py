"""openai-agents. Its default is the Responses API."""

import asyncio

import agents
import openai
import pydantic
from columns import BASE, CALL, FACE, FAIL, FORECAST, STALL, SUM, TOKEN, column, failure, holds, pieces, report, stopped, told_once

agents.set_tracing_disabled(True)
MODEL = {"chat": agents.OpenAIChatCompletionsModel, "responses": agents.OpenAIResponsesModel}[FACE]


class Answer(pydantic.BaseModel):
    answer: str


@agents.function_tool
def get_weather(city: str) -> str:
    return f"rain in {city}"


def agent(**more):
    """An agent with a client of its own, because each event loop needs one."""
    model = MODEL(model="belay", openai_client=openai.AsyncOpenAI(base_url=BASE, api_key=TOKEN))
    return agents.Agent(name="test", instructions="Be brief.", model=model, **more)


def ask(text, **more):
    return asyncio.run(agents.Runner.run(agent(**more), text)).final_output


async def words(run):
    async for event in run.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            yield event.data.delta


@column
def stream():
    async def gather():
        return [piece async for piece in words(agents.Runner.run_streamed(agent(), SUM))]

    pieces(asyncio.run(gather()))


@column
def tools():
    holds(ask(CALL, tools=[get_weather]), FORECAST)


@column
def structured():
    holds(ask(SUM, output_type=Answer).answer, "391")


@column
def stop():
    async def leave():
        run = agents.Runner.run_streamed(agent(), STALL)
        async for piece in words(run):
            if piece:
                run.cancel()
                break
        await asyncio.to_thread(stopped)

    asyncio.run(leave())


@column
def error():
    told_once(failure(lambda: ask(FAIL)))


report()
