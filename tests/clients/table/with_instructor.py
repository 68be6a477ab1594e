"""instructor, in its default modes: a tool by the name of the class, in a stream `Partial` before it. The guide has the mode JSON_SCHEMA."""

import instructor
import openai
import pydantic
from columns import BASE, FAIL, LOOK, TOKEN, column, failure, holds, read, report, saw, told_once, user
from instructor.processing.multimodal import PDF as Document
from instructor.processing.multimodal import Image
from samples import PDF, PICTURE

MODES = (instructor.Mode.TOOLS, instructor.Mode.RESPONSES_TOOLS)
# The rehearsal calls a tool only if the text says so.
FILLED = 'call Answer {"answer": "391"}'


class Answer(pydantic.BaseModel):
    answer: str


def asked(method, mode, text):
    client = instructor.from_openai(openai.OpenAI(base_url=BASE, api_key=TOKEN), mode=mode)
    return getattr(client, method)(model="belay", response_model=Answer, messages=user(text))


@column
def stream():
    for mode in MODES:
        parts = list(asked("create_partial", mode, FILLED.replace("Answer", "PartialAnswer")))
        holds(parts[-1].answer, "391")


@column
def structured():
    for mode in MODES:
        holds(asked("create", mode, FILLED).answer, "391")


@column
def error():
    told_once(failure(lambda: asked("create", MODES[0], FAIL)))


@column
def images():
    for mode in MODES:
        saw(asked("create", mode, [LOOK, Image.from_path(PICTURE)]).answer)


@column
def files():
    for mode in MODES:
        read(asked("create", mode, [LOOK, Document.from_path(PDF)]).answer)


report()
