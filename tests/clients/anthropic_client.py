#!/usr/bin/env python3
"""The official Anthropic client for Python, unchanged and with its defaults, against a real daemon.

    BELAY_BIN=target/debug/belay tests/clients/anthropic_client.py

Needs the package of ANTHROPIC in tests/gate/install.py (tests/run.py installs it under build/anthropic). Prints a line for each
test and, as its last line, "N passed, N failed, N skipped".
"""

import asyncio
import base64
import json
import os
import pathlib
import sys
import urllib.request

import anthropic
import pydantic

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from belay_process import judge  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("BELAY_BIN", ROOT / "target" / "debug" / "belay")
TOKEN = "token-of-the-client-test"
SUM = [{"role": "user", "content": "calculate 17*23"}]
CALL = [{"role": "user", "content": 'call get_weather {"city": "Oslo"}'}]
WEATHER = {"name": "get_weather", "description": "Says the weather.", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}

TESTS = []


def test(function):
    TESTS.append(function)
    return function


class Answer(pydantic.BaseModel):
    answer: str


class Case:
    """What each test gets: clients for the daemon."""

    def __init__(self, url):
        self.url = url
        self.client = self.with_key(TOKEN)
        self.messages = self.client.messages

    def with_key(self, key, **more):
        return anthropic.Anthropic(**{"base_url": self.url, "api_key": key, "max_retries": 0, "timeout": 300, **more})

    def runs_of(self, session):
        request = urllib.request.Request(f"{self.url}/api/v1/runs?session={session}", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)["runs"]

    def ask(self, messages, **more):
        return self.messages.create(model="belay", max_tokens=1024, messages=messages, **more)


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


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def calls_of(message):
    return [block for block in message.content if block.type == "tool_use"]


def results_for(message, text="rain, 4 degrees"):
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": text} for call in calls_of(message)]}


@test
def a_message_is_answered_by_a_tool_of_the_daemon(case):
    answer = case.ask(SUM, system="Be brief.", stop_sequences=["END"], metadata={"user_id": "person-7"}, extra_body={"temperature": 0.2})
    holds(text_of(answer), "391")
    equal((answer.type, answer.role, answer.model, answer.stop_reason), ("message", "assistant", "belay", "end_turn"))
    assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0, answer.usage
    assert answer._request_id, "an answer has the id of its request"


@test
def a_stream_has_the_same_answer(case):
    events = list(case.ask(SUM, stream=True))
    equal([events[0].type, events[-2].type, events[-1].type], ["message_start", "message_delta", "message_stop"])
    pieces = [event.delta.text for event in events if event.type == "content_block_delta" and event.delta.type == "text_delta"]
    holds("".join(pieces), "391")
    equal(events[-2].delta.stop_reason, "end_turn")
    with case.messages.stream(model="belay", max_tokens=1024, messages=SUM) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    equal((text, message.stop_reason), (text_of(message), "end_turn"))
    assert message.usage.output_tokens > 0, message.usage


@test
def tools_of_the_client_are_called_and_their_results_answer(case):
    for stream in (False, True):
        asked = {"model": "belay", "max_tokens": 1024, "messages": CALL, "tools": [WEATHER]}
        if stream:
            with case.messages.stream(**asked) as pieces:
                first = pieces.get_final_message()
        else:
            first = case.messages.create(**asked)
        equal(first.stop_reason, "tool_use")
        equal([(call.name, call.input) for call in calls_of(first)], [("get_weather", {"city": "Oslo"})])
        talk = [*CALL, {"role": "assistant", "content": first.content}, results_for(first)]
        answer = case.messages.create(**{**asked, "messages": talk})
        equal(answer.stop_reason, "end_turn")
        holds(text_of(answer), "rain, 4 degrees")
        equal(text_of(case.messages.create(**{**asked, "messages": talk})), text_of(answer))


