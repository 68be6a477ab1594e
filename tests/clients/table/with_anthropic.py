"""The package anthropic for Python."""

import anthropic
import pydantic
from columns import CALL, FAIL, FORECAST, STALL, SUM, TOKEN, URL, column, failure, holds, pieces, report, stopped, told_once, user

MESSAGES = anthropic.Anthropic(base_url=URL, api_key=TOKEN).messages
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


report()
