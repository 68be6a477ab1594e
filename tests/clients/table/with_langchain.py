"""LangChain for Python: langchain and langchain-openai."""

import pydantic
from columns import BASE, CALL, FACE, FAIL, FORECAST, LOOK, STALL, SUM, TOKEN, column, encoded, failure, holds, pieces
from columns import read, report, saw, stopped, told_once
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from samples import PDF, PICTURE, READ_PDF, READ_TEXT, TEXT

MODEL = ChatOpenAI(model="belay", base_url=BASE, api_key=TOKEN, use_responses_api=FACE == "responses")


class Answer(pydantic.BaseModel):
    """The answer to a question."""

    answer: str


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


@column
def stream():
    pieces([chunk.text for chunk in MODEL.stream(SUM)])


@column
def tools():
    said = create_agent(MODEL, tools=[get_weather]).invoke({"messages": [("user", CALL)]})["messages"]
    holds(said[-1].text, FORECAST)
    # Messages of one id are one message for it.
    holds(", ".join(message.type for message in said), "human, ai, tool, tool, ai")


@column
def structured():
    holds(MODEL.with_structured_output(Answer).invoke(SUM).answer, "391")
    # The rehearsal calls a tool only if the text says so.
    by_tool = MODEL.with_structured_output(Answer, method="function_calling")
    holds(by_tool.invoke('call Answer {"answer": "391"}').answer, "391")


@column
def stop():
    said = MODEL.stream(STALL)
    next(chunk for chunk in said if chunk.text)
    said.close()
    stopped()


@column
def error():
    told_once(failure(lambda: MODEL.invoke(FAIL)))


def asked_about(*blocks):
    """The answer about blocks of LangChain's own form, which it translates for the face."""
    return MODEL.invoke([HumanMessage(content_blocks=[{"type": "text", "text": LOOK}, *blocks])]).text


@column
def images():
    saw(asked_about({"type": "image", "base64": encoded(PICTURE), "mime_type": "image/png"}))


@column
def files():
    sent = ((PDF, "application/pdf"), (TEXT, "text/plain"))
    blocks = ({"type": "file", "base64": encoded(name), "mime_type": kind, "extras": {"filename": name}} for name, kind in sent)
    read(asked_about(*blocks), READ_PDF, READ_TEXT)


report()
