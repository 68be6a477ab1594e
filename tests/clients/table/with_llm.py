"""The command llm, which the lines of the guide have configured."""

from columns import BASE, CALL, FAIL, FORECAST, LOOK, SUM, TOKEN, column, holds, listed, read, report, saw, told_once
from commands import printed, stops, streams
from samples import PDF, PICTURE, READ_PDF, READ_TEXT, TEXT

LLM = ["llm", "-m", "belay"]
FUNCTIONS = 'def get_weather(city: str) -> str:\n    "The weather in a city."\n    return "rain in " + city\n'


@column
def tools():
    holds(printed([*LLM, "--functions", FUNCTIONS, CALL]), FORECAST)


@column
def structured():
    holds(printed([*LLM, "--schema", "answer str", SUM]), '391"}')


@column
def error():
    told_once(printed([*LLM, FAIL]))


@column
def stop():
    stops(LLM)


@column
def stream():
    streams(LLM)


@column
def models():
    listed(printed(["llm", "openai", "endpoint", BASE, "--models", "--key", TOKEN]).split())


@column
def images():
    saw(printed([*LLM, "--attachment", PICTURE, LOOK]))


@column
def files():
    """A PDF is a part of type file. A text file is a fragment, which stands in the message."""
    read(printed([*LLM, "--attachment", PDF, "--fragment", TEXT, LOOK]), READ_PDF, READ_TEXT)


report()
