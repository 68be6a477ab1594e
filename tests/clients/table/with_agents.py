"""openai-agents. Its default is the Responses API."""

import asyncio

import agents
import openai
import pydantic
from columns import BASE, CALL, FACE, FAIL, FORECAST, LOOK, STALL, SUM, TOKEN, column, data_url, failure, holds, pieces
from columns import read, report, saw, stopped, told_once, user
from samples import PDF, PICTURE, READ_PDF, READ_TEXT, TEXT

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


def asked_about(*parts):
    """The answer about parts in the form of the Responses API, which its model for chat completions translates."""
    return ask(user([{"type": "input_text", "text": LOOK}, *parts]))


@column
def images():
    saw(asked_about({"type": "input_image", "image_url": data_url(PICTURE, "image/png"), "detail": "auto"}))


@column
def files():
    sent = ((PDF, "application/pdf"), (TEXT, "text/plain"))
    read(asked_about(*({"type": "input_file", "filename": name, "file_data": data_url(name, kind)} for name, kind in sent)), READ_PDF, READ_TEXT)


report()