@test
def the_tool_runner_goes_round_by_itself(case):
    said = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Says the weather.

        Args:
            city: The city.
        """
        said.append(city)
        return "rain, 4 degrees"

    runner = case.client.beta.messages.tool_runner(model="belay", max_tokens=1024, messages=CALL, tools=[get_weather])
    holds(text_of(runner.until_done()), "rain, 4 degrees")
    equal(said, ["Oslo"])


@test
def results_of_unknown_calls_are_refused_by_id(case):
    first = case.ask(CALL, tools=[WEATHER])
    unknown = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_unknown", "content": "x"}]}
    error = raises(anthropic.BadRequestError, lambda: case.ask([*CALL, {"role": "assistant", "content": first.content}, unknown]))
    holds(error.message, "toolu_unknown")
    holds(error.message, calls_of(first)[0].id)


@test
def an_answer_has_the_form_that_is_asked_for(case):
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"], "additionalProperties": False}
    answer = case.ask(SUM, output_config={"format": {"type": "json_schema", "schema": schema}})
    holds(Answer.model_validate_json(text_of(answer)).answer, "391")
    parsed = case.messages.parse(model="belay", max_tokens=1024, messages=SUM, output_format=Answer)
    holds(parsed.parsed_output.answer, "391")


@test
def a_picture_and_documents_are_sent_as_blocks(case):
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    csv = base64.b64encode(b"a,b\n1,2\n").decode()
    blocks = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": dot}},
        {"type": "document", "title": "t.csv", "source": {"type": "base64", "media_type": "text/csv", "data": csv}},
        {"type": "document", "title": "notes.txt", "source": {"type": "text", "media_type": "text/plain", "data": "remember"}},
        {"type": "text", "text": "calculate 17*23"},
    ]
    holds(text_of(case.ask([{"role": "user", "content": blocks}])), "391")
    remote = [{"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}]
    holds(raises(anthropic.BadRequestError, lambda: case.ask([{"role": "user", "content": remote}])).message, "messages.0.content.0.source")


@test
def a_history_that_is_sent_again_goes_on(case):
    first = case.ask(SUM)
    talk = [*SUM, {"role": "assistant", "content": first.content}, {"role": "user", "content": "calculate 6*7"}]
    holds(text_of(case.ask(talk, system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}])), "42")


@test
def a_yes_below_the_question_of_a_resent_history_approves(case):
    asked = [{"role": "user", "content": 'call run_command {"argv": ["echo", "here"]}'}]
    question = case.ask(asked)
    holds(text_of(question), "Answer **yes** or **no**")
    answer = case.ask([*asked, {"role": "assistant", "content": question.content}, {"role": "user", "content": "yes"}])
    holds(text_of(answer), "here")


@test
def errors_have_their_types(case):
    wrong_key = raises(anthropic.AuthenticationError, lambda: case.with_key("wrong").messages.create(model="belay", max_tokens=9, messages=SUM))
    equal((wrong_key.type, bool(wrong_key.request_id)), ("authentication_error", True))
    no_model = raises(anthropic.NotFoundError, lambda: case.messages.create(model="claude-9", max_tokens=9, messages=SUM))
    equal((no_model.type, no_model.error_code), ("not_found_error", "model_not_found"))
    empty = raises(anthropic.BadRequestError, lambda: case.ask([]))
    equal(empty.type, "invalid_request_error")
    long_name = raises(anthropic.BadRequestError, lambda: case.ask(SUM, tools=[{**WEATHER, "name": "n" * 200}]))
    holds(long_name.message, "tools.0.name")
    raises(anthropic.NotFoundError, lambda: case.messages.batches.list())


@test
def the_older_header_takes_the_key_too(case):
    client = case.with_key(None, default_headers={"x-api-key": TOKEN, "anthropic-version": "2023-06-01"})
    holds(text_of(client.messages.create(model="belay", max_tokens=9, messages=SUM)), "391")


@test
def tokens_are_estimated(case):
    count = lambda text: case.messages.count_tokens(model="belay", messages=[{"role": "user", "content": text}]).input_tokens
    few, many = count("hello"), count("hello " * 1000)
    assert 0 < few < 20 and 1000 < many < 2000, (few, many)


@test
def the_models_are_listed(case):
    listed = list(case.client.models.list())
    equal((listed[0].id, listed[0].type), ("belay", "model"))
    equal(case.client.models.retrieve("belay").display_name, "belay")


@test
def a_request_with_the_same_key_joins_the_run_that_is_there(case):
    key = {"extra_headers": {"Idempotency-Key": "once"}}
    first, again = case.ask(SUM, **key), case.ask(SUM, **key)
    equal((again.id, text_of(again)), (first.id, text_of(first)))


@test
def a_retry_after_a_time_out_joins_the_run_that_is_there(case):
    client = case.with_key(TOKEN, max_retries=30, timeout=2)
    talk, named = [{"role": "user", "content": "rehearse stall 3"}], {"X-Belay-Session": "anthropic-retry"}
    answer = client.messages.create(model="belay", max_tokens=1024, messages=talk, extra_headers=named)
    holds(text_of(answer), "nothing stopped me")
    equal(len(case.runs_of("anthropic-retry")), 1)


@test
def the_asynchronous_client_works(case):
    async def ask():
        async with anthropic.AsyncAnthropic(base_url=case.url, api_key=TOKEN, max_retries=0, timeout=300) as client:
            asked = [client.messages.create(model="belay", max_tokens=1024, messages=SUM) for _ in range(8)]
            return await asyncio.gather(*asked)

    for answer in asyncio.run(ask()):
        holds(text_of(answer), "391")


if __name__ == "__main__":
    sys.exit(judge(BINARY, {"BELAY_TOKEN": TOKEN}, TESTS, lambda belay: Case(belay.url)))
