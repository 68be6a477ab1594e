"""The package anthropic for Python."""

import pathlib

import anthropic
import pydantic
from columns import CALL, FAIL, FORECAST, LOOK, STALL, SUM, TOKEN, URL, column, encoded, failure, holds, listed, pieces
from columns import read, report, saw, stopped, told_once, user
from samples import PDF, PICTURE, READ_PDF, READ_TEXT, TEXT

CLIENT = anthropic.Anthropic(base_url=URL, api_key=TOKEN)
MESSAGES = CLIENT.messages
ASKED = {"model": "belay", "max_tokens": 1024}
TOOL = {"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}


class Answer(pydantic.BaseModel):
    answer: str


def words(text):
    """The pieces of a streamed answer; the stream is closed with this generator."""
    with MESSAGES.stream(messages=user(text), **ASKED) as stream:
        yield from stream.text_stream


@column
def stream():
    pieces(words(SUM))


@column
def tools():
    talk = user(CALL)
    message = MESSAGES.create(messages=talk, tools=[TOOL], **ASKED)
    calls = [block for block in message.content if block.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": f"rain in {call.input['city']}"} for call in calls]
    talk += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
    answer = MESSAGES.create(messages=talk, tools=[TOOL], **ASKED)
    holds("".join(block.text for block in answer.content if block.type == "text"), FORECAST)


@column
def structured():
    holds(MESSAGES.parse(messages=user(SUM), output_format=Answer, **ASKED).parsed_output.answer, "391")


@column
def stop():
    said = words(STALL)
    next(filter(None, said))
    said.close()
    stopped()


@column
def error():
    told_once(failure(lambda: MESSAGES.create(messages=user(FAIL), **ASKED)))


@column
def models():
    listed(model.id for model in CLIENT.models.list())


def asked_about(*blocks):
    """The answer about pictures and documents."""
    return MESSAGES.create(messages=user([*blocks, {"type": "text", "text": LOOK}]), **ASKED).content[0].text


@column
def images():
    saw(asked_about({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded(PICTURE)}}))


@column
def files():
    text = {"type": "text", "media_type": "text/plain", "data": pathlib.Path(TEXT).read_text(encoding="utf-8")}
    sources = ({"type": "base64", "media_type": "application/pdf", "data": encoded(PDF)}, text)
    read(asked_about(*({"type": "document", "source": source} for source in sources)), READ_PDF, READ_TEXT)


report()
