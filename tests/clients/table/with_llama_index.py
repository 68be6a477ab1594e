"""LlamaIndex: llama-index-llms-openai-like."""

import asyncio

import pydantic
from columns import BASE, CALL, FAIL, FORECAST, LOOK, STALL, SUM, TOKEN, column, failure, holds, pieces, read, report, saw, stopped, told_once
from llama_index.core.agent.workflow import AgentStream, FunctionAgent
from llama_index.core.llms import ChatMessage, DocumentBlock, ImageBlock, TextBlock
from llama_index.llms.openai_like import OpenAILike
from samples import PDF, PICTURE, READ_PDF, READ_TEXT, TEXT

LLM = OpenAILike(model="belay", api_base=BASE, api_key=TOKEN, is_chat_model=True, is_function_calling_model=True)


class Answer(pydantic.BaseModel):
    """The answer to a question."""

    answer: str


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


@column
def stream():
    pieces(part.delta for part in LLM.stream_chat([ChatMessage(role="user", content=SUM)]))


@column
def tools():
    async def ask():
        return await FunctionAgent(tools=[get_weather], llm=LLM).run(CALL)

    holds(str(asyncio.run(ask())), FORECAST)


@column
def structured():
    # Its way is a tool by the name of the class. The rehearsal calls a tool only if the text says so.
    holds(LLM.as_structured_llm(Answer).complete('call Answer {"answer": "391"}').raw.answer, "391")


@column
def stop():
    """By its agent: a stream of the model itself is closed when Python collects it, which nobody can wait for."""

    async def leave():
        run = FunctionAgent(tools=[], llm=LLM).run(STALL)
        async for event in run.stream_events():
            if isinstance(event, AgentStream) and event.delta:
                break
        await run.cancel_run()
        await asyncio.to_thread(stopped)

    asyncio.run(leave())


@column
def error():
    told_once(failure(lambda: LLM.complete(FAIL)))


def asked_about(*blocks):
    return LLM.chat([ChatMessage(role="user", blocks=[TextBlock(text=LOOK), *blocks])]).message.content


@column
def images():
    saw(asked_about(ImageBlock(path=PICTURE)))


@column
def files():
    read(asked_about(DocumentBlock(path=PDF), DocumentBlock(path=TEXT)), READ_PDF, READ_TEXT)


report()
