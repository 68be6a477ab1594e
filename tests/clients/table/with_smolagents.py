"""smolagents: the model for servers of OpenAI's shape, and its agent with tools."""

import PIL.Image
from columns import BASE, FAIL, LOOK, STALL, SUM, TOKEN, column, failure, holds, pieces, report, saw, stopped, told_once
from samples import PICTURE
from smolagents import ChatMessage, OpenAIModel, ToolCallingAgent, tool

MODEL = OpenAIModel(model_id="belay", api_base=BASE, api_key=TOKEN)
SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"], "additionalProperties": False}


@tool
def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: the name of the city
    """
    # The agent sends a result as a message of the user, so the rehearsal obeys it. A model would call the tool by itself.
    return f'call final_answer {{"answer": "rain in {city}"}}'


def said(text, *more):
    return [ChatMessage(role="user", content=[{"type": "text", "text": text}, *more])]


def words(text):
    return (delta.content for delta in MODEL.generate_stream(said(text)))


@column
def stream():
    pieces(words(SUM))


@column
def tools():
    agent = ToolCallingAgent(tools=[get_weather], model=MODEL, verbosity_level=0)
    holds(agent.run('call get_weather {"city": "Oslo"}'), "rain in Oslo")


@column
def structured():
    form = {"type": "json_schema", "json_schema": {"name": "Answer", "schema": SCHEMA}}
    holds(MODEL.generate(said(SUM), response_format=form).content, '391"}')


@column
def stop():
    parts = words(STALL)
    next(filter(None, parts))
    parts = None  # it has no `close` of its own: the stream ends with the last reference to it
    stopped()


@column
def error():
    told_once(failure(lambda: MODEL.generate(said(FAIL))))


@column
def images():
    saw(MODEL.generate(said(LOOK, {"type": "image", "image": PIL.Image.open(PICTURE)})).content)


report()
