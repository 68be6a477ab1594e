"""The package openai for Python."""

import json

import openai
import pydantic
from columns import BASE, CALL, FACE, FAIL, FORECAST, LOOK, STALL, SUM, TOKEN, column, data_url, failure, holds, listed, pieces
from columns import read, report, saw, stopped, told_once, user
from samples import PDF, PICTURE, READ_PDF, READ_TEXT, TEXT

CLIENT = openai.OpenAI(base_url=BASE, api_key=TOKEN)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
FUNCTION = {"name": "get_weather", "parameters": SCHEMA, "strict": True}


class Answer(pydantic.BaseModel):
    answer: str


def words(text):
    """The pieces of a streamed answer; the stream is closed with this generator."""
    if FACE == "chat":
        with CLIENT.chat.completions.create(model="belay", messages=user(text), stream=True) as stream:
            yield from (chunk.choices[0].delta.content for chunk in stream if chunk.choices)
    else:
        with CLIENT.responses.create(model="belay", input=text, stream=True) as stream:
            yield from (event.delta for event in stream if event.type == "response.output_text.delta")


@column
def stream():
    pieces(words(SUM))


def forecast(arguments):
    return f"rain in {json.loads(arguments)['city']}"


@column
def tools():
    talk = user(CALL)
    if FACE == "chat":
        asked = {"model": "belay", "tools": [{"type": "function", "function": FUNCTION}]}
        message = CLIENT.chat.completions.create(messages=talk, **asked).choices[0].message
        results = [{"role": "tool", "tool_call_id": call.id, "content": forecast(call.function.arguments)} for call in message.tool_calls]
        talk += [message, *results]
        holds(CLIENT.chat.completions.create(messages=talk, **asked).choices[0].message.content, FORECAST)
    else:
        asked = {"model": "belay", "tools": [{"type": "function", **FUNCTION}]}
        items = CLIENT.responses.create(input=talk, **asked).output
        calls = [item for item in items if item.type == "function_call"]
        results = [{"type": "function_call_output", "call_id": call.call_id, "output": forecast(call.arguments)} for call in calls]
        talk += [*items, *results]
        holds(CLIENT.responses.create(input=talk, **asked).output_text, FORECAST)


@column
def structured():
    if FACE == "chat":
        answer = CLIENT.chat.completions.parse(model="belay", messages=user(SUM), response_format=Answer)
        holds(answer.choices[0].message.parsed.answer, "391")
    else:
        holds(CLIENT.responses.parse(model="belay", input=SUM, text_format=Answer).output_parsed.answer, "391")


@column
def stop():
    said = words(STALL)
    next(filter(None, said))
    said.close()
    stopped()


@column
def error():
    whole = lambda: CLIENT.responses.create(model="belay", input=FAIL)  # noqa: E731  a stream has an event for it, and raises nothing
    told_once(failure(whole if FACE == "responses" else lambda: list(words(FAIL))))


@column
def models():
    listed(model.id for model in CLIENT.models.list())


def asked_about(*parts):
    """The answer about parts that stand behind a text, in the form of the face."""
    if FACE == "chat":
        talk = user([{"type": "text", "text": LOOK}, *parts])
        return CLIENT.chat.completions.create(model="belay", messages=talk).choices[0].message.content
    return CLIENT.responses.create(model="belay", input=user([{"type": "input_text", "text": LOOK}, *parts])).output_text


@column
def images():
    url = data_url(PICTURE, "image/png")
    in_face = {"chat": {"type": "image_url", "image_url": {"url": url}}, "responses": {"type": "input_image", "image_url": url, "detail": "auto"}}
    saw(asked_about(in_face[FACE]))


@column
def files():
    sent = [{"filename": name, "file_data": data_url(name, kind)} for name, kind in ((PDF, "application/pdf"), (TEXT, "text/plain"))]
    parts = [{"type": "file", "file": file} if FACE == "chat" else {"type": "input_file", **file} for file in sent]
    read(asked_about(*parts), READ_PDF, READ_TEXT)


report()
