#!/usr/bin/env python3
"""The official OpenAI client for Python, unchanged, against a real daemon.

    BELAY_BIN=target/debug/belay tests/clients/openai_client.py

Needs the package `openai` (tests/run.py installs it under build/clients). Prints a line for each test and, as its last line,
"N passed, N failed, N skipped".
"""

import asyncio
import base64
import contextlib
import io
import json
import os
import pathlib
import re
import sys
import urllib.request

import openai
import pydantic
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming, CompletionCreateParamsStreaming

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from belay_process import judge  # noqa: E402
from table import samples  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("BELAY_BIN", ROOT / "target" / "debug" / "belay")
TOKEN = "token-of-the-client-test"
MODEL = "rehearsal"
SUM = [{"role": "user", "content": "calculate 17*23"}]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}

TESTS = []


def test(function):
    TESTS.append(function)
    return function


class Case:
    """What each test gets: the daemon's address, and clients for it."""

    def __init__(self, url):
        self.url = url
        self.client = self.with_key(TOKEN)

    def with_key(self, key):
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=300)

    def messages_of(self, session):
        request = urllib.request.Request(
            f"{self.url}/api/v1/sessions/{session}/messages", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)["messages"]


def equal(found, expected):
    assert found == expected, f"expected {expected!r}, found {found!r}"


def holds(text, part):
    assert part in (text or ""), f"expected {part!r} in {text!r}"


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, but the call went through")


def model(case):
    return case.client.models.list().data[0].id


@test
def the_models_are_listed(case):
    listed = case.client.models.list().data
    assert listed, "no model is listed"
    assert all(one.object == "model" and one.id for one in listed), listed


@test
def a_completion_answers_by_a_tool_of_the_daemon(case):
    answer = case.client.chat.completions.create(model=model(case), messages=SUM)
    equal(answer.object, "chat.completion")
    equal(len(answer.choices), 1)
    holds(answer.choices[0].message.content, "391")
    equal(answer.choices[0].message.role, "assistant")
    equal(answer.choices[0].finish_reason, "stop")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens, answer.usage


@test
def a_stream_brings_the_same_answer_in_pieces(case):
    stream = case.client.chat.completions.create(model=model(case), messages=SUM, stream=True)
    chunks = list(stream)
    assert all(chunk.object == "chat.completion.chunk" for chunk in chunks), chunks
    equal(len({chunk.id for chunk in chunks}), 1)
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    holds("".join(choice.delta.content or "" for choice in choices), "391")
    equal([choice.finish_reason for choice in choices if choice.finish_reason], ["stop"])


@test
def a_stream_ends_with_the_usage_when_asked(case):
    options = {"include_usage": True}
    chunks = list(case.client.chat.completions.create(model=model(case), messages=SUM, stream=True, stream_options=options))
    equal([bool(chunk.usage) for chunk in chunks], [False] * (len(chunks) - 1) + [True])
    equal(chunks[-1].choices, [])


@test
def the_helper_that_gathers_a_stream_works(case):
    with case.client.chat.completions.stream(model=model(case), messages=SUM) as stream:
        holds(stream.get_final_completion().choices[0].message.content, "391")


@test
def a_picture_and_files_are_sent_as_parts(case):
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    csv = base64.b64encode(b"a,b\n1,2\n").decode()
    parts = [
        {"type": "text", "text": "calculate 17*23"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{dot}"}},
        {"type": "file", "file": {"filename": "t.csv", "file_data": f"data:text/csv;base64,{csv}"}},
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(b"ID3\3\0\0\0\0").decode(), "format": "mp3"}},
    ]
    answer = case.client.chat.completions.create(model=model(case), messages=[{"role": "user", "content": parts}])
    holds(answer.choices[0].message.content, "391")
    # aider sends a PDF so (docs/reference/clients.md). The rehearsal names the files of a message that has no text.
    pdf = base64.b64encode(samples.pdf("a line")).decode()
    as_picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"data:application/pdf;base64,{pdf}"}}]}]
    holds(case.client.chat.completions.create(model=model(case), messages=as_picture).choices[0].message.content, "PDF")
    remote = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]
    ask = lambda: case.client.chat.completions.create(model=model(case), messages=[{"role": "user", "content": remote}])
    holds(raises(openai.BadRequestError, ask).message, "data: URLs")


