"""LangChain for Python: langchain and langchain-openai."""

import pydantic
from columns import BASE, CALL, FACE, FAIL, FORECAST, STALL, SUM, TOKEN, column, failure, holds, pieces, report, stopped, told_once
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

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


report()
