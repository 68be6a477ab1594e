"""pydantic-ai. Its prefix `openai:` stands for the Responses API, `openai-chat:` for chat completions."""

import asyncio

import pydantic
from columns import BASE, CALL, FACE, FAIL, FORECAST, LOOK, STALL, SUM, TOKEN, column, failure, holds, pieces, read, report, saw, stopped, told_once
from pydantic_ai import Agent, BinaryContent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from samples import PDF, PICTURE, READ_PDF, READ_TEXT, TEXT

MODEL = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}[FACE]


class Answer(pydantic.BaseModel):
    answer: str


def agent(**more):
    return Agent(MODEL("belay", provider=OpenAIProvider(base_url=BASE, api_key=TOKEN)), **more)


def get_weather(city: str) -> str:
    return f"rain in {city}"


@column
def stream():
    async def gather():
        async with agent().run_stream(SUM) as run:
            return [piece async for piece in run.stream_text(delta=True, debounce_by=None)]

    pieces(asyncio.run(gather()))


@column
def tools():
    holds(agent(tools=[get_weather]).run_sync(CALL).output, FORECAST)


@column
def structured():
    holds(agent(output_type=NativeOutput(Answer)).run_sync(SUM).output.answer, "391")
    # Its default is a tool by this name. The rehearsal calls a tool only if the text says so.
    holds(agent(output_type=Answer).run_sync('call final_result {"answer": "391"}').output.answer, "391")


@column
def stop():
    async def leave():
        async with agent().run_stream(STALL) as run:
            async for piece in run.stream_text(delta=True, debounce_by=None):
                if piece:
                    break
            await run.cancel()
            await asyncio.to_thread(stopped)

    asyncio.run(leave())


@column
def error():
    told_once(failure(lambda: agent().run_sync(FAIL)))


def asked_about(*names):
    return agent().run_sync([LOOK, *map(BinaryContent.from_path, names)]).output


@column
def images():
    saw(asked_about(PICTURE))


@column
def files():
    """The chat completions have the text file as a text, since their parts of type file are for PDF."""
    read(asked_about(PDF, TEXT), READ_PDF, READ_TEXT)


report()
