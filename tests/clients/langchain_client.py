#!/usr/bin/env python3
"""LangChain's client for OpenAI, unchanged, against a real daemon.

    BELAY_BIN=target/debug/belay tests/clients/langchain_client.py

Needs the package `langchain-openai` (tests/run.py installs it under build/langchain). Prints a line for each test and, as its last
line, "N passed, N failed, N skipped".
"""

import os
import pathlib
import sys

import pydantic
from langchain_openai import ChatOpenAI

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from belay_process import judge  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("BELAY_BIN", ROOT / "target" / "debug" / "belay")
TOKEN = "token-of-the-client-test"
SUM = "calculate 17*23"


class Answer(pydantic.BaseModel):
    """The result of a calculation."""

    result: int
    words: str


def a_plain_question_is_answered(model):
    assert "391" in model.invoke(SUM).content


def a_structured_output_is_an_object_of_its_class(model):
    answer = model.with_structured_output(Answer, method="json_schema").invoke(SUM)
    assert isinstance(answer, Answer), answer
    assert answer.result == 391 and "391" in answer.words, answer


def the_mode_for_any_json_works_too(model):
    answer = model.with_structured_output(None, method="json_mode").invoke(f"{SUM}, as JSON")
    assert isinstance(answer, dict), answer


TESTS = [a_plain_question_is_answered, a_structured_output_is_an_object_of_its_class, the_mode_for_any_json_works_too]


def client_of(belay):
    return ChatOpenAI(model="belay", base_url=f"{belay.url}/v1", api_key=TOKEN, max_retries=0, timeout=300)


def main():
    return judge(BINARY, {"BELAY_TOKEN": TOKEN}, TESTS, client_of)


if __name__ == "__main__":
    sys.exit(main())