@test
def the_asynchronous_client_works(case):
    async def ask():
        async with openai.AsyncOpenAI(base_url=f"{case.url}/v1", api_key=TOKEN, max_retries=0, timeout=300) as client:
            asked = [client.chat.completions.create(model=name, messages=SUM) for _ in range(8)]
            return await asyncio.gather(*asked)

    name = model(case)
    for answer in asyncio.run(ask()):
        holds(answer.choices[0].message.content, "391")


@test
def a_model_is_retrieved_by_its_name(case):
    equal(case.client.models.retrieve(model(case)).id, model(case))
    raises(openai.NotFoundError, lambda: case.client.models.retrieve("no-such-model"))


@test
def an_answer_is_parsed_into_a_model_of_pydantic(case):
    class Answer(pydantic.BaseModel):
        answer: str

    parsed = case.client.chat.completions.parse(model=model(case), messages=SUM, response_format=Answer)
    holds(parsed.choices[0].message.parsed.answer, "391")


@test
def the_conversation_field_names_a_session_that_goes_on(case):
    named = {"extra_body": {"conversation": "ada"}}
    first = case.client.chat.completions.create(model=model(case), messages=SUM, **named)
    talk = [*SUM, {"role": "assistant", "content": first.choices[0].message.content}, {"role": "user", "content": "calculate 6*7"}]
    second = case.client.chat.completions.create(model=model(case), messages=talk, user="person-7", **named)
    holds(second.choices[0].message.content, "42")
    said = [message["text"] for message in case.messages_of("ada") if message["role"] == "user"]
    equal(said, ["calculate 17*23", "calculate 6*7"])


@test
def plain_text_has_a_model_of_its_own(case):
    answer = case.client.chat.completions.create(model="belay:text", messages=SUM)
    equal(answer.model, "belay:text")
    holds("belay:text", next(known.id for known in case.client.models.list().data if known.id == "belay:text"))


@test
def a_yes_below_the_question_of_a_resent_history_approves(case):
    asked = [{"role": "user", "content": 'call run_command {"argv": ["echo", "here"]}'}]
    question = case.client.chat.completions.create(model=model(case), messages=asked)
    holds(question.choices[0].message.content, "Answer **yes** or **no**")
    talk = [*asked, question.choices[0].message.model_dump(exclude_none=True), {"role": "user", "content": "yes"}]
    answer = case.client.chat.completions.create(model=model(case), messages=talk)
    holds(answer.id, f"{question.id}-")
    holds(answer.choices[0].message.content, "here")


@test
def a_text_is_completed(case):
    holds(case.client.completions.create(model=model(case), prompt="calculate 17*23").choices[0].text, "391")
    pieces = case.client.completions.create(model=model(case), prompt="calculate 17*23", stream=True)
    holds("".join(piece.choices[0].text for piece in pieces if piece.choices), "391")


@test
def the_session_header_names_one_too(case):
    headers = {"X-Belay-Session": "eve"}
    case.client.chat.completions.create(model=model(case), messages=SUM, extra_headers=headers)
    said = [message["text"] for message in case.messages_of("eve") if message["role"] == "user"]
    equal(said, ["calculate 17*23"])


@test
def without_a_session_the_messages_are_the_history(case):
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": [{"type": "text", "text": "calculate 2+3"}]},
    ]
    answer = case.client.chat.completions.create(model=model(case), messages=talk)
    holds(answer.choices[0].message.content, "5")


@test
def tools_of_the_client_are_called_and_their_results_answer(case):
    talk = [{"role": "user", "content": 'call weather {"city": "Oslo"}'}]
    for stream in (False, True):
        asked = {"model": model(case), "messages": talk, "tools": [TOOL]}
        if stream:
            with case.client.chat.completions.stream(**asked) as pieces:
                pieces.until_done()
                first = pieces.get_final_completion()
        else:
            first = case.client.chat.completions.create(**asked)
        equal(first.choices[0].finish_reason, "tool_calls")
        message = first.choices[0].message
        call = message.tool_calls[0]
        equal((call.function.name, json.loads(call.function.arguments)), ("weather", {"city": "Oslo"}))
        sent = {"role": "assistant", "content": message.content, "tool_calls": [
            {"id": call.id, "type": "function", "function": {"name": "weather", "arguments": call.function.arguments}}]}
        results = [sent, {"role": "tool", "tool_call_id": call.id, "content": "rain, 4 degrees"}]
        answer = case.client.chat.completions.create(**{**asked, "messages": talk + results})
        equal(answer.choices[0].finish_reason, "stop")
        holds(answer.choices[0].message.content, "rain, 4 degrees")


@test
def each_call_has_a_chunk_and_each_completion_an_id_of_its_own(case):
    talk = [{"role": "user", "content": 'call weather {"city": "Oslo"}\ncall weather {"city": "Rome"}'}]
    asked = {"model": model(case), "tools": [TOOL]}
    chunks = list(case.client.chat.completions.create(messages=talk, stream=True, **asked))
    calls = [chunk.choices[0].delta.tool_calls for chunk in chunks if chunk.choices[0].delta.tool_calls]
    equal([[call.index for call in of_chunk] for of_chunk in calls], [[0], [1]])
    sent = [{"id": call.id, "type": "function", "function": {"name": "weather", "arguments": call.function.arguments}} for [call] in calls]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "rain"} for call in sent]
    answer = case.client.chat.completions.create(messages=[*talk, {"role": "assistant", "tool_calls": sent}, *results], **asked)
    equal(answer.choices[0].finish_reason, "stop")
    holds(answer.id, f"{chunks[0].id}-")


@test
def results_without_their_calls_are_refused_by_id(case):
    talk = [{"role": "user", "content": 'call weather {"city": "Oslo"}'}]
    first = case.client.chat.completions.create(model=model(case), messages=talk, tools=[TOOL])
    call = first.choices[0].message.tool_calls[0]
    broken = [{"role": "tool", "tool_call_id": call.id[:-1] + "7", "content": "rain"}]
    error = raises(
        openai.BadRequestError,
        lambda: case.client.chat.completions.create(model=model(case), messages=talk + broken, tools=[TOOL]),
    )
    holds(error.message, call.id)


@test
def an_unknown_model_is_refused(case):
    raises(openai.NotFoundError, lambda: case.client.chat.completions.create(model="no-such-model", messages=SUM))


@test
def a_history_that_ends_with_an_answer_goes_on(case):
    talk = [*SUM, {"role": "assistant", "content": "391"}]
    answer = case.client.chat.completions.create(model=model(case), messages=talk)
    holds(answer.choices[0].message.content, '"continue"')  # what the rehearsal reads


@test
def a_wrong_token_is_refused(case):
    wrong = case.with_key("wrong")
    raises(openai.AuthenticationError, lambda: wrong.models.list())
    raises(openai.AuthenticationError, lambda: wrong.chat.completions.create(model=MODEL, messages=SUM))
    raises(openai.AuthenticationError, lambda: list(wrong.chat.completions.create(model=MODEL, messages=SUM, stream=True)))


@test
def the_guide_lists_each_field_of_a_completion(_case):
    forms = (CompletionCreateParamsNonStreaming, CompletionCreateParamsStreaming)
    table = (ROOT / "docs/guide/programs.md").read_text(encoding="utf-8").split("### Fields of a chat completion")[1]
    rows = re.findall(r"^\| (`.*?`) \| (?:honoured|ignored|refused) \|", table.split("\n## ")[0], re.MULTILINE)
    equal(sorted(re.findall(r"`(\w+)`", " ".join(rows))), sorted({name for form in forms for name in form.__annotations__}))


@test
def fields_that_no_answer_can_have_are_refused_by_name(case):
    for field, value in (("modalities", ["text", "audio"]), ("moderation", {"model": "m"}), ("logit_bias", {"7": 1}), ("n", 2)):
        asked = {"model": model(case), "messages": SUM, field: value}
        error = raises(openai.BadRequestError, lambda asked=asked: case.client.chat.completions.create(**asked))
        equal(error.param, field)


@test
def the_lines_of_the_guide_print_an_answer(case):
    blocks = (ROOT / "docs/guide/programs.md").read_text(encoding="utf-8").split("\n```python\n")
    lines = next(block for block in blocks if block.startswith("from openai")).split("\n```")[0]
    for written, here in (("http://127.0.0.1:8787", case.url), ("unused-without-a-token", TOKEN)):
        holds(lines, written)
        lines = lines.replace(written, here)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(lines, "docs/guide/programs.md", "exec"), {})
    assert re.search(r"\d\d:\d\d", printed.getvalue()), printed.getvalue()


def main():
    return judge(BINARY, {"BELAY_TOKEN": TOKEN}, TESTS, lambda belay: Case(belay.url))


if __name__ == "__main__":
    sys.exit(main())
